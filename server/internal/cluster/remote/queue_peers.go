package remote

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/emptypb"

	clusterv1 "github.com/parleyhq/parley/internal/gen/parley/cluster/v1"
	"github.com/parleyhq/parley/server/internal/cluster"
	"github.com/parleyhq/parley/server/internal/fault"
	"github.com/parleyhq/parley/server/internal/lifecycle"
	"github.com/parleyhq/parley/server/internal/queue/consume"
	"github.com/parleyhq/parley/server/internal/queue/qlog"
)

var (
	consumeSettle   = consumeMethod[*clusterv1.ConsumeSettleRequest, *clusterv1.ConsumeResults]("consume_settle")
	consumeExtend   = consumeMethod[*clusterv1.ConsumeExtendRequest, *clusterv1.ConsumeResults]("consume_extend")
	consumeReport   = consumeMethod[*clusterv1.ConsumeReport, *clusterv1.ConsumeReportAnswer]("consume_report")
	consumeTake     = consumeMethod[*clusterv1.ConsumeTakeRequest, *clusterv1.ConsumeTakeAnswer]("consume_take")
	consumeDeliver  = consumeMethod[*clusterv1.ConsumeDeliverRequest, *clusterv1.ConsumeDeliverAnswer]("consume_deliver")
	consumeEnded    = consumeMethod[*clusterv1.ConsumeEndedNotice, *emptypb.Empty]("consume_ended")
	consumeCancel   = consumeMethod[*clusterv1.ConsumeCancelRequest, *clusterv1.ConsumeResults]("consume_cancel")
	consumeRetry    = consumeMethod[*clusterv1.ConsumeRetryRequest, *clusterv1.ConsumeRetryAnswer]("consume_retry")
	consumeSession  = consumeMethod[*clusterv1.ConsumeSessionRequest, *clusterv1.ConsumeSessionAnswer]("consume_session")
	consumeSessions = consumeMethod[*clusterv1.ConsumeSessionsRequest, *clusterv1.ConsumeSessionsAnswer]("consume_sessions")

	consumeHolder = cluster.Event[*clusterv1.ConsumeHolderNotice]{Name: "consume-holder"}
	consumeSpare  = cluster.Event[*clusterv1.ConsumeSpareNotice]{Name: "consume-spare"}
	// consumeProbe has no listeners.
	consumeProbe = cluster.Event[*emptypb.Empty]{Name: "consume-probe"}
)

func consumeMethod[Req, Res proto.Message](name string) cluster.Method[Req, Res] {
	return cluster.Method[Req, Res]{Name: name, Timeout: holderWait}
}

// QueuePeers implements consume.Peers between the nodes of a fleet. Its handler, which Serve sets,
// executes what other nodes ask between Start and Stop. A call to this node itself goes through the
// transport too; the notices that name this node are not passed to its handler. Safe for concurrent
// use.
//
// A large call is sent in pieces, one after another. If a later piece fails, those behind it are
// not sent:
//   - In Settle, Extend and Cancel, its items and all after it get the error as their result.
//   - The other calls fail with OUTCOME_UNKNOWN, because the earlier pieces were executed. With the
//     error, Take returns the counts of the earlier pieces and 0 for the other slots, Retry the
//     retries that were made due, and Deliver the refused tokens of the earlier pieces. The caller
//     repeats a Deliver with all others.
//
// A session of a Report is never in two pieces.
type QueuePeers struct {
	endpoint *cluster.Endpoint
	handlers *cluster.Handlers
	living   func() []string
	log      *slog.Logger
	life     lifecycle.Base
	// handler is set before Start.
	handler consume.PeerHandler

	mu sync.Mutex // guards the fields below
	// connected is the result of the last probe, and probed its time.
	connected bool
	probed    time.Time
}

var _ consume.Peers = (*QueuePeers)(nil)

// NewQueuePeers returns the QueuePeers of a node. Living returns nodes that are known to live from
// another source, because a node that has just started does not know all others from the endpoint;
// nil for none. A nil logger means slog.Default.
func NewQueuePeers(endpoint *cluster.Endpoint, living func() []string, logger *slog.Logger) *QueuePeers {
	return &QueuePeers{endpoint: endpoint, living: living, handlers: endpoint.Handlers(), log: cmp.Or(logger, slog.Default())}
}

