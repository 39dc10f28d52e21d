package servicetest

import (
	"fmt"
	"slices"
	"strings"

	"connectrpc.com/connect"

	parleyv1 "github.com/parleyhq/parley/gen/go/parley/v1"
)

var (
	noChannel = refusal{connect.CodeNotFound, "CHANNEL_NOT_FOUND", "channel_id", 0}
	notMember = refusal{connect.CodePermissionDenied, "NOT_MEMBER", "", 0}
	noManage  = refusal{connect.CodePermissionDenied, "CAPABILITY_MISSING", "", 0}
)

// user returns a caller whose token has the actions send, history and subscribe, but not manage,
// moderate or send_as.
func (e *env) user(name string) *caller {
	e.Helper()
	return e.as(e.name(name), "send", "history", "subscribe")
}

func usersOf(callers ...*caller) []*parleyv1.ChannelMember {
	all := make([]*parleyv1.ChannelMember, len(callers))
	for i, c := range callers {
		all[i] = &parleyv1.ChannelMember{UserId: c.user}
	}
	return all
}

// create creates a members-only channel as ann, with the callers as members.
func (e *env) create(channel string, callers ...*caller) {
	e.Helper()
	e.no(errOf(e.ann.CreateChannel(e.ctx, &parleyv1.CreateChannelRequest{
		ChannelId: channel, MembersOnly: true, Members: usersOf(callers...),
	})))
}

// membersOf returns the names of the members in the listed order, with a "|" after each page.
func (e *env) membersOf(channel string) string {
	e.Helper()
	var out strings.Builder
	for token := ""; ; {
		r, err := e.ann.ListMembers(e.ctx, &parleyv1.ListMembersRequest{ChannelId: channel, PageSize: 2, PageToken: token})
		e.no(err)
		for _, m := range r.GetMembers() {
			name, _, _ := strings.Cut(m.GetUserId(), "-")
			fmt.Fprintf(&out, "%s ", name)
			if m.GetRole() == parleyv1.MemberRole_MEMBER_ROLE_UNSPECIFIED || m.GetJoinTime() == nil || r.GetEpoch() == "" {
				e.Errorf("member %v", m)
			}
		}
		out.WriteString("|")
		if token = r.GetNextPageToken(); token == "" {
			return out.String()
		}
	}
}

func createChannel(e *env) {
	room := e.name("room")
	request := func(key string, membersOnly bool, members ...*caller) *parleyv1.CreateChannelRequest {
		return &parleyv1.CreateChannelRequest{ChannelId: room, MembersOnly: membersOnly, Members: usersOf(members...), IdempotencyKey: key}
	}
	r, err := e.ann.CreateChannel(e.ctx, request("key", true, e.bob, e.bob))
	e.no(err)
	ch := r.GetChannel()
	if r.GetDuplicate() || ch.GetChannelId() != room || !ch.GetMembersOnly() || ch.GetCreatedBy() != e.ann.user || ch.GetCreateTime() == nil ||
		ch.GetHeadSeq() != 0 || ch.GetCount() != 0 || ch.GetOldestSeq() != 1 || ch.GetEpoch() == "" || ch.GetEtag() == "" {
		e.Errorf("created %v", r)
	}
	again, err := e.ann.CreateChannel(e.ctx, request("key", true, e.ann, e.bob))
	e.no(err)
	if !again.GetDuplicate() || again.GetChannel().GetEtag() != ch.GetEtag() {
		e.Errorf("a repeat %v", again)
	}
	reused := refusal{connect.CodeAlreadyExists, "IDEMPOTENCY_KEY_REUSED", "idempotency_key", 0}
	exists := refusal{connect.CodeAlreadyExists, "CHANNEL_EXISTS", "channel_id", 0}
	e.refused("other members", errOf(e.ann.CreateChannel(e.ctx, request("key", true))), reused)
	e.refused("another kind", errOf(e.ann.CreateChannel(e.ctx, request("key", false, e.bob))), reused)
	e.refused("another key", errOf(e.ann.CreateChannel(e.ctx, request("other", true, e.bob))), exists)
	e.refused("no key", errOf(e.ann.CreateChannel(e.ctx, request("", true, e.bob))), exists)
	e.refused("another user", errOf(e.bob.CreateChannel(e.ctx, request("key", true, e.ann))), exists)
	e.say(e.ann, e.name("sent"), "one")
	e.refused("a channel that a send created", errOf(e.ann.CreateChannel(e.ctx, &parleyv1.CreateChannelRequest{ChannelId: e.name("sent")})), exists)
}

