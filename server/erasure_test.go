package server_test

import (
	"context"
	"fmt"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"connectrpc.com/connect"
	"go.mongodb.org/mongo-driver/v2/bson"

	parleyv1 "github.com/parleyhq/parley/gen/go/parley/v1"
	"github.com/parleyhq/parley/gen/go/parley/v1/parleyv1connect"
	"github.com/parleyhq/parley/server"
	"github.com/parleyhq/parley/server/config"
	"github.com/parleyhq/parley/server/internal/testkit"
	"github.com/parleyhq/parley/server/servertest"
)

// erasedState is the state of an erasure after which nothing of the user is in the store.
const erasedState = parleyv1.ErasureState_ERASURE_STATE_ERASED

// awaitErased waits until an erasure has reached a state.
func awaitErased(t *testing.T, admin parleyv1connect.AdminServiceClient, id string) (e *parleyv1.Erasure) {
	t.Helper()
	testkit.Eventually(t, 90*time.Second, func() error {
		res, err := admin.GetErasure(t.Context(), &parleyv1.GetErasureRequest{RequestId: id})
		if e = res.GetErasure(); err == nil && e.GetState() != erasedState {
			err = fmt.Errorf("erasure %v", e)
		}
		return err
	})
	return e
}

// TestErasure checks that an erasure removes a user's messages, changes and memberships from what
// readers, subscribers, caches and the database have, and leaves everything else.
func TestErasure(t *testing.T) {
	t.Parallel()
	for name, start := range modes {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var uri, database string
			s := start(t, servertest.WithServerOption(server.WithErasureSettle(time.Second)), servertest.With(func(c *config.Config) {
				uri, database = c.Mongo.URI.Reveal(), c.Mongo.Database
			}))
			checkErasure(t, s)
			if name == "serve" {
				wantNowhere(t, s, uri, database)
			}
		})
	}
}

func checkErasure(t *testing.T, s *servertest.Server) {
	t.Helper()
	ctx := t.Context()
	root, alice, bob := s.Client(s.TokenOf("root")), s.Client(s.TokenOf("alice")), s.Client(s.TokenOf("bob"))
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	_, err := alice.CreateChannel(ctx, &parleyv1.CreateChannelRequest{ChannelId: "club", MembersOnly: true, Members: []*parleyv1.ChannelMember{{UserId: "bob"}}})
	must(err)
	_, err = root.CreateChannel(ctx, &parleyv1.CreateChannelRequest{ChannelId: "closed", MembersOnly: true})
	must(err)
	// alice is no member of closed.
	_, err = root.SendMessage(ctx, &parleyv1.SendMessageRequest{ChannelId: "closed", Content: "secret alice", FromId: "alice", ClientMsgId: "of-alice"})
	must(err)
	ids := sendMany(t, alice, "room", 150)
	kept := send(t, bob, "room", "bob's text")
	_, err = alice.EditMessage(ctx, &parleyv1.EditMessageRequest{ChannelId: "room", MsgId: ids[3], Content: "secret edit"})
	must(err)
	_, err = alice.RecallMessage(ctx, &parleyv1.RecallMessageRequest{ChannelId: "room", MsgId: ids[4]})
	must(err)
	_, err = root.RecallMessage(ctx, &parleyv1.RecallMessageRequest{ChannelId: "room", MsgId: ids[5]})
	must(err)
	send(t, alice, "club", "secret in the club")
	awaitSource(t, bob, "room", "cache")
	_, err = alice.AppendSessionMessage(ctx, &parleyv1.AppendSessionMessageRequest{SessionId: "chat", Content: "secret question", Title: "secret title"})
	must(err)
	_, err = root.AppendSessionMessage(ctx, &parleyv1.AppendSessionMessageRequest{SessionId: "chat", Content: "secret answer to alice", Role: "assistant"})
	must(err)
	// Without the capability manage, only members may use the club.
	member := s.Client(s.TokenOf("alice", "history", "subscribe"))
	live, own := subscribe(t, bob, from("room", 153)), subscribe(t, member, from("club", 1))

	admin := s.Admin(s.TokenOf("root"))
	erase := &parleyv1.EraseUserRequest{UserId: "alice", RequestId: "gdpr-1"}
	for range 2 {
		if res, err := admin.EraseUser(ctx, erase); err != nil || res.GetErasure().GetUserId() != "alice" {
			t.Fatalf("erase: %v, %v", res, err)
		}
	}
	if e := awaitErased(t, admin, "gdpr-1"); e.GetMessageCount() < 152 || e.GetMessageCount() > 153 || e.GetChangeCount() != 2 || e.GetMembershipCount() != 2 {
		t.Errorf("erasure %v", e)
	}
	checkTombstones(t, bob, ids, kept.GetMsgId())
	checkLive(t, live, ids)
	testkit.Eventually(t, 30*time.Second, func() error { // alice lost the club
		own.mu.Lock()
		defer own.mu.Unlock()
		for _, e := range own.events {
			if e.GetLost() != nil {
				return nil
			}
		}
		return fmt.Errorf("events %v", own.events)
	})
	for _, id := range []string{"room", "club", "closed"} {
		if strings.Contains(fmt.Sprint(memberIDs(t, root, id, 100)), "alice") {
			t.Errorf("alice is a member of %s", id)
		}
		if ch, err := root.GetChannel(ctx, &parleyv1.GetChannelRequest{ChannelId: id}); err != nil || ch.GetChannel().GetCreatedBy() == "alice" {
			t.Errorf("channel %v, %v", ch, err)
		}
		page := listPage(t, root, &parleyv1.ListMessagesRequest{ChannelId: id, PageSize: 1000})
		if text := fmt.Sprint(page); strings.Contains(text, "alice") || strings.Contains(text, "secret") {
			t.Errorf("%s has %s", id, text)
		}
	}
	if _, err := member.ListMessages(ctx, &parleyv1.ListMessagesRequest{ChannelId: "club"}); connect.CodeOf(err) != connect.CodePermissionDenied {
		t.Errorf("alice reads the club: %v", err)
	}
	list, err := admin.ListErasures(ctx, &parleyv1.ListErasuresRequest{})
	if err != nil || len(list.GetErasures()) != 1 || list.GetErasures()[0].GetEraseTime() == nil {
		t.Errorf("list: %v, %v", list, err)
	}
}

