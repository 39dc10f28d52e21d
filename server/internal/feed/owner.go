package feed

import (
	"context"
	"errors"
	"sync"
)

// Owner tells which buckets this node works for. Two nodes that believe to own the same bucket only repeat each other;
// while none does, its events wait. Its methods may be called concurrently.
type Owner interface {
	// Owns reports whether this node is the bucket's.
	Owns(bucket int) bool
	// Changed gives a channel that is closed when the answers of Owns may have changed since this call.
	Changed() <-chan struct{}
}

// errMoved ends the work on a bucket that another node has taken over.
var errMoved = errors.New("the bucket is another node's now")

// whileOwned calls fn each time the bucket becomes this node's, with a context that ends when it is no more, until ctx
// ends. A nil owner owns everything.
func whileOwned(ctx context.Context, owner Owner, bucket int, fn func(ctx context.Context)) {
	if owner == nil {
		fn(ctx)
		return
	}
	for ctx.Err() == nil {
		changed := owner.Changed() // before Owns, so that no change goes by unseen
		if !owner.Owns(bucket) {
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
				if !owner.Owns(bucket) {
					release(errMoved)
				}
			}
		})
		fn(held)
		release(nil)
		watch.Wait()
	}
}
