package parley

import (
	"context"
	"log/slog"
	"time"

	parleyv1 "github.com/parleyhq/parley/gen/go/parley/v1"
	"github.com/parleyhq/parley/sdk/go/internal/link"
)

// link.Of calls this function, so that the SDK's other packages can access a client.
var _ = link.Provide(func(client any) link.Link { return linked{client.(*Client)} }) //nolint:forcetypeassert // all callers pass a *Client

// linked implements link.Link for a client.
type linked struct{ c *Client }

var _ link.Link = linked{}

// Call implements link.Link.
func (l linked) Call(ctx context.Context, name string, attempt link.Attempt) error {
	return l.c.do(ctx, name, onServices(attempt))
}

// Retry implements link.Link.
func (l linked) Retry(ctx context.Context, name string, attempt link.Attempt) error {
	return l.c.retry(ctx, name, onServices(attempt))
}

// Once implements link.Link.
func (l linked) Once(ctx context.Context, wait time.Duration, attempt link.Attempt) error {
	_, err := l.c.try(ctx, l.c.attemptTimeout+wait, onServices(attempt))
	if err != nil && ctx.Err() != nil {
		return interrupted(ctx, failureBefore(ctx, nil, err))
	}
	return err
}

func onServices(attempt link.Attempt) attemptFunc {
	return func(ctx context.Context, n *endpoint) error { return attempt(ctx, &n.Services) }
}

// Deadline implements link.Link.
func (l linked) Deadline(ctx context.Context) (context.Context, context.CancelFunc) {
	return l.c.deadline(ctx)
}

// Interrupted implements link.Link.
func (linked) Interrupted(ctx context.Context, last error) error { return interrupted(ctx, last) }

// Batch implements link.Link.
func (l linked) Batch(ctx context.Context, b *link.Batch, items []int) error {
	return l.c.sendAll(ctx, b, items)
}

// Keep implements link.Link.
func (l linked) Keep(ctx context.Context, k *link.Keep) error {
	return l.c.keepStreams(ctx, &streamLoop{
		name:   k.Name,
		follow: func(ctx context.Context, call *streamCall) error { return k.Follow(ctx, call) },
		waiting: func(end *streamEnd, wait time.Duration) {
			if k.Waiting != nil {
				k.Waiting(end.node.name(), wait, end.err)
			}
		},
	})
}

// Error implements link.Link.
func (linked) Error(err error) error { return toError(err) }

// ItemError implements link.Link.
func (linked) ItemError(item *parleyv1.ItemError) error {
	if item == nil {
		return nil
	}
	return itemError(item)
}

// WorthRetrying implements link.Link.
func (l linked) WorthRetrying(err error) bool { return l.c.worthRetrying(err) }

// Wait implements link.Link.
func (l linked) Wait(failures int, failure error) time.Duration {
	return l.c.backoff.wait(failures, retryAfter(failure))
}

// AttemptTimeout implements link.Link.
func (l linked) AttemptTimeout() time.Duration { return l.c.attemptTimeout }

// Log implements link.Link.
func (l linked) Log() *slog.Logger { return l.c.log }
