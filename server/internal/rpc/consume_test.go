package rpc

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
	"time"

	"connectrpc.com/connect"
	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/types/known/durationpb"

	parleyv1 "github.com/parleyhq/parley/gen/go/parley/v1"
	"github.com/parleyhq/parley/gen/go/parley/v1/parleyv1connect"
	"github.com/parleyhq/parley/server/internal/ident"
	"github.com/parleyhq/parley/server/internal/rpc/authn"
	"github.com/parleyhq/parley/server/internal/testkit"
)

// Messages are delivered with all their fields, and their acks, nacks and extensions have a result
// each. Another subject cannot settle them, and a token without the capability cannot either.
func TestQueueConsume(t *testing.T) {
	t.Parallel()
	b := queueSetup(t, nil)
	b.each(func(t *testing.T, protocol int, topic string, c parleyv1connect.QueueServiceClient) {
		b.put(t, topic, 5)
		s := openSession(t, c, consumes(topic))
		if s.started.GetHeartbeatInterval().AsDuration() != 15*time.Second {
			t.Errorf("started %v", s.started)
		}
		d := s.next()
		if want := fmt.Sprint(topic, 0); string(d.GetPayload()) != want || d.GetKey() != "k" || d.GetHeaders()["h"] != "v" || d.GetTopic() != topic ||
			d.GetPartition() != 1 || d.GetAttempt() != 1 || d.GetDelivery() != 1 || d.GetTimeout().AsDuration() != time.Minute ||
			time.Since(d.GetProduceTime().AsTime()).Abs() > time.Minute || !strings.HasPrefix(d.GetMessageId(), "1-") {
			t.Errorf("got %v", d)
		}
		id, tokens := s.started.GetSessionId(), []string{d.GetToken()}
		for range 4 {
			tokens = append(tokens, s.next().GetToken())
		}
		other := tokens[0][:len(tokens[0])-1] + "9"
		ack := func(c parleyv1connect.QueueServiceClient, session string, tokens ...string) ([]string, error) {
			r, err := c.Ack(t.Context(), &parleyv1.AckRequest{SessionId: session, Tokens: tokens})
			return toldOf(r.GetResults()), err
		}
		eve := b.client(protocol, b.mintAs(operator("eve")))
		if _, err := ack(eve, id, tokens[0]); refusedAs(t, err) != `failed_precondition SESSION_LOST "" 0` {
			t.Errorf("by another subject: %v", err)
		}
		if _, err := ack(eve, "", tokens[0]); refusedAs(t, err) != `failed_precondition SESSION_LOST "" 0` {
			t.Errorf("of no session: %v", err)
		}
		weak := &ident.Principal{Subject: "ada", Queues: []ident.Capability{{Pattern: "other", Actions: []ident.Action{ident.Consume}}}}
		if _, err := ack(b.client(protocol, b.mintAs(weak)), id, tokens[0]); refusedAs(t, err) != `permission_denied CAPABILITY_MISSING "" 0` {
			t.Errorf("without the capability: %v", err)
		}
		got, err := ack(c, id, tokens[0], "", "a.b", other, tokens[1])
		if diff := cmp.Diff([]string{
			"ok", "invalid_argument DELIVERY_TOKEN_INVALID tokens[1]", "invalid_argument DELIVERY_TOKEN_INVALID tokens[2]",
			"failed_precondition DELIVERY_LOST", "ok",
		}, got); diff != "" || err != nil {
			t.Errorf("acks: %s, %v", diff, err)
		}
		if got, err = ack(c, id, tokens[:2]...); fmt.Sprint(got) != "[ok ok]" || err != nil {
			t.Errorf("acks again: %v, %v", got, err)
		}
		x, err := c.Extend(t.Context(), &parleyv1.ExtendRequest{SessionId: id, Begun: true, Target: &parleyv1.ExtendRequest_Deliveries{
			Deliveries: &parleyv1.DeliveryTokens{Tokens: []string{tokens[2], "x", other}},
		}})
		if diff := cmp.Diff([]string{
			"ok", "invalid_argument DELIVERY_TOKEN_INVALID deliveries.tokens[1]", "failed_precondition DELIVERY_LOST",
		}, toldOf(x.GetResults())); diff != "" || err != nil {
			t.Errorf("extended: %s, %v", diff, err)
		}
		nack, err := c.Nack(t.Context(), &parleyv1.NackRequest{SessionId: id, Items: []*parleyv1.NackItem{
			{Token: tokens[2], Reason: "r", Code: "c", Outcome: &parleyv1.NackItem_Retry{Retry: &parleyv1.NackRetry{Delay: &durationpb.Duration{}}}},
			{Token: tokens[3], Outcome: &parleyv1.NackItem_DeadLetter{DeadLetter: &parleyv1.NackDeadLetter{}}},
			{Token: tokens[4], Outcome: &parleyv1.NackItem_Release{Release: &parleyv1.NackRelease{}}, Reason: "r"},
			{Token: tokens[4]},
			{Token: "a.b", Outcome: &parleyv1.NackItem_Release{Release: &parleyv1.NackRelease{}}},
			{Token: tokens[4], Outcome: &parleyv1.NackItem_Release{Release: &parleyv1.NackRelease{}}},
		}})
		if diff := cmp.Diff([]string{
			"ok", "ok", "invalid_argument INVALID_FIELD items[2].release", "invalid_argument INVALID_FIELD items[3].outcome",
			"invalid_argument DELIVERY_TOKEN_INVALID items[4].token", "ok",
		}, toldOf(nack.GetResults())); diff != "" || err != nil {
			t.Errorf("nacks: %s, %v", diff, err)
		}
		// The released one and the retried one come again; only the latter was an attempt.
		again := map[string]string{}
		for len(again) < 2 {
			d := s.next()
			again[string(d.GetPayload())] = fmt.Sprint(d.GetAttempt(), d.GetDelivery())
		}
		if diff := cmp.Diff(map[string]string{fmt.Sprint(topic, 2): "2 2", fmt.Sprint(topic, 4): "1 2"}, again); diff != "" {
			t.Error(diff)
		}
	})
}

