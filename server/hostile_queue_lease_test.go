package server_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/types/known/durationpb"

	parleyv1 "github.com/parleyhq/parley/gen/go/parley/v1"
	"github.com/parleyhq/parley/server/config"
	"github.com/parleyhq/parley/server/internal/ident"
	"github.com/parleyhq/parley/server/internal/testkit"
)

// Hostile input about deliveries: false tokens, contradictory acks and nacks, and too many streams.
// Sessions of others are in hostile_queue_session_test.go.

// consumerOf returns a token that may produce to and consume from topics that match the patterns.
func (g *target) consumerOf(subject string, patterns ...string) string {
	g.t.Helper()
	p := &ident.Principal{Subject: subject}
	for _, pattern := range patterns {
		p.Queues = append(p.Queues, ident.Capability{Pattern: pattern, Actions: []ident.Action{ident.Produce, ident.Consume}})
	}
	return g.MintAs(p, time.Hour)
}

// produce creates a topic with one partition and the group g, and produces n messages of one key.
func (g *target) produce(topic string, n int) {
	g.t.Helper()
	ctx, admin := g.t.Context(), g.QueueAdmin(g.Token)
	if err := callErr(admin.CreateTopic(ctx, &parleyv1.CreateTopicRequest{Topic: &parleyv1.Topic{Name: topic, Partitions: 1}})); err != nil {
		g.t.Fatal(err)
	}
	if err := callErr(admin.CreateGroup(ctx, &parleyv1.CreateGroupRequest{Topic: topic, Group: slowGroup("g")})); err != nil {
		g.t.Fatal(err)
	}
	items := make([]*parleyv1.QueueMessage, n)
	for i := range items {
		items[i] = &parleyv1.QueueMessage{Key: "k"}
	}
	if err := callErr(g.Queues(g.Token).Produce(ctx, &parleyv1.ProduceRequest{Topic: topic, Messages: items})); err != nil {
		g.t.Fatal(err)
	}
}

// groupStats returns the statistics of the group g in a topic.
func (g *target) groupStats(topic string) *parleyv1.GroupStats {
	g.t.Helper()
	stats, err := g.QueueAdmin(g.Token).GetTopicStats(g.t.Context(), &parleyv1.GetTopicStatsRequest{Topic: topic})
	if err != nil {
		g.t.Fatal(err)
	}
	all := stats.GetTotal().GetGroups()[0]
	all.OldestAge = nil
	return all
}

// settled calls Ack, Nack and Extend with one delivery token in a dialect, and returns the outcome
// of each by procedure: that of the item, or that of the call if it fails as a whole. bearer is the
// caller's access token.
func (g *target) settled(d *dialect, bearer, session, token string) map[string]string {
	g.t.Helper()
	out := make(map[string]string)
	for procedure, l := range map[string]line{
		ack:  {message: &parleyv1.AckRequest{SessionId: session, Tokens: []string{token}}},
		nack: {message: &parleyv1.NackRequest{SessionId: session, Items: []*parleyv1.NackItem{dead(token)}}},
		extend: {message: &parleyv1.ExtendRequest{
			SessionId: session, Target: &parleyv1.ExtendRequest_Deliveries{Deliveries: &parleyv1.DeliveryTokens{Tokens: []string{token}}},
		}},
	} {
		l.procedure = procedure
		if a := g.call(&l, d, bearer); a.code != "ok" {
			out[procedure] = "the call: " + a.code + " " + strings.TrimPrefix(a.detail.GetReason().String(), "ERROR_REASON_")
			continue
		}
		out[procedure] = itemSummary(g.itemErrors(&l, d, bearer)[0])
	}
	return out
}

// tokenField is the path of the first delivery token in the request of each procedure.
var tokenField = map[string]string{ack: "tokens[0]", nack: "items[0].token", extend: "deliveries.tokens[0]"}

// wantSettled checks what settled returned. A $ in want stands for the path of the token.
func wantSettled(t *testing.T, what string, got map[string]string, want string) {
	t.Helper()
	for procedure, told := range got {
		if w := strings.ReplaceAll(want, "$", tokenField[procedure]); told != w {
			t.Errorf("%s: %s is told %s, want %s", what, procedure, told, w)
		}
	}
}

