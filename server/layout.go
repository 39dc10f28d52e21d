package server

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/parleyhq/parley/server/internal/lifecycle"
	"github.com/parleyhq/parley/server/internal/store/redislog"
	"github.com/parleyhq/parley/server/internal/store/redisqueue"
)

const (
	layoutEvery = time.Second
	// redisWait bounds how long a start waits for Redis, which only queues, presence and speed need.
	redisWait = 2 * time.Second
)

// layoutStore checks whether the queues in Redis have the layout that this version reads.
type layoutStore interface {
	CheckLayout(ctx context.Context) error
}

// layouts are stores that are checked one after another.
type layouts []layoutStore

// CheckLayout implements layoutStore.
func (all layouts) CheckLayout(ctx context.Context) error {
	for _, store := range all {
		if err := store.CheckLayout(ctx); err != nil {
			return err
		}
	}
	return nil
}

// otherLayout reports whether err says that queues have another layout.
func otherLayout(err error) bool {
	return errors.Is(err, redislog.ErrOtherLayout) || errors.Is(err, redisqueue.ErrOtherLayout)
}

// layoutWatcher checks the layout of the queues of a Redis that was away at the start, once it is
// there.
type layoutWatcher struct {
	store layoutStore
	log   *slog.Logger
	life  lifecycle.Base
	// known is set if the layout was checked before the start.
	known bool
	// refused receives the error of another layout.
	refused chan error
}

func newLayoutWatcher(store layoutStore, log *slog.Logger) *layoutWatcher {
	return &layoutWatcher{store: store, log: log, refused: make(chan error, 1)}
}

// checkNow checks the layout before the start. It returns an error if the queues have another one,
// or ctx has ended, and not if Redis is away.
func (w *layoutWatcher) checkNow(ctx context.Context) error {
	err := w.check(ctx)
	switch {
	case err == nil:
		w.known = true
	case otherLayout(err):
		return err
	case ctx.Err() != nil:
		return ctx.Err()
	default:
		w.log.WarnContext(ctx, "Redis is not used until it can be reached: no queues and no presence, and messages come from the store", "error", err)
	}
	return nil
}

func (w *layoutWatcher) check(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, redisWait)
	defer cancel()
	return w.store.CheckLayout(ctx)
}

// Start starts checking, unless the layout is known. See lifecycle.Service.
func (w *layoutWatcher) Start(ctx context.Context) error {
	return w.life.Start(ctx, func(_ context.Context, run *lifecycle.Run) error {
		if !w.known {
			run.Go(w.watch)
		}
		return nil
	})
}

// Stop stops checking. See lifecycle.Service.
func (w *layoutWatcher) Stop(ctx context.Context) error { return w.life.Stop(ctx) }

func (w *layoutWatcher) watch(ctx context.Context) {
	poll(ctx, layoutEvery, func(ctx context.Context) bool {
		err := w.check(ctx)
		switch {
		case err == nil:
			w.log.InfoContext(ctx, "Redis is used from now on")
			return true
		case otherLayout(err):
			w.refused <- err
			return true
		}
		return false
	})
}
