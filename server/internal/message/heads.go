package message

import (
	"context"
	"sync"
	"time"

	"golang.org/x/sync/singleflight"
)

// maxKnownHeads bounds the channels that heads remembers. When it is reached, a quarter of them is
// forgotten. A forgotten channel costs one read of the store.
const maxKnownHeads = 65_536

// heads caches the ends of logs, from reads of the store, which concurrent callers share, and from
// the seqs passed to observe.
type heads struct {
	log LogReader

	mu    sync.Mutex
	known map[string]knownHead
	reads singleflight.Group
}

type knownHead struct {
	// head is the result of a read of the store that started at began. began is zero if there was
	// no read yet.
	head  Head
	began time.Time
	// seen is the highest seq passed to observe. A read that started later and returned a lower Seq
	// resets it.
	seen int64
}

func (h *heads) observe(channelID string, seq int64) {
	h.mu.Lock()
	defer h.mu.Unlock()
	k := h.known[channelID]
	if seq > k.seen {
		k.seen = seq
		h.put(channelID, k)
	}
}

// put stores k. If maxKnownHeads channels are known, it first drops a quarter of them. The caller
// holds the lock.
func (h *heads) put(channelID string, k knownHead) {
	if h.known == nil {
		h.known = make(map[string]knownHead)
	}
	if _, ok := h.known[channelID]; !ok && len(h.known) >= maxKnownHeads {
		drop := maxKnownHeads / 4
		for id := range h.known {
			delete(h.known, id)
			if drop--; drop == 0 {
				break
			}
		}
	}
	h.known[channelID] = k
}

// get returns the end of a log, from a read that began at most maxAge before this call. With a
// positive maxAge the Seq is at least the highest that was passed to observe. With a maxAge of 0
// the read began after this call did, and its result is returned as is.
func (h *heads) get(ctx context.Context, channelID string, maxAge time.Duration) (Head, error) {
	k, err := h.lookup(ctx, channelID, maxAge)
	if maxAge > 0 {
		k.head.Seq = max(k.head.Seq, k.seen)
	}
	return k.head, err
}

// lookup returns what is known of the end of a log, from a read that began at most maxAge before
// this call.
func (h *heads) lookup(ctx context.Context, channelID string, maxAge time.Duration) (knownHead, error) {
	called := time.Now()
	for {
		h.mu.Lock()
		k := h.known[channelID]
		h.mu.Unlock()
		if !k.began.IsZero() && !k.began.Before(called.Add(-maxAge)) {
			return k, nil
		}
		// A shared read in progress may have begun too long before this call. The loop then ignores its
		// result and starts another read.
		ch := h.reads.DoChan(channelID, func() (any, error) {
			return nil, h.read(context.WithoutCancel(ctx), channelID)
		})
		select {
		case res := <-ch:
			if res.Err != nil {
				return knownHead{}, res.Err
			}
		case <-ctx.Done():
			return knownHead{}, context.Cause(ctx)
		}
	}
}

// getMany is get for at most 500 channels and a maxAge of 0, in one read.
func (h *heads) getMany(ctx context.Context, channelIDs []string) (map[string]Head, error) {
	ctx, cancel := context.WithTimeout(ctx, readTimeout)
	defer cancel()
	seen := make(map[string]int64, len(channelIDs))
	h.mu.Lock()
	for _, id := range channelIDs {
		seen[id] = h.known[id].seen
	}
	h.mu.Unlock()
	began := time.Now()
	heads, err := h.log.Heads(ctx, channelIDs)
	if err != nil {
		return nil, err
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, id := range channelIDs {
		h.store(id, heads[id], began, seen[id])
	}
	return heads, nil
}

// stored returns the end of a log as the store returned it last; zero if it was not read.
func (h *heads) stored(channelID string) Head {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.known[channelID].head
}

// readTimeout bounds a shared read of a head. The read must not end with the context of the first
// of its callers.
const readTimeout = 5 * time.Second

func (h *heads) read(ctx context.Context, channelID string) error {
	ctx, cancel := context.WithTimeout(ctx, readTimeout)
	defer cancel()
	h.mu.Lock()
	seen := h.known[channelID].seen
	h.mu.Unlock()
	began := time.Now()
	head, err := h.log.Head(ctx, channelID)
	if err != nil {
		return err
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.store(channelID, head, began, seen)
	return nil
}

// store stores the result of a read that began at the given time, when the channel's seen had the
// given value. The caller holds the lock.
func (h *heads) store(channelID string, head Head, began time.Time, seen int64) {
	k := h.known[channelID]
	if head.Seq < seen {
		// This node knows of an entry that a linearizable read does not return: the log became shorter,
		// which only a restore from a backup can cause.
		k.seen = head.Seq
	}
	if began.Before(k.began) {
		return // another read began later
	}
	k.head, k.began = head, began
	h.put(channelID, k)
}
