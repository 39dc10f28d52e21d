package rpc

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"connectrpc.com/connect"
	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/testing/protocmp"

	parleyv1 "github.com/parleyhq/parley/gen/go/parley/v1"
	"github.com/parleyhq/parley/gen/go/parley/v1/parleyv1connect"
	"github.com/parleyhq/parley/server/internal/fault"
	"github.com/parleyhq/parley/server/internal/ident"
	"github.com/parleyhq/parley/server/internal/presence"
	"github.com/parleyhq/parley/server/internal/rpc/limit"
)

// Calls about streams reach the node's part of the server with the caller's subject.
func TestPresenceCalls(t *testing.T) {
	t.Parallel()
	b := setup(t, nil)
	id := strings.Repeat("S", 39)
	b.eachPresence(func(t *testing.T, c parleyv1connect.PresenceServiceClient) {
		b.presence.taken()
		ctx := t.Context()
		watched, err := c.UpdateWatch(ctx, &parleyv1.UpdateWatchRequest{StreamId: id, Add: []string{"bob", "cy", "bob"}, Remove: []string{"x", "x"}})
		want := &parleyv1.UpdateWatchResponse{Presence: []*parleyv1.UserPresence{wireState("bob", 0), wireState("cy", 0)}}
		if diff := cmp.Diff(want, watched, protocmp.Transform()); diff != "" || err != nil {
			t.Error(err, diff)
		}
		unknown, err := c.WatchChannel(ctx, &parleyv1.WatchChannelRequest{StreamId: id, ChannelId: "room"})
		if err != nil || unknown.GetPresence() != nil {
			t.Error(unknown, err)
		}
		b.presence.set(func(f *fakePresence) { f.channel = &presence.ChannelState{ChannelID: "room", Members: 5000, Online: 7} })
		known, err := c.WatchChannel(ctx, &parleyv1.WatchChannelRequest{StreamId: id, ChannelId: "room"})
		b.presence.set(func(f *fakePresence) { f.channel = nil })
		channel := &parleyv1.WatchChannelResponse{Presence: &parleyv1.ChannelPresence{ChannelId: "room", MemberCount: 5000, OnlineCount: 7}}
		if diff := cmp.Diff(channel, known, protocmp.Transform()); diff != "" || err != nil {
			t.Error(err, diff)
		}
		_, err1 := c.UnwatchChannel(ctx, &parleyv1.UnwatchChannelRequest{StreamId: id, ChannelId: "anything"})
		_, err2 := c.SetBackground(ctx, &parleyv1.SetBackgroundRequest{StreamId: id, Background: true})
		_, err3 := c.Disconnect(ctx, &parleyv1.DisconnectRequest{StreamId: id})
		states, err4 := c.GetPresence(ctx, &parleyv1.GetPresenceRequest{UserIds: []string{"cy", "bob", "cy"}})
		if err := errors.Join(err1, err2, err3, err4); err != nil {
			t.Error(err)
		}
		got := &parleyv1.GetPresenceResponse{Presence: []*parleyv1.UserPresence{wireState("cy", 0), wireState("bob", 0), wireState("cy", 0)}}
		if diff := cmp.Diff(got, states, protocmp.Transform()); diff != "" {
			t.Error(diff)
		}
		calls := []string{
			"watch " + id + " ada bob+cy x", "channel " + id + " ada room", "channel " + id + " ada room", "unwatch " + id + " ada anything",
			"background " + id + " ada on", "disconnect " + id + " ada", "get cy+bob",
		}
		if diff := cmp.Diff(calls, b.presence.taken()); diff != "" {
			t.Error(diff)
		}
	})
}

// Holders of manage watch a channel without being members.
func TestManagersNeedNoMembership(t *testing.T) {
	t.Parallel()
	b := setup(t, nil)
	manager := present("max", ident.Connect, ident.Watch)
	manager.Channels[0].Actions = []ident.Action{ident.Subscribe, ident.Manage}
	c, id := b.presenceClient(0, b.mintAs(manager)), strings.Repeat("S", 39)
	if _, err := c.WatchChannel(t.Context(), &parleyv1.WatchChannelRequest{StreamId: id, ChannelId: "room"}); err != nil {
		t.Fatal(err)
	}
	receive(t, connectTo(t, c, device(func(r *parleyv1.ConnectRequest) { r.WatchChannels = []string{"room"} })))
	if diff := cmp.Diff([]string{"any channel " + id + " max room"}, b.presence.taken()); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff([]presence.ChannelRef{{ID: "room", Exempt: true}}, b.presence.request().Channels); diff != "" {
		t.Error(diff)
	}
}

