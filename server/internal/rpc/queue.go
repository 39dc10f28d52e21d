package rpc

import (
	"context"
	"time"

	"buf.build/go/protovalidate"
	"google.golang.org/protobuf/types/known/timestamppb"

	parleyv1 "github.com/parleyhq/parley/gen/go/parley/v1"
	"github.com/parleyhq/parley/gen/go/parley/v1/parleyv1connect"
	"github.com/parleyhq/parley/server/internal/queue"
)

// Queues produces and schedules messages, and cancels and reschedules scheduled ones.
// *queue.Service implements it and documents the methods. The caller's capability has been checked.
type Queues interface {
	Produce(ctx context.Context, topic string, drafts []queue.Draft) ([]queue.Outcome, error)
	Schedule(ctx context.Context, topic string, drafts []queue.Draft) ([]queue.Outcome, error)
	Cancel(ctx context.Context, topic, messageID string) error
	Reschedule(ctx context.Context, topic, messageID string, delay time.Duration, at time.Time) (time.Time, error)
}

// queueService implements parley.v1.QueueService. Interceptors have validated the requests, except
// for the items of batches.
type queueService struct {
	cfg       Config
	deps      Deps
	validator protovalidate.Validator
}

var _ parleyv1connect.QueueServiceHandler = (*queueService)(nil)

// Produce implements parleyv1connect.QueueServiceHandler.
func (s *queueService) Produce(
	ctx context.Context, req *parleyv1.ProduceRequest,
) (*parleyv1.ProduceResponse, error) {
	items := req.GetMessages()
	traceBatch(ctx, req.GetTopic(), len(items))
	results := make([]*parleyv1.ProduceResult, len(items))
	fail := func(i int, err error) {
		results[i] = &parleyv1.ProduceResult{Result: &parleyv1.ProduceResult_Error{
			Error: loggedItemError(ctx, s.deps.Telemetry.Logger, itemPath("messages", i), err),
		}}
	}
	drafts, at := make([]queue.Draft, 0, len(items)), make([]int, 0, len(items))
	for i, item := range items {
		if err := checkItem(s.validator, item); err != nil {
			fail(i, err)
			continue
		}
		drafts, at = append(drafts, draftOf(item)), append(at, i)
	}
	if len(drafts) == 0 {
		return &parleyv1.ProduceResponse{Results: results}, nil
	}
	outs, err := s.deps.Queues.Produce(ctx, req.GetTopic(), drafts)
	if err != nil {
		return nil, err
	}
	for j := range outs {
		i, out := at[j], &outs[j]
		if out.Err != nil {
			fail(i, out.Err)
			continue
		}
		results[i] = &parleyv1.ProduceResult{Result: &parleyv1.ProduceResult_Produced{Produced: &parleyv1.ProducedMessage{
			MessageId: out.MessageID, Partition: int32(out.Partition), Duplicate: out.Duplicate, //nolint:gosec // below 256
		}}}
	}
	return &parleyv1.ProduceResponse{Results: results}, nil
}

// Schedule implements parleyv1connect.QueueServiceHandler.
func (s *queueService) Schedule(
	ctx context.Context, req *parleyv1.ScheduleRequest,
) (*parleyv1.ScheduleResponse, error) {
	items := req.GetMessages()
	traceBatch(ctx, req.GetTopic(), len(items))
	results := make([]*parleyv1.ScheduleResult, len(items))
	fail := func(path func(string) string, i int, err error) {
		results[i] = &parleyv1.ScheduleResult{Result: &parleyv1.ScheduleResult_Error{
			Error: loggedItemError(ctx, s.deps.Telemetry.Logger, path, err),
		}}
	}
	drafts, at := make([]queue.Draft, 0, len(items)), make([]int, 0, len(items))
	for i, item := range items {
		if err := checkItem(s.validator, item); err != nil {
			fail(itemPath("messages", i), i, err)
			continue
		}
		d := draftOf(item.GetMessage())
		d.Delay, d.At = dueOf(item)
		drafts, at = append(drafts, d), append(at, i)
	}
	if len(drafts) == 0 {
		return &parleyv1.ScheduleResponse{Results: results}, nil
	}
	outs, err := s.deps.Queues.Schedule(ctx, req.GetTopic(), drafts)
	if err != nil {
		return nil, err
	}
	for j := range outs {
		i, out := at[j], &outs[j]
		if out.Err != nil {
			fail(scheduledPath(i), i, out.Err)
			continue
		}
		receipt := &parleyv1.ScheduledReceipt{
			MessageId: out.MessageID, Partition: int32(out.Partition), Duplicate: out.Duplicate, //nolint:gosec // below 256
		}
		if !out.Due.IsZero() { // zero for a duplicate of a message of Produce
			receipt.DueTime = timestamppb.New(out.Due)
		}
		results[i] = &parleyv1.ScheduleResult{Result: &parleyv1.ScheduleResult_Scheduled{Scheduled: receipt}}
	}
	return &parleyv1.ScheduleResponse{Results: results}, nil
}

// CancelScheduled implements parleyv1connect.QueueServiceHandler.
func (s *queueService) CancelScheduled(
	ctx context.Context, req *parleyv1.CancelScheduledRequest,
) (*parleyv1.CancelScheduledResponse, error) {
	if err := s.deps.Queues.Cancel(ctx, req.GetTopic(), req.GetMessageId()); err != nil {
		return nil, err
	}
	return &parleyv1.CancelScheduledResponse{}, nil
}

// RescheduleScheduled implements parleyv1connect.QueueServiceHandler.
func (s *queueService) RescheduleScheduled(
	ctx context.Context, req *parleyv1.RescheduleScheduledRequest,
) (*parleyv1.RescheduleScheduledResponse, error) {
	delay, at := dueOf(req)
	due, err := s.deps.Queues.Reschedule(ctx, req.GetTopic(), req.GetMessageId(), delay, at)
	if err != nil {
		return nil, err
	}
	return &parleyv1.RescheduleScheduledResponse{DueTime: timestamppb.New(due)}, nil
}

// draftOf converts a message of a request to a draft without a due time.
func draftOf(m *parleyv1.QueueMessage) queue.Draft {
	return queue.Draft{
		Message:        queue.Message{Key: m.GetKey(), Payload: m.GetPayload(), Headers: m.GetHeaders()},
		IdempotencyKey: m.GetIdempotencyKey(),
	}
}
