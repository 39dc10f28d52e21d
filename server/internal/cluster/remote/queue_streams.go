package remote

import (
	"context"
	"errors"
	"fmt"
	"time"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/emptypb"

	clusterv1 "github.com/parleyhq/parley/internal/gen/parley/cluster/v1"
	"github.com/parleyhq/parley/server/internal/cluster"
	"github.com/parleyhq/parley/server/internal/fault"
	"github.com/parleyhq/parley/server/internal/queue"
)

// queuePieceBytes bounds the encoded items, in bytes, of one request to another node. A call with
// more is sent as several requests, one after another.
const queuePieceBytes = 512 << 10

var (
	queueAck     = cluster.Method[*clusterv1.QueueAckRequest, *clusterv1.QueueResults]{Name: "queue_ack", Timeout: holderWait}
	queueNack    = cluster.Method[*clusterv1.QueueNackRequest, *clusterv1.QueueResults]{Name: "queue_nack", Timeout: holderWait}
	queueExtend  = cluster.Method[*clusterv1.QueueExtendRequest, *clusterv1.QueueResults]{Name: "queue_extend", Timeout: holderWait}
	queueCredits = cluster.Method[*clusterv1.QueueCreditsRequest, *emptypb.Empty]{Name: "queue_credits", Timeout: holderWait}
	queueLeave   = cluster.Method[*clusterv1.QueueLeaveRequest, *emptypb.Empty]{Name: "queue_leave", Timeout: holderWait}
)

// Consumers executes calls about consumer streams. *queue.Hub implements it for this node's
// streams.
type Consumers interface {
	Ack(ctx context.Context, ref queue.StreamRef, tokens []string) ([]error, error)
	Nack(ctx context.Context, ref queue.StreamRef, items []queue.Nack) ([]error, error)
	Extend(ctx context.Context, ref queue.StreamRef, tokens []string, timeout time.Duration) ([]error, error)
	Grant(ctx context.Context, ref queue.StreamRef, totalMessages, totalBytes int64) error
	Leave(ctx context.Context, ref queue.StreamRef) error
}

// QueueStreams executes calls about live consumer streams, on whichever node they are. Other nodes
// may call about this node's streams between Start and Stop. Safe for concurrent use.
//
// Its methods do what those of *queue.Hub do. If the stream is on another node, they may also fail
// as a whole: with LEASE_LOST if that node is gone, with Unavailable if it can't be reached, and
// with OUTCOME_UNKNOWN if it may have executed the call. Then the call may safely be repeated. A
// large call is sent in pieces. If a later piece fails as a whole, its items and all after it get
// that error.
type QueueStreams struct {
	*cluster.Handlers

	endpoint *cluster.Endpoint
	local    Consumers
}

var _ Consumers = (*QueueStreams)(nil)

// NewQueueStreams creates a QueueStreams over this node's consumers. Their stream ids must end
// with the node's id.
func NewQueueStreams(endpoint *cluster.Endpoint, local Consumers) *QueueStreams {
	s := &QueueStreams{Handlers: endpoint.Handlers(), endpoint: endpoint, local: local}
	cluster.Handle(s.Handlers, queueAck, func(ctx context.Context, r *clusterv1.QueueAckRequest) (*clusterv1.QueueResults, error) {
		errs, err := local.Ack(ctx, refFromWire(r.GetStream()), r.GetTokens())
		return s.results(ctx, queueAck.Name, errs), err
	})
	cluster.Handle(s.Handlers, queueNack, func(ctx context.Context, r *clusterv1.QueueNackRequest) (*clusterv1.QueueResults, error) {
		errs, err := local.Nack(ctx, refFromWire(r.GetStream()), nacksFromWire(r.GetItems()))
		return s.results(ctx, queueNack.Name, errs), err
	})
	cluster.Handle(s.Handlers, queueExtend, func(ctx context.Context, r *clusterv1.QueueExtendRequest) (*clusterv1.QueueResults, error) {
		errs, err := local.Extend(ctx, refFromWire(r.GetStream()), r.GetTokens(), time.Duration(r.GetAckTimeoutMs())*time.Millisecond)
		return s.results(ctx, queueExtend.Name, errs), err
	})
	cluster.Handle(s.Handlers, queueCredits, func(ctx context.Context, r *clusterv1.QueueCreditsRequest) (*emptypb.Empty, error) {
		return &emptypb.Empty{}, local.Grant(ctx, refFromWire(r.GetStream()), r.GetTotalMessages(), r.GetTotalBytes())
	})
	cluster.Handle(s.Handlers, queueLeave, func(ctx context.Context, r *clusterv1.QueueLeaveRequest) (*emptypb.Empty, error) {
		return &emptypb.Empty{}, local.Leave(ctx, refFromWire(r.GetStream()))
	})
	return s
}

