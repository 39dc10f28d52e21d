package server_test

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"math"
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

// Hostile input about deliveries: false tokens, ended streams, contradictory acks and nacks, and
// too many streams.

// consumerOf returns a token that may produce to and consume from topics that match the patterns.
func (g *target) consumerOf(subject string, patterns ...string) string {
	g.t.Helper()
	p := &ident.Principal{Subject: subject}
	for _, pattern := range patterns {
		p.Queues = append(p.Queues, ident.Capability{Pattern: pattern, Actions: []ident.Action{ident.Produce, ident.Consume}})
	}
	return g.MintAs(p, time.Hour)
}

// produce creates a topic with one partition and the group g, and produces n messages.
func (g *target) produce(topic string, n int) {
	g.t.Helper()
	ctx, admin := g.t.Context(), g.Admin(g.Token)
	if err := callErr(admin.CreateTopic(ctx, &parleyv1.CreateTopicRequest{Topic: &parleyv1.Topic{Name: topic, Partitions: 1}})); err != nil {
		g.t.Fatal(err)
	}
	if err := callErr(admin.CreateGroup(ctx, &parleyv1.CreateGroupRequest{Topic: topic, Group: "g"})); err != nil {
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
	stats, err := g.Admin(g.Token).GetTopicStats(g.t.Context(), &parleyv1.GetTopicStatsRequest{Topic: topic})
	if err != nil {
		g.t.Fatal(err)
	}
	all := stats.GetTotal().GetGroups()[0]
	all.OldestAge = nil
	return all
}

// falseTokens returns invalid delivery tokens, made from a valid one by small changes.
func falseTokens(t *testing.T, token string) map[string]string {
	t.Helper()
	raw, err := base64.RawURLEncoding.DecodeString(token)
	if err != nil {
		t.Fatal(err)
	}
	encode := base64.RawURLEncoding.EncodeToString
	return map[string]string{
		"the first bit flipped": encode(flip(raw, 0)), "the last bit flipped": encode(flip(raw, -1)), "a bit in the middle flipped": encode(flip(raw, len(raw)/2)),
		"cut": encode(raw[:len(raw)-1]), "a letter": "A", "the sum alone": encode(raw[len(raw)-16:]), "longer": token + "AAAA", "zeros": strings.Repeat("A", len(token)),
		"512 letters": strings.Repeat("a", 512),
	}
}

// settled calls Ack, Nack and Extend with one delivery token in a dialect, and returns the outcome
// of each by procedure. bearer is the caller's access token.
func (g *target) settled(d *dialect, bearer, topic, streamID, token string) map[string]string {
	g.t.Helper()
	out := make(map[string]string)
	for procedure, l := range map[string]line{
		ack:  {message: &parleyv1.AckRequest{Topic: topic, Group: "g", StreamId: streamID, Tokens: []string{token}}},
		nack: {message: &parleyv1.NackRequest{Topic: topic, Group: "g", StreamId: streamID, Items: []*parleyv1.NackItem{dead(token)}}},
		extend: {message: &parleyv1.ExtendRequest{
			Topic: topic, Group: "g", StreamId: streamID, Target: &parleyv1.ExtendRequest_Deliveries{Deliveries: &parleyv1.DeliveryTokens{Tokens: []string{token}}},
		}},
	} {
		l.procedure = procedure
		out[procedure] = itemSummary(g.itemErrors(&l, d, bearer)[0])
	}
	return out
}

// tokenField is the path of the first delivery token in the request of each procedure.
var tokenField = map[string]string{ack: "tokens[0]", nack: "items[0].token", extend: "deliveries.tokens[0]"}

// TestHostileDeliveryTokens checks that a token is valid only for its delivery, its stream and its
// subject. Any other use is refused and settles nothing.
func TestHostileDeliveryTokens(t *testing.T) {
	t.Parallel()
	g := attack(t, nil)
	g.produce("jobs", 3)
	g.produce("other", 1)
	ada, mallory := g.consumerOf("ada", "jobs", "other"), g.consumerOf("mallory", "jobs", "other")
	r := consuming("jobs")
	r.AckTimeout = durationpb.New(12 * time.Hour)
	c := g.consumes(ada, nil, r)
	held := c.await(3)
	other := consuming("other")
	other.AckTimeout = r.GetAckTimeout()
	elsewhere := g.consumes(ada, nil, other)
	foreign := elsewhere.await(1)[0].GetToken()
	before, beforeOther := g.groupStats("jobs").String(), g.groupStats("other").String()
	token := held[0].GetToken()
	wants := func(what string, got map[string]string, format string) {
		t.Helper()
		for procedure, told := range got {
			if want := strings.ReplaceAll(format, "$", tokenField[procedure]); told != want {
				t.Errorf("%s: %s is told %s, want %s", what, procedure, told, want)
			}
		}
	}
	const untrue, lost = `invalid_argument DELIVERY_TOKEN_INVALID "$" 0`, `failed_precondition LEASE_LOST "" 0`
	for i := range dialects {
		d := &dialects[i]
		for name, bad := range falseTokens(t, token) {
			wants(d.name+", "+name, g.settled(d, ada, "jobs", c.streamID, bad), untrue)
		}
		for name, bad := range map[string]string{"nothing": "", "513 letters": strings.Repeat("a", 513), "a dot": "a.b", "NUL": "a\x00", "a newline": token + "\n"} {
			for procedure, told := range g.settled(d, ada, "jobs", c.streamID, bad) {
				if !strings.HasPrefix(told, fmt.Sprintf("invalid_argument INVALID_FIELD %q", tokenField[procedure])) {
					t.Errorf("%s, %s: %s got %s", d.name, name, procedure, told)
				}
			}
		}
		wants(d.name+", the token of another queue", g.settled(d, ada, "jobs", c.streamID, foreign), untrue)
		wants(d.name+", with its own stream", g.settled(d, ada, "jobs", elsewhere.streamID, foreign), untrue)
		wants(d.name+", the other way", g.settled(d, ada, "other", c.streamID, token), untrue)
		// Another subject's stream gets the answer of an ended one.
		wants(d.name+", another's stream", g.settled(d, mallory, "jobs", c.streamID, token), lost)
		// The tokens of a stream that never existed cannot be judged.
		never := &parleyv1.AckRequest{Topic: "jobs", Group: "g", StreamId: strings.Repeat("A", len(c.streamID)), Tokens: []string{token}}
		g.judge(d.name+", a stream that never was", g.call(&line{procedure: ack, message: never}, d, ada), want{code: "failed_precondition", reason: "LEASE_LOST"})
		a := g.call(&line{procedure: grantCredits, message: &parleyv1.GrantCreditsRequest{Topic: "jobs", Group: "g", StreamId: c.streamID, TotalMessages: 9, TotalBytes: 9}}, d, mallory)
		g.judge(d.name+", credits of another's stream", a, want{code: "failed_precondition", reason: "LEASE_LOST"})
		a = g.call(&line{procedure: leave, message: &parleyv1.LeaveRequest{Topic: "jobs", Group: "g", StreamId: c.streamID}}, d, mallory)
		g.judge(d.name+", leaving for another", a, want{code: "failed_precondition", reason: "LEASE_LOST"})
		a = g.call(&line{procedure: grantCredits, message: &parleyv1.GrantCreditsRequest{Topic: "jobs", Group: "g", StreamId: c.streamID, TotalMessages: math.MaxInt64, TotalBytes: 9}}, d, ada)
		if a.code != "invalid_argument" || a.detail.GetField() != "total_messages" || a.detail.GetLimit() == 0 {
			t.Errorf("%s: 2^63-1 credits are answered %s %v", d.name, a.code, a.detail)
		}
	}
	if now := g.groupStats("jobs").String(); now != before {
		t.Errorf("topic jobs: got %s, want %s", now, before)
	}
	if now := g.groupStats("other").String(); now != beforeOther {
		t.Errorf("topic other: got %s, want %s", now, beforeOther)
	}
	if got := g.settled(&dialects[1], ada, "jobs", c.streamID, token); got[ack] != "ok" && got[nack] != "ok" {
		t.Errorf("the token itself is answered %q", got)
	}
}

// TestHostileSettledDeliveryStaysSettled checks that no later call changes a settled delivery, and
// that calls of a consumer that has lost its stream fail and change nothing.
func TestHostileSettledDeliveryStaysSettled(t *testing.T) {
	t.Parallel()
	g := attack(t, nil)
	for i := range dialects[:4] {
		d := &dialects[i]
		opts, topic := options[d.name], "settle-"+d.name
		g.produce(topic, 4)
		r := consuming(topic)
		r.AckTimeout = durationpb.New(12 * time.Hour)
		c := g.consumes(g.Token, opts, r)
		held := c.await(4)
		items := func(procedure string, n int, item *parleyv1.NackItem) string {
			t.Helper()
			l := line{procedure: procedure, message: &parleyv1.AckRequest{Topic: topic, Group: "g", StreamId: c.streamID, Tokens: []string{held[n].GetToken()}}}
			if item != nil {
				item.Token = held[n].GetToken()
				l.message = &parleyv1.NackRequest{Topic: topic, Group: "g", StreamId: c.streamID, Items: []*parleyv1.NackItem{item}}
			}
			return itemSummary(g.itemErrors(&l, d, g.Token)[0])
		}
		const already = `failed_precondition ALREADY_SETTLED "" 0`
		retry := func() *parleyv1.NackItem { return retried("", time.Hour) }
		for step, got := range []string{
			items(ack, 0, nil), items(ack, 0, nil), items(nack, 0, retry()),
			items(nack, 1, retry()), items(nack, 1, retry()), items(ack, 1, nil), items(nack, 1, released("")),
		} {
			if want := []string{"ok", "ok", already, "ok", "ok", already, already}[step]; got != want {
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
		if w := g.groupStats(topic); w.GetAcked() != 1 || w.GetRetrying() != 1 || w.GetPending() != 2 || w.GetDead() != 0 {
			t.Errorf("%s: %v", d.name, w)
		}
		// The stream ends, and another one receives its unsettled deliveries.
		_ = c.stream.Close()
		next := g.consumes(g.Token, opts, r)
		again := next.await(2)
		for procedure, told := range g.settled(d, g.Token, topic, c.streamID, held[2].GetToken()) {
			if told != `failed_precondition LEASE_LOST "" 0` {
				t.Errorf("%s: after the stream ended %s got %s", d.name, procedure, told)
			}
		}
		for procedure, told := range g.settled(d, g.Token, topic, next.streamID, held[2].GetToken()) {
			if told != fmt.Sprintf("invalid_argument DELIVERY_TOKEN_INVALID %q 0", tokenField[procedure]) {
				t.Errorf("%s: in the next stream %s got %s", d.name, procedure, told)
			}
		}
		if w := g.groupStats(topic); w.GetAcked() != 1 || w.GetRetrying() != 1 || w.GetPending() != 2 || w.GetDead() != 0 || again[0].GetAttempt() != 2 {
			t.Errorf("%s: after the takeover: %v", d.name, w)
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
		type request = parleyv1.StreamingConsumeRequest
		many := make([]string, 1001)
		extending := func(e *parleyv1.StreamingExtend, d time.Duration) *request {
			if e.Target == nil {
				e.Target = &parleyv1.StreamingExtend_All{All: &parleyv1.AllDeliveries{}}
			}
			e.AckTimeout = durationpb.New(d)
			return &request{Request: &parleyv1.StreamingConsumeRequest_Extend{Extend: e}}
		}
		these := func(tokens ...string) *parleyv1.StreamingExtend {
			return &parleyv1.StreamingExtend{Target: &parleyv1.StreamingExtend_Deliveries{Deliveries: &parleyv1.DeliveryTokens{Tokens: tokens}}}
		}
		for n, bad := range []struct {
			want string
			r    *request
		}{
			{`invalid_argument INVALID_FIELD "start" 0`, &request{Request: start}},
			{`invalid_argument INVALID_FIELD "request" 0`, &request{}},
			{`invalid_argument INVALID_FIELD "ack.tokens" 1000`, &request{Request: &parleyv1.StreamingConsumeRequest_Ack{Ack: &parleyv1.StreamingAck{Tokens: many}}}},
			{`invalid_argument INVALID_FIELD "ack.tokens" 1`, &request{Request: &parleyv1.StreamingConsumeRequest_Ack{Ack: &parleyv1.StreamingAck{}}}},
			{`invalid_argument INVALID_FIELD "extend.ack_timeout" 1`, extending(&parleyv1.StreamingExtend{}, 0)},
			{`invalid_argument INVALID_FIELD "extend.ack_timeout" 43200`, extending(&parleyv1.StreamingExtend{}, 13*time.Hour)},
			{`invalid_argument INVALID_FIELD "extend.target" 0`, &request{Request: &parleyv1.StreamingConsumeRequest_Extend{Extend: &parleyv1.StreamingExtend{}}}},
			{`invalid_argument INVALID_FIELD "extend.deliveries.tokens" 1`, extending(these(), time.Minute)},
			{`invalid_argument INVALID_FIELD "extend.deliveries.tokens" 1000`, extending(these(many...), time.Minute)},
			{`invalid_argument DELIVERY_TOKEN_INVALID "deliveries.tokens[0]" 0`, extending(these(swapped(token, 3)), time.Minute)},
			{"ok", extending(these(token), time.Minute)},
			{"ok", extending(&parleyv1.StreamingExtend{}, time.Minute)},
			{`invalid_argument INVALID_FIELD "items[0].outcome" 0`, &request{Request: &parleyv1.StreamingConsumeRequest_Nack{Nack: &parleyv1.StreamingNack{Items: []*parleyv1.NackItem{{Token: token}}}}}},
			{`invalid_argument INVALID_FIELD "credits.total_messages" 1`, &request{Request: &parleyv1.StreamingConsumeRequest_Credits{Credits: &parleyv1.StreamingCredits{TotalBytes: 1}}}},
			{`invalid_argument DELIVERY_TOKEN_INVALID "tokens[0]" 0`, &request{Request: &parleyv1.StreamingConsumeRequest_Ack{Ack: &parleyv1.StreamingAck{Tokens: []string{swapped(token, 3)}}}}},
			{"ok", &request{Request: &parleyv1.StreamingConsumeRequest_Ack{Ack: &parleyv1.StreamingAck{Tokens: []string{token}}}}},
		} {
			bad.r.CallId = int64(n + 1)
			say(bad.r)
			answer := hear(func(m *parleyv1.StreamingConsumeResponse) bool { return m.GetAnswer() != nil }).GetAnswer()
			told := itemSummary(answer.GetError())
			for _, r := range answer.GetResults() {
				told = itemSummary(r.GetError())
			}
			if answer.GetCallId() != int64(n+1) || told != bad.want {
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
		if w := g.groupStats(topic); w.GetAcked() != 1 || w.GetPending() != 0 {
			t.Errorf("%s: %v", name, w)
		}
	}
}
