package server_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"connectrpc.com/connect"
	"github.com/google/go-cmp/cmp"

	parleyv1 "github.com/parleyhq/parley/gen/go/parley/v1"
	"github.com/parleyhq/parley/server/config"
	"github.com/parleyhq/parley/server/internal/ident"
	"github.com/parleyhq/parley/server/internal/testkit"
	"github.com/parleyhq/parley/server/servertest"
)

// sessionKey is the key of the list of the session chat.
const sessionKey = "chat:session:chat:messages"

// texts returns the texts of the session chat, as new as minSeq, and whether they came from "cache"
// or "store".
func texts(t *testing.T, c client, minSeq int) (got []string, source string) {
	t.Helper()
	ctx, info := connect.NewClientContext(t.Context())
	res, err := c.ListSessionMessages(ctx, &parleyv1.ListSessionMessagesRequest{SessionId: "chat", AfterSeq: new(int64), MinSeq: int64(minSeq), PageSize: 1000})
	if err != nil {
		t.Fatalf("list: %v", err)
	}
	for _, m := range res.GetMessages() {
		got = append(got, m.GetContent())
	}
	return got, info.ResponseHeader().Get("Parley-Source")
}

// talk appends n more messages to the session chat and returns all texts.
func talk(t *testing.T, c client, said []string, n int) []string {
	t.Helper()
	for range n {
		text := fmt.Sprint("message ", len(said)+1)
		appendTo(t, c, &parleyv1.AppendSessionMessageRequest{SessionId: "chat", Content: text})
		said = append(said, text)
	}
	return said
}

// expectTexts fails the test unless every node lists exactly these texts.
func expectTexts(t *testing.T, nodes []*servertest.Server, want []string) {
	t.Helper()
	for i, n := range nodes {
		if got, source := texts(t, inSessions(n, "ann"), len(want)); cmp.Diff(want, got) != "" {
			t.Errorf("node %d, from the %s: %s", i, source, cmp.Diff(want, got))
		}
	}
}

// awaitList waits until the session chat is listed from its list in Redis, without another message.
func awaitList(t *testing.T, nodes []*servertest.Server, want []string) {
	t.Helper()
	testkit.Eventually(t, 20*time.Second, func() error {
		for i, n := range nodes {
			got, source := texts(t, inSessions(n, "ann"), len(want))
			if diff := cmp.Diff(want, got); diff != "" {
				t.Fatalf("from the %s: %s", source, diff)
			}
			if source != "cache" {
				return fmt.Errorf("node %d reads from the %s", i, source)
			}
		}
		return nil
	})
}

// TestSessionListComesBack checks that lists of a session are right on every node when its list in
// Redis is lost or put back to an earlier state, and that the list comes back after a read, on
// whichever node that was.
func TestSessionListComesBack(t *testing.T) {
	t.Parallel()
	nodes := fleetOf(t, 2)
	redis, ctx, ann := nodes[0].Redis.Client(t), t.Context(), inSessions(nodes[0], "ann")
	said := talk(t, ann, nil, 5)
	awaitList(t, nodes, said)
	if ttl := redis.TTL(ctx, sessionKey).Val(); ttl > 24*time.Hour || ttl < 24*time.Hour-time.Minute {
		t.Errorf("the list lives for %s", ttl)
	}
	earlier := redis.Dump(ctx, sessionKey).Val()
	said = talk(t, ann, said, 5)
	awaitList(t, nodes, said)
	for name, lose := range map[string]func() error{
		"flushed":  func() error { return redis.FlushAll(ctx).Err() },
		"evicted":  func() error { return redis.Del(ctx, sessionKey).Err() },
		"put back": func() error { return redis.RestoreReplace(ctx, sessionKey, time.Hour, earlier).Err() },
		"other use": func() error {
			return errors.Join(redis.Del(ctx, sessionKey).Err(), redis.RPush(ctx, sessionKey, "x").Err())
		},
	} {
		for i, reader := range nodes {
			if err := lose(); err != nil {
				t.Fatal(err)
			}
			for range 3 {
				expectTexts(t, nodes, said)
			}
			awaitList(t, []*servertest.Server{reader}, said)
			if n := redis.LLen(ctx, sessionKey).Val(); n != int64(len(said))+1 {
				t.Errorf("%s, read on node %d: the list has %d values", name, i, n)
			}
		}
		said = talk(t, ann, said, 1)
		awaitList(t, nodes, said)
	}
}

