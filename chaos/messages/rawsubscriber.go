package messages

import (
	"context"
	"math/rand/v2"
	"time"

	"github.com/parleyhq/parley/chaos"
	parleyv1 "github.com/parleyhq/parley/gen/go/parley/v1"
)

// rawSubscriber follows channels on one node with the generated client. It records every event of
// every stream as the server sent it. The SDK would hide a stream that skips or repeats events.
type rawSubscriber struct {
	*world
	positions

	name, addr string
	client     *raw
	follows    []string
	from       map[string]int64 // the position at which the next stream starts
	// user is the guest that owns the stream, or "" for others. streams receives the id of each
	// stream unless it is nil.
	user    string
	streams chan string
	// pauses is the random source of a subscriber that stops reading for seconds again and again, and
	// nil for others.
	pauses *rand.Rand
	// hops is the time after which the subscriber leaves a stream and resumes on another one, while
	// hopping returns true. Zero means that it stays.
	hops    time.Duration
	hopping func() bool
}

// deadAfter is how long a stream may be silent before it is closed. Runs set the heartbeat to a
// second.
const deadAfter = 5 * time.Second

func (w *world) newRawSubscriber(name, addr string, after int64, channels []string) *rawSubscriber {
	s := &rawSubscriber{
		world: w, name: name, addr: addr, client: newRaw(addr, w.token(name)), follows: channels,
		from: make(map[string]int64),
	}
	for _, channel := range channels {
		s.from[channel] = after
	}
	return s
}

// String returns the subscriber's name.
func (s *rawSubscriber) String() string { return s.name }

// run opens one stream after another until ctx ends.
func (s *rawSubscriber) run(ctx context.Context) {
	defer s.client.Close()
	for ctx.Err() == nil {
		s.stream(ctx)
		if ctx.Err() != nil && s.pauses == nil {
			return // lives that lag now have no end, so Check reports them
		}
		for _, channel := range s.follows {
			if life, ok := s.end(channel); ok {
				s.rec.EndLife(life)
			}
		}
		chaos.Sleep(ctx, 200*time.Millisecond)
	}
}

func (s *rawSubscriber) stream(ctx context.Context) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	if s.hops > 0 && s.hopping() {
		defer time.AfterFunc(s.hops, cancel).Stop()
	}
	req := new(parleyv1.SubscribeRequest)
	for _, channel := range s.follows {
		p := &parleyv1.ChannelPosition{ChannelId: channel}
		after := s.from[channel]
		if after != unset {
			p.AfterSeq = new(after)
		}
		req.Channels = append(req.Channels, p)
		s.begin(channel, s.rec.Life(Life{
			Client: s.name, Addr: s.addr, Channel: channel, Begin: s.rec.Now(), After: after, Slow: s.pauses != nil,
		}))
	}
	s.client.follow(ctx, req, func(watch *time.Timer, res *parleyv1.SubscribeResponse) bool {
		s.pause(ctx, watch)
		at := s.rec.Now()
		if id := res.GetInfo().GetStreamId(); id != "" && s.streams != nil {
			s.streams <- id
		}
		for _, e := range res.GetEvents().GetEvents() {
			s.take(at, e)
		}
		return true
	})
}

// follow passes the messages of a stream to take, until that returns false, the stream ends, or
// nothing has come for deadAfter. take may stop and reset the timer that ends a silent stream.
func (r *raw) follow(
	ctx context.Context, req *parleyv1.SubscribeRequest, take func(watch *time.Timer, res *parleyv1.SubscribeResponse) bool,
) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	watch := time.AfterFunc(deadAfter, cancel)
	defer watch.Stop()
	stream, err := r.Subscribe(r.Authorize(ctx), req)
	if err != nil {
		return
	}
	defer func() {
		cancel()
		_ = stream.Close()
	}()
	for stream.Receive() && take(watch, stream.Msg()) {
		watch.Reset(deadAfter)
	}
}

// pause does not read for some seconds, in one of 20 calls. Afterwards the stream has the rest of
// deadAfter to bring what the server kept.
func (s *rawSubscriber) pause(ctx context.Context, watch *time.Timer) {
	if s.pauses == nil || s.pauses.IntN(20) > 0 {
		return
	}
	watch.Stop()
	chaos.Sleep(ctx, time.Second+time.Duration(s.pauses.Int64N(int64(4*time.Second))))
}

func (s *rawSubscriber) take(at int64, e *parleyv1.ChannelEvent) {
	channel := e.GetChannelId()
	d := Delivery{At: at, Seq: e.GetSeq(), From: e.GetFromSeq(), Copy: unset}
	var m *parleyv1.ChannelMessage
	switch kind := e.GetEvent().(type) {
	case *parleyv1.ChannelEvent_Sent:
		d.Event, m = EventSent, kind.Sent
	case *parleyv1.ChannelEvent_Edited:
		d.Event, m = EventEdited, kind.Edited
	case *parleyv1.ChannelEvent_Recalled:
		d.Event, m = EventRecalled, kind.Recalled
	case *parleyv1.ChannelEvent_Closed:
		d.Event, m = EventClosed, kind.Closed
	case *parleyv1.ChannelEvent_Delta:
		d.Event, d.MsgID, d.Offset, d.Text = EventDelta, kind.Delta.GetMsgId(), int(kind.Delta.GetOffset()), kind.Delta.GetText()
	case *parleyv1.ChannelEvent_State:
		d.Event, d.Head, d.Count, d.Epoch = EventState, kind.State.GetHeadSeq(), kind.State.GetCount(), kind.State.GetEpoch()
		d.Recovered, d.Oldest, d.Expired = kind.State.GetRecovered(), kind.State.GetOldestSeq(), kind.State.GetExpiredCount()
	case *parleyv1.ChannelEvent_Gap:
		d.Event, d.Note = EventGap, kind.Gap.String()
	case *parleyv1.ChannelEvent_Lost:
		d.Event = EventLost
	case nil:
		if d.From == 0 {
			return // of a kind that this client does not know
		}
		d.Event = EventPassed
	default:
		return
	}
	life, ok := s.move(channel, e.GetSeq())
	if !ok {
		life = s.rec.Life(Life{Client: s.name, Addr: s.addr, Channel: channel, Begin: at, After: unset, End: at, User: s.user})
	}
	d.Life = life
	if m != nil {
		d.Copy = s.note(m)
	}
	s.from[channel] = max(s.from[channel], e.GetSeq())
	s.told.raise(channel, e.GetSeq())
	s.rec.Deliver(d)
	if d.Event == EventLost {
		if life, ok := s.end(channel); ok {
			s.rec.EndLife(life)
		}
	}
}
