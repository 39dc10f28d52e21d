package servicetest

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/types/known/durationpb"

	parleyv1 "github.com/parleyhq/parley/gen/go/parley/v1"
)

var (
	deliveryLost = refusal{connect.CodeFailedPrecondition, "DELIVERY_LOST", "", 0}
	sessionLost  = refusal{connect.CodeFailedPrecondition, "SESSION_LOST", "", 0}
	falseOne     = refusal{connect.CodeInvalidArgument, "DELIVERY_TOKEN_INVALID", "tokens[0]", 0}
)

// consumer is a session with a live Consume stream. deliveries are those received but not yet
// returned by next.
type consumer struct {
	e          *env
	id         string
	request    *parleyv1.ConsumeRequest
	started    *parleyv1.SessionStarted
	stream     *connect.ServerStreamForClient[parleyv1.ConsumeResponse]
	parts      []int32
	deliveries []*parleyv1.Delivery
	lost       []*parleyv1.LostDeliveries
	close      func()
}

// consume opens a stream and reads its first frame. The stream ends with the scenario.
func (e *env) consume(request *parleyv1.ConsumeRequest) *consumer {
	e.Helper()
	if request.GetConsumer() == "" {
		request.Consumer = "worker"
	}
	ctx, cancel := context.WithCancel(e.ctx)
	stream, err := e.ann.queues.Consume(ctx, request)
	e.no(err)
	s := &consumer{e: e, request: request, stream: stream}
	s.id, s.close = e.opened(stream, cancel, func() *parleyv1.StreamInfo {
		s.started = stream.Msg().GetStarted()
		return &parleyv1.StreamInfo{StreamId: s.started.GetSessionId(), HeartbeatInterval: s.started.GetHeartbeatInterval()}
	})
	return s
}

// resume opens another stream of a session, which says that it holds the deliveries.
func (s *consumer) resume(resumes int64, held ...*parleyv1.HeldDelivery) *consumer {
	s.e.Helper()
	request := &parleyv1.ConsumeRequest{
		Topics: s.request.GetTopics(), Group: s.request.GetGroup(), Concurrency: s.request.GetConcurrency(),
		ReportsBegun: s.request.GetReportsBegun(), Resume: &parleyv1.Resume{SessionId: s.id, Resumes: resumes, Held: held},
	}
	return s.e.consume(request)
}

// receive reads one frame. It reports false if the stream has ended.
func (s *consumer) receive() bool {
	if !s.stream.Receive() {
		return false
	}
	s.deliveries = append(s.deliveries, s.stream.Msg().GetDeliveries().GetDeliveries()...)
	if a := s.stream.Msg().GetAssignment(); a != nil {
		s.parts = a.GetPartitions()
	}
	if l := s.stream.Msg().GetLost(); l != nil {
		s.lost = append(s.lost, l)
	}
	return true
}

// wantLost waits until the consumer is told that it has lost a delivery. It compares the cause,
// unless that is unspecified.
func (s *consumer) wantLost(cause parleyv1.LostDeliveries_Cause, d *parleyv1.Delivery) {
	s.e.Helper()
	for {
		for _, l := range s.lost {
			if slices.Contains(l.GetTokens(), d.GetToken()) {
				if cause != parleyv1.LostDeliveries_CAUSE_UNSPECIFIED {
					equal(s.e, "the cause", l.GetCause(), cause)
				}
				return
			}
		}
		if !s.receive() {
			s.e.Fatalf("the stream ended: %v", s.stream.Err())
		}
	}
}

// next waits for the next delivery and returns it.
func (s *consumer) next() *parleyv1.Delivery {
	s.e.Helper()
	for len(s.deliveries) == 0 {
		if !s.receive() {
			s.e.Fatalf("the stream ended: %v", s.stream.Err())
		}
	}
	first := s.deliveries[0]
	s.deliveries = s.deliveries[1:]
	return first
}

// want waits for the next delivery and returns it. It fails the scenario if payload or attempt
// differ.
func (s *consumer) want(payload string, attempt int32) *parleyv1.Delivery {
	s.e.Helper()
	d := s.next()
	if string(d.GetPayload()) != payload || d.GetAttempt() != attempt {
		s.e.Fatalf("delivered %q attempt %d, want %q attempt %d", d.GetPayload(), d.GetAttempt(), payload, attempt)
	}
	return d
}

// ended reads to the end of the stream and returns its error, or nil for an end without one.
func (s *consumer) ended() error {
	for s.receive() {
	}
	return s.stream.Err()
}

