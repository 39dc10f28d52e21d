package fanout

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/parleyhq/parley/server/internal/ident"
	"github.com/parleyhq/parley/server/internal/message"
)

// errRetired is the error of work on a topic that was closed meanwhile.
var errRetired = errors.New("topic is retired")

// topic is one channel on this node. It orders the channel's events for all local subscriptions.
type topic struct {
	hub       *Hub
	channelID string
	// connecting holds a token while a goroutine subscribes to the bus.
	connecting chan struct{}

	// dueAt is when the schedule wakes the topic. slot is its index in the schedule's heap plus one, 0
	// if it is not scheduled. Both are guarded by schedule.mu.
	dueAt time.Time
	slot  int

	// mu guards the fields below.
	mu     sync.Mutex
	closed bool
	// cancel ends the bus subscription; nil if there is none.
	cancel func()
	// subs holds all subscriptions, live or not. emptyAt is when the last of them left.
	subs    []*subscription
	emptyAt time.Time

	// epoch is the epoch of the log; empty until the first State. tail is the seq of the last entry
	// that was delivered, or that needed no delivery because no subscription was live. seen is the seq
	// of the last entry known to exist. If it is above the tail, the entries in between are missing.
	// shown is the last change that a message shows that was read from the log: the bus's events up to
	// it may have older copies of the message, so these entries are read from the log too.
	epoch             string
	tail, seen, shown int64
	// rev is the highest access revision of the log's entries that are known to exist; noRev if there
	// are none. Every live subscription is admitted at it.
	rev int64
	// lastTicket numbers the reads of State. Reads numbered up to staleTicket began before the
	// current epoch was known: if one of them returns another epoch, its answer is older, not
	// newer.
	lastTicket, staleTicket int64
	// strayEpoch, straySeq and strayRev describe the last event of an epoch that is not the topic's
	// (yet).
	strayEpoch         string
	straySeq, strayRev int64
	// parked holds the events that arrived before their predecessors, by seq. parkedBytes is the size
	// of their messages.
	parked      map[int64]parkedEvent
	parkedBytes int
	// live holds the subscriptions that events are pushed to.
	live []*subscription
	// filling is set while a read of missing entries is in progress or waits to be retried. fails
	// counts the failed reads in a row.
	filling bool
	fails   int
	checks  checks
	recent  recent
	texts   openTexts
}

// connect subscribes the topic to the bus, unless it is subscribed already. It waits for a
// concurrent call, until ctx ends. It returns errRetired if the topic is closed.
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
	cancelDeltas, err := t.listenDeltas()
	if err != nil {
		cancel()
		return err
	}
	t.mu.Lock()
	closed = t.closed
	if !closed {
		t.cancel, t.texts.cancel = cancel, cancelDeltas
		t.restartChecks(time.Now())
	}
	t.mu.Unlock()
	if closed {
		endAll(cancel, cancelDeltas)
		return errRetired
	}
	return nil
}

// listenDeltas subscribes to the deltas of a session. For a channel, which has none, cancel is nil.
func (t *topic) listenDeltas() (cancel func(), err error) {
	if !ident.IsSession(t.channelID) {
		return nil, nil //nolint:nilnil // see the comment
	}
	cancel, err = t.hub.bus.SubscribeDeltas(t.channelID, t.delta)
	if err != nil {
		return nil, fmt.Errorf("subscribe to deltas: %w", err)
	}
	return cancel, nil
}

// endAll calls the functions that are not nil.
func endAll(cancels ...func()) {
	for _, cancel := range cancels {
		if cancel != nil {
			cancel()
		}
	}
}

// close ends the bus subscription of a topic that was removed from the hub.
func (t *topic) close() {
	t.mu.Lock()
	t.closed = true
	cancel, cancelDeltas := t.cancel, t.texts.cancel
	t.cancel, t.texts.cancel = nil, nil
	t.dropRecent()
	t.dropTexts()
	t.mu.Unlock()
	endAll(cancel, cancelDeltas)
	t.hub.stats.topics.Add(-1)
}

// arrive processes an event from the bus.
func (t *topic) arrive(e message.Event) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if !t.closed && e.Epoch == t.epoch {
		t.requireRev(e.Rev)
		t.noteOpen(&e)
	}
	switch {
	case t.closed:
	case e.Epoch != t.epoch:
		t.stray(&e)
	case e.Seq <= t.tail:
		// A repeat.
	case len(t.live) == 0:
		if e.Seq > t.tail+1 {
			t.dropTexts()
		}
		t.tail = e.Seq
		t.seen = max(t.seen, e.Seq)
		t.skip()
	case e.Seq == t.tail+1 && e.Seq > t.shown:
		t.deliver(&e)
		t.unpark()
	default:
		t.seen = max(t.seen, e.Seq)
		t.park(e)
		t.fill()
	}
}