func members(e *env) {
	room := e.name("room")
	carl, dora := e.user("carl"), e.user("dora")
	e.create(room, dora, carl)
	equal(e, "members", e.membersOf(room), "ann carl |dora |")
	for range 2 {
		e.no(errOf(e.ann.AddMembers(e.ctx, &parleyv1.AddMembersRequest{ChannelId: room, Members: usersOf(e.bob, carl)})))
		equal(e, "after adding", e.membersOf(room), "ann bob |carl dora |")
	}
	for range 2 {
		e.no(errOf(e.ann.RemoveMembers(e.ctx, &parleyv1.RemoveMembersRequest{ChannelId: room, UserIds: []string{e.bob.user, dora.user}})))
		equal(e, "after removing", e.membersOf(room), "ann carl |")
	}
	none := e.name("none")
	e.refused("add to nothing", errOf(e.ann.AddMembers(e.ctx, &parleyv1.AddMembersRequest{ChannelId: none, Members: usersOf(e.bob)})), noChannel)
	e.refused("remove from nothing",
		errOf(e.ann.RemoveMembers(e.ctx, &parleyv1.RemoveMembersRequest{ChannelId: none, UserIds: []string{e.bob.user}})), noChannel)
	r, err := e.ann.ListMembers(e.ctx, &parleyv1.ListMembersRequest{ChannelId: room, PageSize: 1})
	e.no(err)
	bad := refusal{connect.CodeInvalidArgument, "PAGE_TOKEN_INVALID", "page_token", 0}
	e.refused("another list's token", errOf(e.ann.ListMembers(e.ctx, &parleyv1.ListMembersRequest{
		ChannelId: e.name("other"), PageToken: r.GetNextPageToken(),
	})), bad)
}

// roles sets roles of users, and lists them.
func roles(e *env) {
	room := e.name("room")
	carl := e.user("carl")
	e.create(room, carl)
	set := func(channel string, user *caller, role parleyv1.MemberRole) error {
		return errOf(e.ann.UpdateMember(e.ctx, &parleyv1.UpdateMemberRequest{ChannelId: channel, UserId: user.user, Role: role}))
	}
	rolesOf := func(channel string) string {
		r, err := e.ann.ListMembers(e.ctx, &parleyv1.ListMembersRequest{ChannelId: channel})
		e.no(err)
		var out []string
		for _, m := range r.GetMembers() {
			name, _, _ := strings.Cut(m.GetUserId(), "-")
			out = append(out, name+" "+strings.TrimPrefix(m.GetRole().String(), "MEMBER_ROLE_"))
		}
		return strings.Join(out, ", ")
	}
	equal(e, "after creating", rolesOf(room), "ann OWNER, carl MEMBER")
	for range 2 {
		e.no(set(room, carl, parleyv1.MemberRole_MEMBER_ROLE_MODERATOR))
		e.no(set(room, e.bob, parleyv1.MemberRole_MEMBER_ROLE_OWNER)) // was no member
		e.no(set(room, e.ann, parleyv1.MemberRole_MEMBER_ROLE_MEMBER))
	}
	e.no(errOf(e.ann.AddMembers(e.ctx, &parleyv1.AddMembersRequest{ChannelId: room, Members: usersOf(carl)}))) // keeps the role
	equal(e, "after setting roles", rolesOf(room), "ann MEMBER, bob OWNER, carl MODERATOR")
	role := refusal{connect.CodeInvalidArgument, "INVALID_FIELD", "role", 0}
	e.refused("no role", set(room, carl, parleyv1.MemberRole_MEMBER_ROLE_UNSPECIFIED), role)
	e.refused("a follower", set(room, carl, parleyv1.MemberRole_MEMBER_ROLE_FOLLOWER), role)
	e.refused("no channel", set(e.name("none"), carl, parleyv1.MemberRole_MEMBER_ROLE_OWNER), noChannel)

	open := e.name("open")
	e.say(e.ann, open, "one")
	e.no(errOf(e.bob.MarkRead(e.ctx, &parleyv1.MarkReadRequest{ChannelId: open, Seq: 1})))
	e.eventually(func() string { return strings.TrimPrefix(rolesOf(open), "ann FOLLOWER, bob FOLLOWER") })
	e.no(errOf(e.ann.AddMembers(e.ctx, &parleyv1.AddMembersRequest{ChannelId: open, Members: usersOf(e.bob)})))
	equal(e, "after adding a follower", rolesOf(open), "ann FOLLOWER, bob MEMBER")
}

