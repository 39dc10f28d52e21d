package parley_test

import (
	"errors"
	"slices"
	"testing"

	parleyv1 "github.com/parleyhq/parley/gen/go/parley/v1"
	parley "github.com/parleyhq/parley/sdk/go"
	"github.com/parleyhq/parley/sdk/go/parleytest"
)

// TestSession has a user and an assistant talk in a session while the answers to first attempts are
// lost.
func TestSession(t *testing.T) {
	t.Parallel()
	s := parleytest.Start(t)
	s.SetUser("anns", "ann")
	s.SetActions("anns", "append", "history", "subscribe")
	ctx := testContext(t)
	user, assistant := newClient(t, s.Addr(), parley.WithToken("anns")).Session("chat"), newClient(t, s.Addr()).Session("chat")
	lose := func(method string) { s.FaultTimes(1, method, parleytest.Fault{Drop: true, Applied: true}) }
	lose("AppendSessionMessage")
	prompt, err := user.Append(ctx, parley.SessionRoleUser, "hello", parley.WithMetadata(map[string]string{"k": "v"}))
	if err != nil || prompt.Seq != 1 || !prompt.Duplicate || prompt.ChannelID != user.ChannelID() || user.ChannelID() != "~chat" || user.ID() != "chat" {
		t.Fatalf("append: %+v, %v", prompt, err)
	}
	answer, err := assistant.Append(ctx, parley.SessionRoleAssistant, "hi", parley.WithClientMsgID("a"))
	if err != nil || answer.Seq != 2 || answer.ClientMsgID != "a" {
		t.Fatalf("append: %+v, %v", answer, err)
	}
	lose("EditSessionMessage")
	if edited, err := user.Edit(ctx, prompt.MsgID, "hello again"); err != nil || edited.Seq != 3 || edited.Message.GetContent() != "hello again" {
		t.Fatalf("edit: %+v, %v", edited, err)
	}
	lose("RecallSessionMessage")
	if recalled, err := user.Recall(ctx, answer.MsgID); err != nil || recalled.Seq != 4 {
		t.Fatalf("recall: %+v, %v", recalled, err)
	}
	lose("MarkSessionRead")
	if cursor, err := user.MarkRead(ctx, 1); err != nil || cursor.Seq != 1 || cursor.Unread != 1 {
		t.Errorf("mark: %+v, %v", cursor, err)
	}
	lose("ListSessionMessages")
	var texts []string
	for m, err := range user.Messages(ctx, parley.AfterSeq(0), parley.PageSize(1)) {
		if err != nil {
			t.Fatal(err)
		}
		texts = append(texts, m.GetMsgType()+": "+m.GetContent())
	}
	if len(texts) != 2 || texts[0] != "user: hello again" || texts[1] != "assistant: " {
		t.Errorf("messages %q", texts)
	}
	for _, req := range parleytest.RequestsOf[*parleyv1.ListSessionMessagesRequest](s) {
		if req.GetMinSeq() != 4 {
			t.Errorf("a list does not reach what this client has written: %v", req)
		}
	}
	sub := newClient(t, s.Addr(), parley.WithToken("anns")).Subscribe(ctx, parley.FromStart(user.ChannelID()))
	defer sub.Close()
	for want := range 4 {
		if e := nextEvent(t, sub); e.Seq != int64(want+1) || e.ChannelID != "~chat" {
			t.Errorf("event %+v, want that of entry %d", e, want+1)
		}
	}
	open, err := assistant.Open(ctx, parley.SessionRoleAssistant)
	if err != nil || open.Receipt().Seq != 5 {
		t.Fatalf("open: %+v, %v", open, err)
	}
	if e := nextEvent(t, sub); e.Kind != parley.EventSent || e.Message.GetStatus() != parleyv1.MessageStatus_MESSAGE_STATUS_OPEN {
		t.Errorf("opened: %+v", e)
	}
	lose("CloseSessionMessage")
	if closed, err := open.Cancel(ctx, "half"); err != nil || closed.Seq != 6 || closed.Message.GetContent() != "half" {
		t.Errorf("close: %+v, %v", closed, err)
	}
	if e := nextEvent(t, sub); e.Kind != parley.EventClosed || e.Message.GetStatus() != parleyv1.MessageStatus_MESSAGE_STATUS_CANCELLED || e.Seq != 6 || e.Kind.String() != "closed" {
		t.Errorf("closed: %+v", e)
	}
	if _, err := open.Cancel(ctx, "half"); err != nil {
		t.Errorf("closed again: %v", err)
	}
	if _, err := open.Complete(ctx, "all"); !errors.Is(err, parley.ErrClientMsgIDReused) {
		t.Errorf("closed in another way: %v", err)
	}
	other := newClient(t, s.Addr(), parley.WithToken("anns")).Session("second")
	if _, err := other.Append(ctx, "", "x"); err != nil {
		t.Fatal(err)
	}
	list := func() (ids []string) {
		t.Helper()
		for info, err := range newClient(t, s.Addr(), parley.WithToken("anns")).Sessions(ctx, "") {
			if err != nil {
				t.Fatal(err)
			}
			ids = append(ids, info.GetSessionId())
		}
		slices.Sort(ids)
		return ids
	}
	lose("ListSessions")
	if ids := list(); !slices.Equal(ids, []string{"chat", "second"}) {
		t.Errorf("listed %v", ids)
	}
	lose("DeleteSession")
	if err := other.Delete(ctx); err != nil {
		t.Fatal(err)
	}
	if ids := list(); !slices.Equal(ids, []string{"chat"}) {
		t.Errorf("listed %v", ids)
	}
	if _, err := other.Append(ctx, "", "x"); !errors.Is(err, parley.ErrSessionDeleted) {
		t.Errorf("append to a deleted session: %v", err)
	}
	if _, err := user.Append(ctx, parley.SessionRoleSystem, "x"); !errors.Is(err, parley.ErrCapabilityMissing) {
		t.Errorf("a role that requires manage: %v", err)
	}
	if _, err := newClient(t, s.Addr()).Session("").Append(ctx, "", "x"); err == nil {
		t.Error("a session without an id")
	}
	if _, err := user.Append(ctx, "", "\xff"); err == nil {
		t.Error("invalid UTF-8")
	}
}

