package parley_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
	"time"

	parleyv1 "github.com/parleyhq/parley/gen/go/parley/v1"
	parley "github.com/parleyhq/parley/sdk/go"
	"github.com/parleyhq/parley/sdk/go/parleytest"
)

// conversation is a session with a prompt, of a server of its own.
func conversation(t *testing.T) (ctx context.Context, s *parleytest.Server, user, assistant *parley.Session) {
	t.Helper()
	s = parleytest.Start(t)
	s.SetUser("anns", "ann")
	s.SetActions("anns", "append", "history", "subscribe")
	ctx = testContext(t)
	user, assistant = newClient(t, s.Addr(), parley.WithToken("anns")).Session("chat"), newClient(t, s.Addr()).Session("chat")
	if _, err := user.Append(ctx, parley.SessionRoleUser, "hello"); err != nil {
		t.Fatal(err)
	}
	return ctx, s, user, assistant
}

// showsText waits until a subscriber shows a text of a message, and returns its last event.
func showsText(t *testing.T, sub *parley.Subscription, texts *parley.OpenTexts, msgID, want string) parley.Event {
	t.Helper()
	for {
		e, err := sub.Next(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if id, text, ok := texts.Apply(&e); ok && id == msgID && text == want {
			return e
		}
	}
}

func TestOpenMessage(t *testing.T) {
	t.Parallel()
	ctx, s, user, assistant := conversation(t)
	sub := user.Subscribe(ctx)
	defer sub.Close()
	var texts parley.OpenTexts
	answer, err := assistant.Open(ctx, parley.SessionRoleAssistant)
	if err != nil {
		t.Fatal(err)
	}
	var _ io.WriteCloser = answer
	id, want := answer.Receipt().MsgID, ""
	for i := range 100 {
		if i == 50 {
			s.FaultTimes(1, "AppendSessionDelta", parleytest.Fault{Drop: true, Applied: true})
		}
		word := fmt.Sprint("wörd ", i, " ")
		want += word
		for _, b := range []byte(word) { // a write may end within a character
			if _, err := answer.Write([]byte{b}); err != nil {
				t.Fatal(err)
			}
		}
	}
	showsText(t, sub, &texts, id, want)
	if calls := len(parleytest.RequestsOf[*parleyv1.AppendSessionDeltaRequest](s)); calls > 20 {
		t.Errorf("%d calls for 1000 writes", calls)
	}
	s.LoseTexts()
	want += "more"
	if _, err := io.WriteString(answer, "more"); err != nil {
		t.Fatal(err)
	}
	showsText(t, sub, &texts, id, want)
	if answer.Text() != want || answer.Err() != nil {
		t.Errorf("text %q, %v", answer.Text(), answer.Err())
	}
	if err := answer.Close(); err != nil {
		t.Fatal(err)
	}
	if e := showsText(t, sub, &texts, id, want); e.Kind != parley.EventClosed || e.Message.GetStatus() != parleyv1.MessageStatus_MESSAGE_STATUS_SENT {
		t.Errorf("closed by %+v", e)
	}
	<-answer.Done()
	if _, err := io.WriteString(answer, "x"); !errors.Is(err, parley.ErrMessageClosed) || !errors.Is(answer.Err(), parley.ErrMessageClosed) {
		t.Errorf("a write after the close: %v", err)
	}
	if err := answer.Close(); err != nil {
		t.Errorf("a second close: %v", err)
	}
}

func TestOpenMessageLargeText(t *testing.T) {
	t.Parallel()
	ctx, s, user, assistant := conversation(t)
	answer, err := assistant.Open(ctx, parley.SessionRoleAssistant)
	if err != nil {
		t.Fatal(err)
	}
	text := strings.Repeat("é", 32<<10-1) + "x"
	if _, err := io.WriteString(answer, "x"+text); err != nil { // every piece would end within a character
		t.Fatal(err)
	}
	sub := user.Subscribe(ctx)
	defer sub.Close()
	showsText(t, sub, new(parley.OpenTexts), answer.Receipt().MsgID, "x"+text)
	for _, req := range parleytest.RequestsOf[*parleyv1.AppendSessionDeltaRequest](s) {
		if len(req.GetText()) > 16<<10 {
			t.Errorf("a delta of %d bytes", len(req.GetText()))
		}
	}
	if _, err := answer.Write([]byte{'a', 0xff}); err == nil || answer.Text() != "x"+text {
		t.Errorf("a write that is not UTF-8: %v", err)
	}
	if _, err := answer.Fail(ctx, answer.Text()); err != nil {
		t.Fatal(err)
	}
}

func TestOpenMessageEnds(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		end  func(ctx context.Context, s *parleytest.Server, user, assistant *parley.Session, m *parley.OpenMessage) error
		want error
	}{
		"cancelled": {func(ctx context.Context, _ *parleytest.Server, user, _ *parley.Session, m *parley.OpenMessage) error {
			r, err := user.Cancel(ctx, m.Receipt().MsgID)
			if err == nil && (r.Message.GetContent() != "begun" || r.Message.GetStatus() != parleyv1.MessageStatus_MESSAGE_STATUS_CANCELLED) {
				err = fmt.Errorf("cancelled %+v", r)
			}
			return err
		}, parley.ErrMessageClosed},
		"recalled": {func(ctx context.Context, _ *parleytest.Server, user, _ *parley.Session, m *parley.OpenMessage) error {
			_, err := user.Recall(ctx, m.Receipt().MsgID)
			return err
		}, parley.ErrMessageRecalled},
		"opened again": {func(ctx context.Context, _ *parleytest.Server, _, assistant *parley.Session, _ *parley.OpenMessage) error {
			other, err := assistant.Open(ctx, parley.SessionRoleAssistant, parley.WithClientMsgID("a"))
			if err == nil {
				_, err = io.WriteString(other, "anew")
			}
			return err
		}, parley.ErrAppendSuperseded},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ctx, s, user, assistant := conversation(t)
			m, err := assistant.Open(ctx, parley.SessionRoleAssistant, parley.WithClientMsgID("a"))
			if err != nil {
				t.Fatal(err)
			}
			sub := user.Subscribe(ctx)
			defer sub.Close()
			if _, err := io.WriteString(m, "begun"); err != nil {
				t.Fatal(err)
			}
			showsText(t, sub, new(parley.OpenTexts), m.Receipt().MsgID, "begun")
			if err := tc.end(ctx, s, user, assistant, m); err != nil {
				t.Fatal(err)
			}
			writes := time.NewTicker(time.Millisecond)
			defer writes.Stop()
			for m.Err() == nil {
				_, _ = io.WriteString(m, "x")
				<-writes.C
			}
			if !errors.Is(m.Err(), tc.want) {
				t.Errorf("ended by %v", m.Err())
			}
		})
	}
}

