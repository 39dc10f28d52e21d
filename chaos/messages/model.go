package messages

import (
	"cmp"
	"maps"
	"slices"
	"sort"
	"time"

	"github.com/parleyhq/parley/chaos"
)

// second is how far a list of messages may lag behind acknowledged writes, in nanoseconds.
const second = int64(time.Second)

// model is the expected state, derived from the requests and from the order of the log in the
// store.
type model struct {
	h    *History
	t    *Truth
	logs map[string][]Entry
	// asked has the requests by client_msg_id, with every op that made them.
	asked map[clientKey]*payload
	// messages has the messages by channel and seq, byID by message id.
	messages map[messageKey]*subject
	byID     map[string]*subject
	// sends are the seqs of each channel's messages, ascending.
	sends map[string][]int64
	acks  map[string]acks
}

// clientKey is the idempotency key of a write.
type clientKey struct{ channel, from, clientMsgID string }

// messageKey identifies an entry of a log, and a message by the entry of its send.
type messageKey struct {
	channel string
	seq     int64
}

// payload is the request made under one client_msg_id.
type payload struct {
	kind     Kind
	content  string
	metadata map[string]string
	target   string
	// open is set if the request opens a message.
	open bool
	ops  []*Op
}

// subject is a message with all its changes, in the order of the log.
type subject struct {
	entry   *Entry
	asked   *payload
	changes []change
	// recalled is the seq of the recall, and recallAcked the time of its first answer. Both are 0
	// without one.
	recalled, recallAcked int64
}

// change is the state of a message from the entry at seq until the next change.
type change struct {
	seq      int64
	status   Status
	content  string
	metadata map[string]string
	// known is false if no recorded call requested the entry. Its text can't be checked then.
	known bool
}

func newModel(h *History, t *Truth) *model {
	m := &model{
		h: h, t: t, logs: t.logs(), asked: make(map[clientKey]*payload), messages: make(map[messageKey]*subject),
		byID: make(map[string]*subject), sends: make(map[string][]int64), acks: make(map[string]acks),
	}
	for i := range h.Ops {
		if op := &h.Ops[i]; op.Kind.write() {
			m.ask(op)
		}
	}
	for _, log := range m.logs {
		for i := range log {
			m.append(&log[i])
		}
	}
	m.ackAll()
	return m
}

func (m *model) ask(op *Op) {
	key := clientKey{op.Channel, op.From, op.ClientMsgID}
	p := m.asked[key]
	if p == nil {
		p = &payload{kind: op.Kind, content: op.Content, metadata: op.Metadata, open: op.Open}
		if op.Kind != Send {
			p.target = op.MsgID
		}
		m.asked[key] = p
	}
	p.ops = append(p.ops, op)
}

// payloadOf returns the request with an entry's client_msg_id, or nil if there is none.
func (m *model) payloadOf(e *Entry) *payload {
	return m.asked[clientKey{e.Channel, e.From, e.ClientMsgID}]
}

func (m *model) append(e *Entry) {
	p := m.payloadOf(e)
	switch e.Kind {
	case entrySend:
		s := &subject{entry: e, asked: p, changes: []change{{seq: e.Seq}}}
		if p != nil {
			s.changes[0].content, s.changes[0].metadata, s.changes[0].known = p.content, p.metadata, true
			if p.open {
				s.changes[0].status = StatusOpen
			}
		}
		m.messages[messageKey{e.Channel, e.Seq}] = s
		m.byID[e.MsgID] = s
		m.sends[e.Channel] = append(m.sends[e.Channel], e.Seq)
	case entryComplete, entryCancel, entryFail:
		if s := m.messages[messageKey{e.Channel, e.TargetSeq}]; s != nil && s.recalled == 0 {
			s.changes = append(s.changes, m.closeOf(s, e, p))
		}
	case entryEdit:
		if s := m.messages[messageKey{e.Channel, e.TargetSeq}]; s != nil && s.recalled == 0 {
			c := change{seq: e.Seq, status: StatusEdited, metadata: s.changes[0].metadata}
			if p != nil {
				c.content, c.known = p.content, s.changes[0].known
			}
			s.changes = append(s.changes, c)
		}
	case entryRecall:
		if s := m.messages[messageKey{e.Channel, e.TargetSeq}]; s != nil && s.recalled == 0 {
			s.recalled = e.Seq
			s.changes = append(s.changes, change{seq: e.Seq, status: StatusRecalled, known: true})
		}
	}
}

