package storetest

import (
	"errors"
	"fmt"
	"testing"

	"github.com/parleyhq/parley/server/internal/channel"
	"github.com/parleyhq/parley/server/internal/message"
)

var deleteContracts = []channelContract{
	{"DeletedChannelsTakeNoMembers", deletedTakesNoMembers},
	{"DeletionsAreReported", deletionsReported},
	{"MembersOfDeletedChannelsAreDropped", dropMembers},
	{"DeletedChannelsAreCreatedAnew", createdAnew},
	{"LateSendersDoNotFollowANewChannel", lateSenders},
	{"ClearedEntriesHaveNoSenders", clearedEntries},
}

// delete deletes a channel at a revision of its settings.
func (c *channels) delete(t tester, id string, rev int64) channel.Row {
	t.Helper()
	row, err := c.Delete(t.Context(), id, rev, at(9))
	if err != nil && (!errors.Is(err, channel.ErrChanged) || row.SettingsRev != rev+1) { // the reply of the first attempt was lost
		t.Fatalf("delete: %v", err)
	}
	return row
}

// finish drops the members of a Deleting channel and makes it Deleted.
func (c *channels) finish(t tester, id string) {
	t.Helper()
	for n := 1; n > 0; {
		var err error
		n, err = c.DropMembers(t.Context(), id, 100)
		must(t, err)
	}
	must(t, c.FinishDelete(t.Context(), id))
}

func deletedTakesNoMembers(t *testing.T, c *channels) {
	want := c.create(t, "club", "ann", "bob")
	must(t, c.SetTrim(t.Context(), &want, channel.Trim{Stripped: 5, Deleted: 3}))
	want.State, want.Rev, want.SettingsRev, want.Trim = channel.Deleting, want.Rev+1, 1, channel.Trim{Deleted: 3, Due: at(9)}
	same(t, "row", want, c.delete(t, "club", 0))
	same(t, "stored row", want, c.row(t, "club"))
	same(t, "ensured row", want, c.ensure(t, "club", 20))
	refused := func() {
		t.Helper()
		for name, err := range map[string]error{
			"add":      c.AddMembers(t.Context(), "club", []string{"eve"}, at(20)),
			"remove":   c.RemoveMembers(t.Context(), "club", []string{"ann"}, 2),
			"set role": c.SetRole(t.Context(), "club", "eve", channel.Owner, at(20)),
			"settings": second(c.SetSettings(t.Context(), "club", 1, channel.Settings{}, at(20))),
		} {
			if !errors.Is(err, channel.ErrNotFound) {
				t.Fatalf("%s: %v", name, err)
			}
		}
		if row, err := c.Delete(t.Context(), "club", 1, at(20)); !errors.Is(err, channel.ErrChanged) || row.Rev != want.Rev {
			t.Fatalf("delete again: %+v, %v", row, err)
		}
		if _, ok := c.mark(t, "club", "eve", channel.Cursor{Seq: 1, Count: 1}, true, 20); ok {
			t.Fatal("a stranger marks a message as read")
		}
	}
	refused()
	c.advance(t, 20, channel.Advance{
		ChannelID: "club", Numbers: channel.Numbers{Head: 2, Count: 2}, Rev: 9, Senders: map[string]channel.Cursor{"eve": {Seq: 2, Count: 2}},
	})
	same(t, "members", []string{"ann", "bob"}, c.in(t, "club", "ann", "bob", "eve"))
	c.finish(t, "club")
	want.State, want.Numbers = channel.Deleted, channel.Numbers{Head: 2, Count: 2}
	same(t, "stored row", want, c.row(t, "club"))
	refused()
	c.reopen(t)
	same(t, "stored row", want, c.row(t, "club"))
	if _, err := c.Delete(t.Context(), "never", 0, at(20)); !errors.Is(err, channel.ErrNotFound) {
		t.Fatalf("delete a channel without a row: %v", err)
	}
}

func second[T any](_ T, err error) error { return err }

