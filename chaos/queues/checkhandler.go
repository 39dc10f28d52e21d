package queues

import (
	"cmp"
	"slices"
	"strings"
	"time"

	"github.com/parleyhq/parley/chaos"
)

// attempt is one attempt of a message at one client.
type attempt struct {
	client, topic, messageID string
	n                        int
}

// checkHandlers compares the calls of the SDK's workers with the results of their handlers.
func (c *checker) checkHandlers() {
	handled := make(map[attempt][]*Handled)
	lanes := make(map[lane][]*Handled)
	for i := range c.h.Handled {
		r := &c.h.Handled[i]
		at := attempt{r.Client, r.Topic, r.MessageID, r.Attempt}
		handled[at] = append(handled[at], r)
		if r.Key != "" {
			l := lane{r.Topic, r.Client, r.Key, r.Partition} // a client belongs to one group
			lanes[l] = append(lanes[l], r)
		}
	}
	given := make(map[attempt][]*Delivery)
	for i := range c.h.Deliveries {
		d := &c.h.Deliveries[i]
		at := attempt{d.Client, d.Topic, d.MessageID, d.Attempt}
		given[at] = append(given[at], d)
	}
	for _, w := range c.h.Workers {
		if !slices.ContainsFunc(c.h.Handled, func(r Handled) bool { return isLife(r.Client, w) }) {
			c.Reportf(chaos.Unobserved, "", 0, "the SDK's worker %s handled nothing", w)
		}
	}
	for i := range c.h.Ops {
		if op := &c.h.Ops[i]; op.Kind.settles() && slices.ContainsFunc(c.h.Workers, func(w string) bool { return isLife(op.Client, w) }) {
			at := attempt{op.Client, op.Topic, op.MessageID, op.Attempt}
			c.checkSaid(op, handled[at], given[at])
		}
	}
	for _, list := range lanes {
		c.checkLane(list, given)
	}
}

// isLife reports whether client is the name of one start of a process, "<process>-<number>".
func isLife(client, process string) bool {
	rest, ok := strings.CutPrefix(client, process+"-")
	return ok && rest != "" && strings.Trim(rest, "0123456789") == ""
}

// checkSaid compares a settlement by the SDK with the results that the handler had returned before.
func (c *checker) checkSaid(op *Op, handled []*Handled, given []*Delivery) {
	said := slices.ContainsFunc(handled, func(r *Handled) bool {
		return r.End <= op.Begin && r.Kind == op.Kind && r.Dead == op.Dead && r.DelayMS == op.DelayMS
	})
	// A stopping worker releases deliveries that it has not begun. Of a delivery that came twice it
	// may have begun one.
	unbegun := op.Kind == Release && len(handled) < max(1, len(given))
	if !said && !unbegun {
		text := "did not say anything"
		if len(handled) > 0 {
			r := handled[len(handled)-1]
			text = "said " + string(r.Kind) + " at " + c.since(r.End)
		}
		c.Reportf(Handling, op.Topic, op.Begin, "the SDK's worker asked for %s (delay %d ms, dead %v), and its handler %s", c.op(op), op.DelayMS,
			op.Dead, text)
	}
}

// checkLane checks that a worker handled the messages of a key one at a time, in the order of their
// delivery.
func (c *checker) checkLane(list []*Handled, given map[attempt][]*Delivery) {
	slices.SortFunc(list, func(a, b *Handled) int { return cmp.Compare(a.Begin, b.Begin) })
	var last *Handled
	var lastGiven int64
	for _, r := range list {
		if last != nil && r.Begin < last.End {
			c.Reportf(Handling, r.Topic, r.Begin, "%s handled attempt %d of %s of key %s while it handled %s, for another %s", r.Client, r.Attempt,
				r.Mark, r.Key, last.Mark, time.Duration(last.End-r.Begin))
		}
		last = r
		deliveries := given[attempt{r.Client, r.Topic, r.MessageID, r.Attempt}]
		if len(deliveries) == 0 {
			c.Reportf(Handling, r.Topic, r.Begin, "%s handled attempt %d of %s, which it was not given", r.Client, r.Attempt, r.Mark)
		}
		if len(deliveries) != 1 {
			continue // which one it handled is unknown
		}
		if deliveries[0].At < lastGiven {
			c.Reportf(Handling, r.Topic, r.Begin, "%s handled attempt %d of %s of key %s, which it was given at %s, after one that it was given at %s",
				r.Client, r.Attempt, r.Mark, r.Key, c.since(deliveries[0].At), c.since(lastGiven))
		}
		lastGiven = max(lastGiven, deliveries[0].At)
	}
}
