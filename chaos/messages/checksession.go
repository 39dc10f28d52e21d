package messages

import (
	"cmp"
	"slices"
	"strings"
	"time"

	"github.com/parleyhq/parley/chaos"
)

// The names of broken promises about sessions.
const (
	// PrefixText: a client was shown a text of an open message that is no prefix of what a generator
	// appended, or was shown an earlier attempt after a later one, or a text after the message's end.
	PrefixText chaos.Name = "prefix-text"
	// OpenForEver: a message is still open long after its generator died.
	OpenForEver chaos.Name = "open-for-ever"
	// WrongFinal: the final text of a message is not that of its close, or, if the close named none,
	// no prefix of what was appended.
	WrongFinal chaos.Name = "wrong-final"
	// DeletedText: the text of a recalled message of a session, or of a deleted session, was shown or
	// is still stored.
	DeletedText chaos.Name = "deleted-text"
	// WrongList: a session's cached list is no piece of the log, or too long.
	WrongList chaos.Name = "list"
	// Superseded: a node took text of an attempt after that of a later one.
	Superseded chaos.Name = "superseded"
	// Abandoned: a message was closed as abandoned although its generator was not silent.
	Abandoned chaos.Name = "abandoned"
)

// generated is one attempt to generate a text, with its pieces in the order of time.
type generated struct {
	*Generation

	pieces []*Piece
	// most is, for each piece, the end of the text that was appended up to it.
	most []int
}

// generatedTexts returns the attempts of each message, in their order.
func (c *checker) generatedTexts() map[string][]*generated {
	byID := make(map[int64]*generated)
	texts := make(map[string][]*generated)
	for i := range c.h.Generations {
		g := &generated{Generation: &c.h.Generations[i]}
		byID[g.ID] = g
		texts[g.MsgID] = append(texts[g.MsgID], g)
	}
	for i := range c.h.Pieces {
		if g := byID[c.h.Pieces[i].Generation]; g != nil {
			g.pieces = append(g.pieces, &c.h.Pieces[i])
		}
	}
	for _, g := range byID {
		slices.SortStableFunc(g.pieces, func(a, b *Piece) int { return cmp.Compare(a.Begin, b.Begin) })
		most := 0
		for _, p := range g.pieces {
			most = max(most, p.Offset+p.Size)
			g.most = append(g.most, most)
		}
	}
	return texts
}

// appended returns how much of the text had been appended, or may have been, at a time.
func (g *generated) appended(at int64) int {
	n, _ := slices.BinarySearchFunc(g.pieces, at+1, func(p *Piece, at int64) int { return cmp.Compare(p.Begin, at) })
	if n == 0 {
		return 0
	}
	return g.most[n-1]
}

// acked returns how much of the text had certainly been appended at a time.
func (g *generated) acked(at int64) int {
	most := 0
	for _, p := range g.pieces {
		if p.took() && p.End <= at {
			most = max(most, p.Offset+p.Size)
		}
	}
	return most
}

// took reports whether the piece was certainly appended.
func (p *Piece) took() bool { return p.Outcome == chaos.OK && p.Status == StatusOpen }

// attemptOf returns the index of the last attempt of which text is a prefix that was appended by a
// time, or -1.
func attemptOf(attempts []*generated, text string, at int64) int {
	for i, g := range slices.Backward(attempts) {
		if strings.HasPrefix(g.Text, text) && len(text) <= g.appended(at) {
			return i
		}
	}
	return -1
}

// shown is what a subscriber has of the text of an open message.
type shown struct {
	text    string
	attempt int
	ended   bool
}

// checkShown checks the texts of open messages that a life was shown, in the order of its events.
func (c *checker) checkShown(l *Life, events []*Delivery, texts map[string][]*generated) {
	if _, ok := sessionOf(l.Channel); !ok {
		return
	}
	has := make(map[string]*shown)
	for _, d := range events {
		switch {
		case d.Event == EventState: // of another stream, which may know less
			for _, s := range has {
				s.attempt = 0
			}
		case d.Event == EventDelta:
			if has[d.MsgID] == nil {
				has[d.MsgID] = new(shown)
			}
			c.checkDelta(l, d, has[d.MsgID], texts[d.MsgID])
		case d.Copy != unset && c.h.Copies[d.Copy].Status != StatusOpen:
			has[c.h.Copies[d.Copy].MsgID] = &shown{ended: true}
		}
	}
}

