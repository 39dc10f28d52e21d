package fanout

import (
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/parleyhq/parley/server/internal/message"
)

// minCheckDelay is the minimum time between two checks that stray events or failed fills request.
const minCheckDelay = 250 * time.Millisecond

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
	at := now.Add(cfg.CheckEvery - rand.N(max(cfg.CheckEvery/4, 1)))
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

// due runs each time the schedule wakes the topic, which takes it off the schedule. It retires a
// topic without subscriptions; otherwise it reads the log's state and schedules the next check.
func (t *topic) due() {
	if t.hub.retire(t) {
		t.close()
		return
	}
	t.mu.Lock()
	idle := t.closed || len(t.subs) == 0 || t.cancel == nil
	if idle && !t.closed && len(t.subs) == 0 {
		t.hub.schedule.set(t, t.emptyAt.Add(t.hub.cfg.Linger))
	}
	confirm := t.checks.suspect > 0 && !time.Now().Before(t.checks.suspectAt)
	if !idle && confirm {
		t.confirm()
		t.scheduleCheck()
	}
	t.mu.Unlock()
	if idle || confirm {
		return
	}
	err := t.readState(t.compare)
	t.mu.Lock()
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