// Requests that break a rule are refused before any call, and faults of the hub keep their reason.
func TestPresenceCallRefusals(t *testing.T) {
	t.Parallel()
	b := setup(t, nil)
	b.access.set(func(_ *ident.Principal, ids []string) ([]string, error) {
		if ids[0] == "room-closed" {
			return ids, nil
		}
		return nil, nil
	})
	id := strings.Repeat("S", 39)
	many := func(n int) (ids []string) {
		for i := range n {
			ids = append(ids, fmt.Sprint("u", i))
		}
		return ids
	}
	const invalid, denied = connect.CodeInvalidArgument, connect.CodePermissionDenied
	watch := func(r *parleyv1.UpdateWatchRequest) func(c parleyv1connect.PresenceServiceClient) error {
		return func(c parleyv1connect.PresenceServiceClient) error {
			_, err := c.UpdateWatch(t.Context(), r)
			return err
		}
	}
	get := func(ids ...string) func(c parleyv1connect.PresenceServiceClient) error {
		return func(c parleyv1connect.PresenceServiceClient) error {
			_, err := c.GetPresence(t.Context(), &parleyv1.GetPresenceRequest{UserIds: ids})
			return err
		}
	}
	channel := func(stream, channelID string) func(c parleyv1connect.PresenceServiceClient) error {
		return func(c parleyv1connect.PresenceServiceClient) error {
			_, err := c.WatchChannel(t.Context(), &parleyv1.WatchChannelRequest{StreamId: stream, ChannelId: channelID})
			return err
		}
	}
	for name, c := range map[string]struct {
		call   func(c parleyv1connect.PresenceServiceClient) error
		code   connect.Code
		reason string
		field  string
		limit  int64
	}{
		"no stream id":         {watch(&parleyv1.UpdateWatchRequest{}), invalid, "INVALID_FIELD", "stream_id", 0},
		"stream id *":          {watch(&parleyv1.UpdateWatchRequest{StreamId: "*"}), invalid, "INVALID_FIELD", "stream_id", 0},
		"501 to add":           {watch(&parleyv1.UpdateWatchRequest{StreamId: id, Add: many(501)}), invalid, "INVALID_FIELD", "add", 500},
		"1,001 to remove":      {watch(&parleyv1.UpdateWatchRequest{StreamId: id, Remove: many(1001)}), invalid, "INVALID_FIELD", "remove", 1000},
		"an empty user to add": {watch(&parleyv1.UpdateWatchRequest{StreamId: id, Add: []string{"a", ""}}), invalid, "INVALID_FIELD", "add[1]", 0},
		"a stranger to add":    {watch(&parleyv1.UpdateWatchRequest{StreamId: id, Add: []string{"a", "x"}}), denied, "NO_SHARED_CHANNEL", "add[1]", 0},
		"0 users":              {get(), invalid, "INVALID_FIELD", "user_ids", 1},
		"501 users":            {get(many(501)...), invalid, "INVALID_FIELD", "user_ids", 500},
		"10,001 users":         {get(many(10_001)...), invalid, "INVALID_FIELD", "user_ids", 500},
		"a user with a NUL":    {get("a", "b\x00"), invalid, "INVALID_FIELD", "user_ids[1]", 0},
		"a stranger":           {get("a", "b", "x"), denied, "NO_SHARED_CHANNEL", "user_ids[2]", 0},
		"not a member":         {channel(id, "room-closed"), denied, "NOT_MEMBER", "channel_id", 0},
		"channel room*":        {channel(id, "room*"), invalid, "INVALID_FIELD", "channel_id", 0},
	} {
		token := b.mintAs(present("ada", ident.Connect, ident.Watch))
		for i, p := range protocols {
			err := c.call(b.presenceClient(i, token))
			if d := wantRefusal(t, name+", "+p.name, err, c.code, c.reason, c.field); d.GetLimit() != c.limit {
				t.Errorf("%s, %s: limit %d", name, p.name, d.GetLimit())
			}
		}
	}
	if calls := b.presence.taken(); len(calls) > 0 {
		t.Errorf("called %q", calls)
	}
	for reason, kind := range map[fault.Reason]fault.Kind{
		fault.StreamNotFound: fault.NotFound, fault.ChannelOpen: fault.FailedPrecondition, fault.ChannelNotFound: fault.NotFound,
		fault.StoreUnavailable: fault.Unavailable, fault.OutcomeUnknown: fault.Unavailable, fault.LimitExceeded: fault.ResourceExhausted,
	} {
		f := fault.New(kind, reason, "says so")
		f.Field = "channel_id"
		b.presence.set(func(p *fakePresence) { p.fail = f })
		b.eachPresence(func(t *testing.T, c parleyv1connect.PresenceServiceClient) {
			wantRefusal(t, string(reason), channel(id, "room")(c), codes[kind], string(reason), "channel_id")
			wantRefusal(t, string(reason)+" to connect", refusedConnect(t, c, device(nil)), codes[kind], string(reason), "channel_id")
		})
	}
	b.presence.set(func(p *fakePresence) { p.fail = nil })
}

