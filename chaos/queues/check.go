package queues

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/parleyhq/parley/chaos"
)

// The names of broken promises, besides those that all harnesses share.
const (
	// Loss: an accepted message is neither settled nor stored for a group, or is missing in a stream
	// that keeps everything.
	Loss chaos.Name = "loss"
	// Duplicate: one message was stored twice, or answered with two ids.
	Duplicate chaos.Name = "duplicate"
	// Unsent: a consumer received a message that was not produced, or not as it was produced.
	Unsent chaos.Name = "unsent"
	// StoredAfterError: a produce that was answered as failed was stored, or a cancelled message
	// appeared.
	StoredAfterError chaos.Name = "stored-after-error"
	// Stuck: a message was not settled in time after the last fault was mended.
	Stuck chaos.Name = "stuck"
	// Early: a message was delivered before it was due, or retried before the requested delay.
	Early chaos.Name = "early"
	// Order: a later message of a key overtook an earlier one that was not retried.
	Order chaos.Name = "order"
	// StrictOrder: in a topic with strict order two messages of a key were in flight at once or out
	// of order.
	StrictOrder chaos.Name = "strict-order"
	// Redelivered: a message was delivered or is stored as unsettled after its ack was accepted.
	Redelivered chaos.Name = "redelivered"
	// Gen: a settlement of an older delivery was accepted, or two deliveries of a message were
	// finally settled, or one delivery was made twice.
	Gen chaos.Name = "gen"
	// Kept: a message was delivered again while a session that had contact held it.
	Kept chaos.Name = "kept"
	// OneKey: two sessions had messages of one key at a time.
	OneKey chaos.Name = "one-key"
	// Charged: more attempts were counted than handlers had begun deliveries.
	Charged chaos.Name = "charged"
	// Idle: a message waited though a session with an idle handler was there.
	Idle chaos.Name = "idle"
	// Full: a settlement was refused because Redis was out of memory.
	Full chaos.Name = "full"
	// Epoch: a lease's epoch decreased, or two nodes had the same one.
	Epoch chaos.Name = "epoch"
	// Attempts: an attempt of a message was not counted, or there were more than the topic allows.
	Attempts chaos.Name = "attempts"
	// DeadLetters: a dead letter exists that should not, or one is missing.
	DeadLetters chaos.Name = "dead-letters"
	// Conservation: the counters do not add up, or do not match the answers, or a message is in two
	// places.
	Conservation chaos.Name = "conservation"
	// AdminMismatch: AdminService reports something other than Redis has.
	AdminMismatch chaos.Name = "admin-mismatch"
	// Handling: the SDK's worker sent a settlement that differs from its handler's result, handled
	// messages of a key at once or out of order, handled one that it had not received, or gave up.
	Handling chaos.Name = "handling"
)

// slack is how long a delivery may be on its way from the node to the client.
const slack = 2 * time.Second

// checker finds violations in a history by means of the model.
type checker struct {
	*model
	*chaos.Findings

	// gone counts the accepted messages that are nowhere, in topics that drop the oldest.
	gone map[spot]int64
}

func newChecker(h *History, t *Truth) *checker {
	return &checker{model: newModel(h, t), Findings: chaos.NewFindings(20, h.Began), gone: make(map[spot]int64)}
}

// Check compares a history with the final contents of Redis. It returns no violations if every
// promise was kept.
func Check(h *History, t *Truth) []chaos.Violation {
	c := newChecker(h, t)
	for _, msg := range c.sorted() {
		c.checkTaken(msg)
		c.checkFates(msg)
		c.checkEarly(msg)
	}
	c.checkSeen()
	c.checkStored()
	c.checkOrder()
	c.checkLeases()
	c.checkCounts()
	c.checkIdle()
	c.checkFull()
	c.checkTold()
	c.checkHandlers()
	c.checkLiveness()
	return c.Violations()
}

// since formats a time as seconds since the run began.
func (c *checker) since(at int64) string {
	if at == forever {
		return "never"
	}
	return fmt.Sprintf("%.3fs", time.Duration(at-c.h.Began).Seconds())
}

// text is a Stringer that is formatted only if needed: most violations of a wrong server are only
// counted.
type text func() string

// String calls the function.
func (t text) String() string { return t() }

// op describes a call in a few words.
func (c *checker) op(op *Op) fmt.Stringer {
	return text(func() string {
		return fmt.Sprintf("%s %s of %s in session %.8s delivery %d, attempt %d [%s to %s]: %s %s", op.Kind, op.ID, op.Mark, op.Session, op.Gen, op.Attempt,
			c.since(op.Begin), c.since(op.End), op.Outcome, op.Reason)
	})
}

