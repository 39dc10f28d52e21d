package presence

import (
	"context"
	"crypto/rand"
	"errors"
	"slices"
	"sync/atomic"
	"time"

	"github.com/parleyhq/parley/server/internal/lifecycle"
)

const (
	// settleEvery is the time between two looks at the shards that are not settled. listenFirst is how
	// long a node listens for others before it settles one, and settleAfter the age of an epoch that
	// is settled without the nodes that have not restored it.
	settleEvery = 250 * time.Millisecond
	listenFirst = 1500 * time.Millisecond
	settleAfter = 10 * time.Second
)

var (
	errNotYet     = errors.New("this node cannot write yet")
	errNoResponse = errors.New("the store did not respond")
	errGhosts     = errors.New("the store has parts that this node does not have")
)

// epochs opens the epochs of shards whose log was lost, records in which of them this node has
// restored its parts, and settles those of the shards that this node works on. It is safe for
// concurrent use.
type epochs struct {
	hub *Hub
	// opens and restores hold the shards whose epoch is to be opened, and in which this node has
	// written all parts.
	opens, restores *shardQueue
	// stale holds the epochs in whose place new ones are to be opened.
	stale [Shards]atomic.Pointer[string]
}

func newEpochs(h *Hub) *epochs {
	return &epochs{hub: h, opens: newShardQueue(), restores: newShardQueue()}
}

// start starts the goroutines, which end with the run.
func (es *epochs) start(run *lifecycle.Run) {
	run.Go(func(ctx context.Context) { es.opens.run(ctx, es.open) })
	run.Go(func(ctx context.Context) { es.restores.run(ctx, es.finishRestore) })
	run.Go(es.settlements)
}

// missing makes a new epoch begin in the place of an old one; empty stands for a shard without an
// epoch.
func (es *epochs) missing(shard int, old string) {
	es.stale[shard].Store(&old)
	es.opens.add(shard)
}

// open opens a new epoch of a shard, unless another node was first.
func (es *epochs) open(ctx context.Context, shard int) error {
	h := es.hub
	ctx, cancel := context.WithTimeout(ctx, h.cfg.StoreTimeout)
	defer cancel()
	fresh := rand.Text()
	head, err := h.cfg.Store.Open(ctx, shard, *es.stale[shard].Load(), fresh)
	if err != nil {
		return err
	}
	if head.Epoch == fresh {
		h.metrics.epochs.Add(ctx, 1)
	}
	h.view.opened(shard, head, h.clock.now(shard))
	return nil
}

// finishRestore removes the parts that the store has and this node has not, and then records that
// the node is restored in the epoch in which it has written all its parts.
func (es *epochs) finishRestore(ctx context.Context, shard int) error {
	h := es.hub
	epoch := h.conns.restoredEpoch(shard)
	if epoch == "" {
		return nil // the shard is queued again once its parts are written
	}
	id, ok := h.lease.current()
	if !ok {
		return errNotYet
	}
	ctx, cancel := context.WithTimeout(ctx, h.cfg.StoreTimeout)
	defer cancel()
	ghosts, err := h.compare(ctx, shard, id)
	if err != nil {
		return err
	}
	if ghosts > 0 {
		return errGhosts
	}
	return h.cfg.Store.Restored(ctx, shard, epoch, id)
}

// restoreAgain records in the epochs that are not settled that the node is restored under a new
// presence id.
func (es *epochs) restoreAgain() {
	for shard := range Shards {
		if !es.hub.view.settled(shard) {
			es.restores.add(shard)
		}
	}
}

// settlements settles the epochs of the shards that this node works on, until ctx ends.
func (es *epochs) settlements(ctx context.Context) {
	h := es.hub
	tick := time.NewTicker(settleEvery)
	defer tick.Stop()
	started := time.Now()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		if time.Since(started) < listenFirst {
			continue
		}
		var open []int
		for shard := range Shards {
			if !h.view.settled(shard) && h.view.epoch(shard) != "" && h.works(shard) {
				open = append(open, shard)
			}
		}
		each(ctx, open, func(ctx context.Context, shard int) {
			if err := es.settle(ctx, shard); err != nil && ctx.Err() == nil {
				h.report("settle", err)
			}
		})
	}
}

// settle settles the epoch of a shard once all nodes that may have connections have restored it, or
// settleAfter after its begin.
func (es *epochs) settle(ctx context.Context, shard int) error {
	h := es.hub
	ctx, cancel := context.WithTimeout(ctx, h.cfg.StoreTimeout)
	defer cancel()
	head, nodes, err := h.cfg.Store.RestoredNodes(ctx, shard)
	if err != nil || head.Epoch == "" {
		return err
	}
	if !head.Settled() {
		late := h.clock.now(shard).Sub(head.Opened) > settleAfter
		for _, node := range h.lease.members() {
			if !late && !slices.Contains(nodes, node) {
				return nil
			}
		}
		if err := h.cfg.Store.Settle(ctx, shard, head.Epoch); err != nil {
			return err
		}
	}
	h.view.readHead(shard)
	return nil
}
