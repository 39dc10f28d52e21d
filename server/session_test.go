package server_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	parleyv1 "github.com/parleyhq/parley/gen/go/parley/v1"
	"github.com/parleyhq/parley/server/config"
	"github.com/parleyhq/parley/server/internal/ident"
	"github.com/parleyhq/parley/server/internal/testkit"
	"github.com/parleyhq/parley/server/servertest"
)

const (
	noCapability = parleyv1.ErrorReason_ERROR_REASON_CAPABILITY_MISSING
	notMember    = parleyv1.ErrorReason_ERROR_REASON_NOT_MEMBER
	outOfForm    = parleyv1.ErrorReason_ERROR_REASON_INVALID_FIELD
)

// inSessions returns a client of a user who may do these actions in their sessions.
func inSessions(s *servertest.Server, userID string, actions ...ident.Action) client {
	if len(actions) == 0 {
		actions = []ident.Action{ident.Append, ident.History, ident.Subscribe}
	}
	return s.Client(s.MintAs(&ident.Principal{
		Subject: userID, Sessions: []ident.Capability{{Pattern: "*", Actions: actions}},
	}, time.Hour))
}

// appendTo appends a message to a session.
func appendTo(t *testing.T, c client, req *parleyv1.AppendSessionMessageRequest) *parleyv1.AppendSessionMessageResponse {
	t.Helper()
	res, err := c.AppendSessionMessage(t.Context(), req)
	if err != nil {
		t.Fatalf("append: %v", err)
	}
	return res
}

// inSession returns the messages of a session, as new as minSeq.
func inSession(t *testing.T, c client, id string, minSeq int64) []*parleyv1.ChannelMessage {
	t.Helper()
	res, err := c.ListSessionMessages(t.Context(), &parleyv1.ListSessionMessagesRequest{
		SessionId: id, AfterSeq: new(int64), MinSeq: minSeq,
	})
	if err != nil {
		t.Fatalf("list: %v", err)
	}
	return res.GetMessages()
}

// TestSession has a user and an assistant talk in a session through two nodes, and follows it.
func TestSession(t *testing.T) {
	t.Parallel()
	for name, start := range map[string]func(t *testing.T) []*servertest.Server{
		"dev":  func(t *testing.T) []*servertest.Server { return []*servertest.Server{servertest.Dev(t)} },
		"real": func(t *testing.T) []*servertest.Server { return fleetOf(t, 2) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			nodes := start(t)
			here, there := nodes[0], nodes[len(nodes)-1]
			ann, bot := inSessions(here, "ann"), inSessions(there, "bot", ident.SessionActions...)
			first := appendTo(t, bot, &parleyv1.AppendSessionMessageRequest{
				SessionId: "s", Role: "system", Content: "be brief", UserId: "ann", ClientMsgId: "a",
			})
			stream := subscribe(t, inSessions(there, "ann"), from("~s", 0))
			prompt := appendTo(t, ann, &parleyv1.AppendSessionMessageRequest{SessionId: "s", Content: "hello", Metadata: map[string]string{"k": "v"}})
			answer := appendTo(t, bot, &parleyv1.AppendSessionMessageRequest{SessionId: "s", Role: "assistant", Content: "hi"})
			if first.GetSeq() != 1 || prompt.GetSeq() != 2 || answer.GetSeq() != 3 || answer.GetCount() != 3 || answer.GetSessionId() != "s" {
				t.Fatalf("%v, %v, %v", first, prompt, answer)
			}
			edited, err := ann.EditSessionMessage(t.Context(), &parleyv1.EditSessionMessageRequest{SessionId: "s", MsgId: prompt.GetMsgId(), Content: "hello again"})
			if err != nil || edited.GetSeq() != 4 || edited.GetMessage().GetContent() != "hello again" {
				t.Fatalf("edit: %v, %v", edited, err)
			}
			recalled, err := ann.RecallSessionMessage(t.Context(), &parleyv1.RecallSessionMessageRequest{SessionId: "s", MsgId: answer.GetMsgId()})
			if err != nil || recalled.GetSeq() != 5 || recalled.GetMessage().GetContent() != "" {
				t.Fatalf("the owner's recall of the answer: %v, %v", recalled, err)
			}
			for _, c := range []client{ann, bot} {
				var got []string
				for _, m := range inSession(t, c, "s", 5) {
					got = append(got, fmt.Sprint(m.GetChannelId(), " ", m.GetFromId(), " ", m.GetMsgType(), " ", m.GetContent(), m.GetMetadata()))
				}
				if want := "~s ann system be briefmap[]; ~s ann user hello againmap[k:v]; ~s bot assistant map[]"; strings.Join(got, "; ") != want {
					t.Errorf("%v, want %s", got, want)
				}
			}
			events := stream.await("~s", 0, 5)
			if events[4].GetRecalled().GetMsgId() != answer.GetMsgId() || events[1].GetSent().GetMsgType() != "user" {
				t.Errorf("events %v", events)
			}
			read, err := ann.MarkSessionRead(t.Context(), &parleyv1.MarkSessionReadRequest{SessionId: "s", Seq: 2})
			if err != nil || read.GetReadSeq() < 2 || read.GetUnread() != 1 || read.GetEpoch() == "" {
				t.Errorf("mark: %v, %v", read, err)
			}
			wantSessions(t, inSessions(there, "ann"), "s")
			gone := appendTo(t, ann, &parleyv1.AppendSessionMessageRequest{SessionId: "gone", Content: "x"})
			wantSessions(t, inSessions(there, "ann"), gone.GetSessionId(), "s")
			leaving := subscribe(t, inSessions(there, "ann"), live("~gone"))
			leaving.awaitState("~gone")
			if err := callErr(ann.DeleteSession(t.Context(), &parleyv1.DeleteSessionRequest{SessionId: "gone"})); err != nil {
				t.Fatal(err)
			}
			awaitLost(t, leaving, "~gone", 5*time.Second)
			wantSessions(t, inSessions(there, "ann"), "s")
			owned, err := here.Client(here.TokenOf("ann")).ListChannels(t.Context(), &parleyv1.ListChannelsRequest{})
			if err != nil || len(owned.GetChannels()) != 0 {
				t.Errorf("channels of the owner: %v, %v", owned, err)
			}
		})
	}
}

