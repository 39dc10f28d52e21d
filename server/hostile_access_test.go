package server_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	parleyv1 "github.com/parleyhq/parley/gen/go/parley/v1"
	"github.com/parleyhq/parley/server/config"
	"github.com/parleyhq/parley/server/internal/ident"
	"github.com/parleyhq/parley/server/internal/testkit"
)

// keySet serves a JSON Web Key Set with one Ed25519 key, and counts the requests for it.
type keySet struct {
	url   string
	asked atomic.Int64
}

func newKeySet(t *testing.T) *keySet {
	t.Helper()
	s := &keySet{}
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		s.asked.Add(1)
		_ = json.NewEncoder(w).Encode(map[string]any{"keys": []any{map[string]string{
			"kty": "OKP", "crv": "Ed25519", "kid": "the-only-one", "alg": "EdDSA", "use": "sig",
			"x": "11qYAYKxCrfVS_7TyWQHOg7hcvPapiMlrwIaaPcHURo", // RFC 8037
		}}})
	}))
	t.Cleanup(srv.Close)
	s.url = srv.URL
	return s
}

// TestHostileRefusalHidesWhetherChannelExists checks that a call about a channel outside the
// caller's capabilities gets the same answer, byte for byte, before and after the channel exists. A
// request has the same request id both times, because answers repeat it.
func TestHostileRefusalHidesWhetherChannelExists(t *testing.T) {
	t.Parallel()
	g := attack(t, nil)
	mallory := g.MintFor("mallory", time.Hour, ident.Capability{
		Pattern: "mine-*", Actions: []ident.Action{ident.Send, ident.History, ident.Subscribe, ident.Moderate, ident.SendAs, ident.Manage},
	})
	victim := g.Client(g.Token)
	for i := range 2 * len(dialects) {
		d, membersOnly := &dialects[i/2], i%2 == 1
		channel := fmt.Sprintf("theirs-%s-%v", d.name, membersOnly)
		id := "01900000-0000-7000-8000-000000000000"
		calls := func() []line {
			return []line{
				{procedure: sendMessage, message: &parleyv1.SendMessageRequest{ChannelId: channel, Content: "x"}},
				{procedure: listMessages, message: &parleyv1.ListMessagesRequest{ChannelId: channel}},
				{procedure: getMessage, message: &parleyv1.GetMessageRequest{ChannelId: channel, MsgId: id}},
				{procedure: editMessage, message: &parleyv1.EditMessageRequest{ChannelId: channel, MsgId: id, Content: "x"}},
				{procedure: recall, message: &parleyv1.RecallMessageRequest{ChannelId: channel, MsgId: id}},
				{procedure: subscribing, message: &parleyv1.SubscribeRequest{Channels: []*parleyv1.ChannelPosition{live("mine-1"), live(channel)}}},
				{procedure: updating, message: &parleyv1.UpdateSubscriptionRequest{StreamId: "s", Add: []*parleyv1.ChannelPosition{live(channel)}}},
				{procedure: createChannel, message: memberCalls[createChannel](channel)},
				{procedure: addMembers, message: memberCalls[addMembers](channel, "bob")},
				{procedure: addMembers, message: memberCalls[addMembers](channel, "mallory")},
				{procedure: removeMembers, message: memberCalls[removeMembers](channel, "tester")},
				{procedure: listMembers, message: &parleyv1.ListMembersRequest{ChannelId: channel}},
				{procedure: markRead, message: &parleyv1.MarkReadRequest{ChannelId: channel, Seq: 1}},
				{procedure: markRead, message: &parleyv1.MarkReadRequest{ChannelId: channel, Seq: 9}},
				{procedure: sendTyping, message: &parleyv1.SendTypingRequest{ChannelId: channel}},
				// Anyone may leave a channel. The answer reveals nothing.
				{procedure: removeMembers, message: memberCalls[removeMembers](channel, "mallory")},
			}
		}
		answers := func(first bool) []string {
			var out []string
			all := calls()
			for n, l := range all {
				l.header = header("X-Request-Id", fmt.Sprintf("same-%d-%d", i, n))
				a := g.call(&l, d, mallory)
				out = append(out, a.raw)
				if n == len(all)-1 && a.code != "ok" {
					t.Errorf("%s: leaving is answered %s, %s", d.name, a.code, a.message)
				}
				if !first || n == len(all)-1 {
					continue
				}
				w := want{code: "permission_denied", reason: "CAPABILITY_MISSING"}
				switch l.procedure {
				case subscribing:
					w.field = "channels[1].channel_id"
				case updating:
					w.field = "add[0].channel_id"
				}
				g.judge(d.name+" "+l.procedure, a, w)
			}
			return out
		}
		before := answers(true)
		if membersOnly {
			// Membership does not help a caller whose token does not cover the channel.
			if _, err := victim.CreateChannel(t.Context(), &parleyv1.CreateChannelRequest{ChannelId: channel, MembersOnly: true, Members: []*parleyv1.ChannelMember{{UserId: "mallory"}}}); err != nil {
				t.Fatal(err)
			}
		}
		id = send(t, victim, channel, "secret").GetMsgId()
		if got := answerTo[parleyv1.ListChannelsResponse](g, d, &line{procedure: listChannels, message: &parleyv1.ListChannelsRequest{}}, mallory); len(got.GetChannels()) > 0 {
			t.Errorf("%s: mallory is told of %v", d.name, got)
		}
		after := answers(false)
		for j := range before {
			if before[j] != after[j] {
				t.Errorf("%s, %s: before the channel existed\n%s, afterwards\n%s", d.name, calls()[j].procedure, before[j], after[j])
			}
		}
		batch := line{procedure: sendMessages, message: &parleyv1.SendMessagesRequest{Messages: []*parleyv1.SendMessageRequest{{ChannelId: channel, Content: "x"}}}}
		var res parleyv1.SendMessagesResponse
		g.call(&batch, d, mallory).decode(t, d, &res)
		if e := res.GetResults()[0].GetError(); e.GetCode() != parleyv1.StatusCode_STATUS_CODE_PERMISSION_DENIED || e.GetDetail().GetReason() != parleyv1.ErrorReason_ERROR_REASON_CAPABILITY_MISSING {
			t.Errorf("%s: the batch's item is answered %v", d.name, e)
		}
		if head := g.head(channel); head != 1 {
			t.Errorf("%s: the channel ends at %d", d.name, head)
		}
	}
}