// stray drops an event of another epoch than the topic's and records its epoch and the highest seq.
// If the topic has an epoch, it requests a check, which reads the current epoch from the log.
func (t *topic) stray(e *message.Event) {
	if t.strayEpoch != e.Epoch {
		t.strayEpoch, t.straySeq, t.strayRev = e.Epoch, 0, noRev
	}
	t.straySeq, t.strayRev = max(t.straySeq, e.Seq), max(t.strayRev, e.Rev)
	if t.epoch != "" {
		t.checkSoon()
	}
}

// deliver pushes e, which covers the entry after the tail, to the live subscriptions, and moves the
// tail to its end. The caller has called requireRev with its revision.
func (t *topic) deliver(e *message.Event) {
	t.tail = e.Seq
	t.seen = max(t.seen, e.Seq)
	t.noteOpen(e)
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
		if !u.stream.push(u, p) {
			t.removeLive(u) // moves another to index i
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
	if o := t.texts.byID[e.Message.MsgID]; o != nil {
		t.showText(o) // it arrived before its message
	}
	if n == 0 {
		return
	}
	if !e.Time.IsZero() {
		t.hub.lag.Record(t.hub.ctx, time.Since(e.Time).Seconds())
	}
	if t.hub.cfg.OnDeliver != nil {
		t.hub.cfg.OnDeliver(e, n)
	}
}

// readState reads the log's state and calls use with it under the topic's lock, while the topic has
// the epoch of that state.
func (t *topic) readState(use func(message.State)) error {
	for range 3 {
		t.mu.Lock()
		t.lastTicket++
		ticket := t.lastTicket
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
	return errors.New("log epoch changed during every read")
}

// observe applies a State to the topic. ticket is the number of its read. It returns false if the
// state is from before the topic's epoch.
func (t *topic) observe(st message.State, ticket int64) bool {
	if st.Epoch != t.epoch {
		if ticket <= t.staleTicket {
			return false
		}
		first := t.epoch == ""
		t.staleTicket = t.lastTicket
		t.epoch, t.rev = st.Epoch, noRev
		t.tail, t.seen, t.shown = st.Head, st.Head, 0
		t.dropParked()
		t.dropTexts()
		if t.strayEpoch == st.Epoch {
			t.seen = max(t.seen, t.straySeq)
			t.requireRev(t.strayRev)
		}
		t.strayEpoch, t.straySeq, t.strayRev = "", 0, noRev
		if !first {
			t.dropAdmissions()
			t.gap(GapEpochChanged)
			t.restartChecks(time.Now())
		}
	} else if gone := st.Oldest - 1; gone > t.tail {
		t.tail = gone
		t.seen = max(t.seen, gone)
		t.gap(GapHistoryGone)
		t.unpark()
	}
	if st.Head > 0 {
		t.requireRev(st.Rev)
	}
	if t.recent.after+1 < st.Oldest {
		t.dropRecent() // it begins with events that have expired
	}
	if len(t.live) == 0 {
		t.seen = max(t.seen, st.Head)
		t.skip()
	} else if t.seen > t.tail {
		t.fill()
	}
	return true
}

// gap queues a Gap to the live subscriptions. Their events continue after the tail. If the reason
// is GapHistoryGone, subscriptions that are at the tail already get none.
func (t *topic) gap(reason GapReason) {
	for _, u := range slices.Clone(t.live) {
		if reason == GapHistoryGone && u.after >= t.tail {
			continue
		}
		data := t.hub.enc.Gap(t.channelID, u.after, t.tail, t.epoch, reason)
		u.after, u.epoch = t.tail, t.epoch
		if !u.stream.push(u, &piece{data: data, seq: t.tail, epoch: t.epoch}) {
			t.removeLive(u)
		}
	}
}

// skip moves the tail to the last entry known to exist, without a delivery: no subscription is
// live, and those in replay read the entries from the log.
func (t *topic) skip() {
	if t.seen > t.tail {
		t.dropTexts()
	}
	t.tail = t.seen
	t.dropParked()
}

// goLive makes u, which has reached the tail, a live subscription: events are pushed to it.
func (t *topic) goLive(u *subscription) {
	t.live = append(t.live, u)
	u.slot = len(t.live)
}

// removeLive removes u from the live subscriptions, if it is one.
func (t *topic) removeLive(u *subscription) {
	if u.slot == 0 {
		return
	}
	last := len(t.live) - 1
	t.live[u.slot-1] = t.live[last]
	t.live[u.slot-1].slot = u.slot
	t.live[last] = nil
	t.live = t.live[:last]
	u.slot = 0
	u.stream.unfollow(func(c *textCursor) bool { return c.sub == u })
	if last == 0 {
		t.skip()
	}
}

// detach ends a subscription. Nothing is pushed to it afterwards.
func (t *topic) detach(u *subscription) {
	t.mu.Lock()
	defer t.mu.Unlock()
	u.detached = true
	t.removeLive(u)
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
