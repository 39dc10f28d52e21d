package chaos

import (
	"fmt"
	"slices"
	"strings"
	"time"
)

// Name is the name of a promise that was broken.
type Name string

// The names.
const (
	// Loss: something that was acknowledged is not in the log.
	Loss Name = "loss"
	// Duplicate: the log holds one client_msg_id twice, or one write was answered with two places.
	Duplicate Name = "duplicate"
	// Density: the seqs of a log are not 1, 2, 3 and so on.
	Density Name = "density"
	// Count: an entry's count is not how many messages the log holds up to it.
	Count Name = "count"
	// Order: msg_time goes back, or a write is placed before one that was answered before it began.
	Order Name = "order"
	// Unsent: the log holds what nobody asked for, or not as it was asked for.
	Unsent Name = "unsent"
	// Denied: the log holds a write of which it was said that it had failed.
	Denied Name = "denied"
	// Answer: an answer does not agree with the log.
	Answer Name = "answer"
	// Prefix: what is stored of a batch's channel is not a prefix of what was asked.
	Prefix Name = "prefix"
	// Changed: a message was changed after its recall, or is not what its last change made it.
	Changed Name = "changed"
	// Wrong: somebody was shown a message that is not what the log makes of it.
	Wrong Name = "wrong-copy"
	// StaleRead: a read misses what was acknowledged more than a second before it began, or what min_seq asks for.
	StaleRead Name = "stale-read"
	// StaleEdit: a read shows a text from before an edit that it must show.
	StaleEdit Name = "stale-edit"
	// Recalled: a text was shown, or is still stored, after its recall was acknowledged.
	Recalled Name = "recalled-text"
	// Hole: a page, a stream or a cached set misses an entry between two others, or at its beginning.
	Hole Name = "hole"
	// Repeat: a stream delivered an entry twice or out of order.
	Repeat Name = "repeat"
	// Gap: a stream said that entries can't be had, though all can.
	Gap Name = "gap"
	// Cache: a cached set is not a piece of the log.
	Cache Name = "cache"
	// Behind: after everything was mended something did not come level with the log in time.
	Behind Name = "behind"
	// Unpublished: the change stream lacks an entry.
	Unpublished Name = "unpublished"
	// Liveness: a call did not end by its deadline, or did not succeed though nothing was broken.
	Liveness Name = "liveness"
	// Crash: a node ended by itself.
	Crash Name = "crash"
)

// Violation is a broken promise, with what shows it.
type Violation struct {
	Name    Name   `json:"name"`
	Channel string `json:"channel,omitempty"`
	Detail  string `json:"detail"`
	// At is when it showed, in nanoseconds since the run began; 0 for what lies in the stores.
	At int64 `json:"at,omitempty"`
}

// String gives it in one line.
func (v Violation) String() string {
	at := ""
	if v.At > 0 {
		at = fmt.Sprintf(" at %.3fs", time.Duration(v.At).Seconds())
	}
	return fmt.Sprintf("%s %s%s: %s", v.Name, v.Channel, at, v.Detail)
}

// Settings are how strictly a history is judged.
type Settings struct {
	// LiveSlack is how long after a recall's answer a live event that was on its way may still bring the text: 3 s.
	LiveSlack time.Duration
	// Limit is how many violations of one name are kept: 50.
	Limit int
}

// checker gathers violations.
type checker struct {
	*model

	settings Settings
	found    []Violation
	counts   map[Name]int
}

// Check judges a history by the log that the store holds in the end. The result is empty if every promise was kept.
func Check(h *History, t *Truth, s Settings) []Violation {
	if s.LiveSlack == 0 {
		s.LiveSlack = 3 * time.Second
	}
	if s.Limit == 0 {
		s.Limit = 50
	}
	c := &checker{model: newModel(h, t), settings: s, counts: make(map[Name]int)}
	c.checkLogs()
	c.checkWrites()
	c.checkRealTime()
	c.checkBatches()
	c.checkCopies()
	c.checkReads()
	c.checkLives()
	c.checkCache()
	c.checkMarks()
	c.checkPublished()
	c.checkMembers()
	c.checkMine()
	c.checkLiveness()
	c.checkRolling()
	for name, n := range c.counts {
		if n > s.Limit {
			c.found = append(c.found, Violation{Name: name, Detail: fmt.Sprintf("and %d more", n-s.Limit)})
		}
	}
	slices.SortStableFunc(c.found, func(a, b Violation) int { return strings.Compare(string(a.Name), string(b.Name)) })
	return c.found
}

func (c *checker) reportf(name Name, channel string, at int64, format string, args ...any) {
	if c.counts[name]++; c.counts[name] > c.settings.Limit {
		return
	}
	c.found = append(c.found, Violation{Name: name, Channel: channel, At: at, Detail: fmt.Sprintf(format, args...)})
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

// checkCopies holds every look of a message that anybody had against the model.
func (c *checker) checkCopies() {
	for i := range c.h.Copies {
		if cp := &c.h.Copies[i]; true {
			if diff := c.differs(cp); diff != "" {
				c.reportf(Wrong, cp.Channel, 0, "a copy of message %d changed by %d: %s: %+v; %s", cp.Seq, cp.ChangedSeq, diff, *cp,
					c.seenBy(i))
			}
		}
	}
}

// seenBy says who was first shown a copy.
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

// checkMarks looks for texts that were recalled in everything that the stores hold.
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
			for _, where := range c.t.Marks[mark] {
				c.reportf(Recalled, s.entry.Channel, 0, "the text %q of message %d, recalled by %d, still lies in %s",
					mark, s.entry.Seq, s.recalled, where)
			}
		}
	}
}

// checkLiveness looks at how long calls took, and who died.
func (c *checker) checkLiveness() {
	const grace = int64(3 * time.Second)
	for i := range c.h.Ops {
		op := &c.h.Ops[i]
		switch {
		case op.Limit > 0 && op.End-op.Begin > op.Limit+grace:
			c.reportf(Liveness, op.Channel, op.End, "%s ended %.1fs after its deadline", op.brief(),
				time.Duration(op.End-op.Begin-op.Limit).Seconds())
		case op.Final && op.Outcome != OK:
			c.reportf(Liveness, op.Channel, op.End, "%s failed though nothing was broken: %s %s", op.brief(), op.Code, op.Err)
		}
	}
	for _, l := range c.h.Lates {
		c.reportf(Behind, l.Channel, l.At, "%s is at %d of %d, %s after %s", l.Client, l.Seq, l.Head, levelLimit, l.Since)
	}
	for _, e := range c.h.Exits {
		c.reportf(Crash, "", e.At, "%s ended by itself: %s", e.Node, e.Log)
	}
}

// checkRolling looks for calls that failed a client which knows all nodes, while nothing was done but restarting these
// in turn.
func (c *checker) checkRolling() {
	const after = 5 * second
	for i := range c.h.Ops {
		op := &c.h.Ops[i]
		if op.Outcome != Unknown || !strings.Contains(op.Addr, ",") {
			continue
		}
		rolled, other := false, false
		for k := range c.h.Faults {
			f := &c.h.Faults[k]
			if f.Begin > op.End || f.End+after < op.Begin || f.Name == string(LostReplies) {
				continue
			}
			if f.Name == string(Roll) {
				rolled = true
			} else {
				other = true
			}
		}
		if rolled && !other {
			c.reportf(Liveness, op.Channel, op.End, "%s failed while the nodes were restarted in turn: %s %s", op.brief(), op.Code, op.Err)
		}
	}
}
