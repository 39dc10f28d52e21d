package server_test

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"connectrpc.com/connect"
	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/proto"

	parleyv1 "github.com/parleyhq/parley/gen/go/parley/v1"
	"github.com/parleyhq/parley/server/internal/ident"
	"github.com/parleyhq/parley/server/internal/testkit"
	"github.com/parleyhq/parley/server/servertest"
)

// oddUserIDs returns valid user ids that a pattern, key, query or path could mistake for something
// else, in byte order.
func oddUserIDs() []string {
	ids := []string{
		"*", ">", "a:b", "[a-z]?", "a.b", ".", "..", "../x", "a", "A", "$where", "$user_id", "$$ROOT", `{"$ne":""}`, "{a}", "}{", "%2a", "a|b", "a/b",
		"a,b", `"'\`, "\\x00", "0", "null", "-1", "ada@example.com", "$JS.API.>", "<b>&amp;</b>", strings.Repeat("s", 128), strings.Repeat("~", 128),
	}
	slices.Sort(ids)
	return ids
}

// strangersToAll are user ids that the odd ids could be mistaken for, of users who are not members.
var strangersToAll = []string{"bob", "b", "x", "ab", "a:", ":b", "a*", "**", "null0", "S", strings.Repeat("s", 127), `{"$ne":"x"}`}

// memberIDs lists a channel's members in pages of the given size.
func memberIDs(t *testing.T, c client, channel string, size int32) (ids []string) {
	t.Helper()
	for token := ""; ; {
		page, err := c.ListMembers(t.Context(), &parleyv1.ListMembersRequest{ChannelId: channel, PageSize: size, PageToken: token})
		if err != nil {
			t.Fatalf("list members after %q: %v", ids, err)
		}
		for _, m := range page.GetMembers() {
			ids = append(ids, m.GetUserId())
		}
		if token = page.GetNextPageToken(); token == "" {
			return ids
		}
	}
}

// TestHostileUserIDs checks that each member is exactly the named user. Each one joins, reads, is
// removed and loses the channel, while all other members stay unchanged.
func TestHostileUserIDs(t *testing.T) {
	t.Parallel()
	inModes(t, func(t *testing.T, s *servertest.Server) {
		odd := oddUserIDs()
		for name, opts := range options {
			owner := s.Client(s.Token, opts...)
			channel := "literal-" + name
			as := func(userID string) client { return s.Client(s.Mint(userID, user...), opts...) }
			if _, err := owner.CreateChannel(t.Context(), &parleyv1.CreateChannelRequest{ChannelId: channel, MembersOnly: true, Members: membersOf(odd[:len(odd)/2]...)}); err != nil {
				t.Fatal(err)
			}
			if _, err := owner.AddMembers(t.Context(), &parleyv1.AddMembersRequest{ChannelId: channel, Members: membersOf(odd[len(odd)/2:]...)}); err != nil {
				t.Fatal(err)
			}
			send(t, owner, channel, "one")
			all := append([]string{"tester"}, odd...)
			slices.Sort(all)
			for _, size := range []int32{0, 1, 7} {
				if diff := cmp.Diff(all, memberIDs(t, owner, channel, size)); diff != "" {
					t.Errorf("%s: the members in pages of %d: %s", name, size, diff)
				}
			}
			for _, userID := range strangersToAll {
				err := callErr(as(userID).ListMessages(t.Context(), &parleyv1.ListMessagesRequest{ChannelId: channel}))
				if connect.CodeOf(err) != connect.CodePermissionDenied || detailOf(t, err).GetReason() != parleyv1.ErrorReason_ERROR_REASON_NOT_MEMBER {
					t.Errorf("%s: %q, who is no member, is answered %v", name, userID, err)
				}
			}
			// One member marks the channel read; the others' cursors stay.
			if _, err := as("*").MarkRead(t.Context(), &parleyv1.MarkReadRequest{ChannelId: channel, Seq: 1}); err != nil {
				t.Fatal(err)
			}
			page, err := owner.ListMembers(t.Context(), &parleyv1.ListMembersRequest{ChannelId: channel, PageSize: 1000})
			if err != nil {
				t.Fatal(err)
			}
			for _, m := range page.GetMembers() {
				if id := m.GetUserId(); id != "tester" && (m.GetReadSeq() == 1) != (id == "*") {
					t.Errorf("%s: after MarkRead of *, %q has read_seq %d", name, id, m.GetReadSeq())
				}
			}
			expelOneByOne(t, owner, as, channel)
		}
	})
}

// expelOneByOne removes some of the odd members in turn and checks that only the removed member's
// stream loses the channel.
func expelOneByOne(t *testing.T, owner client, as func(string) client, channel string) {
	t.Helper()
	streams := make(map[string]*stream)
	for _, userID := range []string{"*", ">", "a:b", "[a-z]?", "$where", "a"} {
		streams[userID] = subscribe(t, as(userID), live(channel))
		streams[userID].awaitState(channel)
	}
	for _, userID := range slices.Sorted(maps.Keys(streams)) {
		before := memberIDs(t, owner, channel, 0)
		if _, err := owner.RemoveMembers(t.Context(), &parleyv1.RemoveMembersRequest{ChannelId: channel, UserIds: []string{userID}}); err != nil {
			t.Fatal(err)
		}
		awaitLost(t, streams[userID], channel, 10*time.Second)
		streams[userID].cancel()
		delete(streams, userID)
		want := slices.DeleteFunc(before, func(id string) bool { return id == userID })
		if diff := cmp.Diff(want, memberIDs(t, owner, channel, 0)); diff != "" {
			t.Errorf("%s: after %q was removed: %s", channel, userID, diff)
		}
		seq := send(t, owner, channel, "after "+userID).GetSeq()
		for other, s := range streams {
			testkit.Eventually(t, 20*time.Second, func() error {
				if got := s.entries(channel); len(got) == 0 || got[len(got)-1].GetSeq() != seq {
					return fmt.Errorf("%s: after %q was removed %q receives no event", channel, userID, other)
				}
				return nil
			})
		}
	}
}

// TestHostileChannelLimitsAreAccepted checks that calls about channels and members accept values at
// a limit, null in place of an absent field, and numbers as strings.
func TestHostileChannelLimitsAreAccepted(t *testing.T) {
	t.Parallel()
	g := attack(t, nil)
	plain := g.Mint("plain", ident.Send, ident.History, ident.Manage)
	call := func(d *dialect, procedure string, m proto.Message, json string, out proto.Message) {
		l := line{procedure: procedure, message: m}
		if d.json && json != "" {
			l.message, l.json = nil, json
		}
		g.call(&l, d, plain).decode(t, d, out)
	}
	for i := range dialects {
		d := &dialects[i]
		channel := "taken-" + d.name
		var made parleyv1.CreateChannelResponse
		call(d, createChannel, &parleyv1.CreateChannelRequest{ChannelId: channel},
			`{"channelId":"`+channel+`","membersOnly":null,"members":null}`, &made)
		if c := made.GetChannel(); c.GetCreatedBy() != "plain" || c.GetHeadSeq() != 0 || c.GetCount() != 0 || c.GetMembersOnly() {
			t.Errorf("%s: created %v", d.name, c)
		}
		if err := callErr(g.tester().CreateChannel(t.Context(), &parleyv1.CreateChannelRequest{ChannelId: channel})); connect.CodeOf(err) != connect.CodeAlreadyExists {
			t.Errorf("%s: made again, it is answered %v", d.name, err)
		}
		// 500 members with the longest ids, then one of them 500 times.
		longest := make([]string, 500)
		for n := range longest {
			longest[n] = fmt.Sprintf("%0128d", n)
		}
		call(d, addMembers, memberCalls[addMembers](channel, longest...), "", &parleyv1.AddMembersResponse{})
		call(d, addMembers, memberCalls[addMembers](channel, slices.Repeat(longest[:1], 500)...), "", &parleyv1.AddMembersResponse{})
		want := append(slices.Clone(longest), "plain")
		if diff := cmp.Diff(want, memberIDs(t, g.tester(), channel, 200)); diff != "" {
			t.Errorf("%s: %s", d.name, diff)
		}
		call(d, removeMembers, memberCalls[removeMembers](channel, longest...), "", &parleyv1.RemoveMembersResponse{})
		call(d, removeMembers, memberCalls[removeMembers](channel, longest...), "", &parleyv1.RemoveMembersResponse{})
		if got := memberIDs(t, g.tester(), channel, 0); !slices.Equal(got, []string{"plain"}) {
			t.Errorf("%s: who is left: %q", d.name, got)
		}
		send(t, g.tester(), channel, "x")
		var read parleyv1.MarkReadResponse
		call(d, markRead, &parleyv1.MarkReadRequest{ChannelId: channel, Seq: 1}, `{"channelId":"`+channel+`","seq":"1"}`, &read)
		if read.GetReadSeq() != 1 || read.GetUnread() != 0 {
			t.Errorf("%s: read up to %v", d.name, &read)
		}
		call(d, sendTyping, &parleyv1.SendTypingRequest{ChannelId: channel}, `{"channelId":"`+channel+`"}`, &parleyv1.SendTypingResponse{})
	}
}

// positionsOf returns the ids of the channels that an error's detail names.
func positionsOf(a *answer) (ids []string) {
	for _, p := range a.detail.GetPositions() {
		ids = append(ids, p.GetChannelId())
	}
	return ids
}

// TestHostileNonMembersAreRefused checks refusals to a non-member that nonMemberLines lacks.
// The items of a batch are refused one by one. A stream's refusal names every channel and leaves a
// live stream unchanged. Existing and missing messages get the same answer. Nobody sees a
// non-member type.
func TestHostileNonMembersAreRefused(t *testing.T) {
	t.Parallel()
	g := attack(t, nil)
	owner := g.tester()
	for _, channel := range []string{"secret-1", "secret-2"} {
		if _, err := owner.CreateChannel(t.Context(), &parleyv1.CreateChannelRequest{ChannelId: channel, MembersOnly: true, Members: membersOf("alice")}); err != nil {
			t.Fatal(err)
		}
	}
	msgID := send(t, owner, "secret-1", "secret").GetMsgId()
	alice := subscribe(t, g.Client(g.Mint("alice", user...)), from("secret-1", 0))
	alice.await("secret-1", 0, 1)
	bob := g.Mint("bob", ident.Send, ident.History, ident.Subscribe, ident.Moderate, ident.SendAs)
	for i := range dialects {
		d := &dialects[i]
		open, other := "open-"+d.name, "other-"+d.name
		item := func(channel string) *parleyv1.SendMessageRequest {
			return &parleyv1.SendMessageRequest{ChannelId: channel, Content: "x", FromId: "alice"}
		}
		res := answerTo[parleyv1.SendMessagesResponse](g, d, &line{procedure: sendMessages, message: &parleyv1.SendMessagesRequest{
			Messages: []*parleyv1.SendMessageRequest{item(open), item("secret-1"), item(open), item("secret-2")},
		}}, bob)
		var got []string
		for _, r := range res.GetResults() {
			e := r.GetError()
			got = append(got, fmt.Sprintf("%d %s %s", r.GetSent().GetSeq(), codeName(e.GetCode()), e.GetDetail().GetReason()))
		}
		const refusal, taken = "0 permission_denied ERROR_REASON_NOT_MEMBER", " unspecified ERROR_REASON_UNSPECIFIED"
		if diff := cmp.Diff([]string{"1" + taken, refusal, "2" + taken, refusal}, got); diff != "" {
			t.Errorf("%s: %s", d.name, diff)
		}

		positions := []*parleyv1.ChannelPosition{live(other), live("secret-1"), from("secret-2", 0), live("secret-1")}
		mine := subscribe(t, g.Client(bob), live(open))
		mine.awaitState(open)
		for procedure, m := range map[string]proto.Message{
			subscribing: &parleyv1.SubscribeRequest{Channels: positions},
			updating:    &parleyv1.UpdateSubscriptionRequest{StreamId: mine.streamID, Add: positions, Remove: []string{open}},
		} {
			a := g.call(&line{procedure: procedure, message: m}, d, bob)
			w := stranger
			w.field = map[string]string{subscribing: "channels", updating: "add"}[procedure] + "[1].channel_id"
			g.judge(d.name+" "+procedure, a, w)
			if named := positionsOf(a); !slices.Equal(named, []string{"secret-1", "secret-2"}) || a.detail.GetRetryable() || len(a.payloads) > 0 {
				t.Errorf("%s, %s: names %q, %v, after %d frames", d.name, procedure, named, a.detail, len(a.payloads))
			}
		}
		send(t, owner, other, "not for this stream")
		for _, channel := range []string{"secret-1", "secret-2"} {
			send(t, owner, channel, "not for bob")
		}
		last := send(t, owner, open, "for all").GetSeq()
		testkit.Eventually(t, 10*time.Second, func() error {
			if got := mine.entries(open); len(got) == 0 || got[len(got)-1].GetSeq() != last {
				return errors.New("after a refused change the stream is dead")
			}
			return nil
		})
		mine.mu.Lock()
		for _, e := range mine.events {
			if e.GetChannelId() != open {
				t.Errorf("%s: the stream received %v", d.name, e)
			}
		}
		mine.mu.Unlock()
		mine.cancel()

		var raw []string
		for _, id := range []string{msgID, strings.Repeat("0", len(msgID))} {
			raw = append(raw, g.call(&line{
				procedure: getMessage, header: header("X-Request-Id", "same-"+d.name), message: &parleyv1.GetMessageRequest{ChannelId: "secret-1", MsgId: id},
			}, d, bob).raw)
		}
		if raw[0] != raw[1] {
			t.Errorf("%s: an existing message is answered\n%s, a missing one\n%s", d.name, raw[0], raw[1])
		}
		g.judge(d.name+" typing", g.call(&line{procedure: sendTyping, message: &parleyv1.SendTypingRequest{ChannelId: "secret-1"}}, d, bob), stranger)
	}
	// A member's typing event arrives after any event of a non-member would have.
	carol := g.Client(g.Token)
	if err := callErr(carol.SendTyping(t.Context(), &parleyv1.SendTypingRequest{ChannelId: "secret-1"})); err != nil {
		t.Fatal(err)
	}
	alice.awaitEvent(func(e *parleyv1.ChannelEvent) bool { return e.GetTyping().GetUserId() == "tester" })
	alice.mu.Lock()
	defer alice.mu.Unlock()
	for _, e := range alice.events {
		if id := e.GetTyping().GetUserId(); id != "" && id != "tester" {
			t.Errorf("typing event of %q", id)
		}
	}
}

// typed counts the typing events that a stream received for a user.
func (s *stream) typed(userID string) (n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, e := range s.events {
		if e.GetTyping().GetUserId() == userID {
			n++
		}
	}
	return n
}

// TestHostileTyping checks that a user's typing is delivered at most once a second, although every
// call succeeds. Nothing is stored, and other users' typing is still delivered.
func TestHostileTyping(t *testing.T) {
	t.Parallel()
	g := attack(t, nil)
	send(t, g.tester(), "loud", "x")
	g.settle("loud")
	s := subscribe(t, g.Client(g.Mint("listener", user...)), live("loud"))
	s.awaitState("loud")
	stored, known := g.stored(), g.known()
	for i := range dialects {
		d := &dialects[i]
		flooder := "flood-" + d.name
		token := g.Mint(flooder, ident.Send)
		l := line{procedure: sendTyping, message: &parleyv1.SendTypingRequest{ChannelId: "loud"}}
		start := time.Now()
		for n := range 500 {
			if a := g.call(&l, d, token); a.code != "ok" {
				t.Fatalf("%s: call %d is answered %s, %s", d.name, n, a.code, a.message)
			}
		}
		most := 1 + int(time.Since(start)/time.Second)
		calm := "calm-" + d.name
		if a := g.call(&l, d, g.Mint(calm, ident.Send)); a.code != "ok" {
			t.Fatalf("%s: typing of another user is answered %s", d.name, a.code)
		}
		testkit.Eventually(t, 10*time.Second, func() error {
			if s.typed(calm) == 0 {
				return errors.New("who types beside a flood is not heard")
			}
			return nil
		})
		if got := s.typed(flooder); got == 0 || got > most {
			t.Errorf("%s: of 500 calls %d were heard, at most %d may be", d.name, got, most)
		}
	}
	// A crowd that types at once may be dropped, but disconnects nobody.
	for n := range 300 {
		token := g.Mint(fmt.Sprintf("crowd-%d", n), ident.Send)
		if a := g.call(&line{procedure: sendTyping, message: &parleyv1.SendTypingRequest{ChannelId: "loud"}}, &dialects[1], token); a.code != "ok" {
			t.Fatalf("typing of user %d is answered %s, %s", n, a.code, a.message)
		}
	}
	if now := g.stored(); now != stored || g.known() != known {
		t.Errorf("typing has changed what is stored: %s entries, before %s;\n%sbefore\n%s", now, stored, g.known(), known)
	}
	s.await("loud", 1, 0)
	send(t, g.tester(), "loud", "y")
	s.await("loud", 1, 1)
}
