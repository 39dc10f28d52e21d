package parley

import (
	"context"
	"errors"
	"time"

	"connectrpc.com/connect"

	parleyv1 "github.com/parleyhq/parley/gen/go/parley/v1"
)

const (
	// defaultHeartbeat counts where the server names no interval.
	defaultHeartbeat = 15 * time.Second
	// stableAfter is how long a stream must have lived for the waits to begin anew.
	stableAfter = 10 * time.Second
	// usefulAfter is how long a stream must have lived for the next one to be made without a wait, on a server's advice
	// or with a new token: else a server that ends each stream at once would be called without pause.
	usefulAfter = time.Second
)

// Why a subscription leaves a stream by itself.
var (
	errDead        = &Error{Code: connect.CodeUnavailable, Retryable: true, Message: "no frame for 2.5 heartbeat intervals"}
	errNoFirst     = &Error{Code: connect.CodeUnavailable, Retryable: true, Message: "no first frame in time"}
	errHole        = &Error{Code: connect.CodeDataLoss, Retryable: true, unanswered: true, Message: "the stream skipped entries"}
	errEnded       = &Error{Code: connect.CodeUnavailable, Retryable: true, Message: "the stream ended without a reason"}
	errResubscribe = &Error{Code: connect.CodeAborted, Retryable: true, Message: "a change of channels may not have arrived"}
)

// stream is one Subscribe call of a subscription. Its fields are guarded by the subscription's lock.
type stream struct {
	cancel context.CancelCauseFunc
	// session is empty until the first frame.
	session string
	// removed are channels that the request asked for and that were removed before the first frame.
	removed []string
}

// streamEnd is how a stream ended.
type streamEnd struct {
	err error
	// advice is set if the server asked to reconnect within a time.
	advice *time.Duration
	// token is what the stream was authorized with.
	token string
	// lived is how long the stream was live; 0 if it never was.
	lived time.Duration
	// node is where it was; nil if none was tried.
	node *endpoint
	// moved is true if the next stream goes to another node.
	moved bool
}

// run keeps a stream up until ctx ends or a failure is final.
func (s *Subscription) run(ctx context.Context, err error) {
	defer close(s.done)
	defer s.cancel()
	if err == nil {
		err = s.keepUp(ctx)
	}
	s.mu.Lock()
	s.err, s.stream = err, nil
	closed := s.closed
	s.mu.Unlock()
	s.cancel()
	s.work.Wait()
	if closed {
		err = ErrClosed
	}
	s.setState(StateChange{State: StateEnded, Err: err})
	close(s.queue)
}

func (s *Subscription) keepUp(ctx context.Context) error {
	var p pacer
	for {
		s.setState(StateChange{State: StateConnecting})
		end := s.follow(ctx)
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if s.passOverRefused(ctx, &end) {
			continue
		}
		s.client.judgeStream(&end)
		wait, again := p.next(s.client, end)
		if !again {
			return end.err
		}
		s.client.log.WarnContext(ctx, "subscription waits for its next stream",
			"addr", end.node.name(), "wait", wait, "error", end.err)
		s.setState(StateChange{State: StateWaiting, Err: end.err, Wait: wait, Addr: end.node.name()})
		if err := sleep(ctx, wait); err != nil {
			return err
		}
	}
}

// judgeStream draws from a stream's end whether its node works, and notes whether the next stream goes elsewhere.
func (c *Client) judgeStream(end *streamEnd) {
	if end.node == nil {
		return
	}
	if end.advice != nil || nodeFailed(end.err) {
		c.endpoints.fail(end.node)
	}
	end.moved = c.endpoints.elsewhere(end.node)
}

// pacer decides how long a subscription waits between two streams.
type pacer struct {
	// failures counts streams that ended before they were stable; refusals those that a new token did not help.
	failures, refusals int
}

// next gives the wait after a stream's end, or false if that was final.
func (p *pacer) next(c *Client, end streamEnd) (time.Duration, bool) {
	useful := end.lived >= usefulAfter
	if useful {
		p.refusals = 0
	}
	if end.lived >= stableAfter || useful && end.moved {
		p.failures = 0
	}
	var wait time.Duration
	replaced := end.token != "" && refused(end.err) && c.tokens.refuse(end.token)
	switch {
	case end.advice != nil:
		wait = upTo(*end.advice)
		if useful {
			return wait, true
		}
	case replaced && p.refusals == 0:
		// A new token is worth one attempt at once.
		p.refusals++
		return 0, true
	case !c.worthRetrying(end.err):
		return 0, false
	}
	if p.failures == 0 && end.moved && retryAfter(end.err) == 0 {
		// The first attempt at another node is made without a wait, but for the one advised.
		p.failures++
		return wait, true
	}
	wait += c.backoff.wait(p.failures, retryAfter(end.err))
	p.failures++
	return wait, true
}