// TestHostileDeliveryTokens checks that a token is valid only for its delivery and in its session.
// Any other use is refused and settles nothing.
func TestHostileDeliveryTokens(t *testing.T) {
	t.Parallel()
	g := attack(t, nil)
	g.produce("jobs", 3)
	g.produce("other", 1)
	ada := g.consumerOf("ada", "jobs", "other")
	c, elsewhere := g.consumes(ada, nil, consuming("jobs")), g.consumes(ada, nil, consuming("other"))
	held, foreign := c.await(3), elsewhere.await(1)[0].GetToken()
	before, beforeOther := g.groupStats("jobs").String(), g.groupStats("other").String()
	token := held[0].GetToken()
	topic, place, _ := strings.Cut(token, ".")
	stem := token[:strings.LastIndex(token, ".")]
	const (
		untrue = `invalid_argument DELIVERY_TOKEN_INVALID "$" 0`
		lost   = `failed_precondition DELIVERY_LOST "" 0`
		gone   = `failed_precondition DELIVERY_GONE "" 0`
	)
	for i := range dialects {
		d := &dialects[i]
		for name, bad := range map[string]string{
			"a letter": "A", "cut": stem, "no topic": "." + place, "a part more": token + ".1", "a zero before": topic + ".0" + place, "a sign": topic + ".+" + place,
			"no generation": stem + ".", "generation 0": stem + ".0", "generation below 0": stem + ".-1", "generation 2^63": stem + ".9223372036854775808",
			"a newline": token + "\n", "zeros": strings.Repeat("0", len(token)),
		} {
			wantSettled(t, d.name+", "+name, g.settled(d, ada, c.sessionID, bad), untrue)
		}
		for name, bad := range map[string]string{"nothing": "", "129 letters": strings.Repeat("a", 129), "NUL": token + "\x00"} {
			got := g.settled(d, ada, c.sessionID, bad)
			for _, procedure := range []string{ack, extend} {
				if want := strings.ReplaceAll(untrue, "$", tokenField[procedure]); got[procedure] != want {
					t.Errorf("%s, %s: %s got %s", d.name, name, procedure, got[procedure])
				}
			}
			if !strings.HasPrefix(got[nack], `invalid_argument INVALID_FIELD "items[0].token"`) {
				t.Errorf("%s, %s: nack got %s", d.name, name, got[nack])
			}
		}
		// Well-formed tokens of deliveries that the session does not hold.
		for name, bad := range map[string]string{
			"another generation": stem + ".2", "another message": tokenOf("jobs"), "another partition": topic + ".65535." + strings.SplitN(token, ".", 3)[2],
			"the token of another session": foreign,
		} {
			got := g.settled(d, ada, c.sessionID, bad)
			if name == "another message" { // which could have been settled long ago, by anybody
				for _, procedure := range []string{ack, nack} {
					if got[procedure] != gone {
						t.Errorf("%s, %s: %s is told %s, want %s", d.name, name, procedure, got[procedure], gone)
					}
					delete(got, procedure)
				}
			}
			wantSettled(t, d.name+", "+name, got, lost)
		}
		wantSettled(t, d.name+", in its other session", g.settled(d, ada, elsewhere.sessionID, token), lost)
		for _, reserved := range []string{"__dlq.0.1.1", "nothing.0.1.1", "{x}.0.1.1", " " + token} {
			wantSettled(t, d.name+", a topic that it may not use", g.settled(d, ada, c.sessionID, reserved), "the call: permission_denied CAPABILITY_MISSING")
		}
	}
	if now := g.groupStats("jobs").String(); now != before {
		t.Errorf("topic jobs: got %s, want %s", now, before)
	}
	if now := g.groupStats("other").String(); now != beforeOther {
		t.Errorf("topic other: got %s, want %s", now, beforeOther)
	}
	if got := g.settled(&dialects[1], ada, c.sessionID, token); got[ack] != "ok" && got[nack] != "ok" {
		t.Errorf("the token itself is answered %q", got)
	}
}

