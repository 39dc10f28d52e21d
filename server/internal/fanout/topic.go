package fanout

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/parleyhq/parley/server/internal/message"
)

// errRetired says that a topic was closed while something still worked on it.
var errRetired = errors.New("topic is retired")

// topic is one channel on this node.
type topic struct {
	hub       *Hub
	channelID string
	// connecting holds a token while somebody subscribes to the bus.
	connecting chan struct{}

	// dueAt and slot belong to the schedule, under its lock.
	dueAt time.Time
	slot  int

	// mu guards what follows.
	mu     sync.Mutex
	closed bool
	// cancel ends the bus subscription; nil while there is none.
	cancel func()
	// subs are the subscriptions, live or not; emptyAt is when the last one left.
	subs    []*subscription
	emptyAt time.Time

	// epoch is the log's; empty until the first State. tail is the last entry that was passed on, or that nobody live
	// was there to be passed; everything up to it is settled. seen is the last entry known to exist: above the tail
	// there is a hole.
	epoch      string
	tail, seen int64
	// asked numbers the reads of State, and those up to settled began before the current epoch was told: if one of them
	// tells another epoch it is old, not newer.
	asked, settled int64
	// strayEpoch and straySeq are the last event of an epoch that is not the topic's (yet).
	strayEpoch string
	straySeq   int64
	// parked are the events above a hole, by seq, and their size.
	parked      map[int64]message.Event
	parkedBytes int
	// live are the subscriptions that events are pushed to.
	live []*subscription
	// filling is set while a read for the hole is under way or waits to be tried again; fails counts its failures.
	filling bool
	fails   int
	checks  checks
	recent  recent
}

// connect subscribes to the bus, unless that is done.
func (t *topic) connect(ctx context.Context) error {
	select {
	case t.connecting <- struct{}{}:
	case <-ctx.Done():
		return ctx.Err()
	}
	defer func() { <-t.connecting }()
	t.mu.Lock()
	closed, done := t.closed, t.cancel != nil
	t.mu.Unlock()
	switch {
	case closed:
		return errRetired
	case done:
		return nil
	}
	cancel, err := t.hub.bus.Subscribe(t.channelID, t.arrive, t.typing)
	if err != nil {
		return fmt.Errorf("subscribe to bus: %w", err)
	}
	t.mu.Lock()
	closed = t.closed
	if !closed {
		t.cancel = cancel
		t.restartChecks(time.Now())
	}
	t.mu.Unlock()
	if closed {
		cancel()
		return errRetired
	}
	return nil
}

// close ends the bus subscription of a topic that is off the hub's books.
func (t *topic) close() {
	t.mu.Lock()
	t.closed = true
	cancel := t.cancel
	t.cancel = nil
	t.dropRecent()
	t.mu.Unlock()
	if cancel != nil {
		cancel()
	}
	t.hub.stats.topics.Add(-1)
}

// arrive takes an event from the bus.
func (t *topic) arrive(e message.Event) {
	t.mu.Lock()
	defer t.mu.Unlock()
	switch {
	case t.closed:
	case e.Epoch != t.epoch:
		t.stray(&e)
	case e.Seq <= t.tail:
		// A repeat.
	case len(t.live) == 0:
		t.tail = e.Seq
		t.seen = max(t.seen, e.Seq)
		t.skip()
	case e.Seq == t.tail+1:
		t.deliver(&e)
		t.unpark()
	default:
		t.seen = max(t.seen, e.Seq)
		t.park(e)
		t.fill()
	}
}

// stray remembers an event of another epoch than the topic's and has the log asked which one holds.
func (t *topic) stray(e *message.Event) {
	if t.strayEpoch != e.Epoch {
		t.strayEpoch, t.straySeq = e.Epoch, 0
	}
	t.straySeq = max(t.straySeq, e.Seq)
	if t.epoch != "" {
		t.checkSoon()
	}
}

