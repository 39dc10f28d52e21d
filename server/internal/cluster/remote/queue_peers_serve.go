package remote

import (
	"context"
	"time"

	"google.golang.org/protobuf/types/known/emptypb"

	clusterv1 "github.com/parleyhq/parley/internal/gen/parley/cluster/v1"
	"github.com/parleyhq/parley/server/internal/cluster"
	"github.com/parleyhq/parley/server/internal/queue/consume"
	"github.com/parleyhq/parley/server/internal/queue/qlog"
)

func (p *QueuePeers) answerSettle(ctx context.Context, w *clusterv1.ConsumeSettleRequest) (*clusterv1.ConsumeResults, error) {
	in := &consumeReader{topics: w.GetTopics()}
	r := consume.SettleRequest{
		Node: w.GetNode(), Group: w.GetGroup(), Session: w.GetSession(), Items: each(w.GetItems(), in.settlement),
	}
	if in.err != nil {
		return nil, in.err
	}
	errs, err := p.handler.HandleSettle(ctx, r)
	return p.results(ctx, consumeSettle.Name, errs), err
}

func (p *QueuePeers) answerExtend(ctx context.Context, w *clusterv1.ConsumeExtendRequest) (*clusterv1.ConsumeResults, error) {
	in := &consumeReader{topics: w.GetTopics()}
	r := consume.ExtendRequest{
		Node: w.GetNode(), Group: w.GetGroup(), Session: w.GetSession(), Tokens: each(w.GetTokens(), in.token),
		AckTimeout: time.Duration(w.GetAckTimeoutNs()), Begun: w.GetBegun(),
	}
	if in.err != nil {
		return nil, in.err
	}
	errs, err := p.handler.HandleExtend(ctx, r)
	return p.results(ctx, consumeExtend.Name, errs), err
}

func (p *QueuePeers) answerCancel(ctx context.Context, w *clusterv1.ConsumeCancelRequest) (*clusterv1.ConsumeResults, error) {
	var in consumeReader
	r := consume.CancelRequest{
		Group: w.GetGroup(), Topic: w.GetTopic(), Partition: in.partition(w.GetPartition()),
		Items: each(w.GetItems(), cancellationFromWire),
	}
	if in.err != nil {
		return nil, in.err
	}
	errs, err := p.handler.HandleCancel(ctx, r)
	return p.results(ctx, consumeCancel.Name, errs), err
}

func (p *QueuePeers) answerRetry(ctx context.Context, w *clusterv1.ConsumeRetryRequest) (*clusterv1.ConsumeRetryAnswer, error) {
	var in consumeReader
	r := consume.RetryRequest{
		Group: w.GetGroup(), Topic: w.GetTopic(), Partition: in.partition(w.GetPartition()),
		IDs: each(w.GetIds(), func(id int64) qlog.ID { return qlog.ID(id) }),
	}
	if in.err != nil {
		return nil, in.err
	}
	n, err := p.handler.HandleRetry(ctx, r)
	return &clusterv1.ConsumeRetryAnswer{Due: int64(n)}, err
}

func (p *QueuePeers) answerTake(ctx context.Context, w *clusterv1.ConsumeTakeRequest) (*clusterv1.ConsumeTakeAnswer, error) {
	counts, err := p.handler.HandleTake(ctx, consume.TakeRequest{
		Node: w.GetNode(), Group: w.GetGroup(), Topic: w.GetTopic(), Slots: each(w.GetSlots(), slotFromWire),
	})
	return &clusterv1.ConsumeTakeAnswer{Counts: each(counts, func(n int) int64 { return int64(n) })}, err
}

func (p *QueuePeers) answerDeliver(ctx context.Context, w *clusterv1.ConsumeDeliverRequest) (*clusterv1.ConsumeDeliverAnswer, error) {
	in := &consumeReader{topics: w.GetTopics()}
	r := consume.DeliverRequest{Node: w.GetNode(), Group: w.GetGroup(), Deliveries: each(w.GetDeliveries(), in.delivery)}
	if in.err != nil {
		return nil, in.err
	}
	refused, err := p.handler.HandleDeliver(ctx, r)
	var topics topicList
	a := &clusterv1.ConsumeDeliverAnswer{Refused: each(refused, topics.token)}
	a.Topics = topics.topics
	return a, err
}