// A membership that ends while a stream begins to watch the channel is noticed.
func TestMembershipEndsWhileWatching(t *testing.T) {
	t.Parallel()
	b := setup(t, nil)
	refuse := func(_ *ident.Principal, ids []string) ([]string, error) { return ids, nil }
	b.presence.checked = func() { b.access.set(refuse) }
	c := b.presenceClient(0, b.mintAs(present("ada", ident.Connect, ident.Watch)))
	err := refusedConnect(t, c, device(func(r *parleyv1.ConnectRequest) { r.WatchChannels = []string{"room"} }))
	wantRefusal(t, "connect", err, connect.CodePermissionDenied, "NOT_MEMBER", "watch_channels[0]")
	if !b.presence.stream().isClosed() {
		t.Error("the stream is still open")
	}
	checks := 0
	b.access.set(func(_ *ident.Principal, ids []string) ([]string, error) {
		if checks++; checks > 1 {
			return ids, nil
		}
		return nil, nil
	})
	id := strings.Repeat("S", 39)
	_, err = c.WatchChannel(t.Context(), &parleyv1.WatchChannelRequest{StreamId: id, ChannelId: "room"})
	wantRefusal(t, "watch", err, connect.CodePermissionDenied, "NOT_MEMBER", "channel_id")
	if diff := cmp.Diff([]string{"channel " + id + " ada room", "unwatch " + id + " ada room"}, b.presence.taken()); diff != "" {
		t.Error(diff)
	}
}

// A refusal to watch users names those who are refused, each once, up to 50 of them.
func TestRefusedUsersAreNamed(t *testing.T) {
	t.Parallel()
	b := setup(t, nil)
	strangers := make([]string, 60)
	for i := range strangers {
		strangers[i] = fmt.Sprintf("x%02d", i)
	}
	c := b.presenceClient(0, b.mintAs(present("ada", ident.Connect, ident.Watch)))
	for _, refused := range [][]string{{"x1"}, {"x2", "x1"}, strangers} {
		users := append(append([]string{"bob"}, refused...), refused...)
		_, get := c.GetPresence(t.Context(), &parleyv1.GetPresenceRequest{UserIds: users})
		_, update := c.UpdateWatch(t.Context(), &parleyv1.UpdateWatchRequest{StreamId: strings.Repeat("S", 39), Add: users})
		connecting := refusedConnect(t, c, device(func(r *parleyv1.ConnectRequest) { r.Watch = users }))
		for field, err := range map[string]error{"user_ids[1]": get, "add[1]": update, "watch[1]": connecting} {
			d := wantRefusal(t, field, err, connect.CodePermissionDenied, "NO_SHARED_CHANNEL", field)
			if diff := cmp.Diff(refused[:min(len(refused), 50)], d.GetUserIds()); diff != "" {
				t.Errorf("%s: %s", field, diff)
			}
		}
	}
}

