package fanout

import (
	"slices"

	"github.com/parleyhq/parley/server/internal/message"
	"github.com/parleyhq/parley/server/internal/stream"
)

// SubscribedSubjects returns the subjects whose streams on this node subscribe to the channel, each
// once, in no particular order. It omits a subject whose subscriptions all need no membership: in
// an open channel those that are not Position.Member, and in a members-only one those that are
// Position.Exempt. For a deleted channel it omits none. The result includes every subscription
// whose Update returned before the call.
func (h *Hub) SubscribedSubjects(channelID string, mode message.Mode) []string {
	subs := h.subscriptions(channelID)
	subjects := make([]string, 0, len(subs))
	seen := make(map[string]struct{}, len(subs))
	for _, u := range subs {
		if _, ok := seen[u.stream.core.Subject]; ok || !u.want.requires(mode) {
			continue
		}
		seen[u.stream.core.Subject] = struct{}{}
		subjects = append(subjects, u.stream.core.Subject)
	}
	return subjects
}

// Expel removes the channel from every stream of the subject, except from the subscriptions that
// SubscribedSubjects omits.
//
// Once it returns, later frames contain nothing of the channel but one Lost, and the error at the
// stream's end does not name it. A concurrent Update takes effect before or after Expel: if it
// adds the channel afterwards, the stream has the channel, and a Lost that is still pending is
// dropped. A draining stream gets no Lost. Expel does no I/O.
func (h *Hub) Expel(channelID, subject string, mode message.Mode) {
	reason := LostNotMember
	if mode == message.ModeDeleted {
		reason = LostDeleted
	}
	var lost []byte
	for _, u := range h.subscriptions(channelID) {
		if u.stream.core.Subject != subject {
			continue
		}
		if lost == nil {
			lost = h.enc.Lost(channelID, reason)
		}
		u.stream.expel(channelID, mode, lost)
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
// stream does not have the channel or its subscription needs no membership.
func (s *Stream) expel(channelID string, mode message.Mode, lost []byte) {
	s.expelIf(channelID, lost, func(u *subscription) bool { return u.want.requires(mode) })
}

// expelOne is expel for one subscription: it does nothing if the stream has another one of the
// channel by now.
func (s *Stream) expelOne(u *subscription, lost []byte) {
	s.expelIf(u.want.ChannelID, lost, func(current *subscription) bool { return current == u })
}

func (s *Stream) expelIf(channelID string, lost []byte, chosen func(*subscription) bool) {
	s.edit.Lock()
	defer s.edit.Unlock()
	s.mu.Lock()
	at, ok := slices.BinarySearchFunc(s.subs, channelID, compareChannel)
	ok = ok && chosen(s.subs[at])
	s.mu.Unlock()
	if ok {
		s.lose(map[string][]byte{channelID: lost})
	}
}

// lose removes channels from the stream and queues an encoded Lost of each. The caller holds edit.
func (s *Stream) lose(channels map[string][]byte) {
	if len(channels) == 0 {
		return
	}
	s.drop(func(id string) bool { _, ok := channels[id]; return ok })
	s.hub.stats.expelled.Add(int64(len(channels)))
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.core.State() != stream.Live {
		return
	}
	for id, lost := range channels {
		s.notes = append(s.notes, note{channelID: id, data: lost})
	}
	s.core.Wake()
}