// The stream of a session that left ends without an error once it holds nothing more.
func TestQueueLeave(t *testing.T) {
	t.Parallel()
	b := queueSetup(t, nil)
	b.each(func(t *testing.T, _ int, topic string, c parleyv1connect.QueueServiceClient) {
		b.put(t, topic, 1)
		s := openSession(t, c, consumes(topic))
		d := s.next()
		for range 2 {
			if _, err := c.Leave(t.Context(), &parleyv1.LeaveRequest{SessionId: s.started.GetSessionId()}); err != nil {
				t.Fatal(err)
			}
		}
		if r, err := c.Ack(t.Context(), &parleyv1.AckRequest{SessionId: s.started.GetSessionId(), Tokens: []string{d.GetToken()}}); err != nil || told(r.GetResults()[0].GetError()) != "ok" {
			t.Fatalf("%v, %v", r, err)
		}
		for s.Receive() {
		}
		if err := s.Err(); err != nil {
			t.Error(err)
		}
		_, err := c.Leave(t.Context(), &parleyv1.LeaveRequest{SessionId: s.started.GetSessionId()})
		if refusedAs(t, err) != `failed_precondition SESSION_LOST "" 0` {
			t.Errorf("after the end: %v", err)
		}
	})
}

// A stream ends at the expiry of its token. Its session goes on.
func TestQueueTokenExpires(t *testing.T) {
	t.Parallel()
	b := queueSetup(t, nil, "jobs")
	b.put(t, "jobs", 1)
	token, err := authn.Mint(secret, operator("ada"), 3*time.Second)
	if err != nil {
		t.Fatal(err)
	}
	s := openSession(t, b.client(1, token), consumes("jobs"))
	d := s.next()
	for s.Receive() {
	}
	if e, _ := details(t, s.Err()); connect.CodeOf(s.Err()) != connect.CodeUnauthenticated || e.GetReason() != parleyv1.ErrorReason_ERROR_REASON_TOKEN_EXPIRED {
		t.Errorf("the end: %v", s.Err())
	}
	r, err := b.client(1, b.mintAs(operator("ada"))).Ack(t.Context(), &parleyv1.AckRequest{SessionId: s.started.GetSessionId(), Tokens: []string{d.GetToken()}})
	if err != nil || told(r.GetResults()[0].GetError()) != "ok" {
		t.Errorf("with another token: %v, %v", r, err)
	}
}

