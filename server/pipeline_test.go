package server_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"connectrpc.com/connect"
	"github.com/google/go-cmp/cmp"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/testing/protocmp"

	parleyv1 "github.com/parleyhq/parley/gen/go/parley/v1"
	"github.com/parleyhq/parley/gen/go/parley/v1/parleyv1connect"
	"github.com/parleyhq/parley/server/internal/testkit"
	"github.com/parleyhq/parley/server/servertest"
)

// modes are the two ways to run a server: `parleyd dev` and `parleyd serve`. Tests of what both
// promise run in each.
var modes = map[string]func(testing.TB, ...servertest.Option) *servertest.Server{
	"dev": servertest.Dev, "serve": servertest.Serve,
}

func inModes(t *testing.T, f func(t *testing.T, s *servertest.Server)) {
	t.Helper()
	for name, start := range modes {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f(t, start(t))
		})
	}
}

type client = parleyv1connect.MessageServiceClient

func send(t *testing.T, c client, channel, content string) *parleyv1.SendMessageResponse {
	t.Helper()
	res, err := c.SendMessage(t.Context(), &parleyv1.SendMessageRequest{ChannelId: channel, Content: content})
	if err != nil {
		t.Fatalf("send: %v", err)
	}
	return res
}

func listPage(t *testing.T, c client, req *parleyv1.ListMessagesRequest) *parleyv1.ListMessagesResponse {
	t.Helper()
	res, err := c.ListMessages(t.Context(), req)
	if err != nil {
		t.Fatalf("list: %v", err)
	}
	return res
}

// source returns where a page of messages came from: "cache" or "store".
func source(t *testing.T, c client, channel string) string {
	t.Helper()
	ctx, info := connect.NewClientContext(t.Context())
	if _, err := c.ListMessages(ctx, &parleyv1.ListMessagesRequest{ChannelId: channel, PageSize: 10}); err != nil {
		t.Fatalf("list: %v", err)
	}
	return info.ResponseHeader().Get("Parley-Source")
}

func awaitSource(t *testing.T, c client, channel, want string) {
	t.Helper()
	testkit.Eventually(t, 15*time.Second, func() error {
		if got := source(t, c, channel); got != want {
			return fmt.Errorf("pages of %s come from %q, want %q", channel, got, want)
		}
		return nil
	})
}

// stream is a subscription that collects its events.
type stream struct {
	t        *testing.T
	conn     *connect.ServerStreamForClient[parleyv1.SubscribeResponse]
	cancel   context.CancelFunc
	streamID string

	mu     sync.Mutex
	events []*parleyv1.ChannelEvent
	err    error
	ended  chan struct{}
}

func subscribe(t *testing.T, c client, positions ...*parleyv1.ChannelPosition) *stream {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	conn, err := c.Subscribe(ctx, &parleyv1.SubscribeRequest{Channels: positions})
	if err != nil {
		cancel()
		t.Fatalf("subscribe: %v", err)
	}
	s := &stream{t: t, conn: conn, cancel: cancel, ended: make(chan struct{})}
	t.Cleanup(func() { cancel(); <-s.ended })
	first := make(chan struct{})
	go s.read(first)
	select {
	case <-first:
	case <-s.ended:
		t.Fatalf("the stream ended before its first frame: %v", s.err)
	}
	return s
}