// ack acks deliveries with one call. It returns the error of the first delivery, or nil, and drops
// those of the others.
func (s *consumer) ack(deliveries ...*parleyv1.Delivery) *parleyv1.ItemError {
	s.e.Helper()
	request := &parleyv1.AckRequest{SessionId: s.id}
	for _, d := range deliveries {
		request.Tokens = append(request.Tokens, d.GetToken())
	}
	r, err := s.e.ann.queues.Ack(s.e.ctx, request)
	s.e.no(err)
	return s.only(r.GetResults(), len(deliveries))
}

func (s *consumer) only(results []*parleyv1.SettleResult, n int) *parleyv1.ItemError {
	s.e.Helper()
	if len(results) != n {
		s.e.Fatalf("%d results for %d deliveries", len(results), n)
	}
	return results[0].GetError()
}

func (s *consumer) nack(item *parleyv1.NackItem) *parleyv1.ItemError {
	s.e.Helper()
	r, err := s.e.ann.queues.Nack(s.e.ctx, &parleyv1.NackRequest{SessionId: s.id, Items: []*parleyv1.NackItem{item}})
	s.e.no(err)
	return s.only(r.GetResults(), 1)
}

// retry returns a nack that requests a retry without delay.
func retry(d *parleyv1.Delivery) *parleyv1.NackItem {
	return &parleyv1.NackItem{
		Token: d.GetToken(), Reason: "no luck", Outcome: &parleyv1.NackItem_Retry{Retry: &parleyv1.NackRetry{Delay: durationpb.New(0)}},
	}
}

func release(d *parleyv1.Delivery) *parleyv1.NackItem {
	return &parleyv1.NackItem{Token: d.GetToken(), Outcome: &parleyv1.NackItem_Release{Release: &parleyv1.NackRelease{}}}
}

func bury(d *parleyv1.Delivery) *parleyv1.NackItem {
	return &parleyv1.NackItem{
		Token: d.GetToken(), Reason: "no use", Code: "bad",
		Outcome: &parleyv1.NackItem_DeadLetter{DeadLetter: &parleyv1.NackDeadLetter{}},
	}
}

// done fails the scenario if err, the result of an ack or a nack, is not nil.
func (e *env) done(err *parleyv1.ItemError) {
	e.Helper()
	if err != nil {
		e.Fatalf("settle: %v", err)
	}
}

func consume(e *env) {
	name := e.topic(&parleyv1.Topic{Partitions: 2}, "g", "other")
	receipt := e.produce(name, &parleyv1.QueueMessage{Key: "k", Payload: []byte("1"), Headers: map[string]string{"h": "v"}})[0]
	s := e.consume(&parleyv1.ConsumeRequest{Topics: []string{name}, Group: "g", Concurrency: 100})
	equal(e, "the grace time", s.started.GetResumeGrace().AsDuration(), 10*time.Second)
	d := s.want("1", 1)
	if d.GetMessageId() != receipt.GetMessageId() || d.GetPartition() != receipt.GetPartition() || d.GetKey() != "k" || d.GetTopic() != name ||
		d.GetHeaders()["h"] != "v" || d.GetProduceTime() == nil || d.GetToken() == "" || d.GetDelivery() != 1 ||
		d.GetTimeout().AsDuration() != 15*time.Minute {
		e.Errorf("delivery %v", d)
	}
	e.produce(name, &parleyv1.QueueMessage{Payload: []byte("2"), Timeout: durationpb.New(time.Minute)})
	second := s.want("2", 1)
	equal(e, "the timeout of the message", second.GetTimeout().AsDuration(), time.Minute)
	e.stats(name, "g", "waiting 0 running 2 retrying 0 acked 0 dead 0")
	e.done(s.ack(d, second))
	e.stats(name, "g", "waiting 0 running 0 retrying 0 acked 2 dead 0")
	e.stats(name, "other", "waiting 2 running 0 retrying 0 acked 0 dead 0")
	of := func(topics ...string) []string { return topics }
	for what, c := range map[string]struct {
		request *parleyv1.ConsumeRequest
		want    refusal
	}{
		"no topic": {
			&parleyv1.ConsumeRequest{Topics: of(name, e.name("none")), Group: "g", Consumer: "c"},
			refusal{noTopic.code, noTopic.reason, "topics", 0},
		},
		"no group":     {&parleyv1.ConsumeRequest{Topics: of(name), Group: "none", Consumer: "c"}, noGroup},
		"no topics":    {&parleyv1.ConsumeRequest{Group: "g", Consumer: "c"}, invalid("topics", 1)},
		"small limit":  {&parleyv1.ConsumeRequest{Topics: of(name), Group: "g", Consumer: "c", Concurrency: 3, MaxInFlight: 2}, invalid("max_in_flight", 3)},
		"no name":      {&parleyv1.ConsumeRequest{Topics: of(name), Group: "g"}, invalid("consumer", 0)},
		"no session":   {&parleyv1.ConsumeRequest{Topics: of(name), Group: "g", Consumer: "c", Resume: &parleyv1.Resume{SessionId: "x", Resumes: 1}}, sessionLost},
		"no such time": {&parleyv1.ConsumeRequest{Topics: of(name), Group: "g", Consumer: "c", AckTimeout: durationpb.New(1)}, invalid("ack_timeout", 1)},
	} {
		stream, err := e.ann.queues.Consume(e.ctx, c.request)
		for err == nil && stream.Receive() {
			e.Errorf("%s: frame %v", what, stream.Msg())
		}
		if err == nil {
			err = stream.Err()
		}
		e.refused(what, err, c.want)
	}
}

