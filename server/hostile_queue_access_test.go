package server_test

import (
	"fmt"
	"maps"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/golang-jwt/jwt/v5"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/descriptorpb"

	parleyv1 "github.com/parleyhq/parley/gen/go/parley/v1"
	"github.com/parleyhq/parley/server/config"
	"github.com/parleyhq/parley/server/internal/ident"
)

// allQueueCalls returns queueCalls and adminCalls: builders of requests for all calls of both
// services but ListTopics.
func allQueueCalls() map[string]func(topic, group string) proto.Message {
	all := maps.Clone(queueCalls)
	maps.Copy(all, adminCalls)
	return all
}

// TestHostileQueueTablesCoverEveryMethod checks that every call of QueueService and AdminService
// is in queueCalls, adminCalls or operatorCalls. The other tests would leave out one that is
// missing.
func TestHostileQueueTablesCoverEveryMethod(t *testing.T) {
	t.Parallel()
	all := allQueueCalls()
	for name, m := range methods() {
		service := m.Parent().Name()
		if all[name] == nil && operatorCalls[name] == nil && service != "MessageService" && service != "PresenceService" && name != listTopics && name != "GetServerInfo" { // any token may call these
			t.Errorf("no table calls %s of %s", name, service)
		}
	}
}

// operatorCalls are requests of the calls of AdminService that are about users.
var operatorCalls = map[string]proto.Message{
	"EraseUser":       &parleyv1.EraseUserRequest{UserId: "victim", RequestId: "1"},
	"GetErasure":      &parleyv1.GetErasureRequest{RequestId: "1"},
	"ListErasures":    &parleyv1.ListErasuresRequest{},
	"RevokeTokens":    &parleyv1.RevokeTokensRequest{Target: &parleyv1.RevokeTokensRequest_UserId{UserId: "victim"}},
	"ListRevocations": &parleyv1.ListRevocationsRequest{},
	"KickUser":        &parleyv1.KickUserRequest{UserId: "victim"},
	"CreateApiKey":    &parleyv1.CreateApiKeyRequest{Name: "mine", Subject: "victim", Capabilities: []*parleyv1.Capability{{Name: "admin", Actions: []string{"write"}}}},
	"ListApiKeys":     &parleyv1.ListApiKeysRequest{},
	"RotateApiKey":    &parleyv1.RotateApiKeyRequest{KeyId: strings.Repeat("a", 24)},
	"RevokeApiKey":    &parleyv1.RevokeApiKeyRequest{KeyId: strings.Repeat("a", 24)},
}

