package messages

import (
	"slices"
	"strings"

	"github.com/parleyhq/parley/chaos"
	parleyv1 "github.com/parleyhq/parley/gen/go/parley/v1"
)

// The names of broken promises about gated channels.
const (
	// Closed: a user who was not a member used a closed or deleted channel, or was shown a later
	// message.
	Closed chaos.Name = "closed"
	// Refused: a user was refused what the channel's mode, and the user's role, allow.
	Refused chaos.Name = "refused"
	// Rights: a member recalled another's message without being a moderator.
	Rights chaos.Name = "rights"
	// DeletedShown: a message of a deleted channel was shown after the deletion, or is still stored.
	DeletedShown chaos.Name = "deleted-shown"
	// ErasedShown: a message of an erased user was shown at the end, or is still stored.
	ErasedShown chaos.Name = "erased-shown"
	// Vanished: an acknowledged message is not shown at the end.
	Vanished chaos.Name = "vanished"
)

// openGrace is how long nodes may refuse strangers after a channel was opened, and the aide after
// it became a moderator. No promise is made about it; they poll every second.
const openGrace = 2 * second

// refusals are the reasons of errors for lack of rights.
var refusals = []string{
	notMember, parleyv1.ErrorReason_ERROR_REASON_CAPABILITY_MISSING.String(),
	parleyv1.ErrorReason_ERROR_REASON_CHANNEL_NOT_FOUND.String(),
}

// notSender is the reason of an error for a recall of another user's message.
var notSender = parleyv1.ErrorReason_ERROR_REASON_NOT_SENDER.String()

// gateCheck checks the calls of one gated channel.
type gateCheck struct {
	*checker

	channel string
	calls   []*GateCall
	// visits are when strangers may use the channel, lives when it exists, and ranks when the aide is
	// a moderator.
	visits, lives, ranks tenure
	// sends are all calls that sent a message, by client_msg_id; recalled are the messages that the
	// aide may have recalled.
	sends    map[string]*GateCall
	recalled map[string]bool
	// deletions are those that were acknowledged, in order.
	deletions []*GateCall
}

func (c *checker) checkGates() {
	calls := make(map[string][]*GateCall)
	for i := range c.h.Gates {
		calls[c.h.Gates[i].Channel] = append(calls[c.h.Gates[i].Channel], &c.h.Gates[i])
	}
	for channel, of := range calls {
		slices.SortStableFunc(of, func(a, b *GateCall) int { return int(a.Begin - b.Begin) })
		g := &gateCheck{
			checker: c, channel: channel, calls: of, sends: make(map[string]*GateCall), recalled: make(map[string]bool),
		}
		g.build()
		for _, call := range of {
			g.checkUse(call)
			g.checkShown(call)
		}
		g.checkEnd()
	}
}

// build derives from the keeper's changes what everyone may do, and when.
func (g *gateCheck) build() {
	for _, call := range g.calls {
		switch call.Kind {
		case Send:
			g.sends[call.Name] = call
			continue
		case Recall:
			g.recalled[call.Name] = g.recalled[call.Name] || call.Outcome != chaos.Failed
			continue
		default:
		}
		if call.Outcome == chaos.Failed {
			continue
		}
		set := func(t *tenure, grace int64, is belonging) {
			t.set(call.Begin, maybe)
			if call.Outcome == chaos.OK {
				t.set(call.End+grace, is)
			}
		}
		switch call.Kind {
		case Create:
			set(&g.visits, openGrace, inside)
			set(&g.lives, openGrace, inside)
			set(&g.ranks, second, outside)
		case Open:
			set(&g.visits, openGrace, inside)
		case Close:
			set(&g.visits, 0, outside)
		case Delete:
			set(&g.visits, 0, outside)
			set(&g.lives, 0, outside)
			set(&g.ranks, 0, outside)
			if call.Outcome == chaos.OK {
				g.deletions = append(g.deletions, call)
			}
		case Promote:
			set(&g.ranks, openGrace, inside)
		case Demote:
			set(&g.ranks, second, outside)
		default:
		}
	}
}

// access returns when a user may use the channel.
func (g *gateCheck) access(user string) *tenure {
	if user == stranger {
		return &g.visits
	}
	return &g.lives
}

// checkUse checks that a call was allowed or refused as its user's rights at the time say.
func (g *gateCheck) checkUse(call *GateCall) {
	if call.Kind != Send && call.Kind != List && call.Kind != Recall || strings.HasPrefix(call.User, leaver) {
		return
	}
	is := g.access(call.User).during(call.Begin, call.End)
	refused := slices.Contains(refusals, call.Reason)
	switch {
	case call.Kind == Send && is == outside && call.Outcome == chaos.OK:
		g.reportf(Closed, call, "was accepted, though the channel was closed to the user all the time")
	// Nodes may answer reads for a second from what they know.
	case call.Kind == List && call.Outcome == chaos.OK && g.access(call.User).during(call.Begin-second, call.End) == outside:
		g.reportf(Closed, call, "was accepted, though the channel was closed to the user for more than a second")
	case call.Kind != Recall && is == inside && refused && !g.held("", call.Begin-openGrace, call.End):
		g.reportf(Refused, call, "was refused, though the channel was open to the user all the time: %s", call.Reason)
	}
	if call.Kind != Recall {
		return
	}
	rank := g.ranks.during(call.Begin, call.End)
	refused = refused || call.Reason == notSender
	switch {
	case call.User == stranger && call.Outcome == chaos.OK, call.User == aide && rank == outside && call.Outcome == chaos.OK:
		g.reportf(Rights, call, "was accepted, though the user was no moderator all the time")
	case call.User == aide && rank == inside && is == inside && refused && !g.held("", call.Begin-openGrace, call.End):
		g.reportf(Refused, call, "was refused, though the user was a moderator all the time: %s", call.Reason)
	}
}