// membersOfOpen adds and removes users without manage. They can add and remove only themselves.
func membersOfOpen(e *env) {
	open, closed := e.name("open"), e.name("closed")
	e.say(e.ann, open, "one")
	e.create(closed)
	carl, dora := e.user("carl"), e.user("dora")
	add := func(channel string, users ...*caller) error {
		return errOf(carl.AddMembers(e.ctx, &parleyv1.AddMembersRequest{ChannelId: channel, Members: usersOf(users...)}))
	}
	remove := func(channel string, users ...*caller) error {
		var ids []string
		for _, u := range users {
			ids = append(ids, u.user)
		}
		return errOf(carl.RemoveMembers(e.ctx, &parleyv1.RemoveMembersRequest{ChannelId: channel, UserIds: ids}))
	}
	// The send makes ann a follower, but may return before that.
	e.eventually(func() string { return strings.TrimPrefix(e.membersOf(open), "ann |") })
	e.no(add(open, carl))
	equal(e, "after joining", e.membersOf(open), "ann carl |")
	e.refused("another user", add(open, dora), noManage)
	e.refused("another user too", add(open, carl, dora), noManage)
	e.refused("a members-only channel", add(closed, carl), notMember)
	e.refused("no channel", add(e.name("none"), carl), noChannel)
	e.refused("remove another user", remove(open, e.ann), noManage)
	e.no(remove(open, carl))
	e.no(remove(e.name("none"), carl))
	equal(e, "after leaving", e.membersOf(open), "ann |")
}