// TestHostileSettledDeliveryStaysSettled checks that no later call changes a settled delivery, and
// that calls of a consumer whose session has ended fail and change nothing.
func TestHostileSettledDeliveryStaysSettled(t *testing.T) {
	t.Parallel()
	g := attack(t, nil)
	for i := range dialects[:4] {
		d := &dialects[i]
		opts, topic := options[d.name], "settle-"+d.name
		g.produce(topic, 4)
		c := g.consumes(g.Token, opts, consuming(topic))
		held := c.await(4)
		items := func(procedure string, n int, item *parleyv1.NackItem) string {
			t.Helper()
			l := line{procedure: procedure, message: &parleyv1.AckRequest{SessionId: c.sessionID, Tokens: []string{held[n].GetToken()}}}
			if item != nil {
				item.Token = held[n].GetToken()
				l.message = &parleyv1.NackRequest{SessionId: c.sessionID, Items: []*parleyv1.NackItem{item}}
			}
			return itemSummary(g.itemErrors(&l, d, g.Token)[0])
		}
		const lost = `failed_precondition DELIVERY_LOST "" 0`
		retry := func() *parleyv1.NackItem { return retried("", time.Hour) }
		for step, got := range []string{
			items(ack, 0, nil), items(ack, 0, nil), items(nack, 0, retry()),
			items(nack, 1, retry()), items(nack, 1, retry()), items(ack, 1, nil), items(nack, 1, released("")),
		} {
			if want := []string{"ok", "ok", lost, "ok", "ok", lost, lost}[step]; got != want {
				t.Errorf("%s: step %d is told %s, want %s", d.name, step, got, want)
			}
		}
		reasoned, coded, long, spaced := released(""), released(""), retry(), retry()
		reasoned.Reason, coded.Code, long.Reason, spaced.Code = "x", "E1", strings.Repeat("r", 1025), "a b"
		for name, item := range map[string]*parleyv1.NackItem{
			"items[0].release": reasoned, "items[0].retry.delay": retried("", -1), "items[0].reason": long, "items[0].code": spaced, "items[0].outcome": {},
		} {
			if got := items(nack, 2, item); !strings.HasPrefix(got, fmt.Sprintf("invalid_argument INVALID_FIELD %q", name)) {
				t.Errorf("%s: a nack with a bad %s is told %s", d.name, name, got)
			}
		}
		if got := items(nack, 2, coded); got != `invalid_argument INVALID_FIELD "items[0].release" 0` {
			t.Errorf("%s: a release with a code is told %s", d.name, got)
		}
		if w := g.groupStats(topic); w.GetAcked() != 1 || w.GetRetrying() != 1 || w.GetRunning() != 2 || w.GetDead() != 0 {
			t.Errorf("%s: %v", d.name, w)
		}
		// The session ends, and another one gets what it had not settled.
		if err := callErr(g.Queues(g.Token, opts...).Leave(t.Context(), &parleyv1.LeaveRequest{SessionId: c.sessionID})); err != nil {
			t.Fatal(err)
		}
		for n := range 2 {
			if got := items(nack, 2+n, released("")); got != "ok" {
				t.Errorf("%s: a release after Leave is told %s", d.name, got)
			}
		}
		for c.read() {
		}
		if err := c.stream.Err(); err != nil {
			t.Errorf("%s: the stream of a session that left ended with %v", d.name, err)
		}
		next := g.consumes(g.Token, opts, consuming(topic))
		again := next.await(2)
		for procedure, told := range g.settled(d, g.Token, c.sessionID, held[2].GetToken()) {
			if told != lost && told != "the call: failed_precondition SESSION_LOST" {
				t.Errorf("%s: after the session ended %s is told %s", d.name, procedure, told)
			}
		}
		wantSettled(t, d.name+", in the next session", g.settled(d, g.Token, next.sessionID, held[2].GetToken()), lost)
		if w := g.groupStats(topic); w.GetAcked() != 1 || w.GetRetrying() != 1 || w.GetRunning() != 2 || w.GetDead() != 0 || again[0].GetAttempt() != 1 || again[0].GetDelivery() != 2 {
			t.Errorf("%s: after the takeover: %v, %v", d.name, w, again[0])
		}
		_ = next.stream.Close()
	}
}