// follow makes one stream and takes its frames until it ends.
func (s *Subscription) follow(life context.Context) streamEnd {
	ctx, cancel := context.WithCancelCause(life)
	defer cancel(nil)
	callCtx, token, err := s.client.authorize(ctx)
	if err != nil {
		return streamEnd{err: orCause(ctx, err)}
	}
	watch := time.AfterFunc(s.client.attempt, func() { cancel(errNoFirst) })
	defer func() { watch.Stop() }()
	end := streamEnd{token: token, node: s.client.endpoints.pick()}
	tried := s.client.endpoints.now()
	current := &stream{cancel: cancel}
	incoming, err := end.node.rpc.Subscribe(callCtx, s.begin(current))
	if err != nil {
		end.err = orCause(ctx, err)
		return end
	}
	// The context goes first: Close alone would wait for the server to end the stream.
	defer func() {
		cancel(nil)
		_ = incoming.Close()
	}()
	var began time.Time
	patience := s.client.attempt
	for incoming.Receive() {
		// While the program is slow to take events, the silence is not the server's.
		watch.Stop()
		frame := incoming.Msg()
		if began.IsZero() {
			began = time.Now()
			patience = 5 * heartbeat(frame.GetSession()) / 2
			watch = time.AfterFunc(patience, func() { cancel(errDead) })
			watch.Stop()
			s.client.endpoints.work(end.node, tried)
			s.live(ctx, current, end.node, frame.GetSession())
		}
		// What has arrived is kept though the stream is left meanwhile: the next one begins after it.
		sound := s.deliver(life, frame.GetEvents())
		end.lived = time.Since(began)
		switch {
		case !sound:
			end.err = errHole
			return end
		case frame.GetReconnect() != nil:
			end.advice = new(frame.GetReconnect().GetWithin().AsDuration())
			return end
		}
		watch.Reset(patience)
	}
	end.err = orCause(ctx, incoming.Err())
	if !began.IsZero() {
		end.lived = time.Since(began)
	}
	return end
}

// orCause gives why the subscription left the stream, if it did, and else what ended it.
func orCause(ctx context.Context, err error) error {
	var own *Error
	if cause := context.Cause(ctx); errors.As(cause, &own) {
		return own
	}
	if err == nil {
		return errEnded
	}
	return toError(err)
}

func heartbeat(session *parleyv1.Session) time.Duration {
	if d := session.GetHeartbeatInterval().AsDuration(); d > 0 {
		return d
	}
	return defaultHeartbeat
}

// begin makes current the stream, and its request from where each channel is.
func (s *Subscription) begin(current *stream) *parleyv1.SubscribeRequest {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.stream = current
	req := &parleyv1.SubscribeRequest{Channels: make([]*parleyv1.ChannelPosition, 0, len(s.order))}
	for _, id := range s.order {
		ch := s.channels[id]
		ch.begun, ch.onStream = false, ch.wanted()
		if !ch.onStream {
			continue
		}
		req.Channels = append(req.Channels, ch.request())
	}
	return req
}

// live notes the session, and asks for what was changed since the stream's request was made.
func (s *Subscription) live(ctx context.Context, current *stream, node *endpoint, session *parleyv1.Session) {
	s.mu.Lock()
	current.session, s.wasLive = session.GetSessionId(), true
	late := len(current.removed) > 0
	for _, ch := range s.channels {
		late = late || !ch.onStream && ch.wanted()
	}
	s.mu.Unlock()
	s.setState(StateChange{State: StateLive, Addr: node.addr})
	if !late {
		return
	}
	s.work.Go(func() {
		if err := s.catchUp(ctx, current); err != nil {
			current.cancel(err)
		}
	})
}

// deliver hands a frame's events on. It is false if the stream is not to be trusted; what came before the hole is
// delivered all the same.
func (s *Subscription) deliver(ctx context.Context, events []*parleyv1.ChannelEvent) bool {
	frame, sound := s.take(events)
	s.enqueue(ctx, frame)
	return sound
}

func (s *Subscription) enqueue(ctx context.Context, frame []queued) {
	if len(frame) == 0 {
		return
	}
	select {
	case s.queue <- frame:
	case <-ctx.Done():
	}
}
