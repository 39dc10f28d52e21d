package queues

import (
	"cmp"
	"slices"

	"github.com/parleyhq/parley/chaos"
)

// checkAgain reports deliveries of a message after its ack.
//
// A new attempt fences the previous one. So if the ack of one attempt was accepted, no later
// attempt may exist at any time. The same attempt may come again only while it was already in
// flight.
func (c *checker) checkAgain(msg *message, group string, f *fate) {
	for _, op := range f.settled {
		if op.Kind != Ack || op.Outcome != chaos.OK {
			continue
		}
		for _, d := range f.deliveries {
			if c.rolledBack(d.At, d.At) {
				continue
			}
			late := d.At > op.End+int64(slack) && d.Token != op.Token && !c.held(d.Stream, op.End, d.At)
			if d.Attempt > op.Attempt || d.Attempt == op.Attempt && late {
				c.Reportf(Redelivered, msg.topic, d.At, "%s was delivered to %s of group %s as attempt %d, though %s", msg.mark, d.Client, group,
					d.Attempt, c.op(op))
			}
		}
	}
}

// checkAttempts checks the attempt numbers of deliveries: from 1 to the topic's maximum, each given
// out once, and higher than that of a nack before.
func (c *checker) checkAttempts(msg *message, group string, f *fate) {
	t := c.topics[msg.topic]
	by := make(map[int]*Delivery)
	for _, d := range f.deliveries {
		if d.Attempt < 1 || t != nil && d.Attempt > t.MaxAttempts {
			c.Reportf(Attempts, msg.topic, d.At, "attempt %d of %s in group %s; %d are allowed", d.Attempt, msg.mark, group, t.MaxAttempts)
		}
		if c.rolledBack(d.At, d.At) || c.fromRolledBack(d) {
			continue
		}
		first := by[d.Attempt]
		switch {
		case first == nil:
			by[d.Attempt] = d
		case f.possiblyReturned(d.At, Release):
		case first.Stream == d.Stream:
			c.Reportf(Redelivered, msg.topic, d.At, "attempt %d of %s in group %s was given to one stream twice%s", d.Attempt, msg.mark, group, c.story(f))
		default:
			c.Reportf(Attempts, msg.topic, d.At, "attempt %d of %s in group %s was given to two streams%s", d.Attempt, msg.mark, group, c.story(f))
		}
	}
	// A nack that was accepted leads to the next attempt, even if attempts between were not seen.
	for _, op := range f.settled {
		if op.Kind != Nack || op.Outcome != chaos.OK {
			continue
		}
		for _, d := range f.deliveries {
			if d.At > op.End+int64(slack) && d.Attempt <= op.Attempt && !c.held(d.Stream, op.End, d.At) {
				c.Reportf(Attempts, msg.topic, d.At, "%s, and then attempt %d came to %s", c.op(op), d.Attempt, d.Client)
			}
		}
	}
}

// checkDead checks that a message is a dead letter of the group if its nacks or attempts require
// it, and that it is none otherwise.
func (c *checker) checkDead(msg *message, group string, f *fate) {
	t := c.topics[msg.topic]
	if t == nil {
		return
	}
	if len(f.dead) > 1 {
		c.Reportf(Duplicate, msg.topic, 0, "%s is %d dead letters of group %s%s", msg.mark, len(f.dead), group, c.story(f))
	}
	must, may := false, false
	for _, op := range f.settled {
		if op.Kind != Nack || op.Outcome == chaos.Failed || !op.Dead && op.Attempt < t.MaxAttempts {
			continue
		}
		may = true
		must = must || op.Outcome == chaos.OK
	}
	did, _ := f.acked()
	switch {
	case len(f.dead) == 0 && must && !t.Drops: // with DropOldest it may have been removed before
		c.Reportf(DeadLetters, msg.topic, 0, "%s was given up in group %s and is no dead letter%s", msg.mark, group, c.story(f))
	case len(f.dead) > 0 && did:
		c.Reportf(DeadLetters, msg.topic, 0, "%s was acknowledged in group %s and is a dead letter (%q)%s",
			msg.mark, group, f.dead[0].Reason, c.story(f))
	case len(f.dead) > 0 && !may && f.dead[0].Attempts < t.MaxAttempts:
		c.Reportf(DeadLetters, msg.topic, 0, "%s is a dead letter of group %s (%q) after %d attempts of %d, and nobody gave it up%s", msg.mark, group,
			f.dead[0].Reason, f.dead[0].Attempts, t.MaxAttempts, c.story(f))
	case len(f.dead) > 0 && f.dead[0].Attempts > t.MaxAttempts+1:
		// The takeover that finds no attempt left counts as an attempt, though no consumer receives
		// the message.
		c.Reportf(DeadLetters, msg.topic, 0, "%s is a dead letter of group %s after %d attempts of %d",
			msg.mark, group, f.dead[0].Attempts, t.MaxAttempts)
	}
}

// lane is the sequence of messages of one key in one partition for one group.
type lane struct {
	topic, group, key string
	partition         int
}

