package feed_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/parleyhq/parley/server/internal/feed"
	"github.com/parleyhq/parley/server/internal/lifecycle/lifecycletest"
	"github.com/parleyhq/parley/server/internal/message"
	"github.com/parleyhq/parley/server/internal/testkit"
)

// fakePublisher records the published events. It calls before, unless nil, ahead of each attempt
// with its number from 1, and fails with its error.
type fakePublisher struct {
	before func(attempt int) error

	mu       sync.Mutex // guards the fields below
	attempts int
	events   []message.Event
}

func (p *fakePublisher) Publish(_ context.Context, events []message.Event) error {
	p.mu.Lock()
	p.attempts++
	attempt := p.attempts
	p.mu.Unlock()
	if p.before != nil {
		if err := p.before(attempt); err != nil {
			return err
		}
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.events = append(p.events, events...)
	return nil
}

func (p *fakePublisher) all() []message.Event {
	p.mu.Lock()
	defer p.mu.Unlock()
	return append([]message.Event(nil), p.events...)
}

func (p *fakePublisher) wait(t testing.TB, n int) []message.Event {
	t.Helper()
	testkit.Eventually(t, patience, func() error {
		if got := len(p.all()); got < n {
			return errors.New("too few events")
		}
		return nil
	})
	return p.all()
}

// backlog returns nil if want entries of the channel's shard are not confirmed as published.
func (r *rig) backlog(channelID string, want int) error {
	source, err := r.store.OpenFeed(r.t.Context(), message.Shard(channelID, shards))
	if err != nil {
		return err
	}
	defer source.Close(r.t.Context())
	ctx, cancel := context.WithTimeout(r.t.Context(), 200*time.Millisecond)
	defer cancel()
	entries, err := source.Next(ctx, 256)
	if err != nil && !errors.Is(err, context.DeadlineExceeded) {
		return err
	}
	if len(entries) != want {
		return fmt.Errorf("%d entries are to be published, want %d", len(entries), want)
	}
	return nil
}

// waitConfirmed restarts and stops the feeder until it has confirmed all entries of the channel's
// shard. A stop may come just before a confirmation, and a confirmation takes effect only with the
// next entry.
func (r *rig) waitConfirmed(channelID string) {
	r.t.Helper()
	testkit.Eventually(r.t, patience, func() error {
		r.restartFeeder()
		<-time.After(20 * time.Millisecond)
		lifecycletest.Stop(r.t, r.feeder)
		r.send(otherShard(channelID), "x")
		return r.backlog(channelID, 0)
	})
}

func TestNothingIsConfirmedBeforeItIsPublished(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	tried := make(chan struct{}, 100)
	publisher := &fakePublisher{before: func(int) error {
		tried <- struct{}{}
		return errProvoked
	}}
	r.newFeeder(r.store, publisher)
	r.send("room", "1")
	lifecycletest.Start(t, r.feeder)
	<-tried
	<-tried
	lifecycletest.Stop(t, r.feeder)
	r.send(otherShard("room"), "x") // a wrong confirmation would take effect with this entry
	if err := r.backlog("room", 1); err != nil {
		t.Fatal(err)
	}

	publisher.before = nil
	r.restartFeeder()
	publisher.wait(t, 1)
	r.waitConfirmed("room")
}

// unconfirmedLog is a store whose feeds fail the next left calls of Published, as if the process
// had crashed before.
type unconfirmedLog struct {
	feed.FeederStore
	mu   sync.Mutex // guards left
	left int
}

func (u *unconfirmedLog) OpenFeed(ctx context.Context, shard int) (message.Feed, error) {
	source, err := u.FeederStore.OpenFeed(ctx, shard)
	return &unconfirmedFeed{source, u}, err
}

type unconfirmedFeed struct {
	message.Feed
	log *unconfirmedLog
}

func (f *unconfirmedFeed) Published(ctx context.Context) error {
	f.log.mu.Lock()
	defer f.log.mu.Unlock()
	if f.log.left > 0 {
		f.log.left--
		return errProvoked
	}
	return f.Feed.Published(ctx)
}

func TestCrashBetweenPublishAndConfirmationOnlyRepeats(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.newFeeder(&unconfirmedLog{FeederStore: r.store, left: 3}, r.bus)
	l := r.listen("room")
	for range 5 {
		r.send("room", "x")
	}
	r.start()
	r.waitMirror("room")
	testkit.Eventually(t, patience, func() error {
		if n := len(l.all()); n < 4*5 {
			return errors.New("not yet repeated")
		}
		return nil
	})
	r.waitMirror("room")
	r.waitConfirmed("room")
}

func TestRecallBeforePublish(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	failures := make(chan struct{}, 1000)
	away := true
	var mu sync.Mutex
	publisher := &fakePublisher{before: func(int) error {
		mu.Lock()
		defer mu.Unlock()
		if away {
			failures <- struct{}{}
			return errProvoked
		}
		return nil
	}}
	r.newFeeder(r.store, publisher)
	lifecycletest.Start(t, r.feeder)
	sent, edited := r.send("room", "s3cr3t"), r.send("room", "s3cr3t draft")
	<-failures // the feeder has read the messages with their texts
	<-failures
	r.edit(edited, "s3cr3t second draft")
	r.recall(edited)
	r.recall(sent)
	<-time.After(time.Until(edited.MsgTime.Add(1100 * time.Millisecond))) // texts read up to 1 s ago may be published
	mu.Lock()
	away = false
	mu.Unlock()
	for _, e := range publisher.wait(t, 5) {
		if strings.Contains(e.Message.Content+e.Message.Metadata["k"], "s3cr3t") {
			t.Errorf("published %+v", e)
		}
	}
}

func TestOldEntriesArePublishedInCurrentState(t *testing.T) {
	t.Parallel()
	for name, at := range map[string]time.Duration{"old": -time.Hour, "from a clock ahead of ours": time.Hour} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t)
			sent := r.insert(message.Entry{Message: message.Message{
				ChannelID: "room", FromID: "ann", MsgType: "text", Content: "s3cr3t",
				MsgTime: time.Now().Add(at).UTC().Truncate(time.Millisecond),
			}})
			// The store's feed returns the message as it was inserted, although the store has applied a
			// recall, which the feed has not returned yet.
			publisher := &fakePublisher{}
			log := &insertedLog{FeederStore: r.store, as: map[int64]message.Entry{1: sent}}
			r.recall(sent)
			log.only = 1
			r.newFeeder(log, publisher)
			lifecycletest.Start(t, r.feeder)
			if got := publisher.wait(t, 1)[0].Message; got.Content != "" || got.Status != message.StatusRecalled {
				t.Errorf("published %+v", got)
			}
		})
	}
}

