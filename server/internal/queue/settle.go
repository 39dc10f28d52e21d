package queue

import (
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"time"

	"github.com/parleyhq/parley/server/internal/fault"
)

// maxSettle is the most that one call of the store settles.
const maxSettle = 512

// maxGiven is how many of the deliveries that were given back a worker remembers.
const maxGiven = 64 << 10

// settlement is the end of a delivery, on its way to the store. It goes on until the store has answered or the lease is lost,
// whoever still waits for it: what was once asked for may have been done, so nothing else may be done instead.
type settlement struct {
	Settlement

	delivery *delivery
	// waiters are told what becomes of it. The session's mu guards them.
	waiters []waiter
	// tellBy is when those who wait are told that the outcome is not known; zero until something failed. unsure is set once an
	// attempt may have done it.
	tellBy time.Time
	unsure bool
}

// waiter is one item of a call that waits. other says that it asked for another verdict than the settlement's.
type waiter struct {
	call  *pendingCall
	item  int
	other bool
}

// pendingCall gathers the results of one call's items. The session's mu guards it.
type pendingCall struct {
	errs []error
	told []bool
	// left counts the items without a result; done is closed when it gets to 0.
	left int
	done chan struct{}
}

func newPendingCall(items int) *pendingCall {
	return &pendingCall{errs: make([]error, items), told: make([]bool, items), left: items, done: make(chan struct{})}
}

func (p *pendingCall) set(item int, err error) {
	p.errs[item], p.told[item] = err, true
	if p.left--; p.left == 0 {
		close(p.done)
	}
}

// end tells those who wait.
func (op *settlement) end(err error) {
	for _, r := range op.waiters {
		if err == nil && r.other {
			r.call.set(r.item, alreadySettled())
		} else {
			r.call.set(r.item, err)
		}
	}
	op.waiters = nil
}

// class tells what a repeat must ask for to be taken for one.
func (v Verdict) class() class {
	switch v {
	case Ack:
		return acked
	case Release:
		return released
	default:
		return nacked
	}
}

// class is how a delivery was settled, as far as repeats of the same call go.
type class uint8

const (
	acked class = iota
	nacked
	released
)

// memory remembers how deliveries were settled, by serial. What it does not know was acked. It is bounded: of very many deliveries
// given back under one epoch the oldest count as acked, so that a repeat of such a nack is told of a settlement otherwise.
type memory struct {
	class map[uint64]class
	order []uint64
}

func (m *memory) add(serial uint64, c class) {
	if c == acked {
		return
	}
	if m.class == nil {
		m.class = map[uint64]class{}
	}
	if len(m.order) >= maxGiven {
		delete(m.class, m.order[0])
		m.order = m.order[1:]
	}
	m.class[serial] = c
	m.order = append(m.order, serial)
}

// settle has a delivery settled. The session's mu is held.
func (w *worker) settle(d *delivery, what Settlement) *settlement {
	what.Entry = d.entry
	op := &settlement{Settlement: what, delivery: d}
	d.op = op
	w.ops = append(w.ops, op)
	if !w.flushing {
		w.flushing = true
		w.s.serving.Go(w.flush)
	}
	return op
}

// settleUnsent settles an entry that will not be sent. The session's mu is held.
func (w *worker) settleUnsent(e Entry, what Settlement) {
	e.Payload, e.Headers = nil, nil
	d := &delivery{entry: e}
	w.inFlight[e.key()] = d
	w.settle(d, what)
}

// flush settles what has gathered, one call at a time: whatever comes meanwhile goes with the next. It runs while there is any.
func (w *worker) flush() {
	s := w.s
	for failures := 0; ; {
		s.mu.Lock()
		if len(w.running) == 0 {
			n := min(len(w.ops), maxSettle)
			w.running, w.ops = w.ops[:n:n], w.ops[n:]
		}
		if len(w.running) == 0 {
			w.ops, w.running, w.flushing = nil, nil, false
			w.poke()
			s.mu.Unlock()
			return
		}
		batch := make([]Settlement, len(w.running))
		for i, op := range w.running {
			batch[i] = op.Settlement
		}
		s.mu.Unlock()

		ctx, cancel := s.hub.call(s.ctx)
		began := time.Now()
		err := s.hub.cfg.Store.Settle(ctx, s.group.topic.Load(), w.lease, batch)
		cancel()
		s.hub.metrics.AckTook(w.lease.Topic, w.lease.Group, time.Since(began))
		if w.settled(err) {
			failures = 0
			continue
		}
		s.hub.trouble("settle", err)
		failures++
		select {
		case <-s.ctx.Done():
		case <-time.After(backoff(failures)):
		}
	}
}

