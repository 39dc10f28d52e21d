package rpc

import (
	"context"
	"fmt"
	"io"
	"slices"
	"strings"
	"testing"
	"time"

	"connectrpc.com/connect"
	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/testing/protocmp"
	"google.golang.org/protobuf/types/known/durationpb"

	parleyv1 "github.com/parleyhq/parley/gen/go/parley/v1"
	"github.com/parleyhq/parley/gen/go/parley/v1/parleyv1connect"
	"github.com/parleyhq/parley/server/internal/fault"
	"github.com/parleyhq/parley/server/internal/ident"
	"github.com/parleyhq/parley/server/internal/presence"
)

// device returns a valid request to connect, with changes.
func device(change func(r *parleyv1.ConnectRequest)) *parleyv1.ConnectRequest {
	r := &parleyv1.ConnectRequest{Platform: parleyv1.Platform_PLATFORM_IOS, DeviceId: "phone-1"}
	if change != nil {
		change(r)
	}
	return r
}

type presenceFrames = connect.ServerStreamForClient[parleyv1.ConnectResponse]

// connectTo opens a Connect stream that is closed when the test ends.
func connectTo(t *testing.T, c parleyv1connect.PresenceServiceClient, r *parleyv1.ConnectRequest) *presenceFrames {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	t.Cleanup(cancel)
	s, err := c.Connect(ctx, r)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	return s
}

// refusedConnect returns the error of a Connect that is refused before its first frame.
func refusedConnect(t *testing.T, c parleyv1connect.PresenceServiceClient, r *parleyv1.ConnectRequest) error {
	t.Helper()
	s := connectTo(t, c, r)
	if s.Receive() {
		t.Fatalf("got %v", s.Msg())
	}
	return s.Err()
}

func wireState(id string, revision int64) *parleyv1.UserPresence {
	return &parleyv1.UserPresence{UserId: id, Revision: revision, Platforms: []*parleyv1.PlatformPresence{
		{Platform: parleyv1.Platform_PLATFORM_IOS}, {Platform: parleyv1.Platform_PLATFORM_WEB, Background: true},
	}}
}

func receive(t *testing.T, s *presenceFrames) *parleyv1.ConnectResponse {
	t.Helper()
	if !s.Receive() {
		t.Fatal(s.Err())
	}
	return proto.CloneOf(s.Msg())
}

// wantRefusal checks an error's code, and the reason and the field of its detail.
func wantRefusal(t *testing.T, name string, err error, code connect.Code, reason, field string) *parleyv1.ErrorDetail {
	t.Helper()
	d, _ := details(t, err)
	if got := strings.TrimPrefix(d.GetReason().String(), reasonPrefix); connect.CodeOf(err) != code || got != reason || d.GetField() != field {
		t.Errorf("%s: %v, %s, field %q; want %v, %s, field %q", name, connect.CodeOf(err), got, d.GetField(), code, reason, field)
	}
	return d
}

