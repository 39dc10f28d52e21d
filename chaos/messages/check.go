package messages

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/parleyhq/parley/chaos"
)

// The names of broken promises, besides those that all harnesses share.
const (
	// Loss: an acknowledged write is not in the log, or a client got an entry or a head beyond the
	// log's end.
	Loss chaos.Name = "loss"
	// Duplicate: the log contains a sender's client_msg_id or a message id twice, or a write at
	// another seq than it was acknowledged with.
	Duplicate chaos.Name = "duplicate"
	// Density: the seqs of a log are not 1, 2, 3 and so on.
	Density chaos.Name = "density"
	// Count: an entry's count is not the number of messages in the log up to it.
	Count chaos.Name = "count"
	// Order: msg_time decreases, or a write comes before one that was acknowledged before it began.
	Order chaos.Name = "order"
	// Clock: a message's time is not when it was sent.
	Clock chaos.Name = "clock"
	// Unsent: the log contains an entry that no client requested, or that differs from the request.
	Unsent chaos.Name = "unsent"
	// StoredAfterError: the log contains a write that was answered as failed.
	StoredAfterError chaos.Name = "stored-after-error"
	// WrongResponse: an answer does not agree with the log.
	WrongResponse chaos.Name = "wrong-response"
	// Prefix: the stored items of a batch in one channel are not a prefix of those requested.
	Prefix chaos.Name = "prefix"
	// Changed: a message was changed after its recall, or does not match its last change.
	Changed chaos.Name = "changed"
	// WrongCopy: a client or the change stream got a message or an event that does not match the
	// log.
	WrongCopy chaos.Name = "wrong-copy"
	// StaleRead: a read misses writes acknowledged more than a second before it began, or entries
	// up to its min_seq; or a stream begins with a state that misses acknowledged writes.
	StaleRead chaos.Name = "stale-read"
	// StaleEdit: a read shows the text from before an edit that it must show.
	StaleEdit chaos.Name = "stale-edit"
	// Recalled: a text was shown, or is still stored, after its recall was acknowledged.
	Recalled chaos.Name = "recalled-text"
	// Hole: a page, a stream or a cached set (a channel's newest messages in Redis) misses one
	// between two others or at its beginning.
	Hole chaos.Name = "hole"
	// Repeat: a stream delivered an entry twice or out of order.
	Repeat chaos.Name = "repeat"
	// OlderCopy: a stream delivered a message in an older state than before.
	OlderCopy chaos.Name = "older-copy"
	// Gap: a stream reported entries as unavailable, or did not resume from the requested position,
	// although all entries are available.
	Gap chaos.Name = "gap"
	// Cache: an entry of a cached set can't be read or differs from the log's.
	Cache chaos.Name = "cache"
	// Behind: a client, a stream or a cached set did not catch up with the log in time after the
	// last fault was mended.
	Behind chaos.Name = "behind"
	// Unpublished: the NATS stream of change events lacks an entry of a log.
	Unpublished chaos.Name = "unpublished"
)

const (
	// liveSlack is how long after the answer to a recall a published event in flight may still carry
	// the text.
	liveSlack = 3 * time.Second
	// readSlack is the same for what a subscriber receives. A replay may take 7.5 s to read the store,
	// and returns what was there at its beginning.
	readSlack = 8 * time.Second
)

// checker finds violations in a history by means of the model.
type checker struct {
	*model
	*chaos.Findings
}

// Check compares a history with the final log in the store. It returns no violations if every
// promise was kept.
func Check(h *History, t *Truth) []chaos.Violation { return check(h, t, 50) }

// check is Check with up to limit violations of each name.
func check(h *History, t *Truth, limit int) []chaos.Violation {
	c := &checker{model: newModel(h, t), Findings: chaos.NewFindings(limit, 0)}
	c.checkLogs()
	c.checkWrites()
	c.checkRealTime()
	c.checkClock()
	c.checkBatches()
	c.checkCopies()
	c.checkReads()
	c.checkLives()
	c.checkCache()
	c.checkLists()
	c.checkOpen()
	c.checkPieces()
	c.checkDeletions()
	c.checkMarks()
	c.checkPublished()
	c.checkMembers()
	c.checkMyChannels()
	c.checkLiveness()
	c.checkHarmless()
	c.checkTrims()
	c.checkGates()
	c.checkLogins()
	c.checkUsage()
	return c.Violations()
}

