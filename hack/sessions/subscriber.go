package main

import (
	"strings"
	"sync"

	parleyv1 "github.com/parleyhq/parley/gen/go/parley/v1"
	parley "github.com/parleyhq/parley/sdk/go"
)

// held is a message as a subscriber has it.
type held struct {
	id, content  string
	seq, changed int64
	status       parleyv1.MessageStatus
	// shown is the text of an open message so far.
	shown string
}

// followed is what a subscriber has of a session.
type followed struct {
	seq      int64 // the last entry
	messages []*held
	byID     map[string]*held // by msg_id
}

// subscriber follows sessions on one node.
type subscriber struct {
	*audience

	name  string
	sub   *parley.Subscription
	until *answer
	room  int // how many more sessions fit; only for extend
	texts parley.OpenTexts

	mu       sync.Mutex           // guards channels, and what it holds
	channels map[string]*followed // by channel id
}

// run takes events until the subscription ends, or the answer at whose end it leaves.
func (s *subscriber) run() {
	defer s.sub.Close()
	for {
		e, err := s.sub.Next(s.ctx)
		if err != nil {
			if s.ctx.Err() == nil {
				s.Wrongf("%s: its subscription ended: %v", s.name, err)
			}
			return
		}
		if s.take(&e) {
			return
		}
	}
}

// take takes an event. It returns true if the subscriber leaves.
func (s *subscriber) take(e *parley.Event) (leave bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	f := s.channels[e.ChannelID]
	if f == nil {
		f = &followed{byID: make(map[string]*held)}
		s.channels[e.ChannelID] = f
	}
	switch e.Kind {
	case parley.EventSent:
		s.takeSent(f, e)
	case parley.EventClosed:
		s.takeClosed(f, e)
	case parley.EventDelta:
		s.takeDelta(f, e)
	case parley.EventChannelState:
		if e.Seq < f.seq {
			s.Wrongf("%s, %s: a state at %d after %d", s.name, e.ChannelID, e.Seq, f.seq)
		}
	case parley.EventEdited, parley.EventRecalled, parley.EventGap, parley.EventLost, parley.EventTyping:
		s.Wrongf("%s, %s: an event of the kind %s at %d", s.name, e.ChannelID, e.Kind, e.Seq)
	}
	return s.until != nil && s.leaves(f)
}

// leaves reports whether the answer of a late subscriber is over.
func (s *subscriber) leaves(f *followed) bool {
	for _, m := range f.messages {
		if m.id == s.until.id {
			return m.status != parleyv1.MessageStatus_MESSAGE_STATUS_OPEN
		}
	}
	return false
}

// advance moves to the entry of an event.
func (s *subscriber) advance(f *followed, e *parley.Event) {
	if e.Seq <= f.seq {
		s.Wrongf("%s, %s: entry %d after %d", s.name, e.ChannelID, e.Seq, f.seq)
	}
	f.seq = max(f.seq, e.Seq)
}

func (s *subscriber) takeSent(f *followed, e *parley.Event) {
	s.advance(f, e)
	m := e.Message
	if f.byID[m.GetMsgId()] != nil {
		s.Wrongf("%s, %s: message %d arrived twice", s.name, e.ChannelID, m.GetSeq())
		return
	}
	_, text, _ := s.texts.Apply(e)
	h := &held{
		id: m.GetClientMsgId(), content: m.GetContent(), seq: m.GetSeq(), changed: m.GetChangedSeq(), status: m.GetStatus(), shown: text,
	}
	f.messages = append(f.messages, h)
	f.byID[m.GetMsgId()] = h
	if h.status == parleyv1.MessageStatus_MESSAGE_STATUS_OPEN && (h.content != "" || text != "") {
		s.Wrongf("%s, %s: message %d is open and has the content %q", s.name, e.ChannelID, h.seq, h.content)
	}
}

func (s *subscriber) takeDelta(f *followed, e *parley.Event) {
	h := f.byID[e.Delta.GetMsgId()]
	_, text, ok := s.texts.Apply(e)
	if !ok || h == nil || h.status != parleyv1.MessageStatus_MESSAGE_STATUS_OPEN {
		s.Wrongf("%s, %s: a delta at %d that follows nothing", s.name, e.ChannelID, e.Delta.GetOffset())
		return
	}
	s.Add("deltas", 1)
	h.shown = text
	a := s.find(e.ChannelID, &parley.Message{ClientMsgId: h.id})
	if a == nil {
		s.Wrongf("%s, %s: a delta of %s, which is no answer", s.name, e.ChannelID, h.id)
		return
	}
	if problem := a.show(text); problem != "" {
		s.Wrongf("%s, %s: the text of %s %s: %q", s.name, e.ChannelID, h.id, problem, text)
	}
}

func (s *subscriber) takeClosed(f *followed, e *parley.Event) {
	s.advance(f, e)
	m := e.Message
	h, a := f.byID[m.GetMsgId()], s.find(e.ChannelID, m)
	if h == nil || a == nil {
		s.Wrongf("%s, %s: the end of message %d, which is not known", s.name, e.ChannelID, m.GetSeq())
		return
	}
	s.texts.Apply(e)
	if h.status != parleyv1.MessageStatus_MESSAGE_STATUS_OPEN { // it was closed when it was replayed
		if h.content != m.GetContent() || h.status != m.GetStatus() {
			s.Wrongf("%s, %s: %s ended as %q and ends again as %q", s.name, e.ChannelID, h.id, h.content, m.GetContent())
		}
		return
	}
	h.content, h.status, h.changed = m.GetContent(), m.GetStatus(), m.GetChangedSeq()
	a.end()
	s.Add("ends of open messages", 1)
	if h.shown != "" {
		s.Add("ends after some of the text", 1)
	}
	if strings.HasPrefix(h.content, h.shown) {
		return
	}
	if strings.HasPrefix(h.shown, h.content) && a.fate != completed && a.mayLack(s.faults) {
		s.Add("ends with less than was shown", 1)
		return
	}
	s.Wrongf("%s, %s: %s ends as %q, and was shown as %q", s.name, e.ChannelID, h.id, h.content, h.shown)
}
