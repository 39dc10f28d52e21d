package main

import (
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"strings"
	"sync"
	"time"

	parleyv1 "github.com/parleyhq/parley/gen/go/parley/v1"
	"github.com/parleyhq/parley/hack/internal/verdict"
	parley "github.com/parleyhq/parley/sdk/go"
)

// clockSlack is by how much the time of a message may be ahead of this machine's clock: a server
// tolerates half a second between its clock and the store's.
const clockSlack = 1500 * time.Millisecond

// copied is a message as a reader or a subscriber got it. It is compared when the journal is
// complete.
type copied struct {
	line         int32
	seq, changed int32
	hash         uint32
	status       parleyv1.MessageStatus
}

func hashOf(text string) uint32 {
	h := fnv.New32a()
	_, _ = h.Write([]byte(text))
	return h.Sum32()
}

// copyOf returns the copy of a message. It reports what can be known to be wrong at once.
func (j *journal) copyOf(by string, m *parley.Message) copied {
	i, ok := j.find(m.GetClientMsgId())
	if !ok {
		j.Wrongf("%s got a message that was not sent: %v", by, m)
		return copied{line: noLine}
	}
	if ahead := time.Until(m.GetMsgTime().AsTime()); ahead > clockSlack {
		j.Wrongf("%s got %s with a time that is %.1f s in the future", by, m.GetClientMsgId(), ahead.Seconds())
	}
	return copied{i, int32(m.GetSeq()), int32(m.GetChangedSeq()), hashOf(m.GetContent()), m.GetStatus()} //nolint:gosec // far fewer entries
}

// delivered is an event of a subscriber: the entries from first to seq, of which the last made or
// changed a message. The server may cover the others by events without a message, which the SDK
// does not show; those entries are checked in the end.
type delivered struct {
	first, seq int32
	kind       parley.EventKind
	copied
}

// gap is a range of entries without events: of gaps, those of which a subscriber was told that they
// are gone.
type gap struct{ after, to int64 }

// follower is what a subscriber got of one channel.
type follower struct {
	pos    int64 // the entry up to which it has everything
	events []delivered
	gaps   []gap
	// covered are ranges at whose ends the subscription was, without an event of their own.
	covered []gap
}

// subscriber follows all channels.
type subscriber struct {
	*journal

	name string
	// moves is how often the subscriber starts again at another node, from its positions; 0 is never.
	moves time.Duration
	addrs []string
	dial  func(addrs string) (*parley.Client, error)

	mu       sync.Mutex // guards the fields below
	channels []follower
	epoch    string
	streams  int           // that were live
	paused   chan struct{} // not nil while the subscriber takes no events; closed when it does again
}

// watch runs the subscriber until ctx ends.
func (s *subscriber) watch(ctx context.Context) {
	for n := 0; ctx.Err() == nil; n++ {
		addrs := strings.Join(s.addrs, ",")
		life, cancel := context.WithCancel(ctx)
		if s.moves > 0 {
			addrs = s.addrs[n%len(s.addrs)]
			life, cancel = context.WithTimeout(ctx, s.moves)
		}
		err := s.follow(life, addrs)
		cancel()
		if ctx.Err() == nil && !errors.Is(err, context.DeadlineExceeded) {
			s.Wrongf("%s: its subscription ended: %v", s.name, err)
			return
		}
	}
}

// follow takes the events of one subscription until ctx ends.
func (s *subscriber) follow(ctx context.Context, addrs string) error {
	client, err := s.dial(addrs)
	if err != nil {
		return err
	}
	defer client.Close()
	opts := []parley.SubscribeOption{parley.OnState(func(c parley.StateChange) {
		if c.State == parley.StateLive {
			s.mu.Lock()
			defer s.mu.Unlock()
			s.streams++
		}
	})}
	s.mu.Lock()
	for c, name := range s.days.channels {
		opts = append(opts, parley.After(parley.Position{ChannelID: name, Seq: s.channels[c].pos, Epoch: s.epoch}))
	}
	s.mu.Unlock()
	sub := client.Subscribe(ctx, opts...)
	defer sub.Close()
	for {
		e, err := sub.Next(ctx)
		if err != nil {
			return err
		}
		if err := s.wait(ctx); err != nil {
			return err
		}
		s.take(&e)
	}
}

// wait blocks while the subscriber is paused.
func (s *subscriber) wait(ctx context.Context) error {
	s.mu.Lock()
	paused := s.paused
	s.mu.Unlock()
	if paused == nil {
		return nil
	}
	select {
	case <-paused:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// pause makes the subscriber take no events until resume is called.
func (s *subscriber) pause() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.paused = make(chan struct{})
}

func (s *subscriber) resume() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.paused != nil {
		close(s.paused)
		s.paused = nil
	}
}

