package queue

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/parleyhq/parley/server/internal/lifecycle/lifecycletest"
)

// delayStub keeps lines in memory, by the bubble's clock.
type delayStub struct {
	DelayStore
	LookStore

	mu    sync.Mutex
	due   map[Line][]time.Time
	moved map[Line][]time.Time // when
	calls map[string]int
	trims int64 // messages that are left to trim, of any partition
	wakes []func(topic string, partition int)
	// before is called first in Next (for each line), Due and Trim.
	before func(ctx context.Context, call string, line Line) error
}

func newDelayStub() *delayStub {
	return &delayStub{due: map[Line][]time.Time{}, moved: map[Line][]time.Time{}, calls: map[string]int{}}
}

func (s *delayStub) enter(ctx context.Context, call string, lines ...Line) error {
	s.mu.Lock()
	s.calls[call]++
	before := s.before
	s.mu.Unlock()
	for _, l := range lines {
		if before != nil {
			if err := before(ctx, call, l); err != nil {
				return err
			}
		}
	}
	return nil
}

func (s *delayStub) next(l Line) time.Duration {
	if len(s.due[l]) == 0 {
		return Never
	}
	return time.Until(s.due[l][0])
}

func (s *delayStub) Next(ctx context.Context, lines []Line) ([]time.Duration, error) {
	if err := s.enter(ctx, "next", lines...); err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	all := make([]time.Duration, len(lines))
	for i, l := range lines {
		all[i] = s.next(l)
	}
	return all, nil
}

func (s *delayStub) Due(ctx context.Context, l Line, n int) (moved int, next time.Duration, err error) {
	if err := s.enter(ctx, "due", l); err != nil {
		return 0, 0, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for moved < n && len(s.due[l]) > 0 && !s.due[l][0].After(time.Now()) {
		s.due[l] = s.due[l][1:]
		s.moved[l] = append(s.moved[l], time.Now())
		moved++
	}
	return moved, s.next(l), nil
}

func (s *delayStub) Trim(ctx context.Context, t *Topic, partition, n int) (int64, error) {
	if err := s.enter(ctx, "trim", Line{Ref: t.Ref(partition)}); err != nil {
		return 0, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	removed := min(s.trims, int64(n))
	s.trims -= removed
	return removed, nil
}

func (s *delayStub) Wakeups(ctx context.Context, fn func(string, int)) error {
	s.mu.Lock()
	s.wakes = append(s.wakes, fn)
	s.mu.Unlock()
	fn("", 0)
	<-ctx.Done()
	return ctx.Err()
}

// add has a message of the line be due after d, and wakes unless the wake-up is lost.
func (s *delayStub) add(l Line, d time.Duration, lost bool) {
	s.mu.Lock()
	s.due[l] = append(s.due[l], time.Now().Add(d))
	slices.SortFunc(s.due[l], time.Time.Compare)
	wakes := slices.Clone(s.wakes)
	s.mu.Unlock()
	for _, fn := range wakes {
		if !lost {
			fn(l.Topic, l.Partition)
		}
	}
}

func (s *delayStub) movedOf(l Line) []time.Time {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.moved[l])
}

func (s *delayStub) count(call string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.calls[call]
}

// registryStub is a store of topics.
type registryStub struct {
	TopicStore

	mu     sync.Mutex
	topics map[string]*Topic
}

func (s *registryStub) put(t *Topic) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.topics[t.Name] = t
}

func (s *registryStub) Topic(_ context.Context, name string) (*Topic, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if t := s.topics[name]; t != nil {
		return t, nil
	}
	return nil, ErrNoTopic
}

func (s *registryStub) TopicNames(context.Context) ([]string, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Sorted(maps.Keys(s.topics)), nil
}

// ownerStub gives all buckets to one, or to nobody.
type ownerStub struct {
	mu      sync.Mutex
	mine    bool
	changed chan struct{}
}

func (o *ownerStub) Owns(int) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.mine
}

func (o *ownerStub) Changed() <-chan struct{} {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.changed
}

func (o *ownerStub) set(mine bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.mine = mine
	close(o.changed)
	o.changed = make(chan struct{})
}