// settled looks at the answer to what is running, and reports whether that is over.
func (w *worker) settled(err error) bool {
	s := w.s
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case err == nil:
		w.finish()
		return true
	case errors.Is(err, ErrFenced), errors.Is(err, ErrNoTopic), errors.Is(err, ErrNoGroup):
		if !errors.Is(err, ErrFenced) {
			s.group.suspect()
		}
		for _, op := range w.running {
			if op.unsure {
				// An attempt before, whose answer was lost, may have done it.
				op.end(notTold(true, err))
			}
		}
		w.abandon(leaseLost())
		w.lose()
		return true
	}
	var (
		now  = time.Now()
		over = w.lost || s.ctx.Err() != nil
	)
	for _, op := range w.running {
		op.unsure = op.unsure || !certain(err)
		if op.tellBy.IsZero() {
			op.tellBy = w.until
		}
		if over || !now.Before(op.tellBy) {
			// Unless all is over, it goes on, and will be done.
			op.end(notTold(op.unsure || !over, err))
		}
	}
	if over {
		w.running = nil
	}
	return over
}

// finish takes what is running as done. The session's mu is held.
func (w *worker) finish() {
	var (
		s     = w.s
		now   = time.Now()
		back  []entryKey
		ended int
	)
	for _, op := range w.running {
		d := op.delivery
		if w.inFlight[d.entry.key()] == d {
			delete(w.inFlight, d.entry.key())
			if w.ended != nil && op.Verdict != Release {
				w.ended[d.entry.key()] = struct{}{}
			}
			if d.serial != 0 {
				s.inFlight--
				ended++
				w.given.add(d.serial, op.Verdict.class())
			}
		}
		if op.Verdict == Release {
			back = append(back, d.entry.key())
		}
		op.end(nil)
	}
	s.hub.metrics.InFlight(w.lease.Topic, w.lease.Partition, w.lease.Group, -ended)
	w.count(now)
	w.running = nil
	if w.lost {
		return
	}
	if len(back) > 0 && !w.stopping && !s.core.Ended() {
		w.again(back)
	}
	// In strict order the end of one message lets the next of its key out.
	if s.group.topic.Load().StrictOrder {
		w.want = true
	}
	w.poke()
	s.serve()
	s.core.Wake()
}

// again has what was released claimed anew, in its place: what waits in the buffer, and would overtake it, is read again too. Of all
// else that is pending only what lies behind is read, to be passed over.
func (w *worker) again(released []entryKey) {
	entries := w.buffer
	w.buffer = nil
	w.s.unread(entries)
	if w.reading && !w.scanning {
		// What this fetch gives is not taken, wherever it lies.
		w.rescan()
		return
	}
	low := slices.MinFunc(released, entryKey.compare)
	for i := range entries {
		if key := entries[i].key(); key.compare(low) < 0 {
			low = key
		}
	}
	if before := (entryKey{low.place, low.id.prev()}); !w.scanning || before.compare(entryKey{w.place, w.after}) < 0 {
		w.place, w.after = before.place, before.id
	}
	w.scan++
	w.scanning = true
	w.poke()
}

// abandon gives up what is running. The session's mu is held.
func (w *worker) abandon(err error) {
	for _, op := range w.running {
		op.end(err)
	}
	w.running = nil
}

// count tells the metrics of what is running, which is done. The session's mu is held.
func (w *worker) count(now time.Time) {
	var (
		n       [Release + 1]int
		longest [Release + 1]time.Duration
	)
	for _, op := range w.running {
		n[op.Verdict]++
		if op.delivery.serial != 0 {
			longest[op.Verdict] = max(longest[op.Verdict], now.Sub(op.delivery.sentAt))
		}
	}
	for v := range n {
		w.s.hub.metrics.Settled(w.lease.Topic, w.lease.Partition, w.lease.Group, Verdict(v), n[v], longest[v])
	}
}

// unreadableReason is told by the dead letter of an entry that can't be read.
const unreadableReason = "the stored message can't be read"

// setAside logs a message that can't be read. Its dead letter, and the metric of those, count it.
func (h *Hub) setAside(ref Ref, e *Entry) {
	h.cfg.Logger.Error("a stored message can't be read and becomes a dead letter", slog.String("topic", ref.Topic),
		slog.Int("partition", ref.Partition), slog.String("entry", e.ID.String()), slog.Any("error", e.Unreadable))
}

func lostReason(attempts int) string {
	return fmt.Sprintf("the consumer was lost, and no attempt of %d is left", attempts)
}

func leaseLost() *fault.Error {
	return fault.New(fault.FailedPrecondition, fault.LeaseLost, "the stream does not hold the partition; nothing was changed")
}

func alreadySettled() *fault.Error {
	return fault.New(fault.FailedPrecondition, fault.AlreadySettled, "the delivery was settled otherwise before")
}

// notTold is the fault of a settlement that has not come to an end in time.
func notTold(unsure bool, cause error) *fault.Error {
	if unsure {
		return fault.Wrap(cause, fault.Unavailable, fault.OutcomeUnknown, "it is not known whether the delivery was settled; repeat the call")
	}
	return fault.Wrap(cause, fault.Unavailable, fault.StoreUnavailable, "the store did not answer in time, and nothing was changed")
}

// isAway reports whether the store was away, and did nothing.
func isAway(err error) bool { return fault.Is(err, fault.StoreUnavailable) }
