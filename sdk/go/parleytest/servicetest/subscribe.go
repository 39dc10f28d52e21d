package servicetest

import (
	"context"
	"fmt"
	"strings"

	"connectrpc.com/connect"

	parleyv1 "github.com/parleyhq/parley/gen/go/parley/v1"
)

// subscription is a live Subscribe stream. events are those received but not yet returned by next.
type subscription struct {
	e      *env
	id     string
	stream *connect.ServerStreamForClient[parleyv1.SubscribeResponse]
	events []*parleyv1.ChannelEvent
	close  func()
}

// from returns a position that requests the entries after seq.
func from(channel string, seq int64) *parleyv1.ChannelPosition {
	return &parleyv1.ChannelPosition{ChannelId: channel, AfterSeq: &seq}
}

// live returns a position that requests only new entries.
func live(channel string) *parleyv1.ChannelPosition {
	return &parleyv1.ChannelPosition{ChannelId: channel}
}

// subscribe opens a stream and reads its first frame. The stream ends with the scenario.
func (e *env) subscribe(c *caller, channels ...*parleyv1.ChannelPosition) *subscription {
	e.Helper()
	ctx, cancel := context.WithCancel(e.ctx)
	stream, err := c.Subscribe(ctx, &parleyv1.SubscribeRequest{Channels: channels})
	e.no(err)
	s := &subscription{e: e, stream: stream}
	s.id, s.close = e.opened(stream, cancel, func() *parleyv1.StreamInfo { return stream.Msg().GetInfo() })
	return s
}

// next waits for the next event and returns it.
func (s *subscription) next() *parleyv1.ChannelEvent {
	s.e.Helper()
	for len(s.events) == 0 {
		if !s.stream.Receive() {
			s.e.Fatalf("the stream ended: %v", s.stream.Err())
		}
		s.events = append(s.events, s.stream.Msg().GetEvents().GetEvents()...)
	}
	first := s.events[0]
	s.events = s.events[1:]
	return first
}

// want waits for one event per line and fails the scenario if describe returns another line for it.
func (s *subscription) want(lines ...string) {
	s.e.Helper()
	for _, line := range lines {
		if got := describe(s.next()); got != line {
			s.e.Fatalf("event %q, want %q", got, line)
		}
	}
}

// describe returns an event as one line of text: its kind, its range of entries as from..to, and
// its content.
func describe(ev *parleyv1.ChannelEvent) string {
	place := fmt.Sprintf("%d..%d", ev.GetFromSeq(), ev.GetSeq())
	message := func(kind string, m *parleyv1.ChannelMessage) string {
		return fmt.Sprintf("%s %s #%d %s", kind, place, m.GetSeq(), m.GetContent())
	}
	switch ev := ev.GetEvent().(type) {
	case *parleyv1.ChannelEvent_Sent:
		return message("sent", ev.Sent)
	case *parleyv1.ChannelEvent_Edited:
		return message("edited", ev.Edited)
	case *parleyv1.ChannelEvent_Recalled:
		return strings.TrimSpace(message("recalled", ev.Recalled))
	case *parleyv1.ChannelEvent_Closed:
		return message("closed", ev.Closed)
	case *parleyv1.ChannelEvent_State:
		s := ev.State
		return fmt.Sprintf("state %s oldest %d head %d count %d recovered %t", place, s.GetOldestSeq(), s.GetHeadSeq(), s.GetCount(), s.GetRecovered())
	case *parleyv1.ChannelEvent_Gap:
		reason := strings.TrimPrefix(ev.Gap.GetReason().String(), "GAP_REASON_")
		return fmt.Sprintf("gap %s %d to %d %s", place, ev.Gap.GetAfterSeq(), ev.Gap.GetToSeq(), reason)
	case *parleyv1.ChannelEvent_Lost:
		return fmt.Sprintf("lost %s %s", place, strings.TrimPrefix(ev.Lost.GetReason().String(), "LOST_REASON_"))
	case *parleyv1.ChannelEvent_Typing:
		return fmt.Sprintf("typing %s %s", place, ev.Typing.GetUserId())
	default:
		return fmt.Sprintf("%T", ev)
	}
}

