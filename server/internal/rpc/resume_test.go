package rpc

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	parleyv1 "github.com/parleyhq/parley/gen/go/parley/v1"
	"github.com/parleyhq/parley/gen/go/parley/v1/parleyv1connect"
	"github.com/parleyhq/parley/server/internal/ident"
	"github.com/parleyhq/parley/server/internal/revocation"
	"github.com/parleyhq/parley/server/internal/rpc/authn"
)

// A session is resumed on another stream with what the consumer holds and decided meanwhile. The
// first frame says what it lost, tokens that are none included, and the results of its verdicts.
func TestQueueResume(t *testing.T) {
	t.Parallel()
	b := queueSetup(t, nil)
	b.each(func(t *testing.T, protocol int, topic string, c parleyv1connect.QueueServiceClient) {
		b.put(t, topic, 4)
		s := openSession(t, c, consumes(topic))
		var tokens []string
		for range 4 {
			tokens = append(tokens, s.next().GetToken())
		}
		if r, err := c.Ack(t.Context(), &parleyv1.AckRequest{SessionId: s.started.GetSessionId(), Tokens: tokens[:1]}); err != nil || fmt.Sprint(toldOf(r.GetResults())) != "[ok]" {
			t.Fatal(r, err)
		}
		again := consumes(topic)
		again.Resume = &parleyv1.Resume{
			SessionId: s.started.GetSessionId(), Resumes: 1,
			Held: []*parleyv1.HeldDelivery{{Token: tokens[1], Begun: true}, {Token: "no.token"}, {Token: tokens[0]}, {Token: tokens[2]}},
			Unanswered: []*parleyv1.UnansweredVerdict{
				{Verdict: &parleyv1.UnansweredVerdict_Ack{Ack: tokens[2]}},
				{Verdict: &parleyv1.UnansweredVerdict_Ack{Ack: "a.b"}},
				{Verdict: &parleyv1.UnansweredVerdict_Nack{Nack: &parleyv1.NackItem{Token: tokens[3], Outcome: &parleyv1.NackItem_DeadLetter{DeadLetter: &parleyv1.NackDeadLetter{}}}}},
			},
		}
		r := openSession(t, c, again)
		if r.started.GetSessionId() != s.started.GetSessionId() || r.started.GetResumeGrace().AsDuration() != time.Minute {
			t.Errorf("resumed as %v", r.started)
		}
		if diff := cmp.Diff([]string{"no.token", tokens[0]}, r.started.GetLost().GetTokens()); diff != "" {
			t.Log(diff) // the holder may tell later
		}
		if diff := cmp.Diff([]string{"ok", "invalid_argument DELIVERY_TOKEN_INVALID resume.unanswered[1].token", "ok"}, toldOf(r.started.GetUnanswered())); diff != "" {
			t.Error(diff)
		}
		// The earlier stream does not have the session any more.
		for s.Receive() {
		}
		if got := refusedAs(t, s.Err()); got != `failed_precondition SESSION_LOST "" 0` {
			t.Errorf("the earlier stream: %s", got)
		}
		if a, err := c.Ack(t.Context(), &parleyv1.AckRequest{SessionId: r.started.GetSessionId(), Tokens: tokens[1:2]}); err != nil || fmt.Sprint(toldOf(a.GetResults())) != "[ok]" {
			t.Error(a, err)
		}
		eve, err := b.client(protocol, b.mintAs(operator("eve"))).Consume(t.Context(), again)
		if err == nil {
			eve.Receive()
			err = eve.Err()
		}
		if got := refusedAs(t, err); got != `failed_precondition SESSION_LOST "" 0` {
			t.Errorf("by another subject: %s", got)
		}
	})
}

// UpdateSession moves the end of a stream to the expiry of the caller's token.
func TestQueueUpdateSession(t *testing.T) {
	t.Parallel()
	b := queueSetup(t, nil, "jobs")
	short, err := authn.Mint(secret, operator("ada"), 3*time.Second)
	if err != nil {
		t.Fatal(err)
	}
	s := openSession(t, b.client(1, short), consumes("jobs"))
	long := b.client(1, b.mintAs(operator("ada")))
	r, err := long.UpdateSession(t.Context(), &parleyv1.UpdateSessionRequest{SessionId: s.started.GetSessionId(), Concurrency: 1, MaxInFlight: 1})
	if err != nil || time.Until(r.GetExpireTime().AsTime()) < 50*time.Minute {
		t.Fatalf("%v, %v", r, err)
	}
	until := time.Now().Add(4 * time.Second)
	for time.Now().Before(until) { // heartbeats, and messages one at a time
		b.put(t, "jobs", 1)
		d := s.next()
		if a, err := long.Ack(t.Context(), &parleyv1.AckRequest{SessionId: s.started.GetSessionId(), Tokens: []string{d.GetToken()}}); err != nil || fmt.Sprint(toldOf(a.GetResults())) != "[ok]" {
			t.Fatal(a, err)
		}
	}
	if all, err := long.Extend(t.Context(), &parleyv1.ExtendRequest{SessionId: s.started.GetSessionId(), Target: &parleyv1.ExtendRequest_All{All: &parleyv1.AllDeliveries{}}}); err != nil || len(all.GetResults()) > 0 {
		t.Error(all, err)
	}
}

