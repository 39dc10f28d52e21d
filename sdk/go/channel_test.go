package parley

import (
	"testing"

	parleyv1 "github.com/parleyhq/parley/gen/go/parley/v1"
)

func state(seq int64, epoch string, recovered bool) *parleyv1.ChannelEvent {
	return &parleyv1.ChannelEvent{ChannelId: "c", Seq: seq, Event: &parleyv1.ChannelEvent_State{
		State: &parleyv1.ChannelState{Epoch: epoch, Recovered: recovered},
	}}
}

func sent(seq int64) *parleyv1.ChannelEvent {
	return &parleyv1.ChannelEvent{ChannelId: "c", Seq: seq, Event: &parleyv1.ChannelEvent_Sent{Sent: &parleyv1.ChannelMessage{}}}
}

// covering returns an event that covers the entries from..to.
func covering(from, to int64) *parleyv1.ChannelEvent {
	ev := sent(to)
	ev.FromSeq = from
	return ev
}

func gap(to int64, epoch string) *parleyv1.ChannelEvent {
	return &parleyv1.ChannelEvent{ChannelId: "c", Seq: to, Event: &parleyv1.ChannelEvent_Gap{
		Gap: &parleyv1.ChannelGap{ToSeq: to, Epoch: epoch},
	}}
}

// TestChannelAccept checks the verdict on each kind of event, and the channel's position after it.
func TestChannelAccept(t *testing.T) {
	t.Parallel()
	type step struct {
		event *parleyv1.ChannelEvent
		want  verdict
		seq   int64
		epoch string
	}
	for name, one := range map[string]struct {
		start Start
		steps []step
	}{
		"live starts at the state": {Live("c"), []step{
			{state(7, "e", false), pass, 7, "e"}, {sent(7), drop, 7, "e"}, {sent(8), pass, 8, "e"}, {sent(8), drop, 8, "e"},
		}},
		"events before the state are dropped": {FromStart("c"), []step{
			{sent(1), drop, 0, ""}, {gap(3, "e"), drop, 0, ""}, {state(0, "e", true), pass, 0, "e"}, {sent(1), pass, 1, "e"},
		}},
		"a state moves no position": {After(Position{"c", 5, "e"}), []step{
			{state(9, "e", false), pass, 5, "e"}, {sent(10), broken, 5, "e"}, {sent(6), pass, 6, "e"},
		}},
		"a gap moves it, backwards too": {After(Position{"c", 5, "e"}), []step{
			{state(2, "f", false), pass, 5, "e"}, {gap(2, "f"), pass, 2, "f"}, {sent(3), pass, 3, "f"},
		}},
		"an unknown kind moves the position": {After(Position{"c", 5, "e"}), []step{
			{state(5, "e", true), pass, 5, "e"},
			{&parleyv1.ChannelEvent{ChannelId: "c", Seq: 6}, drop, 6, "e"},
			{&parleyv1.ChannelEvent{ChannelId: "c"}, drop, 6, "e"},
			{sent(7), pass, 7, "e"},
			{&parleyv1.ChannelEvent{ChannelId: "c", FromSeq: 8, Seq: 10}, drop, 10, "e"},
			{&parleyv1.ChannelEvent{ChannelId: "c", FromSeq: 12, Seq: 13}, drop, 10, "e"},
		}},
		"an event may cover several entries": {After(Position{"c", 5, "e"}), []step{
			{state(20, "e", true), pass, 5, "e"},
			{covering(6, 8), pass, 8, "e"},
			{covering(6, 8), drop, 8, "e"},
			{covering(7, 10), pass, 10, "e"},
			{covering(12, 13), broken, 10, "e"},
			{covering(11, 12), pass, 12, "e"},
			{covering(0, 13), pass, 13, "e"},
			{covering(0, 15), broken, 13, "e"},
			{covering(16, 14), pass, 14, "e"},
			{covering(1, 14), drop, 14, "e"},
		}},
	} {
		ch := newChannel(one.start)
		for i, s := range one.steps {
			_, got := ch.accept(s.event)
			if got != s.want || ch.seq != s.seq || ch.epoch != s.epoch {
				t.Errorf("%s, step %d: verdict %d at (%d, %q), want %d at (%d, %q)",
					name, i, got, ch.seq, ch.epoch, s.want, s.seq, s.epoch)
			}
		}
	}
}

// TestChannelRequest checks the position that a channel requests from the server: none at a live
// start, later the last entry that arrived.
func TestChannelRequest(t *testing.T) {
	t.Parallel()
	ch := newChannel(Live("c"))
	if p := ch.request(); p.AfterSeq != nil || p.GetEpoch() != "" {
		t.Errorf("live start: request %v", p)
	}
	ch.accept(state(7, "e", false))
	ch.accept(sent(8))
	if p := ch.request(); p.AfterSeq == nil || p.GetAfterSeq() != 8 || p.GetEpoch() != "e" {
		t.Errorf("after entry 8: request %v", p)
	}
	if p := newChannel(FromStart("c")).request(); p.AfterSeq == nil || p.GetAfterSeq() != 0 {
		t.Errorf("start from the beginning: request %v", p)
	}
}
