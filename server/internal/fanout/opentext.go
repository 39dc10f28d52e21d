package fanout

import (
	"context"
	"fmt"
	"slices"
	"time"
	"unicode/utf8"

	"github.com/parleyhq/parley/server/internal/message"
)

const (
	// holeWait is how long a topic waits for a missing delta before it reads the text. By then a text
	// that is read includes it, see Texts.
	holeWait = 200 * time.Millisecond
	// maxAhead and maxAheadDeltas bound the deltas of one text that wait for a missing one, in bytes
	// and in number.
	maxAhead       = 64 << 10
	maxAheadDeltas = 1024
	// endedIDs is how many messages that are no longer open a topic remembers, to drop their late
	// deltas.
	endedIDs = message.MaxOpenTexts
	// textIdle is how long a text is kept without a delta if another needs its place. An open message
	// is closed sooner.
	textIdle = 3 * time.Minute
)

// Texts reads the texts of open messages, for subscribers that begin in the middle of one. Its
// methods may be called concurrently.
type Texts interface {
	// Texts returns the texts of a session's open messages, and perhaps of messages that are no longer
	// open. They include what was published holeWait before the call, unless it was lost.
	Texts(ctx context.Context, channelID string) ([]message.OpenText, error)
}

// openTexts holds the texts of a session's open messages on one topic. What a subscriber has not
// been sent of a text is its rest, so texts need no queue: a reader that is slow gets larger
// pieces. It is guarded by topic.mu, except for its textCursors.
type openTexts struct {
	cancel func() // ends the subscription to the deltas; nil if there is none
	byID   map[string]*openText
	// ended holds the messages that were last seen to be no longer open. Those that may never have
	// been open are left out.
	ended []string
	// loaded is set once the texts were read that the topic missed. reading is set while a read is in
	// progress or planned, and fails counts the failed ones in a row.
	loaded, reading bool
	fails           int
}

// openText is the text of one open message.
type openText struct {
	channelID, msgID string
	seq              int64
	shared           sharedText
	// ahead holds the deltas after a missing one. aheadBytes is the size of their texts.
	ahead      []message.Delta
	aheadBytes int
	last       time.Time // when the last delta arrived
}

// delta adds a piece to the text of an open message, and lets the live subscribers have it.
func (t *topic) delta(d message.Delta) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.closed {
		return
	}
	t.addDelta(d)
}

func (t *topic) addDelta(d message.Delta) {
	o := t.textOf(&d)
	if o == nil {
		return
	}
	o.last = time.Now()
	switch now := o.shared.load(); {
	case d.Attempt < now.attempt:
		return
	case d.Attempt > now.attempt:
		t.clearText(o)
		o.shared.restart(d.Attempt)
	}
	if !t.appendText(o, &d) {
		if d.Text != "" && o.aheadBytes+len(d.Text) <= maxAhead && len(o.ahead) < maxAheadDeltas {
			o.ahead = append(o.ahead, d)
			o.aheadBytes += len(d.Text)
		}
		t.readTexts(holeWait)
		return
	}
	ahead := o.ahead
	o.ahead, o.aheadBytes = nil, 0
	for i := range ahead {
		if !t.appendText(o, &ahead[i]) {
			o.ahead = append(o.ahead, ahead[i])
			o.aheadBytes += len(ahead[i].Text)
		}
	}
	t.showText(o)
}

// textOf returns the text that a delta belongs to, which it creates if necessary. It returns nil if
// the message is known to be no longer open, or there are too many.
func (t *topic) textOf(d *message.Delta) *openText {
	if o := t.texts.byID[d.MsgID]; o != nil {
		return o
	}
	if slices.Contains(t.texts.ended, d.MsgID) {
		return nil
	}
	if len(t.texts.byID) >= message.MaxOpenTexts {
		for _, o := range t.texts.byID {
			if time.Since(o.last) > textIdle {
				t.dropText(o)
			}
		}
		if len(t.texts.byID) >= message.MaxOpenTexts {
			return nil
		}
	}
	o := &openText{channelID: t.channelID, msgID: d.MsgID, seq: d.Seq}
	o.shared.restart(d.Attempt)
	if t.texts.byID == nil {
		t.texts.byID = map[string]*openText{}
	}
	t.texts.byID[d.MsgID] = o
	t.hub.stats.texts.Add(1)
	return o
}

// appendText appends what is new of a delta. It returns false if text before it is missing. Text
// beyond Config.TextBytes is dropped: the close has it.
func (t *topic) appendText(o *openText, d *message.Delta) bool {
	now := o.shared.load()
	known := len(now.text)
	switch {
	case d.Offset > known:
		return false
	case d.Offset+len(d.Text) <= known:
		return true
	}
	rest := d.Text[known-d.Offset:]
	if !utf8.RuneStart(rest[0]) {
		return true // not the text that is known: its generator does not repeat itself
	}
	if t.hub.stats.textBytes.Add(int64(len(rest))) > t.hub.cfg.TextBytes {
		t.hub.stats.textBytes.Add(-int64(len(rest)))
		return true
	}
	o.shared.append(rest, t.hub.enc.Delta(t.channelID, o.msgID, known, rest))
	return true
}

