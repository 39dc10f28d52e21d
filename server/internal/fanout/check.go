package fanout

import (
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/parleyhq/parley/server/internal/message"
)

const (
	// minCheckDelay is the minimum time between two checks that stray events or failed fills request.
	minCheckDelay = 250 * time.Millisecond
	// checkTogether is the interval at which regular checks are due, so that those of many channels
	// share one read of the log. checkBatch is the maximum number of channels in one.
	checkTogether = 250 * time.Millisecond
	checkBatch    = 500
)

// checks is the state of the checks that compare a topic's tail, the last delivered entry, with the
// log. They run in a series with growing delays. All fields are guarded by topic.mu.
type checks struct {
	// since is when the series began. step is the index of the next delay in Config.CheckAfter.
	since time.Time
	step  int
	// requestedAt is the time for which checkSoon last requested a check.
	requestedAt time.Time
	// suspect is the seq of the log's last entry when a check found the tail behind it; 0 if there is
	// none. suspectTail was the tail at that time. suspectAt is when to compare again.
	suspect, suspectTail int64
	suspectAt            time.Time
	// fails counts failed checks in a row.
	fails int
}

// restartChecks restarts the series of checks. Its delays count from the given time.
func (t *topic) restartChecks(from time.Time) {
	if t.closed {
		return
	}
	t.checks.since, t.checks.step = from, 0
	t.scheduleCheck()
}

// scheduleCheck schedules the next check.
func (t *topic) scheduleCheck() {
	cfg := &t.hub.cfg
	now := time.Now()
	at := now.Add(cfg.CheckEvery - rand.N(max(cfg.CheckEvery/4, 1))).Truncate(checkTogether)
	switch c := &t.checks; {
	case c.fails > 0:
		at = now.Add(cfg.backoff(c.fails))
	case c.suspect > 0:
		at = c.suspectAt
	case c.step < len(cfg.CheckAfter):
		at = c.since.Add(cfg.CheckAfter[c.step])
	}
	if asked := t.checks.requestedAt; asked.After(now) && asked.Before(at) {
		at = asked
	}
	t.hub.schedule.set(t, at)
}

// checkSoon requests a check outside the series, at least minCheckDelay after the last requested
// one. It does not block.
func (t *topic) checkSoon() {
	now := time.Now()
	if t.checks.requestedAt.After(now) {
		return
	}
	at := t.checks.requestedAt.Add(minCheckDelay)
	if at.Before(now) {
		at = now
	}
	t.checks.requestedAt = at
	t.hub.schedule.set(t, at)
}

// check runs when the schedule wakes topics, which takes them off the schedule. It retires those
// without subscriptions. It reads the states of the others' logs at once, and schedules their next
// checks.
func (h *Hub) check(due []*topic) {
	var topics []*topic
	var ids []string
	var tickets []int64
	for _, t := range due {
		if h.retire(t) {
			t.close()
			continue
		}
		if ticket, ok := t.beginCheck(); ok {
			topics, ids, tickets = append(topics, t), append(ids, t.channelID), append(tickets, ticket)
		}
	}
	if len(topics) == 0 {
		return
	}
	states, err := h.states(ids)
	for i, t := range topics {
		t.endCheck(states[t.channelID], tickets[i], err)
	}
}

// beginCheck returns the number of a read of the log's state; ok is false if none is necessary now.
func (t *topic) beginCheck() (ticket int64, ok bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.closed || len(t.subs) == 0 || t.cancel == nil {
		if !t.closed && len(t.subs) == 0 {
			t.hub.schedule.set(t, t.emptyAt.Add(t.hub.cfg.Linger))
		}
		return 0, false
	}
	if t.checks.suspect > 0 && !time.Now().Before(t.checks.suspectAt) {
		t.confirm()
		t.scheduleCheck()
		return 0, false
	}
	t.lastTicket++
	return t.lastTicket, true
}

// endCheck compares the topic with the state that was read, and schedules the next check. err is
// the error of the read.
func (t *topic) endCheck(st message.State, ticket int64, err error) {
	t.mu.Lock()
	if err == nil {
		if t.observe(st, ticket) {
			t.compare(st)
		} else {
			t.mu.Unlock()
			err = t.readState(t.compare) // the epoch changed during the read
			t.mu.Lock()
		}
	}
	if err == nil {
		t.checks.fails = 0
	} else {
		t.checks.fails++
	}
	for t.checks.step < len(t.hub.cfg.CheckAfter) &&
		!t.checks.since.Add(t.hub.cfg.CheckAfter[t.checks.step]).After(time.Now()) {
		t.checks.step++
	}
	if !t.closed {
		t.scheduleCheck()
	}
	t.mu.Unlock()
	if err != nil {
		t.hub.reportError(t.channelID, fmt.Errorf("check position: %w", err))
	}
}

// compare compares the tail with the log's state. If the tail is behind, confirm compares again
// after Config.CheckGrace, because the missing events may be in flight.
func (t *topic) compare(st message.State) {
	if len(t.live) == 0 || st.Head <= t.seen {
		return
	}
	t.suspectBehind(st.Head)
}

func (t *topic) suspectBehind(head int64) {
	t.checks.suspect, t.checks.suspectTail = head, t.tail
	t.checks.suspectAt = time.Now().Add(t.hub.cfg.CheckGrace)
}

// confirm compares again a tail that was behind the log. If it has not moved since, the missing
// events count as lost and are read from the log.
func (t *topic) confirm() {
	head, tail := t.checks.suspect, t.checks.suspectTail
	t.checks.suspect = 0
	switch {
	case t.tail >= head || len(t.live) == 0:
	case t.tail != tail:
		t.suspectBehind(head)
	default:
		t.seen = max(t.seen, head)
		t.fill()
	}
}
