// Package keeper does what the partitions of work queues need regardless of consumers: it moves
// scheduled messages that are due to the log, and removes what nobody needs any more.
//
// Each partition has one keeper among the living nodes, by rendezvous hashing. Nothing breaks if
// two nodes consider themselves the keeper, or none for some seconds: every step of the store may
// be made twice.
//
// Work follows what is used:
//
//   - Scheduled messages: the store lists the partitions that may have some. Those are looked at
//     every two seconds, and when a message is due earlier than the node knew.
//   - Settled messages: a lease holder says that it settled some (Dirty). The node that is told
//     trims the partition, whether or not it is its keeper.
//   - Once a minute the keeper looks at every partition: for messages that retention kept until
//     now, for settled messages behind an open one, and for old dead letters.
package keeper

import (
	"cmp"
	"context"
	"log/slog"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/parleyhq/parley/server/internal/lifecycle"
	"github.com/parleyhq/parley/server/internal/queue/qlog"
)

// Store is what a Keeper works with. *redislog.Store implements it and documents the methods.
type Store interface {
	ScheduleStore
	LogStore
}

// ScheduleStore keeps scheduled messages.
type ScheduleStore interface {
	Due(ctx context.Context, ref qlog.Ref) (moved int, next time.Duration, err error)
	Next(ctx context.Context, refs []qlog.Ref) ([]time.Duration, error)
	Scheduled(ctx context.Context) ([]qlog.Ref, error)
	ForgetScheduled(ctx context.Context, ref qlog.Ref) error
	Wakeups(ctx context.Context, fn func(topic string, partition int)) error
}

// LogStore keeps logs, from which settled messages are removed.
type LogStore interface {
	TopicNames(ctx context.Context) ([]string, error)
	Lengths(ctx context.Context, t *qlog.Topic, partitions []int) ([]int64, error)
	Marks(ctx context.Context, ref qlog.Ref) (qlog.Marks, error)
	Open(ctx context.Context, ref qlog.GroupRef, cursor uint64) (chunks map[int64]string, next uint64, err error)
	Read(ctx context.Context, ref qlog.Ref, after qlog.ID, n int) ([]qlog.Entry, error)
	Trim(ctx context.Context, ref qlog.Ref, bounds qlog.Bounds, n int) (int, error)
	Sweep(ctx context.Context, ref qlog.Ref, version int64, entries []qlog.Pos) (int, error)
}

// Ager removes old dead letters.
type Ager interface {
	// Age removes up to n dead letters of a partition: those older than maxAge (0: none), and the
	// oldest ones beyond maxCount (0: none). It returns how many.
	Age(ctx context.Context, ref qlog.Ref, maxAge time.Duration, maxCount int64, n int) (removed int, err error)
}

// Topics finds topics and restores their partitions. Safe for concurrent use.
type Topics interface {
	// Topic returns a topic as it was at most some seconds ago. TOPIC_NOT_FOUND, STORE_UNAVAILABLE.
	Topic(ctx context.Context, name string) (*qlog.Topic, error)
	// Heal creates the partition again if its keys were lost.
	Heal(ctx context.Context, t *qlog.Topic, partition int) error
	// Forget makes the next call of Topic read the store.
	Forget(name string)
}

// Fleet knows which nodes live. *consume.Fleet implements it.
type Fleet interface {
	// Living returns the sorted ids of the living nodes.
	Living() []string
}

// Hints tells all nodes that a partition has new messages.
type Hints interface {
	// Ready does not block, and may be lost.
	Ready(topic string, partition int)
}

// Config configures a Keeper. Store and Topics are required.
type Config struct {
	Store  Store
	Topics Topics
	// Fleet may be nil: the node is then alone.
	Fleet Fleet
	// Node is the id of this node in the fleet.
	Node string
	// Ager may be nil: dead letters are then kept.
	Ager Ager
	// Hints may be nil.
	Hints Hints
	// Logger defaults to slog.Default.
	Logger *slog.Logger

	times times
}

// times are the periods of a Keeper. Tests have shorter ones.
type times struct {
	// look is how often a listed partition is looked at for scheduled messages.
	look time.Duration
	// forget is how long a partition must have had none, and again is when it is forgotten once
	// more.
	forget, again time.Duration
	// dirty is how long a partition waits at most to be trimmed after messages were settled.
	dirty time.Duration
	// round is how long one round of looks at all partitions takes at least.
	round time.Duration
}

