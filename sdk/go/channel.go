package parley

import (
	parleyv1 "github.com/parleyhq/parley/gen/go/parley/v1"
)

// holesBeforeGap is how often in a row the server must skip the same entries of a channel until the
// subscription reports a gap.
const holesBeforeGap = 3

// verdict is the decision of a subscription about an event that arrived.
type verdict int

const (
	// pass delivers the event to the program.
	pass verdict = iota
	// drop ignores the event, for example a repeat or an event of a lost channel.
	drop
	// broken means that entries before the event are missing. The subscription leaves the stream
	// and opens another one.
	broken
)

// channel is a subscription's state of one channel. It is guarded by the subscription's lock.
type channel struct {
	id string
	// hasPosition is true once the channel has a position. A channel that starts live gets it with its
	// first ChannelState event.
	hasPosition bool
	// seq and epoch are the position up to which events have arrived. The next stream resumes
	// there.
	seq   int64
	epoch string
	// hasState is true once the current stream has sent the channel's ChannelState event. Events
	// before it belong to an earlier subscription of the channel on the same stream.
	hasState bool
	// onStream is true if the current stream includes the channel.
	onStream bool
	// tentative is true until the server has accepted an added channel. A new stream does not
	// include the channel, so that a refusal of the channel cannot end the stream.
	tentative bool
	// lost is true once the channel's last event has arrived. No later stream includes it.
	lost bool
	// replaced is the lost channel with the same id, as long as this one is tentative.
	replaced *channel
	// holes counts how often in a row the server skipped the entries after seq.
	holes int

	// takenPos is the position up to which the program has taken events.
	takenPos Position
	hasTaken bool
}

func newChannel(s Start) *channel {
	ch := &channel{id: s.position.ChannelID}
	if !s.live {
		ch.hasPosition, ch.seq, ch.epoch = true, s.position.Seq, s.position.Epoch
		ch.takenPos, ch.hasTaken = s.position, true
	}
	return ch
}

// active reports whether a new stream includes the channel.
func (ch *channel) active() bool { return !ch.tentative && !ch.lost }

// request returns the request for the channel from its current position. A channel without a
// position starts live.
func (ch *channel) request() *parleyv1.ChannelPosition {
	p := &parleyv1.ChannelPosition{ChannelId: ch.id}
	if ch.hasPosition {
		p.AfterSeq, p.Epoch = new(ch.seq), ch.epoch
	}
	return p
}

// accept decides about an event that arrived and moves the channel's position. If the verdict is
// pass, the returned event is for the program. If the server has skipped the same entries too
// often, the returned event is an EventGap instead of ev, and the caller must pass ev to accept
// again.
func (ch *channel) accept(ev *parleyv1.ChannelEvent) (Event, verdict) {
	if ch.lost {
		return Event{}, drop
	}
	switch kind := ev.GetEvent().(type) {
	case *parleyv1.ChannelEvent_State:
		return ch.acceptState(ev, kind.State), pass
	case *parleyv1.ChannelEvent_Gap:
		if !ch.hasState {
			return Event{}, drop
		}
		ch.hasPosition, ch.seq, ch.holes = true, ev.GetSeq(), 0
		if epoch := kind.Gap.GetEpoch(); epoch != "" {
			ch.epoch = epoch
		}
		return ch.event(EventGap, ev.GetSeq(), nil, func(e *Event) { e.Gap = kind.Gap }), pass
	case *parleyv1.ChannelEvent_Lost:
		return ch.markLost(kind.Lost), pass
	case *parleyv1.ChannelEvent_Typing:
		if !ch.hasState {
			return Event{}, drop
		}
		return ch.event(EventTyping, 0, nil, func(e *Event) { e.Typing = kind.Typing }), pass
	case *parleyv1.ChannelEvent_Delta:
		if !ch.hasState {
			return Event{}, drop
		}
		return ch.event(EventDelta, 0, nil, func(e *Event) { e.Delta = kind.Delta }), pass
	case *parleyv1.ChannelEvent_Sent:
		return ch.acceptEntry(ev, EventSent, kind.Sent)
	case *parleyv1.ChannelEvent_Edited:
		return ch.acceptEntry(ev, EventEdited, kind.Edited)
	case *parleyv1.ChannelEvent_Recalled:
		return ch.acceptEntry(ev, EventRecalled, kind.Recalled)
	case *parleyv1.ChannelEvent_Closed:
		return ch.acceptEntry(ev, EventClosed, kind.Closed)
	default:
		// An unknown kind of event. If it covers the next entry of the log, the channel's position moves
		// past it.
		if ch.hasState && ev.GetSeq() > ch.seq && firstSeq(ev) <= ch.seq+1 {
			ch.seq = ev.GetSeq()
		}
		return Event{}, drop
	}
}