func settleAgain(e *env) {
	name := e.topic(&parleyv1.Topic{Partitions: 1}, "g")
	e.put(name, "1", "2", "3")
	s := e.consume(&parleyv1.ConsumeRequest{Topics: []string{name}, Group: "g", Concurrency: 100})
	one, two, three := s.want("1", 1), s.want("2", 1), s.want("3", 1)
	e.done(s.ack(one))
	e.done(s.ack(one))
	e.refusedItem("nack after ack", s.nack(retry(one)), deliveryLost)
	e.done(s.nack(bury(two)))
	e.done(s.nack(bury(two)))
	e.refusedItem("ack after nack", s.ack(two), deliveryLost)
	e.refusedItem("a false token", s.ack(&parleyv1.Delivery{Token: "nothing"}), falseOne)
	item := release(three)
	item.Reason = "why"
	e.refusedItem("a release with a reason", s.nack(item), invalid("items[0].release", 0))
	e.refusedItem("no outcome", s.nack(&parleyv1.NackItem{Token: three.GetToken()}), invalid("items[0].outcome", 0))
	_, err := e.ann.queues.Ack(e.ctx, &parleyv1.AckRequest{SessionId: s.id})
	e.refused("ack nothing", err, invalid("tokens", 1))
	_, err = e.ann.queues.Ack(e.ctx, &parleyv1.AckRequest{SessionId: "x", Tokens: []string{three.GetToken()}})
	e.refused("ack for no session", err, sessionLost)
	_, err = e.bob.queues.Ack(e.ctx, &parleyv1.AckRequest{SessionId: s.id, Tokens: []string{three.GetToken()}})
	e.refused("ack for another's session", err, sessionLost)
	_, err = e.ann.queues.Extend(e.ctx, &parleyv1.ExtendRequest{SessionId: s.id})
	e.refused("extend nothing", err, invalid("target", 0))
	all := &parleyv1.ExtendRequest_All{All: &parleyv1.AllDeliveries{}}
	_, err = e.ann.queues.Extend(e.ctx, &parleyv1.ExtendRequest{SessionId: s.id, Target: all, Begun: true})
	e.refused("begin all", err, invalid("begun", 0))
	e.no(errOf(e.ann.queues.Extend(e.ctx, &parleyv1.ExtendRequest{SessionId: s.id, Target: all})))
	tokens := &parleyv1.DeliveryTokens{Tokens: []string{three.GetToken(), one.GetToken(), "nothing"}}
	r, err := e.ann.queues.Extend(e.ctx, &parleyv1.ExtendRequest{SessionId: s.id, Target: &parleyv1.ExtendRequest_Deliveries{Deliveries: tokens}})
	e.no(err)
	if len(r.GetResults()) != 3 || r.GetResults()[0].GetError() != nil {
		e.Fatalf("extend: %v", r)
	}
	e.refusedItem("extend what is settled", r.GetResults()[1].GetError(), deliveryLost)
	e.refusedItem("extend a false token", r.GetResults()[2].GetError(), refusal{falseOne.code, falseOne.reason, "deliveries.tokens[2]", 0})
	e.done(s.nack(release(three)))
	again := s.want("3", 1)
	equal(e, "the number of the delivery", again.GetDelivery(), 2)
	e.refusedItem("ack the earlier delivery", s.ack(three), deliveryLost)
	e.done(s.ack(again))
}