// story describes the history of a message in a group.
func (c *checker) story(f *fate) fmt.Stringer {
	return text(func() string {
		var b strings.Builder
		for _, d := range f.deliveries {
			fmt.Fprintf(&b, "; delivery %d (attempt %d) to %s (%.8s) at %s, kept until %s", d.Gen, d.Attempt, d.Client, d.Session, c.since(d.At), c.since(c.kept(d)))
		}
		for _, op := range f.settled {
			fmt.Fprintf(&b, "; %s", c.op(op))
		}
		return b.String()
	})
}

// checkTaken checks that a message was requested, was stored at most once and only if its call did
// not fail, and was delivered with its key and from its partition.
func (c *checker) checkTaken(msg *message) {
	if len(msg.requested) == 0 {
		c.Reportf(Unsent, msg.topic, 0, "nobody produced %q, which is %v", msg.mark, msg.ids)
		return
	}
	if len(msg.ids) > 1 {
		c.Reportf(Duplicate, msg.topic, msg.requested[0].Begin, "%s (idempotency key %q) has %d ids: %v",
			msg.mark, msg.requested[0].Idem, len(msg.ids), msg.ids)
	}
	seen := len(msg.ids) > 0
	if seen && !msg.possiblyAccepted() {
		c.Reportf(StoredAfterError, msg.topic, msg.requested[0].End, "%s was refused (%s), and is %v", msg.mark, msg.requested[0].Reason, msg.ids)
	}
	c.checkCancelled(msg)
	for group, f := range msg.fate {
		for _, d := range f.deliveries {
			if c.rolledBack(d.At, d.At) {
				continue
			}
			if d.Key != msg.key() || d.Partition != msg.partition() {
				c.Reportf(Unsent, msg.topic, d.At, "%s of key %q was delivered to group %s with key %q from partition %d as %s", msg.mark,
					msg.key(), group, d.Key, d.Partition, d.MessageID)
			}
		}
	}
}

// checkCancelled checks that a cancelled message was not delivered afterwards and is nowhere.
func (c *checker) checkCancelled(msg *message) {
	for _, op := range msg.changes {
		if op.Kind != Cancel || op.Outcome != chaos.OK {
			continue
		}
		for group, f := range msg.fate {
			late := slices.ContainsFunc(f.deliveries, func(d *Delivery) bool {
				return d.At > op.End+int64(slack) && !c.heldUp(d.Stream, op.End, d.At)
			})
			buried := len(f.dead) > 0 && !f.possiblyReturned(op.End, Nack)
			if late || buried || len(f.places) > 0 {
				c.Reportf(StoredAfterError, msg.topic, op.End, "%s was cancelled at %s, and in group %s it is %v%s", msg.mark, c.since(op.End), group,
					f.places, c.story(f))
			}
		}
	}
}

// checkFates checks the final state of a message in each group.
func (c *checker) checkFates(msg *message) {
	mayCancel := msg.cancelled()
	for _, group := range c.groups(msg.topic) {
		f := msg.in(group)
		did, may := f.acked()
		switch {
		case len(f.places) > 1:
			c.Reportf(Conservation, msg.topic, 0, "%s lies in more than one place of group %s: %v%s", msg.mark, group, f.places, c.story(f))
		case len(f.places) == 1 && len(f.dead) > 0:
			c.Reportf(Conservation, msg.topic, 0, "%s is a dead letter of group %s and is %v%s", msg.mark, group, f.places, c.story(f))
		case len(f.places) == 1 && did:
			c.Reportf(Redelivered, msg.topic, 0, "%s was acknowledged in group %s and is %v%s", msg.mark, group, f.places, c.story(f))
		case len(f.places) == 1:
			c.Reportf(Stuck, msg.topic, 0, "%s is %v in group %s though all was mended%s", msg.mark, f.places, group, c.story(f))
		case msg.accepted() && !may && !mayCancel && len(f.dead) == 0 && c.topics[msg.topic].Drops:
			c.gone[spot{msg.topic, group, msg.partition()}]++
		case msg.accepted() && !may && !mayCancel && len(f.dead) == 0:
			c.Reportf(Loss, msg.topic, msg.requested[0].End, "%s was taken as %s and is nowhere in group %s, neither acknowledged nor dead%s",
				msg.mark, msg.id(), group, c.story(f))
		}
		c.checkAgain(msg, group, f)
		c.checkGens(msg, group, f)
		c.checkCharged(msg, group, f)
		c.checkAttempts(msg, group, f)
		c.checkDead(msg, group, f)
	}
}