// showText lets the live subscribers have a text as far as it goes, if they have its message.
func (t *topic) showText(o *openText) {
	for _, u := range t.live {
		if u.after >= o.seq {
			u.stream.follow(u, o)
		}
	}
}

// showTexts lets a subscription that has become live have the texts.
func (t *topic) showTexts(u *subscription) {
	if t.texts.cancel != nil && !t.texts.loaded {
		t.readTexts(0)
	}
	for _, o := range t.texts.byID {
		if u.after >= o.seq {
			u.stream.follow(u, o)
		}
	}
}

// noteOpen updates the texts for an event of the log that arrived or was replayed: a message that
// is no longer open has no text any more.
func (t *topic) noteOpen(e *message.Event) {
	if t.texts.cancel == nil || e.Passed || e.Message.Status == message.StatusOpen {
		return
	}
	id := e.Message.MsgID
	if o := t.texts.byID[id]; o != nil {
		t.dropText(o)
	}
	never := e.Message.Status == message.StatusSent || e.Message.Status == message.StatusEdited // or it is unknown
	if e.Kind == message.KindSend && never || slices.Contains(t.texts.ended, id) {
		return
	}
	if len(t.texts.ended) == endedIDs {
		t.texts.ended = slices.Delete(t.texts.ended, 0, 1)
	}
	t.texts.ended = append(t.texts.ended, id)
}

// dropText removes a text. The subscribers get no more of it.
func (t *topic) dropText(o *openText) {
	for _, u := range t.live {
		u.stream.unfollow(func(c *textCursor) bool { return c.text == o })
	}
	t.clearText(o)
	delete(t.texts.byID, o.msgID)
	t.hub.stats.texts.Add(-1)
}

func (t *topic) clearText(o *openText) {
	t.hub.stats.textBytes.Add(-int64(len(o.shared.load().text)))
	o.ahead, o.aheadBytes = nil, 0
}

// dropTexts removes all texts, because the topic may have missed the end of one.
func (t *topic) dropTexts() {
	for _, o := range t.texts.byID {
		t.dropText(o)
	}
	t.texts.loaded = false
}

// readTexts arranges for the texts to be read, after a delay, unless that is arranged already.
func (t *topic) readTexts(wait time.Duration) {
	if t.texts.reading || t.closed || t.hub.cfg.Texts == nil {
		return
	}
	t.texts.reading = true
	if t.texts.fails > 0 {
		wait += t.hub.cfg.backoff(t.texts.fails)
	}
	if wait == 0 {
		t.hub.reads.submit(t.loadTexts)
		return
	}
	time.AfterFunc(wait, func() { t.hub.reads.submit(t.loadTexts) })
}

// loadTexts reads the texts and adds what the topic lacks.
func (t *topic) loadTexts() {
	open, err := t.openMessages()
	t.mu.Lock()
	defer t.mu.Unlock()
	t.texts.reading = false
	if t.closed {
		return
	}
	for i := range open {
		t.addDelta(message.Delta{MsgID: open[i].MsgID, Seq: open[i].Seq, Attempt: open[i].Attempt, Text: open[i].Text})
	}
	if err != nil {
		t.hub.reportError(t.channelID, err)
		t.texts.fails++
	} else if !t.texts.loaded {
		t.texts.loaded = true
		t.readTexts(2 * holeWait) // what was published before the topic listened may be there only now
	}
	for _, o := range t.texts.byID {
		if len(o.ahead) == 0 {
			continue
		}
		if err == nil {
			t.texts.fails++ // the text does not have the missing delta, or not yet
		}
		t.readTexts(holeWait)
		return
	}
	if err == nil {
		t.texts.fails = 0
	} else if len(t.live) > 0 {
		t.readTexts(holeWait)
	}
}

// openMessages returns the texts that can be read and whose messages are open, by the log. With an
// error some may be missing.
func (t *topic) openMessages() ([]message.OpenText, error) {
	ctx, cancel := context.WithTimeout(t.hub.ctx, t.hub.cfg.LogTimeout)
	defer cancel()
	texts, err := t.hub.cfg.Texts.Texts(ctx, t.channelID)
	if err != nil {
		return nil, fmt.Errorf("read the texts of open messages: %w", err)
	}
	open := texts[:0]
	var failed error
	for _, text := range texts {
		events, err := t.hub.replay(t.channelID, text.Seq-1, text.Seq, 1, 1, false)
		if err != nil {
			failed = fmt.Errorf("read an open message: %w", err)
		}
		if len(events) > 0 && events[0].Message.MsgID == text.MsgID && events[0].Message.Status == message.StatusOpen {
			open = append(open, text)
		}
	}
	return open, failed
}
