package parley

import (
	"context"
	"errors"
	"time"

	"connectrpc.com/connect"

	parleyv1 "github.com/parleyhq/parley/gen/go/parley/v1"
	"github.com/parleyhq/parley/gen/go/parley/v1/parleyv1connect"
)

// attemptFunc makes one attempt. It may run several times.
type attemptFunc func(ctx context.Context, rpc parleyv1connect.MessageServiceClient) error

// call makes one attempt within limit, and one more at once if the token was refused and can be replaced: a refused
// call did nothing.
func (c *Client) call(ctx context.Context, limit time.Duration, attempt attemptFunc) error {
	for again := true; ; again = false {
		token, err := c.attemptOnce(ctx, limit, attempt)
		if token == "" || !refused(err) || !c.tokens.refuse(token) || !again {
			return err
		}
	}
}

func (c *Client) attemptOnce(ctx context.Context, limit time.Duration, attempt attemptFunc) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	ctx, token, err := c.authorize(ctx)
	if err != nil {
		return "", toError(err)
	}
	return token, toError(attempt(ctx, c.endpoints.pick()))
}

// retry makes attempts until one succeeds, fails for good, or ctx ends.
func (c *Client) retry(ctx context.Context, name string, attempt attemptFunc) error {
	var last error
	for failures := 0; ; failures++ {
		err := c.call(ctx, c.attempt, attempt)
		switch {
		case err == nil:
			return nil
		case ctx.Err() != nil:
			return interrupted(ctx, orElse(last, err))
		case !c.worthRetrying(err):
			return err
		}
		last = err
		if err := c.pause(ctx, name, failures, err); err != nil {
			return err
		}
	}
}

// pause waits before the next attempt. Its error is that of ctx, with the failure that was being waited out.
func (c *Client) pause(ctx context.Context, name string, failures int, failure error) error {
	wait := c.backoff.wait(failures, retryAfter(failure))
	c.log.WarnContext(ctx, "retrying", "call", name, "wait", wait, "error", failure)
	if err := sleep(ctx, wait); err != nil {
		return interrupted(ctx, failure)
	}
	return nil
}

// orElse prefers the failure before to the one that ctx itself caused.
func orElse(last, err error) error {
	if last != nil {
		return last
	}
	return err
}

// worthRetrying reports whether the same call may succeed later. An expired token can only be replaced if there is a
// source of tokens.
func (c *Client) worthRetrying(err error) bool {
	var e *Error
	if !errors.As(err, &e) {
		return false
	}
	if e.Reason == parleyv1.ErrorReason_ERROR_REASON_TOKEN_EXPIRED && !c.tokens.refreshable() {
		return false
	}
	return e.Retryable
}

// refused reports whether the server refused the token.
func refused(err error) bool {
	var e *Error
	if !errors.As(err, &e) {
		return false
	}
	return e.Code == connect.CodeUnauthenticated || e.Reason == parleyv1.ErrorReason_ERROR_REASON_TOKEN_EXPIRED
}

func retryAfter(err error) time.Duration {
	if e, ok := errors.AsType[*Error](err); ok {
		return e.RetryAfter
	}
	return 0
}