// A stream has the same frames over all protocols, and its request reaches the hub.
func TestConnect(t *testing.T) {
	t.Parallel()
	b := setup(t, nil)
	lagging := true
	b.presence.first = presence.Update{
		Users:    []presence.UserState{{UserID: "bob", State: onWeb, Revision: 3}, {UserID: "cy"}},
		Channels: []presence.ChannelState{{ChannelID: "room", Online: 1, Members: 2, Complete: true, Users: statesOf([]string{"bob"}), Revision: 4}},
	}
	b.eachPresence(func(t *testing.T, c parleyv1connect.PresenceServiceClient) {
		s := connectTo(t, c, device(func(r *parleyv1.ConnectRequest) {
			r.Background, r.Watch, r.WatchChannels = true, []string{"bob", "cy", "bob"}, []string{"room", "room2", "room"}
		}))
		info := receive(t, s).GetInfo()
		token := info.GetPresence().GetLoginToken()
		want := &parleyv1.ConnectInfo{
			Stream: &parleyv1.StreamInfo{StreamId: "PRESENCE", HeartbeatInterval: durationpb.New(15 * time.Second)},
			Presence: &parleyv1.PresenceInfo{ConnectionId: "C1", LoginToken: token, Presence: &parleyv1.PresenceUpdate{
				Users: []*parleyv1.UserPresence{wireState("bob", 3), {UserId: "cy"}},
				Channels: []*parleyv1.ChannelPresence{{
					ChannelId: "room", OnlineCount: 1, MemberCount: 2, Complete: true, Revision: 4, Online: []*parleyv1.UserPresence{wireState("bob", 0)},
				}},
			}},
		}
		if diff := cmp.Diff(want, info, protocmp.Transform()); diff != "" || token == "" {
			t.Error(token, diff)
		}
		got := *b.presence.request()
		if got.Expires.Before(time.Now()) {
			t.Errorf("expires at %v", got.Expires)
		}
		got.Expires = time.Time{}
		if diff := cmp.Diff(presence.OpenRequest{
			Subject: "ada", Platform: presence.IOS, Device: "phone-1", Background: true, Watch: []string{"bob", "cy"},
			Channels: []presence.ChannelRef{{ID: "room"}, {ID: "room2"}},
		}, got); diff != "" {
			t.Error(diff)
		}
		live := b.presence.stream()
		live.send(
			presence.Frame{Update: &presence.Update{Lagging: &lagging, Channels: []presence.ChannelState{{ChannelID: "room", Users: statesOf([]string{"bob"})}}}},
			presence.Frame{Update: &presence.Update{Channels: []presence.ChannelState{{ChannelID: "room2", Lost: fault.NodeFull, Revision: 9}}}},
			presence.Frame{Heartbeat: true}, presence.Frame{Reconnect: time.Second})
		for _, want := range []*parleyv1.ConnectResponse{
			{Frame: &parleyv1.ConnectResponse_Presence{Presence: &parleyv1.PresenceUpdate{Lagging: &lagging, Channels: []*parleyv1.ChannelPresence{{
				ChannelId: "room", Changed: []*parleyv1.UserPresence{wireState("bob", 0)},
			}}}}},
			{Frame: &parleyv1.ConnectResponse_Presence{Presence: &parleyv1.PresenceUpdate{Channels: []*parleyv1.ChannelPresence{{
				ChannelId: "room2", Lost: true, LostReason: parleyv1.ErrorReason_ERROR_REASON_NODE_FULL, Revision: 9,
			}}}}},
			{Frame: &parleyv1.ConnectResponse_Heartbeat{Heartbeat: &parleyv1.Heartbeat{}}},
			{Frame: &parleyv1.ConnectResponse_Reconnect{Reconnect: &parleyv1.Reconnect{Within: durationpb.New(time.Second)}}},
		} {
			if diff := cmp.Diff(want, receive(t, s), protocmp.Transform()); diff != "" {
				t.Error(diff)
			}
		}
		live.fail(io.EOF)
		if s.Receive() || s.Err() != nil {
			t.Errorf("after Disconnect: %v", s.Err())
		}
		// The token is of this login only.
		resumed := connectTo(t, c, device(func(r *parleyv1.ConnectRequest) { r.LoginToken = token }))
		receive(t, resumed)
		if diff := cmp.Diff(&presence.Login{Device: "phone-1", Generation: 77}, b.presence.request().Login); diff != "" {
			t.Error(diff)
		}
		kick := fault.New(fault.FailedPrecondition, fault.Kicked, "kicked")
		kick.Kick = &fault.Kick{Cause: 2, Platform: 8, Device: "laptop", Connection: "C2"}
		b.presence.stream().fail(kick)
		if resumed.Receive() {
			t.Errorf("got %v", resumed.Msg())
		}
		d := wantRefusal(t, "kicked", resumed.Err(), connect.CodeFailedPrecondition, "KICKED", "")
		if diff := cmp.Diff(&parleyv1.Kick{
			Cause: parleyv1.KickCause_KICK_CAUSE_REPLACED, Platform: parleyv1.Platform_PLATFORM_WEB, DeviceId: "laptop", ConnectionId: "C2",
		}, d.GetKick(), protocmp.Transform()); diff != "" || d.GetRetryable() {
			t.Error(diff)
		}
	})
}

// An invisible stream needs no device, and has no login.
func TestConnectInvisibly(t *testing.T) {
	t.Parallel()
	b := setup(t, nil)
	token := b.mintAs(present("ada", ident.Watch))
	s := connectTo(t, b.presenceClient(2, token), &parleyv1.ConnectRequest{
		Invisible: true, Platform: parleyv1.Platform_PLATFORM_WEB, DeviceId: "d", Background: true, LoginToken: "no token", Watch: []string{"bob"},
	})
	info := receive(t, s).GetInfo().GetPresence()
	if info.GetConnectionId()+info.GetLoginToken() != "" {
		t.Errorf("got %v", info)
	}
	r := *b.presence.request()
	r.Expires = time.Time{}
	if diff := cmp.Diff(presence.OpenRequest{Subject: "ada", Invisible: true, Watch: []string{"bob"}}, r); diff != "" {
		t.Error(diff)
	}
}

