package feed_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/parleyhq/parley/server/internal/channel"
	"github.com/parleyhq/parley/server/internal/feed"
	"github.com/parleyhq/parley/server/internal/lifecycle/lifecycletest"
	"github.com/parleyhq/parley/server/internal/message"
	"github.com/parleyhq/parley/server/internal/testkit"
)

// ownership is a feed.Owner that owns all shards or none, as a test sets it.
type ownership struct {
	mu      sync.Mutex // guards the fields below
	owned   bool
	changed chan struct{}
}

func newOwnership(owned bool) *ownership {
	return &ownership{owned: owned, changed: make(chan struct{})}
}

func (o *ownership) Owns(int) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.owned
}

func (o *ownership) Changed() <-chan struct{} {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.changed
}

func (o *ownership) set(owned bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.owned = owned
	close(o.changed)
	o.changed = make(chan struct{})
}

// published collects the seqs that several feeders publish, by the feeder's name.
type published struct {
	mu   sync.Mutex
	seqs map[string][]int64 // guarded by mu
}

func (p *published) by(name string) publisherFunc {
	return func(_ context.Context, events []message.Event) error {
		p.mu.Lock()
		defer p.mu.Unlock()
		for i := range events {
			p.seqs[name] = append(p.seqs[name], events[i].Seq)
		}
		return nil
	}
}

func (p *published) last(name string) int64 {
	p.mu.Lock()
	defer p.mu.Unlock()
	if seqs := p.seqs[name]; len(seqs) > 0 {
		return seqs[len(seqs)-1]
	}
	return 0
}

type publisherFunc func(ctx context.Context, events []message.Event) error

func (f publisherFunc) Publish(ctx context.Context, events []message.Event) error {
	return f(ctx, events)
}

func sendMany(r *rig, channelID string, n int) message.Entry {
	var last message.Entry
	for range n {
		last = r.send(channelID, "text")
	}
	return last
}

// countedFeeds is a store that counts its open feeds.
type countedFeeds struct {
	feed.FeederStore
	open atomic.Int64
}

func (c *countedFeeds) OpenFeed(ctx context.Context, shard int) (message.Feed, error) {
	f, err := c.FeederStore.OpenFeed(ctx, shard)
	if err == nil {
		c.open.Add(1)
		f = &countedFeed{f, c}
	}
	return f, err
}

type countedFeed struct {
	message.Feed
	of *countedFeeds
}

func (f *countedFeed) Close(ctx context.Context) error {
	defer f.of.open.Add(-1)
	return f.Feed.Close(ctx)
}

// While a shard moves from one node to another and back, only the feeder of its owner publishes,
// and every entry is published.
func TestOnlyTheOwnerFeeds(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	got := published{seqs: map[string][]int64{}}
	a, b := newOwnership(true), newOwnership(false)
	stores := map[string]*countedFeeds{"a": {FeederStore: r.store}, "b": {FeederStore: r.store}}
	for name, o := range map[string]*ownership{"a": a, "b": b} {
		f, err := feed.NewFeeder(feed.FeederConfig{Store: stores[name], Publisher: got.by(name), Owner: o, Logger: quiet})
		if err != nil {
			t.Fatal(err)
		}
		lifecycletest.Start(t, f)
	}
	stops := func(name string) {
		t.Helper()
		testkit.Eventually(t, patience, func() error {
			if n := stores[name].open.Load(); n != 0 {
				return fmt.Errorf("%s has %d open feeds", name, n)
			}
			return nil
		})
	}
	reaches := func(name string, seq int64) {
		t.Helper()
		testkit.Eventually(t, patience, func() error {
			if last := got.last(name); last != seq {
				return errors.New(cmp.Diff(seq, last))
			}
			return nil
		})
	}
	sendMany(r, "room", 5)
	reaches("a", 5)
	a.set(false)
	stops("a")
	sendMany(r, "room", 5) // while no node owns the shard, its entries wait
	b.set(true)
	reaches("b", 10)
	b.set(false)
	stops("b")
	a.set(true)
	sendMany(r, "room", 1)
	reaches("a", 11)

	got.mu.Lock()
	defer got.mu.Unlock()
	if last := got.seqs["b"][len(got.seqs["b"])-1]; last != 10 {
		t.Errorf("the one who lost the shard published %d", last)
	}
	seen := map[int64]bool{}
	for _, seqs := range got.seqs {
		for _, seq := range seqs {
			seen[seq] = true
		}
	}
	for seq := int64(1); seq <= 11; seq++ {
		if !seen[seq] {
			t.Errorf("%d was published by nobody", seq)
		}
	}
}

// lastEvent is a feed.History whose newest event of every shard is this one.
type lastEvent message.Event

func (l *lastEvent) LastPublished(context.Context, int) (message.Event, bool, error) {
	return message.Event(*l), true, nil
}