// insertedLog is a store whose feeds return the entries in as, by seq, instead of their own, and at
// most only entries at a time; 0 means no limit.
type insertedLog struct {
	feed.FeederStore
	as   map[int64]message.Entry
	only int
}

func (l *insertedLog) OpenFeed(ctx context.Context, shard int) (message.Feed, error) {
	source, err := l.FeederStore.OpenFeed(ctx, shard)
	return &insertedFeed{source, l}, err
}

type insertedFeed struct {
	message.Feed
	log *insertedLog
}

func (f *insertedFeed) Next(ctx context.Context, most int) ([]message.Entry, error) {
	if f.log.only > 0 {
		most = f.log.only
	}
	entries, err := f.Feed.Next(ctx, most)
	for i := range entries {
		if e, ok := f.log.as[entries[i].Seq]; ok {
			entries[i] = e
		}
	}
	return entries, err
}

func TestFeederAppliesUnappliedChanges(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	publisher := &fakePublisher{}
	r.newFeeder(r.store, publisher)
	sent := r.send("room", "s3cr3t")
	edit := r.insert(cacheChangeOf(sent, message.KindEdit, "s3cr3t 2"))
	r.insert(cacheChangeOf(sent, message.KindRecall, ""))
	lifecycletest.Start(t, r.feeder)
	events := publisher.wait(t, 3)
	for _, e := range events {
		if e.Kind != message.KindSend && strings.Contains(e.Message.Content, "s3cr3t") {
			t.Errorf("published %+v", e)
		}
	}
	got, ok, err := r.store.Message(t.Context(), "room", sent.MsgID)
	if err != nil || !ok || got.Content != "" || got.Status != message.StatusRecalled || got.ChangedSeq != 3 {
		t.Errorf("the store has %+v, %v, %v", got, ok, err)
	}
	if entries, err := r.store.Entries(t.Context(), "room", message.Range{After: edit.Seq - 1, Limit: 1}); err != nil ||
		entries[0].Content != "" {
		t.Errorf("the edit's entry has %+v, %v", entries, err)
	}
}