// checkTombstones checks that readers see a tombstone in the place of each message of alice, and
// the other message unchanged. The log has 153 entries from before the erasure.
func checkTombstones(t *testing.T, c client, ids []string, kept string) {
	t.Helper()
	page := listPage(t, c, &parleyv1.ListMessagesRequest{ChannelId: "room", PageSize: 1000})
	messages := page.GetMessages()
	if len(messages) != 151 || messages[0].GetMsgId() != kept || messages[0].GetContent() != "bob's text" || messages[0].GetFromId() != "bob" {
		t.Fatalf("%d messages, the newest is %v", len(messages), messages[0])
	}
	for i, m := range messages[1:] {
		n := 149 - i
		if m.GetMsgId() != ids[n] || m.GetFromId() != "~erased" || m.GetStatus() != parleyv1.MessageStatus_MESSAGE_STATUS_RECALLED || m.GetContent() != "" ||
			m.GetSeq() != int64(n+1) || m.GetCount() != int64(n+1) || m.GetChangedSeq() <= 154 || strings.HasPrefix(m.GetClientMsgId(), "key-") {
			t.Fatalf("message %d is %v", n, m)
		}
	}
}

// checkLive checks that a subscriber received a recall for each erased message.
func checkLive(t *testing.T, live *stream, ids []string) {
	t.Helper()
	testkit.Eventually(t, 30*time.Second, func() error {
		live.mu.Lock()
		defer live.mu.Unlock()
		told := make(map[string]bool)
		for _, e := range live.events {
			if m := e.GetRecalled(); m.GetFromId() == "~erased" {
				told[m.GetMsgId()] = true
			}
		}
		for _, id := range ids {
			if !told[id] {
				return fmt.Errorf("told of %d messages", len(told))
			}
		}
		return nil
	})
}

// wantNowhere checks that no document of MongoDB and no cached message names alice or has her
// texts, except for the job itself.
func wantNowhere(t *testing.T, s *servertest.Server, uri, database string) {
	t.Helper()
	ctx := t.Context()
	db := testkit.MongoClient(t, uri).Database(database)
	names, err := db.ListCollectionNames(ctx, bson.D{})
	if err != nil || len(names) < 6 {
		t.Fatalf("collections %v, %v", names, err)
	}
	for _, name := range names {
		if name == "erasures" {
			continue
		}
		cursor, err := db.Collection(name).Find(ctx, bson.D{})
		if err != nil {
			t.Fatal(err)
		}
		var docs []bson.M
		if err := cursor.All(ctx, &docs); err != nil {
			t.Fatal(err)
		}
		for _, d := range docs {
			if text := fmt.Sprint(d); strings.Contains(text, "alice") || strings.Contains(text, "secret ") {
				t.Errorf("%s has %s", name, text)
			}
		}
	}
	redis := s.Redis.Client(t)
	for _, id := range []string{"room", "club", "closed"} {
		if cached, err := redis.ZRange(ctx, "msg_cache:"+id, 0, -1).Result(); err != nil || strings.Contains(fmt.Sprint(cached), "alice") {
			t.Errorf("the cache has %v, %v", cached, err)
		}
	}
}