func deletionsReported(t *testing.T, c *channels) {
	c.ensure(t, "lobby", 1)
	_, stamp, err := c.Changes(t.Context(), channel.Stamp{})
	must(t, err)
	reported := func(what string) {
		t.Helper()
		changes, next, err := c.Changes(t.Context(), stamp)
		must(t, err)
		for _, change := range changes {
			if change.ChannelID == "lobby" && len(change.UserIDs) == 0 {
				stamp = next
				return
			}
		}
		t.Fatalf("%s: changes %+v", what, changes)
	}
	c.delete(t, "lobby", 0)
	reported("deleted")
	c.finish(t, "lobby")
	_, err = c.Create(t.Context(), channel.Row{ChannelID: "lobby", CreatedAt: at(3)}, []string{"ann"})
	must(t, err)
	reported("created anew")
}

func dropMembers(t *testing.T, c *channels) {
	var users []string
	for i := range 7 {
		users = append(users, fmt.Sprint("user", i))
	}
	c.create(t, "club", users...)
	c.create(t, "clubs", users...)
	must(t, c.RemoveMembers(t.Context(), "club", users[:2], 1))
	if n, err := c.DropMembers(t.Context(), "club", 5); n != 0 || err != nil {
		t.Fatalf("of a live channel: %d, %v", n, err)
	}
	c.delete(t, "club", 0)
	for _, want := range []int{5, 2, 0} {
		if n, err := c.DropMembers(t.Context(), "club", 5); n != want || err != nil {
			t.Fatalf("dropped %d, %v, want %d", n, err, want)
		}
	}
	same(t, "members in club", []string(nil), c.in(t, "club", users...))
	same(t, "members in clubs", users, c.in(t, "clubs", users...))
	mine, err := c.Memberships(t.Context(), "user5", "", 10)
	must(t, err)
	if len(mine) != 1 || mine[0].ChannelID != "clubs" {
		t.Fatalf("memberships %+v", mine)
	}
}

func createdAnew(t *testing.T, c *channels) {
	old := channel.Row{ChannelID: "club", MembersOnly: true, Rev: 1, CreatedBy: "ann", CreatedAt: at(3), CreateKey: "key", CreateDigest: "d"}
	_, err := c.Create(t.Context(), old, []string{"ann", "bob"})
	must(t, err)
	c.advance(t, 4, channel.Advance{ChannelID: "club", Numbers: channel.Numbers{Head: 7, Count: 6, LastMessage: 6}, Rev: 1})
	c.delete(t, "club", 0)
	moved, err := c.MoveBoundary(t.Context(), "club", 1, message.Boundary{Oldest: 8, Expired: 6}, at(9))
	must(t, err)
	if !moved && c.row(t, "club").Oldest != 8 {
		t.Fatal("the boundary was not moved")
	}
	made := channel.Row{
		ChannelID: "club", CreatedBy: "ann", CreatedAt: at(30), CreateKey: "key2", CreateDigest: "d2", Retention: &channel.Retention{MaxMessages: 5},
	}
	if row, err := c.Create(t.Context(), made, []string{"ann"}); !errors.Is(err, channel.ErrExists) || row.State != channel.Deleting {
		t.Fatalf("create while it is being deleted: %+v, %v", row, err)
	}
	c.finish(t, "club")
	if err := c.RemoveMembers(t.Context(), "club", []string{"ann", "cem"}, 7); !errors.Is(err, channel.ErrNotFound) {
		t.Fatalf("remove members of a deleted channel: %v", err)
	}
	if row, err := c.Create(t.Context(), old, []string{"ann"}); !errors.Is(err, channel.ErrExists) || row.State != channel.Deleted {
		t.Fatalf("a repeat of the call that created it: %+v, %v", row, err)
	}
	want := made
	want.Rev, want.SettingsRev, want.Began = 3, 2, 8
	want.Numbers, want.Boundary = channel.Numbers{Head: 7, Count: 6, LastMessage: 6}, message.Boundary{Oldest: 8, Expired: 6}
	want.Trim.Due = at(30)
	got, err := c.Create(t.Context(), made, []string{"ann", "cem"})
	must(t, err)
	same(t, "row", want, got)
	same(t, "stored row", want, c.row(t, "club"))
	same(t, "members", []string{"ann", "cem"}, c.in(t, "club", "ann", "bob", "cem"))
	members, err := c.MembersIn(t.Context(), "club", []string{"ann"})
	must(t, err)
	same(t, "owner", channel.Member{ChannelID: "club", UserID: "ann", Role: channel.Owner, JoinedAt: at(30)}, members["ann"])
	if row, err := c.Create(t.Context(), made, []string{"ann"}); !errors.Is(err, channel.ErrExists) || row.State != channel.Live {
		t.Fatalf("create again: %+v, %v", row, err)
	}
	c.setMode(t, "club", 2, true)
	c.delete(t, "club", 3) // a second time
	if row := c.row(t, "club"); row.Rev != 5 || row.State != channel.Deleting {
		t.Fatalf("row %+v", row)
	}
	must(t, c.FinishDelete(t.Context(), "never"))
}