// TestOpenMessageAgain checks that a repeat of Open for a message that is closed says so at once.
func TestOpenMessageAgain(t *testing.T) {
	t.Parallel()
	ctx, _, _, assistant := conversation(t)
	for want := range 2 {
		m, err := assistant.Open(ctx, parley.SessionRoleAssistant, parley.WithClientMsgID("a"))
		if err != nil {
			t.Fatal(err)
		}
		if ended := errors.Is(m.Err(), parley.ErrMessageClosed); ended != (want == 1) {
			t.Errorf("%d: %v", want, m.Err())
		}
		if err := m.Close(); (err != nil) != (want == 1) {
			t.Errorf("%d: close: %v", want, err)
		}
	}
}

// TestOpenMessageContext checks that the context of Open ends the streaming, and that the message
// can be closed all the same.
func TestOpenMessageContext(t *testing.T) {
	t.Parallel()
	ctx, _, _, assistant := conversation(t)
	life, end := context.WithCancel(ctx)
	m, err := assistant.Open(life, parley.SessionRoleAssistant)
	if err != nil {
		t.Fatal(err)
	}
	end()
	<-m.Done()
	if !errors.Is(m.Err(), context.Canceled) {
		t.Error(m.Err())
	}
	if err := m.Close(); err != nil {
		t.Errorf("close: %v", err)
	}
}
