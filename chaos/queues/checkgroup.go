package queues

import (
	"cmp"
	"slices"

	"github.com/parleyhq/parley/chaos"
)

// checkAgain reports deliveries of a message after its ack.
//
// A new delivery fences the previous one. So if the ack of one was accepted, no later one may exist
// at any time.
func (c *checker) checkAgain(msg *message, group string, f *fate) {
	for _, op := range f.settled {
		if op.Kind != Ack || op.Outcome != chaos.OK {
			continue
		}
		for _, d := range f.deliveries {
			if d.Gen > op.Gen && !c.rolledBack(d.At, d.At) {
				c.Reportf(Redelivered, msg.topic, d.At, "delivery %d of %s was made to %s of group %s, though %s", d.Gen, msg.mark, d.Client, group,
					c.op(op))
			}
		}
	}
}

// checkAttempts checks the attempt numbers of deliveries: from 1 to the maximum, never decreasing,
// and higher than that of a nack before.
func (c *checker) checkAttempts(msg *message, group string, f *fate) {
	t := c.topics[msg.topic]
	for _, d := range f.deliveries {
		if d.Attempt < 1 || t != nil && d.Attempt > t.MaxAttempts {
			c.Reportf(Attempts, msg.topic, d.At, "attempt %d of %s in group %s; %d are allowed", d.Attempt, msg.mark, group, t.MaxAttempts)
		}
		if c.rolledBack(0, d.At) {
			continue
		}
		for _, e := range f.deliveries {
			if e.Gen > d.Gen && e.Attempt < d.Attempt {
				c.Reportf(Attempts, msg.topic, e.At, "delivery %d of %s in group %s was attempt %d, and delivery %d is attempt %d", d.Gen, msg.mark, group,
					d.Attempt, e.Gen, e.Attempt)
			}
		}
		for _, op := range f.settled {
			if op.Kind == Nack && op.Outcome == chaos.OK && d.Gen > op.Gen && d.Attempt <= op.Attempt {
				c.Reportf(Attempts, msg.topic, d.At, "%s, and then delivery %d was attempt %d", c.op(op), d.Gen, d.Attempt)
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
	case len(f.dead) > 0 && f.dead[0].Attempts > t.MaxAttempts:
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
		slices.SortFunc(messages, func(a, b *message) int { return cmp.Compare(a.place(), b.place()) })
		c.checkOneKey(l, messages)
		c.checkOvertaken(l, messages)
		if t := c.topics[l.topic]; t != nil && t.Strict {
			c.checkStrict(l, messages)
		}
	}
}

// checkOvertaken reports messages whose first delivery was made after that of a later one of their
// key. Retries may be overtaken.
//
// A later message goes to another session only after the earlier one was settled or returned, which
// its session does after it was received, unless the delivery was held up on its way.
func (c *checker) checkOvertaken(l lane, messages []*message) {
	var latest *Delivery
	for _, msg := range slices.Backward(messages) {
		f := msg.in(l.group)
		if len(f.deliveries) == 0 || f.deliveries[0].Gen != 1 {
			continue
		}
		d := f.deliveries[0]
		if latest != nil && d.At > latest.At && !c.rolledBack(d.At, d.At) && !c.fromRolledBack(d) &&
			(d.Stream == latest.Stream || !c.heldUp(d.Stream, latest.At, d.At)) {
			c.Reportf(Order, l.topic, d.At, "key %s in group %s: %s was given to %s (%.8s) after the later %s was given to %s at %s%s", l.key, l.group, msg.mark,
				d.Client, d.Session, latest.Mark, latest.Client, c.since(latest.At), c.story(f))
		}
		if latest == nil || d.At < latest.At {
			latest = d
		}
	}
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
					later.mark, out.Client, out.Session, before.mark, c.story(b))
			}
			seen := 0
			for _, d := range b.deliveries {
				if d.At <= out.At {
					seen = max(seen, d.Gen)
				}
			}
			for _, d := range b.deliveries {
				// A client that was stopped may read a delivery long after it was sent.
				if d.At > out.At && d.Gen > seen && seen > 0 && !c.heldUp(d.Stream, out.At, d.At) {
					c.Reportf(StrictOrder, l.topic, d.At, "key %s in group %s: delivery %d of %s came to %s after %s was out since %s%s", l.key, l.group,
						d.Gen, before.mark, d.Client, later.mark, c.since(out.At), c.story(b))
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
