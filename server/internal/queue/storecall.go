package queue

import (
	"context"
	"errors"
	"log/slog"
	"math/rand/v2"
	"time"
)

// Waits after a store call that failed.
const (
	firstBackoff   = 20 * time.Millisecond
	longestBackoff = time.Second
)

// backoff is the wait before asking again after so many failures in a row.
func backoff(failures int) time.Duration {
	most := min(firstBackoff<<min(failures, 8), longestBackoff)
	return most/2 + rand.N(most/2)
}

// certain reports whether a failed call certainly changed nothing.
func certain(err error) bool {
	return errors.Is(err, ErrFenced) || errors.Is(err, ErrBehind) || errors.Is(err, ErrNoTopic) || errors.Is(err, ErrNoGroup) || isAway(err)
}

// call bounds one call of the store.
func (h *Hub) call(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(ctx, min(max(h.cfg.LeaseTTL/2, minCallTime), maxCallTime))
}

// A call of the store may take half a lease's life, within these bounds.
const minCallTime, maxCallTime = time.Second, 5 * time.Second

// trouble logs a failed call of the store, one a second: a store that is away fails for every partition.
func (h *Hub) trouble(what string, err error) {
	now := time.Now().UnixNano()
	last := h.troubled.Load()
	if h.ctx.Err() != nil || now-last < int64(time.Second) || !h.troubled.CompareAndSwap(last, now) {
		return
	}
	h.cfg.Logger.Warn("a queue's consumers retry", slog.String("call", what), slog.Any("error", err))
}
