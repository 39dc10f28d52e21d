package server_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	parleyv1 "github.com/parleyhq/parley/gen/go/parley/v1"
	"github.com/parleyhq/parley/server/config"
	"github.com/parleyhq/parley/server/internal/ident"
	"github.com/parleyhq/parley/server/internal/testkit"
	"github.com/parleyhq/parley/server/servertest"
)

const openTextKey = "chat:session:s:open"

// openAnswer is an open message of the session s, whose text a test appends to.
type openAnswer struct {
	t      *testing.T
	opened *parleyv1.AppendSessionMessageResponse
	text   string
	msgID  string
}

// openIn begins the session s with a prompt and opens an answer through a node.
func openIn(t *testing.T, s *servertest.Server) *openAnswer {
	t.Helper()
	appendTo(t, inSessions(s, "ann"), &parleyv1.AppendSessionMessageRequest{SessionId: "s", Content: "hello"})
	a := &openAnswer{t: t, opened: appendTo(t, inSessions(s, "bot", ident.SessionActions...), &parleyv1.AppendSessionMessageRequest{
		SessionId: "s", Role: "assistant", Open: true, ClientMsgId: "a",
	})}
	a.msgID = a.opened.GetMsgId()
	return a
}

// write appends to the text through a node, and returns the status of the message.
func (a *openAnswer) write(s *servertest.Server, text string) parleyv1.MessageStatus {
	a.t.Helper()
	res, err := inSessions(s, "bot", ident.SessionActions...).AppendSessionDelta(a.t.Context(), &parleyv1.AppendSessionDeltaRequest{
		SessionId: "s", MsgId: a.msgID, AppendToken: a.opened.GetAppendToken(), Offset: int64(len(a.text)), Text: text,
	})
	if err != nil {
		a.t.Fatalf("write: %v", err)
	}
	if res.GetStatus() == parleyv1.MessageStatus_MESSAGE_STATUS_OPEN {
		a.text += text
	}
	return res.GetStatus()
}

// textOf returns what a subscriber has of a message's text, and fails the test if a piece does not
// follow on.
func (s *stream) textOf(msgID string) (text string) {
	s.t.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, e := range s.events {
		switch d := e.GetDelta(); {
		case e.GetClosed().GetMsgId() == msgID:
			text = "closed: " + e.GetClosed().GetContent()
		case d.GetMsgId() != msgID:
		case d.GetOffset() > int64(len(text)):
			s.t.Fatalf("a piece at %d after %q", d.GetOffset(), text)
		default:
			text = text[:d.GetOffset()] + d.GetText()
		}
	}
	return text
}

func (a *openAnswer) await(want string, streams ...*stream) {
	a.t.Helper()
	testkit.Eventually(a.t, 20*time.Second, func() error {
		for i, s := range streams {
			if got := s.textOf(a.msgID); got != want {
				return fmt.Errorf("subscriber %d has %q, want %q", i, got, want)
			}
		}
		return nil
	})
}

func (a *openAnswer) follow(nodes ...*servertest.Server) (streams []*stream) {
	a.t.Helper()
	for _, n := range nodes {
		streams = append(streams, subscribe(a.t, inSessions(n, "ann"), from("~s", 0)))
	}
	return streams
}

// expectNoTexts waits until Redis has no texts of the session.
func expectNoTexts(t *testing.T, s *servertest.Server) {
	t.Helper()
	redis := s.Redis.Client(t)
	testkit.Eventually(t, 10*time.Second, func() error {
		if has := redis.HGetAll(t.Context(), openTextKey).Val(); len(has) > 0 {
			return fmt.Errorf("Redis has %v", has)
		}
		return nil
	})
}

// TestOpenText streams a text through nodes that stop, to subscribers on every node and to some
// that join late, until its owner cancels it through another node.
func TestOpenText(t *testing.T) {
	t.Parallel()
	nodes := fleetOf(t, 3)
	a := openIn(t, nodes[0])
	streams := a.follow(nodes[1:]...)
	for i := range 30 {
		a.write(nodes[0], fmt.Sprintf("wörd %d ", i))
	}
	a.await(a.text, streams...)
	streams = append(streams, a.follow(nodes[1:]...)...)
	a.await(a.text, streams...)
	nodes[0].Stop() // what it had is in the mirror
	a.write(nodes[1], "more ")
	a.await(a.text, streams...)
	streams = append(streams, subscribe(t, inSessions(nodes[2], "ann"), from("~s", 2)))
	a.write(nodes[2], "and more")
	a.await(a.text, streams...)

	res, err := inSessions(nodes[1], "ann").CancelSessionMessage(t.Context(), &parleyv1.CancelSessionMessageRequest{SessionId: "s", MsgId: a.msgID})
	if err != nil || res.GetMessage().GetContent() != a.text || res.GetMessage().GetStatus() != parleyv1.MessageStatus_MESSAGE_STATUS_CANCELLED {
		t.Fatalf("cancel: %v, %v", res, err)
	}
	for _, n := range nodes[1:] {
		if got := a.write(n, "late"); got != parleyv1.MessageStatus_MESSAGE_STATUS_CANCELLED {
			t.Errorf("a write after it: %v", got)
		}
	}
	a.await("closed: "+a.text, streams...)
	expectNoTexts(t, nodes[1])
	late := a.follow(nodes[2])
	if got := late[0].await("~s", 0, 3); got[2].GetClosed() == nil {
		t.Errorf("the last entry %v", got[2])
	}
}