// Ack acknowledges the deliveries with these tokens. It returns one error or nil for each, in
// order, and an error for the call as a whole; see queue.Hub.Ack.
func (s *QueueStreams) Ack(ctx context.Context, ref queue.StreamRef, tokens []string) ([]error, error) {
	node := cluster.StreamNode(ref.StreamID)
	if node == s.endpoint.ID() {
		return s.local.Ack(ctx, ref, tokens)
	}
	return inPieces(tokens, tokenSize, func(piece []string) ([]error, error) {
		r := &clusterv1.QueueAckRequest{Stream: refToWire(ref), Tokens: piece}
		return settle(ctx, s.endpoint, node, queueAck, r, len(piece))
	})
}

// Nack nacks or releases deliveries. It returns errors as Ack does; see queue.Hub.Nack.
func (s *QueueStreams) Nack(ctx context.Context, ref queue.StreamRef, items []queue.Nack) ([]error, error) {
	node := cluster.StreamNode(ref.StreamID)
	if node == s.endpoint.ID() {
		return s.local.Nack(ctx, ref, items)
	}
	return inPieces(nacksToWire(items), nackSize, func(piece []*clusterv1.QueueNack) ([]error, error) {
		r := &clusterv1.QueueNackRequest{Stream: refToWire(ref), Items: piece}
		return settle(ctx, s.endpoint, node, queueNack, r, len(piece))
	})
}

// Extend moves the ack deadlines of the deliveries with these tokens to timeout from now. No tokens
// mean all deliveries of the stream, and 0 means the stream's own ack timeout.
func (s *QueueStreams) Extend(ctx context.Context, ref queue.StreamRef, tokens []string, timeout time.Duration) ([]error, error) {
	node := cluster.StreamNode(ref.StreamID)
	if node == s.endpoint.ID() {
		return s.local.Extend(ctx, ref, tokens, timeout)
	}
	return inPieces(tokens, tokenSize, func(piece []string) ([]error, error) {
		r := &clusterv1.QueueExtendRequest{Stream: refToWire(ref), Tokens: piece, AckTimeoutMs: timeout.Milliseconds()}
		return settle(ctx, s.endpoint, node, queueExtend, r, len(piece))
	})
}

// Grant grants credits to a stream: how many messages and bytes it may be sent in total since it
// was opened.
func (s *QueueStreams) Grant(ctx context.Context, ref queue.StreamRef, totalMessages, totalBytes int64) error {
	node := cluster.StreamNode(ref.StreamID)
	if node == s.endpoint.ID() {
		return s.local.Grant(ctx, ref, totalMessages, totalBytes)
	}
	_, err := cluster.Call(ctx, s.endpoint, node, queueCredits, &clusterv1.QueueCreditsRequest{
		Stream: refToWire(ref), TotalMessages: totalMessages, TotalBytes: totalBytes,
	})
	return leaseLostIfGone(err)
}

// Leave makes a stream's consumer leave its group: the stream gets no more messages, and ends once
// none of its deliveries is in flight.
func (s *QueueStreams) Leave(ctx context.Context, ref queue.StreamRef) error {
	node := cluster.StreamNode(ref.StreamID)
	if node == s.endpoint.ID() {
		return s.local.Leave(ctx, ref)
	}
	_, err := cluster.Call(ctx, s.endpoint, node, queueLeave, &clusterv1.QueueLeaveRequest{Stream: refToWire(ref)})
	return leaseLostIfGone(err)
}

