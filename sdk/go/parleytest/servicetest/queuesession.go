package servicetest

import (
	"fmt"
	"slices"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/types/known/durationpb"

	parleyv1 "github.com/parleyhq/parley/gen/go/parley/v1"
)

func leave(e *env) {
	name := e.topic(&parleyv1.Topic{Partitions: 1}, "g")
	e.put(name, "1", "2")
	s := e.consume(&parleyv1.ConsumeRequest{Topics: []string{name}, Group: "g", Concurrency: 10, ReportsBegun: true})
	d := s.want("1", 1)
	s.want("2", 1)
	s.begin(d)
	for range 2 {
		e.no(errOf(e.ann.queues.Leave(e.ctx, &parleyv1.LeaveRequest{SessionId: s.id})))
	}
	next := e.consume(&parleyv1.ConsumeRequest{Topics: []string{name}, Group: "g", Concurrency: 10})
	next.want("2", 1) // no handler had begun it
	e.put(name, "3")
	e.done(s.ack(d))
	e.no(s.ended())
	equal(e, "deliveries after leaving", len(s.deliveries), 0)
	_, err := e.ann.queues.Leave(e.ctx, &parleyv1.LeaveRequest{SessionId: s.id})
	e.refused("leave again", err, sessionLost)
	next.want("3", 1)
}

// begin reports that a handler has begun a delivery.
func (s *consumer) begin(d *parleyv1.Delivery) {
	s.e.Helper()
	r, err := s.e.ann.queues.Extend(s.e.ctx, &parleyv1.ExtendRequest{
		SessionId: s.id, Begun: true,
		Target: &parleyv1.ExtendRequest_Deliveries{Deliveries: &parleyv1.DeliveryTokens{Tokens: []string{d.GetToken()}}},
	})
	s.e.no(err)
	s.e.done(s.only(r.GetResults(), 1))
}

// resumed closes a stream and resumes the session on another one. What the session holds must be
// kept, verdicts must count once, and what never reached the consumer must be delivered again.
func resumed(e *env) {
	name := e.topic(&parleyv1.Topic{Partitions: 1}, "g")
	e.put(name, "1", "2", "3", "4")
	first := e.consume(&parleyv1.ConsumeRequest{Topics: []string{name}, Group: "g", Concurrency: 10, ReportsBegun: true})
	one, two, three := first.want("1", 1), first.want("2", 1), first.want("3", 1)
	first.want("4", 1)
	first.begin(one)
	e.done(first.ack(three))
	first.close()
	request := &parleyv1.ConsumeRequest{
		Topics: []string{name}, Group: "g", Concurrency: 10, ReportsBegun: true, Consumer: "worker",
		Resume: &parleyv1.Resume{
			SessionId: first.id, Resumes: 1, Held: []*parleyv1.HeldDelivery{{Token: one.GetToken(), Begun: true}, {Token: "nothing"}},
			Unanswered: []*parleyv1.UnansweredVerdict{
				{Verdict: &parleyv1.UnansweredVerdict_Ack{Ack: two.GetToken()}}, {Verdict: &parleyv1.UnansweredVerdict_Ack{Ack: three.GetToken()}},
			},
		},
	}
	second := e.consume(request)
	equal(e, "the session", second.id, first.id)
	results := second.started.GetUnanswered()
	if len(results) != 2 || results[0].GetError() != nil || results[1].GetError() != nil {
		e.Errorf("the verdicts' results: %v", results)
	}
	if !slices.Contains(second.started.GetLost().GetTokens(), "nothing") {
		e.Errorf("lost: %v", second.started.GetLost())
	}
	four := second.want("4", 1)
	equal(e, "the number of the delivery", four.GetDelivery(), 2)
	third := second.resume(2, &parleyv1.HeldDelivery{Token: one.GetToken(), Begun: true}, &parleyv1.HeldDelivery{Token: four.GetToken()})
	e.refused("the stream before", second.ended(), sessionLost)
	stream, err := e.ann.queues.Consume(e.ctx, request)
	e.no(err)
	for stream.Receive() {
		e.Errorf("a stream with an old number has the frame %v", stream.Msg())
	}
	e.refused("an old number", stream.Err(), sessionLost)
	e.done(third.ack(one, four))
	e.stats(name, "g", "waiting 0 running 0 retrying 0 acked 4 dead 0")
}

