package messages

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/parleyhq/parley/chaos"
	parley "github.com/parleyhq/parley/sdk/go"
)

// follower is a subscriber that must catch up with all logs at the end of a run.
type follower interface {
	String() string
	// behind returns a channel whose position is before its head in heads, or nil if there is none.
	behind(heads map[string]int64) *Late
}

// positions are a subscriber's positions in the logs (at) and the ids of its lives (id), by
// channel. Safe for concurrent use.
type positions struct {
	mu sync.Mutex // guards the fields below
	at map[string]int64
	id map[string]int64
}

func (p *positions) begin(channel string, life int64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.at == nil {
		p.at, p.id = make(map[string]int64), make(map[string]int64)
	}
	p.at[channel], p.id[channel] = unset, life
}

func (p *positions) end(channel string) (life int64, ok bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	life, ok = p.id[channel]
	delete(p.at, channel)
	delete(p.id, channel)
	return life, ok
}

// move records an event's seq and returns the id of the life that the event belongs to. ok is false
// if the subscriber does not follow the channel.
func (p *positions) move(channel string, seq int64) (life int64, ok bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if life, ok = p.id[channel]; ok {
		p.at[channel] = max(p.at[channel], seq)
	}
	return life, ok
}

func (p *positions) behind(heads map[string]int64) *Late {
	p.mu.Lock()
	defer p.mu.Unlock()
	for channel, at := range p.at {
		if at < heads[channel] {
			return &Late{Channel: channel, Seq: at, Head: heads[channel]}
		}
	}
	return nil
}

// subscriber follows channels through the SDK, which resumes after a lost stream on its own.
type subscriber struct {
	*world
	positions

	name, addr string
	client     *parley.Client
	sub        *parley.Subscription
	rng        *rand.Rand
}

// newSubscriber creates a subscriber without channels.
func (w *world) newSubscriber(ctx context.Context, seed uint64, name, addr string) (*subscriber, error) {
	client, err := parley.New(addr, parley.WithToken(w.token(name)))
	if err != nil {
		return nil, err
	}
	return &subscriber{
		world: w, name: name, addr: addr, client: client, rng: chaos.Source(seed, name), sub: client.Subscribe(ctx),
	}, nil
}

// String returns the subscriber's name.
func (s *subscriber) String() string { return s.name }

// follow adds a channel from a position. unset means live events only.
func (s *subscriber) follow(ctx context.Context, channel string, after int64, final bool) error {
	life := s.rec.Life(Life{
		Client: s.name, Addr: s.addr, Channel: channel, Begin: s.rec.Now(), After: after, Final: final, SDK: true,
	})
	s.begin(channel, life)
	start := parley.Live(channel)
	if after != unset {
		start = parley.After(parley.Position{ChannelID: channel, Seq: after})
	}
	ctx, cancel := context.WithTimeout(ctx, writeLimit)
	defer cancel()
	err := s.sub.Add(ctx, start)
	if err != nil {
		s.leave(channel)
	}
	return err
}

// leave records that the subscriber stopped following a channel.
func (s *subscriber) leave(channel string) {
	if life, ok := s.end(channel); ok {
		s.rec.EndLife(life)
	}
}

// run records events until the subscription ends. It returns nil if the subscription was closed or
// its context canceled, and the subscription's error otherwise. It closes the client.
func (s *subscriber) run(ctx context.Context) error {
	defer s.client.Close()
	for {
		e, err := s.sub.Next(ctx)
		if err != nil {
			if errors.Is(err, context.Canceled) || errors.Is(err, parley.ErrClosed) {
				return nil
			}
			return err
		}
		s.take(e)
	}
}

