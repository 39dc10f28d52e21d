package storetest

import (
	"errors"
	"fmt"
	"testing"

	"pgregory.net/rapid"

	"github.com/parleyhq/parley/server/internal/channel"
)

var channelRandomContracts = []channelContract{
	{"RandomChannelOperationsAgreeWithTheModel", randomChannels},
}

// rosterMachine runs random operations on a store and on the model. Its names end in the number of
// the run, so that runs share a store without interfering. rapid prints the seed of a failed run.
type rosterMachine struct {
	*channels
	model       channelModel
	names, user []string
	// removed holds what Changes must report after the stamp place, as channel and user: removed
	// members, and new members-only channels without a user.
	removed [][2]string
	place   channel.Stamp
}

func randomChannels(t *testing.T, c *channels) {
	run := 0
	rapid.Check(t, func(rt *rapid.T) {
		run++
		m := &rosterMachine{channels: c, model: channelModel{rows: map[string]*channel.Row{}, members: map[[2]string]*memberModel{}}}
		for i := range 3 {
			m.names = append(m.names, fmt.Sprintf("c%d-%d", i, run))
			m.user = append(m.user, fmt.Sprintf("$u.%d|%d", i, run))
		}
		_, m.place = c.changes(rt, channel.Stamp{})
		rt.Repeat(map[string]func(*rapid.T){
			"ensure":   m.ensureRandom,
			"create":   m.createRandom,
			"add":      m.addRandom,
			"role":     m.roleRandom,
			"remove":   m.removeRandom,
			"mark":     m.markRandom,
			"advance":  m.advanceRandom,
			"advance2": m.advanceRandom,
			"changes":  m.checkChanges,
			"reopen":   m.reopenRarely,
			"":         m.check,
		})
	})
}

func (m *rosterMachine) name(t *rapid.T) string { return rapid.SampledFrom(m.names).Draw(t, "channel") }

func (m *rosterMachine) users(t *rapid.T) []string {
	return rapid.SliceOfNDistinct(rapid.SampledFrom(m.user), 1, 3, rapid.ID[string]).Draw(t, "users")
}

func drawCursor(t *rapid.T) channel.Cursor {
	seq := rapid.Int64Range(0, 12).Draw(t, "seq")
	return channel.Cursor{Seq: seq, Count: rapid.Int64Range(0, seq).Draw(t, "count")}
}

func drawNow(t *rapid.T) int64 { return rapid.Int64Range(0, 1000).Draw(t, "now") }

func (m *rosterMachine) ensureRandom(t *rapid.T) {
	id, n := m.name(t), drawNow(t)
	same(t, "ensured", m.model.ensure(id, n), m.ensure(t, id, n))
}

func (m *rosterMachine) createRandom(t *rapid.T) {
	row := channel.Row{
		ChannelID: m.name(t), MembersOnly: rapid.Bool().Draw(t, "members only"), CreatedBy: m.user[0], CreatedAt: at(drawNow(t)),
	}
	if rapid.Bool().Draw(t, "key") {
		row.CreateKey, row.CreateDigest = "key", "digest"
	}
	users := m.users(t)
	got, err := m.Create(t.Context(), row, users)
	created := m.model.create(row, users)
	same(t, "row", *m.model.rows[row.ChannelID], got)
	if created {
		must(t, err)
		if row.MembersOnly {
			m.removed = append(m.removed, [2]string{row.ChannelID, "anyone"})
		}
	} else if !errors.Is(err, channel.ErrExists) {
		t.Fatalf("create again: %v", err)
	}
}

func (m *rosterMachine) addRandom(t *rapid.T) {
	id, users, n := m.name(t), m.users(t), drawNow(t)
	err := m.AddMembers(t.Context(), id, users, at(n))
	if m.missing(t, id, err) {
		return
	}
	for _, u := range users {
		m.model.user(id, u).join(channel.RoleMember, n)
	}
}

func (m *rosterMachine) roleRandom(t *rapid.T) {
	id, userID, n := m.name(t), m.users(t)[0], drawNow(t)
	role := rapid.SampledFrom([]channel.Role{channel.RoleMember, channel.Moderator, channel.Owner}).Draw(t, "role")
	if m.missing(t, id, m.SetRole(t.Context(), id, userID, role, at(n))) {
		return
	}
	u := m.model.user(id, userID)
	u.join(channel.RoleMember, n)
	u.Role = role
}

