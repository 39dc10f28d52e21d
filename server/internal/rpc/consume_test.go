package rpc

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"connectrpc.com/connect"
	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/testing/protocmp"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	parleyv1 "github.com/parleyhq/parley/gen/go/parley/v1"
	"github.com/parleyhq/parley/gen/go/parley/v1/parleyv1connect"
	"github.com/parleyhq/parley/server/internal/fault"
	"github.com/parleyhq/parley/server/internal/queue"
	"github.com/parleyhq/parley/server/internal/rpc/limit"
	"github.com/parleyhq/parley/server/internal/testkit"
)

func consumeRequest() *parleyv1.ConsumeRequest {
	return &parleyv1.ConsumeRequest{Topic: "jobs", Group: "g", Consumer: "c", MaxMessages: 10}
}

// serveOne makes the next Consume streams use this session, and returns a channel of the requests
// that opened them.
func (b *bundle) serveOne(c *fakeConsumer) <-chan queue.OpenRequest {
	asked := make(chan queue.OpenRequest, 1)
	b.consumers.mu.Lock()
	defer b.consumers.mu.Unlock()
	b.consumers.open = func(r queue.OpenRequest) (ConsumerStream, error) {
		asked <- r
		return c, nil
	}
	return asked
}

func TestConsume(t *testing.T) {
	t.Parallel()
	b := setup(t, nil)
	at := time.Date(2031, 1, 2, 3, 4, 5, 6_000_000, time.UTC)
	delivery := func(i int, size int) queue.Delivery {
		d := queue.Delivery{Partition: 5, Token: fmt.Sprint("t", i)}
		d.Message = queue.Message{Key: "k", Payload: make([]byte, size), Headers: map[string]string{"traceparent": "00-x"}}
		d.MessageID, d.Attempt, d.ProducedAt = fmt.Sprint("5-1-", i), 2, at
		return d
	}
	b.eachQueue(func(t *testing.T, c parleyv1connect.QueueServiceClient) {
		session := newFakeConsumer("SESSION")
		asked := b.serveOne(session)
		req := consumeRequest()
		req.AckTimeout = durationpb.New(time.Minute + 1)
		stream, err := c.Consume(t.Context(), req)
		if err != nil {
			t.Fatal(err)
		}
		session.frames <- queue.Frame{Assignment: []int{1, 5}, Total: 8}
		session.frames <- queue.Frame{Deliveries: []queue.Delivery{delivery(0, 10), delivery(1, 700<<10), delivery(2, 700<<10), delivery(3, 2<<20)}}
		session.frames <- queue.Frame{Assignment: []int{}, Total: 8}
		session.frames <- queue.Frame{Heartbeat: true}
		f := fault.New(fault.Unavailable, fault.AckTimeout, "held too long")
		var got []*parleyv1.ConsumeResponse
		for len(got) < 7 && stream.Receive() {
			got = append(got, proto.CloneOf(stream.Msg()))
		}
		session.fail <- f
		if stream.Receive() {
			t.Errorf("got %v", stream.Msg())
		}
		if d, _ := details(t, stream.Err()); connect.CodeOf(stream.Err()) != connect.CodeUnavailable || d.GetReason() != parleyv1.ErrorReason_ERROR_REASON_ACK_TIMEOUT || !d.GetRetryable() {
			t.Errorf("the end: %v", stream.Err())
		}
		<-session.closed
		r := <-asked
		if r.Expires.IsZero() {
			t.Error("the token's end is not told")
		}
		r.Expires = time.Time{}
		want := queue.OpenRequest{Subject: "ada", Topic: "jobs", Group: "g", Consumer: "c", MaxMessages: 10, MaxBytes: queue.DefaultCreditBytes, AckTimeout: time.Minute + time.Millisecond}
		if diff := cmp.Diff(want, r); diff != "" {
			t.Error(diff)
		}
		first := &parleyv1.StreamInfo{StreamId: "SESSION", HeartbeatInterval: durationpb.New(b.cfg.HeartbeatInterval)}
		if diff := cmp.Diff(first, got[0].GetInfo(), protocmp.Transform()); diff != "" {
			t.Error(diff)
		}
		if a := got[1].GetAssignment(); fmt.Sprint(a.GetPartitions(), a.GetTotal()) != "[1 5] 8" {
			t.Errorf("assignment %v", a)
		}
		// Deliveries are split into frames of at most 1 MiB; a larger delivery has a frame of its own.
		var sizes []int
		for _, m := range got[2:5] {
			sizes = append(sizes, len(m.GetDeliveries().GetDeliveries()))
		}
		if diff := cmp.Diff([]int{2, 1, 1}, sizes); diff != "" {
			t.Error(diff)
		}
		if diff := cmp.Diff(&parleyv1.Delivery{
			Token: "t0", MessageId: "5-1-0", Partition: 5, Key: "k", Payload: make([]byte, 10), Headers: map[string]string{"traceparent": "00-x"},
			Attempt: 2, ProduceTime: timestamppb.New(at),
		}, got[2].GetDeliveries().GetDeliveries()[0], protocmp.Transform()); diff != "" {
			t.Error(diff)
		}
		if a := got[5].GetAssignment(); a == nil || len(a.GetPartitions()) > 0 || got[6].GetHeartbeat() == nil {
			t.Errorf("got %v", got[5:])
		}
	})
}

