package server_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"connectrpc.com/connect"
	"go.mongodb.org/mongo-driver/v2/bson"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/fieldmaskpb"

	parleyv1 "github.com/parleyhq/parley/gen/go/parley/v1"
	"github.com/parleyhq/parley/server"
	"github.com/parleyhq/parley/server/config"
	"github.com/parleyhq/parley/server/internal/testkit"
	"github.com/parleyhq/parley/server/servertest"
)

// sendMany sends messages to a channel and returns their ids.
func sendMany(t *testing.T, c client, channel string, count int) []string {
	t.Helper()
	var ids []string
	for len(ids) < count {
		req := &parleyv1.SendMessagesRequest{}
		for i := range min(100, count-len(ids)) {
			n := len(ids) + i
			req.Messages = append(req.Messages, &parleyv1.SendMessageRequest{
				ChannelId: channel, Content: fmt.Sprint("secret ", n), ClientMsgId: fmt.Sprint("key-", n),
			})
		}
		res, err := c.SendMessages(t.Context(), req)
		if err != nil {
			t.Fatal(err)
		}
		for _, r := range res.GetResults() {
			if r.GetSent() == nil {
				t.Fatalf("send: %v", r)
			}
			ids = append(ids, r.GetSent().GetMsgId())
		}
	}
	return ids
}

// reasonOf returns the reason of a refusal and its limit.
func reasonOf(err error) (parleyv1.ErrorReason, int64) {
	var e *connect.Error
	if !errors.As(err, &e) {
		return 0, 0
	}
	for _, d := range e.Details() {
		if v, err := d.Value(); err == nil {
			if detail, ok := v.(*parleyv1.ErrorDetail); ok {
				return detail.GetReason(), detail.GetLimit()
			}
		}
	}
	return 0, 0
}

// TestRetention checks what the users of a channel with a retention observe. Lists and streams
// begin at the oldest message, and positions before it are refused or get a gap. Expired messages
// are not found, counts stay right, and repeats of sends are recognized.
func TestRetention(t *testing.T) {
	t.Parallel()
	inModes(t, func(t *testing.T, s *servertest.Server) {
		c, ctx := s.Client(s.Token), t.Context()
		if _, err := c.CreateChannel(ctx, &parleyv1.CreateChannelRequest{ChannelId: "room"}); err != nil {
			t.Fatal(err)
		}
		reader := s.Client(s.TokenOf("reader", "history", "subscribe"))
		if _, err := reader.AddMembers(ctx, &parleyv1.AddMembersRequest{ChannelId: "room", Members: []*parleyv1.ChannelMember{{UserId: "reader"}}}); err != nil {
			t.Fatal(err)
		}
		ids := sendMany(t, c, "room", 200)
		if _, err := c.EditMessage(ctx, &parleyv1.EditMessageRequest{ChannelId: "room", MsgId: ids[10], Content: "edited"}); err != nil {
			t.Fatal(err) // entry 201
		}
		// Only once all messages count: an earlier look would leave up to 100 more.
		testkit.Eventually(t, 30*time.Second, func() error {
			mine, err := reader.ListChannels(ctx, &parleyv1.ListChannelsRequest{})
			if err == nil && (len(mine.GetChannels()) != 1 || mine.GetChannels()[0].GetUnread() != 200) {
				err = fmt.Errorf("channels %v", mine)
			}
			return err
		})
		if _, err := c.UpdateChannel(ctx, &parleyv1.UpdateChannelRequest{
			ChannelId: "room", Retention: &parleyv1.ChannelRetention{MaxMessages: 50}, UpdateMask: &fieldmaskpb.FieldMask{Paths: []string{"retention"}},
		}); err != nil {
			t.Fatal(err)
		}
		var page *parleyv1.ListMessagesResponse
		testkit.Eventually(t, 30*time.Second, func() error {
			if page = listPage(t, c, &parleyv1.ListMessagesRequest{ChannelId: "room", PageSize: 1000}); page.GetOldestSeq() != 151 {
				return fmt.Errorf("oldest %d", page.GetOldestSeq())
			}
			return nil
		})
		if n := len(page.GetMessages()); n != 50 || page.GetMessages()[49].GetSeq() != 151 || page.GetHeadSeq() != 201 || page.GetNextPageToken() != "" {
			t.Errorf("%d messages, head %d", n, page.GetHeadSeq())
		}
		after := int64(100)
		_, err := c.ListMessages(ctx, &parleyv1.ListMessagesRequest{ChannelId: "room", AfterSeq: &after})
		if reason, limit := reasonOf(err); reason != parleyv1.ErrorReason_ERROR_REASON_HISTORY_GONE || limit != 151 || connect.CodeOf(err) != connect.CodeOutOfRange {
			t.Errorf("list after 100: %v", err)
		}
		_, err = c.GetMessage(ctx, &parleyv1.GetMessageRequest{ChannelId: "room", MsgId: ids[10]})
		if reason, _ := reasonOf(err); reason != parleyv1.ErrorReason_ERROR_REASON_MESSAGE_NOT_FOUND {
			t.Errorf("get: %v", err)
		}
		repeat, err := c.SendMessage(ctx, &parleyv1.SendMessageRequest{ChannelId: "room", Content: "secret 5", ClientMsgId: "key-5"})
		if err != nil || !repeat.GetDuplicate() || repeat.GetMsgId() != ids[5] || repeat.GetSeq() != 6 || repeat.GetCount() != 6 {
			t.Errorf("a repeat: %v, %v", repeat, err)
		}
		got, err := reader.GetChannel(ctx, &parleyv1.GetChannelRequest{ChannelId: "room"})
		if ch := got.GetChannel(); err != nil || ch.GetOldestSeq() != 151 || ch.GetExpiredCount() != 150 || ch.GetCount() != 200 {
			t.Errorf("channel %v, %v", got, err)
		}
		mine, err := reader.ListChannels(ctx, &parleyv1.ListChannelsRequest{})
		if err != nil || len(mine.GetChannels()) != 1 || mine.GetChannels()[0].GetUnread() != 50 {
			t.Errorf("channels %v, %v", mine, err)
		}
		read, err := reader.MarkRead(ctx, &parleyv1.MarkReadRequest{ChannelId: "room", Seq: 20})
		if err != nil || read.GetReadSeq() != 150 || read.GetUnread() != 50 {
			t.Errorf("mark read: %v, %v", read, err)
		}
		checkTrimmedReplay(t, reader)
	})
}

