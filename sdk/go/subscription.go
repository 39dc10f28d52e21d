package parley

import (
	"context"
	"errors"
	"iter"
	"slices"
	"sync"

	parleyv1 "github.com/parleyhq/parley/gen/go/parley/v1"
)

// Start is a channel and the position in its log at which a subscription starts: Live, FromStart or
// After. It is a SubscribeOption.
type Start struct {
	position Position
	live     bool
}

// Live starts at the end of the log: only new events are delivered.
func Live(channelID string) Start { return Start{position: Position{ChannelID: channelID}, live: true} }

// FromStart starts with the oldest entry of the log.
func FromStart(channelID string) Start { return Start{position: Position{ChannelID: channelID}} }

// After starts with the entry after a stored position.
func After(p Position) Start { return Start{position: p} }

// SubscribeOption is a Start, or sets a property of a Subscription.
type SubscribeOption interface{ applyTo(cfg *subscribeConfig) }

type subscribeConfig struct {
	starts  []Start
	onState func(StateChange)
}

func (s Start) applyTo(cfg *subscribeConfig) { cfg.starts = append(cfg.starts, s) }

// StateOption is a SubscribeOption and a PresenceOption.
type StateOption func(StateChange)

func (f StateOption) applyTo(cfg *subscribeConfig) { cfg.onState = f }

func (f StateOption) applyToPresence(p *Presence) { p.onState = f }

// OnState sets a function that is called with each new state, in order. It must not block and must
// not call Close.
func OnState(f func(StateChange)) StateOption { return f }

// queuedFrames bounds the frames that wait for the program. A program that is slower than its
// channels fills this queue, then the connection's window. The server then ends the stream, and the
// subscription resumes.
const queuedFrames = 4

// Subscription is a stream of the events of many channels. It outlives its connections: it
// reconnects, resumes each channel from its position, and drops repeated events.
//
// Next and Events must be called by one goroutine at a time. All other methods are safe for
// concurrent use. Close it after use.
type Subscription struct {
	client  *Client
	cancel  context.CancelFunc
	onState func(StateChange)
	queue   chan []queued
	done    chan struct{}
	// changeLock is held during a change of the stream's channels, so that changes reach the server in
	// order.
	changeLock chan struct{}
	work       sync.WaitGroup

	// unread holds events that were received from the queue but not yet returned.
	unread []queued

	mu       sync.Mutex // guards the fields below
	channels map[string]*channel
	order    []string
	// stream is the current stream. It is nil between two streams.
	stream *stream
	state  State
	// wasLive is true once any stream has been live.
	wasLive bool
	closed  bool
	err     error
	// outdated is the token that RenewToken replaced last.
	outdated string
	// rider is the presence on the subscription's streams, or nil.
	rider *rider
	// over is true once no stream will be opened any more.
	over bool
}

// queued is an event with the channel that accepted it. The channel identifies events of a channel
// that has been removed since.
type queued struct {
	Event
	channel *channel
}

// Subscribe follows channels: Subscribe(ctx, Live("a"), FromStart("b"), After(stored)). It returns
// at once and connects in the background. The subscription ends with ctx; WithCallTimeout does not
// apply. One stream carries up to 500 channels.
//
// After a retryable failure it opens a new stream, after a wait or on another node. Any other
// failure ends the subscription, and Next returns it. ErrNotMember and ErrCapabilityMissing from
// the first stream are such failures; their Positions name the refused channels. Once the
// subscription has been live, refused channels are lost instead (see EventLost).
//
// A Presence of the client shares the stream. A program that does not take the events then delays
// the states of the presence, too, and can take the user offline: see Client.Presence.
func (c *Client) Subscribe(ctx context.Context, opts ...SubscribeOption) *Subscription {
	var cfg subscribeConfig
	for _, opt := range opts {
		opt.applyTo(&cfg)
	}
	ctx, cancel := context.WithCancel(ctx)
	s := &Subscription{
		client: c, cancel: cancel, onState: cfg.onState,
		queue: make(chan []queued, queuedFrames), done: make(chan struct{}), changeLock: make(chan struct{}, 1),
		channels: make(map[string]*channel),
	}
	var err error
	for _, start := range cfg.starts {
		err = errors.Join(err, checkText("channels", start.position.ChannelID, "channels", start.position.Epoch))
		s.insert(start)
	}
	go s.run(ctx, err)
	return s
}

// insert adds a channel that is new or was lost. It reports whether it added it.
func (s *Subscription) insert(start Start) bool {
	id := start.position.ChannelID
	known := s.channels[id]
	if known != nil && !known.lost {
		return false
	}
	s.delete(id)
	s.put(newChannel(start))
	s.channels[id].replaced = known
	return true
}

