package presence

import (
	"context"
	"sync"
	"time"
)

const (
	// shardConcurrency bounds the steps of one kind that run for different shards at the same time.
	shardConcurrency = 16
	// shardRetry is the time between two attempts of a step that failed.
	shardRetry = 200 * time.Millisecond
)

// shardQueue holds the shards that a step is to be done for. A shard is in it at most once.
type shardQueue struct {
	wake chan struct{}

	mu      sync.Mutex // guards pending
	pending map[int]struct{}
}

func newShardQueue() *shardQueue {
	return &shardQueue{wake: make(chan struct{}, 1), pending: map[int]struct{}{}}
}

// add adds a shard. It does not block.
func (q *shardQueue) add(shard int) {
	q.mu.Lock()
	q.pending[shard] = struct{}{}
	q.mu.Unlock()
	select {
	case q.wake <- struct{}{}:
	default:
	}
}

func (q *shardQueue) take() []int {
	q.mu.Lock()
	defer q.mu.Unlock()
	shards := make([]int, 0, len(q.pending))
	for shard := range q.pending {
		shards = append(shards, shard)
	}
	clear(q.pending)
	return shards
}

// run calls fn for the shards of the queue until ctx ends. A shard whose fn fails is queued again.
func (q *shardQueue) run(ctx context.Context, fn func(ctx context.Context, shard int) error) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-q.wake:
		}
		failed := false
		var mu sync.Mutex // guards failed
		each(ctx, q.take(), func(ctx context.Context, shard int) {
			if err := fn(ctx, shard); err != nil {
				q.add(shard)
				mu.Lock()
				failed = true
				mu.Unlock()
			}
		})
		if failed {
			select {
			case <-ctx.Done():
				return
			case <-time.After(shardRetry):
			}
		}
	}
}

// each calls fn for every shard, shardConcurrency at the same time, and waits for all calls. Once
// ctx has ended it calls fn for no more.
func each(ctx context.Context, shards []int, fn func(ctx context.Context, shard int)) {
	var wg sync.WaitGroup
	slots := make(chan struct{}, shardConcurrency)
	for _, shard := range shards {
		if ctx.Err() != nil {
			break
		}
		slots <- struct{}{}
		wg.Go(func() {
			defer func() { <-slots }()
			fn(ctx, shard)
		})
	}
	wg.Wait()
}