var defaultTimes = times{
	look: 2 * time.Second, forget: time.Hour, again: 2 * time.Minute, dirty: time.Second, round: time.Minute,
}

const (
	// callTimeout bounds one call of the store.
	callTimeout = 10 * time.Second
	// failWait and maxFailWait bound the wait after a failure: exponential, with full jitter.
	failWait, maxFailWait = 50 * time.Millisecond, 2 * time.Second
)

// Keeper is a lifecycle.Service.
type Keeper struct {
	cfg   Config
	life  lifecycle.Base
	mail  mail
	dirt  dirt
	owner owner
	owned ownedTopics

	mu     sync.Mutex // guards logged
	logged time.Time
}

// New creates a Keeper, which does nothing before Start.
func New(cfg Config) *Keeper {
	cfg.Logger = cmp.Or(cfg.Logger, slog.Default())
	if cfg.times == (times{}) {
		cfg.times = defaultTimes
	}
	k := &Keeper{cfg: cfg, owner: owner{fleet: cfg.Fleet, node: cfg.Node}}
	k.mail.kick, k.dirt.kick = make(chan struct{}, 1), make(chan struct{}, 1)
	k.mail.woken, k.dirt.refs = map[place]bool{}, map[qlog.Ref]*spot{}
	return k
}

// Start begins to work. See lifecycle.Service.
func (k *Keeper) Start(ctx context.Context) error {
	return k.life.Start(ctx, func(_ context.Context, run *lifecycle.Run) error {
		run.Go(k.listen)
		run.Go(newAgenda(k, run).work)
		for range trimmers {
			run.Go(k.trimDirty)
		}
		run.Go(k.lookAround)
		return nil
	})
}

// Stop ends the work and waits for it.
func (k *Keeper) Stop(ctx context.Context) error { return k.life.Stop(ctx) }

// listen receives the wake-ups of the store until ctx ends.
func (k *Keeper) listen(ctx context.Context) {
	for failures := 1; ctx.Err() == nil; failures++ {
		err := k.cfg.Store.Wakeups(ctx, k.mail.wake)
		if ctx.Err() != nil {
			return
		}
		// Without wake-ups the looks at the listed partitions do their work, later.
		k.trouble("wake-ups", err)
		if lifecycle.Pause(ctx, backoff(failures)) != nil {
			return
		}
	}
}

// trouble logs a failed call, one a second: a store that is away fails for every partition.
func (k *Keeper) trouble(what string, err error) {
	k.mu.Lock()
	now := time.Now()
	silent := now.Sub(k.logged) < time.Second
	if !silent {
		k.logged = now
	}
	k.mu.Unlock()
	if !silent {
		k.cfg.Logger.Warn("the keeper of queues retries", slog.String("call", what), slog.Any("error", err))
	}
}

// ready publishes a hint: a partition has new messages.
func (k *Keeper) ready(topic string, partition int) {
	if k.cfg.Hints != nil {
		k.cfg.Hints.Ready(topic, partition)
	}
}

// backoff returns how long to wait after so many failures in a row.
func backoff(failures int) time.Duration {
	most := min(failWait<<min(max(failures-1, 0), 10), maxFailWait)
	return rand.N(most) + 1
}

// place names a partition, regardless of which topic has the name.
type place struct {
	topic     string
	partition int
}

// mail is what other goroutines tell the agenda.
type mail struct {
	kick chan struct{}

	mu sync.Mutex // guards the fields below
	// woken are the partitions about which a wake-up came; all means every one.
	woken map[place]bool
	all   bool
}

// maxWoken bounds the partitions that are remembered as woken; above it all are.
const maxWoken = 10_000

// wake notes a wake-up; an empty topic means that any may have been missed.
func (m *mail) wake(topic string, partition int) {
	m.mu.Lock()
	if topic == "" || len(m.woken) >= maxWoken {
		m.all = true
	} else {
		m.woken[place{topic, partition}] = true
	}
	m.mu.Unlock()
	select {
	case m.kick <- struct{}{}:
	default:
	}
}

// take returns what wake noted.
func (m *mail) take() (woken map[place]bool, all bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if len(m.woken) == 0 && !m.all {
		return nil, false
	}
	woken, all = m.woken, m.all
	m.woken, m.all = map[place]bool{}, false
	return woken, all
}