func retries(e *env) {
	name := e.topic(&parleyv1.Topic{Partitions: 1})
	e.group(name, &parleyv1.Group{Name: "g", Retry: &parleyv1.RetryPolicy{
		MaxAttempts: new(int32(3)), MinBackoff: durationpb.New(time.Millisecond), MaxBackoff: durationpb.New(5 * time.Millisecond),
		NonRetryableCodes: []string{"bad"},
	}})
	s := e.consume(&parleyv1.ConsumeRequest{Topics: []string{name}, Group: "g", Concurrency: 100})
	id := e.put(name, "1")[0].GetMessageId()
	e.done(s.nack(release(s.want("1", 1))))
	e.done(s.nack(retry(s.want("1", 1))))
	d := s.want("1", 2)
	equal(e, "the id of a retry", d.GetMessageId(), id)
	e.done(s.nack(&parleyv1.NackItem{Token: d.GetToken(), Outcome: &parleyv1.NackItem_Retry{Retry: &parleyv1.NackRetry{}}}))
	e.done(s.nack(retry(s.want("1", 3))))
	e.stats(name, "g", "waiting 0 running 0 retrying 0 acked 0 dead 1")
	e.put(name, "2")
	coded := retry(s.want("2", 1))
	coded.Code = "bad"
	e.done(s.nack(coded))
	e.stats(name, "g", "waiting 0 running 0 retrying 0 acked 0 dead 2")
	e.produce(name, &parleyv1.QueueMessage{Payload: []byte("4"), MaxAttempts: new(int32(1))})
	e.done(s.nack(retry(s.want("4", 1))))
	e.stats(name, "g", "waiting 0 running 0 retrying 0 acked 0 dead 3")
	id = e.put(name, "3")[0].GetMessageId()
	later := retry(s.want("3", 1))
	later.GetRetry().Delay = durationpb.New(time.Hour)
	e.done(s.nack(later))
	e.stats(name, "g", "waiting 0 running 0 retrying 1 acked 0 dead 3")
	e.eventually(func() string {
		r, err := e.ann.admin.RetryJobs(e.ctx, &parleyv1.RetryJobsRequest{Topic: name, Group: "g", MessageIds: []string{id}})
		e.no(err)
		if r.GetRetried() != 1 {
			return fmt.Sprint(r)
		}
		return ""
	})
	s.want("3", 2)
}

// order checks which messages of a key are delivered while an earlier one is not settled.
func order(e *env) {
	name := e.topic(&parleyv1.Topic{Partitions: 1}, "key")
	e.group(name, &parleyv1.Group{Name: "strict", Order: parleyv1.DeliveryOrder_DELIVERY_ORDER_STRICT})
	for _, p := range []string{"1", "2"} {
		e.produce(name, &parleyv1.QueueMessage{Key: "k", Payload: []byte(p)})
	}
	e.produce(name, &parleyv1.QueueMessage{Key: "other", Payload: []byte("3")})
	key := e.consume(&parleyv1.ConsumeRequest{Topics: []string{name}, Group: "key", Concurrency: 10})
	later := retry(key.want("1", 1))
	later.GetRetry().Delay = durationpb.New(time.Hour)
	key.want("2", 1)
	key.want("3", 1)
	e.done(key.nack(later))
	strict := e.consume(&parleyv1.ConsumeRequest{Topics: []string{name}, Group: "strict", Concurrency: 10})
	first := strict.want("1", 1)
	strict.want("3", 1)
	e.done(strict.nack(retry(first)))
	again := strict.want("1", 2)
	e.done(strict.ack(again))
	strict.want("2", 1)
}

// limits checks how much a session holds, and that UpdateSession changes it.
func limits(e *env) {
	name := e.topic(&parleyv1.Topic{Partitions: 1}, "g")
	e.put(name, "1", "2", "3", "4")
	s := e.consume(&parleyv1.ConsumeRequest{Topics: []string{name}, Group: "g", Concurrency: 1, MaxInFlight: 1})
	d := s.want("1", 1)
	e.stats(name, "g", "waiting 3 running 1 retrying 0 acked 0 dead 0")
	e.done(s.ack(d))
	s.want("2", 1)
	e.no(errOf(e.ann.queues.UpdateSession(e.ctx, &parleyv1.UpdateSessionRequest{SessionId: s.id, Concurrency: 3, MaxInFlight: 3})))
	s.want("3", 1)
	s.want("4", 1)
	e.stats(name, "g", "waiting 0 running 3 retrying 0 acked 1 dead 0")
	_, err := e.ann.queues.UpdateSession(e.ctx, &parleyv1.UpdateSessionRequest{SessionId: "x", Concurrency: 3})
	e.refused("update no session", err, sessionLost)
}

