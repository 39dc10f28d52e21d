package remote

import (
	"cmp"
	"context"
	"log/slog"
	"sync"
	"time"

	"google.golang.org/protobuf/types/known/emptypb"

	clusterv1 "github.com/parleyhq/parley/internal/gen/parley/cluster/v1"
	"github.com/parleyhq/parley/server/internal/cluster"
	"github.com/parleyhq/parley/server/internal/lifecycle"
	"github.com/parleyhq/parley/server/internal/message"
)

const (
	// refillEvery is the minimum time between two hints of this node about one channel.
	refillEvery = time.Second
	// refillDelay is how long hints are collected. A set that is only a moment behind catches up
	// meanwhile, which the owner then sees without a read of the store.
	refillDelay = 100 * time.Millisecond
	// maxHinted bounds the channels that are hinted within refillEvery. Hints beyond it are lost.
	maxHinted = 4096
)

var refillChannels = cluster.Method[*clusterv1.RefillRequest, *emptypb.Empty]{Name: "refill", Timeout: time.Second}

// ShardOwners reports which node works on a shard. *cluster.Roster implements it.
type ShardOwners interface {
	Owner(shard int) string
}

// Refills passes hints that cached messages are missing to the node that writes them: the owner of
// the channel's shard. A hint may be lost; the next read after a second causes another. Hints of
// other nodes are received between Start and Stop. Safe for concurrent use.
type Refills struct {
	handlers *cluster.Handlers
	endpoint *cluster.Endpoint
	owners   ShardOwners
	shards   int
	refill   func(channelID string, seq int64)
	log      *slog.Logger
	life     lifecycle.Base
	// wake has a value while hints are waiting.
	wake chan struct{}

	mu sync.Mutex // guards the fields below
	// hinted holds when each channel was last hinted. It may hold times longer than refillEvery ago.
	hinted map[string]time.Time
	// waiting holds the channels to hint next, and the entries that their sets should include.
	waiting map[string]int64
}

// NewRefills creates a Refills. shards is the store's number of shards. refill is called with the
// hints about this node's shards, possibly concurrently, and must not block: it is
// feed.Builder.Refill. A nil logger means slog.Default.
func NewRefills(
	endpoint *cluster.Endpoint, owners ShardOwners, shards int, refill func(channelID string, seq int64), logger *slog.Logger,
) *Refills {
	r := &Refills{
		handlers: endpoint.Handlers(), endpoint: endpoint, owners: owners, shards: shards, refill: refill,
		log: cmp.Or(logger, slog.Default()), wake: make(chan struct{}, 1),
		hinted: make(map[string]time.Time), waiting: make(map[string]int64),
	}
	cluster.Handle(r.handlers, refillChannels, r.serve)
	return r
}

// Hint reports that a channel has no cached messages, or that they do not include the entry at seq,
// which its log has. It does not block. Further hints about the channel within a second are
// ignored.
func (r *Refills) Hint(channelID string, seq int64) {
	now := time.Now()
	r.mu.Lock()
	defer r.mu.Unlock()
	if now.Sub(r.hinted[channelID]) < refillEvery || len(r.hinted) >= maxHinted && !r.forget(now) {
		return
	}
	r.hinted[channelID], r.waiting[channelID] = now, seq
	select {
	case r.wake <- struct{}{}:
	default:
	}
}

// forget removes the channels that may be hinted again. It returns false if there are none. The
// caller holds mu.
func (r *Refills) forget(now time.Time) bool {
	for id, at := range r.hinted {
		if now.Sub(at) >= refillEvery {
			delete(r.hinted, id)
		}
	}
	return len(r.hinted) < maxHinted
}

// Start sends hints, and receives those of other nodes, until Stop. See lifecycle.Service.
func (r *Refills) Start(ctx context.Context) error {
	return r.life.Start(ctx, func(ctx context.Context, run *lifecycle.Run) error {
		if err := r.handlers.Start(ctx); err != nil {
			return err
		}
		run.OnEnd(r.handlers.Stop)
		run.Go(r.sendAll)
		return nil
	})
}

// Stop ends what Start began. Hints that are waiting are lost.
func (r *Refills) Stop(ctx context.Context) error { return r.life.Stop(ctx) }

// sendAll sends hints until ctx ends.
func (r *Refills) sendAll(ctx context.Context) {
	for {
		select {
		case <-r.wake:
		case <-ctx.Done():
			return
		}
		if lifecycle.Pause(ctx, refillDelay) != nil {
			return
		}
		r.send(ctx, r.take())
	}
}

// take returns the hints to send, by node.
func (r *Refills) take() map[string]*clusterv1.RefillRequest {
	r.mu.Lock()
	waiting := r.waiting
	r.waiting = make(map[string]int64)
	r.mu.Unlock()
	requests := make(map[string]*clusterv1.RefillRequest)
	for id, seq := range waiting {
		node := r.owners.Owner(message.Shard(id, r.shards))
		if requests[node] == nil {
			requests[node] = &clusterv1.RefillRequest{}
		}
		requests[node].Refills = append(requests[node].Refills, &clusterv1.Refill{ChannelId: id, Seq: seq})
	}
	return requests
}

// send sends hints to their nodes, and waits until these have answered or the calls have failed.
func (r *Refills) send(ctx context.Context, requests map[string]*clusterv1.RefillRequest) {
	var calling sync.WaitGroup
	for node, request := range requests {
		if node == r.endpoint.ID() {
			r.apply(request)
			continue
		}
		calling.Go(func() {
			if _, err := cluster.Call(ctx, r.endpoint, node, refillChannels, request); err != nil {
				r.log.DebugContext(ctx, "refill hints were lost", "node", node, "hints", len(request.GetRefills()), "error", err)
			}
		})
	}
	calling.Wait()
}

// serve takes the hints of another node.
func (r *Refills) serve(_ context.Context, request *clusterv1.RefillRequest) (*emptypb.Empty, error) {
	r.apply(request)
	return &emptypb.Empty{}, nil
}

func (r *Refills) apply(request *clusterv1.RefillRequest) {
	for _, one := range request.GetRefills() {
		r.refill(one.GetChannelId(), one.GetSeq())
	}
}
