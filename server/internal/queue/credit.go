package queue

import (
	"slices"

	"github.com/parleyhq/parley/server/internal/fault"
)

// maxFetch is the most that one call asks the store for.
const maxFetch = 256

// expectedSize is what a message is taken to be large until a partition's messages have told.
const expectedSize = 4 << 10

// credits are a session's allowance, and what of it is taken. Its session's mu guards it.
//
// Message credits are exact: they are reserved before anything is read, so no more is read than may be sent. How large messages are
// is known only when they are here, so of bytes at most one batch per partition too much is read; it waits in memory, unsent.
type credits struct {
	// messages and bytes are the running totals granted; sentMessages and sentBytes those used.
	messages, bytes         int64
	sentMessages, sentBytes int64
	// reserved counts messages that are being read or wait to be sent; waitingBytes is how large the latter are, and expectedBytes
	// how large the former may be.
	reserved                    int
	waitingBytes, expectedBytes int64
	// inFlight counts messages that were sent and are not settled.
	inFlight int
	// line are the workers that want to read, in the order in which they asked.
	line []*worker
}

// free is how many more messages may be read. Beside the credits, what is unsettled is bounded, so that no client can pile up
// deliveries without end by granting credits alone.
func (c *credits) free() int {
	n := min(c.messages-c.sentMessages, MaxCredits-int64(c.inFlight)) - int64(c.reserved)
	return int(max(n, 0))
}

// room is how many more bytes may be read.
func (c *credits) room() int64 { return c.bytes - c.sentBytes - c.waitingBytes - c.expectedBytes }

// maySend reports whether a message of this size may be sent now. One that is larger than what is left goes when nothing is in
// flight: else it would wait for ever.
func (c *credits) maySend(size int64) bool {
	return size <= c.bytes-c.sentBytes || c.inFlight == 0
}

// ask puts a worker in line for a turn to read. The session's mu is held.
func (s *Session) ask(w *worker) {
	if !w.inLine {
		w.inLine = true
		s.line = append(s.line, w)
	}
	s.serve()
}

// serve gives turns to those in line, as credits allow. All that wait get about the same, and who had a turn asks again behind the
// others, so one busy partition starves none. The session's mu is held.
func (s *Session) serve() {
	for len(s.line) > 0 {
		n := s.free()
		if n == 0 {
			return
		}
		w := s.line[0]
		n = min((n+len(s.line)-1)/len(s.line), maxFetch)
		if room := s.room(); room > 0 {
			n = int(min(int64(n), max(room/w.typical, 1)))
		} else {
			if s.inFlight > 0 || s.reserved > 0 {
				return
			}
			n = 1
		}
		s.line = s.line[1:]
		w.inLine = false
		w.turn, w.expected = n, int64(n)*w.typical
		s.reserved += w.turn
		s.expectedBytes += w.expected
		w.poke()
	}
	s.line = nil
}

// endTurn takes back what of a worker's turn was not used. The session's mu is held.
func (s *Session) endTurn(w *worker, entries []Entry) {
	s.reserved -= w.turn - len(entries)
	s.expectedBytes -= w.expected
	w.turn, w.expected = 0, 0
	var bytes int64
	for i := range entries {
		bytes += int64(entries[i].Size())
	}
	s.waitingBytes += bytes
	if len(entries) > 0 {
		// Growing sizes count at once, so that few large batches are read; shrinking ones by and by.
		mean := bytes/int64(len(entries)) + 1
		w.typical = max(mean, (3*w.typical+mean)/4)
	}
	s.serve()
}

// unread gives back the credits of entries that waited and will not be sent. The session's mu is held.
func (s *Session) unread(entries []Entry) {
	s.reserved -= len(entries)
	for i := range entries {
		s.waitingBytes -= int64(entries[i].Size())
	}
	s.serve()
}

// withdraw takes a worker out of the line, with its turn. The session's mu is held.
func (s *Session) withdraw(w *worker) {
	if w.inLine {
		w.inLine = false
		s.line = slices.DeleteFunc(s.line, func(o *worker) bool { return o == w })
	}
	if w.turn > 0 && !w.reading {
		s.endTurn(w, nil)
	}
}

// grant raises the totals. Lower ones change nothing, so repeats and late arrivals do no harm.
func (s *Session) grant(messages, bytes int64) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if messages-s.sentMessages > MaxCredits {
		return fault.Invalid("total_messages", MaxCredits, "total_messages may be at most %d more than was sent", MaxCredits)
	}
	if bytes-s.sentBytes > MaxCreditBytes {
		return fault.Invalid("total_bytes", MaxCreditBytes, "total_bytes may be at most %d more than was sent", MaxCreditBytes)
	}
	s.messages, s.bytes = max(s.messages, messages), max(s.bytes, bytes)
	s.serve()
	s.core.Wake()
	return nil
}
