package server_test

import (
	"context"
	"testing"
	"time"

	parleyv1 "github.com/parleyhq/parley/gen/go/parley/v1"
	"github.com/parleyhq/parley/server/config"
	"github.com/parleyhq/parley/server/internal/ident"
	"github.com/parleyhq/parley/server/servertest"
)

// asMember returns a client whose token allows the actions in those channels of which the subject
// is a member and whose ids match the pattern.
func asMember(s *servertest.Server, subject, pattern string, actions ...ident.Action) client {
	return s.Client(s.MintAs(&ident.Principal{
		Subject: subject, Members: []ident.Capability{{Pattern: pattern, Actions: actions}},
	}, time.Hour))
}

// useOf returns the calls that use a channel, by name.
func useOf(ctx context.Context, t *testing.T, c client, id string) map[string]error {
	t.Helper()
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	stream, err := c.Subscribe(ctx, &parleyv1.SubscribeRequest{Channels: []*parleyv1.ChannelPosition{live(id)}})
	if err == nil { // the first frame shows whether the stream is refused
		stream.Receive()
		err = stream.Err()
		_ = stream.Close()
	}
	return map[string]error{
		"send":        callErr(c.SendMessage(ctx, &parleyv1.SendMessageRequest{ChannelId: id, Content: "x"})),
		"list":        callErr(c.ListMessages(ctx, &parleyv1.ListMessagesRequest{ChannelId: id})),
		"get":         callErr(c.GetMessage(ctx, &parleyv1.GetMessageRequest{ChannelId: id, MsgId: "m"})),
		"edit":        callErr(c.EditMessage(ctx, &parleyv1.EditMessageRequest{ChannelId: id, MsgId: "m", Content: "x"})),
		"recall":      callErr(c.RecallMessage(ctx, &parleyv1.RecallMessageRequest{ChannelId: id, MsgId: "m"})),
		"subscribe":   err,
		"members":     callErr(c.ListMembers(ctx, &parleyv1.ListMembersRequest{ChannelId: id})),
		"mark read":   callErr(c.MarkRead(ctx, &parleyv1.MarkReadRequest{ChannelId: id, Seq: 9})),
		"type":        callErr(c.SendTyping(ctx, &parleyv1.SendTypingRequest{ChannelId: id})),
		"get channel": callErr(c.GetChannel(ctx, &parleyv1.GetChannelRequest{ChannelId: id})),
	}
}

// reasonsOf returns the reasons of errors, each once.
func reasonsOf(errs map[string]error) map[parleyv1.ErrorReason][]string {
	reasons := map[parleyv1.ErrorReason][]string{}
	for name, err := range errs {
		reason, _ := reasonOf(err)
		reasons[reason] = append(reasons[reason], name)
	}
	return reasons
}

// wantReason fails the test unless all calls fail with this reason.
func wantReason(t *testing.T, what string, want parleyv1.ErrorReason, errs map[string]error) {
	t.Helper()
	if got := reasonsOf(errs); len(got) != 1 || got[want] == nil {
		t.Errorf("%s: %v, want %s", what, got, want)
	}
}

// A user whose token is for channels of which they are a member cannot take an id that is meant for
// others, nor use a channel that somebody else opened under it, nor learn which ids exist.
func TestIDsCannotBeSquatted(t *testing.T) {
	t.Parallel()
	s := servertest.Dev(t)
	admin := s.Client(s.Mint("backend", append([]ident.Action{ident.Manage}, user...)...))
	all := append([]ident.Action{ident.Moderate}, user...)
	eve, ann := asMember(s, "eve", "dm_*", all...), asMember(s, "ann", "dm_*", all...)

	send(t, admin, "dm_open", "an open channel") // anybody could send here by channel:
	if _, err := s.Client(s.Mint("eve", user...)).MarkRead(t.Context(), &parleyv1.MarkReadRequest{ChannelId: "dm_open", Seq: 1}); err != nil {
		t.Fatal(err) // eve is a follower now
	}
	create := func(id string, membersOnly bool) {
		t.Helper()
		if _, err := admin.CreateChannel(t.Context(), &parleyv1.CreateChannelRequest{ChannelId: id, MembersOnly: membersOnly, Members: membersOf("ann")}); err != nil {
			t.Fatal(err)
		}
	}
	create("dm_closed", true)
	for _, id := range []string{"dm_new", "dm_open", "dm_closed"} {
		wantReason(t, "eve in "+id, parleyv1.ErrorReason_ERROR_REASON_NOT_MEMBER, useOf(t.Context(), t, eve, id))
	}
	create("dm_new", false) // the id is still free
	wantReason(t, "eve in an open channel of others", parleyv1.ErrorReason_ERROR_REASON_NOT_MEMBER, useOf(t.Context(), t, eve, "dm_new"))
	for _, id := range []string{"dm_closed", "dm_new"} {
		errs := useOf(t.Context(), t, ann, id)
		for _, name := range []string{"send", "list", "subscribe", "members", "type", "get channel"} {
			if errs[name] != nil {
				t.Errorf("ann in %s: %s: %v", id, name, errs[name])
			}
		}
	}
	for name, err := range map[string]error{
		"create": callErr(eve.CreateChannel(t.Context(), &parleyv1.CreateChannelRequest{ChannelId: "dm_mine"})),
		"add":    callErr(eve.AddMembers(t.Context(), &parleyv1.AddMembersRequest{ChannelId: "dm_new", Members: membersOf("eve")})),
		"role":   callErr(eve.UpdateMember(t.Context(), &parleyv1.UpdateMemberRequest{ChannelId: "dm_new", UserId: "eve", Role: parleyv1.MemberRole_MEMBER_ROLE_OWNER})),
		"send as": callErr(asMember(s, "ann", "dm_*", ident.Send).SendMessage(t.Context(), &parleyv1.SendMessageRequest{
			ChannelId: "dm_new", Content: "x", FromId: "bob",
		})),
	} {
		if err == nil {
			t.Errorf("%s is allowed", name)
		}
	}
}

