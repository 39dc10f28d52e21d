package parleytest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
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
	c, err := h.s.openConsumer(ctx, req)
	if err != nil {
		return err
	}
	defer h.s.closeConsumer(c)
	return h.s.serveConsumer(ctx, c, out.Send)
}

// StreamingConsume implements the service.
func (h queueHandler) StreamingConsume(
	ctx context.Context, stream *connect.BidiStream[parleyv1.StreamingConsumeRequest, parleyv1.StreamingConsumeResponse],
) error {
	first, err := stream.Receive()
	if err != nil {
		return err
	}
	fault, err := h.s.begin("StreamingConsume", tokenOf(ctx), first.GetStart())
	if err != nil {
		return err
	}
	if fault != nil {
		return fault.happen()
	}
	c, err := h.s.openConsumer(ctx, first.GetStart())
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	defer h.s.closeConsumer(c)
	var mu sync.Mutex // held while sending
	over := false
	defer func() {
		mu.Lock()
		defer mu.Unlock()
		over = true
	}()
	send := func(res *parleyv1.StreamingConsumeResponse) error {
		mu.Lock()
		defer mu.Unlock()
		if over {
			return context.Canceled
		}
		return stream.Send(res)
	}
	var serving sync.Mutex // held until a request is answered
	one := func(req *parleyv1.StreamingConsumeRequest) error {
		serving.Lock()
		defer serving.Unlock()
		answer, drop := h.s.onStream(ctx, c, req)
		switch {
		case drop:
			return errDrop
		case answer == nil:
			return nil
		default:
			return send(&parleyv1.StreamingConsumeResponse{Frame: &parleyv1.StreamingConsumeResponse_Answer{Answer: answer}})
		}
	}
	go func() {
		for {
			req, err := stream.Receive()
			if err != nil {
				cancel(err)
				return
			}
			if err := one(req); err != nil {
				cancel(err)
				return
			}
		}
	}()
	err = h.s.serveConsumer(ctx, c, func(res *parleyv1.ConsumeResponse) error {
		return send(&parleyv1.StreamingConsumeResponse{Frame: &parleyv1.StreamingConsumeResponse_Consume{Consume: res}})
	})
	serving.Lock()
	defer serving.Unlock()
	if errors.Is(context.Cause(ctx), errDrop) {
		return (&Fault{Drop: true}).happen()
	}
	return err
}

var errDrop = errors.New("dropped")

// onStream executes one request of a StreamingConsume stream, with the fault that the test set. It
// returns a nil answer for a successful request without a call id. If drop is true, the stream must
// be reset.
func (s *Server) onStream(
	ctx context.Context, c *consumer, req *parleyv1.StreamingConsumeRequest,
) (answer *parleyv1.StreamingAnswer, drop bool) {
	answer = &parleyv1.StreamingAnswer{CallId: req.GetCallId()}
	method := map[bool]string{
		req.GetAck() != nil: "Ack", req.GetNack() != nil: "Nack", req.GetExtend() != nil: "Extend", req.GetLeave() != nil: "Leave",
	}[true]
	if method == "" {
		method = "GrantCredits"
	}
	fault, err := s.begin(method, tokenOf(ctx), req)
	if err == nil && (fault == nil || fault.Applied) {
		s.mu.Lock()
		answer.Results = s.doLocked(c, req)
		s.wakeLocked()
		s.mu.Unlock()
	}
	if fault != nil {
		if fault.Drop {
			return nil, true
		}
		err = fault.Err
	}
	if err != nil {
		answer.Results, answer.Error = nil, itemError(err)
	}
	if req.GetCallId() == 0 && answer.GetError() == nil {
		return nil, false
	}
	return answer, false
}

// doLocked executes a request of a consumer and returns one result per delivery that the request
// names.
func (s *shared) doLocked(c *consumer, req *parleyv1.StreamingConsumeRequest) []*parleyv1.SettleResult {
	var results []*parleyv1.SettleResult
	// result appends the result for one item of the list. In a list of tokens the item is the token
	// itself, so its error names the item rather than a field of it.
	result := func(list string, err error) {
		wire := prefixField(itemError(err), fmt.Sprintf("%s[%d]", list, len(results)))
		if list != "items" && wire.GetDetail().GetField() != "" {
			wire.Detail.Field = strings.TrimSuffix(wire.GetDetail().GetField(), ".token")
		}
		results = append(results, &parleyv1.SettleResult{Error: wire})
	}
	switch {
	case req.GetAck() != nil:
		for _, token := range req.GetAck().GetTokens() {
			result("tokens", c.settle(token, "ack", func(*item) { c.group.acked++ }))
		}
	case req.GetNack() != nil:
		for _, n := range req.GetNack().GetItems() {
			if err := checkNack(n); err != nil {
				result("items", err)
				continue
			}
			result("items", c.settle(n.GetToken(), "nack", func(i *item) { c.group.nacked(i, n) }))
		}
	case req.GetExtend() != nil:
		timeout := c.timeout
		if d := req.GetExtend().GetAckTimeout(); d != nil {
			timeout = d.AsDuration()
		}
		if req.GetExtend().GetAll() != nil {
			for token := range c.flight {
				_ = c.extend(token, timeout)
			}
		}
		for _, token := range req.GetExtend().GetDeliveries().GetTokens() {
			result("deliveries.tokens", c.extend(token, timeout))
		}
	case req.GetCredits() != nil:
		c.messages = max(c.messages, req.GetCredits().GetTotalMessages())
		c.bytes = max(c.bytes, req.GetCredits().GetTotalBytes())
	case req.GetLeave() != nil:
		c.leaving = true
	}
	return results
}

