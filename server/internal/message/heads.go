package message

import (
	"context"
	"sync"
	"time"

	"golang.org/x/sync/singleflight"
)

// maxKnownHeads bounds what heads remembers; a forgotten channel costs one read of the store.
const maxKnownHeads = 65_536

// heads knows where logs end: by reads that are shared by all who ask meanwhile, and by what this node was told.
type heads struct {
	log LogReader

	mu     sync.Mutex
	known  map[string]knownHead
	flight singleflight.Group
}

type knownHead struct {
	// head was read from the store by a read that began at began; zero if none was.
	head  Head
	began time.Time
	// seen is the highest seq that this node was told of.
	seen int64
}

func (h *heads) saw(channelID string, seq int64) {
	h.mu.Lock()
	defer h.mu.Unlock()
	k := h.known[channelID]
	if seq > k.seen {
		k.seen = seq
		h.put(channelID, k)
	}
}

// put remembers; the lock is held.
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

// get gives a log's end as a read showed it that began at most maxAge before this call, and at least what this node has
// seen since. A maxAge of 0 wants the answer of a read that begins after this call did, as it is.
func (h *heads) get(ctx context.Context, channelID string, maxAge time.Duration) (Head, error) {
	called := time.Now()
	for {
		h.mu.Lock()
		k := h.known[channelID]
		h.mu.Unlock()
		if !k.began.IsZero() && !k.began.Before(called.Add(-maxAge)) {
			if maxAge > 0 {
				k.head.Seq = max(k.head.Seq, k.seen)
			}
			return k.head, nil
		}
		// The flight that is under way may have begun before this call: then its answer does not count, and the loop
		// starts another one.
		ch := h.flight.DoChan(channelID, func() (any, error) {
			return nil, h.read(context.WithoutCancel(ctx), channelID)
		})
		select {
		case res := <-ch:
			if res.Err != nil {
				return Head{}, res.Err
			}
		case <-ctx.Done():
			return Head{}, context.Cause(ctx)
		}
	}
}

// readTimeout bounds a shared read of a head, which must not end with the first of those who wait for it.
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
	k := h.known[channelID]
	if head.Seq < seen {
		// Told of an entry that a linearizable read does not show: the log went back, which only a restore may do.
		k.seen = head.Seq
	}
	k.head, k.began = head, began
	h.put(channelID, k)
	return nil
}
