package rpc

import (
	"context"
	"errors"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"connectrpc.com/connect"
	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/testing/protocmp"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/fieldmaskpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	parleyv1 "github.com/parleyhq/parley/gen/go/parley/v1"
	"github.com/parleyhq/parley/gen/go/parley/v1/parleyv1connect"
	"github.com/parleyhq/parley/server/internal/channel"
	"github.com/parleyhq/parley/server/internal/fault"
	"github.com/parleyhq/parley/server/internal/ident"
	"github.com/parleyhq/parley/server/internal/message"
)

// channelArgs holds the arguments that reached fakeChannels.
type channelArgs struct {
	Create    channel.CreateRequest
	Update    channel.UpdateRequest
	ChannelID string
	UserIDs   []string
	Role      channel.Role
	Etag      string
	PageSize  int
	PageToken string
	Seq       int64
}

func someRow(id string) channel.Row {
	return channel.Row{
		ChannelID: id, MembersOnly: true, CreatedBy: "ada", CreatedAt: someTime,
		Numbers: channel.Numbers{Head: 9, Count: 7, LastMessage: 8},
	}
}

func wireChannel(id string) *parleyv1.ChannelInfo {
	return &parleyv1.ChannelInfo{
		ChannelId: id, MembersOnly: true, CreatedBy: "ada", CreateTime: timestamppb.New(someTime), HeadSeq: 9, Count: 7,
		OldestSeq: 1, Epoch: "e1", Etag: (&channel.Row{ChannelID: id, MembersOnly: true, CreatedAt: someTime}).Etag(),
	}
}

// wireMembers returns users as members of a request. The first one has no role, which means the
// default role.
func wireMembers(userIDs ...string) []*parleyv1.ChannelMember {
	members := make([]*parleyv1.ChannelMember, len(userIDs))
	for i, id := range userIDs {
		members[i] = &parleyv1.ChannelMember{UserId: id, Role: parleyv1.MemberRole_MEMBER_ROLE_MEMBER}
		if i == 0 {
			members[i].Role = parleyv1.MemberRole_MEMBER_ROLE_UNSPECIFIED
		}
	}
	return members
}

// answer sets all functions of the fake: they pass their arguments to got, and return a fixed
// result or err.
func (f *fakeChannels) answer(got func(context.Context, channelArgs), err error) {
	f.create = func(ctx context.Context, r channel.CreateRequest) (channel.Row, bool, error) {
		got(ctx, channelArgs{Create: r})
		return someRow(r.ChannelID), r.IdempotencyKey != "", err
	}
	f.add = func(ctx context.Context, channelID string, userIDs []string) error {
		got(ctx, channelArgs{ChannelID: channelID, UserIDs: userIDs})
		return err
	}
	f.remove = f.add
	f.setRole = func(ctx context.Context, channelID, userID string, role channel.Role) error {
		got(ctx, channelArgs{ChannelID: channelID, UserIDs: []string{userID}, Role: role})
		return err
	}
	f.del = func(ctx context.Context, channelID, etag string) error {
		got(ctx, channelArgs{ChannelID: channelID, Etag: etag})
		return err
	}
	f.get = func(ctx context.Context, channelID string) (channel.Row, error) {
		got(ctx, channelArgs{ChannelID: channelID})
		row := someRow(channelID)
		row.Boundary = message.Boundary{Oldest: 4, Expired: 3}
		return row, err
	}
	f.update = func(ctx context.Context, r channel.UpdateRequest) (channel.Row, error) {
		got(ctx, channelArgs{Update: r})
		row := someRow(r.ChannelID)
		row.Retention = r.Retention
		return row, err
	}
	f.members = func(ctx context.Context, channelID string, pageSize int, pageToken string) (channel.MemberPage, error) {
		got(ctx, channelArgs{ChannelID: channelID, PageSize: pageSize, PageToken: pageToken})
		return channel.MemberPage{NextPageToken: "next", Members: []channel.Member{
			{ChannelID: channelID, UserID: "bob", Role: channel.RoleMember, JoinedAt: someTime, Cursor: channel.Cursor{Seq: 5, Count: 4}},
		}}, err
	}
	f.mine = func(ctx context.Context, pageSize int, pageToken string) (channel.UserChannelPage, error) {
		got(ctx, channelArgs{PageSize: pageSize, PageToken: pageToken})
		last := someEvent(message.KindSend, "a", 8).Message
		return channel.UserChannelPage{NextPageToken: "next", Channels: []channel.UserChannel{
			{Row: someRow("a"), Read: channel.Cursor{Seq: 5, Count: 4}, Unread: 3, LastMessage: &last}, {Row: someRow("b")},
		}}, err
	}
	f.markRead = func(ctx context.Context, channelID string, seq int64) (channel.Cursor, int64, error) {
		got(ctx, channelArgs{ChannelID: channelID, Seq: seq})
		return channel.Cursor{Seq: 6, Count: 5}, 2, err
	}
	f.typing = func(ctx context.Context, channelID string) error {
		got(ctx, channelArgs{ChannelID: channelID})
		return err
	}
}