// Serve sets what executes the calls of other nodes. It must be called once, before Start.
func (p *QueuePeers) Serve(handler consume.PeerHandler) {
	p.handler = handler
	cluster.Handle(p.handlers, consumeSettle, p.answerSettle)
	cluster.Handle(p.handlers, consumeExtend, p.answerExtend)
	cluster.Handle(p.handlers, consumeReport, p.answerReport)
	cluster.Handle(p.handlers, consumeTake, p.answerTake)
	cluster.Handle(p.handlers, consumeDeliver, p.answerDeliver)
	cluster.Handle(p.handlers, consumeEnded, p.answerEnded)
	cluster.Handle(p.handlers, consumeCancel, p.answerCancel)
	cluster.Handle(p.handlers, consumeRetry, p.answerRetry)
	cluster.Handle(p.handlers, consumeSession, p.answerSession)
	cluster.Handle(p.handlers, consumeSessions, p.answerSessions)
}

// Start begins to answer the other nodes. See lifecycle.Service.
func (p *QueuePeers) Start(ctx context.Context) error {
	return p.life.Start(ctx, func(ctx context.Context, run *lifecycle.Run) error {
		if p.handler == nil {
			return errors.New("queue peers: Serve was not called")
		}
		cancelHolder, err := cluster.Subscribe(p.endpoint, consumeHolder, p.hearHolder)
		if err != nil {
			return err
		}
		run.OnEnd(func(context.Context) error { cancelHolder(); return nil })
		cancelSpare, err := cluster.Subscribe(p.endpoint, consumeSpare, p.hearSpare)
		if err != nil {
			return err
		}
		run.OnEnd(func(context.Context) error { cancelSpare(); return nil })
		run.OnEnd(p.handlers.Stop)
		return p.handlers.Start(ctx)
	})
}

// Stop stops answering. Calls to other nodes continue to work.
func (p *QueuePeers) Stop(ctx context.Context) error { return p.life.Stop(ctx) }

// Settle implements consume.Peers.
func (p *QueuePeers) Settle(ctx context.Context, node string, r consume.SettleRequest) ([]error, error) {
	return resultsOf(r.Items, settlementBytes, func(piece []consume.Settlement) (*clusterv1.ConsumeResults, error) {
		var topics topicList
		w := &clusterv1.ConsumeSettleRequest{
			Node: r.Node, Group: r.Group, Session: r.Session, Items: each(piece, topics.settlement),
		}
		w.Topics = topics.topics
		return cluster.Call(ctx, p.endpoint, node, consumeSettle, w)
	})
}

// Extend implements consume.Peers.
func (p *QueuePeers) Extend(ctx context.Context, node string, r consume.ExtendRequest) ([]error, error) {
	return resultsOf(r.Tokens, tokenOrFaultBytes, func(piece []consume.Token) (*clusterv1.ConsumeResults, error) {
		var topics topicList
		w := &clusterv1.ConsumeExtendRequest{
			Node: r.Node, Group: r.Group, Session: r.Session, Tokens: each(piece, topics.token),
			AckTimeoutNs: int64(r.AckTimeout), Begun: r.Begun,
		}
		w.Topics = topics.topics
		return cluster.Call(ctx, p.endpoint, node, consumeExtend, w)
	})
}

// Cancel implements consume.Peers.
func (p *QueuePeers) Cancel(ctx context.Context, node string, r consume.CancelRequest) ([]error, error) {
	return resultsOf(r.Items, cancellationBytes, func(piece []consume.Cancellation) (*clusterv1.ConsumeResults, error) {
		return cluster.Call(ctx, p.endpoint, node, consumeCancel, &clusterv1.ConsumeCancelRequest{
			Group: r.Group, Topic: r.Topic, Partition: int64(r.Partition), Items: each(piece, cancellationToWire),
		})
	})
}

// Report implements consume.Peers. The leases of r.Complete are in the last piece. If the holder
// did not know a delivery in an earlier one, the lease of its partition is left out.
func (p *QueuePeers) Report(ctx context.Context, node string, r consume.Report) (consume.ReportAnswer, error) {
	joined := joinedAnswer{unknown: map[partitionName]struct{}{}}
	for n, part := range splitReport(&r) {
		part.Complete = joined.complete(part.Complete)
		var topics topicList
		w := &clusterv1.ConsumeReport{
			Node: r.Node, Group: r.Group, Sessions: each(part.Sessions, topics.sessionReport), Complete: each(part.Complete, leaseToWire),
		}
		w.Topics = topics.topics
		res, err := cluster.Call(ctx, p.endpoint, node, consumeReport, w)
		if err != nil {
			return consume.ReportAnswer{}, callError(n, err)
		}
		answers, err := answersFromWire(&part, res)
		if err != nil {
			return consume.ReportAnswer{}, cluster.OutcomeUnknown(err)
		}
		joined.add(answers)
	}
	return consume.ReportAnswer{Sessions: joined.sessions}, nil
}

