package rpc

import (
	"context"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"

	parleyv1 "github.com/parleyhq/parley/gen/go/parley/v1"
	"github.com/parleyhq/parley/server/internal/fault"
	"github.com/parleyhq/parley/server/internal/queue/inspect"
	"github.com/parleyhq/parley/server/internal/queue/qlog"
)

// Inspector looks into topics, and replays, purges, trims and retries. *inspect.Service
// implements it and documents the methods. The caller's capability has been checked.
type Inspector interface {
	Stats(ctx context.Context, topic string, withHistory bool) (inspect.TopicStats, error)
	Partitions(ctx context.Context, topic, group string) ([]inspect.Partition, error)
	Job(ctx context.Context, topic, messageID string) (inspect.Job, error)
	Jobs(ctx context.Context, q inspect.JobQuery) (jobs []inspect.Job, next string, err error)
	Retry(ctx context.Context, topic, group string, messageIDs []string) (int, error)
	Consumers(ctx context.Context, topic, group, cursor string, n int) (page []inspect.Consumer, next string, missing []string, err error)
	Trim(ctx context.Context, topic string, keep qlog.Cut, force bool) (removed, lost int, err error)
	Letters(ctx context.Context, q inspect.LetterQuery) (letters []inspect.Letter, next string, err error)
	Replay(ctx context.Context, topic string, sel inspect.Selection, limit int, to string) (replayed int, more bool, err error)
	Purge(ctx context.Context, topic string, sel inspect.Selection, confirm string) (int, error)
}

var _ Inspector = (*inspect.Service)(nil)

// GetTopicStats implements parleyv1connect.AdminServiceHandler.
func (s *adminService) GetTopicStats(ctx context.Context, req *parleyv1.GetTopicStatsRequest) (*parleyv1.GetTopicStatsResponse, error) {
	stats, err := s.deps.Inspector.Stats(ctx, req.GetTopic(), req.GetHistory())
	if err != nil {
		return nil, err
	}
	resp := &parleyv1.GetTopicStatsResponse{Total: wireTotal(&stats.Total)}
	for i := range stats.Partitions {
		resp.Partitions = append(resp.Partitions, wirePartition(&stats.Partitions[i]))
	}
	for i := range stats.History {
		resp.History = append(resp.History, wireSample(&stats.History[i]))
	}
	return resp, nil
}

func wireTotal(s *inspect.PartitionStats) *parleyv1.TopicStats {
	return &parleyv1.TopicStats{
		Length: s.Length, Scheduled: s.Scheduled, Produced: s.Produced, Cancelled: s.Cancelled, DeadLetters: s.DeadLetters,
		FirstId: s.First, LastId: s.Last, Groups: wireGroupStats(s.Groups),
	}
}

func wirePartition(s *inspect.PartitionStats) *parleyv1.PartitionStats {
	return &parleyv1.PartitionStats{
		Partition: int32(s.Partition), //nolint:gosec // below 256
		Length:    s.Length, Scheduled: s.Scheduled, Produced: s.Produced, Cancelled: s.Cancelled, DeadLetters: s.DeadLetters,
		FirstId: s.First, LastId: s.Last, Groups: wireGroupStats(s.Groups),
	}
}

func wireGroupStats(groups []inspect.GroupStats) []*parleyv1.GroupStats {
	out := make([]*parleyv1.GroupStats, len(groups))
	for i := range groups {
		g := &groups[i]
		out[i] = &parleyv1.GroupStats{
			Group: g.Group, Waiting: g.Waiting, Running: g.Running, Retrying: g.Retrying, Acked: g.Acked, Dead: g.Dead,
			Cancelled: g.Cancelled, Expired: g.Expired, Trimmed: g.Trimmed, Elsewhere: g.Elsewhere,
			Retried: g.Retried, Redelivered: g.Redelivered, Replayed: g.Replayed, OldestAge: durationpb.New(g.OldestAge),
			Sessions: int32(g.Sessions), DispatchedPartitions: int32(g.Dispatched), //nolint:gosec // counts of streams and partitions
		}
	}
	return out
}

