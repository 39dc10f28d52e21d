package parleytest

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/types/known/durationpb"

	parleyv1 "github.com/parleyhq/parley/gen/go/parley/v1"
	"github.com/parleyhq/parley/gen/go/parley/v1/parleyv1connect"
)

// queueHandler implements QueueService.
type queueHandler struct {
	parleyv1connect.UnimplementedQueueServiceHandler

	s *Server
}

// Consume implements the service.
func (h queueHandler) Consume(
	ctx context.Context, req *parleyv1.ConsumeRequest, out *connect.ServerStream[parleyv1.ConsumeResponse],
) error {
	fault, err := h.s.begin("Consume", tokenOf(ctx), req)
	if err != nil {
		return err
	}
	if fault != nil {
		return fault.happen()
	}
	if err := checkForm(req); err != nil {
		return err
	}
	one, stream, first, err := h.s.openSession(ctx, req, "")
	if err != nil {
		return err
	}
	defer h.s.detach(one, stream)
	return h.s.serveSession(ctx, one, stream, first, out.Send)
}

// StreamingConsume implements the service.
func (h queueHandler) StreamingConsume(
	ctx context.Context, stream *connect.BidiStream[parleyv1.StreamingConsumeRequest, parleyv1.StreamingConsumeResponse],
) error {
	start, err := stream.Receive()
	if err != nil {
		return err
	}
	fault, err := h.s.begin("StreamingConsume", tokenOf(ctx), start)
	if err != nil {
		return err
	}
	if fault != nil {
		return fault.happen()
	}
	if err := checkForm(start); err != nil {
		return err
	}
	if start.GetStart() == nil {
		return invalidField("start", 0)
	}
	one, live, first, err := h.s.openSession(ctx, start.GetStart(), "start.")
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	defer h.s.detach(one, live)
	c := &sessionStream{s: h.s, one: one, send: stream.Send}
	defer c.close()
	go func() {
		for {
			req, err := stream.Receive()
			if err == nil {
				err = c.request(ctx, req)
			}
			if err != nil {
				cancel(err)
				return
			}
		}
	}()
	err = h.s.serveSession(ctx, one, live, first, func(res *parleyv1.ConsumeResponse) error {
		return c.write(&parleyv1.StreamingConsumeResponse{Frame: &parleyv1.StreamingConsumeResponse_Consume{Consume: res}})
	})
	c.serving.Lock()
	defer c.serving.Unlock()
	if errors.Is(context.Cause(ctx), errDrop) {
		return (&Fault{Drop: true}).happen()
	}
	return err
}

var errDrop = errors.New("dropped")

// sessionStream is the state of one StreamingConsume.
type sessionStream struct {
	s   *Server
	one *session
	// serving is held until a request is answered.
	serving sync.Mutex

	mu   sync.Mutex // held while sending
	over bool
	send func(*parleyv1.StreamingConsumeResponse) error
}

func (c *sessionStream) close() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.over = true
}

func (c *sessionStream) write(res *parleyv1.StreamingConsumeResponse) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.over {
		return context.Canceled
	}
	return c.send(res)
}

// request executes a request and answers it, with the fault that the test set. A request without an
// id is answered only if it, or one of its items, fails.
func (c *sessionStream) request(ctx context.Context, req *parleyv1.StreamingConsumeRequest) error {
	c.serving.Lock()
	defer c.serving.Unlock()
	answer := &parleyv1.RequestResults{RequestId: req.GetRequestId()}
	fault, err := c.s.begin(methodOf(req), tokenOf(ctx), req)
	if err == nil && (fault == nil || fault.Applied) {
		c.s.mu.Lock()
		answer.Results, err = c.s.requestLocked(ctx, c.one, req)
		c.s.mu.Unlock()
	}
	if fault != nil {
		if fault.Drop {
			return errDrop
		}
		err = fault.Err
	}
	if err != nil {
		answer.Results, answer.Error = nil, itemError(err)
	}
	failed := answer.GetError() != nil
	for _, r := range answer.GetResults() {
		failed = failed || r.GetError() != nil
	}
	if req.GetRequestId() == 0 && !failed {
		return nil
	}
	return c.write(&parleyv1.StreamingConsumeResponse{Frame: &parleyv1.StreamingConsumeResponse_Results{Results: answer}})
}

// methodOf returns the name of the unary call that does the same as a request.
func methodOf(req *parleyv1.StreamingConsumeRequest) string {
	switch {
	case req.GetAck() != nil:
		return "Ack"
	case req.GetNack() != nil:
		return "Nack"
	case req.GetExtend() != nil:
		return "Extend"
	case req.GetLeave() != nil:
		return "Leave"
	default:
		return "UpdateSession"
	}
}

