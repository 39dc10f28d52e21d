package rpc

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	parleyv1 "github.com/parleyhq/parley/gen/go/parley/v1"
	"github.com/parleyhq/parley/gen/go/parley/v1/parleyv1connect"
)

// toldProduced returns the results of a Produce, as told does.
func toldProduced(r *parleyv1.ProduceResponse) []string {
	out := make([]string, len(r.GetResults()))
	for i, result := range r.GetResults() {
		out[i] = told(result.GetError())
		if p := result.GetProduced(); p.GetDuplicate() {
			out[i] += " duplicate"
		} else if p.GetDueTime() != nil {
			out[i] += fmt.Sprint(" due in ", time.Until(p.GetDueTime().AsTime()).Round(time.Hour))
		}
	}
	return out
}

// Messages are validated one by one, and each has its own result. They are delivered with what they
// were produced with.
func TestQueueProduce(t *testing.T) {
	t.Parallel()
	b := queueSetup(t, nil)
	headers := make(map[string]string)
	for i := range 33 {
		headers[fmt.Sprint("h", i)] = ""
	}
	hour := durationpb.New(time.Hour)
	b.each(func(t *testing.T, _ int, topic string, c parleyv1connect.QueueServiceClient) {
		attempts := int32(1)
		unique := func(on parleyv1.Unique_OnConflict) *parleyv1.Unique {
			return &parleyv1.Unique{Key: "u", OnConflict: on}
		}
		items := []*parleyv1.QueueMessage{
			{Key: "a", Payload: []byte{0, 255}, Headers: map[string]string{"x": "y"}, IdempotencyKey: "k", Timeout: hour, MaxAttempts: &attempts},
			{Key: "a", Payload: []byte{0, 255}, Headers: map[string]string{"x": "y"}, IdempotencyKey: "k", Timeout: hour, MaxAttempts: &attempts},
			{Key: "a", IdempotencyKey: "k"},
			{Key: "a\x00b"},
			{Payload: make([]byte, 256<<10+1)},
			{Headers: headers},
			{Headers: map[string]string{"parley-x": ""}},
			{Due: &parleyv1.QueueMessage_Delay{Delay: hour}},
			{Due: &parleyv1.QueueMessage_DeliverAt{DeliverAt: timestamppb.New(time.Now().Add(2 * time.Hour))}, Unique: unique(0)},
			{Unique: unique(parleyv1.Unique_ON_CONFLICT_REJECT)},
			{Unique: unique(parleyv1.Unique_ON_CONFLICT_KEEP)},
			{Unique: &parleyv1.Unique{}},
			{Ttl: &durationpb.Duration{}},
		}
		r, err := c.Produce(t.Context(), &parleyv1.ProduceRequest{Topic: topic, Messages: items})
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff([]string{
			"ok", "ok duplicate", "already_exists IDEMPOTENCY_KEY_REUSED messages[2].idempotency_key",
			"invalid_argument INVALID_FIELD messages[3].key", "invalid_argument INVALID_FIELD messages[4].payload",
			"invalid_argument INVALID_FIELD messages[5].headers", "invalid_argument INVALID_FIELD messages[6].headers[\"parley-x\"]",
			"ok due in 1h0m0s", "ok due in 2h0m0s", "already_exists UNIQUE_KEY_IN_USE messages[9].unique.key", "ok duplicate",
			"invalid_argument INVALID_FIELD messages[11].unique.key", "invalid_argument INVALID_FIELD messages[12].ttl",
		}, toldProduced(r)); diff != "" {
			t.Error(diff)
		}
		d := openSession(t, c, consumes(topic)).next()
		if d.GetKey() != "a" || string(d.GetPayload()) != "\x00\xff" || d.GetHeaders()["x"] != "y" || d.GetTimeout().AsDuration() != time.Hour ||
			d.GetMessageId() != r.GetResults()[0].GetProduced().GetMessageId() {
			t.Errorf("delivered %v", d)
		}

		scheduled, other := r.GetResults()[7].GetProduced().GetMessageId(), r.GetResults()[8].GetProduced().GetMessageId()
		ids := []string{scheduled, "x", d.GetMessageId()}
		later, err := c.RescheduleMessages(t.Context(), &parleyv1.RescheduleMessagesRequest{
			Topic: topic, MessageIds: ids, Due: &parleyv1.RescheduleMessagesRequest_Delay{Delay: durationpb.New(3 * time.Hour)},
		})
		if err != nil || time.Until(later.GetResults()[0].GetDueTime().AsTime()).Round(time.Hour) != 3*time.Hour ||
			told(later.GetResults()[1].GetError()) != "not_found SCHEDULED_NOT_FOUND message_ids[1]" ||
			told(later.GetResults()[2].GetError()) != "not_found SCHEDULED_NOT_FOUND message_ids[2]" {
			t.Errorf("%v, %v", later, err)
		}
		for i, want := range []string{"ok ok not_found MESSAGE_NOT_FOUND message_ids[2]", "not_found MESSAGE_NOT_FOUND message_ids[0] not_found MESSAGE_NOT_FOUND message_ids[1] not_found MESSAGE_NOT_FOUND message_ids[2]"} {
			cancelled, err := c.CancelMessages(t.Context(), &parleyv1.CancelMessagesRequest{Topic: topic, MessageIds: []string{scheduled, other, "x"}})
			var got []string
			for _, result := range cancelled.GetResults() {
				got = append(got, told(result.GetError()))
			}
			if strings.Join(got, " ") != want || err != nil {
				t.Errorf("cancelled, %d: %q, %v", i, got, err)
			}
		}
	})
}