// checkTrimmedReplay checks the events of a subscription from before the oldest message, seq 151.
func checkTrimmedReplay(t *testing.T, c client) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	stream, err := c.Subscribe(ctx, &parleyv1.SubscribeRequest{Channels: []*parleyv1.ChannelPosition{from("room", 20)}})
	if err != nil {
		t.Fatal(err)
	}
	var events []*parleyv1.ChannelEvent
	for len(events) == 0 || events[len(events)-1].GetSeq() < 201 {
		if !stream.Receive() {
			t.Fatalf("after %d events: %v", len(events), stream.Err())
		}
		events = append(events, stream.Msg().GetEvents().GetEvents()...)
	}
	if st := events[0].GetState(); st.GetOldestSeq() != 151 || st.GetExpiredCount() != 150 || st.GetRecovered() {
		t.Errorf("state %v", events[0])
	}
	if gap := events[1].GetGap(); gap.GetAfterSeq() != 20 || gap.GetToSeq() != 150 || gap.GetReason() != parleyv1.GapReason_GAP_REASON_HISTORY_GONE {
		t.Errorf("gap %v", events[1])
	}
	for i, e := range events[2:] {
		if want := int64(151 + i); e.GetSeq() != want || e.GetFromSeq() != want || i < 50 && e.GetSent() == nil || i == 50 && e.GetEvent() != nil {
			t.Fatalf("event %v, want that of entry %d", e, want)
		}
	}
}