// TestKilledErasure checks that an erasure goes on after each kill -9 of its process.
func TestKilledErasure(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	p := startDev(t, dir)
	ids := sendMany(t, p.client(), "room", 1500)
	adminOf := func(p *process) parleyv1connect.AdminServiceClient {
		return parleyv1connect.NewAdminServiceClient(servertest.HTTPClient(t, p.token()), p.addr)
	}
	me, err := p.client().ListMessages(t.Context(), &parleyv1.ListMessagesRequest{ChannelId: "room", PageSize: 1})
	if err != nil {
		t.Fatal(err)
	}
	user := me.GetMessages()[0].GetFromId()
	if _, err := adminOf(p).EraseUser(t.Context(), &parleyv1.EraseUserRequest{UserId: user, RequestId: "1"}); err != nil {
		t.Fatal(err)
	}
	left := func() (n int) {
		t.Helper()
		testkit.Eventually(t, 30*time.Second, func() error {
			n = 0
			ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
			defer cancel()
			for _, before := range []int64{501, 1001, 1501} {
				page, err := p.client().ListMessages(ctx, &parleyv1.ListMessagesRequest{ChannelId: "room", PageSize: 500, BeforeSeq: &before})
				if err != nil {
					return err
				}
				for _, m := range page.GetMessages() {
					if m.GetFromId() != "~erased" {
						n++
					}
				}
			}
			return nil
		})
		return n
	}
	kills := 0
	for was := len(ids); ; kills++ {
		testkit.Eventually(t, 60*time.Second, func() error { // some progress
			if n := left(); n < was || n == 0 {
				was = n
				return nil
			}
			return fmt.Errorf("%d are left", was)
		})
		if was == 0 {
			break
		}
		if kills < 4 {
			p.end(syscall.SIGKILL)
			p = startDev(t, dir)
		}
	}
	t.Logf("killed %d times", min(kills, 4))
	// One recall for each message. A page's messages may be newer than its head.
	testkit.Eventually(t, 30*time.Second, func() error {
		page, err := p.client().ListMessages(t.Context(), &parleyv1.ListMessagesRequest{ChannelId: "room", PageSize: 1})
		if err == nil && page.GetHeadSeq() != 3000 {
			err = fmt.Errorf("the log ends at %d", page.GetHeadSeq())
		}
		return err
	})
}

// TestRestoredRefusesInvalidErasures checks that nothing is done if one erasure is invalid. The
// sender of erased messages must not be erased.
func TestRestoredRefusesInvalidErasures(t *testing.T) {
	t.Parallel()
	cfg := server.DevConfig()
	cfg.DataDir = t.TempDir()
	valid := server.Erasure{RequestID: "7", UserID: "ann"}
	for _, c := range []struct {
		bad   server.Erasure
		names string
	}{
		{server.Erasure{UserID: "ann"}, "erasure 2: request_id"},
		{server.Erasure{RequestID: "7"}, "user_id"},
		{server.Erasure{RequestID: "7", UserID: "a b"}, "user_id"},
		{server.Erasure{RequestID: "7", UserID: "~erased"}, "user_id"},
	} {
		if _, err := server.RestoredDev(t.Context(), cfg, valid, c.bad); err == nil || !strings.Contains(err.Error(), c.names) {
			t.Errorf("%+v: %v, want %q", c.bad, err, c.names)
		}
	}
	if made, err := os.ReadDir(cfg.DataDir); err != nil || len(made) > 0 {
		t.Errorf("the data directory has %v, %v", made, err)
	}
}

// TestRestoredRepeatsErasures checks that the erasures that Restored is given begin again once a
// node starts.
func TestRestoredRepeatsErasures(t *testing.T) {
	t.Parallel()
	s := servertest.Serve(t, servertest.WithServerOption(server.WithErasureSettle(time.Second)))
	sent := send(t, s.Client(s.TokenOf("ann")), "room", "brought back by a restore")
	kept := send(t, s.Client(s.TokenOf("bob")), "room", "kept")
	s.Stop()
	if err := s.Restored(t.Context(), server.Erasure{RequestID: "7", UserID: "ann"}, server.Erasure{RequestID: "8", UserID: "cem"}); err != nil {
		t.Fatal(err)
	}
	s.Start()
	admin := s.Admin(s.Token)
	users := map[string]string{}
	res, err := admin.ListErasures(t.Context(), &parleyv1.ListErasuresRequest{})
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range res.GetErasures() {
		users[e.GetUserId()] = e.GetRequestId()
	}
	if len(users) != 2 || users["ann"] == "7" || users["ann"] == users["cem"] {
		t.Fatalf("erasures %v", users)
	}
	awaitErased(t, admin, users["ann"])
	for id, want := range map[string]string{sent.GetMsgId(): "", kept.GetMsgId(): "kept"} {
		got, err := s.Client(s.Token).GetMessage(t.Context(), &parleyv1.GetMessageRequest{ChannelId: "room", MsgId: id})
		if err != nil || got.GetMessage().GetContent() != want {
			t.Errorf("message %v, %v, want %q", got, err, want)
		}
	}
}
