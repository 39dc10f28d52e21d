package storetest

import (
	"errors"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/parleyhq/parley/server/internal/channel"
	"github.com/parleyhq/parley/server/internal/message"
)

// ChannelStore is the complete contract of a store of channels.
type ChannelStore interface {
	channel.Store
	channel.TrimStore
	channel.EraseStore
}

// RunChannels tests channel stores, and the trimming of logs, against their contracts, in parallel
// subtests. f creates message stores, and of returns the channel store of one.
func RunChannels(t *testing.T, f Factory, of func(message.Store) ChannelStore) {
	for _, group := range [][]channelContract{
		channelContracts, memberContracts, cursorContracts, sessionContracts, lostChannelContracts, channelRaceContracts, channelRandomContracts, channelTrimContracts,
		logTrimContracts, openContracts, settingsContracts, forgetContracts, deleteContracts, randomContracts,
	} {
		for _, c := range group {
			t.Run(c.name, func(t *testing.T) {
				t.Parallel()
				p := newFixture(t, f(t))
				c.check(t, &channels{ChannelStore: of(p.Store), place: p, of: of})
			})
		}
	}
}

type channelContract struct {
	name  string
	check func(t *testing.T, c *channels)
}

// channels is the channel store of one test.
type channels struct {
	ChannelStore
	place *fixture
	of    func(message.Store) ChannelStore
}

// reopen closes the store and opens it again at the same place.
func (c *channels) reopen(t tester) {
	t.Helper()
	c.place.reopen(t)
	c.ChannelStore = c.of(c.place.Store)
}

// at returns a time n milliseconds after a fixed one. Every store keeps it unchanged.
func at(n int64) time.Time { return time.UnixMilli(1_700_000_000_000 + n).UTC() }

func must(t tester, err error) {
	t.Helper()
	if err != nil {
		t.Fatalf("%v", err)
	}
}

func same(t tester, what string, want, got any) {
	t.Helper()
	if d := cmp.Diff(want, got, cmpopts.EquateEmpty()); d != "" {
		t.Fatalf("%s (-want +got):\n%s", what, d)
	}
}

func (c *channels) ensure(t tester, id string, n int64) channel.Row {
	t.Helper()
	row, err := c.Ensure(t.Context(), id, at(n))
	must(t, err)
	return row
}

// create creates a members-only channel with these members.
func (c *channels) create(t tester, id string, userIDs ...string) channel.Row {
	t.Helper()
	row := channel.Row{ChannelID: id, MembersOnly: true, CreatedBy: "maker", CreatedAt: at(0)}
	got, err := c.Create(t.Context(), row, userIDs)
	must(t, err)
	same(t, "created row", row, got)
	return row
}

// row reads a channel's row, which must exist.
func (c *channels) row(t tester, id string) channel.Row {
	t.Helper()
	rows, err := c.Rows(t.Context(), []string{id})
	must(t, err)
	row, ok := rows[id]
	if !ok || len(rows) != 1 {
		t.Fatalf("rows of %s: %v", id, rows)
	}
	return row
}

// member reads a user's membership with MembersOf, Members and Memberships, which must agree. ok is
// false if the user is not a member.
func (c *channels) member(t tester, id, userID string) (m channel.Member, ok bool) {
	t.Helper()
	of, err := c.MembersOf(t.Context(), userID, []string{id, "elsewhere"})
	must(t, err)
	m, ok = of[id]
	all, err := c.Members(t.Context(), id, "", 1000)
	must(t, err)
	mine, err := c.Memberships(t.Context(), userID, "", 1000)
	must(t, err)
	var want, inAll, inMine []channel.Member
	if ok {
		want = append(want, m)
	}
	for _, o := range all {
		if o.UserID == userID {
			inAll = append(inAll, o)
		}
	}
	for _, o := range mine {
		if o.ChannelID == id {
			inMine = append(inMine, o)
		}
	}
	same(t, "members against members of", want, inAll)
	same(t, "memberships against members of", want, inMine)
	return m, ok
}

// wantMember fails the test unless the user is a member or follower with exactly these values. A
// zero role means RoleMember.
func (c *channels) wantMember(t tester, want channel.Member) {
	t.Helper()
	want.Role = max(want.Role, channel.RoleMember)
	c.wantRole(t, want)
}

