package storetest

import (
	"errors"
	"fmt"
	"slices"
	"testing"

	"github.com/parleyhq/parley/server/internal/channel"
)

// oddIDs are user ids with a special meaning to a database, unsorted.
var oddIDs = []string{
	"zed", "$set", "a.b", "$$ROOT", "$where.x", "auth0|42", "ann@example.org", `"`, `\`, "{}", "~", "!", "A", "a", "aa", "a-", "$user_id", "'",
}

var memberContracts = []channelContract{
	{"AddMembersOnce", addOnce},
	{"MembersOfNoChannel", noChannel},
	{"RemoveMembersEndsThem", removeEnds},
	{"OddUserIDs", oddUsers},
	{"RolesOfMembers", roles},
	{"MembersPageByPage", pageMembers},
	{"MembershipsPageByPage", pageMemberships},
	{"MembersOfRequestedChannels", membersOfAsked},
}

func addOnce(t *testing.T, c *channels) {
	c.ensure(t, "lobby", 1)
	must(t, c.AddMembers(t.Context(), "lobby", []string{"ann", "bob"}, at(2)))
	must(t, c.AddMembers(t.Context(), "lobby", []string{"bob", "cem"}, at(3)))
	must(t, c.AddMembers(t.Context(), "lobby", nil, at(4)))
	for _, want := range []channel.Member{
		{ChannelID: "lobby", UserID: "ann", JoinedAt: at(2)},
		{ChannelID: "lobby", UserID: "bob", JoinedAt: at(2)},
		{ChannelID: "lobby", UserID: "cem", JoinedAt: at(3)},
	} {
		c.wantMember(t, want)
	}
	c.wantNone(t, "lobby", "dan")
}

func noChannel(t *testing.T, c *channels) {
	if err := c.AddMembers(t.Context(), "none", []string{"ann"}, at(1)); !errors.Is(err, channel.ErrNotFound) {
		t.Fatalf("add: %v", err)
	}
	if err := c.RemoveMembers(t.Context(), "none", []string{"ann"}, 3); !errors.Is(err, channel.ErrNotFound) {
		t.Fatalf("remove: %v", err)
	}
	c.wantNone(t, "none", "ann")
	rows, err := c.Rows(t.Context(), []string{"none"})
	must(t, err)
	same(t, "rows", map[string]channel.Row{}, rows)
}

// removeEnds tests that a removed member who is added again has a new JoinedAt and the old cursor.
func removeEnds(t *testing.T, c *channels) {
	c.create(t, "club", "ann", "bob")
	cursor := channel.Cursor{Seq: 4, Count: 3}
	for _, id := range []string{"ann", "bob"} {
		_, _, err := c.MarkRead(t.Context(), "club", id, cursor, false, at(1))
		must(t, err)
	}
	for range 2 {
		must(t, c.RemoveMembers(t.Context(), "club", []string{"ann", "stranger"}, 5))
		must(t, c.RemoveMembers(t.Context(), "club", nil, 5))
		c.wantNone(t, "club", "ann")
		c.wantNone(t, "club", "stranger")
		c.wantMember(t, channel.Member{ChannelID: "club", UserID: "bob", JoinedAt: at(0), Cursor: cursor})
	}
	must(t, c.AddMembers(t.Context(), "club", []string{"ann", "stranger"}, at(7)))
	c.wantMember(t, channel.Member{ChannelID: "club", UserID: "ann", JoinedAt: at(7), Cursor: cursor})
	c.wantMember(t, channel.Member{ChannelID: "club", UserID: "stranger", JoinedAt: at(7)})
}

// roles tests who gets which role, and that a follower who becomes a member has joined then.
func roles(t *testing.T, c *channels) {
	_, err := c.Create(t.Context(), channel.Row{ChannelID: "club", CreatedBy: "ann", CreatedAt: at(0)}, []string{"ann", "bob"})
	must(t, err)
	c.wantMember(t, channel.Member{ChannelID: "club", UserID: "ann", Role: channel.Owner, JoinedAt: at(0)})
	c.wantMember(t, channel.Member{ChannelID: "club", UserID: "bob", JoinedAt: at(0)})

	cursor := channel.Cursor{Seq: 2, Count: 2}
	c.advance(t, 1, channel.Advance{
		ChannelID: "club", Numbers: channel.Numbers{Head: 2, Count: 2}, Senders: map[string]channel.Cursor{"ann": cursor, "cem": cursor, "dan": cursor},
	})
	_, _, err = c.MarkRead(t.Context(), "club", "eve", cursor, true, at(2))
	must(t, err)
	c.wantMember(t, channel.Member{ChannelID: "club", UserID: "ann", Role: channel.Owner, JoinedAt: at(0), Cursor: cursor})
	c.wantFollower(t, channel.Member{ChannelID: "club", UserID: "cem", JoinedAt: at(1), Cursor: cursor})
	c.wantFollower(t, channel.Member{ChannelID: "club", UserID: "eve", JoinedAt: at(2), Cursor: cursor})
	n, err := c.CountMembers(t.Context(), "club")
	must(t, err)
	same(t, "members without followers", 2, n)

	must(t, c.AddMembers(t.Context(), "club", []string{"ann", "cem"}, at(3)))
	c.wantMember(t, channel.Member{ChannelID: "club", UserID: "ann", Role: channel.Owner, JoinedAt: at(0), Cursor: cursor})
	c.wantMember(t, channel.Member{ChannelID: "club", UserID: "cem", JoinedAt: at(3), Cursor: cursor})

	for userID, role := range map[string]channel.Role{"ann": channel.RoleMember, "bob": channel.Owner, "dan": channel.Moderator, "fay": channel.Owner} {
		must(t, c.SetRole(t.Context(), "club", userID, role, at(4)))
	}
	c.wantMember(t, channel.Member{ChannelID: "club", UserID: "ann", JoinedAt: at(0), Cursor: cursor})
	c.wantMember(t, channel.Member{ChannelID: "club", UserID: "bob", Role: channel.Owner, JoinedAt: at(0)})
	c.wantMember(t, channel.Member{ChannelID: "club", UserID: "dan", Role: channel.Moderator, JoinedAt: at(4), Cursor: cursor})
	c.wantMember(t, channel.Member{ChannelID: "club", UserID: "fay", Role: channel.Owner, JoinedAt: at(4)})

	must(t, c.RemoveMembers(t.Context(), "club", []string{"fay", "eve"}, 2)) // a member and a follower
	c.wantNone(t, "club", "eve")
	must(t, c.AddMembers(t.Context(), "club", []string{"fay"}, at(5)))
	c.wantMember(t, channel.Member{ChannelID: "club", UserID: "fay", JoinedAt: at(5)})
	in, err := c.MembersIn(t.Context(), "club", []string{"fay", "eve", "bob", "nobody"})
	must(t, err)
	same(t, "members in", map[string]channel.Member{
		"fay": {ChannelID: "club", UserID: "fay", Role: channel.RoleMember, JoinedAt: at(5)},
		"bob": {ChannelID: "club", UserID: "bob", Role: channel.Owner, JoinedAt: at(0)},
	}, in)
	if err := c.SetRole(t.Context(), "none", "ann", channel.Owner, at(6)); !errors.Is(err, channel.ErrNotFound) {
		t.Fatalf("a role where there is no channel: %v", err)
	}
}

func oddUsers(t *testing.T, c *channels) {
	for i, id := range oddIDs {
		name := fmt.Sprintf("c%d", i)
		c.ensure(t, name, 1)
		must(t, c.AddMembers(t.Context(), name, []string{id}, at(2)))
		c.wantMember(t, channel.Member{ChannelID: name, UserID: id, JoinedAt: at(2)})
		must(t, c.RemoveMembers(t.Context(), name, []string{id}, 3))
		c.wantNone(t, name, id)
		advance := func(seq int64) {
			must(t, c.Advance(t.Context(), []channel.Advance{{
				ChannelID: name, Numbers: channel.Numbers{Head: seq, Count: seq}, Senders: map[string]channel.Cursor{id: {Seq: seq, Count: seq}},
			}}, at(4)))
		}
		advance(3)
		c.wantNone(t, name, id)
		advance(4)
		to, ok, err := c.MarkRead(t.Context(), name, id, channel.Cursor{Seq: 6, Count: 5}, true, at(5))
		if err != nil || !ok || to != (channel.Cursor{Seq: 6, Count: 5}) {
			t.Fatalf("mark read by %q: %v, %v, %v", id, to, ok, err)
		}
		c.wantFollower(t, channel.Member{ChannelID: name, UserID: id, JoinedAt: at(4), Cursor: channel.Cursor{Seq: 6, Count: 5}})
	}
}

func pageMembers(t *testing.T, c *channels) {
	c.create(t, "club", oddIDs...)
	c.create(t, "clubs", "not one of them")
	must(t, c.RemoveMembers(t.Context(), "club", []string{"aa", "~"}, 1))
	want := slices.DeleteFunc(slices.Sorted(slices.Values(oddIDs)), func(id string) bool { return id == "aa" || id == "~" })
	for _, limit := range []int{1, 3, 100} {
		var got []string
		for after := ""; len(got) <= len(want); { // no endless paging
			page, err := c.Members(t.Context(), "club", after, limit)
			must(t, err)
			for _, m := range page {
				same(t, "member", channel.Member{ChannelID: "club", UserID: m.UserID, Role: channel.RoleMember, JoinedAt: at(0)}, m)
				got = append(got, m.UserID)
			}
			if len(page) < limit {
				break
			}
			if len(page) > limit {
				t.Fatalf("%d members on a page of %d", len(page), limit)
			}
			after = page[limit-1].UserID
		}
		same(t, "user ids", want, got)
	}
	for id, n := range map[string]int{"club": len(want), "clubs": 1, "clu": 0} {
		got, err := c.CountMembers(t.Context(), id)
		must(t, err)
		same(t, "members of "+id, n, got)
	}
	page, err := c.Members(t.Context(), "club", "aa", 1) // no longer a member
	must(t, err)
	same(t, "after one who left", []channel.Member{{ChannelID: "club", UserID: "ann@example.org", Role: channel.RoleMember, JoinedAt: at(0)}}, page)
}

func pageMemberships(t *testing.T, c *channels) {
	var want []string
	for i := range 11 {
		name := fmt.Sprintf("c%d", i) // c10 sorts before c2
		c.create(t, name, "$ann", "bob")
		if i == 4 {
			must(t, c.RemoveMembers(t.Context(), name, []string{"$ann"}, 1))
			continue
		}
		want = append(want, name)
	}
	slices.Sort(want)
	for _, limit := range []int{1, 3, 100} {
		var got []string
		for after := ""; len(got) <= len(want); { // no endless paging
			page, err := c.Memberships(t.Context(), "$ann", after, limit)
			must(t, err)
			for _, m := range page {
				same(t, "member", channel.Member{ChannelID: m.ChannelID, UserID: "$ann", Role: channel.RoleMember, JoinedAt: at(0)}, m)
				got = append(got, m.ChannelID)
			}
			if len(page) < limit {
				break
			}
			after = page[limit-1].ChannelID
		}
		same(t, "channel ids", want, got)
	}
	none, err := c.Memberships(t.Context(), "nobody", "", 10)
	must(t, err)
	same(t, "of a stranger", []channel.Member{}, none)
}

func membersOfAsked(t *testing.T, c *channels) {
	for _, id := range []string{"a", "b", "d"} {
		c.create(t, id, "ann")
	}
	c.create(t, "other", "bob")
	must(t, c.RemoveMembers(t.Context(), "b", []string{"ann"}, 1))
	got, err := c.MembersOf(t.Context(), "ann", []string{"a", "b", "other", "none"})
	must(t, err)
	same(t, "memberships", map[string]channel.Member{"a": {ChannelID: "a", UserID: "ann", Role: channel.RoleMember, JoinedAt: at(0)}}, got)
	got, err = c.MembersOf(t.Context(), "ann", nil)
	must(t, err)
	same(t, "of no channels", map[string]channel.Member{}, got)
}
