package feed

import (
	"context"
	"errors"
	"sync"
)

// Owner decides which shards this node works for. If two nodes own the same shard, they only
// repeat each other's work; while no node owns it, its events wait. The methods may be called
// concurrently.
type Owner interface {
	// Owns reports whether this node owns the shard.
	Owns(shard int) bool
	// Changed returns a channel that is closed when the results of Owns may have changed since this
	// call.
	Changed() <-chan struct{}
}

// errNotOwner is the cause with which whileOwned cancels the work on a shard that this node no
// longer owns.
var errNotOwner = errors.New("shard is owned by another node")

// whileOwned calls fn each time this node becomes the shard's owner, with a context that ends when
// it no longer is. It returns when ctx ends. A nil owner owns all shards.
func whileOwned(ctx context.Context, owner Owner, shard int, fn func(ctx context.Context)) {
	if owner == nil {
		fn(ctx)
		return
	}
	for ctx.Err() == nil {
		changed := owner.Changed() // before Owns, so that no change is missed
		if !owner.Owns(shard) {
			select {
			case <-changed:
			case <-ctx.Done():
			}
			continue
		}
		held, release := context.WithCancelCause(ctx)
		var watch sync.WaitGroup
		watch.Go(func() {
			for {
				select {
				case <-changed:
				case <-held.Done():
					return
				}
				changed = owner.Changed()
				if !owner.Owns(shard) {
					release(errNotOwner)
				}
			}
		})
		fn(held)
		release(nil)
		watch.Wait()
	}
}
