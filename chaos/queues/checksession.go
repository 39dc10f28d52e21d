package queues

import (
	"cmp"
	"slices"
	"time"

	"github.com/parleyhq/parley/chaos"
)

// checkGens checks the deliveries of a message to a group by their numbers: each was made once, one
// after another, and only the latest was settled.
func (c *checker) checkGens(msg *message, group string, f *fate) {
	by := make(map[int]*Delivery)
	for _, d := range f.deliveries {
		if c.rolledBack(d.At, d.At) || c.fromRolledBack(d) {
			continue
		}
		if first := by[d.Gen]; first != nil {
			c.Reportf(Gen, msg.topic, d.At, "delivery %d of %s in group %s was made twice%s", d.Gen, msg.mark, group, c.story(f))
			continue
		}
		by[d.Gen] = d
	}
	for _, op := range f.settled {
		if op.Outcome != chaos.OK || op.Repeat || c.triedBefore(op) || c.rolledBack(0, op.End) {
			continue
		}
		for _, d := range f.deliveries {
			if d.Gen > op.Gen && d.At < op.Begin {
				c.Reportf(Gen, msg.topic, op.Begin, "%s of delivery %d was accepted in group %s, though delivery %d had come%s", c.op(op), op.Gen, group,
					d.Gen, c.story(f))
			}
		}
	}
	c.checkFinal(msg, group, f)
	c.checkKept(msg, group, f)
}

// triedBefore reports whether the same settlement was requested before without an answer, and may
// have taken effect then.
func (c *checker) triedBefore(op *Op) bool {
	return slices.ContainsFunc(c.byToken[held{op.Session, op.Token}], func(try *Op) bool {
		return try.Kind == op.Kind && try.Outcome == chaos.Unknown && try.Begin < op.Begin
	})
}

// checkFinal reports messages of which several deliveries were finally settled.
func (c *checker) checkFinal(msg *message, group string, f *fate) {
	var final *Op
	for _, op := range f.settled {
		if op.Outcome != chaos.OK || op.Kind != Ack && !op.Dead || c.rolledBack(0, op.End) {
			continue
		}
		if final != nil && final.Token != op.Token {
			c.Reportf(Gen, msg.topic, op.Begin, "two deliveries of %s were finally settled in group %s: %s, and %s", msg.mark, group, c.op(final), c.op(op))
		}
		final = op
	}
}

// checkKept reports deliveries that were given to another session, or again, while their session
// had contact and had not returned them.
func (c *checker) checkKept(msg *message, group string, f *fate) {
	for _, d := range f.deliveries {
		for _, next := range f.deliveries {
			if next.Gen <= d.Gen || next.At < d.At || c.rolledBack(d.At, next.At) {
				continue
			}
			if until := c.kept(d); next.At < until {
				c.Reportf(Kept, msg.topic, next.At, "delivery %d of %s in group %s came to %s %s before %s could have lost delivery %d%s", next.Gen,
					msg.mark, group, next.Client, time.Duration(until-next.At).Round(time.Millisecond), d.Client, d.Gen, c.story(f))
			}
		}
	}
}

// maxUncharged is how many deliveries that nobody began are not counted as attempts.
const maxUncharged = 8

// checkCharged reports messages of which more attempts were counted than deliveries were begun.
func (c *checker) checkCharged(msg *message, group string, f *fate) {
	// charged returns how many of the deliveries up to a number may count as attempts.
	charged := func(gen int) int {
		n, seen := 0, make(map[int]bool)
		for _, d := range f.deliveries {
			if d.Gen <= gen && !seen[d.Gen] {
				seen[d.Gen] = true
				n += int(one(c.began(d)))
			}
		}
		uncharged := len(seen) - n
		return n + gen - len(seen) + max(0, uncharged-maxUncharged)
	}
	last := 0
	for _, d := range f.deliveries {
		last = max(last, d.Gen)
		if most := charged(d.Gen - 1); d.Attempt-1 > most && !c.rolledBack(0, d.At) {
			c.Reportf(Charged, msg.topic, d.At, "delivery %d of %s in group %s is attempt %d, and %d deliveries were begun before%s", d.Gen, msg.mark, group,
				d.Attempt, most, c.story(f))
		}
	}
	for _, s := range f.dead {
		// One more delivery may have been lost on its way.
		if most := charged(last + 1); s.Attempts > most {
			c.Reportf(Charged, msg.topic, 0, "%s is a dead letter of group %s after %d attempts, and %d deliveries were begun%s", msg.mark, group,
				s.Attempts, most, c.story(f))
		}
	}
}

// checkOneKey reports keys that two sessions had at a time.
func (c *checker) checkOneKey(l lane, messages []*message) {
	type span struct {
		d     *Delivery
		until int64
	}
	var spans []span
	for _, msg := range messages {
		for _, d := range msg.in(l.group).deliveries {
			if until := c.kept(d); until > d.At && !c.rolledBack(d.At, until) {
				spans = append(spans, span{d, until})
			}
		}
	}
	slices.SortFunc(spans, func(a, b span) int { return cmp.Compare(a.d.At, b.d.At) })
	for i, a := range spans {
		for _, b := range spans[i+1:] {
			if b.d.At >= a.until {
				break
			}
			if a.d.Session != b.d.Session {
				c.Reportf(OneKey, l.topic, b.d.At, "key %s in group %s: %s had %s until %s, and %s was given to %s at %s", l.key, l.group, a.d.Client, a.d.Mark,
					c.since(a.until), b.d.Mark, b.d.Client, c.since(b.d.At))
			}
		}
	}
}