// Take implements consume.Peers.
func (p *QueuePeers) Take(ctx context.Context, node string, r consume.TakeRequest) ([]int, error) {
	counts := make([]int, 0, len(r.Slots))
	done, err := eachPiece(r.Slots, slotBytes, func(piece []consume.Slot) error {
		res, err := cluster.Call(ctx, p.endpoint, node, consumeTake, &clusterv1.ConsumeTakeRequest{
			Node: r.Node, Group: r.Group, Topic: r.Topic, Slots: each(piece, slotToWire),
		})
		if err != nil {
			return err
		}
		if len(res.GetCounts()) != len(piece) {
			return cluster.OutcomeUnknown(fmt.Errorf("%d counts for %d slots", len(res.GetCounts()), len(piece)))
		}
		for _, n := range res.GetCounts() {
			counts = append(counts, int(n))
		}
		return nil
	})
	return counts[:len(r.Slots)], callError(done, err)
}

// Deliver implements consume.Peers.
func (p *QueuePeers) Deliver(ctx context.Context, node string, r consume.DeliverRequest) ([]consume.Token, error) {
	var refused []consume.Token
	done, err := eachPiece(r.Deliveries, deliveryBytes, func(piece []consume.RemoteDelivery) error {
		var topics topicList
		w := &clusterv1.ConsumeDeliverRequest{Node: r.Node, Group: r.Group, Deliveries: each(piece, topics.delivery)}
		w.Topics = topics.topics
		res, err := cluster.Call(ctx, p.endpoint, node, consumeDeliver, w)
		if err != nil {
			return err
		}
		in := &consumeReader{topics: res.GetTopics()}
		tokens := each(res.GetRefused(), in.token)
		if in.err != nil {
			return cluster.OutcomeUnknown(in.err)
		}
		refused = append(refused, tokens...)
		return nil
	})
	return refused, callError(done, err)
}

// Ended implements consume.Peers.
func (p *QueuePeers) Ended(ctx context.Context, node string, r consume.EndedNotice) error {
	done, err := eachPiece(r.Deliveries, endedBytes, func(piece []consume.EndedDelivery) error {
		var topics topicList
		w := &clusterv1.ConsumeEndedNotice{Group: r.Group, Deliveries: each(piece, topics.ended)}
		w.Topics = topics.topics
		_, err := cluster.Call(ctx, p.endpoint, node, consumeEnded, w)
		return err
	})
	return callError(done, err)
}

// Retry implements consume.Peers.
func (p *QueuePeers) Retry(ctx context.Context, node string, r consume.RetryRequest) (int, error) {
	due := 0
	idBytes := func(qlog.ID) int { return 10 }
	done, err := eachPiece(r.IDs, idBytes, func(piece []qlog.ID) error {
		res, err := cluster.Call(ctx, p.endpoint, node, consumeRetry, &clusterv1.ConsumeRetryRequest{
			Group: r.Group, Topic: r.Topic, Partition: int64(r.Partition),
			Ids: each(piece, func(id qlog.ID) int64 { return int64(id) }),
		})
		due += int(res.GetDue())
		return err
	})
	return due, callError(done, err)
}

// others returns the sorted ids of all other nodes that may live.
func (p *QueuePeers) others() []string {
	nodes := p.endpoint.Others()
	if p.living != nil {
		nodes = append(slices.Clone(nodes), p.living()...)
	}
	nodes = slices.DeleteFunc(nodes, func(node string) bool { return node == p.endpoint.ID() })
	slices.Sort(nodes)
	return slices.Compact(nodes)
}

// Session implements consume.Peers. It succeeds if a node executed the request, also if
// other nodes did not answer.
func (p *QueuePeers) Session(ctx context.Context, r consume.SessionRequest) (consume.SessionAnswer, bool, error) {
	answers, _, err := cluster.CallNodes(ctx, p.endpoint, p.others(), consumeSession, sessionRequestToWire(&r))
	var found *clusterv1.ConsumeSessionAnswer
	for _, a := range answers {
		// After a resume, the node before may still consider itself the front node.
		if a.GetFound() && (found == nil || found.GetFault() != nil) {
			found = a
		}
	}
	if found == nil {
		return consume.SessionAnswer{}, false, callAllError(err)
	}
	return consume.SessionAnswer{
		Expires: timeFromWire(found.GetExpiresUs()), Err: cluster.FaultFromWire(found.GetFault()),
	}, true, nil
}

