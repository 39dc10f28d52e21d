package rpc

import (
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/proto"

	parleyv1 "github.com/parleyhq/parley/gen/go/parley/v1"
	"github.com/parleyhq/parley/gen/go/parley/v1/parleyv1connect"
	"github.com/parleyhq/parley/server/internal/ident"
	"github.com/parleyhq/parley/server/internal/rpc/limit"
)

// post calls a unary method with a JSON request, as curl would, and returns the status and the
// response.
func (b *queueBundle) post(t *testing.T, procedure, token, request string) (int, string) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, b.url()+procedure, strings.NewReader(request))
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Content-Type", "application/json")
	if token != "" {
		r.Header.Set("Authorization", "Bearer "+token)
	}
	res, err := b.h1.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = res.Body.Close() }()
	body, err := io.ReadAll(res.Body)
	if err != nil {
		t.Fatal(err)
	}
	return res.StatusCode, string(body)
}

// Every unary method of QueueService and AdminService requires a token, with the capability for it,
// before it says anything about the request.
func TestQueueAccess(t *testing.T) {
	t.Parallel()
	b := queueSetup(t, nil, "jobs")
	everyAction := []ident.Action{ident.Produce, ident.Consume}
	weak := b.mintAs(&ident.Principal{Subject: "ada", Queues: []ident.Capability{{Pattern: "other", Actions: everyAction}}})
	producer := b.mintAs(&ident.Principal{Subject: "ada", Queues: []ident.Capability{{Pattern: "*", Actions: []ident.Action{ident.Produce}}}})
	consumer := b.mintAs(&ident.Principal{Subject: "ada", Queues: []ident.Capability{{Pattern: "*", Actions: []ident.Action{ident.Consume}}}})
	reader := b.mintAs(&ident.Principal{Subject: "ada", Admin: []ident.Action{ident.Read}})
	checked := 0
	for _, m := range api.all {
		service := string(m.descriptor.Parent().FullName())
		if m.streams() || service != parleyv1connect.QueueServiceName && service != parleyv1connect.AdminServiceName {
			continue
		}
		checked++
		name := string(m.descriptor.Name())
		request := `{"topic":"jobs"}`
		others := []string{weak}
		switch name {
		case "Ack":
			request = `{"tokens":["jobs.0.1.1"]}`
			others = append(others, producer)
		case "Nack":
			request = `{"items":[{"token":"jobs.0.1.1","release":{}}]}`
			others = append(others, producer)
		case "Extend":
			request = `{"deliveries":{"tokens":["jobs.0.1.1"]}}`
			others = append(others, producer)
		case "UpdateSession", "Leave": // name no topic: any capability to consume is enough
			request, others = `{}`, []string{producer}
		case "Receive":
			others = append(others, producer)
		case "Produce", "CancelMessages", "RescheduleMessages":
			others = append(others, consumer)
		default: // AdminService
			request = `{}`
			others = append(others, producer, consumer)
			if m.sideEffects {
				others = append(others, reader)
			}
		}
		if status, body := b.post(t, m.procedure, "", request); status != http.StatusUnauthorized {
			t.Errorf("%s without a token: %d %s", name, status, body)
		}
		for i, token := range others {
			if status, body := b.post(t, m.procedure, token, request); status != http.StatusForbidden || !strings.Contains(body, "permission_denied") {
				t.Errorf("%s without the capability, %d: %d %s", name, i, status, body)
			}
		}
	}
	if checked != 43 {
		t.Errorf("%d methods were checked", checked)
	}
	for i, token := range []string{"", weak, producer} {
		want := connect.CodePermissionDenied
		if token == "" {
			want = connect.CodeUnauthenticated
		}
		for j := range protocols {
			s, err := b.client(j, token).Consume(t.Context(), consumes("jobs"))
			if err == nil {
				s.Receive()
				err = s.Err()
			}
			if connect.CodeOf(err) != want {
				t.Errorf("Consume, %d: %v", i, err)
			}
			_, url, opts := b.over(j, token)
			bidi, err := parleyv1connect.NewQueueServiceClient(b.h2, url, opts...).StreamingConsume(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			_ = bidi.Send(&parleyv1.StreamingConsumeRequest{Request: &parleyv1.StreamingConsumeRequest_Start{Start: consumes("jobs")}})
			if _, err = bidi.Receive(); connect.CodeOf(err) != want {
				t.Errorf("StreamingConsume, %d: %v", i, err)
			}
			_ = bidi.CloseRequest()
			_ = bidi.CloseResponse()
		}
	}
}

// No call about a session works for another subject, or for an id that is none.
func TestQueueForeignSessions(t *testing.T) {
	t.Parallel()
	b := queueSetup(t, nil)
	b.each(func(t *testing.T, protocol int, topic string, c parleyv1connect.QueueServiceClient) {
		b.put(t, topic, 1)
		s := openSession(t, c, consumes(topic))
		d := s.next()
		mine := s.started.GetSessionId()
		eve := b.client(protocol, b.mintAs(operator("eve")))
		theirs := openSession(t, eve, consumes(topic)).started.GetSessionId()
		for _, id := range []string{mine, "", "x", mine + "x", strings.Repeat("s", 128), mine[:1] + "A" + mine[2:]} {
			x := &parleyv1.ExtendRequest{SessionId: id, Target: &parleyv1.ExtendRequest_Deliveries{Deliveries: &parleyv1.DeliveryTokens{Tokens: []string{d.GetToken()}}}}
			all := &parleyv1.ExtendRequest{SessionId: id, Target: &parleyv1.ExtendRequest_All{All: &parleyv1.AllDeliveries{}}}
			release := &parleyv1.NackItem{Token: d.GetToken(), Outcome: &parleyv1.NackItem_Release{Release: &parleyv1.NackRelease{}}}
			for call, err := range map[string]error{
				"Ack":           callErr(eve.Ack(t.Context(), &parleyv1.AckRequest{SessionId: id, Tokens: []string{d.GetToken()}})),
				"Nack":          callErr(eve.Nack(t.Context(), &parleyv1.NackRequest{SessionId: id, Items: []*parleyv1.NackItem{release}})),
				"Extend":        callErr(eve.Extend(t.Context(), x)),
				"Extend all":    callErr(eve.Extend(t.Context(), all)),
				"UpdateSession": callErr(eve.UpdateSession(t.Context(), &parleyv1.UpdateSessionRequest{SessionId: id, Concurrency: 1})),
				"Leave":         callErr(eve.Leave(t.Context(), &parleyv1.LeaveRequest{SessionId: id})),
			} {
				if got := refusedAs(t, err); got != `failed_precondition SESSION_LOST "" 0` {
					t.Errorf("%s of session %q: %s", call, id, got)
				}
			}
		}
		if err := callErr(eve.Leave(t.Context(), &parleyv1.LeaveRequest{SessionId: strings.Repeat("s", 129)})); refusedAs(t, err) != `invalid_argument INVALID_FIELD "session_id" 128` {
			t.Errorf("a session id of 129 bytes: %v", err)
		}
		// Another subject's own session does not have the delivery.
		r, err := eve.Ack(t.Context(), &parleyv1.AckRequest{SessionId: theirs, Tokens: []string{d.GetToken()}})
		if err != nil || told(r.GetResults()[0].GetError()) != "failed_precondition DELIVERY_LOST" {
			t.Errorf("%v, %v", r, err)
		}
		if r, err = c.Ack(t.Context(), &parleyv1.AckRequest{SessionId: mine, Tokens: []string{d.GetToken()}}); err != nil || told(r.GetResults()[0].GetError()) != "ok" {
			t.Errorf("its own afterwards: %v, %v", r, err)
		}
	})
}

// callErr returns the error of a call.
func callErr[M proto.Message](_ M, err error) error { return err }

// A caller at its rate limit can settle what it has. What fails is charged.
func TestQueueSettlesAreFree(t *testing.T) {
	t.Parallel()
	b := queueSetup(t, func(s *settings) { s.limit = limit.Config{PerSecond: 0.001, Burst: 5} }, "jobs")
	b.put(t, "jobs", 10)
	c := b.client(1, b.mintAs(operator("ada")))
	s := openSession(t, c, consumes("jobs"))
	ack := func(token string) string {
		r, err := c.Ack(t.Context(), &parleyv1.AckRequest{SessionId: s.started.GetSessionId(), Tokens: []string{token}})
		if err != nil {
			return refusedAs(t, err)
		}
		return told(r.GetResults()[0].GetError())
	}
	for i := range 4 {
		if err := callErr(c.UpdateSession(t.Context(), &parleyv1.UpdateSessionRequest{SessionId: s.started.GetSessionId()})); err != nil {
			t.Fatal(i, err)
		}
	}
	if err := callErr(c.UpdateSession(t.Context(), &parleyv1.UpdateSessionRequest{SessionId: s.started.GetSessionId()})); connect.CodeOf(err) != connect.CodeResourceExhausted {
		t.Fatal(err)
	}
	for i := range 8 {
		if got := ack(s.next().GetToken()); got != "ok" {
			t.Fatalf("ack %d: %s", i, got)
		}
	}
	var got []string
	for range 6 {
		got = append(got, ack("x"))
	}
	if fmt.Sprint(got[:5]) != fmt.Sprint([]string{
		"invalid_argument DELIVERY_TOKEN_INVALID tokens[0]", "invalid_argument DELIVERY_TOKEN_INVALID tokens[0]",
		"invalid_argument DELIVERY_TOKEN_INVALID tokens[0]", "invalid_argument DELIVERY_TOKEN_INVALID tokens[0]",
		"invalid_argument DELIVERY_TOKEN_INVALID tokens[0]",
	}) || !strings.HasPrefix(got[5], "resource_exhausted RATE_LIMITED") {
		t.Errorf("what fails: %q", got)
	}
}