type schedulerRig struct {
	store    *delayStub
	registry *registryStub
	hints    *hintsStub
	log      *bytes.Buffer
}

func newSchedulerRig(topics ...*Topic) *schedulerRig {
	r := &schedulerRig{newDelayStub(), &registryStub{topics: map[string]*Topic{}}, &hintsStub{}, &bytes.Buffer{}}
	for _, t := range topics {
		r.registry.put(t)
	}
	return r
}

// start runs a scheduler until the test's end; it has looked at everything once.
func (r *schedulerRig) start(t *testing.T, owner Ownership) *Scheduler {
	t.Helper()
	s := NewScheduler(SchedulerConfig{
		Store: r.store, Catalog: NewCatalog(r.registry), Owner: owner, Hints: r.hints,
		Logger: slog.New(slog.NewTextHandler(r.log, nil)),
	})
	lifecycletest.Start(t, s)
	synctest.Wait()
	return s
}

func topicOf(name string, partitions int, groups ...string) *Topic {
	t := &Topic{Name: name, UID: "U" + name, Version: 1, Partitions: partitions, Partitioner: Hash}
	for _, g := range groups {
		t.Groups = append(t.Groups, Group{Name: g})
	}
	return t
}

// wantMoved checks that n messages of the line were moved, the last one at `at` or up to late after it.
func (r *schedulerRig) wantMoved(t *testing.T, l Line, n int, at time.Time, late time.Duration) {
	t.Helper()
	moved := r.store.movedOf(l)
	if len(moved) != n {
		t.Fatalf("%d messages of %v were moved, want %d", len(moved), l, n)
	}
	if after := moved[n-1].Sub(at); after < 0 || after > late {
		t.Fatalf("moved %s after it was due; at most %s is allowed", after, late)
	}
}

func TestSchedulerMovesWhatIsDueWhenItIs(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		topic := topicOf("t", 3, "g")
		r := newSchedulerRig(topic)
		r.start(t, nil)
		scheduled, retries := Line{Ref: topic.Ref(1)}, Line{Ref: topic.Ref(2), Group: "g"}
		began := time.Now()
		r.store.add(scheduled, 1234*time.Millisecond, false)
		r.store.add(retries, 100*time.Millisecond, false)
		// An earlier one comes before what it slept for.
		r.store.add(scheduled, 500*time.Millisecond, false)
		time.Sleep(600 * time.Millisecond)
		synctest.Wait()
		r.wantMoved(t, retries, 1, began.Add(100*time.Millisecond), 0)
		r.wantMoved(t, scheduled, 1, began.Add(500*time.Millisecond), 0)
		time.Sleep(time.Second)
		synctest.Wait()
		r.wantMoved(t, scheduled, 2, began.Add(1234*time.Millisecond), 0)
		if r.hints.count("t", 1) != 2 || r.hints.count("t", 2) != 1 || r.hints.count("t", 0) != 0 {
			t.Errorf("hints: %v", r.hints.ready)
		}
	})
}

func TestSchedulerRecoversLostWakeUps(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		topic := topicOf("t", 16, "g")
		r := newSchedulerRig(topic)
		r.start(t, nil)
		for range 5 {
			at := time.Now()
			for p := range 16 {
				r.store.add(Line{Ref: topic.Ref(p), Group: "g"}, 0, true)
			}
			time.Sleep(checkEvery + checkSpread)
			synctest.Wait()
			for p := range 16 {
				l := Line{Ref: topic.Ref(p), Group: "g"}
				r.wantMoved(t, l, len(r.store.movedOf(l)), at, checkEvery+checkSpread)
				if len(r.store.due[l]) > 0 {
					t.Fatalf("partition %d still has %d", p, len(r.store.due[l]))
				}
			}
		}
	})
}

func TestSchedulerLooksAgainAfterAReconnect(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		topic := topicOf("t", 4)
		r := newSchedulerRig(topic)
		r.start(t, nil)
		time.Sleep(100 * time.Millisecond)
		at := time.Now()
		r.store.add(Line{Ref: topic.Ref(3)}, 0, true)
		r.store.wakes[0]("", 0)
		synctest.Wait()
		r.wantMoved(t, Line{Ref: topic.Ref(3)}, 1, at, 0)
	})
}

