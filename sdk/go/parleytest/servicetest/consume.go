package servicetest

import (
	"context"
	"fmt"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/types/known/durationpb"

	parleyv1 "github.com/parleyhq/parley/gen/go/parley/v1"
)

var (
	leaseLost = refusal{connect.CodeFailedPrecondition, "LEASE_LOST", "", 0}
	settled   = refusal{connect.CodeFailedPrecondition, "ALREADY_SETTLED", "", 0}
	falseOne  = refusal{connect.CodeInvalidArgument, "DELIVERY_TOKEN_INVALID", "tokens[0]", 0}
)

// consumer is a live Consume stream. deliveries are those received but not yet returned by next.
type consumer struct {
	e            *env
	id           string
	topic, group string
	stream       *connect.ServerStreamForClient[parleyv1.ConsumeResponse]
	parts        []int32
	deliveries   []*parleyv1.Delivery
	close        func()
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
	s := &consumer{e: e, topic: request.GetTopic(), group: request.GetGroup(), stream: stream}
	s.id, s.close = e.opened(stream, cancel, func() *parleyv1.StreamInfo { return stream.Msg().GetInfo() })
	return s
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
	return true
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
	request := &parleyv1.AckRequest{Topic: s.topic, Group: s.group, StreamId: s.id}
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
	r, err := s.e.ann.queues.Nack(s.e.ctx, &parleyv1.NackRequest{
		Topic: s.topic, Group: s.group, StreamId: s.id, Items: []*parleyv1.NackItem{item},
	})
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
	s := e.consume(&parleyv1.ConsumeRequest{Topic: name, Group: "g", MaxMessages: 100})
	d := s.want("1", 1)
	if d.GetMessageId() != receipt.GetMessageId() || d.GetPartition() != receipt.GetPartition() || d.GetKey() != "k" ||
		d.GetHeaders()["h"] != "v" || d.GetProduceTime() == nil || d.GetToken() == "" {
		e.Errorf("delivery %v", d)
	}
	e.put(name, "2")
	second := s.want("2", 1)
	equal(e, "partitions", fmt.Sprint(s.parts), "[0 1]")
	e.stats(name, "g", "unread 0 pending 2 retrying 0 acked 0 dead 0")
	e.done(s.ack(d, second))
	e.stats(name, "g", "unread 0 pending 0 retrying 0 acked 2 dead 0")
	e.stats(name, "other", "unread 2 pending 0 retrying 0 acked 0 dead 0")
	for what, c := range map[string]struct {
		request *parleyv1.ConsumeRequest
		want    refusal
	}{
		"no topic":   {&parleyv1.ConsumeRequest{Topic: e.name("none"), Group: "g", Consumer: "c", MaxMessages: 1}, noTopic},
		"no group":   {&parleyv1.ConsumeRequest{Topic: name, Group: "none", Consumer: "c", MaxMessages: 1}, noGroup},
		"no credits": {&parleyv1.ConsumeRequest{Topic: name, Group: "g", Consumer: "c"}, invalid("max_messages", 1)},
		"no name":    {&parleyv1.ConsumeRequest{Topic: name, Group: "g", MaxMessages: 1}, invalid("consumer", 0)},
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
	s := e.consume(&parleyv1.ConsumeRequest{Topic: name, Group: "g", MaxMessages: 100})
	one, two, three := s.want("1", 1), s.want("2", 1), s.want("3", 1)
	e.done(s.ack(one))
	e.done(s.ack(one))
	e.refusedItem("nack after ack", s.nack(retry(one)), settled)
	e.done(s.nack(bury(two)))
	e.done(s.nack(bury(two)))
	e.refusedItem("ack after nack", s.ack(two), settled)
	e.refusedItem("a false token", s.ack(&parleyv1.Delivery{Token: "nothing"}), falseOne)
	item := release(three)
	item.Reason = "why"
	e.refusedItem("a release with a reason", s.nack(item), invalid("items[0].release", 0))
	e.refusedItem("no outcome", s.nack(&parleyv1.NackItem{Token: three.GetToken()}), invalid("items[0].outcome", 0))
	_, err := e.ann.queues.Ack(e.ctx, &parleyv1.AckRequest{Topic: name, Group: "g", StreamId: s.id})
	e.refused("ack nothing", err, invalid("tokens", 1))
	_, err = e.ann.queues.Extend(e.ctx, &parleyv1.ExtendRequest{Topic: name, Group: "g", StreamId: s.id})
	e.refused("extend nothing", err, invalid("target", 0))
	r, err := e.ann.queues.Extend(e.ctx, &parleyv1.ExtendRequest{
		Topic: name, Group: "g", StreamId: s.id,
		Target: &parleyv1.ExtendRequest_Deliveries{Deliveries: &parleyv1.DeliveryTokens{Tokens: []string{three.GetToken(), one.GetToken()}}},
	})
	e.no(err)
	if len(r.GetResults()) != 2 || r.GetResults()[0].GetError() != nil {
		e.Fatalf("extend: %v", r)
	}
	e.refusedItem("extend what is settled", r.GetResults()[1].GetError(), settled)
	s.close()
	e.consume(&parleyv1.ConsumeRequest{Topic: name, Group: "g", MaxMessages: 100}).want("3", 2)
	e.refusedItem("after the stream has ended", s.ack(three), leaseLost)
}

func retries(e *env) {
	policy := &parleyv1.RetryPolicy{
		MaxAttempts: new(int32(3)), MinBackoff: durationpb.New(time.Millisecond), MaxBackoff: durationpb.New(5 * time.Millisecond),
		NonRetryableCodes: []string{"bad"},
	}
	name := e.topic(&parleyv1.Topic{Partitions: 1, Retry: policy}, "g")
	s := e.consume(&parleyv1.ConsumeRequest{Topic: name, Group: "g", MaxMessages: 100})
	id := e.put(name, "1")[0].GetMessageId()
	e.done(s.nack(release(s.want("1", 1))))
	e.done(s.nack(retry(s.want("1", 1))))
	d := s.want("1", 2)
	equal(e, "the id of a retry", d.GetMessageId(), id)
	e.done(s.nack(&parleyv1.NackItem{Token: d.GetToken(), Outcome: &parleyv1.NackItem_Retry{Retry: &parleyv1.NackRetry{}}}))
	e.done(s.nack(retry(s.want("1", 3))))
	e.stats(name, "g", "unread 0 pending 0 retrying 0 acked 0 dead 1")
	e.put(name, "2")
	coded := retry(s.want("2", 1))
	coded.Code = "bad"
	e.done(s.nack(coded))
	e.stats(name, "g", "unread 0 pending 0 retrying 0 acked 0 dead 2")
	e.put(name, "3")
	later := retry(s.want("3", 1))
	later.GetRetry().Delay = durationpb.New(time.Hour)
	e.done(s.nack(later))
	e.stats(name, "g", "unread 0 pending 0 retrying 1 acked 0 dead 2")
}

func credits(e *env) {
	name := e.topic(&parleyv1.Topic{Partitions: 1}, "g")
	e.put(name, "1", "2", "3", "4")
	s := e.consume(&parleyv1.ConsumeRequest{Topic: name, Group: "g", MaxMessages: 1})
	d := s.want("1", 1)
	e.done(s.ack(d)) // an ack grants no credit
	e.stats(name, "g", "unread 3 pending 0 retrying 0 acked 1 dead 0")
	grant := func(messages int64) {
		e.no(errOf(e.ann.queues.GrantCredits(e.ctx, &parleyv1.GrantCreditsRequest{
			Topic: name, Group: "g", StreamId: s.id, TotalMessages: messages, TotalBytes: 1 << 20,
		})))
	}
	grant(3)
	grant(2)
	s.want("2", 1)
	s.want("3", 1)
	e.stats(name, "g", "unread 1 pending 2 retrying 0 acked 1 dead 0")
	grant(4)
	s.want("4", 1)
}

func leave(e *env) {
	name := e.topic(&parleyv1.Topic{Partitions: 1}, "g")
	e.put(name, "1")
	s := e.consume(&parleyv1.ConsumeRequest{Topic: name, Group: "g", MaxMessages: 100})
	d := s.want("1", 1)
	for range 2 {
		e.no(errOf(e.ann.queues.Leave(e.ctx, &parleyv1.LeaveRequest{Topic: name, Group: "g", StreamId: s.id})))
	}
	e.put(name, "2")
	e.done(s.ack(d))
	e.no(s.ended())
	equal(e, "deliveries after leaving", len(s.deliveries), 0)
	_, err := e.ann.queues.Leave(e.ctx, &parleyv1.LeaveRequest{Topic: name, Group: "g", StreamId: s.id})
	e.refused("leave again", err, leaseLost)
	e.consume(&parleyv1.ConsumeRequest{Topic: name, Group: "g", MaxMessages: 100}).want("2", 1)
}

// lostConsumer closes a stream that holds a delivery. The lost delivery must count as an attempt.
// Two further consumers must share the partitions.
func lostConsumer(e *env) {
	name := e.topic(&parleyv1.Topic{Partitions: 2}, "g")
	e.produce(name, &parleyv1.QueueMessage{Key: "k", Payload: []byte("1")})
	first := e.consume(&parleyv1.ConsumeRequest{Topic: name, Group: "g", MaxMessages: 100})
	first.want("1", 1)
	first.close()
	second := e.consume(&parleyv1.ConsumeRequest{Topic: name, Group: "g", MaxMessages: 100})
	e.done(second.ack(second.want("1", 2)))
	for len(second.parts) != 2 && second.receive() { //nolint:revive // until both partitions are assigned
	}
	third := e.consume(&parleyv1.ConsumeRequest{Topic: name, Group: "g", MaxMessages: 100})
	for len(third.parts) != 1 && third.receive() { //nolint:revive // until one partition is assigned
	}
	for len(second.parts) != 1 && second.receive() { //nolint:revive // until one partition is released
	}
	equal(e, "shares", second.parts[0]+third.parts[0], 1)
}

func ackTimeout(e *env) {
	name := e.topic(&parleyv1.Topic{Partitions: 1}, "g")
	e.put(name, "1")
	s := e.consume(&parleyv1.ConsumeRequest{Topic: name, Group: "g", MaxMessages: 100, AckTimeout: durationpb.New(time.Second)})
	s.want("1", 1)
	e.refused("the stream", s.ended(), refusal{connect.CodeAborted, "ACK_TIMEOUT", "", 0})
	e.consume(&parleyv1.ConsumeRequest{Topic: name, Group: "g", MaxMessages: 100}).want("1", 2)
}

// streamingConsume receives and acks messages on one StreamingConsume stream. Acks with a call id
// must be answered, those without only if they fail.
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
	start := &parleyv1.ConsumeRequest{Topic: name, Group: "g", Consumer: "c", MaxMessages: 100}
	ask(&parleyv1.StreamingConsumeRequest{Request: &parleyv1.StreamingConsumeRequest_Start{Start: start}})
	var deliveries []*parleyv1.Delivery
	answer := func() *parleyv1.StreamingAnswer {
		e.Helper()
		for {
			r, err := stream.Receive()
			e.no(err)
			deliveries = append(deliveries, r.GetConsume().GetDeliveries().GetDeliveries()...)
			if a := r.GetAnswer(); a != nil {
				return a
			}
			if len(deliveries) == 2 && r.GetConsume() != nil {
				return nil
			}
		}
	}
	for len(deliveries) < 2 {
		answer()
	}
	tokens := func(d ...*parleyv1.Delivery) *parleyv1.StreamingAck {
		ack := &parleyv1.StreamingAck{}
		for _, one := range d {
			ack.Tokens = append(ack.Tokens, one.GetToken())
		}
		return ack
	}
	ack := func(id int64, d *parleyv1.Delivery) *parleyv1.StreamingConsumeRequest {
		return &parleyv1.StreamingConsumeRequest{CallId: id, Request: &parleyv1.StreamingConsumeRequest_Ack{Ack: tokens(d)}}
	}
	ask(ack(7, deliveries[0]))
	var a *parleyv1.StreamingAnswer
	for a == nil {
		a = answer()
	}
	if a.GetCallId() != 7 || len(a.GetResults()) != 1 || a.GetResults()[0].GetError() != nil || a.GetError() != nil {
		e.Errorf("answer %v", a)
	}
	ask(ack(0, deliveries[1])) // call id 0: answered only if the ack fails
	ask(&parleyv1.StreamingConsumeRequest{CallId: 8, Request: &parleyv1.StreamingConsumeRequest_Ack{
		Ack: tokens(&parleyv1.Delivery{Token: "nothing"}),
	}})
	for a = nil; a == nil; {
		a = answer()
	}
	equal(e, "the next answer", a.GetCallId(), 8)
	e.refusedItem("a false token", a.GetResults()[0].GetError(), falseOne)
	e.stats(name, "g", "unread 0 pending 0 retrying 0 acked 2 dead 0")
	ask(&parleyv1.StreamingConsumeRequest{Request: &parleyv1.StreamingConsumeRequest_Leave{Leave: &parleyv1.StreamingLeave{}}})
	for {
		if _, err := stream.Receive(); err != nil {
			if connect.CodeOf(err) != connect.CodeUnknown { // io.EOF has the code unknown
				e.Errorf("the end: %v", err)
			}
			break
		}
	}
}