func subscribeFromStart(e *env) {
	room := e.name("room")
	sent := e.say(e.ann, room, "one")
	e.say(e.bob, room, "two")
	s := e.subscribe(e.bob, from(room, 0))
	state := s.next()
	equal(e, "the state", describe(state), "state 0..0 oldest 1 head 2 count 2 recovered true")
	equal(e, "its epoch", state.GetState().GetEpoch(), sent.GetEpoch())
	equal(e, "its channel", state.GetChannelId(), room)
	first := s.next()
	equal(e, "the first event", describe(first), "sent 1..1 #1 one")
	if m := first.GetSent(); m.GetMsgId() != sent.GetMsgId() || m.GetFromId() != e.ann.user || m.GetChannelId() != room {
		e.Errorf("the message %v", m)
	}
	s.want("sent 2..2 #2 two")
	e.say(e.ann, room, "three")
	s.want("sent 3..3 #3 three")
	none := e.subscribe(e.bob, from(e.name("empty"), 0))
	none.want("state 0..0 oldest 1 head 0 count 0 recovered true")
	e.say(e.ann, e.name("empty"), "first")
	none.want("sent 1..1 #1 first")
}

func subscribeLive(e *env) {
	room := e.name("room")
	sent := e.say(e.ann, room, "one")
	s := e.subscribe(e.bob, live(room))
	s.want("state 0..1 oldest 1 head 1 count 1 recovered false")
	e.say(e.ann, room, "two")
	s.want("sent 2..2 #2 two")
	e.no(errOf(e.ann.EditMessage(e.ctx, &parleyv1.EditMessageRequest{ChannelId: room, MsgId: sent.GetMsgId(), Content: "one!"})))
	s.want("edited 3..3 #1 one!")
	e.no(errOf(e.ann.RecallMessage(e.ctx, &parleyv1.RecallMessageRequest{ChannelId: room, MsgId: sent.GetMsgId()})))
	s.want("recalled 4..4 #1")
}

// subscribeFromPosition subscribes again after a stream has ended. No entry may be repeated or
// missing.
func subscribeFromPosition(e *env) {
	room := e.name("room")
	sent := e.say(e.ann, room, "one")
	s := e.subscribe(e.bob, from(room, 0))
	s.want("state 0..0 oldest 1 head 1 count 1 recovered true", "sent 1..1 #1 one")
	s.close()
	e.say(e.ann, room, "two")
	e.say(e.ann, room, "three")
	position := from(room, 1)
	position.Epoch = sent.GetEpoch()
	s = e.subscribe(e.bob, position)
	s.want("state 0..1 oldest 1 head 3 count 3 recovered true", "sent 2..2 #2 two", "sent 3..3 #3 three")
	twice := e.subscribe(e.bob, from(room, 0), from(room, 2))
	twice.want("state 0..2 oldest 1 head 3 count 3 recovered true", "sent 3..3 #3 three")
	position = from(room, 3)
	position.Epoch = sent.GetEpoch()
	end := e.subscribe(e.bob, position)
	end.want("state 0..3 oldest 1 head 3 count 3 recovered true")
	e.say(e.ann, room, "four")
	end.want("sent 4..4 #4 four")
	s.want("sent 4..4 #4 four")
}

// subscribeAfterChanges replays messages that were edited and recalled. The events must cover every
// entry and contain the messages in their current state.
func subscribeAfterChanges(e *env) {
	room := e.name("room")
	kept, gone := e.say(e.ann, room, "kept"), e.say(e.ann, room, "gone")
	for _, content := range []string{"a", "b"} {
		e.no(errOf(e.ann.EditMessage(e.ctx, &parleyv1.EditMessageRequest{ChannelId: room, MsgId: kept.GetMsgId(), Content: content})))
	}
	e.no(errOf(e.ann.RecallMessage(e.ctx, &parleyv1.RecallMessageRequest{ChannelId: room, MsgId: gone.GetMsgId()})))
	e.say(e.ann, room, "last")
	s := e.subscribe(e.bob, from(room, 0))
	s.want("state 0..0 oldest 1 head 6 count 3 recovered true")
	content, position := make(map[int64]string), int64(0)
	for position < 6 {
		ev := s.next()
		if ev.GetFromSeq() != position+1 || ev.GetSeq() < ev.GetFromSeq() {
			e.Fatalf("after entry %d: %s", position, describe(ev))
		}
		position = ev.GetSeq()
		for _, m := range []*parleyv1.ChannelMessage{ev.GetSent(), ev.GetEdited(), ev.GetRecalled()} {
			if was, ok := content[m.GetSeq()]; ok && m != nil && was != m.GetContent() {
				e.Errorf("message %d was sent as %q and as %q", m.GetSeq(), was, m.GetContent())
			}
			if m != nil {
				content[m.GetSeq()] = m.GetContent()
			}
		}
	}
	equal(e, "the messages", fmt.Sprint(content), fmt.Sprint(map[int64]string{1: "b", 2: "", 6: "last"}))
}