func (s *subscriber) take(e parley.Event) {
	at := s.rec.Now()
	life, ok := s.move(e.ChannelID, e.Seq)
	if !ok {
		return // removed while the event was in flight
	}
	d := Delivery{Life: life, At: at, Seq: e.Seq, From: e.FromSeq, Copy: unset, Epoch: e.Epoch}
	switch e.Kind {
	case parley.EventSent:
		d.Event = EventSent
	case parley.EventEdited:
		d.Event = EventEdited
	case parley.EventRecalled:
		d.Event = EventRecalled
	case parley.EventClosed:
		d.Event = EventClosed
	case parley.EventDelta:
		d.Event, d.MsgID, d.Offset, d.Text = EventDelta, e.Delta.GetMsgId(), int(e.Delta.GetOffset()), e.Delta.GetText()
	case parley.EventChannelState:
		d.Event, d.Head, d.Count = EventState, e.Channel.GetHeadSeq(), e.Channel.GetCount()
		d.Recovered, d.Oldest, d.Expired = e.Channel.GetRecovered(), e.Channel.GetOldestSeq(), e.Channel.GetExpiredCount()
	case parley.EventGap:
		d.Event, d.Note = EventGap, e.Gap.String()
	case parley.EventLost:
		d.Event = EventLost
	default:
		return
	}
	if e.Message != nil {
		d.Epoch = ""
		d.Copy = s.note(e.Message)
	}
	s.told.raise(e.ChannelID, e.Seq)
	s.rec.Deliver(d)
}

// joinAndLeave joins and leaves cold channels until ctx ends. It joins live only, from the
// beginning or from the middle of the log.
func (s *subscriber) joinAndLeave(ctx context.Context) {
	joined := make(map[string]bool)
	left := make(map[string]time.Time)
	for chaos.Pause(ctx, s.rng, 300*time.Millisecond) {
		channel := s.channels[s.rng.IntN(len(s.channels))]
		if s.rng.IntN(3) == 0 {
			channel = s.sessions[s.rng.IntN(len(s.sessions))]
		}
		switch {
		case joined[channel]:
			delete(joined, channel)
			left[channel] = time.Now()
			s.leave(channel)
			callCtx, cancel := context.WithTimeout(ctx, writeLimit)
			_ = s.sub.Remove(callCtx, channel) // an error ends the subscription, and run returns it
			cancel()
		case time.Since(left[channel]) > 2*time.Second:
			after := int64(unset)
			switch s.rng.IntN(3) {
			case 0:
				after = 0
			case 1:
				after = s.told.get(channel) / 2
			}
			joined[channel] = s.follow(ctx, channel, after, false) == nil
		}
	}
}

// shortSubscribers runs short-lived subscribers, one after another, until ctx ends. Each reads a
// few channels from their beginning up to the heads known when it starts.
func (w *world) shortSubscribers(ctx context.Context, seed uint64, name string) error {
	rng := chaos.Source(seed, name)
	for chaos.Pause(ctx, rng, 1500*time.Millisecond) {
		addr := w.addrs[rng.IntN(len(w.addrs))]
		channels := []string{w.channels[rng.IntN(len(w.channels))], w.channels[rng.IntN(len(w.channels))]}
		if rng.IntN(2) == 0 {
			channels = append(channels, hot, w.sessions[rng.IntN(len(w.sessions))])
		}
		if err := w.readToHead(ctx, seed, name, addr, channels); err != nil {
			return err
		}
	}
	return nil
}

func (w *world) readToHead(ctx context.Context, seed uint64, name, addr string, channels []string) error {
	ctx, cancel := context.WithTimeout(ctx, 20*time.Second)
	defer cancel()
	s, err := w.newSubscriber(ctx, seed, name, addr)
	if err != nil {
		return err
	}
	heads := make(map[string]int64)
	for _, channel := range channels {
		if _, ok := heads[channel]; ok {
			continue
		}
		heads[channel] = w.told.get(channel)
		if err := s.follow(ctx, channel, 0, false); err != nil && ctx.Err() == nil {
			return err
		}
	}
	done := make(chan error, 1)
	go func() { done <- s.run(ctx) }()
	for level := false; !level && chaos.Sleep(ctx, 20*time.Millisecond); {
		level = s.behind(heads) == nil
	}
	for channel := range heads {
		s.leave(channel)
	}
	s.sub.Close()
	if err := <-done; err != nil && !errors.Is(err, context.DeadlineExceeded) {
		return err
	}
	return nil
}
