package parley

import (
	"testing"
	"time"

	parleyv1 "github.com/parleyhq/parley/gen/go/parley/v1"
	"github.com/parleyhq/parley/sdk/go/parleytest"
)

func TestOpenTexts(t *testing.T) {
	t.Parallel()
	const open, sent = parleyv1.MessageStatus_MESSAGE_STATUS_OPEN, parleyv1.MessageStatus_MESSAGE_STATUS_SENT
	message := func(status parleyv1.MessageStatus, content string) Event {
		return Event{Message: &Message{MsgId: "m", Status: status, Content: content}}
	}
	delta := func(offset int64, text string) Event {
		return Event{Delta: &parleyv1.MessageDelta{MsgId: "m", Offset: offset, Text: text}}
	}
	var texts OpenTexts
	for i, step := range []struct {
		event Event
		text  string
		ok    bool
	}{
		{delta(1, "late"), "", false},
		{delta(0, "early"), "early", true}, // of a message before the subscription
		{message(sent, "done"), "done", true},
		{message(open, "begun"), "begun", true},
		{delta(0, "ü"), "ü", true},
		{delta(2, " two"), "ü two", true},
		{delta(3, "2"), "ü 2", true},
		{delta(9, "hole"), "", false},
		{message(open, "begun"), "ü 2", true}, // again, after a reconnect
		{Event{Kind: EventTyping}, "", false},
		{delta(0, "anew"), "anew", true},
		{message(sent, "done"), "done", true},
		{delta(4, "late"), "", false},
	} {
		id, text, ok := texts.Apply(&step.event)
		if text != step.text || ok != step.ok || ok && id != "m" {
			t.Errorf("%d: %q, %q, %t", i, id, text, ok)
		}
	}
}

// TestOpenMessageIsKept checks that an open message is kept open while nothing is written.
func TestOpenMessageIsKept(t *testing.T) {
	t.Parallel()
	s := parleytest.Start(t)
	c, err := New(s.Addr(), WithToken("tester"))
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	m, err := c.Session("chat").open(t.Context(), SessionRoleUser, time.Millisecond, nil)
	if err != nil {
		t.Fatal(err)
	}
	look := time.NewTicker(time.Millisecond)
	defer look.Stop()
	for len(parleytest.RequestsOf[*parleyv1.AppendSessionDeltaRequest](s)) < 3 {
		if m.Err() != nil {
			t.Fatal(m.Err())
		}
		<-look.C
	}
	for _, req := range parleytest.RequestsOf[*parleyv1.AppendSessionDeltaRequest](s) {
		if req.GetText() != "" || req.GetOffset() != 0 {
			t.Errorf("%v", req)
		}
	}
	if err := m.Close(); err != nil {
		t.Fatal(err)
	}
}
