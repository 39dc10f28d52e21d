package storetest

import (
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/parleyhq/parley/server/internal/channel"
	"github.com/parleyhq/parley/server/internal/erasure"
	"github.com/parleyhq/parley/server/internal/message"
)

var eraseContracts = []contract{
	{"AnErasingRecallRemovesTheSender", erasingRecall},
	{"ErasedRecalledMessagesLoseTheirSender", eraseRecalled},
	{"BySenderFindsAllEntriesOfAUser", bySender},
	{"ScrubRemovesAUserFromChanges", scrubChanges},
	{"ScrubbedRecallsEraseNobodyElse", scrubRecall},
}

// erase creates the recall by which an erasure removes target.
func (d *draft) erase(target *message.Entry) message.Entry {
	e := d.next(message.KindRecall, message.ErasedUser, "erase/"+target.MsgID, "")
	e.MsgID, e.TargetSeq, e.Digest = target.MsgID, target.Seq, nil
	return e
}

// erased returns a message after the Apply of its erasure.
func erased(target, change message.Entry) message.Entry {
	e := changed(target, change)
	e.FromID, e.ClientMsgID, e.Traceparent = message.ErasedUser, message.ErasedKey(target.Seq), ""
	return e
}

func erasingRecall(t *testing.T, p *fixture) {
	d := draftsOf(1, 1)[0]
	log := d.sends(3)
	erase := d.erase(&log[1])
	log = append(log, erase, d.send("behind it"))
	p.insert(t, log...)
	want := slices.Clone(log)
	target, ok, err := targetOf(t.Context(), p, d.channel, log[1].MsgID)
	if err != nil || !ok || target.FromID != message.ErasedUser || target.Content != "" || target.Digest != nil {
		t.Fatalf("target before Apply: %+v, %v, %v", target, ok, err)
	}
	want[1], want[3] = erased(log[1], erase), applied(erase)
	for range 2 {
		p.apply(t, erase)
		equal(t, "log", want, p.all(t, d.channel))
		got, err := p.Changed(t.Context(), d.channel, 0, 0, 10, 0)
		if err != nil {
			t.Fatal(err)
		}
		equal(t, "changed", want[1:2], got)
		found, err := p.ByClientKeys(t.Context(), d.channel, []message.ClientKey{keyOf(&log[1]), keyOf(&want[1]), keyOf(&erase)})
		if err != nil || len(found) != 2 {
			t.Fatalf("by client keys: %v, %v", found, err)
		}
		equal(t, "by the new key", want[1:2], []message.Entry{found[keyOf(&want[1])]})
		p.reopen(t)
	}
	// The key of the erased message is free.
	again := d.sendAs(log[1].FromID, log[1].ClientMsgID, "again")
	p.insert(t, again)
	equal(t, "log with the repeat", append(want, again), p.all(t, d.channel))
}

func eraseRecalled(t *testing.T, p *fixture) {
	d := draftsOf(2, 1)[0]
	log := d.sends(1)
	recall := d.recall(&log[0])
	erase := d.erase(&log[0])
	p.insert(t, log[0], recall, erase)
	p.apply(t, erase, recall) // in reverse
	equal(t, "log", []message.Entry{erased(changed(log[0], recall), erase), applied(recall), applied(erase)}, p.all(t, d.channel))
}

func bySender(t *testing.T, p *fixture) {
	var want []string
	for shard := range shards {
		for i, d := range draftsOf(shard, 3) {
			log := d.sends(3)
			for _, from := range []string{"bo", "bob", "bob0", "zed"} {
				log = append(log, d.sendAs(from, fmt.Sprint("key-", i), from))
			}
			edit := d.edit(&log[4], "edited")
			edit.FromID = "bob"
			log = append(log, edit)
			if i == 1 {
				log = log[:4] // one log in which bob wrote nothing
			} else {
				want = append(want, fmt.Sprint(d.channel, log[4].Seq), fmt.Sprint(d.channel, edit.Seq))
			}
			p.insert(t, log...)
		}
	}
	find := func(limit int) (got []string) {
		t.Helper()
		found, err := p.BySender(t.Context(), "bob", limit)
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range found {
			if e.FromID != "bob" || e.MsgID == "" || (e.Kind == message.KindSend) != (e.TargetSeq == 0) {
				t.Fatalf("found %+v", e)
			}
			got = append(got, fmt.Sprint(e.ChannelID, e.Seq))
		}
		slices.Sort(got)
		return got
	}
	slices.Sort(want)
	if got := find(100); !slices.Equal(want, got) {
		t.Fatalf("found %v, want %v", got, want)
	}
	if got := find(5); len(got) != 5 {
		t.Fatalf("found %d with a limit of 5", len(got))
	}
	if found, err := p.BySender(t.Context(), "nobody", 5); err != nil || len(found) != 0 {
		t.Fatalf("entries of nobody: %v, %v", found, err)
	}
}

