package queue

import (
	"cmp"
	"context"
	"log/slog"
	"math/rand/v2"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/cespare/xxhash/v2"

	"github.com/parleyhq/parley/server/internal/lifecycle"
)

const (
	// checkEvery is how often a partition is looked into whatever is known of it, plus up to checkSpread: so late is what a lost
	// wake-up concerns. Looks are put together in steps of checkStep.
	checkEvery  = 2 * time.Second
	checkSpread = 200 * time.Millisecond
	checkStep   = 50 * time.Millisecond
	// trimEvery is how often a partition is trimmed, plus up to a tenth; maxTrim how many messages one step removes.
	trimEvery = 2 * time.Second
	maxTrim   = 1000
	// refreshEvery is how often all topics are looked up; a single one may be every reloadEvery, when something is heard of it.
	refreshEvery = 2 * time.Second
	reloadEvery  = 200 * time.Millisecond
	// maxDue is how many messages one step moves.
	maxDue = 500
	// maxJobs is how many calls of the store are under way at once, of which maxProbes for partitions that failed.
	maxJobs, maxProbes = 8, 4
	// maxChecked is how many lines one look takes, but for those of its last partition.
	maxChecked = 256
	// failWait and maxFailWait bound the wait after a failure: exponential, with full jitter.
	failWait, maxFailWait = 50 * time.Millisecond, 2 * time.Second
	// stuckWait is the wait where the store says that something is due and moves nothing.
	stuckWait = 50 * time.Millisecond
	// maxWoken bounds the partitions that are remembered as woken; beyond it, all are.
	maxWoken = 10_000
)

// Ownership shares work out among the nodes; cluster.Roster does. Its methods may be called concurrently.
type Ownership interface {
	// Owns reports whether this node is the bucket's. It may err for moments.
	Owns(bucket int) bool
	// Changed gives a channel that is closed when the answers of Owns may have changed since this call.
	Changed() <-chan struct{}
}

// SchedulerStore is what a Scheduler works with.
type SchedulerStore interface {
	DelayStore
	LookStore
}

// SchedulerConfig sets up a Scheduler. Store and Catalog must be set.
type SchedulerConfig struct {
	Store   SchedulerStore
	Catalog *Catalog
	// Owner tells which partitions are this node's; nil means all. Two nodes that have the same do no harm.
	Owner Ownership
	// Hints tells consumers that something is due; nil tells nobody.
	Hints Hints
	// Metrics reports what the node's partitions hold; it may be nil.
	Metrics *Metrics
	// Logger is slog.Default if nil.
	Logger *slog.Logger
}

// Scheduler moves scheduled messages and retries to where they are fetched from once they are due, and trims what is done
// with, in the partitions that are this node's.
//
// For each line it knows how long it is until the first message is due, as the store told by its own clock; it sleeps until
// then. A wake-up of the store says that a line's first has become an earlier one. Wake-ups may be lost, so each partition is
// also looked into every two seconds, and all of them after every reconnect and whenever they become this node's.
//
// One goroutine keeps what there is to do. Calls of the store have goroutines of their own, a few at a time, and one at a time
// for each partition.
type Scheduler struct {
	cfg  SchedulerConfig
	kick chan struct{}
	// owned are the partitions that the gauges tell of.
	owned  atomic.Pointer[[]Ref]
	gauges gauges

	life lifecycle.Base

	mu sync.Mutex // guards what follows
	// woken are the partitions of which something was heard; all means every one.
	woken map[place]bool
	all   bool
}

// place is a partition, by its topic's name.
type place struct {
	topic     string
	partition int
}

// bucket is the place's number among those that Ownership shares out. All nodes must give it alike, so it must not change
// between versions that run side by side.
func (p place) bucket() int {
	return int(xxhash.Sum64String(p.topic+":"+strconv.Itoa(p.partition)) & (1<<31 - 1))
}

// NewScheduler makes a scheduler, which Start starts.
func NewScheduler(c SchedulerConfig) *Scheduler {
	c.Logger = cmp.Or(c.Logger, slog.Default())
	s := &Scheduler{cfg: c, kick: make(chan struct{}, 1), woken: make(map[place]bool)}
	s.gauges.scheduler = s
	return s
}

// Start begins to work and returns at once. See lifecycle.Service.
func (s *Scheduler) Start(ctx context.Context) error {
	return s.life.Start(ctx, func(ctx context.Context, run *lifecycle.Run) error {
		registration, err := s.gauges.register(s.cfg.Metrics)
		if err != nil {
			s.cfg.Logger.WarnContext(ctx, "queue gauges are not reported", "error", err)
		}
		run.Go(s.listen)
		run.Go(newAgenda(s).run)
		run.OnEnd(func(context.Context) error {
			if registration != nil {
				_ = registration.Unregister() // it was registered
			}
			s.owned.Store(nil)
			return nil
		})
		return nil
	})
}

// Stop ends the work and waits for it.
func (s *Scheduler) Stop(ctx context.Context) error { return s.life.Stop(ctx) }

// listen hears wake-ups until ctx ends.
func (s *Scheduler) listen(ctx context.Context) {
	for failures := 1; ctx.Err() == nil; failures++ {
		began := time.Now()
		err := s.cfg.Store.Wakeups(ctx, s.wake)
		if ctx.Err() != nil {
			return
		}
		// It should have gone on; while it does not, the looks every two seconds do its work.
		if time.Since(began) > maxFailWait {
			failures = 1
		}
		s.cfg.Logger.WarnContext(ctx, "hearing no queue wake-ups", "error", err)
		if lifecycle.Pause(ctx, failureWait(failures)) != nil {
			return
		}
	}
}

// wake notes that something was heard of a partition, or with an empty topic of any.
func (s *Scheduler) wake(topic string, partition int) {
	s.mu.Lock()
	if topic == "" || len(s.woken) >= maxWoken {
		s.all = true
	} else {
		s.woken[place{topic, partition}] = true
	}
	s.mu.Unlock()
	select {
	case s.kick <- struct{}{}:
	default:
	}
}

// heard takes what wake noted.
func (s *Scheduler) heard() (woken map[place]bool, all bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.woken) == 0 && !s.all {
		return nil, false
	}
	woken, all = s.woken, s.all
	s.woken, s.all = make(map[place]bool), false
	return woken, all
}

func (s *Scheduler) owns(p place) bool { return s.cfg.Owner == nil || s.cfg.Owner.Owns(p.bucket()) }

// changed gives a channel that is closed when ownership may have changed; nil if it never does.
func (s *Scheduler) changed() <-chan struct{} {
	if s.cfg.Owner == nil {
		return nil
	}
	return s.cfg.Owner.Changed()
}

func (s *Scheduler) ready(p place) {
	if s.cfg.Hints != nil {
		s.cfg.Hints.Ready(p.topic, p.partition)
	}
}

// failureWait is how long to wait after so many failures in a row.
func failureWait(failures int) time.Duration {
	return RetryPolicy{MinBackoff: failWait, MaxBackoff: maxFailWait}.Backoff(failures)
}

// jitter gives a random time below d.
func jitter(d time.Duration) time.Duration { return rand.N(d) }