func (s *stream) read(first chan struct{}) {
	defer close(s.ended)
	opened := false
	for s.conn.Receive() {
		s.mu.Lock()
		if !opened {
			s.streamID = s.conn.Msg().GetInfo().GetStreamId()
			opened = true
			close(first)
		}
		for _, e := range s.conn.Msg().GetEvents().GetEvents() {
			s.events = append(s.events, proto.CloneOf(e))
		}
		s.mu.Unlock()
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.err = s.conn.Err()
}

// entries returns the log entries received for a channel, without states and gaps.
func (s *stream) entries(channel string) []*parleyv1.ChannelEvent {
	s.mu.Lock()
	defer s.mu.Unlock()
	var out []*parleyv1.ChannelEvent
	for _, e := range s.events {
		if e.GetChannelId() == channel && e.GetSeq() > 0 && e.GetState() == nil && e.GetGap() == nil && e.GetLost() == nil {
			out = append(out, e)
		}
	}
	return out
}

// await waits for n entries of a channel in total, and checks that their seqs are consecutive from
// after + 1 on.
func (s *stream) await(channel string, after int64, n int) []*parleyv1.ChannelEvent {
	s.t.Helper()
	var got []*parleyv1.ChannelEvent
	testkit.Eventually(s.t, 30*time.Second, func() error {
		got = s.entries(channel)
		if len(got) < n {
			select {
			case <-s.ended:
				return fmt.Errorf("the stream ended after %d of %d entries: %w", len(got), n, s.err)
			default:
				return fmt.Errorf("%d of %d entries came", len(got), n)
			}
		}
		return nil
	})
	for i, e := range got {
		if want := after + int64(i) + 1; e.GetSeq() != want || e.GetFromSeq() != want {
			s.t.Fatalf("event %d of %s covers %d to %d, want %d", i, channel, e.GetFromSeq(), e.GetSeq(), want)
		}
	}
	return got
}

// awaitState waits until the channel's state has arrived. Messages sent after that are delivered
// live.
func (s *stream) awaitState(channel string) {
	s.t.Helper()
	s.awaitEvent(func(e *parleyv1.ChannelEvent) bool { return e.GetChannelId() == channel && e.GetState() != nil })
}

func (s *stream) awaitGap(reason parleyv1.GapReason) {
	s.t.Helper()
	s.awaitEvent(func(e *parleyv1.ChannelEvent) bool { return e.GetGap().GetReason() == reason })
}

func (s *stream) awaitEvent(is func(*parleyv1.ChannelEvent) bool) {
	s.t.Helper()
	testkit.Eventually(s.t, 10*time.Second, func() error {
		s.mu.Lock()
		defer s.mu.Unlock()
		if !slices.ContainsFunc(s.events, is) {
			return fmt.Errorf("no matching event among %d events", len(s.events))
		}
		return nil
	})
}

func from(channel string, after int64) *parleyv1.ChannelPosition {
	return &parleyv1.ChannelPosition{ChannelId: channel, AfterSeq: &after}
}

func live(channel string) *parleyv1.ChannelPosition {
	return &parleyv1.ChannelPosition{ChannelId: channel}
}

// TestMessageOverEveryProtocol checks that over every protocol a message can be sent, received
// live, listed, edited and recalled.
func TestMessageOverEveryProtocol(t *testing.T) {
	t.Parallel()
	inModes(t, func(t *testing.T, s *servertest.Server) {
		for name, opts := range map[string][]connect.ClientOption{
			"connect-proto": nil, "connect-json": {connect.WithProtoJSON()}, "connect-get": {connect.WithHTTPGet()},
			"grpc": {connect.WithGRPC()}, "grpc-web": {connect.WithGRPCWeb()},
		} {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				c := s.Client(s.Token, opts...)
				channel := "proto-" + name
				sub := subscribe(t, c, from(channel, 0))
				m := send(t, c, channel, "hello")
				if m.GetSeq() != 1 || m.GetCount() != 1 || m.GetMsgId() == "" || m.GetClientMsgId() == "" || m.GetEpoch() == "" {
					t.Fatalf("the first send answered %v", m)
				}
				e := sub.await(channel, 0, 1)[0]
				if e.GetSent().GetContent() != "hello" || e.GetSent().GetMsgId() != m.GetMsgId() {
					t.Fatalf("the live event is %v", e)
				}
				got := listPage(t, c, &parleyv1.ListMessagesRequest{ChannelId: channel, MinSeq: m.GetSeq()}).GetMessages()
				if len(got) != 1 || !got[0].GetMsgTime().AsTime().Equal(m.GetMsgTime().AsTime()) || got[0].GetFromId() != "tester" {
					t.Fatalf("listed %v", got)
				}
				edit, err := c.EditMessage(t.Context(), &parleyv1.EditMessageRequest{ChannelId: channel, MsgId: m.GetMsgId(), Content: "bye"})
				if e := edit.GetMessage(); err != nil || edit.GetSeq() != 2 || e.GetContent() != "bye" || e.GetChangedSeq() != 2 ||
					e.GetMsgId() != m.GetMsgId() || e.GetStatus() != parleyv1.MessageStatus_MESSAGE_STATUS_EDITED {
					t.Fatalf("edit: %v, %v", edit, err)
				}
				recall, err := c.RecallMessage(t.Context(), &parleyv1.RecallMessageRequest{ChannelId: channel, MsgId: m.GetMsgId()})
				if r := recall.GetMessage(); err != nil || recall.GetSeq() != 3 || r.GetContent() != "" || r.GetChangedSeq() != 3 ||
					r.GetMsgId() != m.GetMsgId() || r.GetStatus() != parleyv1.MessageStatus_MESSAGE_STATUS_RECALLED {
					t.Fatalf("recall: %v, %v", recall, err)
				}
				events := sub.await(channel, 0, 3)
				if events[2].GetRecalled().GetStatus() != parleyv1.MessageStatus_MESSAGE_STATUS_RECALLED {
					t.Fatalf("the recall's event is %v", events[2])
				}
				one, err := c.GetMessage(t.Context(), &parleyv1.GetMessageRequest{ChannelId: channel, MsgId: m.GetMsgId()})
				if err != nil || one.GetEpoch() != m.GetEpoch() || !proto.Equal(one.GetMessage(), recall.GetMessage()) {
					t.Fatalf("get after the recall: %v, %v; the recall answered %v", one, err, recall)
				}
			})
		}
	})
}