// The session of a consumer is closed when its client leaves.
func TestConsumeClosesSessionOfGoneClient(t *testing.T) {
	t.Parallel()
	b := setup(t, nil)
	b.eachQueue(func(t *testing.T, c parleyv1connect.QueueServiceClient) {
		session := newFakeConsumer("SESSION")
		b.serveOne(session)
		ctx, leave := context.WithCancel(t.Context())
		stream, err := c.Consume(ctx, consumeRequest())
		if err != nil || !stream.Receive() {
			t.Fatal(err, stream.Err())
		}
		leave()
		<-session.closed
	})
}

type bidiClient = connect.BidiStreamForClientSimple[parleyv1.StreamingConsumeRequest, parleyv1.StreamingConsumeResponse]

func startRequest() *parleyv1.StreamingConsumeRequest {
	return &parleyv1.StreamingConsumeRequest{Request: &parleyv1.StreamingConsumeRequest_Start{Start: consumeRequest()}}
}

func acking(id int64, tokens ...string) *parleyv1.StreamingConsumeRequest {
	return &parleyv1.StreamingConsumeRequest{CallId: id, Request: &parleyv1.StreamingConsumeRequest_Ack{Ack: &parleyv1.StreamingAck{Tokens: tokens}}}
}

// openBidi opens a StreamingConsume stream and receives its first frame. protocol is an index into
// protocols.
func (b *bundle) openBidi(t *testing.T, protocol int) (*bidiClient, *fakeConsumer) {
	t.Helper()
	session := newFakeConsumer("SESSION")
	b.serveOne(session)
	_, url, opts := b.over(protocol, b.mintAs(operator("ada")))
	stream, err := parleyv1connect.NewQueueServiceClient(b.h2, url, opts...).StreamingConsume(t.Context())
	if err == nil {
		err = stream.Send(startRequest())
	}
	if err != nil {
		t.Fatal(err)
	}
	if m, err := stream.Receive(); err != nil || m.GetConsume().GetInfo().GetStreamId() != "SESSION" {
		t.Fatalf("%v, %v", m, err)
	}
	return stream, session
}

func (b *bundle) eachBidi(f func(t *testing.T, stream *bidiClient, session *fakeConsumer)) {
	for i, p := range protocols {
		b.t.Run(p.name, func(t *testing.T) {
			stream, session := b.openBidi(t, i)
			f(t, stream, session)
			<-session.closed
		})
	}
}

