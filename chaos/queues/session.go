package queues

import (
	"cmp"
	"slices"
	"time"

	"github.com/parleyhq/parley/chaos"
)

// session is one consumer's registration, with its streams and what it was told about its contact.
type session struct {
	streams  []*Stream  // in order of Asked
	contacts []*Contact // in order of Confirmed
}

func (m *model) addSessions() {
	in := func(id string) *session {
		s := m.sessions[id]
		if s == nil {
			s = new(session)
			m.sessions[id] = s
		}
		return s
	}
	for i := range m.h.Streams {
		s := in(m.h.Streams[i].Session)
		s.streams = append(s.streams, &m.h.Streams[i])
	}
	for i := range m.h.Contacts {
		c := &m.h.Contacts[i]
		s := in(c.Session)
		// A frame that was read late says less than it seems to.
		late := slices.ContainsFunc(s.streams, func(one *Stream) bool { return m.heldUp(one.ID, c.At-int64(slack), c.At) })
		if !late {
			s.contacts = append(s.contacts, c)
		}
	}
	for _, s := range m.sessions {
		slices.SortFunc(s.streams, func(a, b *Stream) int { return cmp.Compare(a.Asked, b.Asked) })
		slices.SortFunc(s.contacts, func(a, b *Contact) int { return cmp.Compare(a.Confirmed, b.Confirmed) })
	}
}

// lasts returns until when the server must keep what a session has from a time on: the grace after
// each confirmed contact, as long as the next one comes within it.
func (s *session) lasts(from int64) int64 {
	if len(s.streams) == 0 {
		return from
	}
	grace := int64(s.streams[0].Grace)
	until := from // the contact that is confirmed before counts
	for _, c := range s.contacts {
		if c.Confirmed > max(until, from) {
			break
		}
		until = max(until, c.Confirmed+grace)
	}
	return until
}

// deadlineSlack is how much earlier than the client counts a deadline may pass, which the server
// counts from when it sent the delivery.
const deadlineSlack = int64(time.Second)

// kept returns until when a delivery certainly belongs to its session: nobody has settled or
// returned it, its deadline has not passed, and the session has contact. It is at
// least d.At, and no more if the delivery may have been sent long before.
func (m *model) kept(d *Delivery) int64 {
	s := m.sessions[d.Session]
	if s == nil || m.heldUp(d.Stream, d.At-int64(slack), d.At) {
		return d.At
	}
	end := s.lasts(d.At)
	stream := m.streams[d.Stream]
	deadline := d.At + int64(stream.AckTimeout)
	for _, op := range m.byToken[held{d.Session, d.Token}] {
		switch {
		// A node may have had no answer to its first try, which was done, and an error to its second.
		case op.Outcome == chaos.Failed && !m.amidFault(op.Begin, op.End):
		// A later extension proves nothing: a new lease holder accepts those of deliveries that it does
		// not know yet.
		case op.Kind.settles():
			end = min(end, op.Begin)
		case op.Kind == Extend && op.Outcome == chaos.OK && op.Begin < deadline-deadlineSlack:
			deadline = max(deadline, op.Begin+int64(stream.AckTimeout))
		default:
		}
	}
	for _, op := range m.bySession[d.Session] {
		switch {
		case op.Kind == Leave:
			end = min(end, op.Begin)
		case op.Kind == Extend && op.Outcome == chaos.OK && op.Begin > d.At && op.Begin < deadline-deadlineSlack:
			deadline = max(deadline, op.Begin+int64(stream.AckTimeout))
		default:
		}
	}
	for _, next := range s.streams {
		if next.Asked > d.At && next.Resumes > 0 && !slices.Contains(next.Held, d.Token) {
			end = min(end, next.Asked) // the client did not present it
		}
	}
	return max(min(end, deadline-deadlineSlack), d.At)
}

// began reports whether a handler of a delivery is known to the server to have begun it, or may be.
func (m *model) began(d *Delivery) bool {
	stream := m.streams[d.Stream]
	if stream == nil || !stream.Reports {
		return true
	}
	return slices.ContainsFunc(m.byToken[held{d.Session, d.Token}], func(op *Op) bool { return op.Kind == Begun || op.Kind.settles() })
}