var longestChannel, longestKey = strings.Repeat("c", 128), strings.Repeat("~", 128)

// channelCall is a valid call about channels, with the expected response, and the arguments that
// the channel service must receive.
type channelCall struct {
	name string
	req  proto.Message
	resp proto.Message
	args channelArgs
}

func channelCalls() []channelCall {
	users := []string{"bob", "auth0|7", "bob"}
	policy := &parleyv1.ChannelRetention{MaxAge: durationpb.New(time.Hour), MaxMessages: 10, MaxBytes: 1 << 20}
	trimmed, retained := wireChannel("a"), wireChannel("a")
	trimmed.OldestSeq, trimmed.ExpiredCount, retained.Retention = 4, 3, policy
	return []channelCall{
		{
			"CreateChannel", &parleyv1.CreateChannelRequest{ChannelId: "a", MembersOnly: true, Members: wireMembers(users...)},
			&parleyv1.CreateChannelResponse{Channel: wireChannel("a")},
			channelArgs{Create: channel.CreateRequest{ChannelID: "a", MembersOnly: true, UserIDs: users}},
		},
		{
			"CreateChannel again", &parleyv1.CreateChannelRequest{ChannelId: longestChannel, IdempotencyKey: longestKey},
			&parleyv1.CreateChannelResponse{Channel: wireChannel(longestChannel), Duplicate: true},
			channelArgs{Create: channel.CreateRequest{ChannelID: longestChannel, UserIDs: []string{}, IdempotencyKey: longestKey}},
		},
		{
			"GetChannel", &parleyv1.GetChannelRequest{ChannelId: "a"}, &parleyv1.GetChannelResponse{Channel: trimmed},
			channelArgs{ChannelID: "a"},
		},
		{
			"UpdateChannel", &parleyv1.UpdateChannelRequest{
				ChannelId: "a", Retention: policy, Etag: "e", UpdateMask: &fieldmaskpb.FieldMask{Paths: []string{"retention"}},
			},
			&parleyv1.UpdateChannelResponse{Channel: retained},
			channelArgs{Update: channel.UpdateRequest{
				ChannelID: "a", Etag: "e", SetRetention: true, Retention: &channel.Retention{MaxAge: time.Hour, MaxMessages: 10, MaxBytes: 1 << 20},
			}},
		},
		{
			"UpdateChannel to the default", &parleyv1.UpdateChannelRequest{
				ChannelId: "a", UpdateMask: &fieldmaskpb.FieldMask{Paths: []string{"retention"}},
			},
			&parleyv1.UpdateChannelResponse{Channel: wireChannel("a")},
			channelArgs{Update: channel.UpdateRequest{ChannelID: "a", SetRetention: true}},
		},
		{
			"UpdateChannel to members only", &parleyv1.UpdateChannelRequest{
				ChannelId: "a", MembersOnly: proto.Bool(true), UpdateMask: &fieldmaskpb.FieldMask{Paths: []string{"members_only"}},
			},
			&parleyv1.UpdateChannelResponse{Channel: wireChannel("a")},
			channelArgs{Update: channel.UpdateRequest{ChannelID: "a", MembersOnly: proto.Bool(true)}},
		},
		{
			"DeleteChannel", &parleyv1.DeleteChannelRequest{ChannelId: "a", Etag: "e"}, &parleyv1.DeleteChannelResponse{},
			channelArgs{ChannelID: "a", Etag: "e"},
		},
		{
			"AddMembers", &parleyv1.AddMembersRequest{ChannelId: "a", Members: wireMembers(users...)}, &parleyv1.AddMembersResponse{},
			channelArgs{ChannelID: "a", UserIDs: users},
		},
		{
			"RemoveMembers", &parleyv1.RemoveMembersRequest{ChannelId: "a", UserIds: users},
			&parleyv1.RemoveMembersResponse{},
			channelArgs{ChannelID: "a", UserIDs: users},
		},
		{
			"UpdateMember", &parleyv1.UpdateMemberRequest{ChannelId: "a", UserId: "bob", Role: parleyv1.MemberRole_MEMBER_ROLE_OWNER},
			&parleyv1.UpdateMemberResponse{},
			channelArgs{ChannelID: "a", UserIDs: []string{"bob"}, Role: channel.Owner},
		},
		{
			"ListMembers", &parleyv1.ListMembersRequest{ChannelId: "a", PageSize: 1000, PageToken: "t"},
			&parleyv1.ListMembersResponse{NextPageToken: "next", Epoch: "e1", Members: []*parleyv1.ChannelMember{
				{UserId: "bob", Role: parleyv1.MemberRole_MEMBER_ROLE_MEMBER, JoinTime: timestamppb.New(someTime), ReadSeq: 5},
			}},
			channelArgs{ChannelID: "a", PageSize: 1000, PageToken: "t"},
		},
		{
			"ListMembers with a huge page", &parleyv1.ListMembersRequest{ChannelId: "a", PageSize: 1e9},
			&parleyv1.ListMembersResponse{NextPageToken: "next", Epoch: "e1", Members: []*parleyv1.ChannelMember{
				{UserId: "bob", Role: parleyv1.MemberRole_MEMBER_ROLE_MEMBER, JoinTime: timestamppb.New(someTime), ReadSeq: 5},
			}},
			channelArgs{ChannelID: "a", PageSize: 1000},
		},
		{
			"ListChannels", &parleyv1.ListChannelsRequest{PageSize: 200, PageToken: "t"},
			&parleyv1.ListChannelsResponse{NextPageToken: "next", Channels: []*parleyv1.UserChannel{
				{Channel: wireChannel("a"), ReadSeq: 5, Unread: 3, LastMessage: wireMessage("a", 8)}, {Channel: wireChannel("b")},
			}},
			channelArgs{PageSize: 200, PageToken: "t"},
		},
		{
			"MarkRead", &parleyv1.MarkReadRequest{ChannelId: "a", Seq: 5},
			&parleyv1.MarkReadResponse{ReadSeq: 6, Unread: 2, Epoch: "e1"},
			channelArgs{ChannelID: "a", Seq: 5},
		},
		{
			"SendTyping", &parleyv1.SendTypingRequest{ChannelId: "a"}, &parleyv1.SendTypingResponse{},
			channelArgs{ChannelID: "a"},
		},
	}
}