func (ch *channel) acceptState(ev *parleyv1.ChannelEvent, state *parleyv1.ChannelState) Event {
	ch.hasState = true
	switch {
	case !ch.hasPosition:
		ch.hasPosition, ch.seq, ch.epoch = true, ev.GetSeq(), state.GetEpoch()
	case ch.epoch == "" || state.GetRecovered():
		ch.epoch = state.GetEpoch()
	}
	e := ch.event(EventChannelState, ev.GetSeq(), nil, func(e *Event) { e.Channel = state })
	e.Epoch = state.GetEpoch()
	return e
}

// firstSeq returns the seq of the first entry that an event covers. A server that does not set
// from_seq sends one event per entry.
func firstSeq(ev *parleyv1.ChannelEvent) int64 {
	if from := ev.GetFromSeq(); from > 0 && from < ev.GetSeq() {
		return from
	}
	return ev.GetSeq()
}

func (ch *channel) acceptEntry(ev *parleyv1.ChannelEvent, kind EventKind, m *Message) (Event, verdict) {
	first := firstSeq(ev)
	switch {
	case !ch.hasState || ev.GetSeq() <= ch.seq:
		return Event{}, drop
	case first <= ch.seq+1:
		ch.seq, ch.holes = ev.GetSeq(), 0
		return ch.event(kind, ev.GetSeq(), m, func(e *Event) { e.FromSeq = first }), pass
	}
	if ch.holes++; ch.holes < holesBeforeGap {
		return Event{}, broken
	}
	gap := &parleyv1.ChannelGap{AfterSeq: ch.seq, ToSeq: first - 1, Epoch: ch.epoch}
	ch.seq, ch.holes = gap.GetToSeq(), 0
	return ch.event(EventGap, gap.GetToSeq(), nil, func(e *Event) { e.Gap = gap }), pass
}

// markLost marks the channel as lost and returns its last event.
func (ch *channel) markLost(lost *parleyv1.ChannelLost) Event {
	ch.lost, ch.onStream = true, false
	return ch.event(EventLost, ch.seq, nil, func(e *Event) { e.Lost = lost })
}

func (ch *channel) event(kind EventKind, seq int64, m *Message, fill func(*Event)) Event {
	e := Event{Kind: kind, ChannelID: ch.id, Seq: seq, Epoch: ch.epoch, Message: m}
	if fill != nil {
		fill(&e)
	}
	return e
}

// markTaken records that the program takes the event. Typing, delta and lost events do not move the
// taken position. A ChannelState event sets it only if there is none yet, because the channel
// started live.
func (ch *channel) markTaken(e Event) {
	if e.Kind == EventTyping || e.Kind == EventDelta || e.Kind == EventLost {
		return
	}
	if e.Kind == EventChannelState && ch.hasTaken {
		if ch.takenPos.Epoch == "" {
			ch.takenPos.Epoch = e.Epoch
		}
		return
	}
	ch.takenPos, ch.hasTaken = Position{ChannelID: ch.id, Seq: e.Seq, Epoch: e.Epoch}, true
}
