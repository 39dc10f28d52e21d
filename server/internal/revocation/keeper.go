package revocation

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"
)

const (
	// keepEvery is how often the keeper renews its declaration, and markerLife how long that is in
	// force. It is not longer than the overlap of Store.Changes: if a Redis comes back with the
	// declaration but without its last entries, the next poll shows them to the keeper again.
	keepEvery, markerLife = time.Second, 5 * time.Second
	// keeperPlace is the place whose owner is the keeper.
	keeperPlace = 0
	// refillWait bounds one page of a refill.
	refillWait = 5 * time.Second
	// maxUnwritten bounds the entries that wait for the keeper. Beyond it Second is filled anew.
	maxUnwritten = 10_000
)

// keeper keeps Config.Second complete while this node owns the place. It copies every entry that a
// poll shows, even if the revoking node has done so, and declares the copy complete while it knows
// of no entry that is not in it. A new owner, and one that finds no declaration, copies everything
// first.
//
// A node that has not heard from the store for a second declares nothing while another node may
// hear from it, and acknowledge revocations. While no node does so, the owner goes on: nobody can
// acknowledge one then.
type keeper struct {
	list *List
	// wake is ready when there are entries to copy.
	wake chan struct{}

	mu sync.Mutex
	// unwritten are entries that must be copied before the next declaration. overflow is set if
	// there were too many of them.
	unwritten []Entry
	overflow  bool
}

// add takes the entries of a poll.
func (k *keeper) add(entries []Entry) {
	if len(entries) == 0 || k.list.cfg.Second == nil {
		return
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.unwritten = append(k.unwritten, entries...); len(k.unwritten) > maxUnwritten {
		k.unwritten, k.overflow = nil, true
	}
	select {
	case k.wake <- struct{}{}:
	default:
	}
}

func (k *keeper) take() (entries []Entry, overflow bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	entries, overflow = k.unwritten, k.overflow
	k.unwritten, k.overflow = nil, false
	return entries, overflow
}

// restore brings back what take took, because it was not copied.
func (k *keeper) restore(entries []Entry, overflow bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.overflow = k.overflow || overflow
	if k.unwritten = append(entries, k.unwritten...); len(k.unwritten) > maxUnwritten {
		k.unwritten, k.overflow = nil, true
	}
}

// keep runs the keeper until ctx ends.
func (k *keeper) keep(ctx context.Context) {
	ticker := time.NewTicker(keepEvery)
	defer ticker.Stop()
	filled := false // whether everything known was copied since this node became the owner
	failures := 0
	for {
		if owner := k.list.cfg.Owner; owner != nil && !owner.Owns(keeperPlace) {
			k.take()
			filled = false
		} else if err := k.step(ctx, &filled); err != nil && ctx.Err() == nil {
			level := slog.LevelDebug
			if failures++; failures%60 == 0 {
				level = slog.LevelWarn
			}
			k.list.cfg.Logger.Log(ctx, level, "copying the revocations to Redis failed", "failures", failures, "error", err)
		} else {
			failures = 0
		}
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		case <-k.wake:
		}
	}
}

// step copies what is not copied, and declares the copy complete.
func (k *keeper) step(ctx context.Context, filled *bool) error {
	second := k.list.cfg.Second
	entries, overflow := k.take()
	// Each call has its own time: a refill may take long.
	call := func(fn func(ctx context.Context) error) error {
		ctx, cancel := context.WithTimeout(ctx, keepEvery)
		defer cancel()
		return fn(ctx)
	}
	whole := false
	err := call(func(ctx context.Context) (err error) {
		whole, err = second.Whole(ctx)
		return err
	})
	switch {
	case err != nil:
	case !*filled || !whole || overflow:
		err = k.refill(ctx)
		*filled = err == nil
	case len(entries) > 0:
		err = call(func(ctx context.Context) error { return k.put(ctx, entries) })
	}
	if err != nil {
		k.restore(entries, overflow)
		return err
	}
	if owner := k.list.cfg.Owner; owner != nil && owner.AnyAble() && !k.list.current() {
		return errBehind
	}
	return call(func(ctx context.Context) error { return second.Complete(ctx, markerLife) })
}

var errBehind = errors.New("the store was not heard, so there may be revocations that were not copied")

// put copies entries, each with all that is known of its key, so that none replaces a newer one.
func (k *keeper) put(ctx context.Context, entries []Entry) error {
	all := make([]Entry, len(entries))
	for i, e := range entries {
		all[i] = k.list.merged(e)
	}
	return k.list.cfg.Second.Put(ctx, all)
}

// refill copies all entries of the store.
func (k *keeper) refill(ctx context.Context) error {
	return k.list.each(ctx, func(entries []Entry) error {
		ctx, cancel := context.WithTimeout(ctx, refillWait)
		defer cancel()
		return k.put(ctx, entries)
	})
}