// allActions are capabilities for all actions on all channels.
var allActions = []ident.Capability{{Pattern: "*", Actions: ident.ChannelActions}}

// callChannel makes the call of MessageService that has this request.
func callChannel(ctx context.Context, c parleyv1connect.MessageServiceClient, req proto.Message) (proto.Message, error) {
	switch r := req.(type) {
	case *parleyv1.CreateChannelRequest:
		return c.CreateChannel(ctx, r)
	case *parleyv1.GetChannelRequest:
		return c.GetChannel(ctx, r)
	case *parleyv1.UpdateChannelRequest:
		return c.UpdateChannel(ctx, r)
	case *parleyv1.DeleteChannelRequest:
		return c.DeleteChannel(ctx, r)
	case *parleyv1.AddMembersRequest:
		return c.AddMembers(ctx, r)
	case *parleyv1.UpdateMemberRequest:
		return c.UpdateMember(ctx, r)
	case *parleyv1.RemoveMembersRequest:
		return c.RemoveMembers(ctx, r)
	case *parleyv1.ListMembersRequest:
		return c.ListMembers(ctx, r)
	case *parleyv1.ListChannelsRequest:
		return c.ListChannels(ctx, r)
	case *parleyv1.MarkReadRequest:
		return c.MarkRead(ctx, r)
	case *parleyv1.SendTypingRequest:
		return c.SendTyping(ctx, r)
	case *parleyv1.UpdateSubscriptionRequest:
		return c.UpdateSubscription(ctx, r)
	default:
		return nil, errors.New("no such call")
	}
}

