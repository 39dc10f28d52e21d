package storetest

import (
	"testing"

	"github.com/parleyhq/parley/server/internal/channel"
	"github.com/parleyhq/parley/server/internal/ident"
)

var cursorContracts = []channelContract{
	{"MarkReadMovesForwardOnly", markForward},
	{"MarkReadJoinsOpenChannels", markJoins},
	{"AdvanceMovesForwardOnly", advanceForward},
	{"AdvanceCreatesAnOpenRow", advanceMakes},
	{"AdvanceCreatesNoSession", advanceMakesNoSession},
	{"AdvanceMakesSendersMembersOfOpenChannels", advanceJoins},
	{"AdvanceMovesMembersOnlyInMembersOnlyChannels", advanceMembersOnly},
	{"AdvanceDoesNotRejoinRemovedMembers", advanceLeft},
	{"AdvanceOfManyChannels", advanceMany},
}

func (c *channels) mark(t tester, id, userID string, to channel.Cursor, join bool, n int64) (channel.Cursor, bool) {
	t.Helper()
	got, ok, err := c.MarkRead(t.Context(), id, userID, to, join, at(n))
	must(t, err)
	return got, ok
}

func (c *channels) advance(t tester, n int64, moves ...channel.Advance) {
	t.Helper()
	must(t, c.Advance(t.Context(), moves, at(n)))
}

func markForward(t *testing.T, c *channels) {
	c.create(t, "club", "ann", "bob")
	for _, step := range []struct{ to, want channel.Cursor }{
		{channel.Cursor{}, channel.Cursor{}},
		{channel.Cursor{Seq: 5, Count: 4}, channel.Cursor{Seq: 5, Count: 4}},
		{channel.Cursor{Seq: 5, Count: 4}, channel.Cursor{Seq: 5, Count: 4}},
		{channel.Cursor{Seq: 3, Count: 9}, channel.Cursor{Seq: 5, Count: 4}},
		{channel.Cursor{Seq: 6, Count: 4}, channel.Cursor{Seq: 6, Count: 4}},
	} {
		for _, join := range []bool{false, true} {
			if got, ok := c.mark(t, "club", "ann", step.to, join, 2); !ok || got != step.want {
				t.Fatalf("mark %+v: %+v, %v, want %+v", step.to, got, ok, step.want)
			}
		}
		c.wantMember(t, channel.Member{ChannelID: "club", UserID: "ann", JoinedAt: at(0), Cursor: step.want})
	}
	c.wantMember(t, channel.Member{ChannelID: "club", UserID: "bob", JoinedAt: at(0)})
}

func markJoins(t *testing.T, c *channels) {
	c.ensure(t, "lobby", 1)
	c.create(t, "club", "ann")
	to := channel.Cursor{Seq: 2, Count: 2}
	for _, id := range []string{"lobby", "club", "none"} {
		if got, ok := c.mark(t, id, "bob", to, false, 2); ok {
			t.Fatalf("a stranger's cursor in %s: %+v", id, got)
		}
		c.wantNone(t, id, "bob")
	}
	if got, ok := c.mark(t, "club", "bob", to, true, 2); ok {
		t.Fatalf("a stranger's cursor in a members-only channel: %+v", got)
	}
	c.wantNone(t, "club", "bob")
	rows, err := c.Rows(t.Context(), []string{"none"})
	must(t, err)
	same(t, "rows", map[string]channel.Row{}, rows)
	for _, id := range []string{"lobby", "new"} {
		if got, ok := c.mark(t, id, "bob", to, true, 3); !ok || got != to {
			t.Fatalf("join %s: %+v, %v", id, got, ok)
		}
		c.wantFollower(t, channel.Member{ChannelID: id, UserID: "bob", JoinedAt: at(3), Cursor: to})
	}
	same(t, "row", channel.Row{ChannelID: "new", CreatedAt: at(3)}, c.row(t, "new"))
	// A removed member who comes back keeps their cursor.
	must(t, c.RemoveMembers(t.Context(), "lobby", []string{"bob"}, 5))
	if got, ok := c.mark(t, "lobby", "bob", channel.Cursor{Seq: 1, Count: 1}, true, 4); !ok || got != to {
		t.Fatalf("join again: %+v, %v", got, ok)
	}
	c.wantFollower(t, channel.Member{ChannelID: "lobby", UserID: "bob", JoinedAt: at(4), Cursor: to})
}