// On a StreamingConsume stream each request with a call_id is answered, even an invalid one, and
// frames continue meanwhile. Requests without one are answered only if they fail.
func TestStreamingConsume(t *testing.T) {
	t.Parallel()
	b := setup(t, func(s *settings) { s.cfg.BodyTimeout = time.Second })
	b.consumers.do = func(c *queueCall) ([]error, error) {
		if c.Method == "grant" && c.TotalMessages == 666 {
			return nil, fault.Invalid("total_messages", 10_000, "too many")
		}
		return make([]error, len(c.Items)), nil
	}
	type request = parleyv1.StreamingConsumeRequest
	many := acking(4)
	for range 1001 {
		many.GetAck().Tokens = append(many.GetAck().Tokens, "t")
	}
	credits := func(id, n int64) *request {
		return &request{CallId: id, Request: &parleyv1.StreamingConsumeRequest_Credits{Credits: &parleyv1.StreamingCredits{TotalMessages: n, TotalBytes: 1}}}
	}
	extend := func(id int64, d time.Duration, e *parleyv1.StreamingExtend) *request {
		e.AckTimeout = durationpb.New(d)
		return &request{CallId: id, Request: &parleyv1.StreamingConsumeRequest_Extend{Extend: e}}
	}
	all := func() *parleyv1.StreamingExtend {
		return &parleyv1.StreamingExtend{Target: &parleyv1.StreamingExtend_All{All: &parleyv1.AllDeliveries{}}}
	}
	some := func(tokens ...string) *parleyv1.StreamingExtend {
		return &parleyv1.StreamingExtend{Target: &parleyv1.StreamingExtend_Deliveries{Deliveries: &parleyv1.DeliveryTokens{Tokens: tokens}}}
	}
	again := startRequest()
	again.CallId = 3
	b.eachBidi(func(t *testing.T, stream *bidiClient, session *fakeConsumer) {
		// The stream lives longer than BodyTimeout.
		began := time.Now()
		b.consumers.taken()
		requests := []*request{
			acking(1, "t1", "a.b"), acking(0, "t2"), acking(0, "a.b"),
			{CallId: 2, Request: &parleyv1.StreamingConsumeRequest_Nack{Nack: &parleyv1.StreamingNack{Items: []*parleyv1.NackItem{
				{Token: "t3", Outcome: retry()}, {Token: "t4", Outcome: retry(), Code: "a b"}, {Token: "t5"}, {Token: "t6", Outcome: release(), Reason: "r"},
			}}}},
			again, many, acking(5), credits(6, 10), credits(7, 666), credits(8, -1), extend(9, time.Minute, all()), extend(10, time.Millisecond, all()),
			{CallId: 11},
			extend(12, time.Minute, &parleyv1.StreamingExtend{}), extend(13, time.Minute, some()), extend(14, time.Minute, some("t7", "a.b")),
			extend(15, time.Minute, some(make([]string, 1001)...)),
		}
		for _, r := range requests {
			if err := stream.Send(r); err != nil {
				t.Fatal(err)
			}
		}
		var got []string
		for range len(requests) - 1 {
			m, err := stream.Receive()
			if err != nil {
				t.Fatal(err)
			}
			a := m.GetAnswer()
			text := fmt.Sprint(a.GetCallId(), " ", told(a.GetError()))
			for _, r := range a.GetResults() {
				text += ", " + told(r.GetError())
			}
			got = append(got, text)
		}
		if diff := cmp.Diff([]string{
			"1 ok, ok, invalid_argument INVALID_FIELD tokens[1]", "0 ok, invalid_argument INVALID_FIELD tokens[0]",
			"2 ok, ok, invalid_argument INVALID_FIELD items[1].code, invalid_argument INVALID_FIELD items[2].outcome, invalid_argument INVALID_FIELD items[3].release",
			"3 invalid_argument INVALID_FIELD start",
			"4 invalid_argument INVALID_FIELD ack.tokens", "5 invalid_argument INVALID_FIELD ack.tokens", "6 ok",
			"7 invalid_argument INVALID_FIELD total_messages", "8 invalid_argument INVALID_FIELD credits.total_messages", "9 ok",
			"10 invalid_argument INVALID_FIELD extend.ack_timeout", "11 invalid_argument INVALID_FIELD request",
			"12 invalid_argument INVALID_FIELD extend.target", "13 invalid_argument INVALID_FIELD extend.deliveries.tokens",
			"14 ok, ok, invalid_argument INVALID_FIELD deliveries.tokens[1]", "15 invalid_argument INVALID_FIELD extend.deliveries.tokens",
		}, got); diff != "" {
			t.Error(diff)
		}
		var extended []string
		for _, c := range b.consumers.taken() {
			if c.Method == "extend" {
				extended = append(extended, fmt.Sprint(len(c.Items), " ", c.AckTimeout))
			}
			if c.Ref != (queue.StreamRef{StreamID: "SESSION", Subject: "ada", Topic: "jobs", Group: "g"}) {
				t.Errorf("a call about %+v", c)
			}
		}
		if diff := cmp.Diff([]string{"0 1m0s", "1 1m0s"}, extended); diff != "" { // no items means all of the stream's
			t.Errorf("extended: %s", diff)
		}
		testkit.Eventually(t, 10*time.Second, func() error {
			if time.Since(began) < b.cfg.BodyTimeout*5/4 {
				return errors.New("too soon")
			}
			return nil
		})
		session.frames <- queue.Frame{Heartbeat: true}
		if m, err := stream.Receive(); err != nil || m.GetConsume().GetHeartbeat() == nil {
			t.Errorf("later: %v, %v", m, err)
		}
		// The limit on bytes is for each request: the requests of one stream may have more in total.
		large := acking(99)
		for range 1000 {
			large.GetAck().Tokens = append(large.GetAck().Tokens, strings.Repeat("t", 500))
		}
		for range 6 {
			if err := stream.Send(large); err != nil {
				t.Fatal(err)
			}
			if m, err := stream.Receive(); err != nil || len(m.GetAnswer().GetResults()) != 1000 {
				t.Fatalf("%v, %v", m.GetAnswer().GetError(), err)
			}
		}
		session.fail <- fault.New(fault.Unavailable, fault.ShuttingDown, "bye")
		_, err := stream.Receive()
		if d, _ := details(t, err); d.GetReason() != parleyv1.ErrorReason_ERROR_REASON_SHUTTING_DOWN {
			t.Errorf("the end: %v", err)
		}
		_ = stream.CloseRequest()
		_ = stream.CloseResponse()
	})
}