// wantSessions waits until the list of the caller's sessions has these ids.
func wantSessions(t *testing.T, c client, ids ...string) {
	t.Helper()
	testkit.Eventually(t, 10*time.Second, func() error {
		page, err := c.ListSessions(t.Context(), &parleyv1.ListSessionsRequest{})
		if err != nil {
			return err
		}
		var got []string
		for _, s := range page.GetSessions() {
			got = append(got, s.GetSessionId())
		}
		if !slices.Equal(got, ids) {
			return fmt.Errorf("listed %v, want %v", got, ids)
		}
		return nil
	})
}

// TestSessionsArePrivate checks who may do what in whose session.
func TestSessionsArePrivate(t *testing.T) {
	t.Parallel()
	inModes(t, func(t *testing.T, s *servertest.Server) {
		ctx := t.Context()
		ann, eve := inSessions(s, "ann"), inSessions(s, "eve")
		prompt := appendTo(t, ann, &parleyv1.AppendSessionMessageRequest{SessionId: "s", Content: "secret"})
		calls := func(c client, id string) map[string]error {
			return map[string]error{
				"list": callErr(c.ListSessionMessages(ctx, &parleyv1.ListSessionMessagesRequest{SessionId: id})),
				"edit": callErr(c.EditSessionMessage(ctx, &parleyv1.EditSessionMessageRequest{
					SessionId: id, MsgId: prompt.GetMsgId(), Content: "x",
				})),
				"recall":    callErr(c.RecallSessionMessage(ctx, &parleyv1.RecallSessionMessageRequest{SessionId: id, MsgId: prompt.GetMsgId()})),
				"mark":      callErr(c.MarkSessionRead(ctx, &parleyv1.MarkSessionReadRequest{SessionId: id, Seq: 1})),
				"subscribe": subscribeErr(t, c, "~"+id),
			}
		}
		wantReason(t, "another's session", noChannel, calls(eve, "s"))
		wantReason(t, "a session that does not exist", noChannel, calls(eve, "none"))
		wantReason(t, "append", notMember, map[string]error{
			"append": callErr(eve.AppendSessionMessage(ctx, &parleyv1.AppendSessionMessageRequest{SessionId: "s", Content: "x"})),
		})
		// No capability on channels is one on sessions.
		channels := s.Client(s.MintAs(&ident.Principal{
			Subject:  "ann",
			Channels: []ident.Capability{{Pattern: "*", Actions: ident.ChannelActions}},
			Members:  []ident.Capability{{Pattern: "*", Actions: user}},
			Sessions: []ident.Capability{{Pattern: "other*", Actions: ident.SessionActions}},
		}, time.Hour))
		refusals := calls(channels, "s")
		refusals["append"] = callErr(channels.AppendSessionMessage(ctx, &parleyv1.AppendSessionMessageRequest{SessionId: "s", Content: "x"}))
		refusals["unnamed"] = callErr(channels.AppendSessionMessage(ctx, &parleyv1.AppendSessionMessageRequest{Content: "x"}))
		for what, req := range map[string]*parleyv1.AppendSessionMessageRequest{
			"role": {SessionId: "s", Content: "x", Role: "system"}, "user_id": {SessionId: "s", Content: "x", UserId: "bob"},
		} {
			refusals[what] = callErr(ann.AppendSessionMessage(ctx, req))
			if field := detailOf(t, refusals[what]).GetField(); field != what {
				t.Errorf("the refusal of %s names %q", what, field)
			}
		}
		wantReason(t, "without the capability", noCapability, refusals)
		backend := s.Client(s.TokenOf("boss"))
		wantReason(t, "the session's channel", outOfForm, map[string]error{
			"send":   callErr(backend.SendMessage(ctx, &parleyv1.SendMessageRequest{ChannelId: "~s", Content: "x"})),
			"list":   callErr(backend.ListMessages(ctx, &parleyv1.ListMessagesRequest{ChannelId: "~s"})),
			"get":    callErr(backend.GetChannel(ctx, &parleyv1.GetChannelRequest{ChannelId: "~s"})),
			"create": callErr(backend.CreateChannel(ctx, &parleyv1.CreateChannelRequest{ChannelId: "~t"})),
			"add":    callErr(backend.AddMembers(ctx, &parleyv1.AddMembersRequest{ChannelId: "~s", Members: membersOf("eve")})),
			"delete": callErr(backend.DeleteChannel(ctx, &parleyv1.DeleteChannelRequest{ChannelId: "~s"})),
			"form":   callErr(backend.AppendSessionMessage(ctx, &parleyv1.AppendSessionMessageRequest{SessionId: "~s", Content: "x"})),
			"role":   callErr(backend.AppendSessionMessage(ctx, &parleyv1.AppendSessionMessageRequest{SessionId: "s", Content: "x", Role: "boss"})),
			"large": callErr(backend.AppendSessionMessage(ctx, &parleyv1.AppendSessionMessageRequest{
				SessionId: "s", Content: strings.Repeat("x", 128<<10+1),
			})),
		})
		if got := inSession(t, ann, "s", 1); len(got) != 1 || got[0].GetContent() != "secret" {
			t.Errorf("the session has %v", got)
		}
	})
}

