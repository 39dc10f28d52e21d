package messages

import (
	"cmp"
	"slices"
	"strings"
	"time"
)

// checkLives checks the deliveries to every subscriber.
func (c *checker) checkLives() {
	lives := make(map[int64][]*Delivery)
	for i := range c.h.Deliveries {
		d := &c.h.Deliveries[i]
		lives[d.Life] = append(lives[d.Life], d)
	}
	texts := c.generatedTexts()
	next := make(map[int64]int64) // the final position in the log, by id of the life
	for i := range c.h.Lives {
		l := &c.h.Lives[i]
		events := lives[l.ID]
		slices.SortStableFunc(events, func(a, b *Delivery) int { return cmp.Compare(a.At, b.At) })
		next[l.ID] = c.checkLife(l, events)
		c.checkShown(l, events, texts)
	}
	c.checkLevel(next)
}

// checkLife checks the events of one life and returns its final position in the log. It returns
// unset if the life had no initial position and received no event.
func (c *checker) checkLife(l *Life, events []*Delivery) int64 {
	at := l.After
	newest := make(map[int64]int64) // the highest changed_seq that was delivered, by the seq of the message
	for _, d := range events {
		switch d.Event {
		case EventState:
			if at == unset {
				at = d.Seq
			}
			c.checkState(l, d)
		case EventGap:
			c.Reportf(Gap, l.Channel, d.At, "life %d of %s at %s, after %d: %s", l.ID, l.Client, l.Addr, at, d.Note)
			at = d.Seq
		case EventLost:
			return at
		case EventDelta: // checkShown
		case EventSent, EventEdited, EventRecalled, EventClosed, EventPassed:
			switch {
			case at == unset:
				c.Reportf(Hole, l.Channel, d.At, "life %d of %s at %s: %d came before the channel's state", l.ID, l.Client, l.Addr, d.Seq)
			case d.Seq <= at:
				c.Reportf(Repeat, l.Channel, d.At, "life %d of %s at %s: %d came again after %d", l.ID, l.Client, l.Addr, d.Seq, at)
			default:
				c.checkCovered(l, d, at)
			}
			at = max(at, d.Seq)
			if d.Event != EventPassed {
				c.checkEvent(l, d)
				c.checkNewer(l, d, newest)
			} else if !c.replaced(l.Channel, d.Seq) {
				c.Reportf(Hole, l.Channel, d.At, "life %d of %s at %s: %d only passed, and is no edit that a later entry replaced",
					l.ID, l.Client, l.Addr, d.Seq)
			}
		}
	}
	return at
}

// checkCovered checks the entries that an event covers and those it skips, for a subscriber at
// position at. An event covers d.From to d.Seq, which must include every entry after at. Only an
// edit that a later entry replaced may lack an event of its own.
func (c *checker) checkCovered(l *Life, d *Delivery, at int64) {
	if d.From < 1 || d.From > d.Seq {
		c.Reportf(WrongCopy, l.Channel, d.At, "life %d of %s at %s: %d says that it covers the entries from %d", l.ID, l.Client, l.Addr, d.Seq, d.From)
	}
	if !l.SDK && d.Seq > at+1 && (d.From < 1 || d.From > at+1) {
		c.Reportf(Hole, l.Channel, d.At, "life %d of %s at %s: %d, which covers the entries from %d, came after %d", l.ID, l.Client, l.Addr,
			d.Seq, d.From, at)
		return
	}
	for seq := at + 1; seq < d.Seq; seq++ {
		if !c.replaced(l.Channel, seq) {
			c.Reportf(Hole, l.Channel, d.At, "life %d of %s at %s: %d came after %d, and covers %d, which is no edit that a later entry replaced",
				l.ID, l.Client, l.Addr, d.Seq, at, seq)
		}
	}
}

// replaced reports whether an entry is a change of a message that a later entry changed again.
func (c *checker) replaced(channel string, seq int64) bool {
	log := c.logs[channel]
	if seq < 1 || seq > int64(len(log)) || log[seq-1].Kind == entrySend {
		return false
	}
	s := c.messages[messageKey{channel, log[seq-1].TargetSeq}]
	return s != nil && s.final().seq > seq
}