func TestChannelCalls(t *testing.T) {
	t.Parallel()
	b := setup(t, nil)
	b.token = b.mintAs(&ident.Principal{Subject: "ada", Channels: allActions})
	var got channelArgs
	b.channels.answer(func(ctx context.Context, args channelArgs) {
		got = args
		if p := ident.FromContext(ctx); p == nil || p.Subject != "ada" {
			t.Errorf("principal is %+v", p)
		}
	}, nil)
	b.each(func(t *testing.T, c parleyv1connect.MessageServiceClient) {
		for _, call := range channelCalls() {
			resp, err := callChannel(t.Context(), c, call.req)
			if err != nil {
				t.Errorf("%s: %v", call.name, err)
				continue
			}
			if diff := cmp.Diff(call.resp, resp, protocmp.Transform()); diff != "" {
				t.Errorf("%s answers:\n%s", call.name, diff)
			}
			if diff := cmp.Diff(call.args, got); diff != "" {
				t.Errorf("%s passes on:\n%s", call.name, diff)
			}
		}
	})
	if lines := b.logged.lines(t); len(lines) > 0 {
		t.Errorf("good calls are logged: %v", lines)
	}
}

// A list of users of the maximum length is accepted, also in JSON with every byte escaped. A longer
// one is refused and never reaches the domain.
func TestManyUsers(t *testing.T) {
	t.Parallel()
	b := setup(t, nil)
	b.token = b.mintAs(&ident.Principal{Subject: "ada", Channels: allActions})
	n := 0
	b.channels.answer(func(_ context.Context, args channelArgs) { n = len(args.UserIDs) + len(args.Create.UserIDs) }, nil)
	users := make([]string, mostUsers)
	for i := range users {
		users[i] = strings.Repeat(`"`, 128)
	}
	b.each(func(t *testing.T, c parleyv1connect.MessageServiceClient) {
		for _, req := range []proto.Message{
			&parleyv1.CreateChannelRequest{ChannelId: "a", Members: wireMembers(users...)},
			&parleyv1.AddMembersRequest{ChannelId: "a", Members: wireMembers(users...)},
			&parleyv1.RemoveMembersRequest{ChannelId: "a", UserIds: users},
		} {
			n = 0
			if _, err := callChannel(t.Context(), c, req); err != nil || n != mostUsers {
				t.Errorf("%T: %v, %d users", req, err, n)
			}
		}
	})
}

// A fault that the domain returns reaches the client unchanged.
func TestChannelFaults(t *testing.T) {
	t.Parallel()
	b := setup(t, nil)
	b.token = b.mintAs(&ident.Principal{Subject: "ada", Channels: allActions})
	outOfRange := fault.New(fault.OutOfRange, fault.PositionOutOfRange, "beyond the head")
	outOfRange.Field, outOfRange.Limit = "seq", 9
	for _, f := range []*fault.Error{
		fault.New(fault.PermissionDenied, fault.CapabilityMissing, "no"),
		fault.New(fault.PermissionDenied, fault.NotMember, "no"),
		fault.New(fault.AlreadyExists, fault.ChannelExists, "no"),
		fault.New(fault.AlreadyExists, fault.IdempotencyKeyReused, "no"),
		fault.New(fault.NotFound, fault.ChannelNotFound, "no"),
		fault.New(fault.InvalidArgument, fault.PageTokenInvalid, "no"),
		fault.New(fault.PermissionDenied, fault.PageTokenForeign, "no"),
		fault.New(fault.Unavailable, fault.StoreUnavailable, "away"),
		outOfRange,
	} {
		b.channels.answer(func(context.Context, channelArgs) {}, f)
		b.each(func(t *testing.T, c parleyv1connect.MessageServiceClient) {
			for _, call := range channelCalls() {
				_, err := callChannel(t.Context(), c, call.req)
				d, _ := details(t, err)
				if connect.CodeOf(err) != codes[f.Kind] || d.GetReason() != reasonOf(f.Reason) || d.GetField() != f.Field ||
					d.GetLimit() != f.Limit || d.GetRetryable() != f.Retryable() {
					t.Errorf("%s, %s: %v, %v", call.name, f.Reason, err, d)
				}
				b.logged.oneLine(t)
			}
		})
	}
}

// A call without a token is refused and never reaches the domain, regardless of its body.
func TestChannelCallsRequireAToken(t *testing.T) {
	t.Parallel()
	b := setup(t, nil) // its fakes panic
	for i, p := range protocols {
		for _, call := range channelCalls() {
			_, err := callChannel(t.Context(), b.client(i, ""), call.req)
			if d, _ := details(t, err); connect.CodeOf(err) != connect.CodeUnauthenticated ||
				d.GetReason() != parleyv1.ErrorReason_ERROR_REASON_TOKEN_INVALID {
				t.Errorf("%s of %s: %v, %v", p.name, call.name, err, d)
			}
		}
	}
}