// Messages are received and settled with plain JSON calls.
func TestQueueReceive(t *testing.T) {
	t.Parallel()
	b := queueSetup(t, nil, "jobs")
	b.put(t, "jobs", 3)
	token := b.mintAs(operator("ada"))
	call := func(method, request string, out any) int {
		t.Helper()
		status, body := b.post(t, "/parley.v1.QueueService/"+method, token, request)
		if err := json.Unmarshal([]byte(body), out); err != nil {
			t.Fatal(body, err)
		}
		return status
	}
	type received struct {
		SessionID  string `json:"sessionId"` //nolint:tagliatelle // as Connect writes it
		Deliveries []struct {
			Token, Topic, Key string
			Payload           []byte
			Headers           map[string]string
		}
	}
	var got received
	if status := call("Receive", `{"topic":"jobs","group":"work","maxMessages":2,"wait":"20s"}`, &got); status != http.StatusOK || len(got.Deliveries) == 0 {
		t.Fatal(status, got)
	}
	d := got.Deliveries[0]
	if string(d.Payload) != "jobs0" || d.Key != "k" || d.Headers["h"] != "v" || d.Topic != "jobs" {
		t.Errorf("got %+v", d)
	}
	var acked struct{ Results []map[string]any }
	if status := call("Ack", fmt.Sprintf(`{"sessionId":%q,"tokens":[%q]}`, got.SessionID, d.Token), &acked); status != http.StatusOK || len(acked.Results) != 1 || len(acked.Results[0]) > 0 {
		t.Error(status, acked)
	}
	// No messages, and no wait.
	b.create(t, "empty")
	var none received
	if status := call("Receive", `{"topic":"empty","group":"work"}`, &none); status != http.StatusOK || len(none.Deliveries) > 0 || none.SessionID == "" {
		t.Error(status, none)
	}
	for request, code := range map[string]string{
		`{"topic":"away","group":"work"}`:                       "not_found",
		`{"topic":"jobs","group":"nobody"}`:                     "not_found",
		`{"topic":"jobs","group":"work","wait":"31s"}`:          "invalid_argument",
		`{"topic":"jobs","group":"work","maxMessages":101}`:     "invalid_argument",
		`{"topic":"__jobs","group":"work"}`:                     "invalid_argument",
		`{"topic":"jobs","group":"work","max":1}`:               "invalid_argument",
		`{"topic":"jobs","group":"work","ackTimeout":"0.001s"}`: "invalid_argument",
	} {
		var refused struct{ Code string }
		if call("Receive", request, &refused); refused.Code != code {
			t.Errorf("%s: %s, want %s", request, refused.Code, code)
		}
	}
}

// A stream ends when the token of its latest UpdateSession is revoked, not with its earlier one.
func TestQueueUpdatedTokenRevoked(t *testing.T) {
	t.Parallel()
	b := queueSetup(t, nil, "jobs")
	with := func(ssid string) string {
		p := operator("ada")
		p.SSID = ssid
		return b.mintAs(p)
	}
	s := openSession(t, b.client(1, with("first")), consumes("jobs"))
	second := b.client(1, with("second"))
	if _, err := second.UpdateSession(t.Context(), &parleyv1.UpdateSessionRequest{SessionId: s.started.GetSessionId()}); err != nil {
		t.Fatal(err)
	}
	for _, ssid := range []string{"first", "second"} {
		if ssid == "second" {
			b.put(t, "jobs", 1)
			s.next() // the stream goes on without the first one
		}
		if _, err := b.revoked.Revoke(t.Context(), revocation.Entry{Key: ident.SSIDKey(ssid)}, nil); err != nil {
			t.Fatal(err)
		}
	}
	for s.Receive() { // what was on its way
	}
	if got := refusedAs(t, s.Err()); !strings.Contains(got, "TOKEN_REVOKED") {
		t.Errorf("the stream ended with %s", got)
	}
}