func (c *checker) checkState(l *Life, d *Delivery) {
	if d.Epoch != "" && c.t.Epoch != "" && d.Epoch != c.t.Epoch {
		c.Reportf(WrongResponse, l.Channel, d.At, "life %d of %s was told the epoch %s, the store's is %s", l.ID, l.Client, d.Epoch, c.t.Epoch)
	}
	if l.After != unset && !d.Recovered {
		c.Reportf(Gap, l.Channel, d.At, "life %d of %s at %s, after %d: the state at %d is not recovered", l.ID, l.Client, l.Addr, l.After, d.Seq)
	}
	if d.Oldest != 1 || d.Expired != 0 {
		c.Reportf(Gap, l.Channel, d.At, "life %d of %s at %s was told that %d messages are gone, and that the oldest entry is %d; none is gone",
			l.ID, l.Client, l.Addr, d.Expired, d.Oldest)
	}
	if owed := c.acks[l.Channel].by(l.Begin); d.Head < owed {
		c.Reportf(StaleRead, l.Channel, d.At, "life %d of %s at %s, begun at %.3fs: the state's head is %d, and %d was acknowledged before",
			l.ID, l.Client, l.Addr, time.Duration(l.Begin).Seconds(), d.Head, owed)
	}
	if log := c.logs[l.Channel]; d.Head > int64(len(log)) {
		c.Reportf(Loss, l.Channel, d.At, "life %d of %s got the head %d, but the log ends at %d", l.ID, l.Client, d.Head, len(log))
	} else if d.Head > 0 && log[d.Head-1].Count != d.Count {
		c.Reportf(Count, l.Channel, d.At, "life %d of %s got a count of %d messages up to %d, but the log has %d", l.ID, l.Client, d.Count,
			d.Head, log[d.Head-1].Count)
	}
}

// checkEvent checks a delivered entry against the log.
func (c *checker) checkEvent(l *Life, d *Delivery) {
	log := c.logs[l.Channel]
	if d.Seq < 1 || d.Seq > int64(len(log)) {
		c.Reportf(Loss, l.Channel, d.At, "life %d of %s was delivered %d; the log ends at %d", l.ID, l.Client, d.Seq, len(log))
		return
	}
	e, cp := &log[d.Seq-1], &c.h.Copies[d.Copy]
	about := e.Seq
	if e.Kind != entrySend {
		about = e.TargetSeq
	}
	kinds := map[int]Event{
		entrySend: EventSent, entryEdit: EventEdited, entryRecall: EventRecalled, entryComplete: EventClosed, entryCancel: EventClosed,
		entryFail: EventClosed,
	}
	if kinds[e.Kind] != d.Event || cp.Channel != l.Channel || cp.Seq != about || cp.ChangedSeq < e.Seq {
		c.Reportf(WrongCopy, l.Channel, d.At, "life %d of %s at %s was delivered %d as %s of %+v; the log has %+v", l.ID, l.Client, l.Addr,
			d.Seq, d.Event, *cp, *e)
		return
	}
	c.checkFresh(cp, c.acks[l.Channel].by(l.Begin-second), l.Channel, d.At, "a stream of "+l.Client+" at "+l.Addr+", begun after that,")
	s := c.messages[messageKey{l.Channel, about}]
	if s == nil || s.recallAcked == 0 || cp.ChangedSeq >= s.recalled || l.Slow {
		return
	}
	if late := d.At - s.recallAcked; late > int64(readSlack) && !c.held(l.Addr, s.recallAcked, d.At) {
		c.Reportf(Recalled, l.Channel, d.At, "life %d of %s at %s was delivered the text of %d at %d, %.1fs after its recall was acknowledged",
			l.ID, l.Client, l.Addr, about, d.Seq, time.Duration(late).Seconds())
	}
}

// checkNewer checks that a stream delivers no older copy of a message than before. An SDK's life
// may go on with another stream.
func (c *checker) checkNewer(l *Life, d *Delivery, newest map[int64]int64) {
	cp := &c.h.Copies[d.Copy]
	if cp.ChangedSeq < newest[cp.Seq] && !l.SDK {
		c.Reportf(OlderCopy, l.Channel, d.At, "life %d of %s at %s: %d came with message %d as changed by %d, which came before as changed by %d",
			l.ID, l.Client, l.Addr, d.Seq, cp.Seq, cp.ChangedSeq, newest[cp.Seq])
	}
	newest[cp.Seq] = max(newest[cp.Seq], cp.ChangedSeq)
}

// held reports whether a fault between from and to may have held back events of one of the nodes in
// addrs, which may have been delivered afterwards. An empty addrs means any node.
func (c *checker) held(addrs string, from, to int64) bool {
	for i := range c.h.Faults {
		f := &c.h.Faults[i]
		if f.Holds && f.Begin <= to && f.End >= from && (addrs == "" || strings.Contains(addrs, f.Target)) {
			return true
		}
	}
	return false
}

// checkLevel reports streams that did not catch up with their logs after the last fault was mended.
func (c *checker) checkLevel(next map[int64]int64) {
	if c.h.Touched == 0 {
		return
	}
	for i := range c.h.Lives {
		l := &c.h.Lives[i]
		if l.End != 0 {
			continue
		}
		if head := int64(len(c.logs[l.Channel])); next[l.ID] < head {
			c.Reportf(Behind, l.Channel, c.h.Ended, "life %d of %s at %s is at %d of %d, %.1fs after everything was mended and written",
				l.ID, l.Client, l.Addr, next[l.ID], head, time.Duration(c.h.Ended-c.h.Touched).Seconds())
		}
	}
}