// Requests that break a rule, and hostile ones, are refused with the field before a stream is
// opened, both by Connect and by Subscribe.
func TestConnectRefusals(t *testing.T) {
	t.Parallel()
	b := setup(t, func(s *settings) { s.cfg.WatchedUsers, s.cfg.WatchedChannels = 3, 2 })
	b.access.set(func(_ *ident.Principal, ids []string) ([]string, error) {
		for _, id := range ids {
			if strings.HasPrefix(id, "room-closed") {
				return []string{id}, nil
			}
		}
		return nil, nil
	})
	service := &presenceService{}
	service.sealer = newPresenceService(&Config{}, &Deps{PageSecret: secret}).sealer
	sealed := func(subject, device string) string {
		return service.sealLogin(subject, presence.Login{Device: device, Generation: 1})
	}
	good := sealed("ada", "phone-1")
	const invalid, many, denied = connect.CodeInvalidArgument, connect.CodeResourceExhausted, connect.CodePermissionDenied
	type change = func(r *parleyv1.ConnectRequest)
	watch := func(ids ...string) change { return func(r *parleyv1.ConnectRequest) { r.Watch = ids } }
	channels := func(ids ...string) change { return func(r *parleyv1.ConnectRequest) { r.WatchChannels = ids } }
	login := func(token string) change { return func(r *parleyv1.ConnectRequest) { r.LoginToken = token } }
	dev := func(id string) change { return func(r *parleyv1.ConnectRequest) { r.DeviceId = id } }
	tenThousand := make([]string, 10_001)
	for i := range tenThousand {
		tenThousand[i] = fmt.Sprint("u", i)
	}
	for name, c := range map[string]struct {
		change
		code   connect.Code
		reason string
		field  string
		limit  int64
	}{
		"no platform":                {func(r *parleyv1.ConnectRequest) { r.Platform = 0 }, invalid, "INVALID_FIELD", "platform", 0},
		"platform 99":                {func(r *parleyv1.ConnectRequest) { r.Platform = 99 }, invalid, "INVALID_FIELD", "platform", 0},
		"platform below 0":           {func(r *parleyv1.ConnectRequest) { r.Platform = -1 }, invalid, "INVALID_FIELD", "platform", 0},
		"no device":                  {dev(""), invalid, "INVALID_FIELD", "device_id", 0},
		"device of 1 KiB":            {dev(strings.Repeat("d", 1024)), invalid, "INVALID_FIELD", "device_id", 0},
		"device of 65":               {dev(strings.Repeat("d", 65)), invalid, "INVALID_FIELD", "device_id", 0},
		"device with a NUL":          {dev("d\x00"), invalid, "INVALID_FIELD", "device_id", 0},
		"device with a space":        {dev("a b"), invalid, "INVALID_FIELD", "device_id", 0},
		"device with a line end":     {dev("a\n"), invalid, "INVALID_FIELD", "device_id", 0},
		"device with a colon":        {dev("a:b{c}"), invalid, "INVALID_FIELD", "device_id", 0},
		"empty user":                 {watch("bob", ""), invalid, "INVALID_FIELD", "watch[1]", 0},
		"user with a space":          {watch("b b"), invalid, "INVALID_FIELD", "watch[0]", 0},
		"user with a line end":       {watch("b\n"), invalid, "INVALID_FIELD", "watch[0]", 0},
		"user of 129":                {watch(strings.Repeat("u", 129)), invalid, "INVALID_FIELD", "watch[0]", 0},
		"user with an accent":        {watch("é"), invalid, "INVALID_FIELD", "watch[0]", 0},
		"4 users":                    {watch("a", "b", "c", "d"), many, "LIMIT_EXCEEDED", "watch", 3},
		"10,001 users":               {watch(tenThousand...), many, "LIMIT_EXCEEDED", "watch", 3},
		"a stranger":                 {watch("bob", "x-men"), denied, "NO_SHARED_CHANNEL", "watch[1]", 0},
		"channel *":                  {channels("room*"), invalid, "INVALID_FIELD", "watch_channels[0]", 0},
		"3 channels":                 {channels("room1", "room2", "room3"), many, "LIMIT_EXCEEDED", "watch_channels", 2},
		"channel of others":          {channels("room", "room-closed"), denied, "NOT_MEMBER", "watch_channels[1]", 0},
		"channel without capability": {channels("room", "hall"), denied, "CAPABILITY_MISSING", "watch_channels[1]", 0},
		"login token of another":     {login(sealed("eve", "phone-1")), invalid, "INVALID_FIELD", "login_token", 0},
		"login token of a device":    {login(sealed("ada", "phone-2")), invalid, "INVALID_FIELD", "login_token", 0},
		"broken login token":         {login(good[:len(good)-2]), invalid, "INVALID_FIELD", "login_token", 0},
		"longer login token":         {login(good + "AA"), invalid, "INVALID_FIELD", "login_token", 0},
		"login token as JSON":        {login(`{"generation":1}`), invalid, "INVALID_FIELD", "login_token", 0},
		"large login token":          {login(strings.Repeat("A", 1025)), invalid, "INVALID_FIELD", "login_token", 1024},
		"page token for a login":     {login(service.sealer.Seal(loginBinding("ada", "phone-1"), "-1")), invalid, "INVALID_FIELD", "login_token", 0},
	} {
		token := b.mintAs(present("ada", ident.Connect, ident.Watch))
		for i, p := range protocols {
			if strings.Contains(name, "NUL") && i > 0 {
				continue
			}
			r := device(c.change)
			err := refusedConnect(t, b.presenceClient(i, token), r)
			if d := wantRefusal(t, name+", "+p.name, err, c.code, c.reason, c.field); d.GetLimit() != c.limit {
				t.Errorf("%s, %s: limit %d", name, p.name, d.GetLimit())
			}
			_, err = receiveSubscribe(t, b.client(i, token), &parleyv1.SubscribeRequest{Presence: r})
			wantRefusal(t, name+" in Subscribe, "+p.name, err, c.code, c.reason, "presence."+c.field)
		}
	}
	if r := b.presence.request(); r != nil {
		t.Errorf("a stream was opened: %+v", r)
	}
}

