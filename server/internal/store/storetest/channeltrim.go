package storetest

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/parleyhq/parley/server/internal/channel"
	"github.com/parleyhq/parley/server/internal/message"
)

var channelTrimContracts = []channelContract{
	{"RetentionChangesByRevision", retentionChanges},
	{"CreateStoresItsRetention", createRetention},
	{"BoundaryMovesForwardOnly", boundaryMoves},
	{"DueChannelsAreThoseOfAShard", dueChannels},
	{"SetTrimKeepsWhatIsNewer", trimKeeps},
	{"RowsAfterListsAllChannels", rowsAfter},
}

func (c *channels) setRetention(t tester, id string, rev int64, r *channel.Retention, n int64) channel.Row {
	t.Helper()
	row, err := c.SetSettings(t.Context(), id, rev, channel.Settings{Retention: r}, at(n))
	lost := errors.Is(err, channel.ErrChanged) && row.SettingsRev == rev+1 // the reply of its first attempt
	if err != nil && !lost {
		t.Fatalf("set retention: %v", err)
	}
	return row
}

func retentionChanges(t *testing.T, c *channels) {
	own := &channel.Retention{MaxAge: 90 * time.Second, MaxMessages: 1000, MaxBytes: 1 << 20}
	if _, err := c.SetSettings(t.Context(), "lobby", 0, channel.Settings{Retention: own}, at(1)); !errors.Is(err, channel.ErrNotFound) {
		t.Fatalf("without a row: %v", err)
	}
	want := c.ensure(t, "lobby", 1)
	want.Retention, want.SettingsRev, want.Trim.Due = own, 1, at(2)
	same(t, "row", want, c.setRetention(t, "lobby", 0, own, 2))
	c.reopen(t)
	same(t, "stored row", want, c.row(t, "lobby"))
	got, err := c.SetSettings(t.Context(), "lobby", 0, channel.Settings{}, at(3))
	if !errors.Is(err, channel.ErrChanged) {
		t.Fatalf("at an earlier revision: %v", err)
	}
	same(t, "changed row", want, got)
	want.Retention, want.SettingsRev, want.Trim.Due = &channel.Retention{}, 2, at(4)
	same(t, "no limits", want, c.setRetention(t, "lobby", 1, want.Retention, 4))
	want.Retention, want.SettingsRev, want.Trim.Due = nil, 3, at(5)
	same(t, "the default", want, c.setRetention(t, "lobby", 2, nil, 5))
	same(t, "stored row", want, c.row(t, "lobby"))
}

func createRetention(t *testing.T, c *channels) {
	row := channel.Row{
		ChannelID: "club", CreatedBy: "ann", CreatedAt: at(3), Retention: &channel.Retention{MaxMessages: 7},
		SettingsRev: 5, Boundary: message.Boundary{Oldest: 5, Expired: 4}, Trim: channel.Trim{Stripped: 3},
	}
	got, err := c.Create(t.Context(), row, []string{"ann"})
	must(t, err)
	row.SettingsRev, row.Boundary, row.Trim = 0, message.Boundary{}, channel.Trim{Due: at(3)}
	same(t, "created row", row, got)
	same(t, "row", row, c.row(t, "club"))
}

func (c *channels) moveBoundary(t tester, id string, rev int64, to message.Boundary) bool {
	t.Helper()
	moved, err := c.MoveBoundary(t.Context(), id, rev, to, at(70))
	must(t, err)
	return moved
}

func boundaryMoves(t *testing.T, c *channels) {
	d := &draft{channel: "lobby"}
	c.place.insert(t, d.sends(9)...)
	if c.moveBoundary(t, "lobby", 0, message.Boundary{Oldest: 2, Expired: 1}) {
		t.Fatalf("moved without a row")
	}
	want := c.ensure(t, "lobby", 1)
	for _, tc := range []struct {
		rev   int64
		to    message.Boundary
		moves bool
	}{
		{0, message.Boundary{Oldest: 4, Expired: 3}, true},
		{0, message.Boundary{Oldest: 3, Expired: 2}, false},
		{0, message.Boundary{Oldest: 4, Expired: 2}, false},
		{1, message.Boundary{Oldest: 5, Expired: 4}, false},
		{0, message.Boundary{Oldest: 10, Expired: 9}, true},
	} {
		// After a lost reply the second attempt finds the boundary moved.
		if moved := c.moveBoundary(t, "lobby", tc.rev, tc.to); moved && !tc.moves {
			t.Fatalf("move to %+v at %d: %v", tc.to, tc.rev, moved)
		}
		if tc.moves {
			want.Boundary, want.Trim.Due = tc.to, at(70)
		}
		same(t, "row", want, c.row(t, "lobby"))
		head := c.place.head(t, "lobby")
		same(t, "boundary of the head", want.Boundary, head.Boundary)
		heads, err := c.place.Heads(t.Context(), []string{"lobby", "none"})
		must(t, err)
		same(t, "heads", head, heads["lobby"])
	}
	c.setRetention(t, "lobby", 0, &channel.Retention{MaxMessages: 1}, 5)
	c.place.insert(t, d.sends(3)...)
	if c.moveBoundary(t, "lobby", 0, message.Boundary{Oldest: 12, Expired: 11}) {
		t.Fatalf("moved at an earlier revision of the settings")
	}
	c.moveBoundary(t, "lobby", 1, message.Boundary{Oldest: 12, Expired: 11})
	c.reopen(t)
	same(t, "boundary", message.Boundary{Oldest: 12, Expired: 11}, c.place.head(t, "lobby").Boundary)
}