func TestSchedulerPutsAStormOfWakeUpsTogether(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		topic := topicOf("t", 8)
		r := newSchedulerRig(topic)
		r.start(t, nil)
		r.store.mu.Lock()
		r.store.before = func(_ context.Context, call string, _ Line) error {
			if call == "next" {
				time.Sleep(time.Millisecond)
			}
			return nil
		}
		r.store.mu.Unlock()
		before := r.store.count("next")
		var all sync.WaitGroup
		for range 20 {
			all.Go(func() {
				for i := range 5000 {
					r.store.wakes[0]("t", i%8)
				}
			})
		}
		all.Wait()
		time.Sleep(100 * time.Millisecond)
		if n := r.store.count("next") - before; n > 16 {
			t.Fatalf("100,000 wake-ups at once made %d looks", n)
		}
		r.store.wakes[0]("unknown", 3) // does no harm
		synctest.Wait()
	})
}

func TestSchedulerHearsOfNewGroupsAndTopics(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := newSchedulerRig(topicOf("t", 2))
		r.start(t, nil)
		// The topic was read a moment ago, without the group.
		time.Sleep(50 * time.Millisecond)
		with := topicOf("t", 2, "g")
		with.Version = 2
		r.registry.put(with)
		at := time.Now()
		retries := Line{Ref: with.Ref(1), Group: "g"}
		r.store.add(retries, 0, false)
		fresh := topicOf("fresh", 4)
		r.registry.put(fresh)
		r.store.add(Line{Ref: fresh.Ref(2)}, 0, false)
		time.Sleep(reloadEvery)
		synctest.Wait()
		r.wantMoved(t, retries, 1, at, reloadEvery)
		r.wantMoved(t, Line{Ref: fresh.Ref(2)}, 1, at, reloadEvery)

		// A topic that is removed and made anew is another one.
		again := topicOf("fresh", 4)
		again.UID = "V"
		r.registry.put(again)
		at = time.Now()
		r.store.add(Line{Ref: again.Ref(0)}, 0, true)
		time.Sleep(refreshEvery + staleAfter)
		synctest.Wait()
		r.wantMoved(t, Line{Ref: again.Ref(0)}, 1, at, refreshEvery+staleAfter)
	})
}

func TestSchedulerFollowsOwnership(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		topic := topicOf("t", 8)
		r := newSchedulerRig(topic)
		owner := &ownerStub{changed: make(chan struct{})}
		s := r.start(t, owner)
		time.Sleep(10 * time.Second)
		if n := r.store.count("next") + r.store.count("due") + r.store.count("trim"); n != 0 {
			t.Fatalf("%d calls for partitions of others", n)
		}
		r.store.add(Line{Ref: topic.Ref(5)}, 0, false)
		at := time.Now()
		owner.set(true)
		synctest.Wait()
		r.wantMoved(t, Line{Ref: topic.Ref(5)}, 1, at, 0)
		if refs := s.owned.Load(); refs == nil || len(*refs) != 8 {
			t.Errorf("owned: %v", refs)
		}
		owner.set(false)
		synctest.Wait()
		before := r.store.count("next") + r.store.count("trim")
		time.Sleep(10 * time.Second)
		if n := r.store.count("next") + r.store.count("trim") - before; n > 1 {
			t.Errorf("%d calls after the partitions went", n)
		}
		if refs := s.owned.Load(); refs == nil || len(*refs) != 0 {
			t.Errorf("owned: %v", refs)
		}
	})
}