// expirer is a store that has a cache whose entries may be used for less than message.ExpiryGrace,
// which a deletion takes. After Expire they are as old as if that time had passed.
type expirer interface{ Expire() }

// A node may advance entries of a deleted channel after the channel was created again.
func lateSenders(t *testing.T, c *channels) {
	c.ensure(t, "lobby", 1)
	late := channel.Advance{
		ChannelID: "lobby", Numbers: channel.Numbers{Head: 1, Count: 1, LastMessage: 1}, Senders: map[string]channel.Cursor{"ann": {Seq: 1, Count: 1}},
	}
	c.advance(t, 1, late)
	c.delete(t, "lobby", 0)
	_, err := c.MoveBoundary(t.Context(), "lobby", 1, message.Boundary{Oldest: 3, Expired: 1}, at(9))
	must(t, err)
	c.finish(t, "lobby")
	if s, ok := c.ChannelStore.(expirer); ok {
		s.Expire()
	}
	_, err = c.Create(t.Context(), channel.Row{ChannelID: "lobby", CreatedAt: at(3)}, []string{"dan"})
	must(t, err)
	c.advance(t, 3, channel.Advance{
		ChannelID: "lobby", Numbers: channel.Numbers{Head: 3, Count: 2, LastMessage: 3}, Rev: 2, Senders: map[string]channel.Cursor{"bob": {Seq: 3, Count: 2}},
	})
	for range 4 { // on any node
		c.advance(t, 4, late)
	}
	same(t, "members and followers", []string{"bob", "dan"}, c.in(t, "lobby", "ann", "bob", "dan"))
}

func clearedEntries(t *testing.T, c *channels) {
	p := c.place
	d, other := draftsOf(0, 2)[0], draftsOf(0, 2)[1]
	log := d.sends(4)
	log = append(log, d.edit(&log[0], "edited"), d.recall(&log[1]), d.edit(&log[2], "pending"))
	p.insert(t, log...)
	kept := other.sends(1)
	p.insert(t, kept...)
	p.apply(t, log[4], log[5])
	must(t, p.Strip(t.Context(), d.channel, 0, 2)) // it was stripped before the channel was deleted
	for range 2 {
		must(t, p.Clear(t.Context(), d.channel, 0, 7))
	}
	got := p.all(t, d.channel)
	if len(got) != 7 {
		t.Fatalf("%d entries", len(got))
	}
	for i, e := range got[:6] {
		want := message.Entry{Kind: message.KindExpired, TargetSeq: log[i].TargetSeq, Bytes: log[i].Bytes, Message: message.Message{
			MsgID: log[i].MsgID, ChannelID: d.channel, Seq: int64(i + 1), Count: log[i].Count, FromID: message.ErasedUser,
			ClientMsgID: message.ErasedKey(int64(i + 1)), MsgTime: log[i].MsgTime, ChangedSeq: e.ChangedSeq, Rev: e.Rev,
		}}
		equal(t, "cleared", []message.Entry{want}, []message.Entry{e})
	}
	same(t, "the entry after them", "pending", got[6].Content)
	var keys []message.ClientKey
	for i := range log[:6] {
		keys = append(keys, message.ClientKey{FromID: log[i].FromID, ClientMsgID: log[i].ClientMsgID})
	}
	found, err := p.ByClientKeys(t.Context(), d.channel, keys)
	must(t, err)
	same(t, "found by their keys", 0, len(found))
	equal(t, "messages", nil, p.entries(t, d.channel, message.Range{Before: 7, Limit: 10, MessagesOnly: true}))
	equal(t, "the other channel", kept, p.all(t, other.channel))
	// The keys can be used again.
	again := d.sendAs(log[0].FromID, log[0].ClientMsgID, "again")
	p.insert(t, again)
}