func TestStreamingConsumeEnds(t *testing.T) {
	t.Parallel()
	b := setup(t, nil)
	b.eachBidi(func(t *testing.T, stream *bidiClient, _ *fakeConsumer) {
		if err := stream.CloseRequest(); err != nil {
			t.Fatal(err)
		}
		if m, err := stream.Receive(); !errors.Is(err, io.EOF) {
			t.Errorf("after the client's half has ended: %v, %v", m, err)
		}
		_ = stream.CloseResponse()
	})
	token := b.mintAs(operator("ada"))
	for i, p := range protocols {
		_, url, opts := b.over(i, token)
		begin := func(first *parleyv1.StreamingConsumeRequest) error {
			stream, err := parleyv1connect.NewQueueServiceClient(b.h2, url, opts...).StreamingConsume(t.Context())
			if err != nil {
				return err
			}
			defer func() { _ = stream.CloseResponse() }()
			if first != nil {
				_ = stream.Send(first)
			}
			_ = stream.CloseRequest()
			_, err = stream.Receive()
			return err
		}
		reserved, nobody := startRequest(), startRequest()
		reserved.GetStart().Topic, nobody.GetStart().Consumer = "__jobs", ""
		for field, first := range map[string]*parleyv1.StreamingConsumeRequest{"": nil, "start": acking(1, "t"), "start.topic": reserved, "start.consumer": nobody} {
			err := begin(first)
			if d, _ := details(t, err); connect.CodeOf(err) != connect.CodeInvalidArgument || d.GetField() != field {
				t.Errorf("%s, begun wrongly with %q: %v", p.name, field, err)
			}
		}
	}
	// HTTP/1.1 does not support bidirectional streams.
	resp, _ := b.raw(b.h1, http.MethodPost, parleyv1connect.QueueServiceStreamingConsumeProcedure, b.headers("application/connect+json", "Authorization", "Bearer "+token), strings.NewReader(""))
	if resp.StatusCode != http.StatusHTTPVersionNotSupported {
		t.Errorf("over HTTP/1.1: %d", resp.StatusCode)
	}
}