func TestRolledBackLogReplacesEpoch(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name     string
		seq      int64
		epoch    string // empty means the store's own
		replaced bool
	}{
		{name: "level", seq: 3},
		{name: "behind what was published", seq: 4, replaced: true},
		{name: "another epoch's", seq: 4, epoch: "old"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t)
			sendMany(r, "room", 3)
			was := r.store.Identity().Epoch
			last := &lastEvent{Epoch: was, Seq: c.seq, Message: message.Message{ChannelID: "room"}}
			if c.epoch != "" {
				last.Epoch = c.epoch
			}
			got := published{seqs: map[string][]int64{}}
			f, err := feed.NewFeeder(feed.FeederConfig{
				Store: r.store, Publisher: got.by("a"), History: last, Logger: quiet,
			})
			if err != nil {
				t.Fatal(err)
			}
			lifecycletest.Start(t, f)
			testkit.Eventually(t, patience, func() error {
				now, err := r.store.StoredEpoch(t.Context())
				switch {
				case err != nil:
					return err
				case c.replaced && now == was:
					return errors.New("the epoch is still the old one")
				case !c.replaced && got.last("a") != 3:
					return errors.New("nothing was published")
				}
				return nil
			})
			if now, err := r.store.StoredEpoch(t.Context()); err != nil || (now != was) != c.replaced {
				t.Errorf("the epoch is %s after %s, error %v", now, was, err)
			}
		})
	}
}

// rowRecorder is a feed.Rows that fails its first calls, and merges the moves of later ones by
// channel.
type rowRecorder struct {
	mu    sync.Mutex
	rows  map[string]channel.Advance // guarded by mu
	calls int                        // guarded by mu
	fail  int                        // guarded by mu; how many of the next calls fail
}

func (r *rowRecorder) Advance(_ context.Context, moves []channel.Advance, _ time.Time) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.calls++
	if r.fail > 0 {
		r.fail--
		return errors.New("scripted")
	}
	for _, m := range moves {
		was := r.rows[m.ChannelID]
		senders := map[string]channel.Cursor{}
		for _, from := range []map[string]channel.Cursor{was.Senders, m.Senders} {
			for id, c := range from {
				if c.Seq > senders[id].Seq {
					senders[id] = c
				}
			}
		}
		m.Head, m.Count = max(m.Head, was.Head), max(m.Count, was.Count)
		m.LastMessage, m.Senders = max(m.LastMessage, was.LastMessage), senders
		r.rows[m.ChannelID] = m
	}
	return nil
}

func TestRowsFollowTheLog(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	rows := &rowRecorder{rows: map[string]channel.Advance{}, fail: 2}
	a := feed.NewAdvancer(feed.AdvancerConfig{
		Source: r.bus.Group("channel_group", 1024), Rows: rows, Identity: r.store.Identity(), Logger: quiet,
	})
	lifecycletest.Start(t, a)
	r.start()
	last := sendMany(r, "room", 40)
	sendMany(r, "hall", 2)
	r.edit(last, "changed") // entry 41
	testkit.Eventually(t, patience, func() error {
		rows.mu.Lock()
		defer rows.mu.Unlock()
		room, hall := rows.rows["room"], rows.rows["hall"]
		if room.Head != 41 || hall.Head != 2 {
			return errors.New("not there yet")
		}
		if diff := cmp.Diff(channel.Numbers{Head: 41, Count: 40, LastMessage: 40}, room.Numbers); diff != "" {
			t.Error(diff)
		}
		for _, c := range room.Senders { // an edit moves no cursor
			if c != (channel.Cursor{Seq: 40, Count: 40}) {
				t.Errorf("a sender's cursor is %+v", c)
			}
		}
		return nil
	})
}

// forgetful is a Publisher that keeps the seqs of the events in memory. A test clears them, as if
// all servers of the change stream were killed at once.
type forgetful struct {
	mu   sync.Mutex
	seqs []int64 // guarded by mu
}

func (f *forgetful) Publish(_ context.Context, events []message.Event) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	for i := range events {
		f.seqs = append(f.seqs, events[i].Seq)
	}
	return nil
}

func (f *forgetful) holds(want int) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if len(f.seqs) != want {
		return fmt.Errorf("%d events, want %d", len(f.seqs), want)
	}
	return nil
}

func TestRepublishAfterStreamLoss(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	stream := &forgetful{}
	r.newFeeder(r.store, stream)
	lifecycletest.Start(t, r.feeder)
	sendMany(r, "room", 5)
	testkit.Eventually(t, patience, func() error { return stream.holds(5) })
	stream.mu.Lock()
	stream.seqs = nil
	stream.mu.Unlock()
	r.feeder.Republish()
	testkit.Eventually(t, patience, func() error { return stream.holds(5) })
}