func wireSample(s *inspect.Sample) *parleyv1.TopicSample {
	w := &parleyv1.TopicSample{Time: timeToWire(s.Time), Produced: s.Produced}
	for i := range s.Groups {
		g := &s.Groups[i]
		w.Groups = append(w.Groups, &parleyv1.GroupSample{
			Group: g.Group, Waiting: g.Waiting, Running: g.Running, Retrying: g.Retrying, Acked: g.Acked, Dead: g.Dead, Retried: g.Retried,
		})
	}
	return w
}

// ListPartitions implements parleyv1connect.AdminServiceHandler.
func (s *adminService) ListPartitions(ctx context.Context, req *parleyv1.ListPartitionsRequest) (*parleyv1.ListPartitionsResponse, error) {
	partitions, err := s.deps.Inspector.Partitions(ctx, req.GetTopic(), req.GetGroup())
	if err != nil {
		return nil, err
	}
	resp := &parleyv1.ListPartitionsResponse{}
	for i := range partitions {
		p := &partitions[i]
		resp.Partitions = append(resp.Partitions, &parleyv1.PartitionLease{
			Partition: int32(p.Partition), //nolint:gosec // below 256
			NodeId:    p.Node, Epoch: p.Epoch, Consumer: p.Consumer, Cursor: p.Cursor, Sent: p.Sent,
		})
	}
	return resp, nil
}

// GetJob implements parleyv1connect.AdminServiceHandler.
func (s *adminService) GetJob(ctx context.Context, req *parleyv1.GetJobRequest) (*parleyv1.GetJobResponse, error) {
	j, err := s.deps.Inspector.Job(ctx, req.GetTopic(), req.GetMessageId())
	if err != nil {
		return nil, err
	}
	return &parleyv1.GetJobResponse{Job: wireJob(&j)}, nil
}

// wireJob converts a job. It has a payload and headers if the job has its body.
func wireJob(j *inspect.Job) *parleyv1.JobInfo {
	body := bodyFields(j.Body)
	w := &parleyv1.JobInfo{
		MessageId: j.MessageID, Key: j.Key, Payload: body.GetPayload(), Headers: body.GetHeaders(),
		Partition: int32(j.Partition), PayloadBytes: int32(j.PayloadBytes), //nolint:gosec // below 256; records are small
		ProduceTime: timeToWire(j.ProducedAt), DueTime: timeToWire(j.Due),
	}
	for i := range j.Groups {
		g := &j.Groups[i]
		w.Groups = append(w.Groups, &parleyv1.JobInGroup{
			Group: g.Group, State: parleyv1.JobState(g.State),
			Attempts: int32(g.Attempts), Deliveries: int32(g.Deliveries), //nolint:gosec // counts of deliveries
			Consumer: g.Consumer, Session: g.Session, NodeId: g.Node, SinceTime: timeToWire(g.Since), RetryTime: timeToWire(g.RetryAt),
			Reason: g.Reason, Code: g.Code, Suspect: g.Suspect,
		})
	}
	return w
}

// bodyFields decodes a message's body, which has the fields key, payload and headers of Delivery.
// The result is empty if there is no body; the store returns none that cannot be decoded.
func bodyFields(body []byte) *parleyv1.Delivery {
	var m parleyv1.Delivery
	if err := proto.Unmarshal(body, &m); err != nil {
		return &parleyv1.Delivery{}
	}
	return &m
}

