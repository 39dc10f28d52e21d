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

// dense returns an error unless the seqs of events are after+1, after+2 and so on.
func dense(events []message.Event, after int64) error {
	for i := range events {
		if want := after + 1 + int64(i); events[i].Seq != want {
			return fmt.Errorf("log replayed entry %d, want %d", events[i].Seq, want)
		}
	}
	return nil
}

// park keeps an event that lies above a hole. Beyond the limits it drops the event, which is in the
// log.
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

// unpark delivers the parked events that follow the tail, and drops those below it.
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

// fill starts reading the hole above the tail from the log, unless a read is in progress.
func (t *topic) fill() {
	if t.filling {
		return
	}
	t.filling = true
	t.hub.reads.submit(t.runFill)
}

// runFill reads one page of the hole and delivers it. If one page does not close the hole, it is
// too large to be pushed to readers unasked: every live subscription then goes back to replay, at
// its own pace.
func (t *topic) runFill() {
	cfg := &t.hub.cfg
	most := max(1, cfg.QueueEvents/8)
	for {
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
		t.mu.Unlock()
		if err != nil {
			t.hub.reportError(t.channelID, fmt.Errorf("fill a hole: %w", err))
			return
		}
	}
}

// needsFill reports whether there is a hole and a live subscription that needs it filled. If not,
// it ends the filling.
func (t *topic) needsFill() bool {
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
			continue // arrived by the bus meanwhile, or was skipped when no subscription was live
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

// retryFill retries after a delay. The check that it requests detects lost history and a changed
// epoch.
func (t *topic) retryFill() {
	t.fails++
	t.checkSoon()
	time.AfterFunc(t.hub.cfg.backoff(t.fails), func() { t.hub.reads.submit(t.runFill) })
}

// demote sends every live subscription back to replay.
func (t *topic) demote() {
	for _, u := range t.live {
		u.slot = 0
		u.stream.catchUp(u)
	}
	t.hub.stats.demoted.Add(int64(len(t.live)))
	t.live = nil
	t.skip()
}