// receiveSubscribe opens a Subscribe stream and returns its first frame, or its error.
func receiveSubscribe(
	t *testing.T, c parleyv1connect.MessageServiceClient, r *parleyv1.SubscribeRequest,
) (*stream, error) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	t.Cleanup(cancel)
	s, err := c.Subscribe(ctx, r)
	if err != nil {
		return nil, err
	}
	t.Cleanup(func() { _ = s.Close() })
	if !s.Receive() {
		return nil, s.Err()
	}
	return s, nil
}

// User ids that look like keys or patterns are ids like others.
func TestOddUserIDsArePassedOn(t *testing.T) {
	t.Parallel()
	b := setup(t, nil)
	ids := []string{"a:b", "*", "[a-z]?", "nan", "{p1}:log", "<b>&", strings.Repeat("u", 128)}
	b.eachPresence(func(t *testing.T, c parleyv1connect.PresenceServiceClient) {
		receive(t, connectTo(t, c, device(func(r *parleyv1.ConnectRequest) { r.Watch, r.DeviceId = ids, "nan" })))
		if diff := cmp.Diff(ids, b.presence.request().Watch); diff != "" {
			t.Error(diff)
		}
		res, err := c.GetPresence(t.Context(), &parleyv1.GetPresenceRequest{UserIds: ids})
		if err != nil {
			t.Fatal(err)
		}
		for i, state := range res.GetPresence() {
			if state.GetUserId() != ids[i] {
				t.Errorf("%q is %q", ids[i], state.GetUserId())
			}
		}
	})
}