// Calls that only read can be made by GET, calls that change something can't.
func TestGetOfChannels(t *testing.T) {
	t.Parallel()
	b := setup(t, nil)
	b.channels.answer(func(context.Context, channelArgs) {}, nil)
	for path, want := range map[string]int{
		parleyv1connect.MessageServiceListMembersProcedure:   http.StatusOK,
		parleyv1connect.MessageServiceListChannelsProcedure:  http.StatusOK,
		parleyv1connect.MessageServiceCreateChannelProcedure: http.StatusMethodNotAllowed,
		parleyv1connect.MessageServiceAddMembersProcedure:    http.StatusMethodNotAllowed,
		parleyv1connect.MessageServiceRemoveMembersProcedure: http.StatusMethodNotAllowed,
		parleyv1connect.MessageServiceMarkReadProcedure:      http.StatusMethodNotAllowed,
		parleyv1connect.MessageServiceSendTypingProcedure:    http.StatusMethodNotAllowed,
	} {
		query := url.Values{"connect": {"v1"}, "encoding": {"json"}, "message": {`{"channelId":"a"}`}}
		resp, text := b.raw(b.h1, http.MethodGet, path+"?"+query.Encode(), http.Header{"Authorization": {"Bearer " + b.token}}, http.NoBody)
		if resp.StatusCode != want || want == http.StatusOK && !strings.Contains(text, `"next"`) {
			t.Errorf("%s: %d %s", path, resp.StatusCode, text)
		}
	}
}

// Each invalid request is refused before it reaches the domain. Its error names the field and the
// limit, and the log has one line.
func TestHostileChannelCalls(t *testing.T) {
	t.Parallel()
	b := setup(t, nil) // its fakes panic
	rows := hostileRows()
	b.each(func(t *testing.T, c parleyv1connect.MessageServiceClient) {
		for _, row := range rows {
			start := time.Now()
			_, err := callChannel(t.Context(), c, row.req)
			d, _ := details(t, err)
			if connect.CodeOf(err) != connect.CodeInvalidArgument || d.GetReason() != parleyv1.ErrorReason_ERROR_REASON_INVALID_FIELD ||
				d.GetField() != row.field || d.GetLimit() != row.limit || d.GetRetryable() || time.Since(start) > 5*time.Second {
				t.Errorf("%T %s: %v, %v", row.req, row.name, err, d)
			}
			b.logged.oneLine(t)
		}
		// A request that is too large, or has a string that is not UTF-8, is refused with an error of its
		// own.
		_, err := c.AddMembers(t.Context(), &parleyv1.AddMembersRequest{ChannelId: "a", Members: wireMembers(strings.Repeat("u", 3<<20))})
		if connect.CodeOf(err) != connect.CodeResourceExhausted {
			t.Errorf("3 MiB: %v", err)
		}
		b.logged.oneLine(t)
		_, err = c.ListMembers(t.Context(), &parleyv1.ListMembersRequest{ChannelId: "a", PageToken: strings.Repeat("t", 70<<10)})
		if connect.CodeOf(err) != connect.CodeResourceExhausted {
			t.Errorf("70 KiB of page token: %v", err)
		}
		b.logged.oneLine(t)
	})
}

// hostileRow is a request with one invalid field, and the field and limit of the expected error.
type hostileRow struct {
	name  string
	req   proto.Message
	field string
	limit int64
}

