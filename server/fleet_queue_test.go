package server_test

import (
	"slices"
	"testing"

	"connectrpc.com/connect"

	parleyv1 "github.com/parleyhq/parley/gen/go/parley/v1"
)

// TestConsumerCallsThroughAnyNode checks that any node accepts every call about a consumer
// stream.
func TestConsumerCallsThroughAnyNode(t *testing.T) {
	t.Parallel()
	nodes := fleetOf(t, 2)
	ctx, admin := t.Context(), nodes[0].Admin(nodes[0].Token)
	here, there := nodes[0].Queues(nodes[0].Token), nodes[1].Queues(nodes[1].Token)
	must := func(_ any, err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	must(admin.CreateTopic(ctx, &parleyv1.CreateTopicRequest{Topic: &parleyv1.Topic{Name: "jobs", Partitions: 1}}))
	must(admin.CreateGroup(ctx, &parleyv1.CreateGroupRequest{Topic: "jobs", Group: "g"}))
	produced := &parleyv1.ProduceRequest{Topic: "jobs"}
	for _, key := range []string{"a", "b", "c", "d"} {
		produced.Messages = append(produced.Messages, &parleyv1.QueueMessage{Key: key})
	}
	must(there.Produce(ctx, produced))

	s, err := here.Consume(ctx, &parleyv1.ConsumeRequest{Topic: "jobs", Group: "g", Consumer: "c", MaxMessages: 2})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = s.Close() }()
	var id string
	var tokens []string
	wait := func(n int) {
		t.Helper()
		for len(tokens) < n {
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
	const ok, again, invalid = parleyv1.ErrorReason_ERROR_REASON_UNSPECIFIED, parleyv1.ErrorReason_ERROR_REASON_ALREADY_SETTLED,
		parleyv1.ErrorReason_ERROR_REASON_DELIVERY_TOKEN_INVALID
	wait(2)
	acked, err := there.Ack(ctx, &parleyv1.AckRequest{Topic: "jobs", Group: "g", StreamId: id, Tokens: []string{tokens[0], "forged"}})
	must(acked, err)
	settled(acked.GetResults(), ok, invalid)
	nacked, err := there.Nack(ctx, &parleyv1.NackRequest{Topic: "jobs", Group: "g", StreamId: id, Items: []*parleyv1.NackItem{
		{Token: tokens[1], Outcome: &parleyv1.NackItem_DeadLetter{DeadLetter: &parleyv1.NackDeadLetter{}}, Code: "spoiled"},
		released(tokens[0]),
	}})
	must(nacked, err)
	settled(nacked.GetResults(), ok, again)
	must(there.GrantCredits(ctx, &parleyv1.GrantCreditsRequest{Topic: "jobs", Group: "g", StreamId: id, TotalMessages: 4, TotalBytes: 1}))
	wait(4)
	must(there.Extend(ctx, &parleyv1.ExtendRequest{
		Topic: "jobs", Group: "g", StreamId: id, Target: &parleyv1.ExtendRequest_All{All: &parleyv1.AllDeliveries{}},
	}))
	extended, err := there.Extend(ctx, &parleyv1.ExtendRequest{
		Topic: "jobs", Group: "g", StreamId: id,
		Target: &parleyv1.ExtendRequest_Deliveries{Deliveries: &parleyv1.DeliveryTokens{Tokens: tokens}},
	})
	must(extended, err)
	settled(extended.GetResults(), again, again, ok, ok)
	must(there.Leave(ctx, &parleyv1.LeaveRequest{Topic: "jobs", Group: "g", StreamId: id}))
	acked, err = there.Ack(ctx, &parleyv1.AckRequest{Topic: "jobs", Group: "g", StreamId: id, Tokens: tokens[2:]})
	must(acked, err)
	settled(acked.GetResults(), ok, ok)
	for s.Receive() { // until the stream ends
	}
	if err := s.Err(); err != nil {
		t.Errorf("the stream of a consumer that left ended with %v", err)
	}
	_, err = there.Leave(ctx, &parleyv1.LeaveRequest{Topic: "jobs", Group: "g", StreamId: id})
	if connect.CodeOf(err) != connect.CodeFailedPrecondition {
		t.Errorf("a stream that has ended answers %v", err)
	}
}
