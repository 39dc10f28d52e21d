package storetest

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"testing"

	"github.com/parleyhq/parley/server/internal/channel"
	"github.com/parleyhq/parley/server/internal/message"
)

var accessContracts = []contract{
	{"AccessEntriesAreNoMessages", accessEntries},
	{"ChangesRaiseTheRevisionOfTheirMessages", changesRaiseRev},
}

var settingsContracts = []channelContract{
	{"ModeChangesRaiseTheAccessRevision", modeChanges},
	{"ModeChangesAreReported", modeChangesReported},
	{"MembersInAChannel", membersIn},
	{"SendersAreJudgedByTheModeOfTheirEntries", advanceByMode},
}

// access creates an access entry of a revision.
func (d *draft) access(rev int64) message.Entry {
	e := d.next(message.KindAccess, "", fmt.Sprint("access-", rev), "")
	e.Rev, e.Digest = rev, nil
	return e
}

func accessEntries(t *testing.T, p *fixture) {
	d := draftsOf(1, 1)[0]
	log := []message.Entry{d.access(3)}
	log = append(log, d.sends(2)...)
	log = append(log, d.access(7))
	for i := range log {
		log[i].Rev = max(log[i].Rev, 3)
	}
	p.insert(t, log...)
	p.apply(t, log[0]) // does nothing
	equal(t, "log", log, p.all(t, d.channel))
	wantHead(t, p, &log[3])
	equal(t, "messages", log[1:3], p.entries(t, d.channel, message.Range{Limit: 10, MessagesOnly: true}))
	pending, err := p.Pending(t.Context(), d.channel)
	must(t, err)
	equal(t, "pending", nil, pending)
	found, err := p.ByClientKeys(t.Context(), d.channel, []message.ClientKey{{ClientMsgID: "access-7"}})
	must(t, err)
	equal(t, "by its key", log[3:], []message.Entry{found[message.ClientKey{ClientMsgID: "access-7"}]})
	again := d.access(7)
	var conflict *message.ConflictError
	if n, err := p.Insert(t.Context(), 1, []message.Entry{again}); n != 0 || !errors.As(err, &conflict) {
		t.Fatalf("insert again: %d, %v", n, err)
	}
	p.reopen(t)
	equal(t, "log", log, p.all(t, d.channel))
}

func changesRaiseRev(t *testing.T, p *fixture) {
	d := draftsOf(0, 1)[0]
	log := d.sends(2)
	edit, recall := d.edit(&log[0], "edited"), d.recall(&log[1])
	edit.Rev, recall.Rev = 5, 6
	p.insert(t, append(log, edit, recall)...)
	p.apply(t, edit, recall)
	want := []message.Entry{changed(log[0], edit), changed(log[1], recall)}
	if want[0].Rev != 5 || want[1].Rev != 6 {
		t.Fatalf("revisions %d and %d", want[0].Rev, want[1].Rev)
	}
	equal(t, "messages", want, p.entries(t, d.channel, message.Range{Limit: 10, MessagesOnly: true}))
}

func (c *channels) setMode(t tester, id string, rev int64, membersOnly bool) channel.Row {
	t.Helper()
	row, err := c.SetSettings(t.Context(), id, rev, channel.Settings{MembersOnly: membersOnly}, at(9))
	if err != nil && (!errors.Is(err, channel.ErrChanged) || row.SettingsRev != rev+1) { // the reply of the first attempt was lost
		t.Fatalf("set mode: %v", err)
	}
	return row
}

func modeChanges(t *testing.T, c *channels) {
	want := c.ensure(t, "lobby", 1)
	for i, membersOnly := range []bool{true, true, false, false, true} {
		if want.MembersOnly != membersOnly {
			want.Rev++
		}
		want.MembersOnly, want.SettingsRev, want.Trim.Due = membersOnly, int64(i+1), at(9)
		same(t, "row", want, c.setMode(t, "lobby", int64(i), membersOnly))
		same(t, "stored row", want, c.row(t, "lobby"))
	}
	if want.Rev != 3 {
		t.Fatalf("revision %d after three changes", want.Rev)
	}
	if _, err := c.SetSettings(t.Context(), "lobby", 0, channel.Settings{}, at(10)); !errors.Is(err, channel.ErrChanged) {
		t.Fatalf("at an earlier revision of the settings: %v", err)
	}
	c.reopen(t)
	same(t, "stored row", want, c.row(t, "lobby"))
	made := channel.Row{ChannelID: "club", MembersOnly: true, Rev: 1, CreatedBy: "ann", CreatedAt: at(3)}
	got, err := c.Create(t.Context(), made, []string{"ann"})
	must(t, err)
	same(t, "created row", made, got)
	same(t, "stored row", made, c.row(t, "club"))
}

func modeChangesReported(t *testing.T, c *channels) {
	c.ensure(t, "lobby", 1)
	_, stamp, err := c.Changes(t.Context(), channel.Stamp{})
	must(t, err)
	for i, membersOnly := range []bool{true, false} {
		c.setMode(t, "lobby", int64(i), membersOnly)
		changes, _, err := c.Changes(t.Context(), stamp)
		must(t, err)
		reported := false
		for _, change := range changes {
			reported = reported || change.ChannelID == "lobby" && len(change.UserIDs) == 0
		}
		if !reported {
			t.Fatalf("members-only %t: changes %+v", membersOnly, changes)
		}
	}
}

func membersIn(t *testing.T, c *channels) {
	c.create(t, "club", "ann", "bob", "cem")
	c.create(t, "other", "dan")
	must(t, c.RemoveMembers(t.Context(), "club", []string{"bob"}, 1))
	users := []string{"ann", "bob", "cem", "dan", "none"}
	same(t, "members in club", []string{"ann", "cem"}, c.in(t, "club", users...))
	same(t, "members in none", []string(nil), c.in(t, "none", users...))
	same(t, "no users", []string(nil), c.in(t, "club"))
}

// in returns which of the users are members or followers of a channel, in order.
func (c *channels) in(t *testing.T, id string, userIDs ...string) []string {
	t.Helper()
	got, err := c.MembersIn(t.Context(), id, userIDs)
	must(t, err)
	return slices.Sorted(maps.Keys(got))
}

// A store that caches modes must not use one from before the entries.
func advanceByMode(t *testing.T, c *channels) {
	c.ensure(t, "lobby", 1)
	advance := func(rev int64, sender string, seq int64) {
		t.Helper()
		must(t, c.Advance(t.Context(), []channel.Advance{{
			ChannelID: "lobby", Numbers: channel.Numbers{Head: seq, Count: seq, LastMessage: seq}, Rev: rev,
			Senders: map[string]channel.Cursor{sender: {Seq: seq, Count: seq}},
		}}, at(seq)))
	}
	advance(0, "ann", 1)
	c.setMode(t, "lobby", 0, true)
	advance(1, "bob", 2)
	c.setMode(t, "lobby", 1, false)
	advance(2, "cem", 3)
	same(t, "followers", []string{"ann", "cem"}, c.in(t, "lobby", "ann", "bob", "cem"))
}
