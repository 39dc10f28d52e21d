package parley

import (
	"context"
	"errors"
	"fmt"
	"time"

	"connectrpc.com/connect"

	parleyv1 "github.com/parleyhq/parley/gen/go/parley/v1"
)

// attemptFunc makes one attempt. It may be called several times.
type attemptFunc func(ctx context.Context, n *endpoint) error

// deadline returns the context of a call: ctx if it has a deadline, else one that ends after the
// call timeout.
func (c *Client) deadline(ctx context.Context) (context.Context, context.CancelFunc) {
	if _, has := ctx.Deadline(); has || c.callTimeout <= 0 {
		return ctx, func() {}
	}
	return context.WithTimeoutCause(ctx, c.callTimeout, &callTimeoutError{timeout: c.callTimeout})
}

// do makes a call: it retries until an attempt succeeds, a failure is final, or ctx or the call
// timeout ends.
func (c *Client) do(ctx context.Context, name string, attempt attemptFunc) error {
	ctx, cancel := c.deadline(ctx)
	defer cancel()
	return c.retry(ctx, name, attempt)
}

// once makes a call without retries, except that it tries again once with a new token if the token
// was refused.
func (c *Client) once(ctx context.Context, attempt attemptFunc) error {
	ctx, cancel := c.deadline(ctx)
	defer cancel()
	_, err := c.try(ctx, c.attemptTimeout, attempt)
	if err != nil && ctx.Err() != nil {
		return interrupted(ctx, failureBefore(ctx, nil, err))
	}
	return err
}

// try makes one attempt, which may take up to limit. If the token was refused and can be replaced,
// it makes one more attempt at once: a refused call changed nothing. It returns the node of the
// last attempt, or nil if there was none.
func (c *Client) try(ctx context.Context, limit time.Duration, attempt attemptFunc) (*endpoint, error) {
	for again := true; ; again = false {
		node, token, err := c.attemptOnce(ctx, limit, attempt)
		if token == "" || !tokenRefused(err) || !c.tokens.invalidate(token) || !again {
			return node, err
		}
	}
}

func (c *Client) attemptOnce(
	caller context.Context, limit time.Duration, attempt attemptFunc,
) (node *endpoint, token string, err error) {
	ctx, token, err := c.authorize(caller)
	if err != nil {
		return nil, "", toError(err)
	}
	node = c.endpoints.pick()
	began := c.endpoints.now() // before the limit starts, so that an attempt that reaches it has taken at least as long
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	err = toError(attempt(ctx, node))
	if e, ok := errors.AsType[*Error](err); ok && e.unanswered && ctx.Err() != nil && caller.Err() == nil {
		e.Message = fmt.Sprintf("no answer from %s within %s", node.addr, limit)
	}
	c.endpoints.recordOutcome(caller, node, began, limit, err)
	return node, token, err
}

// limit returns the time limit of an attempt after the given number of failures. It grows, because
// a limit that suits a dead node may be too short for a slow network.
func (c *Client) limit(failures int) time.Duration { return c.attemptTimeout << min(failures, 2) }

// retry makes attempts until one succeeds, a failure is final, or ctx ends.
func (c *Client) retry(ctx context.Context, name string, attempt attemptFunc) error {
	var last error
	for failures := 0; ; failures++ {
		node, err := c.try(ctx, c.limit(failures), attempt)
		switch {
		case err == nil:
			return nil
		case ctx.Err() != nil:
			return interrupted(ctx, failureBefore(ctx, last, err))
		case !c.worthRetrying(err):
			return err
		}
		last = err
		if err := c.pause(ctx, name, failures, node, err); err != nil {
			return err
		}
	}
}

// pause waits before the next attempt. It does not wait if the failed attempt was the first and the
// next one goes to another node, unless the server required a wait. If ctx ends, it returns the
// error of interrupted, which wraps failure.
func (c *Client) pause(ctx context.Context, name string, failures int, node *endpoint, failure error) error {
	wait := c.backoff.wait(failures, retryAfter(failure))
	if failures == 0 && retryAfter(failure) == 0 && node != nil && c.endpoints.hasOther(node) {
		wait = 0
	}
	c.log.WarnContext(ctx, "retrying", "call", name, "addr", node.name(), "wait", wait, "error", failure)
	if err := sleep(ctx, wait); err != nil {
		return interrupted(ctx, failure)
	}
	return nil
}

// orElse returns last, or err if last is nil.
func orElse(last, err error) error {
	if last != nil {
		return last
	}
	return err
}

// worthRetrying reports whether the same call may succeed later. An expired token can be replaced
// only if there is a token source.
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

// tokenRefused reports whether the server refused the token, which another one may replace. One
// that was revoked is not replaced: its user has signed out.
func tokenRefused(err error) bool {
	var e *Error
	if !errors.As(err, &e) {
		return false
	}
	if e.Reason == parleyv1.ErrorReason_ERROR_REASON_TOKEN_REVOKED {
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
