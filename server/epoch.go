package server

import (
	"context"
	"errors"
	"log/slog"
	"time"
)

// errEpochReplaced ends a node whose log was put back to an earlier state: all that it remembers is of the old one.
var errEpochReplaced = errors.New("the store's epoch was replaced, as after a restore; start the node again")

const (
	epochEvery   = time.Second
	epochTimeout = 5 * time.Second
)

// epochStore tells what epoch a store holds now.
type epochStore interface {
	StoredEpoch(ctx context.Context) (string, error)
}

// watchEpoch closes replaced when the store's epoch is another than the one that this node began with. Stop ends it.
func watchEpoch(ctx context.Context, store epochStore, epoch string, log *slog.Logger) (replaced <-chan struct{}, stop func()) {
	ctx, cancel := context.WithCancel(ctx)
	found, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		ticker := time.NewTicker(epochEvery)
		defer ticker.Stop()
		for {
			select {
			case <-ticker.C:
			case <-ctx.Done():
				return
			}
			call, end := context.WithTimeout(ctx, epochTimeout)
			now, err := store.StoredEpoch(call)
			end()
			switch {
			case err != nil:
				log.DebugContext(ctx, "the store's epoch can't be told", "error", err)
			case now != epoch:
				close(found)
				return
			}
		}
	}()
	return found, func() { cancel(); <-done }
}