// receiving takes messages without a stream.
func receiving(e *env) {
	name := e.topic(&parleyv1.Topic{Partitions: 1}, "g")
	ask := func(n int32, wait time.Duration) *parleyv1.ReceiveResponse {
		e.Helper()
		r, err := e.ann.queues.Receive(e.ctx, &parleyv1.ReceiveRequest{Topic: name, Group: "g", MaxMessages: n, Wait: durationpb.New(wait)})
		e.no(err)
		return r
	}
	equal(e, "messages in an empty topic", len(ask(10, 0).GetDeliveries()), 0)
	e.put(name, "1", "2", "3")
	var got []*parleyv1.Delivery
	var sessions []string
	for len(got) < 3 {
		r := ask(2, 20*time.Second)
		if n := len(r.GetDeliveries()); n == 0 || n > 2 {
			e.Fatalf("%d messages", n)
		}
		for range r.GetDeliveries() {
			sessions = append(sessions, r.GetSessionId())
		}
		got = append(got, r.GetDeliveries()...)
	}
	for i, d := range got {
		if string(d.GetPayload()) != fmt.Sprint(i+1) || d.GetAttempt() != 1 {
			e.Errorf("message %d: %v", i, d)
		}
		ack := &parleyv1.AckRequest{SessionId: sessions[i], Tokens: []string{d.GetToken()}}
		for range 2 {
			r, err := e.ann.queues.Ack(e.ctx, ack)
			e.no(err)
			e.done(r.GetResults()[0].GetError())
		}
	}
	e.stats(name, "g", "waiting 0 running 0 retrying 0 acked 3 dead 0")
	_, err := e.ann.queues.Receive(e.ctx, &parleyv1.ReceiveRequest{Topic: name, Group: "none"})
	e.refused("receive for no group", err, noGroup)
}

// streamingConsume receives and acks messages on one StreamingConsume stream. Acks with a request
// id must be answered, those without only if they fail.
func streamingConsume(e *env) {
	name := e.topic(&parleyv1.Topic{Partitions: 1}, "g")
	e.put(name, "1", "2")
	ctx, cancel := context.WithCancel(e.ctx)
	defer cancel()
	stream, err := e.ann.queues.StreamingConsume(ctx)
	e.no(err)
	ask := func(request *parleyv1.StreamingConsumeRequest) {
		e.Helper()
		e.no(stream.Send(request))
	}
	start := &parleyv1.ConsumeRequest{Topics: []string{name}, Group: "g", Consumer: "c", Concurrency: 10}
	ask(&parleyv1.StreamingConsumeRequest{Request: &parleyv1.StreamingConsumeRequest_Start{Start: start}})
	var deliveries []*parleyv1.Delivery
	receive := func() *parleyv1.RequestResults {
		e.Helper()
		r, err := stream.Receive()
		e.no(err)
		deliveries = append(deliveries, r.GetConsume().GetDeliveries().GetDeliveries()...)
		return r.GetResults()
	}
	answer := func() *parleyv1.RequestResults {
		e.Helper()
		for {
			if a := receive(); a != nil {
				return a
			}
		}
	}
	for len(deliveries) < 2 {
		receive()
	}
	ack := func(id int64, tokens ...string) *parleyv1.StreamingConsumeRequest {
		return &parleyv1.StreamingConsumeRequest{
			RequestId: id, Request: &parleyv1.StreamingConsumeRequest_Ack{Ack: &parleyv1.AckRequest{Tokens: tokens}},
		}
	}
	ask(ack(7, deliveries[0].GetToken()))
	a := answer()
	if a.GetRequestId() != 7 || len(a.GetResults()) != 1 || a.GetResults()[0].GetError() != nil || a.GetError() != nil {
		e.Errorf("answer %v", a)
	}
	ask(ack(0, deliveries[1].GetToken())) // answered only if the ack fails
	ask(ack(8, "nothing"))
	a = answer()
	equal(e, "the next answer", a.GetRequestId(), 8)
	e.refusedItem("a false token", a.GetResults()[0].GetError(), refusal{falseOne.code, falseOne.reason, "ack.tokens[0]", 0})
	ask(ack(9))
	e.refusedItem("ack nothing", answer().GetError(), invalid("ack.tokens", 1))
	e.stats(name, "g", "waiting 0 running 0 retrying 0 acked 2 dead 0")
	ask(&parleyv1.StreamingConsumeRequest{Request: &parleyv1.StreamingConsumeRequest_Leave{Leave: &parleyv1.LeaveRequest{}}})
	for err = nil; err == nil; {
		_, err = stream.Receive()
	}
	if !errors.Is(err, io.EOF) {
		e.Errorf("the end: %v", err)
	}
}
