package telemetry

import (
	"context"
	"log/slog"
	"sync/atomic"

	"golang.org/x/time/rate"
)

// burstSeconds is how many seconds' worth of records a limited logger writes at once.
const burstSeconds = 10

// Limit returns a logger that writes at most perSecond records in a second to log, and at first ten
// times as many. It is for records that clients cause, who could fill the disk with them. Records
// of level ERROR are always written. The next record after dropped ones has their number as the
// attribute "dropped".
func Limit(log *slog.Logger, perSecond int) *slog.Logger {
	return slog.New(limited{log.Handler(), &recordLimit{Limiter: rate.NewLimiter(rate.Limit(perSecond), burstSeconds*perSecond)}})
}

type recordLimit struct {
	*rate.Limiter

	dropped atomic.Int64 // records since the last one that was written
}

// limited is the handler of a limited logger. All that derive from one share its limit.
type limited struct {
	slog.Handler

	limit *recordLimit
}

// Handle implements slog.Handler.
func (h limited) Handle(ctx context.Context, r slog.Record) error {
	if r.Level < slog.LevelError && !h.limit.Allow() {
		h.limit.dropped.Add(1)
		return nil
	}
	if n := h.limit.dropped.Swap(0); n > 0 {
		r = r.Clone()
		r.AddAttrs(slog.Int64("dropped", n))
	}
	return h.Handler.Handle(ctx, r)
}

// WithAttrs implements slog.Handler.
func (h limited) WithAttrs(attrs []slog.Attr) slog.Handler {
	return limited{h.Handler.WithAttrs(attrs), h.limit}
}

// WithGroup implements slog.Handler.
func (h limited) WithGroup(name string) slog.Handler {
	return limited{h.Handler.WithGroup(name), h.limit}
}
