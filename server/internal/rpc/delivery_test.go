package rpc

import (
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/testing/protocmp"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	parleyv1 "github.com/parleyhq/parley/gen/go/parley/v1"
	"github.com/parleyhq/parley/server/internal/queue/consume"
	"github.com/parleyhq/parley/server/internal/queue/qlog"
)

// bodyOf encodes a message as the store keeps it: as fields of Delivery.
func bodyOf(t *testing.T, key, payload string, headers map[string]string) []byte {
	t.Helper()
	b, err := proto.Marshal(&parleyv1.Delivery{Key: key, Payload: []byte(payload), Headers: headers})
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// The codecs encode a frame of deliveries as they would encode the message, without decoding the
// bodies.
func TestDeliveryFrame(t *testing.T) {
	t.Parallel()
	at := time.UnixMicro(1_900_000_000_123_456)
	headers := map[string]string{"traceparent": "00-x", "a": ""}
	deliveries := []consume.Delivery{
		{
			Token:     consume.Token{Topic: "jobs", Partition: 7, ID: qlog.ID(at.UnixMicro()), Gen: 3},
			MessageID: "7-1900000000000000d", Body: bodyOf(t, "key", "payload", headers), Attempt: 2, ProducedAt: at,
			Timeout: 90*time.Second + time.Millisecond,
		},
		// Fields that are zero are not encoded.
		{Token: consume.Token{Topic: "o", ID: 1, Gen: 1}, MessageID: "0-1", ProducedAt: time.Unix(5, 0)},
	}
	want := &parleyv1.ConsumeResponse{Frame: &parleyv1.ConsumeResponse_Deliveries{Deliveries: &parleyv1.DeliveryBatch{Deliveries: []*parleyv1.Delivery{
		{
			Token: "jobs.7.1900000000123456.3", MessageId: "7-1900000000000000d", Partition: 7, Key: "key", Payload: []byte("payload"),
			Headers: headers, Attempt: 2, ProduceTime: timestamppb.New(at), Topic: "jobs", Delivery: 3,
			Timeout: durationpb.New(90*time.Second + time.Millisecond),
		},
		{Token: "o.0.1.1", MessageId: "0-1", ProduceTime: &timestamppb.Timestamp{Seconds: 5}, Topic: "o", Delivery: 1},
	}}}}
	for i := range 200 { // lengths of more than one byte
		deliveries = append(deliveries, consume.Delivery{
			Token: consume.Token{Topic: "o", ID: 2, Gen: 200}, MessageID: "0-2", Body: bodyOf(t, "", fmt.Sprintf("%*d", i, i), nil), ProducedAt: at,
		})
		want.GetDeliveries().Deliveries = append(want.GetDeliveries().Deliveries, &parleyv1.Delivery{
			Token: "o.0.2.200", MessageId: "0-2", Payload: fmt.Appendf(nil, "%*d", i, i), ProduceTime: timestamppb.New(at), Topic: "o", Delivery: 200,
		})
	}
	for name, c := range map[string]struct {
		streamed  bool
		got, want proto.Message
	}{
		"Consume":          {false, &parleyv1.ConsumeResponse{}, want},
		"StreamingConsume": {true, &parleyv1.StreamingConsumeResponse{}, streamed(want)},
	} {
		f := newDeliveryFrame(deliveries, c.streamed)
		data, err := protoCodec{}.Marshal(f)
		if err != nil || len(data) != f.size() {
			t.Errorf("%s: %d bytes, said %d; %v", name, len(data), f.size(), err)
		}
		if err := proto.Unmarshal(data, c.got); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(c.want, c.got, protocmp.Transform()); diff != "" {
			t.Errorf("%s: %s", name, diff)
		}
		if data, err = (jsonCodec{events: newJSONEvents()}).Marshal(f); err != nil {
			t.Fatal(err)
		}
		proto.Reset(c.got)
		if err := protojson.Unmarshal(data, c.got); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(c.want, c.got, protocmp.Transform()); diff != "" {
			t.Errorf("%s as JSON: %s", name, diff)
		}
	}
	one, err := deliveryOf(&deliveries[0])
	if diff := cmp.Diff(want.GetDeliveries().GetDeliveries()[0], one, protocmp.Transform()); diff != "" || err != nil {
		t.Errorf("alone: %s, %v", diff, err)
	}
	deliveries[0].Body = []byte{0xff}
	if _, err := deliveryOf(&deliveries[0]); err == nil {
		t.Error("a body that is not encoded was decoded")
	}
}