// Where sends create no channels, a missing channel and a members-only channel of others answer
// every call alike.
func TestExistenceIsNotTold(t *testing.T) {
	t.Parallel()
	s := servertest.Dev(t, servertest.With(func(c *config.Config) { c.Channels.CreateOnSend = false }))
	admin := s.Client(s.Mint("backend", append([]ident.Action{ident.Manage}, user...)...))
	if _, err := admin.CreateChannel(t.Context(), &parleyv1.CreateChannelRequest{ChannelId: "closed", MembersOnly: true, Members: membersOf("ann")}); err != nil {
		t.Fatal(err)
	}
	send(t, admin, "closed", "one")
	eve := s.Client(s.Mint("eve", append([]ident.Action{ident.Moderate}, user...)...))
	for _, id := range []string{"closed", "none"} {
		wantReason(t, "eve in "+id, parleyv1.ErrorReason_ERROR_REASON_CHANNEL_NOT_FOUND, useOf(t.Context(), t, eve, id))
		if reason, _ := reasonOf(callErr(eve.AddMembers(t.Context(), &parleyv1.AddMembersRequest{ChannelId: id, Members: membersOf("eve")}))); reason !=
			parleyv1.ErrorReason_ERROR_REASON_CHANNEL_NOT_FOUND {
			t.Errorf("adding oneself to %s: %s", id, reason)
		}
	}
	wantReason(t, "who manages a channel that is missing", parleyv1.ErrorReason_ERROR_REASON_CHANNEL_NOT_FOUND, useOf(t.Context(), t, admin, "none"))
	byMembership := asMember(s, "eve", "*", user...)
	for _, id := range []string{"closed", "none"} {
		wantReason(t, "by membership in "+id, parleyv1.ErrorReason_ERROR_REASON_NOT_MEMBER, useOf(t.Context(), t, byMembership, id))
	}
}

// A stream that has an open channel by membership loses it within a second after the membership, on
// every node. Another stream of the same user keeps it.
func TestMembershipOfOpenChannelEnds(t *testing.T) {
	t.Parallel()
	nodes := fleetOf(t, 2)
	admin := nodes[0].Client(nodes[0].Mint("backend", append([]ident.Action{ident.Manage}, user...)...))
	if _, err := admin.CreateChannel(t.Context(), &parleyv1.CreateChannelRequest{ChannelId: "plaza", Members: membersOf("bob", "ann")}); err != nil {
		t.Fatal(err)
	}
	var lose, keep []*stream
	for _, n := range nodes {
		lose = append(lose, subscribe(t, asMember(n, "bob", "*", user...), from("plaza", 0)))
		keep = append(keep, subscribe(t, n.Client(n.Mint("bob", user...)), from("plaza", 0)), subscribe(t, asMember(n, "ann", "*", user...), from("plaza", 0)))
	}
	send(t, admin, "plaza", "one")
	for _, s := range append(lose, keep...) {
		expectSeqs(t, s, "plaza", 1)
	}
	if _, err := admin.RemoveMembers(t.Context(), &parleyv1.RemoveMembersRequest{ChannelId: "plaza", UserIds: []string{"bob"}}); err != nil {
		t.Fatal(err)
	}
	for _, s := range lose {
		awaitLost(t, s, "plaza", time.Second)
	}
	send(t, admin, "plaza", "two")
	for _, s := range keep {
		expectSeqs(t, s, "plaza", 2)
	}
	for _, s := range lose {
		if got := s.entries("plaza"); len(got) != 1 {
			t.Errorf("after the loss came %d entries", len(got))
		}
	}
}
