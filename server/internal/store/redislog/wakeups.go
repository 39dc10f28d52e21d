package redislog

import (
	"context"
	"errors"
	"log/slog"
	"math/rand/v2"
	"net"
	"time"

	"github.com/redis/go-redis/v9"
)

const (
	// wakeupsQuiet is how long nothing may come before the connection is tried: a network that drops
	// packets says nothing.
	wakeupsQuiet = 3 * time.Second
	// wakeupsBackoff is the least and the most time between two connections.
	wakeupsBackoff, wakeupsBackoffMost = 50 * time.Millisecond, 2 * time.Second
)

// Wakeups implements qlog.InputStore.
func (s *Store) Wakeups(ctx context.Context, fn func(topic string, partition int)) error {
	backoff := wakeupsBackoff
	for {
		connected, err := s.hear(ctx, fn)
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if connected {
			backoff = wakeupsBackoff
		}
		wait := backoff/2 + rand.N(backoff/2) // so that nodes don't come back all at once
		s.log.WarnContext(ctx, "the connection that wake-ups of queues come on was lost", slog.Any("error", err), slog.Duration("retry_in", wait))
		backoff = min(2*backoff, wakeupsBackoffMost)
		timer := time.NewTimer(wait)
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return ctx.Err()
		}
	}
}

// hear subscribes and calls fn until the connection fails or ctx ends. connected reports whether
// the subscription stood.
func (s *Store) hear(ctx context.Context, fn func(topic string, partition int)) (connected bool, err error) {
	sub := s.client.Subscribe(ctx, s.keys.wakeups())
	defer func() { _ = sub.Close() }()
	// A read does not end with its context.
	defer context.AfterFunc(ctx, func() { _ = sub.Close() })()
	for tried := false; ; {
		got, err := sub.ReceiveTimeout(ctx, wakeupsQuiet)
		var timeout net.Error
		switch {
		case err == nil:
			tried = false
		case errors.As(err, &timeout) && timeout.Timeout() && !tried && ctx.Err() == nil:
			if err := sub.Ping(ctx); err != nil {
				return connected, err
			}
			tried = true
			continue
		default:
			return connected, err
		}
		switch m := got.(type) {
		case *redis.Subscription:
			connected = true
			fn("", 0)
		case *redis.Message:
			if topic, partition, ok := parseWakeup(m.Payload); ok {
				fn(topic, partition)
			}
		}
	}
}
