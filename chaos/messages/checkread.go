package messages

import (
	"slices"

	"github.com/parleyhq/parley/chaos"
)

// checkReads checks the answers to all reads, of pages and of single messages.
func (c *checker) checkReads() {
	for i := range c.h.Ops {
		op := &c.h.Ops[i]
		if op.Kind == List || op.Kind == Get || op.Kind == MarkRead {
			c.checkEpoch(op)
		}
		switch {
		case op.Kind == List && op.Outcome == chaos.OK:
			c.checkPage(op)
		case op.Kind == List && op.Code == "out_of_range":
			if head := int64(len(c.logs[op.Channel])); max(op.MinSeq, op.After) <= head {
				c.Reportf(StaleRead, op.Channel, op.End, "%s: min_seq %d, after_seq %d: %s; the log ends at %d", op.brief(), op.MinSeq,
					op.After, op.Err, head)
			}
		case op.Kind == Get && op.Outcome == chaos.OK:
			c.checkGet(op)
		case op.Kind == Get && op.Code == "not_found":
			if s := c.byID[op.MsgID]; s != nil && c.acks[op.Channel].by(op.Begin-second) >= s.entry.Seq {
				c.Reportf(StaleRead, op.Channel, op.End, "%s: not found; it is at %d, and %d was acknowledged a second before", op.brief(),
					s.entry.Seq, c.acks[op.Channel].by(op.Begin-second))
			}
		}
	}
}

// owed returns the seq of the last entry that a read must reflect.
func (c *checker) owed(op *Op) int64 {
	bound := max(op.MinSeq, c.acks[op.Channel].by(op.Begin-second))
	if op.Final {
		bound = int64(len(c.logs[op.Channel]))
	}
	return bound
}

func (c *checker) checkGet(op *Op) {
	for _, i := range op.Copies {
		cp := &c.h.Copies[i]
		if cp.MsgID != op.MsgID {
			c.Reportf(WrongCopy, op.Channel, op.End, "%s was answered with %s", op.brief(), cp.MsgID)
		}
		c.checkFresh(cp, c.owed(op), op.Channel, op.End, op.brief())
	}
}

// checkFresh reports a copy of a message that does not reflect its last change up to bound.
func (c *checker) checkFresh(cp *Copy, bound int64, channel string, at int64, who string) {
	s := c.messages[messageKey{cp.Channel, cp.Seq}]
	if s == nil {
		return // checkCopies reports it
	}
	want := s.last(bound)
	if cp.ChangedSeq >= want.seq {
		return
	}
	name := StaleEdit
	if want.status == StatusRecalled {
		name = Recalled
	}
	c.Reportf(name, channel, at, "%s: message %d is shown as changed by %d with %q; it was changed by %d (status %d), and everything up to %d must be shown",
		who, cp.Seq, cp.ChangedSeq, cp.Content, want.seq, want.status, bound)
}

// checkPage compares a page with the messages of the log. The page must begin at the requested
// position, or with the newest message, and have every message from there on. Every copy must be as
// new as promised and as the head in the answer. A page without a next one must reach the end.
func (c *checker) checkPage(op *Op) {
	bound := c.owed(op)
	if op.Head != 0 && op.Head < bound {
		c.Reportf(StaleRead, op.Channel, op.End, "%s: min_seq %d: the head is %d, and must be %d", op.brief(), op.MinSeq, op.Head, bound)
	}
	if head := int64(len(c.logs[op.Channel])); op.Head > head {
		c.Reportf(Loss, op.Channel, op.End, "%s got the head %d, but the log ends at %d", op.brief(), op.Head, head)
	}
	// A client that subscribes after the page's head gets no event for what lies before it, so the
	// page must show it.
	shown := max(bound, op.Head)
	seqs := make([]int64, len(op.Copies))
	for i, at := range op.Copies {
		cp := &c.h.Copies[at]
		seqs[i] = cp.Seq
		if cp.Channel != op.Channel {
			c.Reportf(WrongCopy, op.Channel, op.End, "%s was answered with a message of %s", op.brief(), cp.Channel)
		}
		c.checkFresh(cp, shown, op.Channel, op.End, op.brief())
	}
	ascending := op.After != unset
	want := c.wanted(op, ascending, bound, seqs)
	for i := range want {
		if i < len(seqs) && seqs[i] == want[i] {
			continue
		}
		name := StaleRead
		if i < len(seqs) {
			name = Hole
		}
		c.Reportf(name, op.Channel, op.End, "%s: after %d, before %d, min_seq %d, more %t: message %d is missing at %d; the page has %v, and everything up to %d must be shown",
			op.brief(), op.After, op.Before, op.MinSeq, op.More, want[i], i, seqs, bound)
		return
	}
	if len(seqs) > len(want) {
		c.Reportf(WrongCopy, op.Channel, op.End, "%s: after %d, before %d: got page %v, want %v", op.brief(), op.After, op.Before, seqs, want)
	}
}

// wanted returns the seqs of the messages that a page must begin with. They end at the page's last
// message if the page has a successor, and otherwise where the list that it must show ends.
func (c *checker) wanted(op *Op, ascending bool, bound int64, seqs []int64) []int64 {
	after, before := max(op.After, 0), op.Before
	if before == unset {
		before = int64(len(c.logs[op.Channel])) + 1
	}
	all := c.sends[op.Channel]
	lo, _ := slices.BinarySearch(all, after+1)
	hi, _ := slices.BinarySearch(all, before)
	if lo >= hi {
		return nil
	}
	all = all[lo:hi]
	if ascending {
		reach := bound
		if op.More {
			reach = 0
		}
		if len(seqs) > 0 {
			reach = max(reach, seqs[len(seqs)-1])
		}
		n, _ := slices.BinarySearch(all, reach+1)
		return all[:n]
	}
	// In descending order the page begins with the newest message that it must show, or a newer
	// one.
	newest := bound
	if len(seqs) > 0 {
		newest = max(newest, seqs[0])
	}
	n, _ := slices.BinarySearch(all, newest+1)
	all = slices.Clone(all[:n])
	slices.Reverse(all)
	if op.More && len(seqs) <= len(all) {
		return all[:len(seqs)]
	}
	return all
}