// TestHostileForeignStreamLooksUnknown checks that another subject's stream gets the same answer,
// byte for byte, as an unknown one.
func TestHostileForeignStreamLooksUnknown(t *testing.T) {
	t.Parallel()
	g := attack(t, nil)
	theirs := subscribe(t, g.Client(g.Token), live("room"))
	theirs.awaitState("room")
	mallory := g.Mint("mallory", ident.Subscribe)
	for i := range dialects {
		d := &dialects[i]
		var got []string
		for _, id := range []string{theirs.streamID, strings.Repeat("s", len(theirs.streamID))} {
			l := line{
				procedure: updating, header: header("X-Request-Id", "same-"+d.name),
				message: &parleyv1.UpdateSubscriptionRequest{StreamId: id, Remove: []string{"room"}},
			}
			a := g.call(&l, d, mallory)
			if got = append(got, a.raw); len(got) == 1 {
				g.judge(d.name, a, want{code: "not_found", reason: "STREAM_NOT_FOUND"})
			}
		}
		if got[0] != got[1] {
			t.Errorf("%s: a stream of another's is answered\n%s, none\n%s", d.name, got[0], got[1])
		}
	}
	send(t, g.Client(g.Token), "room", "still there")
	theirs.await("room", 0, 1)
}

// TestHostileRateLimit checks that a call over the rate limit is refused before its body is read,
// that the answer says when to retry, and that the call succeeds then. Other subjects are not
// affected, and a batch costs as much as its items.
func TestHostileRateLimit(t *testing.T) {
	t.Parallel()
	g := attack(t, func(c *config.Config) { c.Limits.RequestsPerSecond, c.Limits.RequestBurst = 2, 20 })
	for i := range dialects {
		d := &dialects[i]
		token := g.Mint("greedy-"+d.name, ident.Send)
		if i%2 == 0 {
			batch := &parleyv1.SendMessagesRequest{}
			for range 19 {
				batch.Messages = append(batch.Messages, &parleyv1.SendMessageRequest{ChannelId: "rate", Content: "x"})
			}
			if a := g.call(&line{procedure: sendMessages, message: batch}, d, token); a.code != "ok" {
				t.Fatalf("%s: the batch is answered %s", d.name, a.code)
			}
		}
		var refused *answer
		for range 40 {
			if a := g.call(&line{message: &parleyv1.SendMessageRequest{ChannelId: "*"}}, d, token); a.code == "resource_exhausted" {
				refused = a
				break
			}
		}
		if refused == nil {
			t.Fatalf("%s: all 40 calls were accepted, want a refusal beyond 20", d.name)
		}
		g.judge(d.name, refused, want{code: "resource_exhausted", reason: "RATE_LIMITED"})
		wait := refused.retry.GetRetryDelay().AsDuration()
		if wait <= 0 || wait > 2*time.Second || refused.detail.GetRetryAfter().AsDuration() != wait || !refused.detail.GetRetryable() {
			t.Errorf("%s: got retry delay %v, detail %v", d.name, wait, refused.detail)
		}
		other := &line{message: &parleyv1.SendMessageRequest{ChannelId: "rate", Content: "x"}}
		if a := g.call(other, d, g.Mint("modest-"+d.name, ident.Send)); a.code != "ok" {
			t.Errorf("%s: another subject is answered %s, %s", d.name, a.code, a.message)
		}
		ctx, cancel := context.WithTimeout(t.Context(), wait)
		<-ctx.Done()
		cancel()
		testkit.Eventually(t, 5*time.Second, func() error {
			if a := g.call(other, d, token); a.code != "ok" {
				return fmt.Errorf("%s: after the wait: %s, %s", d.name, a.code, a.message)
			}
			return nil
		})
	}
}