// A call requires its action of the capability presence, and the refusal names it. A Subscribe with
// presence is refused as a whole.
func TestAccessToPresence(t *testing.T) {
	t.Parallel()
	b := setup(t, nil)
	b.presence.list = func(presence.ListPosition, int) ([]presence.UserState, presence.ListPosition, error) {
		return nil, presence.ListPosition{}, nil
	}
	id := strings.Repeat("A", 39)
	ctx := t.Context()
	unary := func(call func(c parleyv1connect.PresenceServiceClient) error) func(token string) error {
		return func(token string) error { return call(b.presenceClient(1, token)) }
	}
	streams := func(r *parleyv1.ConnectRequest) []func(token string) error {
		return []func(token string) error{
			func(token string) error {
				s := connectTo(t, b.presenceClient(1, token), r)
				if s.Receive() {
					return nil
				}
				return s.Err()
			},
			func(token string) error {
				_, err := receiveSubscribe(t, b.client(1, token), &parleyv1.SubscribeRequest{Presence: r})
				return err
			},
		}
	}
	for name, c := range map[string]struct {
		calls []func(token string) error
		// any are the actions of which one is enough; with is what the caller has in every case.
		any, with []ident.Action
	}{
		"connect":   {streams(device(nil)), []ident.Action{ident.Connect}, nil},
		"watching":  {streams(device(func(r *parleyv1.ConnectRequest) { r.Watch = []string{"bob"} })), []ident.Action{ident.Watch}, []ident.Action{ident.Connect}},
		"channels":  {streams(device(func(r *parleyv1.ConnectRequest) { r.WatchChannels = []string{"room"} })), []ident.Action{ident.Watch}, []ident.Action{ident.Connect}},
		"visibly":   {streams(device(func(r *parleyv1.ConnectRequest) { r.Watch = []string{"bob"} })), []ident.Action{ident.Connect}, []ident.Action{ident.Watch}},
		"invisibly": {streams(&parleyv1.ConnectRequest{Invisible: true}), []ident.Action{ident.Watch}, nil},
		"update watch": {[]func(string) error{unary(func(c parleyv1connect.PresenceServiceClient) error {
			_, err := c.UpdateWatch(ctx, &parleyv1.UpdateWatchRequest{StreamId: id})
			return err
		})}, []ident.Action{ident.Watch}, nil},
		"watch channel": {[]func(string) error{unary(func(c parleyv1connect.PresenceServiceClient) error {
			_, err := c.WatchChannel(ctx, &parleyv1.WatchChannelRequest{StreamId: id, ChannelId: "room"})
			return err
		})}, []ident.Action{ident.Watch}, nil},
		"unwatch channel": {[]func(string) error{unary(func(c parleyv1connect.PresenceServiceClient) error {
			_, err := c.UnwatchChannel(ctx, &parleyv1.UnwatchChannelRequest{StreamId: id, ChannelId: "room"})
			return err
		})}, []ident.Action{ident.Watch}, nil},
		"background": {[]func(string) error{unary(func(c parleyv1connect.PresenceServiceClient) error {
			_, err := c.SetBackground(ctx, &parleyv1.SetBackgroundRequest{StreamId: id})
			return err
		})}, []ident.Action{ident.Connect}, nil},
		"disconnect": {[]func(string) error{unary(func(c parleyv1connect.PresenceServiceClient) error {
			_, err := c.Disconnect(ctx, &parleyv1.DisconnectRequest{StreamId: id})
			return err
		})}, []ident.Action{ident.Connect, ident.Watch}, nil},
		"get": {[]func(string) error{unary(func(c parleyv1connect.PresenceServiceClient) error {
			_, err := c.GetPresence(ctx, &parleyv1.GetPresenceRequest{UserIds: []string{"bob"}})
			return err
		})}, []ident.Action{ident.Watch}, nil},
		"list": {[]func(string) error{unary(func(c parleyv1connect.PresenceServiceClient) error {
			_, err := c.ListOnlineUsers(ctx, &parleyv1.ListOnlineUsersRequest{})
			return err
		})}, []ident.Action{ident.List}, nil},
	} {
		for _, call := range c.calls {
			for _, action := range ident.PresenceActions {
				err := call(b.mintAs(present("ada", append(slices.Clip(c.with), action)...)))
				if slices.Contains(c.any, action) {
					if err != nil {
						t.Errorf("%s with %s: %v", name, action, err)
					}
					continue
				}
				wantRefusal(t, fmt.Sprintf("%s with %s", name, action), err, connect.CodePermissionDenied, "CAPABILITY_MISSING", "")
				if want := fmt.Sprintf(`"presence" with the action %q`, c.any[0]); !strings.Contains(err.Error(), want) {
					t.Errorf("%s with %s: %v does not name %s", name, action, err, want)
				}
			}
		}
	}
	_, err := b.presenceClient(0, b.mintAs(present("ada", ident.Watch))).WatchChannel(ctx, &parleyv1.WatchChannelRequest{StreamId: id, ChannelId: "hall"})
	wantRefusal(t, "another channel", err, connect.CodePermissionDenied, "CAPABILITY_MISSING", "channel_id")
	// The action list exempts from the rule about whom one may watch.
	token := b.mintAs(present("ada", ident.Watch, ident.List))
	if _, err := b.presenceClient(0, token).GetPresence(ctx, &parleyv1.GetPresenceRequest{UserIds: []string{"x-men"}}); err != nil {
		t.Error(err)
	}
}