func (p *QueuePeers) answerEnded(_ context.Context, w *clusterv1.ConsumeEndedNotice) (*emptypb.Empty, error) {
	in := &consumeReader{topics: w.GetTopics()}
	r := consume.EndedNotice{Group: w.GetGroup(), Deliveries: each(w.GetDeliveries(), in.ended)}
	if in.err != nil {
		return nil, in.err
	}
	p.handler.HandleEnded(r)
	return &emptypb.Empty{}, nil
}

func (p *QueuePeers) answerReport(ctx context.Context, w *clusterv1.ConsumeReport) (*clusterv1.ConsumeReportAnswer, error) {
	in := &consumeReader{topics: w.GetTopics()}
	r := consume.Report{
		Node: w.GetNode(), Group: w.GetGroup(), Sessions: each(w.GetSessions(), in.sessionReport), Complete: each(w.GetComplete(), in.lease),
	}
	if in.err != nil {
		return nil, in.err
	}
	answer, err := p.handler.HandleReport(ctx, r)
	if err != nil {
		return nil, err
	}
	var topics topicList
	a := &clusterv1.ConsumeReportAnswer{
		Sessions: each(answer.Sessions, func(s consume.SessionReportAnswer) *clusterv1.ConsumeSessionAnswers {
			return &clusterv1.ConsumeSessionAnswers{Superseded: s.Superseded, Unknown: each(s.Unknown, topics.token)}
		}),
	}
	a.Topics = topics.topics
	return a, nil
}

func (p *QueuePeers) answerSession(ctx context.Context, w *clusterv1.ConsumeSessionRequest) (*clusterv1.ConsumeSessionAnswer, error) {
	var in consumeReader
	r := in.sessionRequest(w)
	if in.err != nil {
		return nil, in.err
	}
	a, found := p.handler.HandleSession(ctx, r)
	if !found {
		return &clusterv1.ConsumeSessionAnswer{}, nil
	}
	p.endpoint.LogHidden(ctx, consumeSession.Name, a.Err)
	return &clusterv1.ConsumeSessionAnswer{Found: true, ExpiresUs: timeToWire(a.Expires), Fault: cluster.FaultToWire(a.Err)}, nil
}

func (p *QueuePeers) answerSessions(ctx context.Context, w *clusterv1.ConsumeSessionsRequest) (*clusterv1.ConsumeSessionsAnswer, error) {
	return sessionsPage(p.handler.HandleSessions(ctx, w.GetTopic(), w.GetGroup()), w.GetAfter()), nil
}

// hearHolder passes on a notice of another node.
func (p *QueuePeers) hearHolder(w *clusterv1.ConsumeHolderNotice) {
	if w.GetNode() == p.endpoint.ID() {
		return
	}
	var in consumeReader
	n := consume.HolderNotice{Lease: in.lease(w.GetLease()), Group: w.GetGroup(), Node: w.GetNode()}
	if in.err != nil {
		p.log.Warn("dropping an undecodable event", "event", consumeHolder.Name, "error", in.err)
		return
	}
	p.handler.HandleHolder(n)
}

// hearSpare passes on a notice of another node.
func (p *QueuePeers) hearSpare(w *clusterv1.ConsumeSpareNotice) {
	if w.GetNode() == p.endpoint.ID() {
		return
	}
	p.handler.HandleSpare(consume.SpareNotice{
		Group: w.GetGroup(), Topic: w.GetTopic(), Node: w.GetNode(), Count: int(w.GetCount()),
	})
}

// results encodes the results of items. It logs errors that the caller will not see.
func (p *QueuePeers) results(ctx context.Context, method string, errs []error) *clusterv1.ConsumeResults {
	return &clusterv1.ConsumeResults{Results: each(errs, func(err error) *clusterv1.ConsumeResult {
		p.endpoint.LogHidden(ctx, method, err)
		return &clusterv1.ConsumeResult{Fault: cluster.FaultToWire(err)}
	})}
}
