package rpc

import (
	"context"
	"strings"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	parleyv1 "github.com/parleyhq/parley/gen/go/parley/v1"
	"github.com/parleyhq/parley/server/internal/queue/produce"
	"github.com/parleyhq/parley/server/internal/queue/qlog"
)

// Producers takes messages into topics, and cancels and reschedules them. *produce.Service
// implements it and documents the methods. The caller's capability has been checked.
type Producers interface {
	Produce(ctx context.Context, r produce.Request) (produce.Response, error)
	Cancel(ctx context.Context, topic string, messageIDs []string) ([]produce.Cancelled, error)
	Reschedule(ctx context.Context, topic string, messageIDs []string, delay time.Duration, at time.Time) ([]produce.Cancelled, error)
}

var _ Producers = (*produce.Service)(nil)

// Produce implements parleyv1connect.QueueServiceHandler. Messages that are not valid are left out.
// They are left out of a repeat too, so it is recognized.
func (s *queueService) Produce(ctx context.Context, req *parleyv1.ProduceRequest) (*parleyv1.ProduceResponse, error) {
	items := req.GetMessages()
	traceBatch(ctx, req.GetTopic(), len(items))
	results := make([]*parleyv1.ProduceResult, len(items))
	fail := func(i int, err error) {
		results[i] = &parleyv1.ProduceResult{Result: &parleyv1.ProduceResult_Error{
			Error: loggedItemError(ctx, s.deps.Telemetry.Logger, itemPath("messages", i), err),
		}}
	}
	r := produce.Request{
		Topic: req.GetTopic(), Messages: make([]produce.Message, 0, len(items)), ProducerID: req.GetProducerId(), Sequence: req.GetSequence(),
		RoutedBy: int(req.GetRoutedBy()),
	}
	at := make([]int, 0, len(items))
	for i, item := range items {
		if !isPlain(item) {
			if err := checkItem(s.validator, item); err != nil {
				fail(i, err)
				continue
			}
		}
		r.Messages, at = append(r.Messages, producedMessage(item)), append(at, i)
	}
	if len(r.Messages) == 0 {
		return &parleyv1.ProduceResponse{Results: results}, nil
	}
	out, err := s.deps.Producers.Produce(ctx, r)
	if err != nil {
		return nil, err
	}
	for j := range out.Results {
		i, result := at[j], &out.Results[j]
		if result.Err != nil {
			fail(i, result.Err)
			continue
		}
		m := &parleyv1.ProducedMessage{
			MessageId: result.MessageID, Partition: int32(result.Partition), Duplicate: result.Duplicate, //nolint:gosec // below 256
		}
		if !result.Due.IsZero() {
			m.DueTime = timestamppb.New(result.Due)
		}
		results[i] = &parleyv1.ProduceResult{Result: &parleyv1.ProduceResult_Produced{Produced: m}}
	}
	return &parleyv1.ProduceResponse{Results: results, RoutedBy: int32(out.RoutedBy)}, nil //nolint:gosec // at most 256
}

// The limits of the fields of QueueMessage that most messages have, as in the schema.
const (
	maxPlainKey            = 256
	maxPlainPayload        = 262_144
	maxPlainIdempotencyKey = 128
)

// isPlain reports whether a message has no other fields than a key, a payload and an idempotency
// key, and these are valid. Such a message needs no check by reflection, which costs several times
// as much as all else that is done with it here.
func isPlain(m *parleyv1.QueueMessage) bool {
	if len(m.GetKey()) > maxPlainKey || strings.IndexByte(m.GetKey(), 0) >= 0 || len(m.GetPayload()) > maxPlainPayload ||
		len(m.GetIdempotencyKey()) > maxPlainIdempotencyKey {
		return false
	}
	for _, c := range []byte(m.GetIdempotencyKey()) {
		if c < '!' || c > '~' {
			return false
		}
	}
	return len(m.GetHeaders()) == 0 && m.GetDue() == nil && m.MaxAttempts == nil && m.GetTimeout() == nil && m.GetTtl() == nil &&
		m.GetUnique() == nil
}

func producedMessage(m *parleyv1.QueueMessage) produce.Message {
	out := produce.Message{
		Key: m.GetKey(), Payload: m.GetPayload(), Headers: m.GetHeaders(), IdempotencyKey: m.GetIdempotencyKey(),
		MaxAttempts: int(m.GetMaxAttempts()), Timeout: millis(m.GetTimeout()), TTL: millis(m.GetTtl()),
	}
	out.Delay, out.At = whenDue(m)
	if u := m.GetUnique(); u != nil {
		out.Unique = &produce.Unique{
			Key: u.GetKey(), WhileRunning: u.GetWhileRunning(), AtMost: millis(u.GetAtMost()),
			// The schema's numbers are one higher: its 0 means the default, which is qlog's 0.
			OnConflict: qlog.Conflict(max(0, u.GetOnConflict()-1)), //nolint:gosec // one of the enum's, which are few
		}
	}
	return out
}

// whenDue returns the due time with a zero delay, or the delay with a zero time. Both are rounded
// up to milliseconds.
func whenDue(d interface {
	GetDelay() *durationpb.Duration
	GetDeliverAt() *timestamppb.Timestamp
},
) (delay time.Duration, at time.Time) {
	if d.GetDeliverAt() != nil {
		return 0, millisAt(d.GetDeliverAt())
	}
	return millis(d.GetDelay()), time.Time{}
}

// CancelMessages implements parleyv1connect.QueueServiceHandler.
func (s *queueService) CancelMessages(
	ctx context.Context, req *parleyv1.CancelMessagesRequest,
) (*parleyv1.CancelMessagesResponse, error) {
	done, err := s.deps.Producers.Cancel(ctx, req.GetTopic(), req.GetMessageIds())
	if err != nil {
		return nil, err
	}
	results := make([]*parleyv1.CancelResult, len(done))
	for i := range done {
		results[i] = &parleyv1.CancelResult{}
		if done[i].Err != nil {
			results[i].Error = s.messageError(ctx, i, done[i].Err)
		}
	}
	return &parleyv1.CancelMessagesResponse{Results: results}, nil
}

// RescheduleMessages implements parleyv1connect.QueueServiceHandler.
func (s *queueService) RescheduleMessages(
	ctx context.Context, req *parleyv1.RescheduleMessagesRequest,
) (*parleyv1.RescheduleMessagesResponse, error) {
	delay, at := whenDue(req)
	done, err := s.deps.Producers.Reschedule(ctx, req.GetTopic(), req.GetMessageIds(), delay, at)
	if err != nil {
		return nil, err
	}
	results := make([]*parleyv1.RescheduleResult, len(done))
	for i := range done {
		if done[i].Err != nil {
			results[i] = &parleyv1.RescheduleResult{Result: &parleyv1.RescheduleResult_Error{Error: s.messageError(ctx, i, done[i].Err)}}
			continue
		}
		results[i] = &parleyv1.RescheduleResult{Result: &parleyv1.RescheduleResult_DueTime{DueTime: timestamppb.New(done[i].Due)}}
	}
	return &parleyv1.RescheduleMessagesResponse{Results: results}, nil
}

// messageError returns the error of the message that item i of message_ids names.
func (s *queueService) messageError(ctx context.Context, i int, err error) *parleyv1.ItemError {
	return loggedItemError(ctx, s.deps.Telemetry.Logger, func(field string) string {
		if field == "message_id" {
			return indexed("message_ids", i)
		}
		return field
	}, err)
}
