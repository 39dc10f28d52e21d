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
	c := consumesFrom(t, queues, consuming("jobs"))
	held := c.await(3)
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
	for _, d := range held {
		token := d.GetToken()
		target := &parleyv1.ExtendRequest_Deliveries{Deliveries: &parleyv1.DeliveryTokens{Tokens: []string{token}}}
		extended, err := queues.Extend(ctx, &parleyv1.ExtendRequest{SessionId: c.sessionID, Target: target})
		if err != nil || extended.GetResults()[0].GetError() != nil {
			t.Errorf("extend at the limit: %v, %v", extended, err)
		}
		acked, err := queues.Ack(ctx, &parleyv1.AckRequest{SessionId: c.sessionID, Tokens: []string{token}})
		if err != nil || acked.GetResults()[0].GetError() != nil {
			t.Errorf("ack at the limit: %v, %v", acked, err)
		}
	}
	if _, err := queues.Leave(ctx, &parleyv1.LeaveRequest{SessionId: c.sessionID}); err != nil {
		t.Errorf("leave at the limit: %v", err)
	}
	if _, err := queues.Produce(ctx, one); connect.CodeOf(err) != connect.CodeResourceExhausted {
		t.Errorf("produce after it: %v", err)
	}
}
