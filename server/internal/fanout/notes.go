package fanout

import (
	"slices"

	"github.com/parleyhq/parley/server/internal/stream"
)

// maxNotes is the maximum number of pending notes of a stream; further notes of typing are
// dropped.
const maxNotes = 64

// note is a typing notification or the loss of a channel. It has no position in the log and does
// not count as a queued event. Notes are sent after all queued pieces, so that a channel's State
// event precedes its notes.
type note struct {
	channelID string
	// userID is the user who is typing; empty if the channel is lost.
	userID string
	data   []byte
}

// typing announces to the live subscribers that a user is typing.
func (t *topic) typing(userID string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.closed || len(t.live) == 0 {
		return
	}
	n := note{channelID: t.channelID, userID: userID, data: t.hub.enc.Typing(t.channelID, userID)}
	for _, u := range t.live {
		u.stream.typing(n)
	}
}

// typing queues a note of typing. It drops the note if the same one is pending, if maxNotes are, or
// if half of a limit of the queue is used up.
func (s *Stream) typing(n note) {
	s.mu.Lock()
	defer s.mu.Unlock()
	cfg := &s.hub.cfg
	switch {
	case s.core.State() != stream.Live:
	case s.liveEvents >= cfg.QueueEvents/2 || s.liveBytes >= cfg.QueueBytes/2 || len(s.notes) >= maxNotes:
	case slices.ContainsFunc(s.notes, func(o note) bool { return o.channelID == n.channelID && o.userID == n.userID }):
		// The same note is pending already.
	default:
		s.notes = append(s.notes, n)
		s.core.Wake()
	}
}

// joinNotes moves pending notes to the frame, up to room bytes, but at least one if the frame is
// empty.
func (s *Stream) joinNotes(room int) {
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

// dropNotes drops the pending notes of the chosen channels.
func (s *Stream) dropNotes(chosen func(channelID string) bool) {
	if len(s.notes) > 0 {
		s.notes = slices.DeleteFunc(s.notes, func(n note) bool { return chosen(n.channelID) })
	}
}
