package storetest

import (
	"context"
	"fmt"
	"slices"
	"testing"

	"golang.org/x/sync/errgroup"

	"github.com/parleyhq/parley/server/internal/message"
)

// logTrimContracts are about logs, and need the boundary, which is stored with the channel.
var logTrimContracts = []channelContract{
	{"StrippedEntriesHaveNoContent", stripContent},
	{"DeletedEntriesAreForgotten", deleteEntries},
	{"ChangesOfStrippedMessagesDoNothing", applyStripped},
	{"FeedsPassOverDeletedEntries", feedDeleted},
	{"AppliesDuringStripBringNothingBack", stripRace},
}

// stripped returns an entry as it is after Strip.
func stripped(e message.Entry) message.Entry {
	return message.Entry{
		Kind: message.KindExpired, TargetSeq: e.TargetSeq, Bytes: e.Bytes,
		Message: message.Message{
			MsgID: e.MsgID, ChannelID: e.ChannelID, Seq: e.Seq, Count: e.Count, FromID: e.FromID, ClientMsgID: e.ClientMsgID,
			MsgTime: e.MsgTime, ChangedSeq: e.ChangedSeq, Rev: e.Rev,
		},
	}
}

// expire moves the boundary of a channel's log.
func (c *channels) expire(t tester, id string, oldest, expired int64) {
	t.Helper()
	c.ensure(t, id, 1)
	c.moveBoundary(t, id, 0, message.Boundary{Oldest: oldest, Expired: expired})
}

// changedLog is a log of four sends, an applied and a pending edit of the first one, a recall of
// the second one, and two more sends: entries 1 to 9.
func changedLog(t tester, c *channels, id string) (log []message.Entry) {
	d := &draft{channel: id}
	log = d.sends(4)
	edit, recall := d.edit(&log[0], "edited"), d.recall(&log[1])
	pending := d.edit(&log[0], "pending")
	log = append(log, edit, recall, pending)
	log = append(log, d.sends(2)...)
	for i := range log {
		log[i].Bytes = int64(1000 * (i + 1))
	}
	c.place.insert(t, log...)
	c.place.apply(t, edit, recall)
	log[0], log[1] = changed(log[0], edit), changed(log[1], recall)
	log[4], log[5] = applied(edit), applied(recall)
	log[4].Bytes, log[5].Bytes = 5000, 6000
	equal(t, "log", log, c.place.all(t, id))
	return log
}

func stripContent(t *testing.T, c *channels) {
	log := changedLog(t, c, "lobby")
	other := (&draft{channel: "lobby-"}).sends(2)
	c.place.insert(t, other...)
	c.expire(t, "lobby", 9, 5)
	must(t, c.place.Strip(t.Context(), "lobby", 0, 9))
	want := slices.Clone(log)
	for i := range want[:8] {
		want[i] = stripped(want[i])
	}
	for range 2 {
		equal(t, "log", want, c.place.all(t, "lobby"))
		equal(t, "other log", other, c.place.all(t, "lobby-"))
		equal(t, "messages", want[8:], c.place.entries(t, "lobby", message.Range{Limit: 20, MessagesOnly: true}))
		equal(t, "newest messages", want[8:], c.place.entries(t, "lobby", message.Range{Limit: 20, MessagesOnly: true, Desc: true}))
		wantTrimmed(t, c, log[:8])
		found, err := c.place.ByClientKeys(t.Context(), "lobby", []message.ClientKey{keyOf(&log[0]), keyOf(&log[6]), keyOf(&log[8])})
		must(t, err)
		same(t, "by client keys", map[message.ClientKey]message.Entry{
			keyOf(&log[0]): want[0], keyOf(&log[6]): want[6], keyOf(&log[8]): want[8],
		}, found)
		must(t, c.place.Strip(t.Context(), "lobby", 0, 9))
		c.reopen(t)
	}
	d := &draft{channel: "lobby", seq: 9, count: 6}
	repeat := d.sendAs(log[2].FromID, log[2].ClientMsgID, "again")
	if n, err := c.place.Insert(t.Context(), message.Shard("lobby", shards), []message.Entry{repeat}); n != 0 || err == nil {
		t.Fatalf("a repeat of a stripped send was stored: %d, %v", n, err)
	}
}

// wantTrimmed checks that reads of messages find none of the given entries.
func wantTrimmed(t tester, c *channels, entries []message.Entry) {
	t.Helper()
	id := entries[0].ChannelID
	var at []int64
	for i := range entries {
		at = append(at, entries[i].Seq)
		if _, ok, err := c.place.Message(t.Context(), id, entries[i].MsgID); ok || err != nil {
			t.Fatalf("message %d: %v, %v", entries[i].Seq, ok, err)
		}
		if _, ok, err := targetOf(t.Context(), c.place, id, entries[i].MsgID); ok || err != nil {
			t.Fatalf("target %d: %v, %v", entries[i].Seq, ok, err)
		}
	}
	got, err := c.place.Messages(t.Context(), places(id, at...))
	must(t, err)
	equal(t, "messages by place", nil, got)
	got, err = c.place.Pending(t.Context(), id)
	must(t, err)
	equal(t, "pending", nil, got)
	got, err = c.place.Changed(t.Context(), id, 0, 0, 100, 0)
	must(t, err)
	equal(t, "changed", nil, got)
}