// A request to consume that breaks a rule is refused, with the path of the field.
func TestQueueConsumeRefusals(t *testing.T) {
	t.Parallel()
	b := queueSetup(t, nil, "jobs")
	many := make([]string, 17)
	for i := range many {
		many[i] = fmt.Sprint("t", i)
	}
	some := &ident.Principal{Subject: "ada", Queues: []ident.Capability{{Pattern: "jobs", Actions: []ident.Action{ident.Consume}}}}
	tokens := map[bool]string{true: b.mintAs(operator("ada")), false: b.mintAs(some)}
	with := func(change func(r *parleyv1.ConsumeRequest)) *parleyv1.ConsumeRequest {
		r := consumes("jobs")
		change(r)
		return r
	}
	for _, c := range []struct {
		request *parleyv1.ConsumeRequest
		all     bool
		want    string // with %s for the path of the request
	}{
		{consumes(), true, `invalid_argument INVALID_FIELD "%stopics" 1`},
		{consumes(many...), true, `invalid_argument INVALID_FIELD "%stopics" 16`},
		{consumes("jobs", "jobs"), true, `invalid_argument INVALID_FIELD "%stopics" 0`},
		{consumes("jobs", "__own"), true, `invalid_argument INVALID_FIELD "%stopics[1]" 0`},
		{consumes("jobs", "a b"), true, `invalid_argument INVALID_FIELD "%stopics[1]" 0`},
		{consumes("jobs", "away"), true, `not_found TOPIC_NOT_FOUND "%stopics" 0`},
		{with(func(r *parleyv1.ConsumeRequest) { r.Group = "nobody" }), true, `not_found GROUP_NOT_FOUND "%sgroup" 0`},
		{consumes("jobs", "other"), false, `permission_denied CAPABILITY_MISSING "" 0`},
		{with(func(r *parleyv1.ConsumeRequest) { r.MaxInFlight = 9 }), true, `invalid_argument INVALID_FIELD "%smax_in_flight" 10`},
		{with(func(r *parleyv1.ConsumeRequest) { r.MaxInFlight = 10_001 }), true, `invalid_argument INVALID_FIELD "%smax_in_flight" 10000`},
		{with(func(r *parleyv1.ConsumeRequest) { r.AckTimeout = durationpb.New(time.Millisecond) }), true, `invalid_argument INVALID_FIELD "%sack_timeout" 1`},
		{with(func(r *parleyv1.ConsumeRequest) {
			r.Resume = &parleyv1.Resume{SessionId: "s", Resumes: 1, Held: []*parleyv1.HeldDelivery{{Token: "other.0.1.1"}}}
		}), false, `permission_denied CAPABILITY_MISSING "" 0`},
		{with(func(r *parleyv1.ConsumeRequest) { r.Resume = &parleyv1.Resume{SessionId: "s"} }), true, `invalid_argument INVALID_FIELD "%sresume.resumes" 1`},
	} {
		for i, p := range protocols {
			s, err := b.client(i, tokens[c.all]).Consume(t.Context(), c.request)
			if err == nil {
				for s.Receive() {
				}
				err = s.Err()
			}
			if got, want := refusedAs(t, err), strings.ReplaceAll(c.want, "%s", ""); got != want {
				t.Errorf("%s: %v: %s, want %s", p.name, c.request, got, want)
			}
			_, url, opts := b.over(i, tokens[c.all])
			bidi, err := parleyv1connect.NewQueueServiceClient(b.h2, url, opts...).StreamingConsume(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			_ = bidi.Send(&parleyv1.StreamingConsumeRequest{Request: &parleyv1.StreamingConsumeRequest_Start{Start: c.request}})
			_, err = bidi.Receive()
			if got, want := refusedAs(t, err), strings.ReplaceAll(c.want, "%s", "start."); got != want {
				t.Errorf("%s, StreamingConsume: %v: %s, want %s", p.name, c.request, got, want)
			}
			_ = bidi.CloseRequest()
			_ = bidi.CloseResponse()
		}
	}
}

type nextBidi = connect.BidiStreamForClientSimple[parleyv1.StreamingConsumeRequest, parleyv1.StreamingConsumeResponse]

// On a StreamingConsume stream each request with a request_id is answered, even an invalid one, and
// frames continue meanwhile. Requests without one are answered only if they fail.
func TestQueueStreamingConsume(t *testing.T) {
	t.Parallel()
	b := queueSetup(t, func(s *settings) { s.cfg.BodyTimeout = time.Second })
	type request = parleyv1.StreamingConsumeRequest
	start := func(topic string) *request {
		return &request{Request: &parleyv1.StreamingConsumeRequest_Start{Start: consumes(topic)}}
	}
	ack := func(id int64, tokens ...string) *request {
		return &request{RequestId: id, Request: &parleyv1.StreamingConsumeRequest_Ack{Ack: &parleyv1.AckRequest{Tokens: tokens}}}
	}
	b.each(func(t *testing.T, protocol int, topic string, c parleyv1connect.QueueServiceClient) {
		began := time.Now()
		b.put(t, topic, 3)
		_, url, opts := b.over(protocol, b.mintAs(operator("ada")))
		stream, err := parleyv1connect.NewQueueServiceClient(b.h2, url, opts...).StreamingConsume(t.Context())
		if err == nil {
			err = stream.Send(start(topic))
		}
		if err != nil {
			t.Fatal(err)
		}
		first, err := stream.Receive()
		if err != nil || first.GetConsume().GetStarted() == nil {
			t.Fatalf("%v, %v", first, err)
		}
		session := first.GetConsume().GetStarted().GetSessionId()
		var tokens []string
		for len(tokens) < 3 {
			m, err := stream.Receive()
			if err != nil {
				t.Fatal(err)
			}
			for _, d := range m.GetConsume().GetDeliveries().GetDeliveries() {
				tokens = append(tokens, d.GetToken())
			}
		}
		many, again := ack(4), start(topic)
		many.GetAck().Tokens, again.RequestId = make([]string, 1001), 3
		extend := func(id int64, e *parleyv1.ExtendRequest) *request {
			return &request{RequestId: id, Request: &parleyv1.StreamingConsumeRequest_Extend{Extend: e}}
		}
		all := &parleyv1.ExtendRequest_All{All: &parleyv1.AllDeliveries{}}
		elsewhere := ack(11, tokens[2])
		elsewhere.GetAck().SessionId = "another"
		requests := []*request{
			ack(1, tokens[0], "a.b"), ack(0, tokens[1]), ack(0, "a.b"),
			{RequestId: 2, Request: &parleyv1.StreamingConsumeRequest_Nack{Nack: &parleyv1.NackRequest{Items: []*parleyv1.NackItem{{Token: "a.b"}, {Token: tokens[0]}}}}},
			again, many, ack(5),
			{RequestId: 6},
			extend(7, &parleyv1.ExtendRequest{Target: all, Begun: true}),
			extend(8, &parleyv1.ExtendRequest{Target: all, AckTimeout: durationpb.New(time.Millisecond)}),
			{RequestId: 9, Request: &parleyv1.StreamingConsumeRequest_Update{Update: &parleyv1.UpdateSessionRequest{Concurrency: -1}}},
			ack(10, tokens[2]+"9"), elsewhere,
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
			got = append(got, fmt.Sprint(m.GetResults().GetRequestId(), " ", told(m.GetResults().GetError()), " ", toldOf(m.GetResults().GetResults())))
		}
		if diff := cmp.Diff([]string{
			"1 ok [ok invalid_argument DELIVERY_TOKEN_INVALID ack.tokens[1]]", "0 ok [invalid_argument DELIVERY_TOKEN_INVALID ack.tokens[0]]",
			"2 ok [invalid_argument INVALID_FIELD nack.items[0].outcome invalid_argument INVALID_FIELD nack.items[1].outcome]",
			"3 invalid_argument INVALID_FIELD start []", "4 invalid_argument INVALID_FIELD ack.tokens []", "5 invalid_argument INVALID_FIELD ack.tokens []",
			"6 invalid_argument INVALID_FIELD request []", "7 invalid_argument INVALID_FIELD extend.begun []",
			"8 invalid_argument INVALID_FIELD extend.ack_timeout []", "9 invalid_argument INVALID_FIELD update.concurrency []",
			"10 ok [failed_precondition DELIVERY_LOST]", "11 failed_precondition SESSION_LOST []",
		}, got); diff != "" {
			t.Error(diff)
		}
		testkit.Eventually(t, 10*time.Second, func() error { // the stream lives longer than BodyTimeout
			if time.Since(began) < b.cfg.BodyTimeout*5/4 {
				return errors.New("too soon")
			}
			return nil
		})
		b.put(t, topic, 1)
		if m, err := stream.Receive(); err != nil || len(m.GetConsume().GetDeliveries().GetDeliveries()) != 1 {
			t.Errorf("later: %v, %v", m, err)
		}
		endHalf(t, stream)
		// The session goes on.
		r, err := c.Ack(t.Context(), &parleyv1.AckRequest{SessionId: session, Tokens: tokens[2:]})
		if err != nil || told(r.GetResults()[0].GetError()) != "ok" {
			t.Errorf("after the stream's end: %v, %v", r, err)
		}
	})
}

// endHalf closes the client's half of a stream, which ends it without an error.
func endHalf(t *testing.T, stream *nextBidi) {
	t.Helper()
	if err := stream.CloseRequest(); err != nil {
		t.Fatal(err)
	}
	for {
		if _, err := stream.Receive(); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			t.Fatal(err)
		}
	}
	_ = stream.CloseResponse()
}

// A client that is gone ends its stream. Its session is kept.
func TestQueueClientGone(t *testing.T) {
	t.Parallel()
	b := queueSetup(t, nil)
	b.each(func(t *testing.T, _ int, topic string, c parleyv1connect.QueueServiceClient) {
		b.put(t, topic, 1)
		ctx, leave := context.WithCancel(t.Context())
		defer leave()
		stream, err := c.Consume(ctx, consumes(topic))
		if err != nil || !stream.Receive() {
			t.Fatal(err)
		}
		s := &openedSession{ServerStreamForClient: stream, t: t, started: stream.Msg().GetStarted()}
		d := s.next()
		leave()
		for s.Receive() {
		}
		r, err := c.Ack(t.Context(), &parleyv1.AckRequest{SessionId: s.started.GetSessionId(), Tokens: []string{d.GetToken()}})
		if err != nil || told(r.GetResults()[0].GetError()) != "ok" {
			t.Errorf("%v, %v", r, err)
		}
	})
}