// Sessions implements consume.Peers. A missing node may have answered in part. It fails if this
// node may not know all others at present; what it returns then is valid.
func (p *QueuePeers) Sessions(ctx context.Context, topic, group string) ([]qlog.SessionInfo, []string, error) {
	w := &clusterv1.ConsumeSessionsRequest{Topic: topic, Group: group}
	answers, missing, err := cluster.CallNodes(ctx, p.endpoint, p.others(), consumeSessions, w)
	if errors.Is(err, cluster.ErrDisconnected) {
		err = nothingDone(err)
	} else {
		err = nil // missing says it
	}
	var sessions []qlog.SessionInfo
	for node, answer := range answers {
		all, err := p.sessionsOf(ctx, node, w, answer)
		if err != nil {
			p.log.WarnContext(ctx, "a node did not return all sessions of a group", "node", node, "group", group, "error", err)
			missing = append(missing, node)
		}
		sessions = append(sessions, all...)
	}
	slices.Sort(missing)
	return sessions, missing, err
}

// sessionsOf returns the sessions in a node's first answer, and asks the node for the others.
func (p *QueuePeers) sessionsOf(
	ctx context.Context, node string, w *clusterv1.ConsumeSessionsRequest, answer *clusterv1.ConsumeSessionsAnswer,
) (all []qlog.SessionInfo, err error) {
	for {
		var in consumeReader
		sessions := each(answer.GetSessions(), in.sessionInfo)
		if in.err != nil {
			return all, in.err
		}
		all = append(all, sessions...)
		if !answer.GetMore() {
			return all, nil
		}
		if len(sessions) == 0 {
			return all, errNoProgress
		}
		answer, err = cluster.Call(ctx, p.endpoint, node, consumeSessions, &clusterv1.ConsumeSessionsRequest{
			Topic: w.GetTopic(), Group: w.GetGroup(), After: sessions[len(sessions)-1].Session,
		})
		if errors.Is(err, cluster.ErrNodeGone) {
			return all, nil
		}
		if err != nil {
			return all, err
		}
	}
}

// AnnounceHolder implements consume.Peers.
func (p *QueuePeers) AnnounceHolder(n consume.HolderNotice) error {
	return cluster.Publish(p.endpoint, consumeHolder, &clusterv1.ConsumeHolderNotice{
		Lease: leaseToWire(n.Lease), Group: n.Group, Node: n.Node,
	})
}

// OfferSpare implements consume.Peers.
func (p *QueuePeers) OfferSpare(n consume.SpareNotice) error {
	return cluster.Publish(p.endpoint, consumeSpare, &clusterv1.ConsumeSpareNotice{
		Group: n.Group, Topic: n.Topic, Node: n.Node, Count: int64(n.Count),
	})
}

// Connected implements consume.Peers: it reports whether the transport takes messages of this node.
// It asks again after a quarter of a second.
func (p *QueuePeers) Connected() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if time.Since(p.probed) >= probeValidFor {
		p.connected = cluster.Publish(p.endpoint, consumeProbe, &emptypb.Empty{}) == nil
		p.probed = time.Now()
	}
	return p.connected
}

// resultsOf makes a call about items in pieces. It fails only if the first piece fails.
func resultsOf[T any](
	items []T, size func(T) int, call func(piece []T) (*clusterv1.ConsumeResults, error),
) ([]error, error) {
	results := make([]error, 0, len(items))
	done, err := eachPiece(items, size, func(piece []T) error {
		res, err := call(piece)
		if err != nil {
			return err
		}
		if len(res.GetResults()) != len(piece) {
			return cluster.OutcomeUnknown(fmt.Errorf("%d results for %d items", len(res.GetResults()), len(piece)))
		}
		results = append(results, each(res.GetResults(), resultFromWire)...)
		return nil
	})
	err = callError(0, err)
	if err != nil && done == 0 {
		return nil, err
	}
	for len(results) < len(items) {
		results = append(results, err)
	}
	return results, nil
}

// callError is the error of a call of which done pieces or items were executed before it failed
// with err.
func callError(done int, err error) error {
	switch {
	case err == nil:
		return nil
	case done > 0:
		return cluster.OutcomeUnknown(err)
	case errors.Is(err, cluster.ErrNodeGone):
		return nothingDone(err)
	default:
		return err
	}
}

// callAllError is the error of a call to all nodes for which CallAll returned err.
func callAllError(err error) error {
	if err == nil {
		return nil
	}
	errs := []error{err}
	if joined, ok := err.(interface{ Unwrap() []error }); ok {
		errs = joined.Unwrap()
	}
	for _, e := range errs {
		if !errors.Is(e, cluster.ErrNoResponder) {
			return cluster.OutcomeUnknown(err)
		}
	}
	return nothingDone(err)
}

// nothingDone returns the fault for a call that no node has received.
func nothingDone(cause error) error {
	return fault.Wrap(cause, fault.Unavailable, fault.StoreUnavailable,
		"the responsible node cannot be reached; nothing was changed; retry")
}
