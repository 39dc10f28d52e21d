package parleytest

import (
	"context"
	"fmt"
	"slices"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/types/known/timestamppb"

	parleyv1 "github.com/parleyhq/parley/gen/go/parley/v1"
)

// itemError converts an error of a call to that of one item of a batch. It returns nil for nil.
func itemError(err error) *parleyv1.ItemError {
	var ce *connect.Error
	if err == nil || !asConnect(err, &ce) {
		return nil
	}
	item := &parleyv1.ItemError{Code: parleyv1.StatusCode(ce.Code()), Message: ce.Message()}
	for _, d := range ce.Details() {
		if v, err := d.Value(); err == nil {
			item.Detail, _ = v.(*parleyv1.ErrorDetail)
		}
	}
	return item
}

// prefixField puts item, the path of a list item such as messages[3], before the field in the
// item's error. It returns err. It changes nothing if err is nil or names no field.
func prefixField(err *parleyv1.ItemError, item string) *parleyv1.ItemError {
	if d := err.GetDetail(); d.GetField() != "" {
		d.Field = item + "." + d.GetField()
	}
	return err
}

// storable returns the topic, or an error if it does not exist or producing to it is paused.
func (s *shared) storable(name string) (*topic, error) {
	t, err := s.topicLocked(name)
	if err != nil {
		return nil, err
	}
	if t.settings.GetProducePaused() {
		return nil, Error(connect.CodeFailedPrecondition, parleyv1.ErrorReason_ERROR_REASON_TOPIC_PAUSED)
	}
	return t, nil
}

// storeLocked stores an item of a batch that is due at the given time, with the fault that the test
// set. The fault function is called with the method's name, a slash and the payload.
func (s *Server) storeLocked(
	t *topic, method string, msg *parleyv1.QueueMessage, due time.Time,
) (i *item, duplicate bool, err error) {
	if err := checkForm(msg); err != nil {
		return nil, false, err
	}
	if key, ok := reservedKey(msg.GetHeaders(), "webhook-", "parley-"); ok {
		return nil, false, invalidField(fmt.Sprintf("headers[%q]", key), 0)
	}
	var fault *Fault
	if s.fault != nil {
		fault = s.fault(method+"/"+string(msg.GetPayload()), msg)
	}
	if fault == nil || fault.Applied {
		i, duplicate, err = t.store(msg, due)
	}
	if fault != nil {
		return nil, false, fault.Err
	}
	return i, duplicate, err
}

// Produce implements the service.
func (h queueHandler) Produce(ctx context.Context, req *parleyv1.ProduceRequest) (*parleyv1.ProduceResponse, error) {
	return do(ctx, h.s, "Produce", req, func() (*parleyv1.ProduceResponse, error) {
		t, err := h.s.storable(req.GetTopic())
		if err != nil {
			return nil, err
		}
		res := &parleyv1.ProduceResponse{}
		t.turn++ // all messages of one call without any key go to one partition
		for n, m := range req.GetMessages() {
			i, duplicate, err := h.s.storeLocked(t, "Produce", m, time.Time{})
			if err != nil {
				wire := prefixField(itemError(err), fmt.Sprintf("messages[%d]", n))
				res.Results = append(res.Results, &parleyv1.ProduceResult{Result: &parleyv1.ProduceResult_Error{Error: wire}})
				continue
			}
			res.Results = append(res.Results, &parleyv1.ProduceResult{Result: &parleyv1.ProduceResult_Produced{
				Produced: &parleyv1.ProducedMessage{MessageId: i.id, Partition: i.partition, Duplicate: duplicate},
			}})
		}
		h.s.wakeLocked()
		return res, nil
	})
}

// Schedule implements the service.
func (h queueHandler) Schedule(ctx context.Context, req *parleyv1.ScheduleRequest) (*parleyv1.ScheduleResponse, error) {
	return do(ctx, h.s, "Schedule", req, func() (*parleyv1.ScheduleResponse, error) {
		t, err := h.s.storable(req.GetTopic())
		if err != nil {
			return nil, err
		}
		res := &parleyv1.ScheduleResponse{}
		t.turn++ // all messages of one call without any key go to one partition
		for n, m := range req.GetMessages() {
			due := m.GetDueTime().AsTime()
			if m.GetDelay() != nil {
				due = time.Now().Add(m.GetDelay().AsDuration())
			}
			var i *item
			var duplicate bool
			err, path := checkForm(m), fmt.Sprintf("messages[%d]", n)
			if err == nil {
				path += ".message"
				i, duplicate, err = h.s.storeLocked(t, "Schedule", m.GetMessage(), due)
			}
			if err != nil {
				wire := prefixField(itemError(err), path)
				res.Results = append(res.Results, &parleyv1.ScheduleResult{Result: &parleyv1.ScheduleResult_Error{Error: wire}})
				continue
			}
			res.Results = append(res.Results, &parleyv1.ScheduleResult{Result: &parleyv1.ScheduleResult_Scheduled{
				Scheduled: &parleyv1.ScheduledReceipt{
					MessageId: i.id, Partition: i.partition, DueTime: timestamppb.New(i.due), Duplicate: duplicate,
				},
			}})
		}
		h.s.wakeLocked()
		return res, nil
	})
}

// scheduled returns the index in t.later of a scheduled message that has not appeared yet.
func (t *topic) scheduled(id string) (int, error) {
	t.advance(time.Now())
	at := slices.IndexFunc(t.later, func(i *item) bool { return i.id == id })
	if at < 0 {
		return 0, errorAt(connect.CodeNotFound, parleyv1.ErrorReason_ERROR_REASON_SCHEDULED_NOT_FOUND, "message_id", 0)
	}
	return at, nil
}

// CancelScheduled implements the service.
func (h queueHandler) CancelScheduled(
	ctx context.Context, req *parleyv1.CancelScheduledRequest,
) (*parleyv1.CancelScheduledResponse, error) {
	return do(ctx, h.s, "CancelScheduled", req, func() (*parleyv1.CancelScheduledResponse, error) {
		t, err := h.s.topicLocked(req.GetTopic())
		if err != nil {
			return nil, err
		}
		at, err := t.scheduled(req.GetMessageId())
		if err != nil {
			return nil, err
		}
		t.later = slices.Delete(t.later, at, at+1)
		return &parleyv1.CancelScheduledResponse{}, nil
	})
}

// RescheduleScheduled implements the service.
func (h queueHandler) RescheduleScheduled(
	ctx context.Context, req *parleyv1.RescheduleScheduledRequest,
) (*parleyv1.RescheduleScheduledResponse, error) {
	return do(ctx, h.s, "RescheduleScheduled", req, func() (*parleyv1.RescheduleScheduledResponse, error) {
		t, err := h.s.topicLocked(req.GetTopic())
		if err != nil {
			return nil, err
		}
		at, err := t.scheduled(req.GetMessageId())
		if err != nil {
			return nil, err
		}
		due := req.GetDueTime().AsTime()
		if req.GetDelay() != nil {
			due = time.Now().Add(req.GetDelay().AsDuration())
		}
		t.later[at].due = due
		h.s.wakeLocked()
		return &parleyv1.RescheduleScheduledResponse{DueTime: timestamppb.New(due)}, nil
	})
}