// TestResumedSubscriberReceivesMissedEvents checks that a returning subscriber receives exactly
// what it missed, from any position.
func TestResumedSubscriberReceivesMissedEvents(t *testing.T) {
	t.Parallel()
	inModes(t, func(t *testing.T, s *servertest.Server) {
		c := s.Client(s.Token)
		const n = 400 // more than the cache holds
		for i := range n {
			send(t, c, "resume", fmt.Sprint(i))
		}
		for _, after := range []int64{0, 1, 200, 398, 399, 400} {
			sub := subscribe(t, c, from("resume", after))
			sub.await("resume", after, n-int(after))
		}
		sub := subscribe(t, c, live("resume"), from("resume2", 0))
		sub.awaitState("resume")
		more := send(t, c, "resume", "live")
		if got := sub.await("resume", n, 1); got[0].GetSent().GetMsgId() != more.GetMsgId() {
			t.Fatalf("a live-only subscriber got %v first", got[0])
		}
		subscribe(t, c, from("resume", n+50)).awaitGap(parleyv1.GapReason_GAP_REASON_AHEAD_OF_LOG)
		pos := from("resume", 5)
		pos.Epoch = "another"
		subscribe(t, c, pos).awaitGap(parleyv1.GapReason_GAP_REASON_EPOCH_CHANGED)
	})
}

func TestUpdateSubscription(t *testing.T) {
	t.Parallel()
	inModes(t, func(t *testing.T, s *servertest.Server) {
		c := s.Client(s.Token)
		send(t, c, "one", "a")
		send(t, c, "two", "b")
		sub := subscribe(t, c, from("one", 0))
		update := func(c client, add []*parleyv1.ChannelPosition, remove ...string) error {
			_, err := c.UpdateSubscription(t.Context(), &parleyv1.UpdateSubscriptionRequest{
				StreamId: sub.streamID, Add: add, Remove: remove,
			})
			return err
		}
		if err := update(c, []*parleyv1.ChannelPosition{from("two", 0)}); err != nil {
			t.Fatal(err)
		}
		sub.await("two", 0, 1)
		sub.await("one", 0, 1)
		if err := update(c, nil, "one"); err != nil {
			t.Fatal(err)
		}
		send(t, c, "one", "unseen")
		send(t, c, "two", "seen")
		sub.await("two", 0, 2)
		if got := sub.entries("one"); len(got) != 1 {
			t.Fatalf("of a removed channel came %v", got)
		}
		stranger := s.Client(s.Mint("stranger", "subscribe"))
		if err := update(stranger, nil, "two"); connect.CodeOf(err) != connect.CodeNotFound {
			t.Fatalf("another's stream answered %v, want not_found", err)
		}
	})
}