// wantFollower is wantMember for a follower.
func (c *channels) wantFollower(t tester, want channel.Member) {
	t.Helper()
	want.Role = channel.Follower
	c.wantRole(t, want)
}

func (c *channels) wantRole(t tester, want channel.Member) {
	t.Helper()
	got, ok := c.member(t, want.ChannelID, want.UserID)
	if !ok {
		t.Fatalf("%s is no member of %s", want.UserID, want.ChannelID)
	}
	same(t, "member", want, got)
}

// wantNone fails the test if the user is a member.
func (c *channels) wantNone(t tester, id, userID string) {
	t.Helper()
	if m, ok := c.member(t, id, userID); ok {
		t.Fatalf("a member: %+v", m)
	}
}

var channelContracts = []channelContract{
	{"EnsureCreatesAnOpenRowOnce", ensureOnce},
	{"EnsureReturnsAnExistingRow", ensureObeys},
	{"CreateStoresRowAndMembers", createMembers},
	{"CreateOverAnExistingChannelChangesNothing", createExisting},
	{"CreateTakesAnOpenChannelAndNoMembers", createOpen},
	{"CreateStoresItsKey", createKey},
	{"RowsOmitsMissingChannels", rowsOfSome},
	{"ChannelsSurviveARestart", channelsSurvive},
	{"TheLongestIDsOfChannelsAndUsers", longestChannels},
}

func ensureOnce(t *testing.T, c *channels) {
	want := channel.Row{ChannelID: "lobby", CreatedAt: at(1)}
	same(t, "first", want, c.ensure(t, "lobby", 1))
	same(t, "second", want, c.ensure(t, "lobby", 2))
	same(t, "row", want, c.row(t, "lobby"))
	if members, err := c.Members(t.Context(), "lobby", "", 10); err != nil || len(members) != 0 {
		t.Fatalf("members of a new channel: %v, %v", members, err)
	}
}

func ensureObeys(t *testing.T, c *channels) {
	want := c.create(t, "club", "ann")
	same(t, "ensured", want, c.ensure(t, "club", 5))
	must(t, c.Advance(t.Context(), []channel.Advance{{ChannelID: "club", Numbers: channel.Numbers{Head: 3, Count: 2, LastMessage: 2}}}, at(6)))
	want.Numbers = channel.Numbers{Head: 3, Count: 2, LastMessage: 2}
	same(t, "ensured after an advance", want, c.ensure(t, "club", 7))
}

func createMembers(t *testing.T, c *channels) {
	row := channel.Row{
		ChannelID: "club", MembersOnly: true, CreatedBy: "$maker.of|it", CreatedAt: at(3), Numbers: channel.Numbers{Head: 9, Count: 9, LastMessage: 9},
	}
	got, err := c.Create(t.Context(), row, oddIDs)
	must(t, err)
	row.Numbers = channel.Numbers{}
	same(t, "created row", row, got)
	same(t, "row", row, c.row(t, "club"))
	for _, id := range oddIDs {
		c.wantMember(t, channel.Member{ChannelID: "club", UserID: id, JoinedAt: at(3)})
	}
	c.wantNone(t, "club", "$maker.of|it")
}

func createExisting(t *testing.T, c *channels) {
	open := c.ensure(t, "lobby", 1)
	club := c.create(t, "club", "ann")
	for _, id := range []string{"lobby", "club"} {
		for _, membersOnly := range []bool{true, false} {
			row := channel.Row{
				ChannelID: id, MembersOnly: membersOnly, CreatedBy: "eve", CreatedAt: at(9), CreateKey: "key", CreateDigest: "digest",
			}
			got, err := c.Create(t.Context(), row, []string{"eve", "ann"})
			if !errors.Is(err, channel.ErrExists) {
				t.Fatalf("create %s again: %v", id, err)
			}
			same(t, "existing row", map[string]channel.Row{"lobby": open, "club": club}[id], got)
		}
		c.wantNone(t, id, "eve")
	}
	same(t, "open row", open, c.row(t, "lobby"))
	same(t, "members-only row", club, c.row(t, "club"))
	c.wantMember(t, channel.Member{ChannelID: "club", UserID: "ann", JoinedAt: at(0)})
}

func createOpen(t *testing.T, c *channels) {
	row := channel.Row{ChannelID: "square", CreatedBy: "ann", CreatedAt: at(2)}
	_, err := c.Create(t.Context(), row, nil)
	must(t, err)
	same(t, "row", row, c.row(t, "square"))
	c.wantNone(t, "square", "ann")
}

