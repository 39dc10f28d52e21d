package natsbus

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/parleyhq/parley/server/internal/cluster"
)

const (
	// maxServing bounds the concurrent requests to one topic of a node. Further requests are answered
	// with busyHeader.
	maxServing = 1024
	// maxAsk bounds the time in which a request is sent, handled and answered, also for a request
	// without remainingHeader.
	maxAsk = 10 * time.Second
	// remainingHeader carries how many milliseconds the requester will keep waiting. It is not a
	// time of day, because clocks differ.
	remainingHeader = "Parley-Remaining-Ms"
	// busyHeader is set in the answer to a request that was not handled, because there are too many.
	busyHeader = "Parley-Busy"
)

// Nodes implements cluster.Transport over core NATS. While NATS is away, calls fail at once and
// nothing is buffered. Safe for concurrent use.
type Nodes struct {
	bus *Bus
}

var _ cluster.Transport = (*Nodes)(nil)

// Nodes returns the transport between nodes. It ends with the Bus.
func (b *Bus) Nodes() *Nodes { return &Nodes{bus: b} }

// Broadcast implements cluster.Transport.
func (n *Nodes) Broadcast(topic string, payload []byte) error {
	subject, err := topicSubject(topic)
	if err != nil {
		return fmt.Errorf("broadcast: %w", err)
	}
	if err := n.bus.nc.Publish(subject, payload); err != nil {
		return fmt.Errorf("broadcast to %s: %w", subject, err)
	}
	return nil
}

// Listen implements cluster.Transport. While NATS is away, the subscription stays and resumes on
// reconnect.
func (n *Nodes) Listen(topic string, fn func(payload []byte)) (cancel func(), err error) {
	subject, err := topicSubject(topic)
	if err != nil {
		return nil, fmt.Errorf("listen: %w", err)
	}
	cancel, err = n.bus.listen(subject, nats.DefaultSubPendingMsgsLimit, nats.DefaultSubPendingBytesLimit,
		func(msg *nats.Msg) { fn(msg.Data) })
	if err != nil {
		return nil, err
	}
	n.bus.flush(subject)
	return cancel, nil
}

// Request implements cluster.Transport. It waits at most 10 s.
func (n *Nodes) Request(ctx context.Context, node, topic string, payload []byte) ([]byte, error) {
	subject, err := nodeSubject(node, topic)
	if err != nil {
		return nil, fmt.Errorf("request: %w: %w", err, cluster.ErrNoResponder)
	}
	ctx, cancel := context.WithTimeout(ctx, maxAsk)
	defer cancel()
	if err := ctx.Err(); err != nil {
		// Nothing was sent.
		return nil, fmt.Errorf("request to %s: %w: %w", subject, context.Cause(ctx), cluster.ErrNoResponder)
	}
	if !n.bus.nc.IsConnected() {
		return nil, fmt.Errorf("request to %s: %w", subject, cluster.ErrDisconnected)
	}
	msg := nats.NewMsg(subject)
	msg.Data = payload
	if deadline, ok := ctx.Deadline(); ok {
		msg.Header.Set(remainingHeader, strconv.FormatInt(max(time.Until(deadline).Milliseconds(), 1), 10))
	}
	answer, err := n.bus.nc.RequestMsgWithContext(ctx, msg)
	switch {
	case err == nil && answer.Header.Get(busyHeader) != "":
		return nil, fmt.Errorf("request to %s: %w", subject, cluster.ErrBusy)
	case err == nil:
		return answer.Data, nil
	case errors.Is(err, nats.ErrNoResponders):
		return nil, fmt.Errorf("request to %s: %w", subject, cluster.ErrNoResponder)
	case errors.Is(err, nats.ErrReconnectBufExceeded), errors.Is(err, nats.ErrConnectionDraining):
		// The request was not sent. If the connection closes while waiting for the answer, it may
		// have been.
		return nil, fmt.Errorf("request to %s: %w: %w", subject, err, cluster.ErrDisconnected)
	case errors.Is(err, nats.ErrMaxPayload):
		return nil, fmt.Errorf("request to %s: %w: %w", subject, err, cluster.ErrNoResponder)
	}
	return nil, fmt.Errorf("request to %s: %w", subject, err)
}