// capabilityLines returns calls without the required capability. They must be refused regardless of
// the token's other capabilities, and before the request is validated.
func capabilityLines(g *target) []line {
	missing := want{code: "permission_denied", reason: "CAPABILITY_MISSING"}
	mint := func(p ident.Principal) string {
		p.Subject = "mallory"
		p.Channels = []ident.Capability{{Pattern: "*", Actions: []ident.Action{ident.Send, ident.History, ident.Subscribe, ident.Moderate, ident.SendAs, ident.Manage}}}
		return g.MintAs(&p, time.Hour)
	}
	queues := func(pattern string, actions ...ident.Action) []ident.Capability {
		return []ident.Capability{{Pattern: pattern, Actions: actions}}
	}
	producer, consumer := mint(ident.Principal{Queues: queues("*", ident.Produce)}), mint(ident.Principal{Queues: queues("*", ident.Consume)})
	operator := mint(ident.Principal{Admin: ident.AdminActions})
	worker := mint(ident.Principal{Queues: queues("*", ident.Produce, ident.Consume)})
	near := mint(ident.Principal{Queues: append(queues("job", ident.Produce, ident.Consume), queues("jobs-*", ident.Produce, ident.Consume)...)})
	var lines []line
	add := func(who, procedure, token string, m proto.Message) {
		lines = append(lines, line{name: "" + procedure + " by " + who, procedure: procedure, message: m, token: token, want: missing})
	}
	produces := map[string]bool{produce: true, cancelMessages: true, reschedule: true}
	for procedure, request := range queueCalls {
		if produces[procedure] {
			add("who may only consume", procedure, consumer, request("jobs", "g"))
		} else {
			add("who may only produce", procedure, producer, request("jobs", "g"))
		}
		add("an operator", procedure, operator, request("jobs", "g"))
		add("who may do nothing, with a name that is none", procedure, operator, request("{x}", ""))
		if procedure != updateSession && procedure != leave { // they name no topic
			add("who may use topics of like names", procedure, near, request("jobs", "g"))
		}
	}
	// One topic that the token does not allow is enough.
	several := consumingAs("job", "g")
	several.Topics = append(several.Topics, "jobs")
	add("who may use one of the topics", consume, near, several)
	add("who may use one of the topics", streamingConsume, near, &parleyv1.StreamingConsumeRequest{
		Request: &parleyv1.StreamingConsumeRequest_Start{Start: several},
	})
	resuming := consumingAs("job", "g")
	resuming.Resume = &parleyv1.Resume{SessionId: "s", Resumes: 1, Held: []*parleyv1.HeldDelivery{{Token: tokenOf("jobs")}}}
	add("who may not use the topic of what it holds", consume, near, resuming)
	resuming = proto.CloneOf(resuming)
	resuming.Resume.Held, resuming.Resume.Unanswered = nil, []*parleyv1.UnansweredVerdict{{Verdict: &parleyv1.UnansweredVerdict_Ack{Ack: tokenOf("jobs")}}}
	add("who may not use the topic of what it acked", consume, near, resuming)
	add("who may use one of the topics", ack, near, &parleyv1.AckRequest{SessionId: "s", Tokens: []string{tokenOf("job"), tokenOf("jobs")}})
	for procedure, request := range adminCalls {
		add("who is no operator", procedure, worker, request("jobs", "g"))
		add("who is no operator, with a name that is none", procedure, worker, request("", ""))
	}
	add("who is no operator", listTopics, worker, &parleyv1.ListTopicsRequest{})
	// A token whose only admin action is read permits no change, and one with write only permits no
	// read.
	looks, changes := mint(ident.Principal{Admin: []ident.Action{ident.Read}}), mint(ident.Principal{Admin: []ident.Action{ident.Write}})
	for procedure, request := range adminCalls {
		if opts, _ := methods()[procedure].Options().(*descriptorpb.MethodOptions); opts.GetIdempotencyLevel() == descriptorpb.MethodOptions_NO_SIDE_EFFECTS {
			add("who may only write", procedure, changes, request("jobs", "g"))
		} else {
			add("who may only read", procedure, looks, request("jobs", "g"))
		}
	}
	add("who may only write", listTopics, changes, &parleyv1.ListTopicsRequest{})
	for procedure, request := range operatorCalls {
		add("who is no operator", procedure, worker, request)
		switch procedure {
		case "EraseUser", "RevokeTokens", "KickUser", "CreateApiKey", "RotateApiKey", "RevokeApiKey":
			add("who may only read", procedure, looks, request)
		default:
			add("who may only write", procedure, changes, request)
		}
	}
	return lines
}

func TestHostileQueueCapabilities(t *testing.T) { //nolint:paralleltest // it measures processor time, which all tests share
	g := attack(t, nil)
	g.workshop()
	g.run(capabilityLines(g))
}

// TestHostileQueueTokens checks that an invalid token permits no call of QueueService or
// AdminService.
func TestHostileQueueTokens(t *testing.T) {
	t.Parallel()
	g, is := attackIssuer(t, nil)
	good := is.hs(nil)
	bad := map[string]http.Header{
		"no token": {}, "an empty token": header("Authorization", "Bearer "), "two headers": {"Authorization": {"Bearer " + good, "Bearer " + good}},
		"algorithm none":   header("Authorization", "Bearer "+is.swapHead(`{"alg":"none","typ":"JWT"}`, false)),
		"a letter changed": header("Authorization", "Bearer "+flipped(good, 9)), "without expiry": header("Authorization", "Bearer "+is.hs(jwt.MapClaims{"exp": nil})),
		"expired":                header("Authorization", "Bearer "+is.hs(jwt.MapClaims{"exp": 1})),
		"another audience":       header("Authorization", "Bearer "+is.hs(jwt.MapClaims{"aud": "other"})),
		"another type":           header("Authorization", "Bearer "+is.head("typ", "refresh+jwt")),
		"a subject with a space": header("Authorization", "Bearer "+is.hs(jwt.MapClaims{"sub": "a b", "admin": true})),
	}
	for procedure, request := range allQueueCalls() {
		for name, h := range bad {
			l, w := line{procedure: procedure, header: h, message: request("jobs", "g")}, unauthenticated
			if name == "expired" {
				w = expired
			}
			for _, d := range l.dialects() {
				g.judge(name+" to "+procedure+", "+d.name, g.call(&l, d, ""), w)
			}
		}
	}
}