// missing checks the error of a change of a channel that may not exist. It reports whether the
// channel is missing.
func (m *rosterMachine) missing(t *rapid.T, id string, err error) bool {
	t.Helper()
	if m.model.rows[id] != nil {
		must(t, err)
		return false
	}
	if !errors.Is(err, channel.ErrNotFound) {
		t.Fatalf("without a row: %v", err)
	}
	return true
}

func (m *rosterMachine) removeRandom(t *rapid.T) {
	id, users, left := m.name(t), m.users(t), rapid.Int64Range(0, 12).Draw(t, "left")
	err := m.RemoveMembers(t.Context(), id, users, left)
	if m.missing(t, id, err) {
		return
	}
	for _, userID := range users {
		u := m.model.user(id, userID)
		if u.Role > 0 {
			m.removed = append(m.removed, [2]string{id, userID})
		}
		u.Role, u.left = 0, max(u.left, left)
	}
}

func (m *rosterMachine) markRandom(t *rapid.T) {
	id, u, to, join, n := m.name(t), m.users(t)[0], drawCursor(t), rapid.Bool().Draw(t, "join"), drawNow(t)
	want, wantOK := m.model.mark(id, u, to, join, n)
	if got, ok := m.mark(t, id, u, to, join, n); got != want || ok != wantOK {
		t.Fatalf("mark read: %+v, %v, want %+v, %v", got, ok, want, wantOK)
	}
}

func (m *rosterMachine) advanceRandom(t *rapid.T) {
	n := drawNow(t)
	var moves []channel.Advance
	for _, id := range rapid.SliceOfN(rapid.SampledFrom(m.names), 1, 4).Draw(t, "channels") { // one may come twice
		head := drawCursor(t)
		move := channel.Advance{ChannelID: id, Numbers: channel.Numbers{Head: head.Seq, Count: head.Count}}
		move.LastMessage = rapid.Int64Range(0, head.Seq).Draw(t, "last message")
		if rapid.Bool().Draw(t, "senders") {
			move.Senders = map[string]channel.Cursor{}
			for _, u := range m.users(t) {
				move.Senders[u] = drawCursor(t)
			}
		}
		moves = append(moves, move)
		m.model.advance(move, n)
	}
	m.advance(t, n, moves...)
}

func (m *rosterMachine) checkChanges(t *rapid.T) {
	changed, next := m.changes(t, m.place)
	for _, r := range m.removed {
		if !hasChange(changed, r[0], r[1]) {
			t.Fatalf("the removal of %s from %s is not told: %v", r[1], r[0], changed)
		}
	}
	m.removed, m.place = nil, next
}

// check compares a random part of the store's state with the model.
func (m *rosterMachine) check(t *rapid.T) {
	id, u := m.name(t), m.users(t)[0]
	switch rapid.IntRange(0, 2).Draw(t, "look at") {
	case 0:
		rows, err := m.Rows(t.Context(), m.names)
		must(t, err)
		want := map[string]channel.Row{}
		for id, row := range m.model.rows {
			want[id] = *row
		}
		same(t, "rows", want, rows)
	case 1:
		members, err := m.Members(t.Context(), id, "", 10)
		must(t, err)
		want := m.model.list(func(m channel.Member) bool { return m.ChannelID == id })
		same(t, "members", want, members)
		in, err := m.MembersIn(t.Context(), id, m.user)
		must(t, err)
		same(t, "members in", len(want), len(in))
		n := 0
		for _, u := range want {
			same(t, "member "+u.UserID, u, in[u.UserID])
			if u.IsMember() {
				n++
			}
		}
		counted, err := m.CountMembers(t.Context(), id)
		must(t, err)
		same(t, "count of members", n, counted)
	default:
		want := m.model.list(func(m channel.Member) bool { return m.UserID == u })
		mine, err := m.Memberships(t.Context(), u, "", 10)
		must(t, err)
		same(t, "memberships", want, mine)
		of, err := m.MembersOf(t.Context(), u, m.names)
		must(t, err)
		for _, want := range mine {
			same(t, "member of "+want.ChannelID, want, of[want.ChannelID])
		}
		same(t, "members of", len(want), len(of))
	}
}

func (m *rosterMachine) reopenRarely(t *rapid.T) {
	if rapid.IntRange(0, 9).Draw(t, "reopen at 0") == 0 {
		m.reopen(t)
		m.removed = nil // a stamp need not outlive the process
		_, m.place = m.changes(t, channel.Stamp{})
	}
}
