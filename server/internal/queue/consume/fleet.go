package consume

import (
	"cmp"
	"context"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/parleyhq/parley/server/internal/lifecycle"
)

const (
	// beatEvery is how often a node says that it lives, and beatTTL how long that holds.
	beatEvery = 750 * time.Millisecond
	beatTTL   = 3 * time.Second
)

// Beat is what the store knows about one node of the fleet.
type Beat struct {
	Node string
	// Until is when the node counts as dead, according to the store's clock.
	Until time.Time
}

// FleetStore keeps the beats of nodes, and the nodes of groups. Safe for concurrent use.
type FleetStore interface {
	// Beat records that node lives for another ttl and returns all nodes that lived within the last
	// hour, with the store's time. A ttl of 0 ends the node's life now.
	Beat(ctx context.Context, node string, ttl time.Duration) (now time.Time, beats []Beat, err error)
	// SetCapacity records how many messages the node's sessions of a group handle at the same time;
	// 0 removes the node from the group, and less than 0 says that it stops.
	SetCapacity(ctx context.Context, topic, group, node string, capacity int) error
	// Capacities returns the nodes of a group. Those of nodes that died may be among them.
	Capacities(ctx context.Context, topic, group string) (map[string]int, error)
}

// FleetConfig configures a Fleet. Store and Node are required.
type FleetConfig struct {
	Store FleetStore
	// Node is the id of this node.
	Node string
	// Logger defaults to slog.Default.
	Logger *slog.Logger
}

// Fleet knows which nodes live. A node whose beat ended may lose its leases. Safe for concurrent
// use.
type Fleet struct {
	cfg  FleetConfig
	life lifecycle.Base

	mu sync.Mutex // guards the fields below
	// until are the ends of the beats, according to this node's monotonic clock.
	until map[string]time.Time
	// unbroken is since when this node's beat has not been over; zero while it is.
	unbroken time.Time
	// first is closed after the first beat.
	first chan struct{}
}

// NewFleet creates a Fleet that knows no node until Start.
func NewFleet(cfg FleetConfig) *Fleet {
	cfg.Logger = cmp.Or(cfg.Logger, slog.Default())
	return &Fleet{cfg: cfg, until: map[string]time.Time{}, first: make(chan struct{})}
}

// Start begins to beat. It does not wait for the store. See lifecycle.Service.
func (f *Fleet) Start(ctx context.Context) error {
	return f.life.Start(ctx, func(_ context.Context, run *lifecycle.Run) error {
		run.Go(f.beatAll)
		run.OnEnd(func(ctx context.Context) error {
			// The other nodes need not wait for the end of the beat. If the store is away they do.
			ctx, cancel := context.WithTimeout(ctx, beatEvery)
			defer cancel()
			_, _, err := f.cfg.Store.Beat(ctx, f.cfg.Node, 0)
			if err != nil {
				f.cfg.Logger.Debug("the last beat of this node was not stored", slog.Any("error", err))
			}
			return nil
		})
		return nil
	})
}

// Stop ends the beat of this node. All its leases must be released before.
func (f *Fleet) Stop(ctx context.Context) error { return f.life.Stop(ctx) }

func (f *Fleet) beatAll(ctx context.Context) {
	ticker := time.NewTicker(beatEvery)
	defer ticker.Stop()
	for {
		f.beat(ctx)
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return
		}
	}
}

func (f *Fleet) beat(ctx context.Context) {
	// The beat counts from before the call: the store's clock recorded it later.
	sent := time.Now()
	call, cancel := context.WithTimeout(ctx, beatTTL)
	defer cancel()
	now, beats, err := f.cfg.Store.Beat(call, f.cfg.Node, beatTTL)
	f.mu.Lock()
	defer f.mu.Unlock()
	if err != nil {
		if ctx.Err() == nil {
			f.cfg.Logger.Debug("a beat of this node was not stored", slog.Any("error", err))
		}
		return
	}
	if f.unbroken.IsZero() || sent.After(f.until[f.cfg.Node]) {
		f.unbroken = sent
	}
	// For other nodes the time of the answer is the safe one: they count as alive for longer.
	answered := time.Now()
	clear(f.until)
	for _, b := range beats {
		f.until[b.Node] = answered.Add(b.Until.Sub(now))
	}
	f.until[f.cfg.Node] = sent.Add(beatTTL)
	select {
	case <-f.first:
	default:
		close(f.first)
	}
}

// Alive reports whether a node's beat has not ended as far as this node knows. While this node's own
// beat is over it cannot know what became of the others: they are then as they were at its last beat. A
// node that is not known is not alive.
func (f *Fleet) Alive(node string) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.alive(node, time.Now())
}

// alive is Alive with mu held.
func (f *Fleet) alive(node string, now time.Time) bool {
	if own := f.until[f.cfg.Node]; node != f.cfg.Node && now.After(own) {
		now = own.Add(-beatTTL)
	}
	return now.Before(f.until[node])
}

// Others returns the other nodes that are alive, sorted; see Alive.
func (f *Fleet) Others() []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	var nodes []string
	for node := range f.until {
		if node != f.cfg.Node && f.alive(node, time.Now()) {
			nodes = append(nodes, node)
		}
	}
	slices.Sort(nodes)
	return nodes
}

// Until returns when the node's beat ends or ended. It is zero for a node that did not beat within the
// last hour.
func (f *Fleet) Until(node string) time.Time {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.until[node]
}

// Living returns the nodes whose beat has not ended as far as this node knows, sorted. This node is
// missing while its own beats fail.
func (f *Fleet) Living() []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	now := time.Now()
	var nodes []string
	for node, until := range f.until {
		if now.Before(until) {
			nodes = append(nodes, node)
		}
	}
	slices.Sort(nodes)
	return nodes
}

// MayTakeOver reports whether this node may acquire leases of nodes whose beat ended. After the
// store was away all beats are over, also those of nodes that live. So a node first waits until every
// living node had the time to beat.
func (f *Fleet) MayTakeOver() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	now := time.Now()
	return !f.unbroken.IsZero() && now.Before(f.until[f.cfg.Node]) && now.Sub(f.unbroken) >= beatTTL
}

// Ready returns a channel that is closed after the first beat.
func (f *Fleet) Ready() <-chan struct{} { return f.first }