// lostConsumer closes a stream that is not resumed. After the grace time its deliveries must go to
// another session. The one that a handler had begun must count as an attempt.
func lostConsumer(e *env) {
	name := e.topic(&parleyv1.Topic{Partitions: 1})
	e.group(name, &parleyv1.Group{
		Name: "g", ResumeGrace: durationpb.New(time.Second),
		Retry: &parleyv1.RetryPolicy{MinBackoff: durationpb.New(time.Millisecond), MaxBackoff: durationpb.New(time.Millisecond)},
	})
	e.put(name, "1", "2")
	first := e.consume(&parleyv1.ConsumeRequest{Topics: []string{name}, Group: "g", Concurrency: 10, ReportsBegun: true})
	one := first.want("1", 1)
	first.want("2", 1)
	first.begin(one)
	first.close()
	second := e.consume(&parleyv1.ConsumeRequest{Topics: []string{name}, Group: "g", Concurrency: 10})
	attempts := make(map[string]int32)
	for len(attempts) < 2 {
		d := second.next()
		attempts[string(d.GetPayload())] = d.GetAttempt()
		e.done(second.ack(d))
	}
	equal(e, "attempts", fmt.Sprint(attempts), "map[1:2 2:1]")
	e.refusedItem("ack what another session has settled", first.ack(one), deliveryLost)
}

// heartbeats checks the age of the heartbeats, which are confirmed contact while a session holds
// nothing.
func heartbeats(e *env) {
	name := e.topic(&parleyv1.Topic{Partitions: 1})
	e.group(name, &parleyv1.Group{Name: "g", ResumeGrace: durationpb.New(time.Second)})
	asked := time.Now()
	s := e.consume(&parleyv1.ConsumeRequest{Topics: []string{name}, Group: "g"})
	if every := s.started.GetHeartbeatInterval().AsDuration(); every > 250*time.Millisecond {
		e.Errorf("a heartbeat every %s, with a grace time of 1 s", every)
	}
	last := time.Duration(0)
	for beats := 0; beats < 3; {
		if !s.receive() {
			e.Fatalf("the stream ended: %v", s.stream.Err())
		}
		beat := s.stream.Msg().GetHeartbeat()
		if beat == nil {
			continue
		}
		beats++
		if old := beat.GetElapsed().AsDuration(); old <= last || old > time.Since(asked) || beat.GetUnconfirmed().AsDuration() != 0 {
			e.Errorf("the heartbeat after %s and before %s: %v", last, time.Since(asked), beat)
		}
		last = beat.GetElapsed().AsDuration()
	}
}

// exclusive checks that the partitions of an exclusive group are shared.
func exclusive(e *env) {
	name := e.topic(&parleyv1.Topic{Partitions: 2})
	e.group(name, &parleyv1.Group{Name: "g", Mode: parleyv1.GroupMode_GROUP_MODE_EXCLUSIVE})
	parts := func(s *consumer, n int) []int32 {
		e.Helper()
		for len(s.parts) != n {
			if !s.receive() {
				e.Fatalf("the stream ended: %v", s.stream.Err())
			}
		}
		return s.parts
	}
	first := e.consume(&parleyv1.ConsumeRequest{Topics: []string{name}, Group: "g"})
	equal(e, "all partitions", fmt.Sprint(parts(first, 2)), "[0 1]")
	second := e.consume(&parleyv1.ConsumeRequest{Topics: []string{name}, Group: "g"})
	equal(e, "shares", parts(first, 1)[0]+parts(second, 1)[0], 1)
	_, err := e.ann.queues.Receive(e.ctx, &parleyv1.ReceiveRequest{Topic: name, Group: "g"})
	e.refused("receive", err, refusal{connect.CodeFailedPrecondition, "GROUP_EXCLUSIVE", "", 0})
}

func ackTimeout(e *env) {
	name := e.topic(&parleyv1.Topic{Partitions: 1})
	e.group(name, &parleyv1.Group{
		Name: "g", Retry: &parleyv1.RetryPolicy{MinBackoff: durationpb.New(time.Millisecond), MaxBackoff: durationpb.New(time.Millisecond)},
	})
	e.put(name, "1")
	s := e.consume(&parleyv1.ConsumeRequest{Topics: []string{name}, Group: "g", AckTimeout: durationpb.New(time.Second)})
	d := s.want("1", 1)
	s.wantLost(parleyv1.LostDeliveries_CAUSE_ACK_TIMEOUT, d)
	e.refusedItem("ack what was lost", s.ack(d), deliveryLost)
	s.want("1", 2)
}