// TestSessionListAfterALostEvent checks that messages that are acknowledged while Redis is flushed
// and their events are not delivered are in every list, and a recalled text in none, nor in Redis.
func TestSessionListAfterALostEvent(t *testing.T) {
	t.Parallel()
	nodes := fleetOf(t, 2)
	redis, ctx, ann := nodes[0].Redis.Client(t), t.Context(), inSessions(nodes[0], "ann")
	said := talk(t, ann, nil, 3)
	awaitList(t, nodes, said)
	nodes[0].NATS.Stop() // no event reaches the builder
	said = talk(t, ann, said, 2)
	if err := redis.FlushAll(ctx).Err(); err != nil {
		t.Fatal(err)
	}
	secret := appendTo(t, ann, &parleyv1.AppendSessionMessageRequest{SessionId: "chat", Content: "s3cr3t"})
	// On the node of the append at once, on others with the seq or a second later.
	if got, _ := texts(t, ann, 0); len(got) != len(said)+1 || len(inSession(t, inSessions(nodes[1], "ann"), "chat", secret.GetSeq())) != len(said)+1 {
		t.Errorf("without NATS: %v", got)
	}
	if _, err := ann.RecallSessionMessage(ctx, &parleyv1.RecallSessionMessageRequest{SessionId: "chat", MsgId: secret.GetMsgId()}); err != nil {
		t.Fatal(err)
	}
	said = append(said, "")
	nodes[0].NATS.Start()
	testkit.Eventually(t, 5*time.Second, func() error { // what node 1 knows of the log is at most a second old
		if got, _ := texts(t, inSessions(nodes[1], "ann"), 0); cmp.Diff(said, got) != "" {
			return errors.New(cmp.Diff(said, got))
		}
		return nil
	})
	awaitList(t, nodes, said)
	for _, value := range redis.LRange(ctx, sessionKey, 0, -1).Val() {
		if strings.Contains(value, "s3cr3t") {
			t.Errorf("the recalled text is in %s", value)
		}
	}
}

// TestSessionsWithoutRedis checks that appends and lists work while Redis is dead, and that the
// list comes back with it.
func TestSessionsWithoutRedis(t *testing.T) {
	t.Parallel()
	nodes := []*servertest.Server{servertest.Serve(t)}
	ann := inSessions(nodes[0], "ann")
	said := talk(t, ann, nil, 3)
	awaitList(t, nodes, said)
	nodes[0].Redis.Kill()
	for range 5 {
		said = talk(t, ann, said, 1)
		expectTexts(t, nodes, said)
	}
	nodes[0].Redis.Start() // empty: it has no append-only file
	awaitList(t, nodes, said)
}

// TestSessionListIsBounded checks that redis.message_cache_max_len bounds the messages of a list,
// and that pages beyond it come from the store. Closes and edits are in the places of their
// messages.
func TestSessionListIsBounded(t *testing.T) {
	t.Parallel()
	s := servertest.Serve(t, servertest.With(func(c *config.Config) { c.Redis.MessageCacheMaxLen = 4 }))
	redis, ctx := s.Redis.Client(t), t.Context()
	ann, bot := inSessions(s, "ann"), inSessions(s, "bot", ident.SessionActions...)
	talk(t, ann, nil, 6)
	open := appendTo(t, bot, &parleyv1.AppendSessionMessageRequest{SessionId: "chat", Role: "assistant", Open: true})
	length := func(want int64, text string) {
		t.Helper()
		testkit.Eventually(t, 10*time.Second, func() error {
			if n := redis.LLen(ctx, sessionKey).Val(); n != want+1 {
				return fmt.Errorf("the list has %d values", n)
			}
			if last := redis.LIndex(ctx, sessionKey, -1).Val(); !strings.Contains(last, text) {
				return fmt.Errorf("the last value is %s", last)
			}
			return nil
		})
	}
	length(4, `"status":-1`)
	redis.Expire(ctx, sessionKey, time.Hour)
	if _, err := bot.CloseSessionMessage(ctx, &parleyv1.CloseSessionMessageRequest{
		SessionId: "chat", MsgId: open.GetMsgId(), Content: "the answer", Outcome: parleyv1.SessionOutcome_SESSION_OUTCOME_COMPLETE,
	}); err != nil {
		t.Fatal(err)
	}
	length(4, `"content":"the answer"`)
	if ttl := redis.TTL(ctx, sessionKey).Val(); ttl > time.Hour {
		t.Errorf("a close renewed the expiry to %s", ttl)
	}
	read := func(req *parleyv1.ListSessionMessagesRequest) (n int, source string) {
		t.Helper()
		req.SessionId = "chat"
		ctx, info := connect.NewClientContext(ctx)
		res, err := ann.ListSessionMessages(ctx, req)
		if err != nil {
			t.Fatal(err)
		}
		return len(res.GetMessages()), info.ResponseHeader().Get("Parley-Source")
	}
	if n, source := read(&parleyv1.ListSessionMessagesRequest{PageSize: 3}); n != 3 || source != "cache" {
		t.Errorf("the newest 3: %d from the %s", n, source)
	}
	if n, source := read(&parleyv1.ListSessionMessagesRequest{PageSize: 7}); n != 7 || source != "store" {
		t.Errorf("all 7: %d from the %s", n, source)
	}
}
