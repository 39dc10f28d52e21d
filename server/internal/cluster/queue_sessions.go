package cluster

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"google.golang.org/protobuf/proto"

	clusterv1 "github.com/parleyhq/parley/internal/gen/parley/cluster/v1"
	"github.com/parleyhq/parley/server/internal/fault"
	"github.com/parleyhq/parley/server/internal/queue"
)

// queuePieceBytes is where a call of many items is cut that goes to another node.
const queuePieceBytes = 512 << 10

// QueueSessions makes calls about live consumer streams, on whichever node they are. Safe for concurrent use.
type QueueSessions struct {
	holder *holder
	log    *slog.Logger
	// local makes a call about a stream of this node's.
	local func(ctx context.Context, c queue.Call) ([]error, error)
}

// NewQueueSessions makes QueueSessions. local is this node's queue.Hub.Do; its stream ids must end with the node's id.
// logger is slog.Default if nil.
func NewQueueSessions(
	peers Peers, transport Transport, local func(ctx context.Context, c queue.Call) ([]error, error), logger *slog.Logger,
) *QueueSessions {
	s := &QueueSessions{log: cmp.Or(logger, slog.Default()), local: local}
	s.holder = &holder{peers: peers, transport: transport, topic: topicQueues, answer: s.serve}
	return s
}

// Start lets other nodes call about this one's streams, until Stop. See lifecycle.Service.
func (s *QueueSessions) Start(ctx context.Context) error { return s.holder.start(ctx) }

// Stop ends what Start began and waits for what is under way.
func (s *QueueSessions) Stop(ctx context.Context) error { return s.holder.stop(ctx) }

// Do makes a call, as queue.Hub.Do does: one error for each item, nil where it is done, or one for the whole. A stream
// whose node is gone is LEASE_LOST. A node that lives and can't be reached is Unavailable: with OUTCOME_UNKNOWN if it may
// have done it, and then the call may be repeated without harm. A large call goes to another node in pieces; if a later
// one fails as a whole, its items and those after it have that error.
func (s *QueueSessions) Do(ctx context.Context, c queue.Call) ([]error, error) {
	node, here := s.holder.node(c.StreamID)
	if here {
		return s.local(ctx, c)
	}
	var results []error
	for items := c.Items; ; {
		piece := callToWire(&c)
		items = takeItems(piece, items)
		errs, err := s.ask(ctx, node, piece)
		switch {
		case err == nil:
			results = append(results, errs...)
		case len(results) == 0:
			return nil, err
		default:
			for len(results) < len(c.Items) {
				results = append(results, err)
			}
			return results, nil
		}
		if len(items) == 0 {
			return results, nil
		}
	}
}

// ask has another node make a call.
func (s *QueueSessions) ask(ctx context.Context, node string, piece *clusterv1.QueueStreamRequest) ([]error, error) {
	payload, err := proto.Marshal(piece)
	if err != nil {
		return nil, fmt.Errorf("call about a consumer stream: %w", err)
	}
	answer, err := s.holder.ask(ctx, node, payload)
	if errors.Is(err, errNobodyHolds) {
		return nil, fault.New(fault.FailedPrecondition, fault.LeaseLost, "the stream has ended; nothing was changed")
	}
	if err != nil {
		return nil, err
	}
	var w clusterv1.QueueStreamResponse
	if err := proto.Unmarshal(answer, &w); err != nil {
		return nil, unanswered(err)
	}
	if w.GetFault() != nil {
		return nil, faultFromWire(w.GetFault())
	}
	if len(w.GetResults()) != len(piece.GetItems()) && len(piece.GetItems()) > 0 {
		return nil, unanswered(errAnswer)
	}
	errs := make([]error, len(w.GetResults()))
	for i, f := range w.GetResults() {
		if f.GetReason() != "" {
			errs[i] = faultFromWire(f)
		}
	}
	return errs, nil
}

// serve answers another node.
func (s *QueueSessions) serve(ctx context.Context, payload []byte) []byte {
	var w clusterv1.QueueStreamRequest
	response := &clusterv1.QueueStreamResponse{}
	err := proto.Unmarshal(payload, &w)
	var errs []error
	if err == nil {
		errs, err = s.local(ctx, callFromWire(&w))
	}
	s.tell(ctx, err)
	if err != nil {
		response.Fault = faultToWire(err)
		errs = nil
	}
	for _, err := range errs {
		s.tell(ctx, err)
		f := faultToWire(err)
		if f == nil {
			f = &clusterv1.Fault{}
		}
		response.Results = append(response.Results, f)
	}
	answer, err := proto.Marshal(response)
	if err != nil {
		s.log.ErrorContext(ctx, "answer a call about a consumer stream", "error", err)
		return nil
	}
	return answer
}

// tell logs what tells the other node nothing.
func (s *QueueSessions) tell(ctx context.Context, err error) {
	if _, ok := fault.As(err); err != nil && !ok {
		s.log.ErrorContext(ctx, "a call about a consumer stream for another node failed", "error", err)
	}
}

// callToWire gives a call without its items.
func callToWire(c *queue.Call) *clusterv1.QueueStreamRequest {
	return &clusterv1.QueueStreamRequest{
		StreamId: c.StreamID, Subject: c.Subject, Topic: c.Topic, Group: c.Group, Call: int32(c.Kind),
		AckTimeoutMs: c.AckTimeout.Milliseconds(), TotalMessages: c.TotalMessages, TotalBytes: c.TotalBytes,
	}
}

// takeItems puts as many items into a piece as fit, at least one, and gives the rest.
func takeItems(piece *clusterv1.QueueStreamRequest, items []queue.CallItem) (rest []queue.CallItem) {
	size := 0
	for i := range items {
		w := itemToWire(&items[i])
		size += proto.Size(w) + 8 // the field's own bytes
		if i > 0 && size > queuePieceBytes {
			return items[i:]
		}
		piece.Items = append(piece.Items, w)
	}
	return nil
}

func itemToWire(it *queue.CallItem) *clusterv1.QueueSettlement {
	w := &clusterv1.QueueSettlement{
		Token: it.Token, Reason: it.Reason, Code: it.Code, DeadLetter: it.DeadLetter, Release: it.Release,
	}
	if it.Delay != nil {
		ms := it.Delay.Milliseconds()
		w.DelayMs = &ms
	}
	return w
}

func callFromWire(w *clusterv1.QueueStreamRequest) queue.Call {
	c := queue.Call{
		StreamID: w.GetStreamId(), Subject: w.GetSubject(), Topic: w.GetTopic(), Group: w.GetGroup(),
		AckTimeout:    time.Duration(w.GetAckTimeoutMs()) * time.Millisecond,
		TotalMessages: w.GetTotalMessages(), TotalBytes: w.GetTotalBytes(),
	}
	// A kind that this version does not know stays 0, which the hub refuses.
	if k := w.GetCall(); k >= int32(queue.AckCall) && k <= int32(queue.LeaveCall) {
		c.Kind = queue.CallKind(k)
	}
	for _, it := range w.GetItems() {
		item := queue.CallItem{
			Token: it.GetToken(), Reason: it.GetReason(), Code: it.GetCode(), DeadLetter: it.GetDeadLetter(),
			Release: it.GetRelease(),
		}
		if it.DelayMs != nil {
			d := time.Duration(it.GetDelayMs()) * time.Millisecond
			item.Delay = &d
		}
		c.Items = append(c.Items, item)
	}
	return c
}
