package fanout

import (
	"slices"
	"sync/atomic"
	"unicode/utf8"

	"github.com/parleyhq/parley/server/internal/stream"
)

// sharedText is a text that a topic appends to while streams read it. Only the topic changes it,
// under topic.mu.
type sharedText struct{ now atomic.Pointer[textState] }

// textState is a text at one moment. It is immutable: a later state may have the same bytes and
// more after them.
type textState struct {
	attempt int64
	text    []byte
	// tail is the encoded rest of the text after tailFrom, for the subscribers that have all before.
	tail     []byte
	tailFrom int
}

func (s *sharedText) load() *textState { return s.now.Load() }

// restart begins the text of an attempt.
func (s *sharedText) restart(attempt int64) { s.now.Store(&textState{attempt: attempt}) }

// append appends text; encoded is its Encoder.Delta.
func (s *sharedText) append(text string, encoded []byte) {
	now := s.now.Load()
	s.now.Store(&textState{
		attempt: now.attempt, text: append(now.text, text...), tail: encoded, tailFrom: len(now.text),
	})
}

// textCursor is how much of a text a stream has been sent: sent bytes of an attempt.
type textCursor struct {
	sub     *subscription
	text    *openText
	attempt int64
	sent    int
}

// follow lets the stream send what it has not sent of a text.
func (s *Stream) follow(u *subscription, o *openText) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.core.State() != stream.Live || u.removed {
		return
	}
	if !slices.ContainsFunc(s.texts, func(c textCursor) bool { return c.text == o }) {
		s.texts = append(s.texts, textCursor{sub: u, text: o})
	}
	s.core.Wake()
}

// unfollow removes the chosen texts from the stream.
func (s *Stream) unfollow(chosen func(*textCursor) bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.texts = slices.DeleteFunc(s.texts, func(c textCursor) bool { return chosen(&c) }); len(s.texts) == 0 {
		s.texts = nil
	}
}

// rest returns the state of the cursor's text if the stream has not sent all of it, and nil
// otherwise.
func (c *textCursor) rest() *textState {
	now := c.text.shared.load()
	if len(now.text) == 0 || now.attempt == c.attempt && len(now.text) == c.sent {
		return nil
	}
	return now
}

// textsGrew reports whether a text has a part that the stream has not sent.
func (s *Stream) textsGrew() bool {
	return slices.ContainsFunc(s.texts, func(c textCursor) bool { return c.rest() != nil })
}

// joinTexts adds what was not sent of the texts to a frame, to which it adds at least something if
// it is empty. size is the frame's size in bytes; joinTexts returns the new one.
func (s *Stream) joinTexts(size int) int {
	for i := range s.texts {
		c := &s.texts[i]
		now := c.rest()
		if now == nil {
			continue
		}
		from := 0
		if now.attempt == c.attempt {
			from = c.sent
		}
		data := now.tail
		if now.tailFrom != from {
			data = s.hub.enc.Delta(c.text.channelID, c.text.msgID, from, string(now.text[from:]))
		}
		end := len(now.text)
		if len(s.pieces) > 0 && size+len(data) > s.hub.cfg.FrameBytes {
			break
		}
		if !s.takeUnread(size + len(data)) {
			if len(s.pieces) > 0 {
				break
			}
			end = from + runes(now.text[from:], freeUnread)
			data = s.hub.enc.Delta(c.text.channelID, c.text.msgID, from, string(now.text[from:end]))
		}
		size += len(data)
		s.pieces = append(s.pieces, data)
		c.attempt, c.sent = now.attempt, end
	}
	return size
}

// runes returns the length of the longest prefix of a text that has at most n bytes and ends with a
// whole character. n is at least that of a character.
func runes(text []byte, n int) int {
	if len(text) <= n {
		return len(text)
	}
	for !utf8.RuneStart(text[n]) {
		n--
	}
	return n
}