// ListJobs implements parleyv1connect.AdminServiceHandler.
func (s *adminService) ListJobs(ctx context.Context, req *parleyv1.ListJobsRequest) (*parleyv1.ListJobsResponse, error) {
	page, err := s.page(ctx, "jobs", []any{req.GetTopic(), req.GetGroup(), req.GetState(), req.GetKey(), req.GetFull()})
	if err != nil {
		return nil, err
	}
	cursor, err := page.open(req.GetPageToken())
	if err != nil {
		return nil, err
	}
	jobs, next, err := s.deps.Inspector.Jobs(ctx, inspect.JobQuery{
		Topic: req.GetTopic(), Group: req.GetGroup(), State: inspect.JobState(req.GetState()), //nolint:gosec // one of the enum's, which are few
		Key: req.GetKey(), Full: req.GetFull(), Cursor: cursor, N: orDefault(req.GetPageSize(), defaultPage),
	})
	if err != nil {
		return nil, err
	}
	resp := &parleyv1.ListJobsResponse{Jobs: make([]*parleyv1.JobInfo, len(jobs)), NextPageToken: page.seal(next)}
	for i := range jobs {
		resp.Jobs[i] = wireJob(&jobs[i])
	}
	return resp, nil
}

// RetryJobs implements parleyv1connect.AdminServiceHandler.
func (s *adminService) RetryJobs(ctx context.Context, req *parleyv1.RetryJobsRequest) (*parleyv1.RetryJobsResponse, error) {
	n, err := s.deps.Inspector.Retry(ctx, req.GetTopic(), req.GetGroup(), req.GetMessageIds())
	if err != nil {
		return nil, err
	}
	return &parleyv1.RetryJobsResponse{Retried: int64(n)}, nil
}

// ListConsumers implements parleyv1connect.AdminServiceHandler.
func (s *adminService) ListConsumers(ctx context.Context, req *parleyv1.ListConsumersRequest) (*parleyv1.ListConsumersResponse, error) {
	page, err := s.page(ctx, "consumers", []any{req.GetTopic(), req.GetGroup()})
	if err != nil {
		return nil, err
	}
	cursor, err := page.open(req.GetPageToken())
	if err != nil {
		return nil, err
	}
	consumers, next, missing, err := s.deps.Inspector.Consumers(
		ctx, req.GetTopic(), req.GetGroup(), cursor, orDefault(req.GetPageSize(), defaultPage))
	if err != nil {
		return nil, err
	}
	resp := &parleyv1.ListConsumersResponse{NextPageToken: page.seal(next), MissingNodes: missing}
	for i := range consumers {
		resp.Consumers = append(resp.Consumers, wireConsumer(&consumers[i]))
	}
	return resp, nil
}

func wireConsumer(c *inspect.Consumer) *parleyv1.ConsumerInfo {
	w := &parleyv1.ConsumerInfo{
		Consumer: c.Consumer, Session: c.Session, NodeId: c.Node, Subject: c.Subject, State: parleyv1.SessionState(c.State),
		SinceTime: timeToWire(c.Since), Concurrency: int32(c.Concurrency), //nolint:gosec // at most 10,000
		Running: int32(c.Running), InFlight: int32(c.InFlight), //nolint:gosec // at most 10,000
	}
	if c.Oldest != nil {
		w.OldestMessageId, w.OldestTime = c.Oldest.MessageID, timeToWire(c.Oldest.Since)
	}
	return w
}

// TrimTopic implements parleyv1connect.AdminServiceHandler.
func (s *adminService) TrimTopic(ctx context.Context, req *parleyv1.TrimTopicRequest) (*parleyv1.TrimTopicResponse, error) {
	keep := qlog.Cut{Keep: req.GetMaxMessages(), Age: -1}
	if req.GetMaxAge() != nil {
		keep = qlog.Cut{Age: millis(req.GetMaxAge())}
	}
	removed, lost, err := s.deps.Inspector.Trim(ctx, req.GetTopic(), keep, req.GetForce())
	if err != nil {
		return nil, err
	}
	return &parleyv1.TrimTopicResponse{Removed: int64(removed), Lost: int64(lost)}, nil
}

// movedTo returns err; if it is a fault about the field from, with the field to instead, which is
// that field's path in the request.
func movedTo(err error, from, to string) error {
	f, ok := fault.As(err)
	if !ok || f.Field != from {
		return err
	}
	mapped := *f
	mapped.Field = to
	return &mapped
}
