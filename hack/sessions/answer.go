package main

import (
	"strings"
	"sync"
	"time"
	"unicode"
	"unicode/utf8"

	parleyv1 "github.com/parleyhq/parley/gen/go/parley/v1"
)

// answer is an answer of the assistant: what is done with it, and what became of it.
type answer struct {
	session  *session
	id, text string
	pieces   []string // text, cut after each word and the space behind it
	fate     fate
	cut      int // the number of pieces that are written before the fate, unless completed
	// late is the number of pieces after which another subscriber joins; 0 means none does.
	late int

	mu      sync.Mutex // guards the fields below
	written int        // the bytes that were written
	// shown is the most bytes of the text that any subscriber had while the message was open.
	shown int
	// shownAtCancel is shown when the owner cancelled.
	shownAtCancel int
	// opened is when the open was requested, died when the generator died, and ended when the end was
	// first seen: in the response of the close, or by a subscriber.
	opened, died, ended time.Time
	// listed is set if nobody saw the end before the last lists, long after it.
	listed bool
	msgID  string
	// cancelBegan is when the cancel call began, and cancelTook how long it took, or 0 until it ends.
	cancelBegan time.Time
	cancelTook  time.Duration
	// repeated reports whether an earlier attempt of the open had succeeded.
	repeated bool
}

func newAnswer(seed uint64, s *session, id, text string) *answer {
	a := &answer{session: s, id: id, text: text, pieces: pieces(text)}
	key := s.id + "/" + id
	switch n := chance(seed, "fate", key) % 100; {
	case n < cancelledPercent:
		a.fate = cancelled
	case n < cancelledPercent+abandonedPercent:
		a.fate = abandoned
	}
	a.cut = 1 + int(chance(seed, "cut", key)%uint64(len(a.pieces))) //nolint:gosec // as many as words
	return a
}

// pieces cuts a text after each word and the space behind it.
func pieces(text string) (out []string) {
	for text != "" {
		word := strings.IndexFunc(strings.TrimLeftFunc(text, unicode.IsSpace), unicode.IsSpace)
		if word < 0 {
			return append(out, text)
		}
		word += len(text) - len(strings.TrimLeftFunc(text, unicode.IsSpace))
		end := word
		for end < len(text) {
			r, n := utf8.DecodeRuneInString(text[end:])
			if !unicode.IsSpace(r) {
				break
			}
			end += n
		}
		out, text = append(out, text[:end]), text[end:]
	}
	return out
}

// write adds a piece to what was written. It is called before the SDK has the piece.
func (a *answer) write(piece string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.written += len(piece)
}

// show records that a subscriber has a text of the open answer. It returns what is wrong with it.
func (a *answer) show(text string) string {
	a.mu.Lock()
	defer a.mu.Unlock()
	if len(text) > a.written || text != a.text[:len(text)] {
		return "is not a prefix of the text that was written"
	}
	a.shown = max(a.shown, len(text))
	return ""
}

// cancelling records what is shown when the owner cancels.
func (a *answer) cancelling() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.shownAtCancel, a.cancelBegan = a.shown, time.Now()
}

// cancelDone records that the cancel call has ended.
func (a *answer) cancelDone() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.cancelTook = time.Since(a.cancelBegan)
}

// mayLack reports whether the stored text may be shorter than what was shown: a node was dead, or
// the cancel call takes so long that one may not have answered in time.
func (a *answer) mayLack(f *faults) bool {
	a.mu.Lock()
	opened, ended, began, took := a.opened, a.ended, a.cancelBegan, a.cancelTook
	a.mu.Unlock()
	if ended.IsZero() {
		ended = time.Now()
	}
	if took == 0 && !began.IsZero() { // a subscriber may have the end before the owner has the answer
		took = time.Since(began)
	}
	return took > freezeWait || f.killedDuring(opened, ended)
}

// end records that the end of the answer was seen.
func (a *answer) end() {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.ended.IsZero() {
		a.ended = time.Now()
	}
}

// listEnd records that the end of the answer was in a list.
func (a *answer) listEnd() {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.ended.IsZero() {
		a.ended, a.listed = time.Now(), true
	}
}

// status returns the status of the message in the end.
func (f fate) status() parleyv1.MessageStatus {
	switch f {
	case cancelled:
		return parleyv1.MessageStatus_MESSAGE_STATUS_CANCELLED
	case abandoned:
		return parleyv1.MessageStatus_MESSAGE_STATUS_FAILED
	case completed:
	}
	return parleyv1.MessageStatus_MESSAGE_STATUS_SENT
}