func scrubChanges(t *testing.T, p *fixture) {
	d := draftsOf(3, 1)[0]
	log := d.sends(3)
	edit, pending, recall := d.edit(&log[0], "edited"), d.edit(&log[1], "pending"), d.recall(&log[2])
	p.insert(t, append(log, edit, pending, recall)...)
	p.apply(t, edit, recall)
	scrubbed := func(e message.Entry) message.Entry {
		e.FromID, e.ClientMsgID, e.Digest, e.Traceparent = message.ErasedUser, message.ErasedKey(e.Seq), nil, ""
		return e
	}
	want := []message.Entry{
		changed(log[0], edit), log[1], changed(log[2], recall), scrubbed(applied(edit)), scrubbed(pending), applied(recall),
	}
	for range 2 {
		must(t, p.Scrub(t.Context(), d.channel, "ann", []int64{1, 2, 3, 4, 5, 6, 7}))
		equal(t, "log", want, p.all(t, d.channel)) // sends and the moderator's recall stay
		p.reopen(t)
	}
	p.apply(t, pending)
	want[1], want[4] = changed(log[1], pending), scrubbed(applied(pending))
	equal(t, "log after the Apply", want, p.all(t, d.channel))
	must(t, p.Scrub(t.Context(), d.channel, "ann", nil))
}

// scrubRecall removes a moderator while their recall of another user's message is pending. The
// message keeps its sender, and its key is not free.
func scrubRecall(t *testing.T, p *fixture) {
	d := draftsOf(1, 1)[0]
	sent := d.send("ann's text")
	recall := d.recall(&sent)
	p.insert(t, sent, recall)
	must(t, p.Scrub(t.Context(), d.channel, recall.FromID, []int64{recall.Seq}))
	want := changed(sent, recall)
	wantTarget(t, p, want)
	p.apply(t, p.all(t, d.channel)[1])
	wantTarget(t, p, want)
	found, err := p.ByClientKeys(t.Context(), d.channel, []message.ClientKey{keyOf(&sent)})
	must(t, err)
	equal(t, "by its key", []message.Entry{want}, []message.Entry{found[keyOf(&sent)]})
}

var forgetContracts = []channelContract{
	{"ForgetRemovesFormerMembersAndCreators", forget},
	{"StrippedEntriesOfAUserAreScrubbed", scrubStripped},
}

func forget(t *testing.T, c *channels) {
	for i := range 5 {
		row := channel.Row{ChannelID: fmt.Sprint("club", i), CreatedBy: "ann", CreatedAt: at(1), CreateKey: "key", CreateDigest: "digest"}
		if i == 4 {
			row.CreatedBy = "bob"
		}
		_, err := c.Create(t.Context(), row, []string{"ann", "bob"})
		must(t, err)
		if i < 3 {
			must(t, c.RemoveMembers(t.Context(), row.ChannelID, []string{"ann", "bob"}, 3))
		}
	}
	total := 0
	for n := 1; n > 0 && total < 20; total += n {
		var err error
		n, err = c.Forget(t.Context(), "ann", 2)
		must(t, err)
		if n > 4 {
			t.Fatalf("%d at once", n)
		}
	}
	if total != 7 { // 3 records and 4 channels
		t.Fatalf("forgot %d", total)
	}
	c.reopen(t)
	for i := range 5 {
		id := fmt.Sprint("club", i)
		row := c.row(t, id)
		if want := map[bool]string{true: "bob"}[i == 4]; row.CreatedBy != want || (row.CreateKey == "") != (i < 4) || (row.CreateDigest == "") != (i < 4) {
			t.Fatalf("row %+v", row)
		}
	}
	got, err := c.Memberships(t.Context(), "ann", "", 10)
	must(t, err)
	if len(got) != 2 { // members are not forgotten
		t.Fatalf("memberships %+v", got)
	}
	// The record of bob's last removal is there, that of ann is not.
	move := func(from string) channel.Advance {
		return channel.Advance{ChannelID: "club0", Numbers: channel.Numbers{Head: 2, Count: 2, LastMessage: 2}, Senders: map[string]channel.Cursor{from: {Seq: 2, Count: 2}}}
	}
	must(t, c.Advance(t.Context(), []channel.Advance{move("bob")}, at(5)))
	must(t, c.Advance(t.Context(), []channel.Advance{move("ann")}, at(5)))
	members, err := c.Members(t.Context(), "club0", "", 10)
	must(t, err)
	if len(members) != 1 || members[0].UserID != "ann" {
		t.Fatalf("members %+v", members)
	}
}