// take records an event. An entry that arrives again, or a wrong gap, is reported at once.
func (s *subscriber) take(e *parley.Event) {
	c := -1
	for i, name := range s.days.channels {
		if name == e.ChannelID {
			c = i
		}
	}
	if c < 0 {
		s.Wrongf("%s got an event of %s", s.name, e.ChannelID)
		return
	}
	s.mu.Lock()
	f := &s.channels[c]
	pos := f.pos
	s.mu.Unlock()
	problem := ""
	var d delivered
	switch e.Kind {
	case parley.EventSent, parley.EventEdited, parley.EventRecalled:
		if e.Seq <= pos {
			problem = fmt.Sprintf("entry %d after %d", e.Seq, pos)
		}
		d = delivered{int32(pos + 1), int32(e.Seq), e.Kind, s.copyOf(s.name, e.Message)} //nolint:gosec // far fewer entries
	case parley.EventGap:
		if e.Gap.GetReason() != parleyv1.GapReason_GAP_REASON_HISTORY_GONE || e.Gap.GetAfterSeq() < pos || e.Seq <= e.Gap.GetAfterSeq() {
			problem = fmt.Sprintf("a gap after %d: %v", pos, e.Gap)
		}
	case parley.EventChannelState:
		if e.Seq < pos {
			problem = fmt.Sprintf("a state at %d after %d", e.Seq, pos)
		}
	case parley.EventLost, parley.EventTyping, parley.EventClosed, parley.EventDelta:
		problem = "an event of kind " + e.Kind.String()
	}
	if problem != "" {
		s.Wrongf("%s, %s: %s", s.name, e.ChannelID, problem)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.epoch = e.Epoch
	switch e.Kind {
	case parley.EventSent, parley.EventEdited, parley.EventRecalled:
		f.events = append(f.events, d)
		f.pos = e.Seq
	case parley.EventGap:
		f.cover(e.Gap.GetAfterSeq())
		f.gaps = append(f.gaps, gap{f.pos, e.Seq})
		f.pos = e.Seq
	case parley.EventChannelState:
		if e.Channel.GetRecovered() { // else a gap follows
			f.cover(e.Seq)
		}
	case parley.EventLost, parley.EventTyping, parley.EventClosed, parley.EventDelta:
	}
}

// cover moves the position to that of the SDK, which is further on if events without a message
// came.
func (f *follower) cover(to int64) {
	if to > f.pos {
		f.covered = append(f.covered, gap{f.pos, to})
		f.pos = to
	}
}

// figures returns how many streams were live, how many events arrived, and how many gaps.
func (s *subscriber) figures() (streams, events, gaps int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for i := range s.channels {
		events += len(s.channels[i].events)
		gaps += len(s.channels[i].gaps)
	}
	return s.streams, events, gaps
}

// reached returns the entry up to which the subscriber has a channel.
func (s *subscriber) reached(channel int) int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.channels[channel].pos
}

// audience is all subscribers.
type audience struct {
	*journal

	all    []*subscriber
	slow   *subscriber
	watch  func(s *subscriber) // runs a subscriber until cancel is called
	cancel context.CancelFunc
	done   sync.WaitGroup
}

// moveEvery is the time between two reconnects of the subscriber that moves between the nodes.
const moveEvery = 7 * time.Second

// newAudience starts a subscriber that stays on each node, one that moves from node to node, and
// one that can be paused.
func newAudience(ctx context.Context, j *journal, c *clients) *audience {
	a := &audience{journal: j}
	ctx, a.cancel = context.WithCancel(ctx)
	a.watch = func(s *subscriber) { s.watch(ctx) }
	addrs := c.fleet.Addresses()
	for n, addr := range addrs {
		a.add(&subscriber{name: fmt.Sprintf("the subscriber of node %d", n), addrs: []string{addr}, dial: c.dial})
	}
	a.add(&subscriber{name: "the subscriber that moves", addrs: addrs, moves: moveEvery, dial: c.dial})
	a.slow = &subscriber{name: "the slow subscriber", addrs: addrs, dial: c.dial}
	a.add(a.slow)
	return a
}

// add starts a subscriber from the beginning of all channels.
func (a *audience) add(s *subscriber) {
	s.journal, s.channels = a.journal, make([]follower, len(a.days.channels))
	a.all = append(a.all, s)
	a.done.Go(func() { a.watch(s) })
}

func (a *audience) close() {
	a.slow.resume()
	a.cancel()
	a.done.Wait()
}

// complete waits until every subscriber has reached the ends of the logs.
func (a *audience) complete(ctx context.Context) error {
	for {
		waiting := ""
		for _, s := range a.all {
			for c, name := range a.days.channels {
				if got, want := s.reached(c), a.head(c); got < want {
					waiting = fmt.Sprintf("%s has %s up to %d of %d", s.name, name, got, want)
				}
			}
		}
		if waiting == "" {
			return nil
		}
		if err := verdict.Sleep(ctx, 50*time.Millisecond); err != nil {
			return fmt.Errorf("%w: %s", context.Cause(ctx), waiting)
		}
	}
}

// head returns the last entry of a channel that was acknowledged.
func (j *journal) head(channel int) int64 {
	j.mu.Lock()
	defer j.mu.Unlock()
	return int64(max(0, len(j.logs[channel])-1))
}