func (s *Subscription) put(ch *channel) {
	s.channels[ch.id] = ch
	s.order = append(s.order, ch.id)
}

func (s *Subscription) delete(id string) {
	delete(s.channels, id)
	s.order = slices.DeleteFunc(s.order, func(other string) bool { return other == id })
}

// Next blocks until the next event and returns it. If ctx ends first, it returns the error of ctx,
// and the subscription continues. When the subscription has ended, it returns ErrClosed, the error
// of the subscription's own context, or the *Error that ended it.
func (s *Subscription) Next(ctx context.Context) (Event, error) { return s.next(ctx.Done(), ctx.Err) }

// Events iterates over the events until the subscription ends. Unless Close ended it, the last
// element is its error. Leaving the loop does not close the subscription.
func (s *Subscription) Events() iter.Seq2[Event, error] {
	return func(yield func(Event, error) bool) {
		for {
			e, err := s.next(nil, nil)
			if errors.Is(err, ErrClosed) {
				return
			}
			if !yield(e, err) || err != nil {
				return
			}
		}
	}
}

func (s *Subscription) next(cancelled <-chan struct{}, cause func() error) (Event, error) {
	for {
		for len(s.unread) > 0 {
			q := s.unread[0]
			s.unread = s.unread[1:]
			if ok, err := s.markTaken(q); ok || err != nil {
				return q.Event, err
			}
		}
		select {
		case <-cancelled:
			return Event{}, cause()
		case frame, ok := <-s.queue:
			if !ok {
				return Event{}, s.Err()
			}
			s.unread = frame
		}
	}
}

// markTaken records that the program takes an event. It returns false if the event's channel has
// been removed since.
func (s *Subscription) markTaken(q queued) (bool, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return false, ErrClosed
	}
	current := s.channels[q.ChannelID]
	// The events of a lost channel are delivered until its replacement is confirmed.
	replacing := current != nil && current.tentative && current.replaced == q.channel
	if current != q.channel && !replacing {
		return false, nil
	}
	q.channel.markTaken(q.Event)
	switch {
	case q.Kind != EventLost:
	case replacing:
		current.replaced = nil
	default:
		s.delete(q.ChannelID)
	}
	return true, nil
}

// Position returns the position in a channel's log up to which Next and Events have returned
// events. Store it, and pass it to After later. It returns false for a channel that is not followed
// or was lost, and for one that starts live and has no state yet.
func (s *Subscription) Position(channelID string) (Position, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	ch := s.channels[channelID]
	if ch == nil {
		return Position{}, false
	}
	return ch.takenPos, ch.hasTaken
}

// State returns the subscription's state.
func (s *Subscription) State() State {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.state
}

// Err returns the error that ended the subscription, or nil if it has not ended.
func (s *Subscription) Err() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return ErrClosed
	}
	return s.err
}

// Close ends the subscription and waits until its goroutines have ended. It may be called more than
// once.
func (s *Subscription) Close() {
	s.mu.Lock()
	if s.state != StateEnded {
		s.closed = true
	}
	s.mu.Unlock()
	s.cancel()
	<-s.done
}

// setState records a new state and calls the OnState function, if there is one.
func (s *Subscription) setState(change StateChange) {
	s.mu.Lock()
	s.state = change.State
	s.mu.Unlock()
	if s.onState != nil {
		s.onState(change)
	}
}

// accept accepts a frame's events. sound is false if one of them shows that entries are missing.
func (s *Subscription) accept(events []*parleyv1.ChannelEvent) (frame []queued, sound bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for i := 0; i < len(events); i++ {
		ch := s.channels[events[i].GetChannelId()]
		if ch == nil {
			continue
		}
		e, verdict := ch.accept(events[i])
		switch verdict {
		case broken:
			s.client.log.Warn("stream skipped entries", "channel", ch.id, "after_seq", ch.seq, "got_seq", events[i].GetSeq())
			return frame, false
		case pass:
			frame = append(frame, queued{Event: e, channel: ch})
			if e.Kind == EventLost || e.Kind == EventTyping || e.Kind == EventDelta {
				continue
			}
			if e.Gap.GetReason() == parleyv1.GapReason_GAP_REASON_AHEAD_OF_LOG {
				s.client.heads.reset(Position{ChannelID: ch.id, Seq: e.Seq, Epoch: e.Epoch})
			} else {
				s.client.heads.observe(ch.id, e.Epoch, max(e.Seq, e.Channel.GetHeadSeq()))
			}
			if e.Kind == EventGap && events[i].GetGap() == nil {
				i-- // The gap replaces the skipped entries. The event itself now follows the gap.
			}
		case drop:
		}
	}
	return frame, true
}