// TestFastNodeExpiresNothingEarly checks that messages expire by the store's clock: a node whose
// clock is ten days fast neither lets them expire nor forgets their keys.
func TestFastNodeExpiresNothingEarly(t *testing.T) {
	t.Parallel()
	var uri, database string
	s := servertest.Serve(t,
		servertest.WithServerOption(server.WithClock(func() time.Time { return time.Now().Add(240 * time.Hour) })),
		servertest.With(func(c *config.Config) { uri, database = c.Mongo.URI.Reveal(), c.Mongo.Database }))
	c, ctx := s.Client(s.Token), t.Context()
	policy := &parleyv1.ChannelRetention{MaxMessages: 50, MaxAge: durationpb.New(time.Hour)}
	if _, err := c.CreateChannel(ctx, &parleyv1.CreateChannelRequest{ChannelId: "room", Retention: policy}); err != nil {
		t.Fatal(err)
	}
	ids := sendMany(t, c, "room", 200)
	// The limit of messages makes entries expire. The look that strips them also deletes those that
	// are old enough, and then saves how far it has come.
	rows := testkit.MongoClient(t, uri).Database(database).Collection("channels")
	testkit.Eventually(t, 60*time.Second, func() error {
		var row struct{ Oldest, Stripped int64 }
		err := rows.FindOne(ctx, bson.D{{Key: "_id", Value: "room"}}).Decode(&row)
		if err != nil || row.Stripped < 50 {
			return fmt.Errorf("stripped up to %d, oldest %d: %w", row.Stripped, row.Oldest, err)
		}
		return nil
	})
	page := listPage(t, c, &parleyv1.ListMessagesRequest{ChannelId: "room", PageSize: 100})
	if n := len(page.GetMessages()); n < 50 || page.GetOldestSeq() > 151 {
		t.Errorf("%d messages from %d", n, page.GetOldestSeq())
	}
	repeat, err := c.SendMessage(ctx, &parleyv1.SendMessageRequest{ChannelId: "room", Content: "secret 5", ClientMsgId: "key-5"})
	if err != nil || !repeat.GetDuplicate() || repeat.GetMsgId() != ids[5] {
		t.Errorf("a repeat: %v, %v", repeat, err)
	}
}

// TestExpiredContentIsRemoved checks that the contents of expired messages and of their edits leave
// MongoDB and Redis, and that a changed policy takes effect.
func TestExpiredContentIsRemoved(t *testing.T) {
	t.Parallel()
	var uri, database string
	s := servertest.Serve(t, servertest.With(func(c *config.Config) {
		c.Retention.MaxMessages = 1000
		uri, database = c.Mongo.URI.Reveal(), c.Mongo.Database
	}))
	c, ctx := s.Client(s.Token), t.Context()
	ids := sendMany(t, c, "room", 100)
	awaitSource(t, c, "room", "cache")
	if _, err := c.EditMessage(ctx, &parleyv1.EditMessageRequest{ChannelId: "room", MsgId: ids[0], Content: "secret edit"}); err != nil {
		t.Fatal(err)
	}
	if _, err := c.UpdateChannel(ctx, &parleyv1.UpdateChannelRequest{
		ChannelId: "room", Retention: &parleyv1.ChannelRetention{MaxMessages: 1}, UpdateMask: &fieldmaskpb.FieldMask{Paths: []string{"retention"}},
	}); err != nil {
		t.Fatal(err)
	}
	send(t, c, "room", "new") // entries 102 and 103; up to 100 messages more than the policy are kept
	send(t, c, "room", "newest")
	db := testkit.MongoClient(t, uri).Database(database)
	redis := s.Redis.Client(t)
	testkit.Eventually(t, 90*time.Second, func() error {
		for shard := range 4 {
			n, err := db.Collection(fmt.Sprint("messages_", shard)).CountDocuments(ctx, bson.D{{Key: "content", Value: bson.D{{Key: "$regex", Value: "secret"}}}})
			if err != nil || n > 0 {
				return fmt.Errorf("MongoDB has the contents of %d expired entries, %w", n, err)
			}
		}
		cached, err := redis.ZRange(ctx, "msg_cache:room", 0, -1).Result()
		if err != nil || strings.Contains(fmt.Sprint(cached), "secret") {
			return fmt.Errorf("the cache has expired contents, %w", err)
		}
		return nil
	})
	page := listPage(t, c, &parleyv1.ListMessagesRequest{ChannelId: "room"})
	if len(page.GetMessages()) != 1 || page.GetMessages()[0].GetSeq() != 103 || page.GetOldestSeq() != 103 {
		t.Errorf("list %v", page)
	}
	if r := send(t, c, "room", "next"); r.GetSeq() != 104 || r.GetCount() != 103 {
		t.Errorf("sent %v", r)
	}
}