func membersOnly(e *env) {
	room := e.name("room")
	carl, dora := e.user("carl"), e.user("dora")
	e.create(room, carl)
	sent := e.say(carl, room, "one")
	e.say(e.bob, room, "a manager need not be a member")
	e.refused("send", errOf(dora.SendMessage(e.ctx, &parleyv1.SendMessageRequest{ChannelId: room, Content: "x"})), notMember)
	e.refused("list", errOf(dora.ListMessages(e.ctx, &parleyv1.ListMessagesRequest{ChannelId: room})), notMember)
	e.refused("get", errOf(dora.GetMessage(e.ctx, &parleyv1.GetMessageRequest{ChannelId: room, MsgId: sent.GetMsgId()})), notMember)
	e.refused("edit", errOf(dora.EditMessage(e.ctx, &parleyv1.EditMessageRequest{ChannelId: room, MsgId: sent.GetMsgId(), Content: "x"})), notMember)
	e.refused("recall", errOf(dora.RecallMessage(e.ctx, &parleyv1.RecallMessageRequest{ChannelId: room, MsgId: sent.GetMsgId()})), notMember)
	e.refused("members", errOf(dora.ListMembers(e.ctx, &parleyv1.ListMembersRequest{ChannelId: room})), notMember)
	e.refused("mark", errOf(dora.MarkRead(e.ctx, &parleyv1.MarkReadRequest{ChannelId: room, Seq: 1})), notMember)
	e.refused("a manager's mark", errOf(e.bob.MarkRead(e.ctx, &parleyv1.MarkReadRequest{ChannelId: room, Seq: 1})), notMember)
	e.refused("typing", errOf(dora.SendTyping(e.ctx, &parleyv1.SendTypingRequest{ChannelId: room})), notMember)
	res, err := dora.SendMessages(e.ctx, &parleyv1.SendMessagesRequest{Messages: []*parleyv1.SendMessageRequest{{ChannelId: room, Content: "x"}}})
	e.no(err)
	e.refusedItem("send a batch", res.GetResults()[0].GetError(), notMember)
	second := e.name("second")
	e.create(second)
	stream, err := dora.Subscribe(e.ctx, &parleyv1.SubscribeRequest{Channels: []*parleyv1.ChannelPosition{
		live(e.name("open")), live(room), live(second),
	}})
	for err == nil && stream.Receive() {
		e.Errorf("frame %v", stream.Msg())
	}
	if err == nil {
		err = stream.Err()
	}
	e.refused("subscribe", err, refusal{notMember.code, notMember.reason, "channels[1].channel_id", 0})
	var named []string
	for _, p := range detailOf(err).GetPositions() {
		named = append(named, p.GetChannelId())
	}
	if !slices.Equal(named, []string{room, second}) {
		e.Errorf("refused channels %v", named)
	}
	s := e.subscribe(dora)
	_, err = dora.UpdateSubscription(e.ctx, &parleyv1.UpdateSubscriptionRequest{StreamId: s.id, Add: []*parleyv1.ChannelPosition{live(room)}})
	e.refused("add to a stream", err, refusal{notMember.code, notMember.reason, "add[0].channel_id", 0})
}

// lostChannel removes a member that has a live stream, which must lose the channel but continue.
// Added again, the member must be able to follow the channel on the same stream.
func lostChannel(e *env) {
	room, other := e.name("room"), e.name("other")
	carl := e.user("carl")
	e.create(room, carl)
	s := e.subscribe(carl, live(room))
	s.want("state 0..0 oldest 1 head 0 count 0 recovered false")
	managed := e.subscribe(e.bob, live(room))
	managed.want("state 0..0 oldest 1 head 0 count 0 recovered false")
	e.no(errOf(e.ann.RemoveMembers(e.ctx, &parleyv1.RemoveMembersRequest{ChannelId: room, UserIds: []string{carl.user}})))
	s.want("lost 0..0 NOT_MEMBER")
	e.say(e.ann, room, "unseen")
	managed.want("sent 1..1 #1 unseen")
	e.no(errOf(carl.UpdateSubscription(e.ctx, &parleyv1.UpdateSubscriptionRequest{
		StreamId: s.id, Add: []*parleyv1.ChannelPosition{live(other)},
	})))
	s.want("state 0..0 oldest 1 head 0 count 0 recovered false")
	e.no(errOf(e.ann.AddMembers(e.ctx, &parleyv1.AddMembersRequest{ChannelId: room, Members: usersOf(carl)})))
	e.no(errOf(carl.UpdateSubscription(e.ctx, &parleyv1.UpdateSubscriptionRequest{
		StreamId: s.id, Add: []*parleyv1.ChannelPosition{from(room, 0)},
	})))
	s.want("state 0..0 oldest 1 head 1 count 1 recovered true", "sent 1..1 #1 unseen")
}