// settle makes a call about n deliveries and returns their results. n = 0 allows any number of
// results: an Extend without tokens is about all deliveries of the stream.
func settle[Req proto.Message](
	ctx context.Context, e *cluster.Endpoint, node string, m cluster.Method[Req, *clusterv1.QueueResults], req Req, n int,
) ([]error, error) {
	res, err := cluster.Call(ctx, e, node, m, req)
	if err != nil {
		return nil, leaseLostIfGone(err)
	}
	if n > 0 && len(res.GetResults()) != n {
		return nil, cluster.OutcomeUnknown(fmt.Errorf("%d results for %d deliveries", len(res.GetResults()), n))
	}
	errs := make([]error, len(res.GetResults()))
	for i, f := range res.GetResults() {
		if f.GetReason() != "" {
			errs[i] = cluster.FaultFromWire(f)
		}
	}
	return errs, nil
}

// leaseLostIfGone replaces ErrNodeGone by LEASE_LOST: the node is gone, and the stream with it.
func leaseLostIfGone(err error) error {
	if errors.Is(err, cluster.ErrNodeGone) {
		return fault.New(fault.FailedPrecondition, fault.LeaseLost, "the stream has ended; nothing was changed")
	}
	return err
}

// results encodes the outcomes of a call's deliveries, of which nil means success. It logs errors
// that the caller will not see.
func (s *QueueStreams) results(ctx context.Context, method string, errs []error) *clusterv1.QueueResults {
	w := &clusterv1.QueueResults{Results: make([]*clusterv1.Fault, len(errs))}
	for i, err := range errs {
		s.endpoint.LogHidden(ctx, method, err)
		if w.Results[i] = cluster.FaultToWire(err); err == nil {
			w.Results[i] = &clusterv1.Fault{}
		}
	}
	return w
}

// inPieces makes one call for as many items at a time as fit into queuePieceBytes, at least one.
// Without items it makes one call. size returns the encoded size of an item in bytes.
func inPieces[T any](items []T, size func(T) int, call func(piece []T) ([]error, error)) ([]error, error) {
	var results []error
	for rest := items; ; {
		n, bytes := 0, 0
		for n < len(rest) {
			if bytes += size(rest[n]); n > 0 && bytes > queuePieceBytes {
				break
			}
			n++
		}
		errs, err := call(rest[:n])
		switch {
		case err != nil && len(results) == 0:
			return nil, err
		case err != nil:
			for len(results) < len(items) {
				results = append(results, err)
			}
			return results, nil
		}
		results = append(results, errs...)
		if rest = rest[n:]; len(rest) == 0 {
			return results, nil
		}
	}
}

// itemOverhead bounds the bytes of an item's tag and length.
const itemOverhead = 8

func tokenSize(token string) int { return len(token) + itemOverhead }

func nackSize(w *clusterv1.QueueNack) int { return proto.Size(w) + itemOverhead }

func refToWire(r queue.StreamRef) *clusterv1.QueueStream {
	return &clusterv1.QueueStream{StreamId: r.StreamID, Subject: r.Subject, Topic: r.Topic, Group: r.Group}
}

func refFromWire(w *clusterv1.QueueStream) queue.StreamRef {
	return queue.StreamRef{StreamID: w.GetStreamId(), Subject: w.GetSubject(), Topic: w.GetTopic(), Group: w.GetGroup()}
}

func nacksToWire(items []queue.Nack) []*clusterv1.QueueNack {
	ws := make([]*clusterv1.QueueNack, len(items))
	for i, n := range items {
		ws[i] = &clusterv1.QueueNack{Token: n.Token, Reason: n.Reason, Code: n.Code, DeadLetter: n.DeadLetter, Release: n.Release}
		if n.Delay != nil {
			ws[i].DelayMs = proto.Int64(n.Delay.Milliseconds())
		}
	}
	return ws
}

func nacksFromWire(ws []*clusterv1.QueueNack) []queue.Nack {
	items := make([]queue.Nack, len(ws))
	for i, w := range ws {
		items[i] = queue.Nack{
			Token: w.GetToken(), Reason: w.GetReason(), Code: w.GetCode(), DeadLetter: w.GetDeadLetter(), Release: w.GetRelease(),
		}
		if w.DelayMs != nil {
			d := time.Duration(w.GetDelayMs()) * time.Millisecond
			items[i].Delay = &d
		}
	}
	return items
}