func TestSchedulerGoesOnPastWhatFails(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		topic := topicOf("t", 16)
		r := newSchedulerRig(topic)
		r.store.before = func(ctx context.Context, _ string, l Line) error {
			switch {
			case l.Partition < 6: // as many as would fill all places if they were let
				select {
				case <-time.After(time.Second):
				case <-ctx.Done():
				}
				return errors.New("hangs")
			case l.Partition == 6:
				return errors.New("broken")
			}
			return nil
		}
		r.start(t, nil)
		// They have settled into their own attempts.
		time.Sleep(20 * time.Second)
		before := r.store.count("next")
		for p := 7; p < 16; p++ {
			at := time.Now()
			l := Line{Ref: topic.Ref(p)}
			r.store.add(l, 10*time.Millisecond, false)
			time.Sleep(500 * time.Millisecond)
			synctest.Wait()
			r.wantMoved(t, l, 1, at.Add(10*time.Millisecond), 0)
		}
		if n := r.store.count("next") - before; n > 150 {
			t.Errorf("%d looks in 4.5 s", n)
		}
		if n := strings.Count(r.log.String(), "scheduling a queue failed"); n != 1 {
			t.Errorf("the failure was logged %d times:\n%s", n, r.log)
		}
		r.store.mu.Lock()
		r.store.before = nil
		r.store.mu.Unlock()
		time.Sleep(20 * time.Second)
		synctest.Wait()
		if n := strings.Count(r.log.String(), "scheduling queues works again"); n != 1 {
			t.Errorf("the recovery was logged %d times:\n%s", n, r.log)
		}
		at := time.Now()
		r.store.add(Line{Ref: topic.Ref(6)}, 0, false)
		synctest.Wait()
		r.wantMoved(t, Line{Ref: topic.Ref(6)}, 1, at, 0)
	})
}

func TestSchedulerMovesAFloodInBoundedStepsWithoutStarvingOthers(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		topic := topicOf("t", 2, "g")
		r := newSchedulerRig(topic)
		flood, small, other := Line{Ref: topic.Ref(0)}, Line{Ref: topic.Ref(0), Group: "g"}, Line{Ref: topic.Ref(1)}
		for range 100_000 {
			r.store.due[flood] = append(r.store.due[flood], time.Now())
		}
		r.store.before = func(context.Context, string, Line) error {
			time.Sleep(time.Millisecond)
			return nil
		}
		r.store.trims = 10*maxTrim + 1
		at := time.Now()
		s := NewScheduler(SchedulerConfig{Store: r.store, Catalog: NewCatalog(r.registry)})
		lifecycletest.Start(t, s)
		time.Sleep(10 * time.Millisecond)
		r.store.add(small, 0, false)
		r.store.add(other, 0, false)
		time.Sleep(40 * time.Millisecond)
		synctest.Wait()
		if len(r.store.movedOf(small)) != 1 || len(r.store.movedOf(other)) != 1 {
			t.Error("the flood keeps others waiting")
		}
		time.Sleep(6 * time.Second)
		synctest.Wait()
		moved := r.store.movedOf(flood)
		if len(moved) != 100_000 {
			t.Fatalf("%d moved", len(moved))
		}
		if took := moved[len(moved)-1].Sub(at); took > 500*time.Millisecond {
			t.Errorf("it took %s for 200 steps of 1 ms", took)
		}
		if r.store.trims != 0 {
			t.Errorf("%d are left to trim", r.store.trims)
		}
	})
}

func TestSchedulerStartsAndStops(t *testing.T) {
	t.Parallel()
	r := newSchedulerRig(topicOf("t", 4))
	lifecycletest.Stress[*Scheduler](t, func(*testing.T) *Scheduler {
		return NewScheduler(SchedulerConfig{Store: r.store, Catalog: NewCatalog(r.registry)})
	})
}

func TestSchedulersSideBySideAndStopping(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		topic := topicOf("t", 4)
		r := newSchedulerRig(topic)
		first, second := r.start(t, nil), r.start(t, nil)
		l := Line{Ref: topic.Ref(0)}
		at := time.Now()
		r.store.add(l, 300*time.Millisecond, false)
		time.Sleep(time.Second)
		r.wantMoved(t, l, 1, at.Add(300*time.Millisecond), 0)
		lifecycletest.Stop(t, first)
		at = time.Now()
		r.store.add(l, 0, false)
		synctest.Wait()
		r.wantMoved(t, l, 2, at, 0)
		lifecycletest.Stop(t, second)
		r.store.add(l, 0, false)
		time.Sleep(time.Minute)
		r.wantMoved(t, l, 2, at, 0)
		r.start(t, nil)
		r.wantMoved(t, l, 3, time.Now(), 0)
	})
}
