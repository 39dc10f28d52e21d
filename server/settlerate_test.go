package server_test

import (
	"testing"

	"connectrpc.com/connect"

	parleyv1 "github.com/parleyhq/parley/gen/go/parley/v1"
	"github.com/parleyhq/parley/server/config"
)

// TestProducerAtItsLimitSettles checks that a subject whose calls of Produce are refused by the
// rate limit can still extend and ack its deliveries, and leave.
func TestProducerAtItsLimitSettles(t *testing.T) {
	t.Parallel()
	g := attack(t, func(c *config.Config) { c.Limits.RequestsPerSecond, c.Limits.RequestBurst = 0.01, 10 })
	g.produce("jobs", 3)
	ctx, queues := t.Context(), g.Queues(g.consumerOf("greedy", "jobs"))
	s, err := queues.Consume(ctx, &parleyv1.ConsumeRequest{Topic: "jobs", Group: "g", Consumer: "c", MaxMessages: 3})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = s.Close() }()
	var id string
	var tokens []string
	for len(tokens) < 3 {
		if !s.Receive() {
			t.Fatalf("the stream ended: %v", s.Err())
		}
		if info := s.Msg().GetInfo(); info != nil {
			id = info.GetStreamId()
		}
		for _, d := range s.Msg().GetDeliveries().GetDeliveries() {
			tokens = append(tokens, d.GetToken())
		}
	}
	one := &parleyv1.ProduceRequest{Topic: "jobs", Messages: []*parleyv1.QueueMessage{{}}}
	for n := 0; ; n++ {
		_, err := queues.Produce(ctx, one)
		if connect.CodeOf(err) == connect.CodeResourceExhausted {
			break
		}
		if err != nil || n > 10 {
			t.Fatalf("produce %d: %v", n, err)
		}
	}
	for _, token := range tokens {
		target := &parleyv1.ExtendRequest_Deliveries{Deliveries: &parleyv1.DeliveryTokens{Tokens: []string{token}}}
		extended, err := queues.Extend(ctx, &parleyv1.ExtendRequest{Topic: "jobs", Group: "g", StreamId: id, Target: target})
		if err != nil || extended.GetResults()[0].GetError() != nil {
			t.Errorf("extend at the limit: %v, %v", extended, err)
		}
		acked, err := queues.Ack(ctx, &parleyv1.AckRequest{Topic: "jobs", Group: "g", StreamId: id, Tokens: []string{token}})
		if err != nil || acked.GetResults()[0].GetError() != nil {
			t.Errorf("ack at the limit: %v, %v", acked, err)
		}
	}
	if _, err := queues.Leave(ctx, &parleyv1.LeaveRequest{Topic: "jobs", Group: "g", StreamId: id}); err != nil {
		t.Errorf("leave at the limit: %v", err)
	}
	if _, err := queues.Produce(ctx, one); connect.CodeOf(err) != connect.CodeResourceExhausted {
		t.Errorf("produce after it: %v", err)
	}
}