// checkDelta checks one delta for a subscriber that has s.
func (c *checker) checkDelta(l *Life, d *Delivery, s *shown, attempts []*generated) {
	report := func(why string) {
		c.Reportf(PrefixText, l.Channel, d.At, "life %d of %s at %s: %d bytes at %d of %s: %s; it had %d: %q, and %q", l.ID, l.Client, l.Addr,
			len(d.Text), d.Offset, d.MsgID, why, len(s.text), tail(s.text), tail(d.Text))
	}
	if m := c.byID[d.MsgID]; m != nil && m.recallAcked != 0 && d.At-m.recallAcked > int64(readSlack) && !l.Slow &&
		!c.held(l.Addr, m.recallAcked, d.At) {
		c.Reportf(DeletedText, l.Channel, d.At, "life %d of %s at %s: a text of %s, %.1fs after its recall was acknowledged", l.ID, l.Client,
			l.Addr, d.MsgID, seconds(d.At-m.recallAcked))
	}
	switch {
	case s.ended:
		report("the message has ended")
		return
	case d.Offset > len(s.text):
		report("text before it is missing")
		return
	}
	s.text = s.text[:d.Offset] + d.Text
	switch i := attemptOf(attempts, s.text, d.At); {
	case i < 0:
		report("that is no prefix of what a generator appended")
	case i < s.attempt:
		report("that is of an earlier attempt than what came before")
	default:
		s.attempt = i
	}
}

// tail returns the end of a text, for people.
func tail(text string) string { return text[max(0, len(text)-60):] }

// checkPieces checks the answers to the generators' deltas.
func (c *checker) checkPieces() {
	for _, attempts := range c.generatedTexts() {
		for i, g := range attempts {
			for _, p := range g.pieces {
				c.checkPiece(g, p, i == len(attempts)-1)
				if p.took() {
					c.checkSuperseded(g, p, attempts[i+1:])
				}
			}
		}
	}
}

// checkPiece checks one answer. last is set if there is no later attempt.
func (c *checker) checkPiece(g *generated, p *Piece, last bool) {
	end := p.Offset + p.Size
	switch {
	case p.took() && (p.Length < end || p.Length > g.appended(p.End)):
		c.Reportf(WrongResponse, g.Channel, p.End, "%d to %d of %s, appended by %s at %s: the text has %d bytes", p.Offset, end, g.MsgID,
			g.Client, p.Addr, p.Length)
	case p.Code == "out_of_range" && p.Length >= p.Offset:
		c.Reportf(WrongResponse, g.Channel, p.End, "%d to %d of %s, appended by %s at %s: %s, and %d bytes are known", p.Offset, end, g.MsgID,
			g.Client, p.Addr, p.Code, p.Length)
	case p.Code == "invalid_argument":
		c.Reportf(PrefixText, g.Channel, p.End, "%d to %d of %s, appended by %s at %s: %s", p.Offset, end, g.MsgID, g.Client, p.Addr, p.Err)
	case p.Reason == superseded && last:
		c.Reportf(Superseded, g.Channel, p.End, "%d to %d of %s, appended by %s at %s, by the last attempt: %s", p.Offset, end, g.MsgID,
			g.Client, p.Addr, p.Err)
	}
}

// superseded is the reason of an error for an earlier attempt.
const superseded = "ERROR_REASON_APPEND_SUPERSEDED"

// checkSuperseded reports a piece that a node took after one of a later attempt, while there was no
// fault by which the node could have forgotten that.
func (c *checker) checkSuperseded(g *generated, p *Piece, later []*generated) {
	for _, other := range later {
		for _, q := range other.pieces {
			if q.took() && q.Addr == p.Addr && q.End < p.Begin && !c.anyFault(q.Begin-5*second, p.End) {
				c.Reportf(Superseded, g.Channel, p.End, "%s took %d to %d of %s of an attempt of %s, and had taken text of a later attempt at %.3fs",
					p.Addr, p.Offset, p.Offset+p.Size, g.MsgID, g.Client, seconds(q.End))
				return
			}
		}
	}
}