// TestSessionContentLimit checks that limits.session_content_bytes bounds what is appended to
// sessions, edited and closed there, and nothing else.
func TestSessionContentLimit(t *testing.T) {
	t.Parallel()
	s := servertest.Dev(t, servertest.With(func(c *config.Config) { c.Limits.SessionContentBytes = 2000 }))
	ctx, c := t.Context(), s.Client(s.TokenOf("boss"))
	most, more := strings.Repeat("x", 2000), strings.Repeat("x", 2001)
	open := appendTo(t, c, &parleyv1.AppendSessionMessageRequest{SessionId: "s", Open: true})
	sent := appendTo(t, c, &parleyv1.AppendSessionMessageRequest{SessionId: "s", Content: most})
	calls := func(text string) map[string]error {
		return map[string]error{
			"append": callErr(c.AppendSessionMessage(ctx, &parleyv1.AppendSessionMessageRequest{SessionId: "s", Content: text})),
			"edit":   callErr(c.EditSessionMessage(ctx, &parleyv1.EditSessionMessageRequest{SessionId: "s", MsgId: sent.GetMsgId(), Content: text})),
			"close": callErr(c.CloseSessionMessage(ctx, &parleyv1.CloseSessionMessageRequest{
				SessionId: "s", MsgId: open.GetMsgId(), Outcome: parleyv1.SessionOutcome_SESSION_OUTCOME_COMPLETE, Content: text,
			})),
		}
	}
	refused := calls(more)
	wantReason(t, "above the limit", outOfForm, refused)
	for what, err := range refused {
		if d := detailOf(t, err); d.GetField() != "content" || d.GetLimit() != 2000 {
			t.Errorf("%s: %v", what, d)
		}
	}
	delta := &parleyv1.AppendSessionDeltaRequest{SessionId: "s", MsgId: open.GetMsgId(), AppendToken: open.GetAppendToken(), Text: more}
	err := callErr(c.AppendSessionDelta(ctx, delta))
	if d := detailOf(t, err); d.GetReason() != parleyv1.ErrorReason_ERROR_REASON_LIMIT_EXCEEDED || d.GetField() != "text" || d.GetLimit() != 2000 {
		t.Errorf("delta: %v", err)
	}
	if delta.Text = most; callErr(c.AppendSessionDelta(ctx, delta)) != nil {
		t.Error("a delta at the limit was refused")
	}
	for what, err := range calls(most) {
		if err != nil {
			t.Errorf("%s at the limit: %v", what, err)
		}
	}
	if err := callErr(c.SendMessage(ctx, &parleyv1.SendMessageRequest{ChannelId: "room", Content: more})); err != nil {
		t.Errorf("a message of a channel: %v", err)
	}
}