func scrubStripped(t *testing.T, c *channels) {
	log := changedLog(t, c, "lobby")
	c.expire(t, "lobby", 9, 5)
	must(t, c.place.Strip(t.Context(), "lobby", 0, 9))
	var seqs []int64
	want := slices.Clone(log)
	for i := range want[:8] {
		want[i] = stripped(want[i])
		if want[i].FromID == "ann" {
			seqs = append(seqs, want[i].Seq)
			want[i].FromID, want[i].ClientMsgID = message.ErasedUser, message.ErasedKey(want[i].Seq)
		}
	}
	must(t, c.place.Scrub(t.Context(), "lobby", "ann", seqs))
	equal(t, "log", want, c.place.all(t, "lobby"))
	found, err := c.place.BySender(t.Context(), "ann", 10)
	must(t, err)
	if len(found) != 1 || found[0].Seq != 9 {
		t.Fatalf("found %+v", found)
	}
	must(t, c.place.Delete(t.Context(), "lobby", 0, 9))
	equal(t, "log after the deletion", want[8:], c.place.all(t, "lobby"))
}

// RunErasures tests stores of erasures against their contract. f creates message stores, and of
// returns the store of erasures of one.
func RunErasures(t *testing.T, f Factory, of func(message.Store) erasure.Store) {
	p := newFixture(t, f(t))
	s := of(p.Store)
	ctx := t.Context()
	if _, err := s.Get(ctx, "none"); !errors.Is(err, erasure.ErrNotFound) {
		t.Fatalf("a missing one: %v", err)
	}
	job := erasure.Job{ID: "b", UserID: "$ann", State: erasure.Running, CreatedAt: at(1)}
	for _, user := range []string{"$ann", "bob"} { // the second Put changes nothing
		again := job
		again.UserID = user
		got, err := s.Put(ctx, again)
		must(t, err)
		same(t, "put", job, got)
	}
	job.State, job.ErasedAt, job.FinishedAt, job.NextAt, job.QuietAt = erasure.Erased, at(2), at(3), at(4), at(5)
	job.Messages, job.Changes, job.Memberships, job.Cached = 6, 7, 8, []string{"x", "y"}
	job.Sessions = []string{"~a", "~b"}
	saved, err := s.Save(ctx, job)
	must(t, err)
	if _, err := s.Save(ctx, job); !errors.Is(err, erasure.ErrChanged) {
		t.Fatalf("an earlier revision: %v", err)
	}
	if _, err := s.Save(ctx, erasure.Job{ID: "none"}); !errors.Is(err, erasure.ErrChanged) {
		t.Fatalf("save a missing one: %v", err)
	}
	p.reopen(t)
	s = of(p.Store)
	got, err := s.Get(ctx, "b")
	must(t, err)
	job.Rev = saved.Rev
	same(t, "stored", job, got)
	for _, id := range []string{"c", "a", "d"} {
		_, err := s.Put(ctx, erasure.Job{ID: id, UserID: "u", State: erasure.Running, CreatedAt: at(1).Add(time.Hour)})
		must(t, err)
	}
	got.State = erasure.Finished
	_, err = s.Save(ctx, got)
	must(t, err)
	list := func(after string, limit int, open bool) (ids string) {
		t.Helper()
		jobs, err := s.List(ctx, after, limit, open)
		must(t, err)
		for i := range jobs {
			ids += jobs[i].ID
		}
		return ids
	}
	for want, got := range map[string]string{
		"abcd": list("", 10, false), "acd": list("", 10, true), "bc": list("a", 2, false), "cd": list("a", 2, true), "": list("d", 2, false),
	} {
		if got != want {
			t.Fatalf("listed %q, want %q", got, want)
		}
	}
}
