package embedded

import (
	"fmt"
	"log/slog"
	"sync"
)

// failure is a store's end by its disk. Its zero value lacks the channel.
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

// err is why the store has failed, or nil.
func (f *failure) err() error {
	select {
	case <-f.failed:
		return fmt.Errorf("store has failed: %w", f.cause)
	default:
		return nil
	}
}

// logger passes Pebble's messages on, and makes what is fatal to Pebble the store's failure.
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

// Fatalf implements pebble.Logger. It never returns, for Pebble would go on as if nothing had happened: after a failed
// sync, Apply would report success. Its goroutine stands still until the process ends.
func (l *logger) Fatalf(format string, args ...any) {
	l.failure.fail(fmt.Errorf(format, args...))
	l.Error(fmt.Sprintf(format, args...))
	select {}
}