// Serve implements cluster.Transport. At most 1024 requests run at once; the requesters of others
// get ErrBusy. Requests whose requester has stopped waiting are dropped without an answer.
func (n *Nodes) Serve(
	node, topic string, fn func(ctx context.Context, payload []byte) []byte,
) (cancel func(), err error) {
	subject, err := nodeSubject(node, topic)
	if err != nil {
		return nil, fmt.Errorf("serve: %w", err)
	}
	s := &requestServer{bus: n.bus, fn: fn}
	sub, err := n.bus.subscribe(subject, nats.DefaultSubPendingMsgsLimit, nats.DefaultSubPendingBytesLimit, s.accept)
	if err != nil {
		return nil, err
	}
	n.bus.flush(subject)
	return func() {
		n.drain(sub)
		s.close()
	}, nil
}

// drain ends a subscription. Requests that the server has sent before are still handled, as their
// requesters would get no answer otherwise. It waits at most half a second for them to be accepted.
func (n *Nodes) drain(sub *nats.Subscription) {
	done := make(chan struct{})
	sub.SetClosedHandler(func(string) { close(done) })
	if n.bus.nc.IsConnected() && sub.Drain() == nil {
		select {
		case <-done:
		case <-time.After(2 * interestWait):
		}
	}
	n.bus.unsubscribe(sub)
}

// requestServer tracks the requests to one topic of a node.
type requestServer struct {
	bus *Bus
	fn  func(ctx context.Context, payload []byte) []byte

	inFlight sync.WaitGroup
	mu       sync.Mutex // guards the fields below
	closed   bool
	n        int
}

// accept starts handling a request in a goroutine. If maxServing are in flight or the server is
// closed, it answers that the request is not handled.
func (s *requestServer) accept(msg *nats.Msg) {
	deadline := time.Now().Add(remaining(msg))
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed || s.n >= maxServing {
		s.reply(&nats.Msg{Subject: msg.Reply, Header: nats.Header{busyHeader: {"1"}}})
		return
	}
	s.n++
	s.inFlight.Go(func() {
		defer s.release()
		s.respond(msg, deadline)
	})
}

func (s *requestServer) release() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.n--
}

// respond handles a request until its deadline. If the deadline has passed already, because the
// process was suspended, it drops the request.
func (s *requestServer) respond(msg *nats.Msg, deadline time.Time) {
	ctx, cancel := context.WithDeadline(context.Background(), deadline) //nolint:forbidigo // the request's own life
	defer cancel()
	if ctx.Err() != nil {
		return
	}
	data := s.fn(ctx, msg.Data)
	if data == nil {
		return
	}
	s.reply(&nats.Msg{Subject: msg.Reply, Data: data})
}

// reply sends an answer. If that fails, the requester's wait ends with its deadline.
func (s *requestServer) reply(answer *nats.Msg) {
	if err := s.bus.nc.PublishMsg(answer); err != nil {
		s.bus.log.Debug("respond to node failed", "error", err)
	}
}

// close accepts no more requests and waits for those in flight.
func (s *requestServer) close() {
	s.mu.Lock()
	s.closed = true
	s.mu.Unlock()
	s.inFlight.Wait()
}

// remaining returns how long the requester keeps waiting, or maxAsk if the request has no valid
// remainingHeader.
func remaining(msg *nats.Msg) time.Duration {
	ms, err := strconv.ParseInt(msg.Header.Get(remainingHeader), 10, 64)
	if err != nil || ms < 0 || ms > maxAsk.Milliseconds() {
		return maxAsk
	}
	return time.Duration(ms) * time.Millisecond
}