// TestHostileRefusalHidesWhetherTopicExists checks that a topic outside the caller's capabilities
// gets the same answer, byte for byte, before and after it exists.
func TestHostileRefusalHidesWhetherTopicExists(t *testing.T) {
	t.Parallel()
	g := attack(t, nil)
	mallory := g.consumerOf("mallory", "mine-*")
	for i := range dialects[:4] {
		d, topic := &dialects[i], "theirs-"+dialects[i].name
		answers := func() map[string]string {
			out := make(map[string]string)
			for procedure, request := range allQueueCalls() {
				if procedure == streamingConsume && !d.h2 || procedure == updateSession || procedure == leave {
					continue // the last two name no topic
				}
				l := line{procedure: procedure, message: request(topic, "g"), header: header("X-Request-Id", "same-"+d.name+procedure)}
				a := g.call(&l, d, mallory)
				if a.code != "permission_denied" || a.detail.GetReason() != parleyv1.ErrorReason_ERROR_REASON_CAPABILITY_MISSING {
					t.Errorf("%s: %s is answered %s, %v", d.name, procedure, a.code, a.detail)
				}
				out[procedure] = a.raw
			}
			return out
		}
		before := answers()
		g.produce(topic, 2)
		after := answers()
		for procedure := range before {
			if before[procedure] != after[procedure] {
				t.Errorf("%s, %s: before the topic existed\n%s, afterwards\n%s", d.name, procedure, before[procedure], after[procedure])
			}
		}
		if w := g.groupStats(topic); w.GetWaiting() != 2 {
			t.Errorf("%s: %v", d.name, w)
		}
	}
}

// TestHostileQueueRateLimit checks that a batch costs as much as its items, that a call over the
// rate limit is refused before it is examined, and that calls of other subjects are not refused.
func TestHostileQueueRateLimit(t *testing.T) {
	t.Parallel()
	g := attack(t, func(c *config.Config) { c.Limits.RequestsPerSecond, c.Limits.RequestBurst = 1, 20 })
	g.produce("jobs", 1)
	for i := range dialects[:4] {
		d := &dialects[i]
		greedy := g.consumerOf("greedy-"+d.name, "jobs")
		batch := &parleyv1.ProduceRequest{Topic: "jobs", Messages: make([]*parleyv1.QueueMessage, 300)}
		for n := range batch.GetMessages() {
			batch.Messages[n] = &parleyv1.QueueMessage{}
		}
		if a := g.call(&line{procedure: produce, message: batch}, d, greedy); a.code != "ok" {
			t.Fatalf("%s: the batch is answered %s, %s", d.name, a.code, a.message)
		}
		for procedure, request := range queueCalls {
			if procedure == streamingConsume && !d.h2 {
				continue
			}
			a := g.call(&line{procedure: procedure, message: request("theirs", "")}, d, greedy)
			switch procedure { // A subject at its limit can still settle: the call is examined.
			case ack, nack, extend:
				g.judge(fmt.Sprintf("%s, %s", d.name, procedure), a, want{code: "permission_denied", reason: "CAPABILITY_MISSING"})
				continue
			case leave:
				g.judge(fmt.Sprintf("%s, %s", d.name, procedure), a, want{code: "failed_precondition", reason: "SESSION_LOST"})
				continue
			}
			g.judge(fmt.Sprintf("%s, %s", d.name, procedure), a, want{code: "resource_exhausted", reason: "RATE_LIMITED"})
			if wait := a.retry.GetRetryDelay().AsDuration(); wait <= 0 || a.detail.GetRetryAfter().AsDuration() != wait {
				t.Errorf("%s: %s got retry delay %v, detail %v", d.name, procedure, wait, a.detail)
			}
		}
		if a := g.call(&line{procedure: produce, message: queueCalls[produce]("jobs", "")}, d, g.consumerOf("modest-"+d.name, "jobs")); a.code != "ok" {
			t.Errorf("%s: another subject is answered %s, %s", d.name, a.code, a.message)
		}
	}
}