// staleLog is a store whose Messages returns the entries in as, by seq, instead of the current
// state. Its first hidden calls return nothing.
type staleLog struct {
	feed.FeederStore
	as     map[int64]message.Entry
	hidden int
}

func (l *staleLog) Messages(ctx context.Context, places []message.Place) ([]message.Entry, error) {
	if l.hidden > 0 {
		l.hidden--
		return nil, nil
	}
	messages, err := l.FeederStore.Messages(ctx, places)
	for i := range messages {
		if e, ok := l.as[messages[i].Seq]; ok {
			messages[i] = e
		}
	}
	return messages, err
}

func TestStaleTargetIsPublishedWithItsChanges(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	publisher := &fakePublisher{}
	sent := r.send("room", "s3cr3t")
	r.newFeeder(&staleLog{FeederStore: r.store, as: map[int64]message.Entry{1: sent}, hidden: 2}, publisher)
	lifecycletest.Start(t, r.feeder)
	publisher.wait(t, 1)
	r.insert(cacheChangeOf(sent, message.KindRecall, "")) // once it is applied, the feeder waits for a message that has it
	if got := publisher.wait(t, 2)[1].Message; got.Content != "" || got.Status != message.StatusRecalled || got.ChangedSeq != 2 {
		t.Errorf("published %+v", got)
	}
}

// failingLog is a store that fails its first calls of OpenFeed, Apply and its feeds' Next, as many
// of each as the field says.
type failingLog struct {
	feed.FeederStore
	mu                    sync.Mutex // guards the fields below
	opens, nexts, applies int
}

func (l *failingLog) fails(left *int) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	*left--
	return *left >= 0
}

func (l *failingLog) OpenFeed(ctx context.Context, shard int) (message.Feed, error) {
	if l.fails(&l.opens) {
		return nil, errProvoked
	}
	source, err := l.FeederStore.OpenFeed(ctx, shard)
	return &failingFeed{source, l}, err
}

func (l *failingLog) Apply(ctx context.Context, changes ...*message.Entry) error {
	if l.fails(&l.applies) {
		return errProvoked
	}
	return l.FeederStore.Apply(ctx, changes...)
}

type failingFeed struct {
	message.Feed
	log *failingLog
}

func (f *failingFeed) Next(ctx context.Context, most int) ([]message.Entry, error) {
	if f.log.fails(&f.log.nexts) {
		return nil, errProvoked
	}
	return f.Feed.Next(ctx, most)
}

func TestFailingStoreSkipsNothing(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	publisher := &fakePublisher{}
	r.newFeeder(&failingLog{FeederStore: r.store, opens: 6, nexts: 6, applies: 3}, publisher)
	sent := r.send("room", "1")
	r.insert(cacheChangeOf(sent, message.KindEdit, "2"))
	r.send("room", "3")
	lifecycletest.Start(t, r.feeder)
	for i, e := range publisher.wait(t, 3) {
		if e.Seq != int64(i+1) {
			t.Errorf("entry %d came at place %d", e.Seq, i+1)
		}
	}
}