// serveSession sends a stream's frames until ctx ends, sending fails or the stream must end.
func (s *Server) serveSession(
	ctx context.Context, one *session, stream *queueStream, first *parleyv1.SessionStarted, send func(*parleyv1.ConsumeResponse) error,
) error {
	if err := send(&parleyv1.ConsumeResponse{Frame: &parleyv1.ConsumeResponse_Started{Started: first}}); err != nil {
		return err
	}
	ticker := time.NewTicker(first.GetHeartbeatInterval().AsDuration())
	defer ticker.Stop()
	for {
		frames, next, changed, ended := s.framesOf(one, stream)
		if ended != nil {
			if ended.drop {
				return (&Fault{Drop: true}).happen()
			}
			return ended.err
		}
		for _, frame := range frames {
			if err := send(frame); err != nil {
				return err
			}
		}
		var due <-chan time.Time
		if !next.IsZero() {
			due = time.After(time.Until(next))
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-changed:
		case <-due:
		case <-ticker.C:
			s.mu.Lock()
			silent := s.silent
			s.mu.Unlock()
			if silent {
				continue
			}
			beat := &parleyv1.SessionHeartbeat{Unconfirmed: durationpb.New(0), Elapsed: durationpb.New(time.Since(stream.opened))}
			if err := send(&parleyv1.ConsumeResponse{Frame: &parleyv1.ConsumeResponse_Heartbeat{Heartbeat: beat}}); err != nil {
				return err
			}
		}
	}
}

// framesOf returns the frames to send to a session now. The caller must call it again at next,
// unless that is zero, and when changed is closed. ended is not nil if the stream must end instead.
func (s *Server) framesOf(
	one *session, stream *queueStream,
) (frames []*parleyv1.ConsumeResponse, next time.Time, changed <-chan struct{}, ended *end) {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := time.Now()
	next = s.tickLocked(now)
	if stream.end != nil {
		return nil, next, nil, stream.end
	}
	if s.silent {
		return nil, next, s.changed, nil
	}
	frames, one.told = one.told, nil
	if one.leaving {
		if len(one.held) == 0 && len(frames) == 0 {
			s.removeSessionLocked(one)
			return nil, next, nil, &end{}
		}
		if len(one.held) == 0 {
			next = now
		}
		return frames, next, s.changed, nil
	}
	if batch := one.takeLocked(now); len(batch) > 0 {
		frames = append(frames, &parleyv1.ConsumeResponse{Frame: &parleyv1.ConsumeResponse_Deliveries{
			Deliveries: &parleyv1.DeliveryBatch{Deliveries: batch},
		}})
		s.wakeLocked() // the other sessions may hold more now
		next = sooner(next, s.tickLocked(now))
	}
	return frames, next, s.changed, nil
}

// Receive implements the service.
func (h queueHandler) Receive(ctx context.Context, req *parleyv1.ReceiveRequest) (*parleyv1.ReceiveResponse, error) {
	one, err := do(ctx, h.s, "Receive", req, func() (*session, error) {
		g, err := h.s.groupLocked(req.GetTopic(), req.GetGroup())
		switch {
		case err != nil && h.s.topics[req.GetTopic()] != nil:
			return nil, noGroup("group")
		case err != nil:
			return nil, err
		case g.settings.GetMode() == parleyv1.GroupMode_GROUP_MODE_EXCLUSIVE:
			return nil, Error(connect.CodeFailedPrecondition, parleyv1.ErrorReason_ERROR_REASON_GROUP_EXCLUSIVE)
		default:
		}
		h.s.minted++
		return &session{
			id: fmt.Sprintf("session-%d.%s", h.s.minted, req.GetGroup()), s: h.s.shared, user: h.s.userLocked(ctx),
			name: cmp.Or(req.GetConsumer(), "receive"), topics: []string{req.GetTopic()}, group: req.GetGroup(), loose: true,
			timeout: req.GetAckTimeout().AsDuration(), since: time.Now(), held: make(map[string]*job),
			limits: limits{inFlight: max(1, int64(req.GetMaxMessages())), bytes: 1 << 20}, assigned: make(map[string][]int32),
		}, nil
	})
	if err != nil {
		return nil, err
	}
	wait := time.After(req.GetWait().AsDuration())
	for {
		res, next, changed := h.s.receive(one)
		var due <-chan time.Time
		if !next.IsZero() {
			due = time.After(time.Until(next))
		}
		if len(res.GetDeliveries()) > 0 {
			return res, nil
		}
		select {
		case <-changed:
		case <-due:
		case <-wait:
			return res, nil
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

// receive returns what a Receive answers now, when to look again, and what is closed at a change.
func (s *Server) receive(one *session) (*parleyv1.ReceiveResponse, time.Time, <-chan struct{}) {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := time.Now()
	next := s.tickLocked(now)
	one.limits.concurrency = one.limits.inFlight
	batch := one.takeLocked(now)
	if len(batch) > 0 {
		s.sessions[one.id] = one // it ends when it holds nothing
	}
	return &parleyv1.ReceiveResponse{SessionId: one.id, Deliveries: batch}, next, s.changed
}