// createKey tests that a channel's row keeps the idempotency key and the digest of the call that
// created it, through a restart and other changes, and that a repeated Create adds no members.
func createKey(t *testing.T, c *channels) {
	row := channel.Row{
		ChannelID: "club", MembersOnly: true, CreatedBy: "ann", CreatedAt: at(1), CreateKey: "$key.1|~", CreateDigest: "digest",
	}
	got, err := c.Create(t.Context(), row, []string{"ann", "bob"})
	must(t, err)
	same(t, "created row", row, got)
	must(t, c.RemoveMembers(t.Context(), "club", []string{"bob"}, 0))
	row.Numbers = channel.Numbers{Head: 3, Count: 2, LastMessage: 2}
	must(t, c.Advance(t.Context(), []channel.Advance{{ChannelID: "club", Numbers: row.Numbers}}, at(2)))
	for range 2 {
		again := channel.Row{
			ChannelID: "club", MembersOnly: true, CreatedBy: "ann", CreatedAt: at(5), CreateKey: "another", CreateDigest: "other",
		}
		got, err = c.Create(t.Context(), again, []string{"ann", "bob", "cem"})
		if !errors.Is(err, channel.ErrExists) {
			t.Fatalf("create again: %v", err)
		}
		same(t, "existing row", row, got)
		same(t, "row", row, c.row(t, "club"))
		same(t, "ensured row", row, c.ensure(t, "club", 6))
		c.wantMember(t, channel.Member{ChannelID: "club", UserID: "ann", Role: channel.Owner, JoinedAt: at(1)})
		c.wantNone(t, "club", "bob")
		c.wantNone(t, "club", "cem")
		c.reopen(t)
	}
}

// longestChannels tests that ids of 128 characters that differ only in the last one are different
// channels and users.
func longestChannels(t *testing.T, c *channels) {
	one, two := longest('a'), longest('b')
	row := channel.Row{ChannelID: one, MembersOnly: true, CreatedBy: one, CreatedAt: at(0), CreateKey: two, CreateDigest: "digest"}
	_, err := c.Create(t.Context(), row, []string{one})
	must(t, err)
	other := c.create(t, two, two)
	got, err := c.Rows(t.Context(), []string{one, two, one[:127]})
	must(t, err)
	same(t, "rows", map[string]channel.Row{one: row, two: other}, got)
	c.wantMember(t, channel.Member{ChannelID: one, UserID: one, Role: channel.Owner, JoinedAt: at(0)})
	c.wantMember(t, channel.Member{ChannelID: two, UserID: two, JoinedAt: at(0)})
	c.wantNone(t, one, two)
	must(t, c.RemoveMembers(t.Context(), one, []string{one}, 0))
	c.wantNone(t, one, one)
	c.wantMember(t, channel.Member{ChannelID: two, UserID: two, JoinedAt: at(0)})
}

func rowsOfSome(t *testing.T, c *channels) {
	want := map[string]channel.Row{"a": c.ensure(t, "a", 1), "b": c.create(t, "b")}
	got, err := c.Rows(t.Context(), []string{"a", "none", "b"})
	must(t, err)
	same(t, "rows", want, got)
	got, err = c.Rows(t.Context(), nil)
	must(t, err)
	same(t, "no rows", map[string]channel.Row{}, got)
}

func channelsSurvive(t *testing.T, c *channels) {
	row := c.create(t, "club", "ann", "bob")
	must(t, c.RemoveMembers(t.Context(), "club", []string{"bob"}, 4))
	must(t, c.Advance(t.Context(), []channel.Advance{{
		ChannelID: "club", Numbers: channel.Numbers{Head: 5, Count: 4, LastMessage: 5}, Senders: map[string]channel.Cursor{"ann": {Seq: 5, Count: 4}},
	}}, at(2)))
	c.reopen(t)
	row.Numbers = channel.Numbers{Head: 5, Count: 4, LastMessage: 5}
	same(t, "row", row, c.row(t, "club"))
	c.wantMember(t, channel.Member{ChannelID: "club", UserID: "ann", JoinedAt: at(0), Cursor: channel.Cursor{Seq: 5, Count: 4}})
	c.wantNone(t, "club", "bob")
}