// deliver passes on the event after the tail.
func (t *topic) deliver(e *message.Event) {
	t.tail = e.Seq
	t.seen = max(t.seen, e.Seq)
	var p *piece
	n := 0
	for i := 0; i < len(t.live); {
		u := t.live[i]
		if e.Seq <= u.after {
			i++ // its replay was ahead of the topic
			continue
		}
		if p == nil {
			p = &piece{data: t.hub.enc.Event(e), seq: e.Seq, epoch: e.Epoch, entries: 1}
		}
		u.after = e.Seq
		if !u.session.push(u, p) {
			t.unlive(u) // puts another in its place
			continue
		}
		i++
		n++
	}
	t.noteRecent(e, func() []byte {
		if p == nil {
			return t.hub.enc.Event(e)
		}
		return p.data
	})
	if n == 0 {
		return
	}
	t.hub.lag.Record(t.hub.ctx, time.Since(e.Time).Seconds())
	if t.hub.cfg.OnDeliver != nil {
		t.hub.cfg.OnDeliver(e, n)
	}
}

// readState asks the log where it stands and gives the answer to use under the topic's lock, when the topic is of the
// same epoch.
func (t *topic) readState(use func(message.State)) error {
	for range 3 {
		t.mu.Lock()
		t.asked++
		ticket := t.asked
		t.mu.Unlock()
		st, err := t.hub.state(t.channelID)
		if err != nil {
			return fmt.Errorf("read state: %w", err)
		}
		t.mu.Lock()
		ok := t.observe(st, ticket)
		if ok {
			use(st)
		}
		t.mu.Unlock()
		if ok {
			return nil
		}
	}
	return errors.New("the log's epoch changes all the time")
}

// observe takes note of a State; ticket is the number of its read. It reports false for an answer from before the
// topic's epoch.
func (t *topic) observe(st message.State, ticket int64) bool {
	if st.Epoch != t.epoch {
		if ticket <= t.settled {
			return false
		}
		first := t.epoch == ""
		t.settled = t.asked
		t.epoch = st.Epoch
		t.tail, t.seen = st.Head, st.Head
		t.dropParked()
		if t.strayEpoch == st.Epoch {
			t.seen = max(t.seen, t.straySeq)
		}
		t.strayEpoch, t.straySeq = "", 0
		if !first {
			t.gap(GapEpochChanged)
			t.restartChecks(time.Now())
		}
	} else if gone := st.Oldest - 1; gone > t.tail {
		t.tail = gone
		t.seen = max(t.seen, gone)
		t.gap(GapHistoryGone)
		t.unpark()
	}
	if len(t.live) == 0 {
		t.seen = max(t.seen, st.Head)
		t.skip()
	} else if t.seen > t.tail {
		t.fill()
	}
	return true
}

// gap tells every live subscription that its events go on after the tail.
func (t *topic) gap(reason GapReason) {
	for _, u := range slices.Clone(t.live) {
		if reason == GapHistoryGone && u.after >= t.tail {
			continue
		}
		data := t.hub.enc.Gap(t.channelID, u.after, t.tail, t.epoch, reason)
		u.after, u.epoch = t.tail, t.epoch
		if !u.session.push(u, &piece{data: data, seq: t.tail, epoch: t.epoch}) {
			t.unlive(u)
		}
	}
}

// skip settles everything that is known to exist: nobody live is there to be passed it, and who is in replay reads it.
func (t *topic) skip() {
	t.tail = t.seen
	t.dropParked()
}

// golive makes u one that is pushed to. It is level with the tail.
func (t *topic) golive(u *subscription) {
	t.live = append(t.live, u)
	u.slot = len(t.live)
}

// unlive takes u from those pushed to, if it is one.
func (t *topic) unlive(u *subscription) {
	if u.slot == 0 {
		return
	}
	last := len(t.live) - 1
	t.live[u.slot-1] = t.live[last]
	t.live[u.slot-1].slot = u.slot
	t.live[last] = nil
	t.live = t.live[:last]
	u.slot = 0
	if last == 0 {
		t.skip()
	}
}

// detach ends a subscription; nothing is pushed to it from here on.
func (t *topic) detach(u *subscription) {
	t.mu.Lock()
	defer t.mu.Unlock()
	u.gone = true
	t.unlive(u)
	last := len(t.subs) - 1
	t.subs[u.index] = t.subs[last]
	t.subs[u.index].index = u.index
	t.subs[last] = nil
	if t.subs = t.subs[:last]; last == 0 {
		t.subs = nil
		t.emptyAt = time.Now()
		t.hub.schedule.set(t, t.emptyAt.Add(t.hub.cfg.Linger))
	}
	t.hub.stats.subscribers.Add(-1)
}
