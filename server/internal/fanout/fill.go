package fanout

import (
	"errors"
	"fmt"
	"time"

	"github.com/parleyhq/parley/server/internal/message"
)

// errEmptyReplay is the error of a replay that returned nothing although the log should have
// entries.
var errEmptyReplay = errors.New("log returned no entries")

// dense returns an error unless the events cover the entries after the seq after without a gap.
func dense(events []message.Event, after int64) error {
	for i := range events {
		if e := &events[i]; e.From() != after+1 || e.Seq <= after {
			return fmt.Errorf("log replayed entries %d to %d, want %d", e.From(), e.Seq, after+1)
		}
		after = events[i].Seq
	}
	return nil
}

// parkedEvent is an event that arrived at the time at, before its predecessors.
type parkedEvent struct {
	message.Event

	at time.Time
}

// park keeps an event that arrived before its predecessors. Beyond a quarter of Config.QueueEvents
// or QueueBytes it drops the event, which is read from the log later.
func (t *topic) park(e message.Event) {
	if _, ok := t.parked[e.Seq]; ok {
		return
	}
	size := e.Message.Size()
	cfg := &t.hub.cfg
	if len(t.parked) >= max(1, cfg.QueueEvents/4) || t.parkedBytes+size > cfg.QueueBytes/4 {
		return
	}
	if t.parked == nil {
		t.parked = map[int64]parkedEvent{}
	}
	t.parked[e.Seq] = parkedEvent{e, time.Now()}
	t.parkedBytes += size
}

// unpark delivers the parked events that directly follow the tail. It drops those at or below the
// tail. If one to deliver was parked longer than recentFor, its message may have been recalled
// since, and one up to shown may be older than what was delivered: unpark then drops all, and they
// are read from the log.
func (t *topic) unpark() {
	now := time.Now()
	for len(t.parked) > 0 && len(t.live) > 0 {
		e, ok := t.parked[t.tail+1]
		if !ok {
			break
		}
		if now.Sub(e.at) > recentFor || e.Seq <= t.shown {
			t.dropParked()
			t.fill()
			return
		}
		delete(t.parked, e.Seq)
		t.parkedBytes -= e.Message.Size()
		t.deliver(&e.Event)
	}
	if t.tail == t.seen {
		t.dropParked()
		return
	}
	for seq, e := range t.parked {
		if seq <= t.tail {
			delete(t.parked, seq)
			t.parkedBytes -= e.Message.Size()
		}
	}
}

func (t *topic) dropParked() { t.parked, t.parkedBytes = nil, 0 }

// fill starts reading the missing entries after the tail from the log, unless such a read is in
// progress or waits for its retry. It does not block.
func (t *topic) fill() {
	if t.filling {
		return
	}
	t.filling = true
	t.hub.reads.submit(t.runFill)
}

// runFill reads one page of the missing entries and delivers it. If more are missing, they are too
// many to be pushed to readers unasked: every live subscription then goes back to replay, which
// reads the log at the subscriber's own pace. Entries that became known meanwhile are read in a
// turn of their own, after those of other topics.
func (t *topic) runFill() {
	cfg := &t.hub.cfg
	most := max(1, cfg.QueueEvents/8)
	t.mu.Lock()
	after, goal := t.tail, t.seen
	if !t.needsFill() {
		t.mu.Unlock()
		return
	}
	t.mu.Unlock()

	events, err := t.hub.replay(t.channelID, after, goal, most, max(1, cfg.QueueBytes/4), false)
	if err == nil && len(events) == 0 {
		err = errEmptyReplay
	}
	t.mu.Lock()
	if err == nil {
		err = t.filled(events, goal)
	}
	if err != nil {
		t.retryFill()
	}
	more := err == nil && t.needsFill()
	t.mu.Unlock()
	switch {
	case err != nil:
		t.hub.reportError(t.channelID, fmt.Errorf("fill a hole: %w", err))
	case more:
		t.hub.reads.submit(t.runFill)
	}
}

// needsFill reports whether entries after the tail are missing and there is a live subscription to
// deliver them to. If not, it resets filling.
func (t *topic) needsFill() bool {
	if t.closed || len(t.live) == 0 || t.seen <= t.tail {
		t.filling, t.fails = false, 0
		return false
	}
	return true
}

// filled delivers a page of the missing entries up to goal. If the page does not reach goal, it
// sends the live subscriptions back to replay. It fails at an entry of another epoch.
func (t *topic) filled(events []message.Event, goal int64) error {
	for i := range events {
		e := &events[i]
		if e.Seq <= t.tail {
			continue // arrived by the bus meanwhile, or was skipped when no subscription was live
		}
		if e.Epoch != t.epoch {
			t.checkSoon()
			return fmt.Errorf("entry %d is of another epoch", e.Seq)
		}
		t.requireRev(e.Rev)
		if len(t.live) == 0 || e.From() > t.tail+1 {
			break
		}
		t.deliver(e)
		t.shown = max(t.shown, e.Message.ChangedSeq)
	}
	t.seen = max(t.seen, t.shown)
	t.hub.stats.fills.Add(1)
	t.fails = 0
	t.unpark()
	if len(t.live) > 0 && t.tail < goal {
		t.demote()
	}
	return nil
}

// retryFill runs runFill again after a delay. It also requests a check of the log's state, which
// detects lost history and a changed epoch.
func (t *topic) retryFill() {
	t.fails++
	t.checkSoon()
	time.AfterFunc(t.hub.cfg.backoff(t.fails), func() { t.hub.reads.submit(t.runFill) })
}

// demote sends every live subscription back to replay: it reads the log from its own position.
func (t *topic) demote() {
	for _, u := range t.live {
		u.slot = 0
		u.stream.catchUp(u)
	}
	t.hub.stats.demoted.Add(int64(len(t.live)))
	t.live = nil
	t.skip()
}
