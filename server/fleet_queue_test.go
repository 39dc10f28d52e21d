package server_test

import (
	"slices"
	"testing"
	"time"

	"connectrpc.com/connect"

	parleyv1 "github.com/parleyhq/parley/gen/go/parley/v1"
	"github.com/parleyhq/parley/server/internal/testkit"
)

// TestConsumerCallsThroughAnyNode checks that any node accepts every call about a session.
func TestConsumerCallsThroughAnyNode(t *testing.T) {
	t.Parallel()
	nodes := fleetOf(t, 2)
	ctx, admin := t.Context(), nodes[0].QueueAdmin(nodes[0].Token)
	here, there := nodes[0].Queues(nodes[0].Token), nodes[1].Queues(nodes[1].Token)
	must := func(_ any, err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	must(admin.CreateTopic(ctx, &parleyv1.CreateTopicRequest{Topic: &parleyv1.Topic{Name: "jobs", Partitions: 1}}))
	must(admin.CreateGroup(ctx, &parleyv1.CreateGroupRequest{Topic: "jobs", Group: slowGroup("g")}))
	produced := &parleyv1.ProduceRequest{Topic: "jobs"}
	for _, key := range []string{"a", "b", "c", "d"} {
		produced.Messages = append(produced.Messages, &parleyv1.QueueMessage{Key: key})
	}
	must(there.Produce(ctx, produced))

	r := consumingAs("jobs", "g")
	r.Concurrency, r.MaxInFlight = 2, 2
	c := consumesFrom(t, here, r)
	testkit.Eventually(t, 20*time.Second, func() error { // once the nodes know each other
		return callErr(there.UpdateSession(ctx, &parleyv1.UpdateSessionRequest{SessionId: c.sessionID}))
	})
	tokens := func(n int) (all []string) {
		t.Helper()
		for _, d := range c.await(n) {
			all = append(all, d.GetToken())
		}
		return all
	}
	settled := func(results []*parleyv1.SettleResult, want ...parleyv1.ErrorReason) {
		t.Helper()
		var got []parleyv1.ErrorReason
		for _, r := range results {
			got = append(got, r.GetError().GetDetail().GetReason())
		}
		if !slices.Equal(got, want) {
			t.Errorf("settled as %v, want %v", got, want)
		}
	}
	const ok, lost, invalid = parleyv1.ErrorReason_ERROR_REASON_UNSPECIFIED, parleyv1.ErrorReason_ERROR_REASON_DELIVERY_LOST,
		parleyv1.ErrorReason_ERROR_REASON_DELIVERY_TOKEN_INVALID
	held := tokens(2)
	acked, err := there.Ack(ctx, &parleyv1.AckRequest{SessionId: c.sessionID, Tokens: []string{held[0], "forged"}})
	must(acked, err)
	settled(acked.GetResults(), ok, invalid)
	rotten := dead(held[1])
	rotten.Code = "spoiled"
	nacked, err := there.Nack(ctx, &parleyv1.NackRequest{SessionId: c.sessionID, Items: []*parleyv1.NackItem{rotten, released(held[0])}})
	must(nacked, err)
	settled(nacked.GetResults(), ok, lost)
	held = tokens(4)
	must(there.Extend(ctx, &parleyv1.ExtendRequest{SessionId: c.sessionID, Target: &parleyv1.ExtendRequest_All{All: &parleyv1.AllDeliveries{}}}))
	extended, err := there.Extend(ctx, &parleyv1.ExtendRequest{
		SessionId: c.sessionID, Target: &parleyv1.ExtendRequest_Deliveries{Deliveries: &parleyv1.DeliveryTokens{Tokens: held}},
	})
	must(extended, err)
	settled(extended.GetResults(), lost, lost, ok, ok)
	must(there.Leave(ctx, &parleyv1.LeaveRequest{SessionId: c.sessionID}))
	acked, err = there.Ack(ctx, &parleyv1.AckRequest{SessionId: c.sessionID, Tokens: held[2:]})
	must(acked, err)
	settled(acked.GetResults(), ok, ok)
	for c.read() { // until the stream ends
	}
	if err := c.stream.Err(); err != nil {
		t.Errorf("the stream of a session that left ended with %v", err)
	}
	if err := callErr(there.Leave(ctx, &parleyv1.LeaveRequest{SessionId: c.sessionID})); connect.CodeOf(err) != connect.CodeFailedPrecondition {
		t.Errorf("a session that has ended answers %v", err)
	}
}