// TestOnlySendsBuildTheCache checks that only sends create or refresh a channel's cache, and that
// the cache has no hole.
func TestOnlySendsBuildTheCache(t *testing.T) {
	t.Parallel()
	s := servertest.Serve(t)
	c, redis, ctx := s.Client(s.Token), s.Redis.Client(t), t.Context()
	const key = "msg_cache:cached"
	var last *parleyv1.SendMessageResponse
	for i := range 160 {
		last = send(t, c, "cached", fmt.Sprint(i))
	}
	awaitSet := func(want int64) {
		t.Helper()
		testkit.Eventually(t, 10*time.Second, func() error {
			if newest := redis.ZRevRangeWithScores(ctx, key, 0, 0).Val(); len(newest) != 1 || int64(newest[0].Score) != want {
				return fmt.Errorf("the set's newest is %v, want %d", newest, want)
			}
			return nil
		})
	}
	awaitSet(160)
	if n := redis.ZCount(ctx, key, "1", "+inf").Val(); n != 150 {
		t.Fatalf("the set holds %d messages, want 150", n)
	}
	if ttl := redis.TTL(ctx, key).Val(); ttl < 604790*time.Second || ttl > 604800*time.Second {
		t.Fatalf("the set lives for %s, want 604800 s", ttl)
	}
	var value struct {
		MsgID   string `json:"msg_id"`
		Seq     int64  `json:"seq"`
		FromID  string `json:"from_id"`
		MsgType string `json:"msg_type"`
		Content string `json:"content"`
		MsgTime string `json:"msg_time"`
		Status  int    `json:"status"`
	}
	if err := json.Unmarshal([]byte(redis.ZRange(ctx, key, -1, -1).Val()[0]), &value); err != nil {
		t.Fatal(err)
	}
	if value.MsgID != last.GetMsgId() || value.Seq != 160 || value.Content != "159" || value.FromID != "tester" || value.MsgType != "text" {
		t.Fatalf("the newest value is %+v", value)
	}
	awaitSource(t, c, "cached", "cache")

	redis.Expire(ctx, key, time.Hour)
	if _, err := c.EditMessage(ctx, &parleyv1.EditMessageRequest{ChannelId: "cached", MsgId: last.GetMsgId(), Content: "edited"}); err != nil {
		t.Fatal(err)
	}
	testkit.Eventually(t, 10*time.Second, func() error {
		if newest := redis.ZRange(ctx, key, -1, -1).Val()[0]; !strings.Contains(newest, `"content":"edited"`) {
			return fmt.Errorf("the newest value is %s", newest)
		}
		return nil
	})
	if ttl := redis.TTL(ctx, key).Val(); ttl > time.Hour {
		t.Fatalf("an edit renewed the expiry to %s", ttl)
	}
	redis.Del(ctx, key)
	if got := source(t, c, "cached"); got != "store" {
		t.Fatalf("without a set the page came from %q", got)
	}
	recall, err := c.RecallMessage(ctx, &parleyv1.RecallMessageRequest{ChannelId: "cached", MsgId: last.GetMsgId()})
	if err != nil {
		t.Fatal(err)
	}
	// The builder has handled the recall once it has cached a later send to another channel in the
	// same shard.
	sub := subscribe(t, c, from("cached", recall.GetSeq()-1))
	sub.await("cached", recall.GetSeq()-1, 1)
	for i := range 8 {
		other := fmt.Sprintf("other%d", i)
		send(t, c, other, "x")
		testkit.Eventually(t, 10*time.Second, func() error {
			if redis.Exists(ctx, "msg_cache:"+other).Val() == 0 {
				return errors.New("not cached yet")
			}
			return nil
		})
	}
	if redis.Exists(ctx, key).Val() != 0 {
		t.Fatal("a read, an edit or a recall built the set")
	}
	send(t, c, "cached", "again")
	awaitSet(163)
	for _, v := range redis.ZRange(ctx, key, 0, -1).Val() {
		if strings.Contains(v, "edited") {
			t.Fatalf("the recalled text is in the cache: %s", v)
		}
	}
}

