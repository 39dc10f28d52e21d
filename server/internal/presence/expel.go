package presence

import "github.com/parleyhq/parley/server/internal/fault"

// WatchingSubjects returns the subjects whose streams on this node watch the channel, each once, in
// no particular order. A subject whose watches are all ChannelRef.Exempt is omitted, unless the
// channel was deleted. The result includes every watch whose WatchChannel or Open returned before
// the call.
func (h *Hub) WatchingSubjects(channelID string, deleted bool) []string {
	var subjects []string
	seen := map[string]struct{}{}
	for _, s := range h.view.watchers(channelID) {
		if _, ok := seen[s.core.Subject]; !ok && s.expellable(channelID, deleted) {
			seen[s.core.Subject] = struct{}{}
			subjects = append(subjects, s.core.Subject)
		}
	}
	return subjects
}

// Expel makes every stream of the subject stop watching the channel, except if its watch is
// ChannelRef.Exempt and the channel was not deleted. Such a stream sends one last state of the
// channel, with Lost. A concurrent WatchChannel takes effect before or after Expel. Expel may be
// repeated, and does no I/O.
func (h *Hub) Expel(channelID, subject string, deleted bool) {
	for _, s := range h.view.watchers(channelID) {
		if s.core.Subject == subject {
			h.view.expel(s, channelID, deleted)
		}
	}
}

// watchers returns the streams that watch a channel.
func (v *view) watchers(channelID string) []*Stream {
	v.channelMu.Lock()
	c := v.channels[channelID]
	v.channelMu.Unlock()
	if c == nil {
		return nil
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	streams := make([]*Stream, 0, len(c.streams))
	for s := range c.streams {
		streams = append(streams, s)
	}
	return streams
}

// expellable reports whether the stream watches the channel and needs a membership for it, or
// whether it watches it and the channel was deleted.
func (s *Stream) expellable(channelID string, deleted bool) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	sub := s.channels[channelID]
	return sub != nil && (deleted || !sub.exempt)
}

// expel makes a stream stop watching a channel, with a last state, if it is expellable.
func (v *view) expel(s *Stream, channelID string, deleted bool) {
	reason := fault.NotMember
	if deleted {
		reason = fault.ChannelNotFound
	}
	s.edit.Lock()
	defer s.edit.Unlock()
	if !s.expellable(channelID, deleted) {
		return
	}
	s.mu.Lock()
	c := s.channels[channelID].watch
	s.mu.Unlock()
	v.detach(s, c, reason)
	v.enlist(s)
	v.stats.expelled.Add(1)
}