// closeOf returns the state of a message after a close. The content of one that names no content is
// that of the store: checkTexts compares that with what was streamed.
func (m *model) closeOf(s *subject, e *Entry, p *payload) change {
	c := change{seq: e.Seq, status: closedStatus[e.Kind], metadata: s.changes[0].metadata}
	switch {
	case p != nil && p.kind == CloseMessage:
		c.content, c.known = p.content, s.changes[0].known
	case s.entry.ChangedSeq == e.Seq:
		c.content, c.known = s.entry.Content, s.changes[0].known
	}
	return c
}

// at returns the state of the message after its entry at changedSeq. It returns false if that entry
// did not change the message.
func (s *subject) at(changedSeq int64) (change, bool) {
	i, ok := slices.BinarySearchFunc(s.changes, changedSeq, func(c change, seq int64) int { return cmp.Compare(c.seq, seq) })
	if !ok {
		return change{}, false
	}
	return s.changes[i], true
}

// last returns the state of the message after all entries up to and including bound.
func (s *subject) last(bound int64) change {
	i := sort.Search(len(s.changes), func(i int) bool { return s.changes[i].seq > bound })
	if i == 0 {
		return s.changes[0]
	}
	return s.changes[i-1]
}

// final returns the final state of the message.
func (s *subject) final() change { return s.changes[len(s.changes)-1] }

// acks are the answers to a channel's writes in order of time, each with the highest seq
// acknowledged so far.
type acks []ack

type ack struct{ end, seq int64 }

// ackAll sets acks and every recallAcked from the answers to successful writes.
func (m *model) ackAll() {
	for i := range m.h.Ops {
		op := &m.h.Ops[i]
		if !op.Kind.write() || op.Outcome != chaos.OK {
			continue
		}
		m.acks[op.Channel] = append(m.acks[op.Channel], ack{op.End, op.Seq})
		if op.Kind == Recall {
			if s := m.byID[op.MsgID]; s != nil && (s.recallAcked == 0 || op.End < s.recallAcked) {
				s.recallAcked = op.End
			}
		}
	}
	for _, a := range m.acks {
		slices.SortFunc(a, func(x, y ack) int { return cmp.Compare(x.end, y.end) })
		for i := 1; i < len(a); i++ {
			a[i].seq = max(a[i].seq, a[i-1].seq)
		}
	}
}

// by returns the highest seq that was acknowledged before a time, or 0 if none was.
func (a acks) by(at int64) int64 {
	i := sort.Search(len(a), func(i int) bool { return a[i].end >= at })
	if i == 0 {
		return 0
	}
	return a[i-1].seq
}

// differs describes how a copy differs from the model at its changed_seq. It returns "" if it does
// not.
func (m *model) differs(c *Copy) string {
	s := m.messages[messageKey{c.Channel, c.Seq}]
	if s == nil {
		return "the log holds no message at this seq"
	}
	e := s.entry
	want, ok := s.at(c.ChangedSeq)
	switch {
	case !ok:
		return "no entry at its changed_seq changed it"
	case c.MsgID != e.MsgID, c.From != e.From, c.ClientMsgID != e.ClientMsgID, c.Type != e.Type, c.Count != e.Count,
		c.TimeMS != e.Time.UnixMilli():
		return "it is not the message that the log holds at this seq"
	case c.Status.shown() != want.status.shown():
		return "its status is not that of its changed_seq"
	case !want.known:
		return ""
	case c.Content != want.content:
		return "its content is not that of its changed_seq"
	case !maps.Equal(c.Metadata, want.metadata):
		return "its metadata is not what was sent"
	}
	return ""
}
