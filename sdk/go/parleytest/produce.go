package parleytest

import (
	"bytes"
	"context"
	"fmt"
	"slices"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/types/known/durationpb"
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

// sequence is what a request of a producer stored, by the index of the message.
type sequence struct{ stored map[int]*message }

// maxAhead is how much higher than the oldest sequence without an answer the newest may be.
const maxAhead = 63

// sequence returns what an earlier request with the same sequence stored. known is nil if the
// request has no sequence.
func (t *topic) sequence(req *parleyv1.ProduceRequest) (known *sequence, err error) {
	id, n := string(req.GetProducerId()), req.GetSequence()
	switch {
	case id == "":
		return nil, nil //nolint:nilnil // documented
	case len(id) != 16:
		return nil, invalidField("producer_id", 0)
	case n < 1:
		return nil, invalidField("sequence", 1)
	default:
	}
	if t.sequences[id] == nil {
		t.sequences[id] = make(map[int64]*sequence)
	}
	all := t.sequences[id]
	if all[n] == nil {
		for newer := range all {
			if newer > n+maxAhead {
				return nil, errorAt(connect.CodeFailedPrecondition, parleyv1.ErrorReason_ERROR_REASON_SEQUENCE_TOO_OLD, "sequence", 0)
			}
		}
		all[n] = &sequence{stored: make(map[int]*message)}
	}
	return all[n], nil
}

// Produce implements the service. A fault can apply to single messages: the fault function is
// called with Produce/<payload> for each.
func (h queueHandler) Produce(ctx context.Context, req *parleyv1.ProduceRequest) (*parleyv1.ProduceResponse, error) {
	return do(ctx, h.s, "Produce", req, func() (*parleyv1.ProduceResponse, error) {
		h.s.tickLocked(time.Now())
		t, err := h.s.topicLocked(req.GetTopic())
		if err != nil {
			return nil, err
		}
		if t.settings.GetPaused() {
			return nil, Error(connect.CodeFailedPrecondition, parleyv1.ErrorReason_ERROR_REASON_TOPIC_PAUSED)
		}
		known, err := t.sequence(req)
		if err != nil {
			return nil, err
		}
		res := &parleyv1.ProduceResponse{}
		t.turn++ // all messages of one call without any key go to one partition
		for n, m := range req.GetMessages() {
			res.Results = append(res.Results, h.s.produceLocked(t, known, n, m))
		}
		h.s.tickLocked(time.Now())
		h.s.wakeLocked()
		return res, nil
	})
}

// produceLocked stores the message n of a request.
func (s *Server) produceLocked(t *topic, known *sequence, n int, wire *parleyv1.QueueMessage) *parleyv1.ProduceResult {
	m, duplicate, err := (*message)(nil), true, error(nil)
	if known != nil {
		m = known.stored[n]
	}
	if m == nil {
		m, duplicate, err = s.storeLocked(t, wire, func(m *message) {
			if known != nil {
				known.stored[n] = m
			}
		})
	}
	if err != nil {
		failed := prefixField(itemError(err), fmt.Sprintf("messages[%d]", n))
		return &parleyv1.ProduceResult{Result: &parleyv1.ProduceResult_Error{Error: failed}}
	}
	receipt := &parleyv1.ProducedMessage{MessageId: m.id, Partition: m.partition, Duplicate: duplicate}
	if !m.due.IsZero() {
		receipt.DueTime = timestamppb.New(m.due)
	}
	return &parleyv1.ProduceResult{Result: &parleyv1.ProduceResult_Produced{Produced: receipt}}
}

// storeLocked stores a message, with the fault that the test set. It calls stored with it, also if
// the answer is to be lost.
func (s *Server) storeLocked(
	t *topic, wire *parleyv1.QueueMessage, stored func(*message),
) (m *message, duplicate bool, err error) {
	if err := checkForm(wire); err != nil {
		return nil, false, err
	}
	if key, ok := reservedKey(wire.GetHeaders(), "webhook-", "parley-"); ok {
		return nil, false, invalidField(fmt.Sprintf("headers[%q]", key), 0)
	}
	var fault *Fault
	if s.fault != nil {
		fault = s.fault("Produce/"+string(wire.GetPayload()), wire)
	}
	if fault == nil || fault.Applied {
		if m, duplicate, err = t.store(wire); err == nil {
			stored(m)
		}
	}
	if fault != nil {
		return nil, false, fault.Err
	}
	return m, duplicate, err
}

// furthest is how far ahead a message may be due.
const furthest = 366 * 24 * time.Hour

// dueTime returns when a message is due, or the zero time if that is now.
func dueTime(r interface {
	GetDelay() *durationpb.Duration
	GetDeliverAt() *timestamppb.Timestamp
}, now time.Time,
) (time.Time, error) {
	at := now.Add(r.GetDelay().AsDuration())
	if r.GetDeliverAt() != nil {
		at = r.GetDeliverAt().AsTime()
	}
	switch {
	case at.Sub(now) > furthest:
		return at, invalidField("deliver_at", int64(furthest/(24*time.Hour)))
	case !at.After(now):
		return time.Time{}, nil
	default:
		return at, nil
	}
}

// store stores a message, or returns an earlier one with the same idempotency key or, if it is to
// be kept, with the same unique key.
func (t *topic) store(wire *parleyv1.QueueMessage) (m *message, duplicate bool, err error) {
	now := time.Now()
	due, err := dueTime(wire, now)
	if err != nil {
		return nil, false, err
	}
	m = &message{partition: t.partition(wire), wire: wire, at: now, due: due}
	if known := t.keys[wire.GetIdempotencyKey()]; known != nil && now.Before(t.forget(known)) {
		if !bytes.Equal(known.wire.GetPayload(), wire.GetPayload()) {
			return nil, false, errorAt(connect.CodeAlreadyExists, parleyv1.ErrorReason_ERROR_REASON_IDEMPOTENCY_KEY_REUSED, "idempotency_key", 0)
		}
		return known, true, nil
	}
	if err := t.makeRoom(m.partition); err != nil {
		return nil, false, err
	}
	if earlier := t.uniqueOf(m, now); earlier != nil {
		if kept, err := t.conflict(earlier, wire.GetUnique().GetOnConflict()); kept || err != nil {
			return earlier, kept, err
		}
	}
	t.seq++
	m.seq, m.id = t.seq, t.newID(m.partition, now)
	t.count(m.partition).produced++
	if wire.GetIdempotencyKey() != "" {
		t.keys[wire.GetIdempotencyKey()] = m
	}
	if wire.GetUnique() != nil {
		t.uniques[uniqueKey(m)] = m
	}
	if due.IsZero() {
		t.appear(m)
	} else {
		m.id += "d"
		t.later = append(t.later, m)
	}
	return m, false, nil
}

// forget returns until when the idempotency key of a message counts.
func (t *topic) forget(m *message) time.Time {
	at := m.at
	if m.due.After(at) {
		at = m.due
	}
	return at.Add(t.settings.GetIdempotencyWindow().AsDuration())
}

// makeRoom returns an error if a partition is full. If the topic is to drop the oldest messages, it
// makes room instead.
func (t *topic) makeRoom(partition int32) error {
	limit := t.settings.GetMaxMessagesPerPartition()
	if limit == 0 {
		return nil
	}
	n := int64(0)
	var oldest *message
	for _, m := range t.later {
		if m.partition == partition {
			n++
		}
	}
	for _, m := range t.log {
		if m.partition == partition && len(t.unsettled(m)) > 0 {
			n++
			if oldest == nil {
				oldest = m
			}
		}
	}
	switch {
	case n < limit:
		return nil
	case !t.settings.GetDropOldest() || oldest == nil:
		return errorAt(connect.CodeResourceExhausted, parleyv1.ErrorReason_ERROR_REASON_TOPIC_FULL, "", limit)
	default:
		t.remove(oldest)
		return nil
	}
}

// remove removes a message from the log and returns the number of groups that had not settled it.
func (t *topic) remove(m *message) (lost int64) {
	for _, j := range t.unsettled(m) {
		if j.holder != nil {
			j.holder.tellLost(parleyv1.LostDeliveries_CAUSE_CANCELLED, j.token)
		}
		j.group.settled(j)
		j.group.count(m).Trimmed++
		lost++
	}
	t.log = slices.DeleteFunc(t.log, func(other *message) bool { return other == m })
	return lost
}

func uniqueKey(m *message) string { return fmt.Sprint(m.partition, " ", m.wire.GetUnique().GetKey()) }

// uniqueOf returns the message that has the unique key of m, or nil.
func (t *topic) uniqueOf(m *message, now time.Time) *message {
	if m.wire.GetUnique() == nil {
		return nil
	}
	earlier := t.uniques[uniqueKey(m)]
	if earlier == nil {
		return nil
	}
	most := 24 * time.Hour
	if d := earlier.wire.GetUnique().GetAtMost(); d != nil {
		most = d.AsDuration()
	}
	from := earlier.at
	if earlier.due.After(from) {
		from = earlier.due
	}
	if now.After(from.Add(most)) {
		return nil
	}
	return earlier
}

// freeUnique frees the unique key of a message.
func (t *topic) freeUnique(m *message) {
	if m.wire.GetUnique() != nil && t.uniques[uniqueKey(m)] == m {
		delete(t.uniques, uniqueKey(m))
	}
}

// conflict decides about a message whose unique key an earlier one has: whether the earlier one is
// kept. It cancels the earlier one if that is to be replaced.
func (t *topic) conflict(earlier *message, on parleyv1.Unique_OnConflict) (kept bool, err error) {
	switch on {
	case parleyv1.Unique_ON_CONFLICT_KEEP:
		return true, nil
	case parleyv1.Unique_ON_CONFLICT_REPLACE:
		if t.cancel(earlier.id) == nil {
			return false, nil
		}
	default:
	}
	return false, errorAt(connect.CodeAlreadyExists, parleyv1.ErrorReason_ERROR_REASON_UNIQUE_KEY_IN_USE, "unique.key", 0)
}

// cancel cancels a message in every group that has not settled it, unless a handler has begun it.
func (t *topic) cancel(id string) error {
	missing := errorAt(connect.CodeNotFound, parleyv1.ErrorReason_ERROR_REASON_MESSAGE_NOT_FOUND, "message_id", 0)
	same := func(m *message) bool { return m.id == id }
	if at := slices.IndexFunc(t.later, same); at >= 0 {
		m := t.later[at]
		t.later = slices.Delete(t.later, at, at+1)
		t.count(m.partition).cancelled++
		t.freeUnique(m)
		return nil
	}
	at := slices.IndexFunc(t.log, same)
	if at < 0 {
		return missing
	}
	jobs := t.unsettled(t.log[at])
	if len(jobs) == 0 {
		return missing
	}
	if slices.ContainsFunc(jobs, func(j *job) bool { return j.begun }) {
		return Error(connect.CodeFailedPrecondition, parleyv1.ErrorReason_ERROR_REASON_MESSAGE_RUNNING)
	}
	for _, j := range jobs {
		if j.holder != nil {
			j.holder.tellLost(parleyv1.LostDeliveries_CAUSE_CANCELLED, j.token)
		}
		j.group.settled(j)
		j.group.count(j.message).Cancelled++
	}
	return nil
}

// messageError returns the error of the message that item i of message_ids names.
func messageError(err error, i int) *parleyv1.ItemError {
	item := itemError(err)
	if item.GetDetail().GetField() == "message_id" {
		item.Detail.Field = fmt.Sprintf("message_ids[%d]", i)
	}
	return item
}

// CancelMessages implements the service.
func (h queueHandler) CancelMessages(
	ctx context.Context, req *parleyv1.CancelMessagesRequest,
) (*parleyv1.CancelMessagesResponse, error) {
	return do(ctx, h.s, "CancelMessages", req, func() (*parleyv1.CancelMessagesResponse, error) {
		h.s.tickLocked(time.Now())
		t, err := h.s.topicLocked(req.GetTopic())
		if err != nil {
			return nil, err
		}
		res := &parleyv1.CancelMessagesResponse{}
		for i, id := range req.GetMessageIds() {
			res.Results = append(res.Results, &parleyv1.CancelResult{Error: messageError(t.cancel(id), i)})
		}
		h.s.wakeLocked()
		return res, nil
	})
}

// RescheduleMessages implements the service.
func (h queueHandler) RescheduleMessages(
	ctx context.Context, req *parleyv1.RescheduleMessagesRequest,
) (*parleyv1.RescheduleMessagesResponse, error) {
	return do(ctx, h.s, "RescheduleMessages", req, func() (*parleyv1.RescheduleMessagesResponse, error) {
		now := time.Now()
		h.s.tickLocked(now)
		t, err := h.s.topicLocked(req.GetTopic())
		if err != nil {
			return nil, err
		}
		due, err := dueTime(req, now)
		if err != nil {
			return nil, err
		}
		if due.IsZero() {
			due = now
		}
		res := &parleyv1.RescheduleMessagesResponse{}
		for i, id := range req.GetMessageIds() {
			one := &parleyv1.RescheduleResult{Result: &parleyv1.RescheduleResult_DueTime{DueTime: timestamppb.New(due)}}
			if at := slices.IndexFunc(t.later, func(m *message) bool { return m.id == id }); at >= 0 {
				t.later[at].due = due
			} else {
				missing := errorAt(connect.CodeNotFound, parleyv1.ErrorReason_ERROR_REASON_SCHEDULED_NOT_FOUND, "message_id", 0)
				one.Result = &parleyv1.RescheduleResult_Error{Error: messageError(missing, i)}
			}
			res.Results = append(res.Results, one)
		}
		h.s.wakeLocked()
		return res, nil
	})
}
