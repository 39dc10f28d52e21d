package fanout

import (
	"slices"

	"github.com/parleyhq/parley/server/internal/stream"
)

// Watched gives the subjects that have the channel on this node by their membership: each once, in no order, and none
// whose every subscription is Position.Exempt. It holds all whose Update returned before the call.
func (h *Hub) Watched(channelID string) []string {
	subs := h.subscriptions(channelID)
	subjects := make([]string, 0, len(subs))
	seen := make(map[string]struct{}, len(subs))
	for _, u := range subs {
		if _, ok := seen[u.session.core.Subject]; ok || u.want.Exempt {
			continue
		}
		seen[u.session.core.Subject] = struct{}{}
		subjects = append(subjects, u.session.core.Subject)
	}
	return subjects
}

// Expel takes the channel off every session of the subject that does not have it Exempt. Once it returns, no later frame
// holds anything of the channel but one Lost, and the session's end does not name it. An Update at the same time comes
// before or after: one that adds the channel after it has it, and then Lost is not told if it was not yet. A session
// that drains is told nothing. It does no I/O.
func (h *Hub) Expel(channelID, subject string) {
	var lost []byte
	for _, u := range h.subscriptions(channelID) {
		if u.session.core.Subject != subject {
			continue
		}
		if lost == nil {
			lost = h.enc.Lost(channelID, LostNotMember)
		}
		u.session.expel(channelID, lost)
	}
}

// subscriptions gives those of a channel as they are now. Only what never changes of them may be looked at.
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

// expel takes a channel off the session and tells it so, unless the subscription that it has by now is exempt.
func (s *Session) expel(channelID string, lost []byte) {
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
