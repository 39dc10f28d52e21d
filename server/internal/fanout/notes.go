package fanout

import (
	"slices"

	"github.com/parleyhq/parley/server/internal/stream"
)

// maxNotes is how many notes may wait for a session's reader before it is told of no more typing.
const maxNotes = 64

// note is what a session is told beside the log: it has no place in the order, and counts against no bound. Notes
// follow what is queued, so that nothing of a channel comes before its State.
type note struct {
	channelID string
	// userID is who types; empty where the channel is lost.
	userID string
	data   []byte
}

// typing tells the live subscribers that somebody is typing.
func (t *topic) typing(userID string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.closed || len(t.live) == 0 {
		return
	}
	n := note{channelID: t.channelID, userID: userID, data: t.hub.enc.Typing(t.channelID, userID)}
	for _, u := range t.live {
		u.session.typing(n)
	}
}

// typing takes a note of typing, unless the reader is behind: nothing is lost with one.
func (s *Session) typing(n note) {
	s.mu.Lock()
	defer s.mu.Unlock()
	cfg := &s.hub.cfg
	switch {
	case s.core.State() != stream.Live:
	case s.liveEvents >= cfg.QueueEvents/2 || s.liveBytes >= cfg.QueueBytes/2 || len(s.notes) >= maxNotes:
	case slices.ContainsFunc(s.notes, func(o note) bool { return o.channelID == n.channelID && o.userID == n.userID }):
		// It waits to be told already.
	default:
		s.notes = append(s.notes, n)
		s.core.Wake()
	}
}

// joinNotes adds notes to the frame, up to a size.
func (s *Session) joinNotes(room int) {
	n := 0
	for n < len(s.notes) && (len(s.pieces) == 0 || len(s.notes[n].data) <= room) {
		room -= len(s.notes[n].data)
		s.pieces = append(s.pieces, s.notes[n].data)
		n++
	}
	if s.notes = slices.Delete(s.notes, 0, n); len(s.notes) == 0 {
		s.notes = nil
	}
}

// dropNotes forgets what waits to be told of the chosen channels.
func (s *Session) dropNotes(chosen func(channelID string) bool) {
	if len(s.notes) > 0 {
		s.notes = slices.DeleteFunc(s.notes, func(n note) bool { return chosen(n.channelID) })
	}
}
