package server

import (
	"context"
	"fmt"
	"log/slog"
	"sync/atomic"
	"time"

	"go.opentelemetry.io/otel/metric"

	"github.com/parleyhq/parley/server/internal/lifecycle"
)

const (
	clockEvery   = 10 * time.Second
	clockTimeout = 2 * time.Second
	// clockRetry is the time between two measurements while none succeeds. Every message that a node
	// stores in between may have a wrong time.
	clockRetry = 200 * time.Millisecond
	// clockTries is how often a node measures before it starts without knowing the store's time.
	clockTries = 3
	// clockTolerance is the difference to the store's clock that is left as it is. Clocks that NTP
	// keeps differ by much less.
	clockTolerance = 500 * time.Millisecond
)

// clockStore is a store on other machines, with clocks of their own.
type clockStore interface {
	// Time returns the time of the store's clock.
	Time(ctx context.Context) (time.Time, error)
}

// storeClock is the clock that messages get their times from. It follows the node's clock or, if
// that differs from the store's by more than clockTolerance, the store's. Times do not go back
// within a channel, so a single node with a fast clock would otherwise stop the time of every
// channel that it writes to. It measures the difference at the start and every clockEvery, and
// after a failure every clockRetry.
type storeClock struct {
	store clockStore // nil if the store is in this process
	now   func() time.Time
	log   *slog.Logger
	life  lifecycle.Base
	// offset is added to the node's clock.
	offset atomic.Int64 // ns
}

// newStoreClock creates the clock of a store. A store that is not a clockStore has the node's
// clock.
func newStoreClock(store any, now func() time.Time, log *slog.Logger) *storeClock {
	c := &storeClock{now: now, log: log}
	c.store, _ = store.(clockStore)
	return c
}

// observe creates the gauge of the difference.
func (c *storeClock) observe(meters metric.MeterProvider) error {
	_, err := meters.Meter(scope).Float64ObservableGauge("parley.clock.offset", metric.WithUnit("s"),
		metric.WithDescription("What is added to the node's clock for the times of messages; 0 while it differs little from the store's."),
		metric.WithFloat64Callback(func(_ context.Context, o metric.Float64Observer) error {
			o.Observe(time.Duration(c.offset.Load()).Seconds())
			return nil
		}))
	if err != nil {
		return fmt.Errorf("clock offset: %w", err)
	}
	return nil
}

// Start measures once and goes on measuring. See lifecycle.Service.
func (c *storeClock) Start(ctx context.Context) error {
	return c.life.Start(ctx, func(ctx context.Context, run *lifecycle.Run) error {
		if c.store != nil {
			measured := c.first(ctx)
			run.Go(func(ctx context.Context) { c.follow(ctx, measured) })
		}
		return nil
	})
}

// first measures until that succeeds, clockTries times or for clockTimeout at most.
func (c *storeClock) first(ctx context.Context) bool {
	ctx, cancel := context.WithTimeout(ctx, clockTimeout)
	defer cancel()
	for range clockTries {
		if c.measure(ctx) {
			return true
		}
	}
	return false
}

// follow measures until ctx ends.
func (c *storeClock) follow(ctx context.Context, measured bool) {
	for {
		wait := clockEvery
		if !measured {
			wait = clockRetry
		}
		select {
		case <-time.After(wait):
		case <-ctx.Done():
			return
		}
		measured = c.measure(ctx)
	}
}

// Stop stops measuring. See lifecycle.Service.
func (c *storeClock) Stop(ctx context.Context) error { return c.life.Stop(ctx) }

// Now returns the time. It may be called concurrently.
func (c *storeClock) Now() time.Time { return c.now().Add(time.Duration(c.offset.Load())) }

// Store returns the time of the store's clock. If the store is in this process, it is the node's.
// It may be called concurrently.
func (c *storeClock) Store(ctx context.Context) (time.Time, error) {
	if c.store == nil {
		return c.now(), nil
	}
	ctx, cancel := context.WithTimeout(ctx, clockTimeout)
	defer cancel()
	return c.store.Time(ctx)
}

// measure reads the store's clock, and reports whether the offset is right now. The answer was
// written at some time during the call. If the call took longer than clockTolerance, its answer
// counts only if the offset is wrong whenever that was.
func (c *storeClock) measure(ctx context.Context) bool {
	ctx, cancel := context.WithTimeout(ctx, clockTimeout)
	defer cancel()
	began := time.Now()
	at, err := c.store.Time(ctx)
	now := c.now()
	took := time.Since(began) // after now, so that a process that is suspended in between is noticed
	if err != nil {
		c.log.DebugContext(ctx, "the store's clock could not be read", "took", took, "error", err)
		return false
	}
	was := time.Duration(c.offset.Load())
	offset := at.Sub(now.Add(-took / 2)).Round(time.Millisecond)
	if took > clockTolerance && (was-offset).Abs() <= took/2 {
		c.log.DebugContext(ctx, "the store's clock could not be read in time", "took", took)
		return false
	}
	if offset.Abs() <= clockTolerance {
		offset = 0
	}
	c.offset.Store(int64(offset))
	switch {
	case offset == 0 && was != 0:
		c.log.InfoContext(ctx, "the node's clock agrees with the store's again")
	case (was - offset).Abs() > clockTolerance:
		c.log.WarnContext(ctx, "the node's clock differs from the store's, which messages get their times from", "offset", offset)
	}
	return true
}