// TestSessionTitle checks that a session has the title of its first message until it is renamed.
func TestSessionTitle(t *testing.T) {
	t.Parallel()
	s := parleytest.Start(t)
	ctx, client := testContext(t), newClient(t, s.Addr())
	chat := client.Session("chat")
	title := func() string {
		t.Helper()
		for info, err := range client.Sessions(ctx, "") {
			if err != nil {
				t.Fatal(err)
			}
			return info.GetTitle()
		}
		t.Fatal("no session")
		return ""
	}
	for _, given := range []string{"first", "ignored"} {
		if _, err := chat.Append(ctx, parley.SessionRoleUser, "x", parley.WithTitle(given)); err != nil {
			t.Fatal(err)
		}
		if got := title(); got != "first" {
			t.Errorf("the title is %q", got)
		}
	}
	for _, want := range []string{"second", ""} {
		s.FaultTimes(1, "RenameSession", parleytest.Fault{Drop: true, Applied: true})
		if err := chat.Rename(ctx, want); err != nil {
			t.Fatal(err)
		}
		if got := title(); got != want {
			t.Errorf("the title is %q, want %q", got, want)
		}
	}
	if err := client.Session("none").Rename(ctx, "x"); !errors.Is(err, parley.ErrChannelNotFound) {
		t.Errorf("no session is renamed: %v", err)
	}
	if err := chat.Rename(ctx, "\xff"); err == nil {
		t.Error("invalid UTF-8 in a title")
	}
	if _, err := chat.Append(ctx, "", "x", parley.WithTitle("\xff")); err == nil {
		t.Error("invalid UTF-8 in the title of an append")
	}
}