func dueChannels(t *testing.T, c *channels) {
	due := func(shard int, until int64, limit int) (ids []string) {
		t.Helper()
		rows, err := c.Due(t.Context(), shard, at(until), limit)
		must(t, err)
		for i := range rows {
			same(t, "due row", c.row(t, rows[i].ChannelID), rows[i])
			ids = append(ids, rows[i].ChannelID)
		}
		return ids
	}
	names := channelsOf(2, 4)
	other := channelsOf(1, 1)[0]
	for i, id := range names {
		c.ensure(t, id, 1)
		c.setRetention(t, id, 0, &channel.Retention{MaxMessages: 1}, int64(100-10*i)) // due at 100, 90, 80, 70
	}
	c.ensure(t, other, 1)
	c.setRetention(t, other, 0, &channel.Retention{MaxMessages: 1}, 75)
	same(t, "none yet", []string(nil), due(2, 69, 10))
	same(t, "the first", []string{names[3]}, due(2, 70, 10))
	same(t, "in order", []string{names[3], names[2], names[1], names[0]}, due(2, 1000, 10))
	same(t, "limited", []string{names[3], names[2]}, due(2, 1000, 2))
	same(t, "of another shard", []string{other}, due(1, 1000, 10))
	third, first := c.row(t, names[3]), c.row(t, names[1])
	must(t, c.SetTrim(t.Context(), &third, channel.Trim{Due: at(85)}))
	must(t, c.SetTrim(t.Context(), &first, channel.Trim{}))
	c.reopen(t)
	same(t, "set again", []string{names[2], names[3], names[0]}, due(2, 1000, 10))
	same(t, "none", []string(nil), due(0, 1000, 10))
}

func trimKeeps(t *testing.T, c *channels) {
	must(t, c.SetTrim(t.Context(), &channel.Row{ChannelID: "lobby"}, channel.Trim{Stripped: 5, Due: at(9)}))
	rows, err := c.Rows(t.Context(), []string{"lobby"})
	must(t, err)
	same(t, "rows without a channel", 0, len(rows))
	want := c.ensure(t, "lobby", 1)
	c.moveBoundary(t, "lobby", 0, message.Boundary{Oldest: 8, Expired: 7})
	c.advance(t, 1, channel.Advance{ChannelID: "lobby", Numbers: channel.Numbers{Head: 9, Count: 9}})
	want.Boundary, want.Numbers = message.Boundary{Oldest: 8, Expired: 7}, channel.Numbers{Head: 9, Count: 9}
	for _, tc := range []struct {
		rev, oldest, head int64
		set, want         channel.Trim
	}{
		{0, 8, 9, channel.Trim{Stripped: 7, Deleted: 3, Due: at(20)}, channel.Trim{Stripped: 7, Deleted: 3, Due: at(20)}},
		{0, 8, 9, channel.Trim{Stripped: 6, Deleted: 4, Due: at(30)}, channel.Trim{Stripped: 7, Deleted: 4, Due: at(30)}},
		// Of a row that has changed: what is due stays due. A change of settings may demand that
		// everything is stripped once more.
		{1, 8, 9, channel.Trim{Stripped: 8, Deleted: 5, Due: at(40)}, channel.Trim{Stripped: 7, Deleted: 4, Due: at(30)}},
		{0, 7, 9, channel.Trim{Stripped: 7, Deleted: 6}, channel.Trim{Stripped: 7, Deleted: 6, Due: at(30)}},
		{0, 8, 8, channel.Trim{}, channel.Trim{Stripped: 7, Deleted: 6, Due: at(30)}},
		{0, 8, 8, channel.Trim{Due: at(25)}, channel.Trim{Stripped: 7, Deleted: 6, Due: at(25)}},
		{0, 8, 9, channel.Trim{}, channel.Trim{Stripped: 7, Deleted: 6}},
		{0, 8, 8, channel.Trim{}, channel.Trim{Stripped: 7, Deleted: 6}},
		{0, 7, 9, channel.Trim{Due: at(50)}, channel.Trim{Stripped: 7, Deleted: 6, Due: at(50)}},
	} {
		read := want
		read.SettingsRev, read.Oldest, read.Head = tc.rev, tc.oldest, tc.head
		must(t, c.SetTrim(t.Context(), &read, tc.set))
		want.Trim = tc.want
		same(t, fmt.Sprintf("after %+v", tc), want, c.row(t, "lobby"))
	}
}

func rowsAfter(t *testing.T, c *channels) {
	want := map[string]channel.Row{}
	for i := range 25 {
		id := fmt.Sprintf("c%02d", i)
		want[id] = c.ensure(t, id, int64(i))
	}
	after, seen := "", 0
	for {
		rows, err := c.RowsAfter(t.Context(), after, 10)
		must(t, err)
		if len(rows) == 0 {
			break
		}
		for i := range rows {
			if rows[i].ChannelID <= after {
				t.Fatalf("%s is listed after %s", rows[i].ChannelID, after)
			}
			after = rows[i].ChannelID
			same(t, "listed row", want[after], rows[i])
			seen++
		}
	}
	same(t, "number of rows", len(want), seen)
}