// anyFault reports whether there was a fault between two times, besides lost replies.
func (c *checker) anyFault(from, to int64) bool {
	return slices.ContainsFunc(c.h.Faults, func(f chaos.Fault) bool {
		return f.Name != string(chaos.LostReplies) && f.Begin <= to && f.End >= from
	})
}

// checkOpen checks the messages that were opened: that they were closed, and with which text.
func (c *checker) checkOpen() {
	texts := c.generatedTexts()
	for _, s := range c.messages {
		if s.asked == nil || !s.asked.open {
			continue
		}
		attempts := texts[s.entry.MsgID]
		if s.recalled != 0 {
			c.checkGone(s, attempts)
			continue
		}
		if s.entry.Status == StatusOpen {
			c.checkForgotten(s, attempts)
		}
		for _, ch := range s.changes[1:] {
			c.checkClose(s, ch, attempts)
		}
	}
}

// checkGone reports stores that have the text of a recalled message that was open.
func (c *checker) checkGone(s *subject, attempts []*generated) {
	for _, g := range attempts {
		mark, _, _ := nextMark(g.Text)
		for _, where := range c.t.Marks[mark] {
			if c.restored(where, s.recallAcked) {
				continue
			}
			c.Reportf(DeletedText, s.entry.Channel, 0, "the text %q of message %d, recalled by %d, still lies in %s", mark, s.entry.Seq,
				s.recalled, where)
		}
	}
}

// restored reports whether a text that was deleted at a time may be in a store because Redis was
// put back to an earlier state afterwards. Nobody reads what then comes back of a message that is
// no longer open, or of a deleted session, until it expires.
func (c *checker) restored(where string, deleted int64) bool {
	return strings.HasPrefix(where, "Redis") && slices.ContainsFunc(c.h.Faults, func(f chaos.Fault) bool {
		return f.Name == string(chaos.RedisPast) && f.End >= deleted
	})
}

// checkForgotten reports a message that is still open. One whose text Redis may have lost can take
// a quarter of an hour.
func (c *checker) checkForgotten(s *subject, attempts []*generated) {
	death, taken := int64(0), false
	for _, op := range s.asked.ops {
		death = max(death, op.End)
	}
	for _, g := range attempts {
		for _, p := range g.pieces {
			death, taken = max(death, p.End), taken || p.took()
		}
	}
	due := max(death+int64(openTimeout+closeSlack), c.h.Healed+int64(closeSlack))
	if c.h.Waited >= due-second && taken && !c.mirrorLost(s.asked.ops[0].Begin, death+int64(openTimeout)) {
		c.Reportf(OpenForEver, s.entry.Channel, c.h.Waited, "message %d, %s of %s, is open; its generators made their last call at %.3fs",
			s.entry.Seq, s.entry.MsgID, s.entry.From, seconds(death))
	}
}

// mirrorLost reports whether a fault between two times may have lost the texts in Redis.
func (c *checker) mirrorLost(from, to int64) bool {
	return slices.ContainsFunc(c.h.Faults, func(f chaos.Fault) bool {
		return strings.Contains(f.Name, "redis") && f.Begin <= to && f.End >= from
	})
}

// textLost reports whether faults between two times may have lost a text that a node and Redis had.
func (c *checker) textLost(from, to int64) bool {
	return c.mirrorLost(from, to) && slices.ContainsFunc(c.h.Faults, func(f chaos.Fault) bool {
		return slices.Contains([]string{string(chaos.NodeKill), string(chaos.Roll)}, f.Name) && f.Begin <= to && f.End >= from
	})
}

// abandonedPrefix begins the client_msg_id of a close of an abandoned message.
const abandonedPrefix = "¶abandoned-"

// abandoned reports whether an entry is the close of an abandoned message, by the fleet.
func (c *checker) abandoned(e *Entry) bool {
	target := c.messages[messageKey{e.Channel, e.TargetSeq}]
	return e.Kind == entryFail && target != nil && e.MsgID == target.entry.MsgID && e.From == target.entry.From &&
		e.ClientMsgID == abandonedPrefix+e.MsgID
}

