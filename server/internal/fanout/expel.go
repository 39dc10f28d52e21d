package fanout

import (
	"slices"

	"github.com/parleyhq/parley/server/internal/stream"
)

// SubscribedSubjects returns the subjects whose streams on this node subscribe to the channel, each
// once, in no particular order. A subject whose subscriptions are all Position.Exempt is omitted.
// The result includes every subscription whose Update returned before the call.
func (h *Hub) SubscribedSubjects(channelID string) []string {
	subs := h.subscriptions(channelID)
	subjects := make([]string, 0, len(subs))
	seen := make(map[string]struct{}, len(subs))
	for _, u := range subs {
		if _, ok := seen[u.stream.core.Subject]; ok || u.want.Exempt {
			continue
		}
		seen[u.stream.core.Subject] = struct{}{}
		subjects = append(subjects, u.stream.core.Subject)
	}
	return subjects
}

// Expel removes the channel from every stream of the subject, except from subscriptions that are
// Exempt.
//
// Once it returns, later frames contain nothing of the channel but one Lost, and the error at the
// stream's end does not name it. A concurrent Update takes effect before or after Expel: if it
// adds the channel afterwards, the stream has the channel, and a Lost that is still pending is
// dropped. A draining stream gets no Lost. Expel does no I/O.
func (h *Hub) Expel(channelID, subject string) {
	var lost []byte
	for _, u := range h.subscriptions(channelID) {
		if u.stream.core.Subject != subject {
			continue
		}
		if lost == nil {
			lost = h.enc.Lost(channelID, LostNotMember)
		}
		u.stream.expel(channelID, lost)
	}
}

// subscriptions returns a copy of a channel's current subscriptions. The caller may only use fields
// of them that never change.
func (h *Hub) subscriptions(channelID string) []*subscription {
	h.mu.Lock()
	t := h.topics[channelID]
	h.mu.Unlock()
	if t == nil {
		return nil
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	return slices.Clone(t.subs)
}

// expel removes a channel from the stream and queues lost, an encoded Lost. It does nothing if the
// stream does not have the channel or its subscription is Exempt.
func (s *Stream) expel(channelID string, lost []byte) {
	s.edit.Lock()
	defer s.edit.Unlock()
	s.mu.Lock()
	at, ok := slices.BinarySearchFunc(s.subs, channelID, compareChannel)
	ok = ok && !s.subs[at].want.Exempt
	s.mu.Unlock()
	if !ok {
		return
	}
	s.drop(func(id string) bool { return id == channelID })
	s.hub.stats.expelled.Add(1)
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.core.State() == stream.Live {
		s.notes = append(s.notes, note{channelID: channelID, data: lost})
		s.core.Wake()
	}
}