func gaps(e *env) {
	room := e.name("room")
	sent := e.say(e.ann, room, "one")
	e.say(e.ann, room, "two")
	other := from(room, 1)
	other.Epoch = "another-epoch"
	s := e.subscribe(e.bob, other)
	s.want("state 0..2 oldest 1 head 2 count 2 recovered false", "gap 0..2 1 to 2 EPOCH_CHANGED")
	ahead := e.subscribe(e.bob, from(room, 7))
	ahead.want("state 0..2 oldest 1 head 2 count 2 recovered false")
	gap := ahead.next()
	equal(e, "the gap", describe(gap), "gap 0..2 7 to 2 AHEAD_OF_LOG")
	equal(e, "its epoch", gap.GetGap().GetEpoch(), sent.GetEpoch())
	e.say(e.ann, room, "three")
	s.want("sent 3..3 #3 three")
	ahead.want("sent 3..3 #3 three")
}

func updateSubscription(e *env) {
	one, two := e.name("one"), e.name("two")
	e.say(e.ann, one, "1")
	e.say(e.ann, two, "1")
	s := e.subscribe(e.bob)
	update := func(c *caller, request *parleyv1.UpdateSubscriptionRequest) error {
		return errOf(c.UpdateSubscription(e.ctx, request))
	}
	add := []*parleyv1.ChannelPosition{from(one, 0)}
	e.no(update(e.bob, &parleyv1.UpdateSubscriptionRequest{StreamId: s.id, Add: add}))
	s.want("state 0..0 oldest 1 head 1 count 1 recovered true", "sent 1..1 #1 1")
	add = []*parleyv1.ChannelPosition{live(two), from(one, 0)}
	e.no(update(e.bob, &parleyv1.UpdateSubscriptionRequest{StreamId: s.id, Add: add, Remove: []string{one, "nothing"}}))
	got := map[string]int{}
	for range 3 {
		got[describe(s.next())]++
	}
	want := map[string]int{
		"state 0..1 oldest 1 head 1 count 1 recovered false": 1, "state 0..0 oldest 1 head 1 count 1 recovered true": 1, "sent 1..1 #1 1": 1,
	}
	equal(e, "added and added again", fmt.Sprint(got), fmt.Sprint(want))
	e.no(update(e.bob, &parleyv1.UpdateSubscriptionRequest{StreamId: s.id, Remove: []string{one}}))
	e.say(e.ann, one, "unseen")
	e.say(e.ann, two, "seen")
	s.want("sent 2..2 #2 seen")
	gone := refusal{connect.CodeNotFound, "STREAM_NOT_FOUND", "", 0}
	e.refused("another user's", update(e.ann, &parleyv1.UpdateSubscriptionRequest{StreamId: s.id, Remove: []string{two}}), gone)
	e.refused("no stream", update(e.ann, &parleyv1.UpdateSubscriptionRequest{StreamId: "none"}), gone)
	s.close()
	e.eventually(func() string {
		if update(e.bob, &parleyv1.UpdateSubscriptionRequest{StreamId: s.id}) == nil {
			return "the stream that was closed is found"
		}
		return ""
	})
}

func typing(e *env) {
	room := e.name("room")
	e.say(e.ann, room, "one")
	s := e.subscribe(e.bob, live(room))
	s.want("state 0..1 oldest 1 head 1 count 1 recovered false")
	e.no(errOf(e.ann.SendTyping(e.ctx, &parleyv1.SendTypingRequest{ChannelId: room})))
	s.want("typing 0..0 " + e.ann.user)
}
