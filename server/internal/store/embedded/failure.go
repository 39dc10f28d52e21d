package embedded

import (
	"fmt"
	"log/slog"
	"sync"
)

// failure records that the store has failed permanently because of its disk, and the cause. The
// caller must create the channel failed.
type failure struct {
	once sync.Once
	// failed is closed once cause is set.
	failed chan struct{}
	cause  error
}

func (f *failure) fail(cause error) {
	f.once.Do(func() {
		f.cause = cause
		close(f.failed)
	})
}

// err returns why the store has failed, or nil.
func (f *failure) err() error {
	select {
	case <-f.failed:
		return fmt.Errorf("store has failed: %w", f.cause)
	default:
		return nil
	}
}

// logger forwards Pebble's log messages to slog. A message that is fatal to Pebble marks the store
// as failed.
type logger struct {
	*slog.Logger
	failure *failure
}

func newLogger(to *slog.Logger, f *failure) *logger {
	if to == nil {
		to = slog.Default()
	}
	return &logger{Logger: to.With("component", "pebble"), failure: f}
}

// Infof implements pebble.Logger.
func (l *logger) Infof(format string, args ...any) { l.Debug(fmt.Sprintf(format, args...)) }

// Errorf implements pebble.Logger.
func (l *logger) Errorf(format string, args ...any) { l.Error(fmt.Sprintf(format, args...)) }

// Fatalf implements pebble.Logger. It never returns, because Pebble would continue as if nothing
// had happened: after a failed sync, Apply would report success. The calling goroutine blocks until
// the process ends.
func (l *logger) Fatalf(format string, args ...any) {
	l.failure.fail(fmt.Errorf(format, args...))
	l.Error(fmt.Sprintf(format, args...))
	select {}
}