// TestCacheAndStoreAgree checks that cache and store return the same messages after edits and
// recalls.
func TestCacheAndStoreAgree(t *testing.T) {
	t.Parallel()
	s := servertest.Serve(t)
	c, redis := s.Client(s.Token), s.Redis.Client(t)
	for i := range 120 {
		m, err := c.SendMessage(t.Context(), &parleyv1.SendMessageRequest{
			ChannelId: "agree", Content: fmt.Sprintf("m%d \u2028 <é> \"\\", i), Metadata: map[string]string{"n": fmt.Sprint(i)},
		})
		if err != nil {
			t.Fatal(err)
		}
		switch i % 10 {
		case 3:
			_, err = c.EditMessage(t.Context(), &parleyv1.EditMessageRequest{ChannelId: "agree", MsgId: m.GetMsgId(), Content: "e"})
		case 7:
			_, err = c.RecallMessage(t.Context(), &parleyv1.RecallMessageRequest{ChannelId: "agree", MsgId: m.GetMsgId()})
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	awaitSource(t, c, "agree", "cache")
	for _, req := range []*parleyv1.ListMessagesRequest{
		{PageSize: 100}, {BeforeSeq: proto.Int64(130), PageSize: 30}, {AfterSeq: proto.Int64(20), PageSize: 60}, {AfterSeq: proto.Int64(0), PageSize: 1000},
	} {
		req.ChannelId = "agree"
		cached := listPage(t, c, req)
		keep := redis.Dump(t.Context(), "msg_cache:agree").Val()
		redis.Del(t.Context(), "msg_cache:agree")
		if got := source(t, c, "agree"); got != "store" {
			t.Fatalf("without a set the page came from %q", got)
		}
		stored := listPage(t, c, req)
		redis.Restore(t.Context(), "msg_cache:agree", 0, keep)
		cached.NextPageToken, stored.NextPageToken = "", ""
		if diff := cmp.Diff(stored, cached, protocmp.Transform()); diff != "" {
			t.Errorf("%v: the cache differs from the store: %s", req, diff)
		}
	}
}

// TestRedisOutage checks that sends, live delivery and reads work without Redis, and that the cache
// heals on its own when Redis is back.
func TestRedisOutage(t *testing.T) {
	t.Parallel()
	s := servertest.Serve(t)
	c := s.Client(s.Token)
	sub := subscribe(t, c, from("r", 0))
	send(t, c, "r", "before")
	awaitSource(t, c, "r", "cache")
	s.Redis.Kill()
	for i := range 20 {
		m := send(t, c, "r", fmt.Sprint(i))
		got := listPage(t, c, &parleyv1.ListMessagesRequest{ChannelId: "r", PageSize: 1, MinSeq: m.GetSeq()})
		if got.GetMessages()[0].GetSeq() != m.GetSeq() {
			t.Fatalf("listed up to %d after sending %d", got.GetMessages()[0].GetSeq(), m.GetSeq())
		}
	}
	sub.await("r", 0, 21)
	s.Redis.Start() // empty: it has no append-only file
	testkit.Eventually(t, 30*time.Second, func() error {
		send(t, c, "r", "after")
		if got := source(t, c, "r"); got != "cache" {
			return fmt.Errorf("pages still come from the %s", got)
		}
		return nil
	})
}

// TestNATSOutage checks that sends work without NATS, and that the cache and every subscriber catch
// up when NATS is back.
func TestNATSOutage(t *testing.T) {
	t.Parallel()
	s := servertest.Serve(t)
	c := s.Client(s.Token)
	sub := subscribe(t, c, from("n", 0))
	send(t, c, "n", "before")
	sub.await("n", 0, 1)
	s.NATS.Stop()
	secret := send(t, c, "n", "a secret")
	for i := range 20 {
		send(t, c, "n", fmt.Sprint(i))
	}
	if _, err := c.RecallMessage(t.Context(), &parleyv1.RecallMessageRequest{ChannelId: "n", MsgId: secret.GetMsgId()}); err != nil {
		t.Fatal(err)
	}
	time.AfterFunc(1200*time.Millisecond, s.NATS.Start) // sends older than a second are published as they are then
	sub.await("n", 0, 23)
	awaitSource(t, c, "n", "cache")

	nc, err := nats.Connect(s.NATS.URL())
	if err != nil {
		t.Fatal(err)
	}
	defer nc.Close()
	js, err := jetstream.New(nc)
	if err != nil {
		t.Fatal(err)
	}
	published, err := js.OrderedConsumer(t.Context(), "message_change_events", jetstream.OrderedConsumerConfig{})
	if err != nil {
		t.Fatal(err)
	}
	for seen := map[string]bool{}; len(seen) < 23; {
		msg, err := published.Next()
		if err != nil {
			t.Fatalf("after %d events: %v", len(seen), err)
		}
		if bytes.Contains(msg.Data(), []byte("a secret")) {
			t.Fatalf("the recalled text was published late: %s", msg.Data())
		}
		seen[msg.Headers().Get("Nats-Msg-Id")] = true
	}
}

// TestRestartKeepsAcknowledgedMessages checks that a restart loses nothing acknowledged and that
// subscribers are told to reconnect.
func TestRestartKeepsAcknowledgedMessages(t *testing.T) {
	t.Parallel()
	inModes(t, func(t *testing.T, s *servertest.Server) {
		c := s.Client(s.Token)
		sub := subscribe(t, c, from("again", 0))
		for i := range 50 {
			send(t, c, "again", fmt.Sprint(i))
		}
		sub.await("again", 0, 50)
		s.Stop()
		<-sub.ended
		if code := connect.CodeOf(sub.err); code != connect.CodeUnavailable {
			t.Fatalf("the stream ended with %v, want unavailable", sub.err)
		}
		s.Start()
		c = s.Client(s.Token)
		if m := send(t, c, "again", "x"); m.GetSeq() != 51 {
			t.Fatalf("after the restart seq is %d, want 51", m.GetSeq())
		}
		subscribe(t, c, from("again", 0)).await("again", 0, 51)
		awaitSource(t, c, "again", "cache")
	})
}