// TestHostileConsumerLimitPerSubject checks that a subject with the maximum number of streams gets
// no more until one ends, and that other subjects do.
func TestHostileConsumerLimitPerSubject(t *testing.T) {
	t.Parallel()
	g := attack(t, func(c *config.Config) { c.Queues.ConsumersPerSubject = 2 })
	g.produce("jobs", 1)
	for i := range dialects[:4] {
		d := &dialects[i]
		token, opts := g.consumerOf("busy-"+d.name, "jobs"), options[d.name]
		first := g.consumes(token, opts, consuming("jobs"))
		second := g.consumes(token, opts, consuming("jobs"))
		a := g.call(&line{procedure: consume, message: consuming("jobs")}, d, token)
		g.judge(d.name, a, want{code: "resource_exhausted", reason: "NODE_FULL", limit: 2})
		calm := g.consumes(g.consumerOf("calm-"+d.name, "jobs"), opts, consuming("jobs"))
		_ = first.stream.Close()
		testkit.Eventually(t, 20*time.Second, func() error {
			return consumeErr(t.Context(), g.Queues(token, opts...))
		})
		_, _ = second.stream.Close(), calm.stream.Close()
	}
}

// TestHostileStreamingConsumeRequests checks that a bad request on a bidirectional stream, such as
// a second start, gets an answer and the stream stays open.
func TestHostileStreamingConsumeRequests(t *testing.T) {
	t.Parallel()
	g := attack(t, nil)
	for name, opts := range options {
		topic := "both-" + name
		g.produce(topic, 1)
		ctx, cancel := context.WithCancel(t.Context())
		s, err := g.Queues(g.Token, opts...).StreamingConsume(ctx)
		if err != nil {
			t.Fatal(err)
		}
		say := func(r *parleyv1.StreamingConsumeRequest) {
			t.Helper()
			if err := s.Send(r); err != nil {
				t.Fatal(err)
			}
		}
		var token string
		hear := func(until func(*parleyv1.StreamingConsumeResponse) bool) *parleyv1.StreamingConsumeResponse {
			t.Helper()
			for {
				m, err := s.Receive()
				if err != nil {
					t.Fatalf("%s: %v", name, err)
				}
				for _, d := range m.GetConsume().GetDeliveries().GetDeliveries() {
					token = d.GetToken()
				}
				if until(m) {
					return m
				}
			}
		}
		start := &parleyv1.StreamingConsumeRequest_Start{Start: consuming(topic)}
		say(&parleyv1.StreamingConsumeRequest{Request: start})
		hear(func(*parleyv1.StreamingConsumeResponse) bool { return token != "" })
		for n, bad := range badStreamRequests(start, token) {
			bad.r.RequestId = int64(n + 1)
			say(bad.r)
			answer := hear(func(m *parleyv1.StreamingConsumeResponse) bool { return m.GetResults() != nil }).GetResults()
			told := "ok"
			if answer.GetError() != nil {
				told = itemSummary(answer.GetError())
			}
			for _, r := range answer.GetResults() {
				told = itemSummary(r.GetError())
			}
			if answer.GetRequestId() != int64(n+1) || told != bad.want {
				t.Errorf("%s: request %d is told %s, want %s", name, n+1, told, bad.want)
			}
		}
		if err := s.CloseRequest(); err != nil {
			t.Error(err)
		}
		for err == nil {
			_, err = s.Receive()
		}
		if !errors.Is(err, io.EOF) {
			t.Errorf("%s: the stream ends with %v, %v", name, err, connect.CodeOf(err))
		}
		cancel()
		if w := g.groupStats(topic); w.GetAcked() != 1 || w.GetRunning() != 0 {
			t.Errorf("%s: %v", name, w)
		}
	}
}

