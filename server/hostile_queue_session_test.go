package server_test

import (
	"encoding/base64"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"

	parleyv1 "github.com/parleyhq/parley/gen/go/parley/v1"
)

// forgedSessions returns ids that are no sessions of anybody, made from a valid id by small
// changes.
func forgedSessions(t *testing.T, id string) map[string]string {
	t.Helper()
	text, group, _ := strings.Cut(id, ".")
	raw, err := base64.RawURLEncoding.DecodeString(text)
	if err != nil {
		t.Fatal(err)
	}
	encode := func(b []byte) string { return base64.RawURLEncoding.EncodeToString(b) + "." + group }
	return map[string]string{
		"the first bit flipped": encode(flip(raw, 0)), "the last bit flipped": encode(flip(raw, -1)), "a bit in the middle flipped": encode(flip(raw, len(raw)/2)),
		"cut": encode(raw[:len(raw)-1]), "longer": encode(append(raw, 0)), "no group": text, "another group": text + ".h", "no text": "." + group,
		"zeros": encode(make([]byte, len(raw))), "a newline": id + "\n", "a newline within": text[:9] + "\n" + text[9:] + "." + group, "a letter": "A", "nothing": "",
		"padded": text + "=." + group, "128 letters": strings.Repeat("a", 128),
	}
}

// callsOf returns requests of all calls about a session, and of its resumption.
func callsOf(session, topic, token string) []line {
	r := consuming(topic)
	r.Resume = &parleyv1.Resume{SessionId: session, Resumes: 1, Held: []*parleyv1.HeldDelivery{{Token: token, Begun: true}}}
	acked := proto.CloneOf(r)
	acked.Resume.Held = nil
	acked.Resume.Unanswered = []*parleyv1.UnansweredVerdict{{Verdict: &parleyv1.UnansweredVerdict_Ack{Ack: token}}}
	return []line{
		{procedure: ack, message: &parleyv1.AckRequest{SessionId: session, Tokens: []string{token}}},
		{procedure: nack, message: &parleyv1.NackRequest{SessionId: session, Items: []*parleyv1.NackItem{dead(token)}}},
		{procedure: extend, message: &parleyv1.ExtendRequest{SessionId: session, Target: &parleyv1.ExtendRequest_All{All: &parleyv1.AllDeliveries{}}}},
		{procedure: updateSession, message: &parleyv1.UpdateSessionRequest{SessionId: session, Concurrency: 10_000, MaxInFlight: 10_000}},
		{procedure: leave, message: &parleyv1.LeaveRequest{SessionId: session}},
		{procedure: consume, message: r},
		{procedure: consume, message: acked},
		{procedure: streamingConsume, message: &parleyv1.StreamingConsumeRequest{Request: &parleyv1.StreamingConsumeRequest_Start{Start: r}}},
	}
}

// TestHostileSessions checks that the id of a session is valid only for its subject, and that
// forged ids are worth nothing, in every call and in Resume. Nothing changes, and the session goes
// on.
func TestHostileSessions(t *testing.T) {
	t.Parallel()
	g := attack(t, nil)
	g.produce("jobs", 2)
	g.produce("other", 1)
	ada, mallory := g.consumerOf("ada", "jobs", "other"), g.consumerOf("mallory", "jobs", "other")
	c := g.consumes(ada, nil, consuming("jobs"))
	held := c.await(2)
	received, err := g.Queues(ada).Receive(t.Context(), &parleyv1.ReceiveRequest{Topic: "other", Group: "g"})
	if err != nil || len(received.GetDeliveries()) != 1 {
		t.Fatal(received, err)
	}
	token, taken := held[0].GetToken(), received.GetDeliveries()[0].GetToken()
	before, beforeOther := g.groupStats("jobs").String(), g.groupStats("other").String()
	lost := want{code: "failed_precondition", reason: "SESSION_LOST"}
	refuse := func(what, bearer string, lines []line) {
		t.Helper()
		for i := range lines {
			l := &lines[i]
			for _, d := range l.dialects() {
				g.judge(d.name+", "+what+", "+l.procedure, g.call(l, d, bearer), lost)
			}
		}
	}
	refuse("another's session", mallory, callsOf(c.sessionID, "jobs", token))
	refuse("what another received", mallory, callsOf(received.GetSessionId(), "other", taken)[:5])
	for name, id := range forgedSessions(t, c.sessionID) {
		refuse(name, ada, callsOf(id, "jobs", token))
	}
	// A session of another group of the same subject.
	r := consuming("jobs")
	r.Group, r.Resume = "h", &parleyv1.Resume{SessionId: c.sessionID, Resumes: 1}
	if err := callErr(g.QueueAdmin(g.Token).CreateGroup(t.Context(), &parleyv1.CreateGroupRequest{Topic: "jobs", Group: slowGroup("h")})); err != nil {
		t.Fatal(err)
	}
	refuse("resumed in another group", ada, []line{{procedure: consume, message: r}})
	if now := g.groupStats("jobs").String(); now != before {
		t.Errorf("topic jobs: got %s, want %s", now, before)
	}
	if now := g.groupStats("other").String(); now != beforeOther {
		t.Errorf("topic other: got %s, want %s", now, beforeOther)
	}
	for session, token := range map[string]string{c.sessionID: token, received.GetSessionId(): taken} {
		acked, err := g.Queues(ada).Ack(t.Context(), &parleyv1.AckRequest{SessionId: session, Tokens: []string{token}})
		if err != nil || acked.GetResults()[0].GetError() != nil {
			t.Errorf("the session itself is answered %v, %v", acked, err)
		}
	}
}