func deleteEntries(t *testing.T, c *channels) {
	log := changedLog(t, c, "lobby")
	c.expire(t, "lobby", 10, 6)
	must(t, c.place.Strip(t.Context(), "lobby", 0, 10))
	must(t, c.place.Delete(t.Context(), "lobby", 0, 5))
	must(t, c.place.Delete(t.Context(), "lobby", 4, 9))
	must(t, c.place.Delete(t.Context(), "lobby", 0, 9))
	c.reopen(t)
	last := stripped(log[8])
	equal(t, "log", []message.Entry{last}, c.place.all(t, "lobby"))
	wantTrimmed(t, c, log)
	same(t, "head", message.Head{
		Seq: 9, Count: 6, MsgTime: last.MsgTime, Bytes: last.Bytes, Rev: last.Rev, Boundary: message.Boundary{Oldest: 10, Expired: 6},
	}, c.place.head(t, "lobby"))
	d := &draft{channel: "lobby", seq: 9, count: 6}
	next := d.sendAs(log[0].FromID, log[0].ClientMsgID, "the key is free again")
	c.place.insert(t, next)
	equal(t, "log", []message.Entry{last, next}, c.place.all(t, "lobby"))
}

func applyStripped(t *testing.T, c *channels) {
	d := &draft{channel: "lobby"}
	log := d.sends(3)
	edit, recall, late := d.edit(&log[0], "edited"), d.recall(&log[1]), d.edit(&log[2], "late")
	c.place.insert(t, append(slices.Clone(log), edit, recall, late)...)
	c.expire(t, "lobby", 4, 3)
	must(t, c.place.Strip(t.Context(), "lobby", 0, 4))
	want := []message.Entry{stripped(log[0]), stripped(log[1]), stripped(log[2]), applied(edit), applied(recall), applied(late)}
	for range 2 {
		c.place.apply(t, edit, recall, late)
		equal(t, "log", want, c.place.all(t, "lobby"))
	}
	c.moveBoundary(t, "lobby", 0, message.Boundary{Oldest: 6, Expired: 3})
	must(t, c.place.Strip(t.Context(), "lobby", 0, 6))
	must(t, c.place.Delete(t.Context(), "lobby", 0, 5))
	c.place.apply(t, edit, recall, late)
	equal(t, "log", []message.Entry{stripped(applied(recall)), applied(late)}, c.place.all(t, "lobby"))
}

func feedDeleted(t *testing.T, c *channels) {
	d := &draft{channel: "lobby"}
	log := d.sends(6)
	c.place.insert(t, log...)
	c.expire(t, "lobby", 6, 5)
	must(t, c.place.Strip(t.Context(), "lobby", 0, 6))
	must(t, c.place.Delete(t.Context(), "lobby", 0, 4))
	c.reopen(t)
	f, err := c.place.OpenFeed(t.Context(), message.Shard("lobby", shards))
	must(t, err)
	defer func() { must(t, f.Close(context.WithoutCancel(t.Context()))) }()
	for last := int64(0); last < 6; {
		ctx, cancel := context.WithTimeout(t.Context(), patience)
		entries, err := f.Next(ctx, 10)
		cancel()
		must(t, err)
		for i := range entries {
			last = max(last, entries[i].Seq)
		}
	}
}

// stripRace applies edits while their messages are stripped.
func stripRace(t *testing.T, c *channels) {
	d := &draft{channel: "lobby"}
	log := d.sends(40)
	var edits []message.Entry
	for i := range log {
		edits = append(edits, d.edit(&log[i], fmt.Sprint("edit of ", i)))
	}
	c.place.insert(t, append(slices.Clone(log), edits...)...)
	c.expire(t, "lobby", 41, 40)
	g, ctx := errgroup.WithContext(t.Context())
	g.SetLimit(12)
	for i := range edits {
		g.Go(func() error { return c.place.Apply(ctx, &edits[i]) })
		if i%10 == 5 {
			g.Go(func() error { return c.place.Strip(ctx, "lobby", int64(i-5), int64(i+6)) })
		}
	}
	must(t, g.Wait())
	for _, e := range c.place.all(t, "lobby")[:40] {
		if e.Kind != message.KindExpired || e.Content != "" || e.Status != message.StatusSent {
			t.Fatalf("entry %d has content: %+v", e.Seq, e)
		}
	}
	pending, err := c.place.Pending(t.Context(), "lobby")
	must(t, err)
	equal(t, "pending", nil, pending)
}