// badStreamRequests returns requests on a stream that holds the delivery of token, and what each is
// told. The last one acknowledges it.
func badStreamRequests(start *parleyv1.StreamingConsumeRequest_Start, token string) []struct {
	want string
	r    *parleyv1.StreamingConsumeRequest
} {
	type request = parleyv1.StreamingConsumeRequest
	many, other := make([]string, 1001), token[:strings.LastIndex(token, ".")]+".7"
	extending := func(e *parleyv1.ExtendRequest) *request {
		return &request{Request: &parleyv1.StreamingConsumeRequest_Extend{Extend: e}}
	}
	all := &parleyv1.ExtendRequest_All{All: &parleyv1.AllDeliveries{}}
	these := func(tokens ...string) *parleyv1.ExtendRequest_Deliveries {
		return &parleyv1.ExtendRequest_Deliveries{Deliveries: &parleyv1.DeliveryTokens{Tokens: tokens}}
	}
	acking := func(session string, tokens ...string) *request {
		return &request{Request: &parleyv1.StreamingConsumeRequest_Ack{Ack: &parleyv1.AckRequest{SessionId: session, Tokens: tokens}}}
	}
	updating := func(u *parleyv1.UpdateSessionRequest) *request {
		return &request{Request: &parleyv1.StreamingConsumeRequest_Update{Update: u}}
	}
	return []struct {
		want string
		r    *request
	}{
		{`invalid_argument INVALID_FIELD "start" 0`, &request{Request: start}},
		{`invalid_argument INVALID_FIELD "request" 0`, &request{}},
		{`invalid_argument INVALID_FIELD "ack.tokens" 1000`, acking("", many...)},
		{`invalid_argument INVALID_FIELD "ack.tokens" 1`, acking("")},
		{`invalid_argument INVALID_FIELD "ack.session_id" 128`, acking(strings.Repeat("s", 129), token)},
		{`failed_precondition SESSION_LOST "" 0`, acking("s", token)},
		{`invalid_argument DELIVERY_TOKEN_INVALID "ack.tokens[0]" 0`, acking("", token+"\n")},
		{`failed_precondition DELIVERY_LOST "" 0`, acking("", other)},
		{`invalid_argument INVALID_FIELD "extend.ack_timeout" 1`, extending(&parleyv1.ExtendRequest{Target: all, AckTimeout: durationpb.New(0)})},
		{`invalid_argument INVALID_FIELD "extend.ack_timeout" 43200`, extending(&parleyv1.ExtendRequest{Target: all, AckTimeout: durationpb.New(13 * time.Hour)})},
		{`invalid_argument INVALID_FIELD "extend.begun" 0`, extending(&parleyv1.ExtendRequest{Target: all, Begun: true})},
		{`invalid_argument INVALID_FIELD "extend.target" 0`, extending(&parleyv1.ExtendRequest{})},
		{`invalid_argument INVALID_FIELD "extend.deliveries.tokens" 1`, extending(&parleyv1.ExtendRequest{Target: these()})},
		{`invalid_argument INVALID_FIELD "extend.deliveries.tokens" 1000`, extending(&parleyv1.ExtendRequest{Target: these(many...)})},
		{`failed_precondition DELIVERY_LOST "" 0`, extending(&parleyv1.ExtendRequest{Target: these(other)})},
		{"ok", extending(&parleyv1.ExtendRequest{Target: these(token), AckTimeout: durationpb.New(time.Minute), Begun: true})},
		{"ok", extending(&parleyv1.ExtendRequest{Target: all})},
		{`invalid_argument INVALID_FIELD "nack.items[0].outcome" 0`, &request{Request: &parleyv1.StreamingConsumeRequest_Nack{
			Nack: &parleyv1.NackRequest{Items: []*parleyv1.NackItem{{Token: token}}},
		}}},
		{`invalid_argument INVALID_FIELD "update.concurrency" 0`, updating(&parleyv1.UpdateSessionRequest{Concurrency: -1})},
		{`failed_precondition SESSION_LOST "" 0`, updating(&parleyv1.UpdateSessionRequest{SessionId: "s", Concurrency: 1})},
		{"ok", updating(&parleyv1.UpdateSessionRequest{Concurrency: 3})},
		{`failed_precondition SESSION_LOST "" 0`, &request{Request: &parleyv1.StreamingConsumeRequest_Leave{Leave: &parleyv1.LeaveRequest{SessionId: "s"}}}},
		{"ok", acking("", token)},
	}
}
