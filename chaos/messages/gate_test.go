package messages

import (
	"slices"
	"testing"

	"github.com/parleyhq/parley/chaos"
)

// gateStory is a correct history of a gated channel. It is created at 1 s, closed from 10 s to 20
// s, deleted at 30 s and created again at 40 s. The aide is a moderator from 5 s to 15 s, and an
// erased user sent a message at 42 s.
func gateStory() []GateCall {
	calls := []GateCall{
		{User: keeper, Kind: Create, Begin: 1},
		{User: keeper, Kind: Send, Begin: 4, Name: "early"},
		{User: keeper, Kind: Promote, Begin: 5},
		{User: aide, Kind: Recall, Begin: 8, Name: "recalled"},
		{User: keeper, Kind: Close, Begin: 10},
		{User: keeper, Kind: Send, Begin: 12, Name: "secret"},
		{User: stranger, Kind: Send, Begin: 13, Outcome: chaos.Failed, Reason: notMember, Name: "refused"},
		{User: aide, Kind: List, Begin: 14, Shown: []string{"early", "secret"}},
		{User: keeper, Kind: Demote, Begin: 15},
		{User: aide, Kind: Recall, Begin: 18, Outcome: chaos.Failed, Reason: notSender, Name: "early"},
		{User: keeper, Kind: Open, Begin: 20},
		{User: stranger, Kind: Stream, Addr: "n1", Begin: 21, Shown: []string{"secret"}},
		{User: stranger, Kind: Send, Begin: 25, Name: "theirs"},
		{User: stranger, Kind: List, Begin: 26, Shown: []string{"early", "secret", "theirs"}},
		{User: keeper, Kind: Delete, Begin: 30},
		{User: aide, Kind: List, Begin: 34, Outcome: chaos.Failed, Reason: refusals[2]},
		{User: keeper, Kind: Create, Begin: 40},
		{User: leaver, Kind: Send, Begin: 42, Name: "leaver/1"},
		{User: keeper, Kind: Erase, Begin: 43, Name: "leaver"},
		{User: keeper, Kind: Send, Begin: 50, Name: "last", Final: true},
		{User: stranger, Kind: Stream, Addr: "n1", Begin: 51, Shown: []string{"last"}},
		{User: keeper, Kind: List, Begin: 60, Shown: []string{"last"}, Final: true},
	}
	for i := range calls {
		c := &calls[i]
		c.Channel, c.Begin = gate(0), c.Begin*sec
		c.End = c.Begin + 1
		if c.Outcome == "" {
			c.Outcome = chaos.OK
		}
	}
	return calls
}

// TestCheckGates checks that a correct history of a gated channel passes, and that each broken
// promise is found.
func TestCheckGates(t *testing.T) {
	t.Parallel()
	call := func(user string, kind Kind, begin int64, shown ...string) GateCall {
		return GateCall{
			Channel: gate(0), User: user, Addr: "n1", Kind: kind, Begin: begin * sec, End: begin*sec + 1, Outcome: chaos.OK, Name: "early", Shown: shown,
		}
	}
	refused := func(c GateCall) GateCall {
		c.Outcome, c.Reason = chaos.Failed, notMember
		return c
	}
	for _, tt := range []struct {
		name string
		want chaos.Name // none if empty
		add  GateCall
	}{
		{"as it is", "", call(keeper, List, 27, "early")},
		{"a stranger is refused while the channel is closed", "", refused(call(stranger, List, 13))},
		{"a stranger's send is accepted while it is closed", Closed, call(stranger, Send, 13)},
		{"a stranger's list is accepted while it is closed", Closed, call(stranger, List, 13)},
		{"a stranger's stream gets a message while it is closed", Closed, call(stranger, Stream, 13, "secret")},
		{"a stranger's stream gets an earlier message late", "", call(stranger, Stream, 13, "early")},
		{"the keeper's send is accepted while the channel is deleted", Closed, call(keeper, Send, 33)},
		{"a stranger is refused while the channel is open", Refused, refused(call(stranger, List, 7))},
		{"the aide is refused while the channel is closed", Refused, refused(call(aide, List, 13))},
		{"the aide recalls as a member", Rights, call(aide, Recall, 18)},
		{"a stranger recalls", Rights, call(stranger, Recall, 8)},
		{"the aide is refused as a moderator", Refused, refused(call(aide, Recall, 8))},
		{"the aide is refused as if it were no moderator", Refused, GateCall{
			Channel: gate(0), User: aide, Kind: Recall, Begin: 8 * sec, End: 8*sec + 1, Outcome: chaos.Failed, Reason: notSender, Name: "early",
		}},
		{"a list shows a deleted message", DeletedShown, call(keeper, List, 45, "early")},
		{"a stream shows a deleted message", DeletedShown, call(stranger, Stream, 45, "theirs")},
		{"a message that nobody sent", Unsent, call(keeper, List, 27, "other")},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			s := newStory(t)
			s.h.Gates = append(gateStory(), tt.add)
			wantFound(t, s, tt.want)
		})
	}
	for _, tt := range []struct {
		name   string
		want   chaos.Name
		change func(s *story, calls []GateCall)
	}{
		{"the last list lacks a message", Vanished, func(_ *story, c []GateCall) { c[len(c)-1].Shown = nil }},
		{"the last list failed", chaos.Liveness, func(_ *story, c []GateCall) { c[len(c)-1].Outcome = chaos.Unknown }},
		{"the last send failed", chaos.Liveness, func(_ *story, c []GateCall) { c[len(c)-3].Outcome = chaos.Unknown }},
		{"a stream did not get the last message", Behind, func(_ *story, c []GateCall) { c[len(c)-2].Shown = nil }},
		{"the last list shows an erased user's message", ErasedShown, func(_ *story, c []GateCall) {
			c[len(c)-1].Shown = []string{"last", "leaver/1"}
		}},
		{"an erased user's message is still stored", ErasedShown, func(s *story, _ []GateCall) { s.t.Marks["leaver/1"] = []string{"MongoDB"} }},
		{"a deleted message is still stored", DeletedShown, func(s *story, _ []GateCall) { s.t.Marks["secret"] = []string{"MongoDB"} }},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			s := newStory(t)
			s.h.Gates = gateStory()
			tt.change(s, s.h.Gates)
			wantFound(t, s, tt.want)
		})
	}
}

// wantFound checks that the check of a story finds a violation with a name, or none if it is empty.
func wantFound(t *testing.T, s *story, want chaos.Name) {
	t.Helper()
	var found []chaos.Name
	for _, v := range Check(s.h, s.t) {
		found = append(found, v.Name)
	}
	if want == "" && len(found) > 0 || want != "" && !slices.Contains(found, want) {
		t.Errorf("found %v, want %q", found, want)
	}
}
