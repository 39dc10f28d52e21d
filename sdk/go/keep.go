package parley

import (
	"context"
	"errors"
	"time"

	"connectrpc.com/connect"

	"github.com/parleyhq/parley/sdk/go/internal/link"
)

const (
	// defaultHeartbeat is the heartbeat interval if the server sends none.
	defaultHeartbeat = 15 * time.Second
	// stableAfter is how long a stream must have been live to reset the backoff.
	stableAfter = 10 * time.Second
	// usefulAfter is how long a stream must have been live for the next one to open without backoff,
	// after the server's advice to reconnect or with a new token. Without it a server that ends each
	// stream at once would keep the client in a busy loop.
	usefulAfter = time.Second
)

// Errors of streams that come from the client, not from the server.
var (
	errStreamDead   = &Error{Code: connect.CodeUnavailable, Retryable: true, Message: "no frame for 2.5 heartbeat intervals"}
	errNoFirstFrame = &Error{Code: connect.CodeUnavailable, Retryable: true, Message: "no first frame in time"}
	errNoReason     = &Error{Code: connect.CodeUnavailable, Retryable: true, Message: "the stream ended without a reason"}
)

// streamEnd describes how a stream ended. If there was no token, only err is set.
type streamEnd struct {
	err error
	// advice is the time within which the server asked to reconnect, or nil.
	advice *time.Duration
	// token is the token that the stream was opened with, or "".
	token string
	// liveFor is how long the stream was live. 0 if it never was.
	liveFor time.Duration
	// node is the stream's node. nil if none was tried.
	node *endpoint
	// failsOver is true if the next stream goes to another node, which is not avoided after a failure.
	failsOver bool
}

// streamLoop holds the callbacks of a stream that is reopened whenever it ends.
type streamLoop struct {
	name string
	// follow handles one stream's frames until it ends, and returns the reason.
	follow func(ctx context.Context, call *streamCall) error
	// connecting, if set, is called before each stream. waiting is called before each wait, also one
	// of 0.
	connecting func()
	waiting    func(end *streamEnd, wait time.Duration)
	// reopenNow, if set, reports whether to open the next stream at once, regardless of how the
	// last one ended.
	reopenNow func(ctx context.Context, end *streamEnd) bool
}

// keepStreams opens one stream after another until ctx ends or a failure is final. It returns that
// error.
func (c *Client) keepStreams(ctx context.Context, k *streamLoop) error {
	var p pacer
	for {
		if k.connecting != nil {
			k.connecting()
		}
		end := c.followStream(ctx, k)
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if k.reopenNow != nil && k.reopenNow(ctx, &end) {
			continue
		}
		c.recordStreamEnd(&end)
		wait, again := p.next(c, end)
		if !again {
			return end.err
		}
		c.log.WarnContext(ctx, "reconnecting", "stream", k.name, "addr", end.node.name(), "wait", wait, "error", end.err)
		k.waiting(&end, wait)
		if err := sleep(ctx, wait); err != nil {
			return err
		}
	}
}

// streamCall is one open stream. Only cancel and Leave are safe for concurrent use.
type streamCall struct {
	client *Client
	cancel context.CancelCauseFunc
	node   *endpoint
	// token is the one with which the stream was opened or, at its end, with which it lives.
	token    string
	dialedAt time.Time
	// liveSince is when the first frame arrived. It is zero before.
	liveSince time.Time
	// watch ends the stream after patience without a frame.
	watch    *time.Timer
	patience time.Duration
	// advice is the time within which the server asked to reconnect, or nil.
	advice *time.Duration
}

var _ link.Stream = (*streamCall)(nil)

// followStream opens one stream and follows it until it ends.
func (c *Client) followStream(life context.Context, k *streamLoop) streamEnd {
	ctx, cancel := context.WithCancelCause(life)
	defer cancel(nil)
	callCtx, token, err := c.authorize(ctx)
	if err != nil {
		return streamEnd{err: orCause(ctx, err)}
	}
	call := &streamCall{
		client: c, cancel: cancel, token: token, node: c.endpoints.pick(), dialedAt: c.endpoints.now(), patience: c.attemptTimeout,
		watch: time.AfterFunc(c.attemptTimeout, func() { cancel(errNoFirstFrame) }),
	}
	defer func() { call.watch.Stop() }()
	err = k.follow(callCtx, call)
	end := streamEnd{token: call.token, node: call.node, advice: call.advice}
	if end.advice == nil {
		end.err = orCause(ctx, err)
	}
	if !call.liveSince.IsZero() {
		end.liveFor = time.Since(call.liveSince)
	}
	return end
}

// Services implements link.Stream.
func (s *streamCall) Services() *link.Services { return &s.node.Services }

// Addr implements link.Stream.
func (s *streamCall) Addr() string { return s.node.addr }

// Live implements link.Stream. It stops the watchdog until the next Idle.
func (s *streamCall) Live(heartbeat time.Duration) {
	if heartbeat <= 0 {
		heartbeat = defaultHeartbeat
	}
	s.watch.Stop()
	s.liveSince = time.Now()
	s.patience = 5 * heartbeat / 2
	s.watch = time.AfterFunc(s.patience, func() { s.cancel(errStreamDead) })
	s.watch.Stop()
	s.client.endpoints.markWorking(s.node, s.dialedAt)
}

// Busy implements link.Stream.
func (s *streamCall) Busy() { s.watch.Stop() }

// Idle implements link.Stream.
func (s *streamCall) Idle() { s.watch.Reset(s.patience) }

// Advise implements link.Stream.
func (s *streamCall) Advise(within time.Duration) { s.advice = &within }

// Leave implements link.Stream.
func (s *streamCall) Leave(err error) { s.cancel(err) }

// recordStreamEnd decides from a stream's end whether its node failed. It sets end.failsOver.
func (c *Client) recordStreamEnd(end *streamEnd) {
	if end.node == nil {
		return
	}
	if end.advice != nil || nodeFailed(end.err) {
		c.endpoints.fail(end.node)
	}
	end.failsOver = c.endpoints.hasOther(end.node)
}

// pacer decides how long a client waits between two streams.
type pacer struct {
	// failures counts streams in a row that ended before they were stable. refusals counts refused
	// tokens since a stream was last live for usefulAfter.
	failures, refusals int
}

// next returns the wait after a stream's end. It returns false if the end is final.
func (p *pacer) next(c *Client, end streamEnd) (time.Duration, bool) {
	useful := end.liveFor >= usefulAfter
	if useful {
		p.refusals = 0
	}
	if end.liveFor >= stableAfter || useful && end.failsOver {
		p.failures = 0
	}
	var wait time.Duration
	replaced := end.token != "" && tokenRefused(end.err) && c.tokens.invalidate(end.token)
	switch {
	case end.advice != nil:
		wait = upTo(*end.advice)
		if useful {
			return wait, true
		}
	case replaced && p.refusals == 0:
		// A new token gets one immediate attempt.
		p.refusals++
		return 0, true
	case !c.worthRetrying(end.err):
		return 0, false
	}
	if p.failures == 0 && end.failsOver && retryAfter(end.err) == 0 {
		// The first attempt on another node is made without a wait, except the advised one.
		p.failures++
		return wait, true
	}
	wait += c.backoff.wait(p.failures, retryAfter(end.err))
	p.failures++
	return wait, true
}

// orCause returns the client's own reason for leaving the stream, if there is one, else the error
// that ended the stream.
func orCause(ctx context.Context, err error) error {
	var own *Error
	if cause := context.Cause(ctx); errors.As(cause, &own) {
		return own
	}
	if err == nil {
		return errNoReason
	}
	return toError(err)
}
