package fanout

import (
	"errors"
	"fmt"
	"time"

	"github.com/parleyhq/parley/server/internal/message"
)

// errNothing says that the log returned nothing although it should hold something.
var errNothing = errors.New("the log does not hold what was announced")

// dense checks what the log replayed.
func dense(events []message.Event, after int64) error {
	for i := range events {
		if want := after + 1 + int64(i); events[i].Seq != want {
			return fmt.Errorf("the log replayed entry %d where %d should be", events[i].Seq, want)
		}
	}
	return nil
}

// park keeps an event that lies above a hole, within bounds; beyond those the log has it.
func (t *topic) park(e message.Event) {
	if _, ok := t.parked[e.Seq]; ok {
		return
	}
	size := len(e.Message.Content)
	cfg := &t.hub.cfg
	if len(t.parked) >= max(1, cfg.QueueEvents/4) || t.parkedBytes+size > cfg.QueueBytes/4 {
		return
	}
	if t.parked == nil {
		t.parked = map[int64]message.Event{}
	}
	t.parked[e.Seq] = e
	t.parkedBytes += size
}

// unpark delivers the parked events that follow the tail, and drops those it has passed.
func (t *topic) unpark() {
	for len(t.parked) > 0 && len(t.live) > 0 {
		e, ok := t.parked[t.tail+1]
		if !ok {
			break
		}
		delete(t.parked, e.Seq)
		t.parkedBytes -= len(e.Message.Content)
		t.deliver(&e)
	}
	if t.tail == t.seen {
		t.dropParked()
		return
	}
	for seq, e := range t.parked {
		if seq <= t.tail {
			delete(t.parked, seq)
			t.parkedBytes -= len(e.Message.Content)
		}
	}
}

func (t *topic) dropParked() { t.parked, t.parkedBytes = nil, 0 }

// fill has the hole above the tail read from the log, unless that is under way.
func (t *topic) fill() {
	if t.filling {
		return
	}
	t.filling = true
	t.hub.reads.submit(t.runFill)
}

// runFill reads one page for the hole and delivers it. What one page does not close is more than should be pushed at
// readers who did not ask: then every live subscription goes back to replay, at its own pace.
func (t *topic) runFill() {
	cfg := &t.hub.cfg
	most := max(1, cfg.QueueEvents/8)
	for {
		t.mu.Lock()
		after, goal := t.tail, t.seen
		if !t.holed() {
			t.mu.Unlock()
			return
		}
		t.mu.Unlock()

		events, err := t.hub.replay(t.channelID, after, goal, most, max(1, cfg.QueueBytes/4), false)
		if err == nil && len(events) == 0 {
			err = errNothing
		}
		t.mu.Lock()
		if err == nil {
			err = t.filled(events, goal)
		}
		if err != nil {
			t.retryFill()
		}
		t.mu.Unlock()
		if err != nil {
			t.hub.trouble(t.channelID, fmt.Errorf("fill a hole: %w", err))
			return
		}
	}
}

// holed reports whether there is still a hole that somebody waits for, and otherwise ends the filling.
func (t *topic) holed() bool {
	if t.closed || len(t.live) == 0 || t.seen <= t.tail {
		t.filling, t.fails = false, 0
		return false
	}
	return true
}

// filled delivers a page that was read for a hole up to goal.
func (t *topic) filled(events []message.Event, goal int64) error {
	for i := range events {
		e := &events[i]
		if e.Seq <= t.tail {
			continue // it came by the bus after all, or everybody left
		}
		if e.Epoch != t.epoch {
			t.checkSoon()
			return fmt.Errorf("entry %d is of another epoch", e.Seq)
		}
		if len(t.live) == 0 || e.Seq != t.tail+1 {
			break
		}
		t.deliver(e)
	}
	t.hub.stats.fills.Add(1)
	t.fails = 0
	t.unpark()
	if len(t.live) > 0 && t.tail < goal {
		t.demote()
	}
	return nil
}

// retryFill tries again after a while. Whether history or epoch are gone, the log's state will tell.
func (t *topic) retryFill() {
	t.fails++
	t.checkSoon()
	time.AfterFunc(t.hub.cfg.backoff(t.fails), func() { t.hub.reads.submit(t.runFill) })
}

// demote sends every live subscription back to replay.
func (t *topic) demote() {
	for _, u := range t.live {
		u.slot = 0
		u.session.catchUp(u)
	}
	t.hub.stats.demoted.Add(int64(len(t.live)))
	t.live = nil
	t.skip()
}
