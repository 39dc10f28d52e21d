package server

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/parleyhq/parley/server/internal/lifecycle"
)

// errEpochReplaced is Run's error if the store's epoch was replaced, as `parleyd admin restored`
// does after a backup was restored. The node's memory belongs to the old epoch.
var errEpochReplaced = errors.New("the store's epoch was replaced, as after a restore; start the node again")

const (
	epochEvery   = time.Second
	epochTimeout = 5 * time.Second
)

// epochStore reads the epoch that a store has now, which another process may have replaced.
type epochStore interface {
	StoredEpoch(ctx context.Context) (string, error)
}

// epochWatcher polls the store's epoch until it differs from the node's.
type epochWatcher struct {
	store epochStore
	epoch string
	log   *slog.Logger
	life  lifecycle.Base
	// replaced is closed once the store's epoch differs from the one that this node started with.
	replaced chan struct{}
}

func newEpochWatcher(store epochStore, epoch string, log *slog.Logger) *epochWatcher {
	return &epochWatcher{store: store, epoch: epoch, log: log, replaced: make(chan struct{})}
}

// Start starts polling. See lifecycle.Service.
func (w *epochWatcher) Start(ctx context.Context) error {
	return w.life.Start(ctx, func(_ context.Context, run *lifecycle.Run) error {
		run.Go(w.watch)
		return nil
	})
}

// Stop stops polling. See lifecycle.Service.
func (w *epochWatcher) Stop(ctx context.Context) error { return w.life.Stop(ctx) }

func (w *epochWatcher) watch(ctx context.Context) {
	poll(ctx, epochEvery, func(ctx context.Context) bool {
		call, end := context.WithTimeout(ctx, epochTimeout)
		defer end()
		now, err := w.store.StoredEpoch(call)
		switch {
		case err != nil:
			w.log.DebugContext(ctx, "reading the store's epoch failed", "error", err)
			return false
		case now == w.epoch:
			return false
		}
		close(w.replaced)
		return true
	})
}