// A panic in a request of a StreamingConsume stream ends that stream with an internal error and is
// logged with its stack, also if the session ends meanwhile.
func TestStreamingConsumeRecovers(t *testing.T) {
	t.Parallel()
	b := setup(t, nil)
	b.eachBidi(func(t *testing.T, stream *bidiClient, session *fakeConsumer) {
		b.consumers.mu.Lock()
		b.consumers.do = func(*queueCall) ([]error, error) {
			session.fail <- fault.New(fault.Unavailable, fault.AckTimeout, "held too long")
			panic("secret")
		}
		b.consumers.mu.Unlock()
		if err := stream.Send(acking(1, "t")); err != nil {
			t.Fatal(err)
		}
		_, err := stream.Receive()
		if connect.CodeOf(err) != connect.CodeInternal || strings.Contains(err.Error(), "secret") {
			t.Errorf("the end: %v", err)
		}
		_ = stream.CloseRequest()
		_ = stream.CloseResponse()
		line := b.logged.oneLine(t)
		if stack, _ := line["stack"].(string); !strings.Contains(stack, "serveOne") || !strings.Contains(fmt.Sprint(line["error"]), "secret") {
			t.Errorf("logged %v", line)
		}
	})
}

// Requests that settle are not charged on a StreamingConsume stream, unless they fail. All others
// are charged as calls. Over the limit a request is answered with an error, and the stream
// continues.
func TestStreamingConsumeIsLimited(t *testing.T) {
	t.Parallel()
	b := setup(t, func(s *settings) { s.limit = limit.Config{PerSecond: 0.001, Burst: 3} })
	stream, session := b.openBidi(t, 2)
	var got []string
	ask := func(r *parleyv1.StreamingConsumeRequest) string {
		if err := stream.Send(r); err != nil {
			t.Fatal(err)
		}
		m, err := stream.Receive()
		if err != nil {
			t.Fatal(err)
		}
		return told(m.GetAnswer().GetError())
	}
	credits := &parleyv1.StreamingConsumeRequest{CallId: 1, Request: &parleyv1.StreamingConsumeRequest_Credits{
		Credits: &parleyv1.StreamingCredits{TotalMessages: 20, TotalBytes: 1 << 20},
	}}
	for range 3 { // opening the stream was the first call
		got = append(got, ask(credits))
	}
	for i := range int64(5) {
		got = append(got, ask(acking(i+1, "t")))
	}
	for range 2 {
		got = append(got, ask(acking(9, "no.token", "no.token", "no.token")))
	}
	const limited = "resource_exhausted RATE_LIMITED"
	if diff := cmp.Diff([]string{"ok", "ok", limited, "ok", "ok", "ok", "ok", "ok", "ok", limited}, got); diff != "" {
		t.Error(diff)
	}
	_ = stream.CloseRequest()
	<-session.closed
	_ = stream.CloseResponse()
}
