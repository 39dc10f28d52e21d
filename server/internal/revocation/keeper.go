package revocation

import (
	"context"
	"sync"
	"time"
)

const (
	// keepEvery is how often the keeper renews its declaration, and markerLife how long that is in
	// force.
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
// While no node hears from the store, the owner goes on: nobody can acknowledge a revocation then.
type keeper struct {
	list *List

	mu sync.Mutex
	// unwritten are entries that must be copied before the next declaration. overflow is set if there
	// were too many of them.
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
}

func (k *keeper) take() (entries []Entry, overflow bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	entries, overflow = k.unwritten, k.overflow
	k.unwritten, k.overflow = nil, false
	return entries, overflow
}

// keep runs the keeper until ctx ends.
func (k *keeper) keep(ctx context.Context) {
	ticker := time.NewTicker(keepEvery)
	defer ticker.Stop()
	filled := false // whether everything known was copied since this node became the owner
	for {
		if owner := k.list.cfg.Owner; owner != nil && !owner.Owns(keeperPlace) {
			k.take()
			filled = false
		} else if err := k.step(ctx, &filled); err != nil && ctx.Err() == nil {
			filled = false
			k.list.cfg.Logger.DebugContext(ctx, "copying the revocations to Redis failed", "error", err)
		}
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
	}
}

// step copies what is not copied, and declares the copy complete.
func (k *keeper) step(ctx context.Context, filled *bool) error {
	second := k.list.cfg.Second
	entries, overflow := k.take()
	short, cancel := context.WithTimeout(ctx, keepEvery)
	defer cancel()
	whole, err := second.Whole(short)
	if err != nil {
		return err
	}
	if !*filled || !whole || overflow {
		if err := k.refill(ctx); err != nil {
			return err
		}
		*filled = true
	} else if len(entries) > 0 {
		if err := second.Put(short, entries); err != nil {
			return err
		}
	}
	return second.Complete(short, markerLife)
}

// refill copies all entries of the store.
func (k *keeper) refill(ctx context.Context) error {
	return k.list.each(ctx, func(entries []Entry) error {
		ctx, cancel := context.WithTimeout(ctx, refillWait)
		defer cancel()
		return k.list.cfg.Second.Put(ctx, entries)
	})
}