func (c *consumer) settle(token, how string, work func(i *item)) error {
	h := c.flight[token]
	switch {
	case h != nil:
	case !strings.HasPrefix(token, c.id+"-"):
		return errorAt(connect.CodeInvalidArgument, parleyv1.ErrorReason_ERROR_REASON_DELIVERY_TOKEN_INVALID, "token", 0)
	case c.settled[token] == "":
		return Error(connect.CodeFailedPrecondition, parleyv1.ErrorReason_ERROR_REASON_LEASE_LOST)
	case c.settled[token] == how:
		return nil
	default:
		return Error(connect.CodeFailedPrecondition, parleyv1.ErrorReason_ERROR_REASON_ALREADY_SETTLED)
	}
	delete(c.flight, token)
	c.settled[token] = how
	work(h.item)
	return nil
}

func (c *consumer) extend(token string, timeout time.Duration) error {
	h := c.flight[token]
	if h == nil {
		return c.settle(token, "", nil)
	}
	h.until = time.Now().Add(timeout)
	return nil
}

// checkNack returns an error if a field of a nack is invalid.
func checkNack(n *parleyv1.NackItem) error {
	if err := checkForm(n); err != nil {
		return err
	}
	if n.GetRelease() != nil && n.GetReason()+n.GetCode() != "" {
		return invalidField("release", 0)
	}
	return nil
}

// nacked applies a nack. A retry without a delay is due at once.
func (g *group) nacked(i *item, n *parleyv1.NackItem) {
	switch {
	case n.GetRelease() != nil:
		i.attempt--
		i.due = time.Time{}
		g.putBack(i)
	case n.GetDeadLetter() != nil, slices.Contains(g.topic.settings.GetRetry().GetNonRetryableCodes(), n.GetCode()):
		g.bury(i, n.GetReason(), n.GetCode())
	default:
		g.again(i, time.Now().Add(n.GetRetry().GetDelay().AsDuration()), n.GetReason(), n.GetCode())
	}
}

func (s *Server) openConsumer(ctx context.Context, req *parleyv1.ConsumeRequest) (*consumer, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := checkForm(req); err != nil {
		return nil, err
	}
	g, err := s.groupLocked(req.GetTopic(), req.GetGroup())
	if err != nil {
		return nil, err
	}
	s.minted++
	c := &consumer{
		id: fmt.Sprintf("consumer-%d", s.minted), node: s, group: g, name: req.GetConsumer(), token: tokenOf(ctx),
		timeout: 30 * time.Second, messages: req.GetMaxMessages(), bytes: 8 << 20,
		flight: make(map[string]*held), settled: make(map[string]string),
	}
	if req.GetAckTimeout() != nil {
		c.timeout = req.GetAckTimeout().AsDuration()
	}
	if req.MaxBytes != nil {
		c.bytes = req.GetMaxBytes()
	}
	g.consumers = append(g.consumers, c)
	s.consumers[c.id] = c
	g.share()
	s.wakeLocked()
	return c, nil
}

func (s *Server) closeConsumer(c *consumer) {
	s.mu.Lock()
	defer s.mu.Unlock()
	c.releaseAll()
	delete(s.consumers, c.id)
	c.group.consumers = slices.DeleteFunc(c.group.consumers, func(other *consumer) bool { return other == c })
	c.group.share()
	s.wakeLocked()
}

// serveConsumer sends a stream's frames until ctx ends, sending fails or the stream must end.
func (s *Server) serveConsumer(ctx context.Context, c *consumer, send func(*parleyv1.ConsumeResponse) error) error {
	s.mu.Lock()
	heartbeat := s.heartbeat
	s.mu.Unlock()
	err := send(&parleyv1.ConsumeResponse{Frame: &parleyv1.ConsumeResponse_Info{Info: &parleyv1.StreamInfo{
		StreamId: c.id, HeartbeatInterval: durationpb.New(heartbeat),
	}}})
	if err != nil {
		return err
	}
	ticker := time.NewTicker(heartbeat)
	defer ticker.Stop()
	for {
		frames, next, changed, ended := s.framesOf(c)
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
			beat := &parleyv1.ConsumeResponse{Frame: &parleyv1.ConsumeResponse_Heartbeat{Heartbeat: &parleyv1.Heartbeat{}}}
			if !silent {
				if err := send(beat); err != nil {
					return err
				}
			}
		}
	}
}

// framesOf returns the frames to send to a consumer now. The caller must call it again at next,
// unless that is zero, and when changed is closed. ended is not nil if the stream must end instead.
func (s *Server) framesOf(c *consumer) (frames []*parleyv1.ConsumeResponse, next time.Time, changed <-chan struct{}, ended *end) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if c.end != nil {
		return nil, next, nil, c.end
	}
	now := time.Now()
	for _, h := range c.flight {
		if now.After(h.until) {
			return nil, next, nil, &end{err: Error(connect.CodeAborted, parleyv1.ErrorReason_ERROR_REASON_ACK_TIMEOUT)}
		}
	}
	if s.silent {
		return nil, next, s.changed, nil
	}
	if !c.told {
		c.told = true
		frames = append(frames, &parleyv1.ConsumeResponse{Frame: &parleyv1.ConsumeResponse_Assignment{
			Assignment: &parleyv1.PartitionAssignment{Partitions: c.parts, Total: c.group.topic.settings.GetPartitions()},
		}})
	}
	if c.leaving {
		if len(c.flight) == 0 {
			return nil, next, nil, &end{}
		}
		return frames, next, s.changed, nil
	}
	batch, next := c.take(now)
	if len(batch) > 0 {
		frames = append(frames, &parleyv1.ConsumeResponse{Frame: &parleyv1.ConsumeResponse_Deliveries{
			Deliveries: &parleyv1.DeliveryBatch{Deliveries: batch},
		}})
	}
	return frames, next, s.changed, nil
}