func readMarks(e *env) {
	room := e.name("room")
	sent := e.say(e.ann, room, "1")
	for _, content := range []string{"2", "3"} {
		e.say(e.ann, room, content)
	}
	e.no(errOf(e.ann.EditMessage(e.ctx, &parleyv1.EditMessageRequest{ChannelId: room, MsgId: sent.GetMsgId(), Content: "1!"})))
	mark := func(seq int64) string {
		r, err := e.bob.MarkRead(e.ctx, &parleyv1.MarkReadRequest{ChannelId: room, Seq: seq})
		e.no(err)
		if r.GetEpoch() != sent.GetEpoch() {
			e.Errorf("epoch %q", r.GetEpoch())
		}
		return fmt.Sprintf("%d unread %d", r.GetReadSeq(), r.GetUnread())
	}
	equal(e, "the first mark", mark(1), "1 unread 2")
	equal(e, "a later mark", mark(3), "3 unread 0")
	equal(e, "an earlier mark", mark(2), "3 unread 0")
	e.refused("beyond the end", errOf(e.bob.MarkRead(e.ctx, &parleyv1.MarkReadRequest{ChannelId: room, Seq: 5})),
		refusal{connect.CodeOutOfRange, "POSITION_OUT_OF_RANGE", "seq", 4})
	e.eventually(func() string {
		r, err := e.ann.ListMembers(e.ctx, &parleyv1.ListMembersRequest{ChannelId: room})
		e.no(err)
		cursors := make(map[string]int64)
		for _, m := range r.GetMembers() {
			cursors[m.GetUserId()] = m.GetReadSeq()
		}
		if cursors[e.ann.user] != 3 || cursors[e.bob.user] != 3 {
			return fmt.Sprintf("cursors %v", cursors)
		}
		return ""
	})
}

func listChannels(e *env) {
	a, b, c := e.name("a"), e.name("b"), e.name("c")
	reader := e.user("reader")
	e.create(b, reader)
	e.no(errOf(e.ann.CreateChannel(e.ctx, &parleyv1.CreateChannelRequest{ChannelId: c, Members: usersOf(reader)})))
	sent := e.say(e.ann, b, "one")
	e.say(e.ann, b, "two")
	e.no(errOf(e.ann.EditMessage(e.ctx, &parleyv1.EditMessageRequest{ChannelId: b, MsgId: sent.GetMsgId(), Content: "one!"})))
	e.say(reader, a, "mine")
	channels := func() string {
		var out strings.Builder
		for token := ""; ; {
			r, err := reader.ListChannels(e.ctx, &parleyv1.ListChannelsRequest{PageSize: 2, PageToken: token})
			e.no(err)
			for _, mine := range r.GetChannels() {
				ch := mine.GetChannel()
				fmt.Fprintf(&out, "%s head %d count %d read %d unread %d %s ", strings.TrimSuffix(ch.GetChannelId(), "-"+e.id), ch.GetHeadSeq(),
					ch.GetCount(), mine.GetReadSeq(), mine.GetUnread(), mine.GetLastMessage().GetContent())
			}
			out.WriteString("|")
			if token = r.GetNextPageToken(); token == "" {
				return out.String()
			}
		}
	}
	want := "a head 1 count 1 read 1 unread 0 mine b head 3 count 2 read 0 unread 2 two |c head 0 count 0 read 0 unread 0  |"
	e.eventually(func() string {
		if got := channels(); got != want {
			return fmt.Sprintf("got %q, want %q", got, want)
		}
		return ""
	})
	e.no(errOf(reader.RemoveMembers(e.ctx, &parleyv1.RemoveMembersRequest{ChannelId: a, UserIds: []string{reader.user}})))
	e.no(errOf(e.ann.RemoveMembers(e.ctx, &parleyv1.RemoveMembersRequest{ChannelId: b, UserIds: []string{reader.user}})))
	equal(e, "after leaving", channels(), "c head 0 count 0 read 0 unread 0  |")
}