// brief describes an op in a few words.
func (op *Op) brief() string {
	s := fmt.Sprintf("%s %d of %s at %s", op.Kind, op.ID, op.Client, op.Addr)
	if op.ClientMsgID != "" {
		s += " id " + op.ClientMsgID
	}
	if op.MsgID != "" {
		s += " msg " + op.MsgID
	}
	return s + fmt.Sprintf(" [%.3fs to %.3fs]", time.Duration(op.Begin).Seconds(), time.Duration(op.End).Seconds())
}

// checkCopies compares every copy that a client was shown with the model.
func (c *checker) checkCopies() {
	for i := range c.h.Copies {
		cp := &c.h.Copies[i]
		if diff := c.differs(cp); diff != "" {
			c.Reportf(WrongCopy, cp.Channel, 0, "a copy of message %d changed by %d: %s: %+v; %s", cp.Seq, cp.ChangedSeq, diff, *cp,
				c.seenBy(i))
		}
	}
}

// seenBy describes the first read or delivery that showed a copy.
func (c *checker) seenBy(index int) string {
	for i := range c.h.Ops {
		if slices.Contains(c.h.Ops[i].Copies, index) {
			return "shown to " + c.h.Ops[i].brief()
		}
	}
	for i := range c.h.Deliveries {
		if d := &c.h.Deliveries[i]; d.Copy == index && d.Event != EventState {
			return fmt.Sprintf("delivered to life %d as %s %d at %.3fs", d.Life, d.Event, d.Seq, time.Duration(d.At).Seconds())
		}
	}
	return "shown to nobody"
}

// checkMarks reports recalled texts that a store still has.
func (c *checker) checkMarks() {
	for _, s := range c.messages {
		if s.recalled == 0 {
			continue
		}
		for _, ch := range s.changes {
			mark, _, ok := nextMark(ch.content)
			if !ok {
				continue
			}
			name := Recalled
			if _, ok := sessionOf(s.entry.Channel); ok {
				name = DeletedText
			}
			for _, where := range c.t.Marks[mark] {
				c.Reportf(name, s.entry.Channel, 0, "the text %q of message %d, recalled by %d, still lies in %s",
					mark, s.entry.Seq, s.recalled, where)
			}
		}
	}
}

// checkLiveness reports calls that took too long or failed after everything was mended, subscribers
// that did not catch up in time, and nodes that exited unexpectedly.
func (c *checker) checkLiveness() {
	const grace = int64(3 * time.Second)
	for i := range c.h.Ops {
		op := &c.h.Ops[i]
		switch {
		case op.Limit > 0 && op.End-op.Begin > op.Limit+grace:
			c.Reportf(chaos.Liveness, op.Channel, op.End, "%s ended %.1fs after its deadline", op.brief(),
				time.Duration(op.End-op.Begin-op.Limit).Seconds())
		case op.Final && op.Outcome != chaos.OK:
			c.Reportf(chaos.Liveness, op.Channel, op.End, "%s failed though nothing was broken: %s %s", op.brief(), op.Code, op.Err)
		}
	}
	for _, l := range c.h.Lates {
		c.Reportf(Behind, l.Channel, l.At, "%s is at %d of %d, %s after %s", l.Client, l.Seq, l.Head, l.Limit, l.Since)
	}
	c.ReportExits(c.h.Exits)
}

// harmless are the faults during which no call of a client may fail that knows all nodes: messages
// need the store only, and nodes that are restarted in turn leave others.
var harmless = []chaos.FaultName{
	chaos.Roll, chaos.RedisKill, chaos.RedisFlush, chaos.RedisPast, chaos.RedisDisk, chaos.RedisMemory, chaos.NATSAway, chaos.NATSKill,
	chaos.NATSDisk, chaos.NATSDisks, chaos.NATSBytes,
}

// checkHarmless reports failed calls of clients that know all nodes, made while all faults were
// harmless.
func (c *checker) checkHarmless() {
	const after = 5 * second
	for i := range c.h.Ops {
		op := &c.h.Ops[i]
		if op.Outcome != chaos.Unknown || !strings.Contains(op.Addr, ",") {
			continue
		}
		during, other := "", false
		for k := range c.h.Faults {
			f := &c.h.Faults[k]
			if f.Begin > op.End || f.End+after < op.Begin || f.Name == string(chaos.LostReplies) {
				continue
			}
			if slices.Contains(harmless, chaos.FaultName(f.Name)) {
				during = f.Name
			} else {
				other = true
			}
		}
		if during != "" && !other {
			c.Reportf(chaos.Liveness, op.Channel, op.End, "%s failed during %s: %s %s", op.brief(), during, op.Code, op.Err)
		}
	}
}