// subscribeErr returns the error with which a subscription to a channel ends.
func subscribeErr(t *testing.T, c client, channel string) error {
	t.Helper()
	conn, err := c.Subscribe(t.Context(), &parleyv1.SubscribeRequest{Channels: []*parleyv1.ChannelPosition{live(channel)}})
	if err != nil {
		return err
	}
	for conn.Receive() {
	}
	return errors.Join(conn.Err(), conn.Close())
}

// TestSessionBegins checks that first messages that race create one session, that a repeat of a
// first message without a session id finds its session, and that the largest message arrives.
func TestSessionBegins(t *testing.T) {
	t.Parallel()
	nodes := fleetOf(t, 2)
	var group sync.WaitGroup
	for i := range 20 {
		group.Go(func() {
			for _, id := range []string{"race", ""} {
				req := &parleyv1.AppendSessionMessageRequest{SessionId: id, Content: "x", ClientMsgId: fmt.Sprint("m", i%10)}
				if err := callErr(inSessions(nodes[i%2], "ann").AppendSessionMessage(t.Context(), req)); err != nil {
					t.Errorf("append: %v", err)
				}
			}
		})
	}
	group.Wait()
	ann := inSessions(nodes[0], "ann")
	if got := inSession(t, ann, "race", 10); len(got) != 10 {
		t.Errorf("the session has %d messages, want 10", len(got))
	}
	ids := make(map[string]bool)
	for i := range 10 {
		req := &parleyv1.AppendSessionMessageRequest{Content: "x", ClientMsgId: fmt.Sprint("m", i)}
		res := appendTo(t, ann, req)
		if !res.GetDuplicate() || res.GetSeq() != 1 || len(inSession(t, ann, res.GetSessionId(), 1)) != 1 {
			t.Errorf("a repeat: %v", res)
		}
		ids[res.GetSessionId()] = true
		ids[appendTo(t, inSessions(nodes[1], "ben"), proto.CloneOf(req)).GetSessionId()] = true
	}
	if len(ids) != 20 {
		t.Errorf("%d sessions, want one for each user and client_msg_id", len(ids))
	}
	// Control characters have six bytes in JSON, the encoding of events.
	largest := strings.Repeat("\x01", 128<<10)
	stream := subscribe(t, inSessions(nodes[1], "ann"), live("~race"))
	stream.awaitState("~race")
	large := appendTo(t, ann, &parleyv1.AppendSessionMessageRequest{SessionId: "race", Content: largest})
	stream.awaitEvent(func(e *parleyv1.ChannelEvent) bool {
		return e.GetSeq() == large.GetSeq() && e.GetSent().GetContent() == largest
	})
}