// checkOrder checks the order of each key's messages, for each group. Scheduled messages have none.
func (c *checker) checkOrder() {
	lanes := make(map[lane][]*message)
	for _, msg := range c.sorted() {
		if msg.key() == "" || msg.scheduled() || msg.id() == "" {
			continue
		}
		for _, group := range c.groups(msg.topic) {
			l := lane{msg.topic, group, msg.key(), msg.partition()}
			lanes[l] = append(lanes[l], msg)
		}
	}
	for l, messages := range lanes {
		slices.SortFunc(messages, func(a, b *message) int {
			switch {
			case after(a.entryID(), b.entryID()):
				return 1
			case after(b.entryID(), a.entryID()):
				return -1
			default:
				return cmp.Compare(a.mark, b.mark)
			}
		})
		c.checkOvertaken(l, messages)
		if t := c.topics[l.topic]; t != nil && t.Strict {
			c.checkStrict(l, messages)
		}
	}
}

// checkOvertaken reports messages that were delivered before an earlier one of their key.
//
// Consumers on two streams observe events at different times, so the check is per stream: a stream
// that receives a message must have received all earlier unsettled messages of the key. So if an
// earlier message is delivered later, on any stream, and not before on this one, it was skipped.
func (c *checker) checkOvertaken(l lane, messages []*message) {
	// latest is the time of each message's last delivery, or 0 if it may come at any time. before
	// is the maximum of latest up to that message.
	latest, before := make([]int64, len(messages)), make([]int64, len(messages))
	for i, msg := range messages {
		f := msg.in(l.group)
		if n := len(f.deliveries); n > 0 && len(f.dead) == 0 && !f.possiblyReturned(forever, Nack, Release) {
			latest[i] = f.deliveries[n-1].At
		}
		before[i] = max(latest[i], before[max(0, i-1)])
	}
	for i, later := range messages {
		for _, d := range later.in(l.group).deliveries {
			if c.rolledBack(d.At, d.At) || c.fromRolledBack(d) {
				continue // acks of earlier messages may be forgotten too, so these may come again
			}
			for k := i - 1; k >= 0 && before[k] > d.At; k-- {
				f := messages[k].in(l.group)
				if latest[k] <= d.At || c.onItsWay(f, d) {
					continue
				}
				if !slices.ContainsFunc(f.deliveries, func(e *Delivery) bool { return e.Stream == d.Stream && e.At <= d.At }) {
					c.Reportf(Order, l.topic, d.At, "key %s in group %s: %s was given to %s (%.8s) before %s%s", l.key, l.group, later.mark,
						d.Client, d.Stream, messages[k].mark, c.story(f))
				}
			}
		}
	}
}

// onItsWay reports whether the last delivery of a message may have been sent before d although it
// was read after d: its reader was held up, or its attempt is not higher than one seen before d.
func (c *checker) onItsWay(f *fate, d *Delivery) bool {
	last, seen := f.deliveries[len(f.deliveries)-1], 0
	for _, e := range f.deliveries {
		if e.At <= d.At {
			seen = max(seen, e.Attempt)
		}
	}
	return last.Attempt <= seen || c.held(last.Stream, d.At, last.At)
}

// settledBefore reports whether an ack was requested before a time and may have been accepted.
func (f *fate) settledBefore(at int64) bool {
	return slices.ContainsFunc(f.settled, func(op *Op) bool {
		return op.Kind == Ack && op.Begin < at && op.Outcome != chaos.Failed
	})
}

// checkStrict checks that the earlier messages of a key were finally settled before a later one was
// delivered, and never came again.
func (c *checker) checkStrict(l lane, messages []*message) {
	for i, later := range messages {
		f := later.in(l.group)
		if len(f.deliveries) == 0 || c.rolledBack(f.deliveries[0].At, f.deliveries[0].At) {
			continue
		}
		out := f.deliveries[0]
		for _, before := range messages[:i] {
			b := before.in(l.group)
			if !c.over(before, b, out.At) {
				c.Reportf(StrictOrder, l.topic, out.At, "key %s in group %s: %s was given to %s (%.8s) while %s was not settled%s", l.key, l.group,
					later.mark, out.Client, out.Stream, before.mark, c.story(b))
			}
			seen := 0
			for _, d := range b.deliveries {
				if d.At <= out.At {
					seen = max(seen, d.Attempt)
				}
			}
			for _, d := range b.deliveries {
				// A client that was stopped may read a delivery long after it was sent.
				if d.At > out.At && d.Attempt > seen && seen > 0 && !c.held(d.Stream, out.At, d.At) {
					c.Reportf(StrictOrder, l.topic, d.At, "key %s in group %s: attempt %d of %s came to %s after %s was out since %s%s", l.key, l.group,
						d.Attempt, before.mark, d.Client, later.mark, c.since(out.At), c.story(b))
				}
			}
		}
	}
}

// over reports whether a message may have been finally settled at a time.
func (c *checker) over(msg *message, f *fate, at int64) bool {
	if len(f.dead) > 0 || f.settledBefore(at) {
		return true // the time of a death without a nack is unknown; checkDead checks the letter
	}
	// A message that was produced concurrently, or of unknown outcome and never seen, was not
	// there.
	return !msg.accepted() && len(f.deliveries) == 0
}
