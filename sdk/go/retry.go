package parley

import (
	"context"
	"errors"
	"time"

	"connectrpc.com/connect"

	parleyv1 "github.com/parleyhq/parley/gen/go/parley/v1"
)

// attemptFunc makes one attempt. It may run several times.
type attemptFunc func(ctx context.Context, n *endpoint) error

// call makes one attempt within limit, and one more at once if the token was refused and can be replaced: a refused
// call did nothing. It gives the node that was called last, nil if none was.
func (c *Client) call(ctx context.Context, limit time.Duration, attempt attemptFunc) (*endpoint, error) {
	for again := true; ; again = false {
		node, token, err := c.attemptOnce(ctx, limit, attempt)
		if token == "" || !refused(err) || !c.tokens.refuse(token) || !again {
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
	began := c.endpoints.now() // before the limit begins: what passes it has taken at least as long
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	err = toError(attempt(ctx, node))
	c.endpoints.judge(caller, node, began, limit, err)
	return node, token, err
}

// limit is how long an attempt after the given number of failures may take. It grows: what is too long for a dead node
// may be too short for a slow network.
func (c *Client) limit(failures int) time.Duration { return c.attempt << min(failures, 2) }

// retry makes attempts until one succeeds, fails for good, or ctx ends.
func (c *Client) retry(ctx context.Context, name string, attempt attemptFunc) error {
	var last error
	for failures := 0; ; failures++ {
		node, err := c.call(ctx, c.limit(failures), attempt)
		switch {
		case err == nil:
			return nil
		case ctx.Err() != nil:
			return interrupted(ctx, orElse(last, err))
		case !c.worthRetrying(err):
			return err
		}
		last = err
		if err := c.pause(ctx, name, failures, node, err); err != nil {
			return err
		}
	}
}

// pause waits before the next attempt, unless that is the first to go elsewhere. Its error is that of ctx, with the
// failure that was being waited out.
func (c *Client) pause(ctx context.Context, name string, failures int, node *endpoint, failure error) error {
	wait := c.backoff.wait(failures, retryAfter(failure))
	if failures == 0 && retryAfter(failure) == 0 && node != nil && c.endpoints.elsewhere(node) {
		wait = 0
	}
	c.log.WarnContext(ctx, "retrying", "call", name, "addr", node.name(), "wait", wait, "error", failure)
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