func advanceForward(t *testing.T, c *channels) {
	row := c.ensure(t, "lobby", 1)
	for i, step := range []struct{ move, want channel.Numbers }{
		{channel.Numbers{Head: 4, Count: 3, LastMessage: 3}, channel.Numbers{Head: 4, Count: 3, LastMessage: 3}},
		{channel.Numbers{Head: 4, Count: 3, LastMessage: 3}, channel.Numbers{Head: 4, Count: 3, LastMessage: 3}},
		{channel.Numbers{Head: 2, Count: 9, LastMessage: 1}, channel.Numbers{Head: 4, Count: 3, LastMessage: 3}},
		{channel.Numbers{Head: 6, Count: 3}, channel.Numbers{Head: 6, Count: 3, LastMessage: 3}},                 // edits
		{channel.Numbers{Head: 5, Count: 3, LastMessage: 5}, channel.Numbers{Head: 6, Count: 3, LastMessage: 5}}, // late
		{channel.Numbers{Head: 7, Count: 4, LastMessage: 7}, channel.Numbers{Head: 7, Count: 4, LastMessage: 7}},
	} {
		c.advance(t, int64(i), channel.Advance{ChannelID: "lobby", Numbers: step.move})
		row.Numbers = step.want
		same(t, "row", row, c.row(t, "lobby"))
	}
	for _, step := range []struct{ to, want channel.Cursor }{
		{channel.Cursor{Seq: 3, Count: 2}, channel.Cursor{Seq: 3, Count: 2}},
		{channel.Cursor{Seq: 2, Count: 8}, channel.Cursor{Seq: 3, Count: 2}},
		{channel.Cursor{Seq: 7, Count: 4}, channel.Cursor{Seq: 7, Count: 4}},
	} {
		c.advance(t, 20, channel.Advance{ChannelID: "lobby", Senders: map[string]channel.Cursor{"ann": step.to}})
		c.wantFollower(t, channel.Member{ChannelID: "lobby", UserID: "ann", JoinedAt: at(20), Cursor: step.want})
	}
	same(t, "row", row, c.row(t, "lobby"))
	c.advance(t, 30)
}

func advanceMakes(t *testing.T, c *channels) {
	c.advance(t, 3, channel.Advance{
		ChannelID: "new", Numbers: channel.Numbers{Head: 2, Count: 1, LastMessage: 1}, Senders: map[string]channel.Cursor{"ann": {Seq: 1, Count: 1}},
	})
	want := channel.Row{ChannelID: "new", CreatedAt: at(3), Numbers: channel.Numbers{Head: 2, Count: 1, LastMessage: 1}}
	same(t, "row", want, c.row(t, "new"))
	c.wantFollower(t, channel.Member{ChannelID: "new", UserID: "ann", JoinedAt: at(3), Cursor: channel.Cursor{Seq: 1, Count: 1}})
}

func advanceMakesNoSession(t *testing.T, c *channels) {
	id := ident.SessionChannel("new")
	c.advance(t, 3, sent(id, "ann", 5), sent("lobby", "ann", 5))
	rows, err := c.Rows(t.Context(), []string{id, "lobby"})
	must(t, err)
	if _, ok := rows[id]; ok || len(rows) != 1 {
		t.Fatalf("rows %v", rows)
	}
	c.wantNone(t, id, "ann")
	must(t, errOf(c.Create(t.Context(), channel.Row{ChannelID: id, MembersOnly: true, CreatedAt: at(0)}, []string{"ann"})))
	c.advance(t, 4, sent(id, "ann", 6))
	c.wantMember(t, channel.Member{ChannelID: id, UserID: "ann", JoinedAt: at(0), Cursor: channel.Cursor{Seq: 6, Count: 6}})
	same(t, "head", int64(6), c.row(t, id).Head)
}

func sent(id, userID string, seq int64) channel.Advance {
	return channel.Advance{
		ChannelID: id, Numbers: channel.Numbers{Head: seq, Count: seq, LastMessage: seq}, Senders: map[string]channel.Cursor{userID: {Seq: seq, Count: seq}},
	}
}