// A list continues where its page token says, which is of this caller only. A page has at most
// 1,000 users.
func TestListOnlineUsers(t *testing.T) {
	t.Parallel()
	b := setup(t, nil)
	var asked []string
	b.presence.list = func(after presence.ListPosition, limit int) ([]presence.UserState, presence.ListPosition, error) {
		asked = append(asked, fmt.Sprint(after.Shard, " ", after.UserID, " ", limit))
		if after.UserID == "" {
			return statesOf([]string{"bob"}), presence.ListPosition{Shard: 255, UserID: "a:{b}*"}, nil
		}
		return statesOf([]string{"cy"}), presence.ListPosition{}, nil
	}
	ada, eve := b.mintAs(present("ada", ident.List)), b.mintAs(present("eve", ident.List))
	for i := range protocols {
		asked = nil
		c := b.presenceClient(i, ada)
		first, err := c.ListOnlineUsers(t.Context(), &parleyv1.ListOnlineUsersRequest{})
		if err != nil || len(first.GetPresence()) != 1 || first.GetNextPageToken() == "" {
			t.Fatal(first, err)
		}
		token := first.GetNextPageToken()
		last, err := c.ListOnlineUsers(t.Context(), &parleyv1.ListOnlineUsersRequest{PageSize: 1 << 30, PageToken: token})
		if err != nil || last.GetPresence()[0].GetUserId() != "cy" || last.GetNextPageToken() != "" {
			t.Error(last, err)
		}
		if diff := cmp.Diff([]string{"0  100", "255 a:{b}* 1000"}, asked); diff != "" {
			t.Error(diff)
		}
		list := func(c parleyv1connect.PresenceServiceClient, r *parleyv1.ListOnlineUsersRequest) error {
			_, err := c.ListOnlineUsers(t.Context(), r)
			return err
		}
		const invalid = connect.CodeInvalidArgument
		wantRefusal(t, "broken", list(c, &parleyv1.ListOnlineUsersRequest{PageToken: token[:len(token)-4]}), invalid, "PAGE_TOKEN_INVALID", "page_token")
		wantRefusal(t, "0 x", list(c, &parleyv1.ListOnlineUsersRequest{PageToken: "0 x"}), invalid, "PAGE_TOKEN_INVALID", "page_token")
		wantRefusal(t, "size", list(c, &parleyv1.ListOnlineUsersRequest{PageSize: -1}), invalid, "INVALID_FIELD", "page_size")
		wantRefusal(t, "another's", list(b.presenceClient(i, eve), &parleyv1.ListOnlineUsersRequest{PageToken: token}),
			connect.CodePermissionDenied, "PAGE_TOKEN_FOREIGN", "page_token")
		login := newPresenceService(&Config{}, &Deps{PageSecret: secret}).sealLogin("ada", presence.Login{Device: "d", Generation: 1})
		wantRefusal(t, "a login token", list(c, &parleyv1.ListOnlineUsersRequest{PageToken: login}), invalid, "PAGE_TOKEN_INVALID", "page_token")
	}
}

// Each user whose presence a call asks for is charged as a call if the server restricts who may
// watch whom, unless the caller may watch everyone.
func TestWatchedUsersAreCharged(t *testing.T) {
	t.Parallel()
	b := setup(t, func(s *settings) { s.limit = limit.Config{PerSecond: 0.001, Burst: 10} })
	users := []string{"u1", "u2", "u3", "u4", "u5", "u6", "u7", "u8", "u9", "u9", "u8"}
	for name, actions := range map[string][]ident.Action{"ann": {ident.Watch}, "list": {ident.Watch, ident.List}} {
		c := b.presenceClient(1, b.mintAs(present(name, actions...)))
		var err error
		calls := 0
		for ; calls < 20 && err == nil; calls++ {
			_, err = c.GetPresence(t.Context(), &parleyv1.GetPresenceRequest{UserIds: users})
		}
		// The first call is charged for nine users, the second for the rest of the burst.
		if want := map[string]int{"ann": 3, "list": 11}[name]; calls != want || connect.CodeOf(err) != connect.CodeResourceExhausted {
			t.Errorf("%s: call %d fails: %v", name, calls, err)
		}
	}
}
