package messages

import (
	"slices"
	"testing"

	"github.com/parleyhq/parley/chaos"
)

// withMembers returns the story with a members-only channel. ann is a member from 1 s on, bob from
// 1 s to 7 s. The author's membership is not checked.
func withMembers(t *testing.T) *story {
	t.Helper()
	s := newStory(t)
	s.op(Op{Client: "member-manager", Kind: Create, Begin: sec, Channel: channel, Users: []string{"ann", "bob"}})
	s.op(Op{Client: "member-manager", Kind: Remove, Begin: 7 * sec, Channel: channel, Users: []string{"bob"}})
	s.mark("ann", 13*sec, 4, 4, 1)
	for _, addr := range []string{"n1", "n2"} {
		s.h.Mines = append(s.h.Mines, channelList{User: "ann", Addr: addr, Channels: []UserChannel{{
			Channel: channel, Head: 6, Count: 4, ReadSeq: 4, Unread: 1, Last: s.now(6),
		}}})
	}
	return s
}

// mark adds a MarkRead call with its answer.
func (s *story) mark(user string, begin, asked, told, unread int64) *Op {
	return s.op(Op{
		Client: "guest-caller-" + user, Kind: MarkRead, Begin: begin, Channel: channel, From: user, MinSeq: asked, Seq: told, Count: unread,
	})
}

// visit adds a call of a user, which was allowed if let is set and refused otherwise.
func (s *story) visit(user string, begin int64, let bool) {
	op := Op{Client: "guest-caller-" + user, Kind: Update, Begin: begin, Channel: channel}
	if !let {
		op.Outcome, op.Reason = chaos.Failed, notMember
	}
	s.op(op)
}

// watch adds a stream of a user that delivers one entry.
func (s *story) watch(user string, at, seq int64) {
	l := s.life("guest-stream-"+user, 2*sec, seq-1)
	l.User, l.End = user, at+sec
	s.deliver(l.ID, at, seq)
}

func (s *story) listed() *UserChannel { return &s.h.Mines[0].Channels[0] }

func TestCheckMembers(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		want   chaos.Name // empty if nothing may be found
		name   string
		change func(s *story)
	}{
		{"", "as it is", func(*story) {}},
		{"", "a member is let in", func(s *story) { s.visit("ann", 9*sec, true) }},
		{"", "a former member is refused", func(s *story) { s.visit("bob", 9*sec, false) }},
		{"", "a former member is let in within the second", func(s *story) { s.visit("bob", 7*sec+sec/2, true) }},
		{"", "a member gets an entry", func(s *story) { s.watch("ann", 13*sec, 6) }},
		{"", "a former member gets what was sent before", func(s *story) { s.watch("bob", 9*sec, 3) }},
		{"", "a removal that may not have happened", func(s *story) {
			s.op(Op{Client: "member-manager", Kind: Remove, Begin: 9 * sec, Channel: channel, Users: []string{"ann"}, Outcome: chaos.Unknown})
			s.visit("ann", 12*sec, false)
			s.visit("ann", 13*sec, true)
		}},
		{Membership, "a stranger is let in", func(s *story) { s.visit("eve", 9*sec, true) }},
		{Membership, "a former member is let in", func(s *story) { s.visit("bob", 9*sec, true) }},
		{Membership, "a member is refused", func(s *story) { s.visit("ann", 9*sec, false) }},
		{Membership, "a former member gets what was sent afterwards", func(s *story) { s.watch("bob", 13*sec, 6) }},
		{Membership, "a stranger gets an entry", func(s *story) { s.watch("eve", 13*sec, 6) }},
		{MyChannels, "a list has an old head", func(s *story) { s.listed().Head = 5 }},
		{MyChannels, "a list has another count", func(s *story) { s.listed().Count = 3 }},
		{MyChannels, "a list has an old cursor", func(s *story) { s.listed().ReadSeq, s.listed().Unread = 3, 2 }},
		{MyChannels, "a list has a cursor that nobody set", func(s *story) { s.listed().ReadSeq, s.listed().Unread = 5, 1 }},
		{MyChannels, "a list has another unread", func(s *story) { s.listed().Unread = 2 }},
		{MyChannels, "a list has an old last message", func(s *story) { s.listed().Last = s.now(4) }},
		{MyChannels, "a list has no last message", func(s *story) { s.listed().Last = unset }},
		{MyChannels, "a list lacks a channel", func(s *story) { s.h.Mines[0].Channels = nil }},
		{MyChannels, "a list has a channel twice", func(s *story) {
			s.h.Mines[0].Channels = append(s.h.Mines[0].Channels, *s.listed())
		}},
		{MyChannels, "a list has a channel of which he is no member", func(s *story) { s.h.Mines[0].User = "bob" }},
		{MyChannels, "a mark is not taken", func(s *story) { s.mark("ann", 14*sec, 4, 3, 2) }},
		{MyChannels, "a cursor goes back", func(s *story) { s.mark("ann", 14*sec, 2, 2, 2) }},
		{MyChannels, "a mark tells too few unread", func(s *story) { s.mark("ann", 14*sec, 4, 4, 0) }},
		{MyChannels, "a mark tells too many unread", func(s *story) { s.mark("ann", 14*sec, 4, 4, 2) }},
		{chaos.Liveness, "a list fails", func(s *story) { s.h.Mines[1].Err = "unavailable" }},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			s := withMembers(t)
			tt.change(s)
			found := Check(s.h, s.t)
			if tt.want == "" && len(found) > 0 {
				t.Errorf("found %v", found)
			}
			if tt.want != "" && !slices.ContainsFunc(found, func(v chaos.Violation) bool { return v.Name == tt.want }) {
				t.Errorf("%s not found; found %v", tt.want, found)
			}
		})
	}
}
