package server_test

import (
	"fmt"
	"testing"

	"connectrpc.com/connect"
	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/testing/protocmp"

	parleyv1 "github.com/parleyhq/parley/gen/go/parley/v1"
	"github.com/parleyhq/parley/server/internal/ident"
	"github.com/parleyhq/parley/server/servertest"
)

// TestRepeatedCreateChannelReturnsTheChannel checks, on every protocol, that a repeated
// CreateChannel with the same idempotency key returns the channel and adds no members again.
func TestRepeatedCreateChannelReturnsTheChannel(t *testing.T) {
	t.Parallel()
	inModes(t, func(t *testing.T, s *servertest.Server) {
		for name, opts := range options {
			c, ctx := s.Client(s.Token, opts...), t.Context()
			request := func() *parleyv1.CreateChannelRequest {
				return &parleyv1.CreateChannelRequest{
					ChannelId: "again-" + name, MembersOnly: true, Members: membersOf("bob", "ann"), IdempotencyKey: "key-" + name,
				}
			}
			first, err := c.CreateChannel(ctx, request())
			if err != nil || first.GetDuplicate() || first.GetChannel().GetCreatedBy() != "tester" {
				t.Fatalf("%s: created %v, %v", name, first, err)
			}
			channel := first.GetChannel().GetChannelId()
			if err := callErr(c.RemoveMembers(ctx, &parleyv1.RemoveMembersRequest{ChannelId: channel, UserIds: []string{"bob"}})); err != nil {
				t.Fatal(err)
			}
			again := proto.CloneOf(first)
			again.Duplicate = true
			same := request()
			same.Members = membersOf("ann", "tester", "bob", "ann")
			same.Members[0].Role = parleyv1.MemberRole_MEMBER_ROLE_MEMBER
			for _, r := range []*parleyv1.CreateChannelRequest{request(), same} {
				got, err := c.CreateChannel(ctx, r)
				if diff := cmp.Diff(again, got, protocmp.Transform()); err != nil || diff != "" {
					t.Errorf("%s: repeated call: %v %s", name, err, diff)
				}
			}
			if diff := cmp.Diff([]string{"ann", "tester"}, memberIDs(t, c, channel, 0)); diff != "" {
				t.Errorf("%s: members: %s", name, diff)
			}
			more, open, other, none := request(), request(), request(), request()
			more.Members, open.MembersOnly, other.IdempotencyKey, none.IdempotencyKey = membersOf("bob", "ann", "eve"), false, "other", ""
			const exists, reused = parleyv1.ErrorReason_ERROR_REASON_CHANNEL_EXISTS, parleyv1.ErrorReason_ERROR_REASON_IDEMPOTENCY_KEY_REUSED
			warden := s.Client(s.Mint("warden", ident.Manage), opts...)
			for what, err := range map[string]error{
				"another member": refusedFor(t, reused, callErr(c.CreateChannel(ctx, more))), "another kind": refusedFor(t, reused, callErr(c.CreateChannel(ctx, open))),
				"another key": refusedFor(t, exists, callErr(c.CreateChannel(ctx, other))), "no key": refusedFor(t, exists, callErr(c.CreateChannel(ctx, none))),
				"another caller": refusedFor(t, exists, callErr(warden.CreateChannel(ctx, request()))),
			} {
				if err != nil {
					t.Errorf("%s: %s: %v", name, what, err)
				}
			}
		}
	})
}

// refusedFor returns nil if err is already_exists with this reason, and otherwise an error that
// wraps err.
func refusedFor(t *testing.T, reason parleyv1.ErrorReason, err error) error {
	t.Helper()
	if connect.CodeOf(err) != connect.CodeAlreadyExists || detailOf(t, err).GetReason() != reason {
		return fmt.Errorf("answered %w", err)
	}
	return nil
}

// TestRepeatedChangeOnAnotherNode checks that any node recognizes a repeated edit or recall that
// was made through another node, and returns the message as it is after the change.
func TestRepeatedChangeOnAnotherNode(t *testing.T) {
	t.Parallel()
	nodes := fleetOf(t, 3)
	ctx := t.Context()
	var clients []client
	for _, n := range nodes {
		clients = append(clients, n.Client(n.Token))
	}
	for i, c := range clients {
		got, err := c.CreateChannel(ctx, &parleyv1.CreateChannelRequest{ChannelId: "made", MembersOnly: true, IdempotencyKey: "k"})
		if err != nil || got.GetDuplicate() != (i > 0) {
			t.Errorf("node %d: created %v, %v", i, got, err)
		}
	}
	for round := range 6 { // other buckets, so other home nodes
		channel := fmt.Sprint("changed-", round)
		m := send(t, clients[round%3], channel, "old")
		edit := &parleyv1.EditMessageRequest{ChannelId: channel, MsgId: m.GetMsgId(), Content: "new", ClientMsgId: "e"}
		for i, c := range clients {
			got, err := c.EditMessage(ctx, edit)
			if err != nil || got.GetSeq() != 2 || got.GetDuplicate() != (i > 0) || got.GetMessage().GetContent() != "new" || got.GetMessage().GetChangedSeq() != 2 {
				t.Errorf("%s, node %d: edited %v, %v", channel, i, got, err)
			}
		}
		later, err := clients[1].EditMessage(ctx, &parleyv1.EditMessageRequest{ChannelId: channel, MsgId: m.GetMsgId(), Content: "newer"})
		if err != nil {
			t.Fatal(err)
		}
		for i, c := range clients {
			got, err := c.EditMessage(ctx, edit)
			if err != nil || got.GetSeq() != 2 || !got.GetDuplicate() || !proto.Equal(got.GetMessage(), later.GetMessage()) {
				t.Errorf("%s, node %d: edited again %v, %v", channel, i, got, err)
			}
		}
		var first *parleyv1.RecallMessageResponse
		for i, c := range clients {
			got, err := c.RecallMessage(ctx, &parleyv1.RecallMessageRequest{ChannelId: channel, MsgId: m.GetMsgId()})
			if err != nil {
				t.Fatal(err)
			}
			if i == 0 {
				first = proto.CloneOf(got)
				if got.GetSeq() != 4 || got.GetMessage().GetContent() != "" || got.GetMessage().GetChangedSeq() != 4 {
					t.Errorf("%s: recalled %v", channel, got)
				}
				first.Duplicate, first.ClientMsgId = true, "" // this request has no id, and a repeat is not stored
				continue
			}
			if diff := cmp.Diff(first, got, protocmp.Transform()); diff != "" {
				t.Errorf("%s, node %d: repeated recall (-want +got):\n%s", channel, i, diff)
			}
		}
	}
}
