package cli

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"sync/atomic"
	"time"
)

// noteAfter is how long after its client was made a command tells the user of a retry: of the first
// one that is made later.
const noteAfter = 1500 * time.Millisecond

// retryNotes is a handler for the client's log that tells the user once why a command takes long:
// the error for which a call is retried. It drops everything else. The SDK logs a retry with the
// message "retrying" and the attributes "error" and "wait". The handler is safe for concurrent use.
type retryNotes struct {
	w     io.Writer
	after time.Time
	noted atomic.Bool
}

func newRetryNotes(w io.Writer) *retryNotes {
	return &retryNotes{w: w, after: time.Now().Add(noteAfter)}
}

// Enabled implements slog.Handler.
func (n *retryNotes) Enabled(_ context.Context, level slog.Level) bool {
	return level >= slog.LevelWarn && !n.noted.Load()
}

// Handle implements slog.Handler.
func (n *retryNotes) Handle(_ context.Context, r slog.Record) error {
	var cause slog.Value
	var wait time.Duration
	r.Attrs(func(a slog.Attr) bool {
		switch a.Key {
		case "error":
			cause = a.Value
		case "wait":
			wait, _ = a.Value.Any().(time.Duration)
		}
		return true
	})
	if r.Message != "retrying" || r.Time.Add(wait).Before(n.after) || n.noted.Swap(true) {
		return nil
	}
	_, err := fmt.Fprintf(n.w, "parley: still trying: %s\n", oneLine(cause.String()))
	return err
}

// WithAttrs implements slog.Handler. The attributes of a retry are in its record.
func (n *retryNotes) WithAttrs([]slog.Attr) slog.Handler { return n }

// WithGroup implements slog.Handler.
func (n *retryNotes) WithGroup(string) slog.Handler { return n }