// checkShown checks the messages that a list or a stream showed.
func (g *gateCheck) checkShown(call *GateCall) {
	for _, name := range call.Shown {
		send := g.sends[name]
		if send == nil {
			g.reportf(Unsent, call, "showed %s, which nobody sent", name)
			continue
		}
		if g.access(call.User).during(send.Begin, call.End) == outside {
			g.reportf(Closed, call, "showed %s, requested at %.3fs, though the channel was closed to the user since before that", name,
				seconds(send.Begin))
		}
		for _, deletion := range g.deletions {
			if send.End < deletion.Begin && deletion.End+second < call.Begin && !g.held(call.Addr, deletion.End, call.End) {
				g.reportf(DeletedShown, call, "showed %s, which a deletion at %.3fs had deleted", name, seconds(deletion.End))
			}
		}
	}
}

// checkEnd checks the last list, and what is stored.
func (g *gateCheck) checkEnd() {
	if g.h.Touched == 0 {
		return
	}
	var created int64
	var last *GateCall
	var gone []string // the users whose erasure was asked for
	for _, call := range g.calls {
		switch {
		case call.Kind == Create && call.Outcome == chaos.OK:
			created = call.End
		case call.Kind == Erase && call.Outcome == chaos.OK:
			gone = append(gone, call.Name)
		case call.Final && call.Outcome != chaos.OK:
			g.reportf(chaos.Liveness, call, "failed though nothing was broken: %s", call.Err)
		case call.Final && call.Kind == List:
			last = call
		}
	}
	if last == nil || last.Outcome != chaos.OK {
		g.Reportf(chaos.Liveness, g.channel, g.h.Ended, "it could not be listed though nothing was broken")
		return
	}
	g.checkErased(last, gone)
	for name, send := range g.sends {
		if send.Outcome == chaos.OK && send.Begin > created && !g.recalled[name] && !strings.HasPrefix(send.User, leaver) &&
			!slices.Contains(last.Shown, name) {
			g.reportf(Vanished, last, "lacks %s, which was acknowledged at %.3fs", name, seconds(send.End))
		}
		if n := len(g.deletions); n > 0 && send.End < g.deletions[n-1].Begin && created > g.deletions[n-1].End {
			for _, where := range g.t.Marks[name] {
				g.reportf(DeletedShown, g.deletions[n-1], "left the text of %s in %s", name, where)
			}
		}
	}
	g.checkStrangers(last)
}

// checkErased checks that nothing is left of erased users.
func (g *gateCheck) checkErased(last *GateCall, users []string) {
	for _, user := range users {
		for _, name := range last.Shown {
			if isOf(name, user) {
				g.reportf(ErasedShown, last, "showed %s, whose sender was erased", name)
			}
		}
		for name := range g.sends {
			if isOf(name, user) {
				for _, where := range g.t.Marks[name] {
					g.reportf(ErasedShown, last, "%s, whose sender was erased, is still in %s", name, where)
				}
			}
		}
	}
}

// checkStrangers checks that the strangers' streams got the last message on every node.
func (g *gateCheck) checkStrangers(last *GateCall) {
	var final *GateCall
	behind := make(map[string]bool)
	for _, call := range g.calls {
		switch {
		case call.Final && call.Kind == Send:
			final = call
		case call.Kind == Stream:
			behind[call.Addr] = true
		}
	}
	if final == nil {
		return
	}
	for _, call := range g.calls {
		if call.Kind == Stream && slices.Contains(call.Shown, final.Name) {
			delete(behind, call.Addr)
		}
	}
	for addr := range behind {
		g.Reportf(Behind, g.channel, last.End, "the stranger's stream at %s did not get %s", addr, final.Name)
	}
}

// reportf reports a violation of a call.
func (g *gateCheck) reportf(name chaos.Name, call *GateCall, format string, args ...any) {
	args = append([]any{call.Kind, call.User, call.Addr, seconds(call.Begin), seconds(call.End)}, args...)
	g.Reportf(name, g.channel, call.End, "%s of %s at %s [%.3fs to %.3fs] "+format, args...)
}

// changes returns the number of acknowledged changes of gated channels, by kind.
func (h *History) changes() chaos.Tally[Kind] {
	t := make(chaos.Tally[Kind])
	for i := range h.Gates {
		t.Add(h.Gates[i].Kind, h.Gates[i].Outcome)
	}
	return t
}
