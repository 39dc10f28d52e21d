package server_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"connectrpc.com/connect"
	"github.com/google/go-cmp/cmp"

	parleyv1 "github.com/parleyhq/parley/gen/go/parley/v1"
	"github.com/parleyhq/parley/server/internal/ident"
	"github.com/parleyhq/parley/server/internal/testkit"
	"github.com/parleyhq/parley/server/servertest"
)

// TestLongestChannelIDIsAccepted checks that every call accepts a channel id of the maximum length,
// and that an id differing only in the last character is another channel.
func TestLongestChannelIDIsAccepted(t *testing.T) {
	t.Parallel()
	inModes(t, func(t *testing.T, s *servertest.Server) {
		stem := strings.Repeat("dm_019a-Zz", 12) + "_-_-_-_"
		id, other := stem+"x", stem+"y"
		if len(id) != 128 {
			t.Fatalf("channel id has %d characters", len(id))
		}
		ctx, owner := t.Context(), s.Client(s.Token)
		made, err := owner.CreateChannel(ctx, &parleyv1.CreateChannelRequest{ChannelId: id, MembersOnly: true, Members: membersOf("ann")})
		if err != nil || made.GetChannel().GetChannelId() != id || made.GetChannel().GetOldestSeq() != 1 || made.GetChannel().GetEtag() == "" {
			t.Fatalf("created %v, %v", made, err)
		}
		// A capability for this channel only.
		ann := s.Client(s.MintFor("ann", time.Hour, ident.Capability{Pattern: id, Actions: user}))
		sub := subscribe(t, ann, from(id, 0))
		typist := subscribe(t, owner, live(id))
		sub.awaitState(id)
		typist.awaitState(id)
		const n = 12
		var last *parleyv1.SendMessageResponse
		for i := range n {
			last = send(t, ann, id, fmt.Sprint(i))
		}
		sub.await(id, 0, n)
		awaitSource(t, ann, id, "cache")
		if got := listPage(t, ann, &parleyv1.ListMessagesRequest{ChannelId: id, MinSeq: last.GetSeq(), PageSize: n - 1}); len(got.GetMessages()) != n-1 ||
			got.GetMessages()[0].GetChannelId() != id || got.GetNextPageToken() == "" || got.GetOldestSeq() != 1 {
			t.Errorf("listed %v", got)
		}
		edited, err := ann.EditMessage(ctx, &parleyv1.EditMessageRequest{ChannelId: id, MsgId: last.GetMsgId(), Content: "new"})
		if err != nil || edited.GetMessage().GetContent() != "new" {
			t.Errorf("edited: %v, %v", edited, err)
		}
		sub.await(id, 0, n+1)
		if err := callErr(ann.SendTyping(ctx, &parleyv1.SendTypingRequest{ChannelId: id})); err != nil {
			t.Error(err)
		}
		typist.awaitEvent(func(e *parleyv1.ChannelEvent) bool {
			return e.GetChannelId() == id && e.GetTyping().GetUserId() == "ann"
		})

		if diff := cmp.Diff([]string{"ann", "tester"}, memberIDs(t, owner, id, 1)); diff != "" {
			t.Errorf("members: %s", diff)
		}
		read, err := ann.MarkRead(ctx, &parleyv1.MarkReadRequest{ChannelId: id, Seq: n})
		if err != nil || read.GetEpoch() != last.GetEpoch() {
			t.Errorf("marked: %v, %v", read, err)
		}
		send(t, owner, other, "in another channel")
		testkit.Eventually(t, 10*time.Second, func() error {
			var listed []string
			for token := ""; ; {
				page, err := owner.ListChannels(ctx, &parleyv1.ListChannelsRequest{PageSize: 1, PageToken: token})
				if err != nil {
					t.Fatal(err)
				}
				for _, c := range page.GetChannels() {
					listed = append(listed, fmt.Sprint(c.GetChannel().GetChannelId(), " ", c.GetChannel().GetHeadSeq(), " ", c.GetChannel().GetEpoch() == last.GetEpoch()))
				}
				if token = page.GetNextPageToken(); token == "" {
					break
				}
			}
			if diff := cmp.Diff([]string{fmt.Sprint(id, " ", n+1, " true"), other + " 1 true"}, listed); diff != "" {
				return fmt.Errorf("listed %s", diff)
			}
			return nil
		})
		if err := callErr(owner.RemoveMembers(ctx, &parleyv1.RemoveMembersRequest{ChannelId: id, UserIds: []string{"ann"}})); err != nil {
			t.Fatal(err)
		}
		awaitLost(t, sub, id, 10*time.Second)
		if got := sub.entries(other); len(got) > 0 {
			t.Errorf("of the other channel came %v", got)
		}

		// One character more is not a valid id.
		long := id + "x"
		for name, err := range map[string]error{
			"send":   callErr(owner.SendMessage(ctx, &parleyv1.SendMessageRequest{ChannelId: long, Content: "x"})),
			"list":   callErr(owner.ListMessages(ctx, &parleyv1.ListMessagesRequest{ChannelId: long})),
			"create": callErr(owner.CreateChannel(ctx, &parleyv1.CreateChannelRequest{ChannelId: long})),
			"follow": callErr(owner.UpdateSubscription(ctx, &parleyv1.UpdateSubscriptionRequest{StreamId: typist.streamID, Add: []*parleyv1.ChannelPosition{live(long)}})),
		} {
			if connect.CodeOf(err) != connect.CodeInvalidArgument {
				t.Errorf("%s with 129 characters: %v", name, err)
			}
		}
	})
}

// TestStreamAcceptsMostChannelsWithLongestIDs checks that a stream accepts the maximum number of
// channels with ids of the maximum length, and reports its position in each when it ends.
func TestStreamAcceptsMostChannelsWithLongestIDs(t *testing.T) {
	t.Parallel()
	s := servertest.Dev(t)
	var positions []*parleyv1.ChannelPosition
	for i := range 500 {
		positions = append(positions, from(fmt.Sprintf("%0128d", i), 0))
	}
	last := positions[499].GetChannelId()
	send(t, s.Client(s.Token), last, "x")
	for name, opts := range options {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := s.Client(s.MintFor("reader-"+name, 5*time.Second, ident.Capability{Pattern: "*", Actions: user}), opts...)
			sub := subscribe(t, c, positions[:250]...)
			if err := callErr(c.UpdateSubscription(t.Context(), &parleyv1.UpdateSubscriptionRequest{
				StreamId: sub.streamID, Add: positions,
			})); err != nil {
				t.Fatal(err)
			}
			sub.await(last, 0, 1)
			<-sub.ended // when the token expires
			d := detailOf(t, sub.err)
			if d.GetReason() != parleyv1.ErrorReason_ERROR_REASON_TOKEN_EXPIRED || len(d.GetPositions()) != 500 {
				t.Fatalf("the stream ends with %v and %d positions", d.GetReason(), len(d.GetPositions()))
			}
			for _, p := range d.GetPositions() {
				if (p.GetChannelId() == last) != (p.GetSeq() == 1) || len(p.GetChannelId()) != 128 {
					t.Errorf("last position %v is wrong", p)
				}
			}
		})
	}
}