// checkClose checks the text that a close without a text gave the message, and that a close of an
// abandoned message was due.
func (c *checker) checkClose(s *subject, ch change, attempts []*generated) {
	e := &c.logs[s.entry.Channel][ch.seq-1]
	p := c.payloadOf(e)
	if closedStatus[e.Kind] == 0 || p != nil && p.kind != CancelMessage {
		return
	}
	at := e.Time.UnixNano() - c.h.Began
	if p == nil {
		c.checkDue(s, at, attempts)
	} else {
		at = p.ops[0].Begin
	}
	if !ch.known {
		return // it was edited since
	}
	i := attemptOf(attempts, ch.content, c.h.Waited)
	if i < 0 {
		c.Reportf(WrongFinal, e.Channel, 0, "message %d was closed by %d with %q, which no generator appended", s.entry.Seq, e.Seq, ch.content)
		return
	}
	// Owners cancel within two seconds of the open, so the margin must be less.
	if least := attempts[i].acked(at - second/2); len(attempts) == 1 && len(ch.content) < least &&
		!c.anyFault(at-30*second, at+5*second) && !c.textLost(s.asked.ops[0].Begin, at) {
		c.Reportf(WrongFinal, e.Channel, at, "message %d was closed by %d with %d bytes, and %d were appended before", s.entry.Seq, e.Seq,
			len(ch.content), least)
	}
}

// checkDue reports a message that was closed as abandoned although its generator had appended text
// within openTimeout, while there was no fault.
func (c *checker) checkDue(s *subject, at int64, attempts []*generated) {
	const tolerance = 3 * time.Second
	for _, g := range attempts {
		for _, p := range g.pieces {
			if silent := at - p.End; p.took() && silent > 0 && silent < int64(openTimeout-tolerance) && !c.anyFault(at-30*second, at) {
				c.Reportf(Abandoned, s.entry.Channel, at, "message %d, %s of %s, was closed as abandoned %.1fs after a piece of its text",
					s.entry.Seq, s.entry.MsgID, s.entry.From, seconds(silent))
				return
			}
		}
	}
}

// maxListed is the most messages in a session's cached list.
const maxListed = 200

// checkLists checks the final contents of the cached lists of sessions. Every session got a message
// after the last fault was mended, so a list must include the end of its log.
func (c *checker) checkLists() {
	for channel, values := range c.t.Lists {
		c.checkList(channel, values)
	}
}

// checkList checks one list: its state, and then the messages.
func (c *checker) checkList(channel string, values []string) {
	log := c.logs[channel]
	state, err := decodeCached(values[0])
	switch {
	case err != nil || state.MsgID != "":
		c.Reportf(WrongList, channel, 0, "the list has no state: %s", values[0])
		return
	case state.Seq < 1 || state.Seq > int64(len(log)):
		c.Reportf(WrongList, channel, 0, "the list says that it ends at %d, the log ends at %d", state.Seq, len(log))
		return
	case c.t.Epoch != "" && state.Epoch != c.t.Epoch:
		c.Reportf(WrongList, channel, 0, "the list is of epoch %s, the store is of %s", state.Epoch, c.t.Epoch)
	case len(values) > 1+maxListed:
		c.Reportf(WrongList, channel, 0, "the list has %d messages", len(values)-1)
	case c.h.Touched != 0 && state.Seq != int64(len(log)):
		c.Reportf(Behind, channel, 0, "the list ends at %d, the log at %d", state.Seq, len(log))
	}
	count := int64(0)
	for _, v := range values[1:] {
		e, err := decodeCached(v)
		switch {
		case err != nil || e.Seq < 1 || e.Seq > int64(len(log)):
			c.Reportf(WrongList, channel, 0, "the list has %s", v)
			return
		case e.Epoch != state.Epoch:
			c.Reportf(WrongList, channel, 0, "the message %d in the list is of epoch %s", e.Seq, e.Epoch)
		case count > 0 && e.Count != count+1:
			c.Reportf(WrongList, channel, 0, "the list has message %d of the log after message %d", e.Count, count)
		}
		count = e.Count
		if diff := e.differs(&log[e.Seq-1]); diff {
			c.Reportf(WrongList, channel, 0, "the message %d in the list is %+v; the log has %+v", e.Seq, e, log[e.Seq-1])
		}
	}
	if state.Count != count || log[state.Seq-1].Count != count {
		c.Reportf(WrongList, channel, 0, "the list ends with message %d of the log, says that it has %d, and the log has %d up to %d", count,
			state.Count, log[state.Seq-1].Count, state.Seq)
	}
}