func advanceJoins(t *testing.T, c *channels) {
	c.ensure(t, "lobby", 1)
	must(t, c.AddMembers(t.Context(), "lobby", []string{"bob"}, at(2)))
	move := sent("lobby", "ann", 5)
	move.Senders["bob"] = channel.Cursor{Seq: 4, Count: 4}
	for n := range int64(2) {
		c.advance(t, 3+n, move)
		c.wantFollower(t, channel.Member{ChannelID: "lobby", UserID: "ann", JoinedAt: at(3), Cursor: channel.Cursor{Seq: 5, Count: 5}})
		c.wantMember(t, channel.Member{ChannelID: "lobby", UserID: "bob", JoinedAt: at(2), Cursor: channel.Cursor{Seq: 4, Count: 4}})
	}
}

func advanceMembersOnly(t *testing.T, c *channels) {
	c.create(t, "club", "ann", "bob")
	must(t, c.RemoveMembers(t.Context(), "club", []string{"bob"}, 1))
	move := sent("club", "ann", 5)
	move.Senders["bob"], move.Senders["eve"] = channel.Cursor{Seq: 4, Count: 4}, channel.Cursor{Seq: 3, Count: 3}
	c.advance(t, 3, move)
	c.wantMember(t, channel.Member{ChannelID: "club", UserID: "ann", JoinedAt: at(0), Cursor: channel.Cursor{Seq: 5, Count: 5}})
	c.wantNone(t, "club", "bob")
	c.wantNone(t, "club", "eve")
	must(t, c.AddMembers(t.Context(), "club", []string{"bob", "eve"}, at(4)))
	c.wantMember(t, channel.Member{ChannelID: "club", UserID: "bob", JoinedAt: at(4)})
	c.wantMember(t, channel.Member{ChannelID: "club", UserID: "eve", JoinedAt: at(4)})
	same(t, "head", int64(5), c.row(t, "club").Head)
}

func advanceLeft(t *testing.T, c *channels) {
	c.ensure(t, "lobby", 1)
	c.advance(t, 2, sent("lobby", "ann", 3))
	// The feed has not yet reached bob's message at 5.
	must(t, c.RemoveMembers(t.Context(), "lobby", []string{"ann", "bob"}, 5))
	must(t, c.RemoveMembers(t.Context(), "lobby", []string{"ann"}, 4)) // an older removal, arriving late
	c.advance(t, 3, sent("lobby", "ann", 4), sent("lobby", "bob", 5))
	c.advance(t, 3, sent("lobby", "ann", 5))
	c.wantNone(t, "lobby", "ann")
	c.wantNone(t, "lobby", "bob")
	c.advance(t, 4, sent("lobby", "ann", 6), sent("lobby", "bob", 7))
	c.wantFollower(t, channel.Member{ChannelID: "lobby", UserID: "ann", JoinedAt: at(4), Cursor: channel.Cursor{Seq: 6, Count: 6}})
	c.wantFollower(t, channel.Member{ChannelID: "lobby", UserID: "bob", JoinedAt: at(4), Cursor: channel.Cursor{Seq: 7, Count: 7}})
	// Ann's own message counts as read when she becomes a member again.
	must(t, c.RemoveMembers(t.Context(), "lobby", []string{"ann"}, 8))
	c.advance(t, 5, sent("lobby", "ann", 8))
	must(t, c.AddMembers(t.Context(), "lobby", []string{"ann"}, at(6)))
	c.wantMember(t, channel.Member{ChannelID: "lobby", UserID: "ann", JoinedAt: at(6), Cursor: channel.Cursor{Seq: 8, Count: 8}})
}

func advanceMany(t *testing.T, c *channels) {
	var moves []channel.Advance
	var ids []string
	for _, id := range channelsOf(1, 500) {
		moves, ids = append(moves, sent(id, "ann", 2)), append(ids, id)
	}
	c.create(t, ids[0], "bob")
	c.advance(t, 1, moves...)
	rows, err := c.Rows(t.Context(), ids)
	must(t, err)
	of, err := c.MembersOf(t.Context(), "ann", ids)
	must(t, err)
	if len(rows) != len(ids) || len(of) != len(ids)-1 {
		t.Fatalf("%d rows and %d memberships of %d", len(rows), len(of), len(ids))
	}
	for _, id := range ids {
		if rows[id].Head != 2 || id != ids[0] && of[id].Seq != 2 {
			t.Fatalf("%s: %+v, %+v", id, rows[id], of[id])
		}
	}
}