// TestAbandonedText checks that a message whose generator has died is closed as failed, with the
// text that it had.
func TestAbandonedText(t *testing.T) {
	t.Parallel()
	nodes := fleetOf(t, 2, servertest.With(func(c *config.Config) { c.Sessions.OpenTimeout = 2 * time.Second }))
	a := openIn(t, nodes[0])
	streams := a.follow(nodes[1])
	a.write(nodes[0], "half an ans")
	awaitTexts(t, nodes[0])
	refillList(t, nodes[1])
	nodes[0].Stop()
	a.await("closed: half an ans", streams...)
	messages := inSession(t, inSessions(nodes[1], "ann"), "s", 3)
	if m := messages[1]; m.GetStatus() != parleyv1.MessageStatus_MESSAGE_STATUS_FAILED {
		t.Errorf("the message %v", m)
	}
	if got := a.write(nodes[1], "wer"); got != parleyv1.MessageStatus_MESSAGE_STATUS_FAILED {
		t.Errorf("a write after it: %v", got)
	}
	expectNoTexts(t, nodes[1])
}

// awaitTexts waits until Redis has the text of an open message of session s.
func awaitTexts(t *testing.T, n *servertest.Server) {
	t.Helper()
	testkit.Eventually(t, 10*time.Second, func() error {
		if n.Redis.Client(t).HLen(t.Context(), openTextKey).Val() == 0 {
			return errors.New("the mirror has no text")
		}
		return nil
	})
}

// refillList deletes the list of session s in Redis and reads the session until it is there again.
func refillList(t *testing.T, n *servertest.Server) {
	t.Helper()
	const key = "chat:session:s:messages"
	redis := n.Redis.Client(t)
	if err := redis.Del(t.Context(), key).Err(); err != nil {
		t.Fatal(err)
	}
	testkit.Eventually(t, 10*time.Second, func() error {
		if _, err := inSessions(n, "ann").ListSessionMessages(t.Context(), &parleyv1.ListSessionMessagesRequest{SessionId: "s"}); err != nil {
			return err
		}
		if redis.Exists(t.Context(), key).Val() == 0 {
			return errors.New("the list is not in Redis")
		}
		return nil
	})
}

// TestEndedText checks that Redis keeps no text of a message that was recalled, or whose session
// was deleted, while its generator goes on.
func TestEndedText(t *testing.T) {
	t.Parallel()
	for name, end := range map[string]func(c client, msgID string) error{
		"recalled": func(c client, msgID string) error {
			return callErr(c.RecallSessionMessage(t.Context(), &parleyv1.RecallSessionMessageRequest{SessionId: "s", MsgId: msgID}))
		},
		"deleted": func(c client, _ string) error {
			return callErr(c.DeleteSession(t.Context(), &parleyv1.DeleteSessionRequest{SessionId: "s"}))
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			nodes := fleetOf(t, 2)
			a := openIn(t, nodes[0])
			a.write(nodes[0], "secret")
			awaitTexts(t, nodes[0])
			if err := end(inSessions(nodes[1], "ann"), a.msgID); err != nil {
				t.Fatal(err)
			}
			testkit.Eventually(t, 20*time.Second, func() error {
				if got := a.write(nodes[0], "."); got != parleyv1.MessageStatus_MESSAGE_STATUS_RECALLED {
					return fmt.Errorf("the status is %v", got)
				}
				return nil
			})
			expectNoTexts(t, nodes[0])
		})
	}
}

// TestTextWithoutRedis checks that texts are streamed while Redis is away, and that a cancelled
// message has the text.
func TestTextWithoutRedis(t *testing.T) {
	t.Parallel()
	nodes := fleetOf(t, 2)
	a := openIn(t, nodes[0])
	streams := a.follow(nodes...)
	a.write(nodes[0], "before ")
	a.await(a.text, streams...)
	nodes[0].Redis.Kill()
	for range 20 {
		began := time.Now()
		a.write(nodes[0], strings.Repeat("x", 100))
		if took := time.Since(began); took > time.Second {
			t.Errorf("a write took %v", took)
		}
	}
	a.await(a.text, streams...)
	res, err := inSessions(nodes[1], "ann").CancelSessionMessage(t.Context(), &parleyv1.CancelSessionMessageRequest{SessionId: "s", MsgId: a.msgID})
	if err != nil || res.GetMessage().GetContent() != a.text {
		t.Fatalf("cancel: %v, %v", res, err)
	}
	a.await("closed: "+a.text, streams...)
}