// A numbered request can be repeated, also with messages that are not valid.
func TestQueueProduceRepeated(t *testing.T) {
	t.Parallel()
	b := queueSetup(t, nil)
	b.each(func(t *testing.T, protocol int, topic string, c parleyv1connect.QueueServiceClient) {
		r := &parleyv1.ProduceRequest{
			Topic: topic, ProducerId: []byte("0123456789abcde" + string(rune('0'+protocol))), Sequence: 1,
			Messages: []*parleyv1.QueueMessage{{Key: "a"}, {Key: "a\x00"}, {Key: "b"}},
		}
		for i, want := range []string{
			"[ok invalid_argument INVALID_FIELD messages[1].key ok]", "[ok duplicate invalid_argument INVALID_FIELD messages[1].key ok duplicate]",
		} {
			got, err := c.Produce(t.Context(), r)
			if err != nil || fmt.Sprint(toldProduced(got)) != want || got.GetRoutedBy() == 0 {
				t.Errorf("%d: %q, routed by %d, %v", i, toldProduced(got), got.GetRoutedBy(), err)
			}
		}
		r.Sequence = 0
		if _, err := c.Produce(t.Context(), r); refusedAs(t, err) != `invalid_argument INVALID_FIELD "sequence" 1` {
			t.Errorf("without a sequence: %v", err)
		}
		r.ProducerId = []byte("short")
		if _, err := c.Produce(t.Context(), r); refusedAs(t, err) != `invalid_argument INVALID_FIELD "producer_id" 0` {
			t.Errorf("a short producer id: %v", err)
		}
		// Routed by one partition of the two, all messages go to that.
		r = &parleyv1.ProduceRequest{Topic: topic, RoutedBy: 1, Messages: []*parleyv1.QueueMessage{{Key: "a"}, {Key: "b"}, {Key: "c"}, {Key: "d"}, {Key: "e"}}}
		got, err := c.Produce(t.Context(), r)
		for i, result := range got.GetResults() {
			if p := result.GetProduced(); err != nil || p == nil || p.GetPartition() != 0 {
				t.Errorf("message %d, routed by 1 partition: %v, %v", i, result, err)
			}
		}
		r = &parleyv1.ProduceRequest{Topic: "away", Messages: []*parleyv1.QueueMessage{{}}}
		if _, err := c.Produce(t.Context(), r); refusedAs(t, err) != `not_found TOPIC_NOT_FOUND "topic" 0` {
			t.Errorf("a topic that does not exist: %v", err)
		}
	})
}