// checkStored reports messages that a stream contains twice and, in topics that keep everything,
// missing ones.
func (c *checker) checkStored() {
	for i := range c.t.Partitions {
		p := &c.t.Partitions[i]
		at := make(map[string]string)
		for k := range p.Entries {
			s := &p.Entries[k]
			if first, ok := at[s.Mark]; ok {
				c.Reportf(Duplicate, p.Topic, 0, "partition %d has %s at %s and at %s", p.Partition, s.Mark, first, s.ID)
			}
			at[s.Mark] = s.ID
		}
	}
	stored := make(map[name]bool)
	for i := range c.t.Partitions {
		for _, s := range c.t.Partitions[i].Entries {
			stored[name{c.t.Partitions[i].Topic, s.Mark}] = true
		}
		for _, s := range c.t.Partitions[i].Delayed {
			stored[name{c.t.Partitions[i].Topic, s.Mark}] = true
		}
	}
	for _, msg := range c.sorted() {
		t := c.topics[msg.topic]
		if t == nil || !t.Keeps || msg.cancelled() || !msg.accepted() || stored[msg.name] {
			continue
		}
		c.Reportf(Loss, msg.topic, msg.requested[0].End, "%s was taken as %s and is not in its stream, which keeps everything", msg.mark, msg.id())
	}
}

// checkEarly reports deliveries before the message's due time, and retries before their delay.
func (c *checker) checkEarly(msg *message) {
	due := int64(forever)
	for _, op := range slices.Concat(msg.requested, msg.changes) {
		if op.Outcome == chaos.Failed || op.Kind == Produce || op.Kind == Cancel {
			continue
		}
		// Without an answer, the message can't be due before the requested time.
		at := op.AtMS
		switch {
		case op.DueMS != 0:
			at = op.DueMS
		case op.DelayMS != none:
			at = op.Begin/int64(time.Millisecond) + op.DelayMS
		}
		due = min(due, at)
	}
	for group, f := range msg.fate {
		for _, d := range f.deliveries {
			if msg.scheduled() && d.At < due*int64(time.Millisecond) {
				c.Reportf(Early, msg.topic, d.At, "%s was delivered to %s of group %s %s before it was due", msg.mark, d.Client, group,
					time.Duration(due*int64(time.Millisecond)-d.At))
			}
		}
		c.checkBackoff(msg, group, f)
	}
}

// checkBackoff reports retries before the delay that the consumer requested.
func (c *checker) checkBackoff(msg *message, group string, f *fate) {
	for _, op := range f.settled {
		if op.Kind != Nack || op.Outcome != chaos.OK || op.DelayMS <= 0 || op.Dead {
			continue
		}
		begin := f.firstAsked(op)
		for _, d := range f.deliveries {
			if until := begin + op.DelayMS*int64(time.Millisecond); d.Gen == op.Gen+1 && d.At < until && !c.rolledBack(d.At, d.At) {
				c.Reportf(Early, msg.topic, d.At, "attempt %d of %s in group %s came %s before the delay of %s was over", d.Attempt, msg.mark,
					group, time.Duration(until-d.At), c.op(op))
			}
		}
	}
}

// firstAsked returns when the settlement of op was first requested: by op, or by an earlier try
// without an answer, which may be the one that took effect.
func (f *fate) firstAsked(op *Op) int64 {
	begin := op.Begin
	for _, try := range f.settled {
		if try.Token == op.Token && try.Kind == op.Kind && try.Outcome == chaos.Unknown {
			begin = min(begin, try.Begin)
		}
	}
	return begin
}

// checkLiveness reports calls that took too long, undrained groups, and nodes that exited
// unexpectedly.
func (c *checker) checkLiveness() {
	const limit = int64(callLimit + 3*time.Second)
	for i := range c.h.Ops {
		if op := &c.h.Ops[i]; op.End != forever && op.End-op.Begin > limit && !c.stopped(op) {
			c.Reportf(chaos.Liveness, op.Topic, op.End, "%s took %s", c.op(op), time.Duration(op.End-op.Begin).Round(time.Millisecond))
		}
	}
	if c.h.Undrained != "" {
		c.Reportf(Stuck, "", 0, "not all was done in time once all was mended: %s", c.h.Undrained)
	}
	c.ReportExits(c.h.Exits)
}

// stopped reports whether the client of a call was stopped during it.
func (c *checker) stopped(op *Op) bool {
	return slices.ContainsFunc(c.h.Faults, func(f chaos.Fault) bool {
		return f.Name == string(ConsumerStop) && f.Target == op.Client && f.Begin <= op.End && op.Begin <= f.End
	})
}
