package feed

import (
	"context"
	"errors"
	"sync"
)

// Owner decides which buckets this node works for. If two nodes own the same bucket, they only
// repeat each other's work; while no node owns it, its events wait. The methods may be called
// concurrently.
type Owner interface {
	// Owns reports whether this node owns the bucket.
	Owns(bucket int) bool
	// Changed returns a channel that is closed when the results of Owns may have changed since this
	// call.
	Changed() <-chan struct{}
}

// errNotOwner is the cause with which whileOwned cancels the work on a bucket that this node no
// longer owns.
var errNotOwner = errors.New("bucket is owned by another node")

// whileOwned calls fn each time this node becomes the bucket's owner, with a context that ends when
// it no longer is. It returns when ctx ends. A nil owner owns all buckets.
func whileOwned(ctx context.Context, owner Owner, bucket int, fn func(ctx context.Context)) {
	if owner == nil {
		fn(ctx)
		return
	}
	for ctx.Err() == nil {
		changed := owner.Changed() // before Owns, so that no change is missed
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
					release(errNotOwner)
				}
			}
		})
		fn(held)
		release(nil)
		watch.Wait()
	}
}