func hostileRows() []hostileRow {
	var rows []hostileRow
	for name, id := range map[string]string{
		"no id": "", "129 characters": strings.Repeat("c", 129), "a space": "a b", "a pattern": "a*", "a subject": "a.b", "another script": "канал",
		"a brace": "a}b", "a path": "../a", "a line": "a\n", "a colour": "\x1b[31m", "an override": "a\u202eb",
	} {
		for _, req := range []proto.Message{
			&parleyv1.CreateChannelRequest{ChannelId: id}, &parleyv1.AddMembersRequest{ChannelId: id, Members: wireMembers("u")},
			&parleyv1.RemoveMembersRequest{ChannelId: id, UserIds: []string{"u"}}, &parleyv1.ListMembersRequest{ChannelId: id},
			&parleyv1.MarkReadRequest{ChannelId: id, Seq: 1}, &parleyv1.SendTypingRequest{ChannelId: id},
		} {
			rows = append(rows, hostileRow{name, req, "channel_id", 0})
		}
	}
	// users adds a row for each call with a list of users. The refused field is the list's name and
	// at, followed by ofMember if the list is one of members.
	users := func(name, at, ofMember string, limit int64, ids ...string) {
		rows = append(rows,
			hostileRow{name, &parleyv1.CreateChannelRequest{ChannelId: "a", Members: wireMembers(ids...)}, "members" + at + ofMember, limit},
			hostileRow{name, &parleyv1.AddMembersRequest{ChannelId: "a", Members: wireMembers(ids...)}, "members" + at + ofMember, limit},
			hostileRow{name, &parleyv1.RemoveMembersRequest{ChannelId: "a", UserIds: ids}, "user_ids" + at, limit})
	}
	for name, id := range map[string]string{
		"empty": "", "a space": "a b", "another script": "Алиса", "129 characters": strings.Repeat("u", 129), "DEL": "a\x7f", "NUL": "a\x00",
		"a line": "a\n", "a wide space": "a\u00a0",
	} {
		users(name, "[1]", ".user_id", 0, "good", id)
	}
	// The length of a list is checked before its items.
	users("501 users", "", "", mostUsers, make([]string, mostUsers+1)...)
	users("15,000 users", "", "", mostUsers, make([]string, 15_000)...)
	badRole := wireMembers("a", "b")
	badRole[1].Role = parleyv1.MemberRole_MEMBER_ROLE_OWNER
	for _, key := range []string{strings.Repeat("k", 129), "a b", "a\nb", "ключ", "a\x00"} {
		rows = append(rows, hostileRow{"key " + key, &parleyv1.CreateChannelRequest{ChannelId: "a", IdempotencyKey: key}, "idempotency_key", 0})
	}
	return append(rows,
		hostileRow{"a role", &parleyv1.CreateChannelRequest{ChannelId: "a", Members: badRole}, "members[1].role", 0},
		hostileRow{"a role", &parleyv1.AddMembersRequest{ChannelId: "a", Members: badRole}, "members[1].role", 0},
		hostileRow{"no role", &parleyv1.UpdateMemberRequest{ChannelId: "a", UserId: "u"}, "role", 0},
		hostileRow{"a follower", &parleyv1.UpdateMemberRequest{ChannelId: "a", UserId: "u", Role: parleyv1.MemberRole_MEMBER_ROLE_FOLLOWER}, "role", 0},
		hostileRow{"nobody's role", &parleyv1.UpdateMemberRequest{ChannelId: "a", Role: parleyv1.MemberRole_MEMBER_ROLE_OWNER}, "user_id", 0},
		hostileRow{"a long etag", &parleyv1.DeleteChannelRequest{ChannelId: "a", Etag: strings.Repeat("e", 129)}, "etag", 128},
		hostileRow{"nobody", &parleyv1.AddMembersRequest{ChannelId: "a"}, "members", 1},
		hostileRow{"nobody", &parleyv1.RemoveMembersRequest{ChannelId: "a"}, "user_ids", 1},
		hostileRow{"a negative page", &parleyv1.ListMembersRequest{ChannelId: "a", PageSize: -1}, "page_size", 0},
		hostileRow{"a negative page", &parleyv1.ListChannelsRequest{PageSize: -1 << 31}, "page_size", 0},
		hostileRow{"a long token", &parleyv1.ListMembersRequest{ChannelId: "a", PageToken: strings.Repeat("t", 1025)}, "page_token", 1024},
		hostileRow{"a long token", &parleyv1.ListChannelsRequest{PageToken: strings.Repeat("t", 1025)}, "page_token", 1024},
		hostileRow{"a NUL in a token", &parleyv1.ListChannelsRequest{PageToken: "t\x00"}, "page_token", 0},
		hostileRow{"no seq", &parleyv1.MarkReadRequest{ChannelId: "a"}, "seq", 1},
		hostileRow{"a negative seq", &parleyv1.MarkReadRequest{ChannelId: "a", Seq: -1}, "seq", 1},
		hostileRow{"the least seq", &parleyv1.MarkReadRequest{ChannelId: "a", Seq: -1 << 63}, "seq", 1},
	)
}
