package queue

import (
	"cmp"
	"errors"
	"math/rand/v2"
	"sync/atomic"
	"time"
)

// A worker without work looks by itself now and then: soon where hints don't come through, and less often the longer it finds
// nothing, so that a thousand idle partitions cost little. The bounds are what a lost hint may cost.
const (
	pollHinted, pollHintedMax     = time.Second, 4 * time.Second
	pollUnhinted, pollUnhintedMax = 100 * time.Millisecond, time.Second
)

// worker serves one partition that a session leases: one goroutine, run, reads; the session's Next takes what was read; and
// flush settles. All that it says is said under one epoch. It ends when the lease is handed back or lost, and is not used again.
//
// It first claims what is pending in the group, in order, and then fetches. Whenever it does not know what the store did it claims
// from the start again, passing over what it has: so nothing is stranded, and nothing comes out of order. A fetch that the store
// does long after it was given up is seen by the mark: see GroupStore.Fetch.
type worker struct {
	s     *Session
	lease Lease
	// wake holds a token when run may have something to do. hinted is set by hints, without the session's lock.
	wake   chan struct{}
	hinted atomic.Bool

	// The session's mu guards what follows.

	// until is the end of the lease as we may count on it: it is counted from before the call that renewed it, and a tenth shorter.
	until time.Time
	// stopping is set while the partition is to be handed back, freeing once that is under way, lost once the lease is not ours.
	stopping, freeing, lost bool

	// scanning is set while pending entries are claimed: those of place, after an id. scan numbers the scans: what a call read
	// that began before the present one is not to be used, for the scan gives it again, and in order.
	scanning bool
	scan     int
	place    Place
	after    EntryID
	// began is the scan when the call under way was decided on.
	began int
	// unsure is set from a fetch whose outcome is not known to the end of the scan that follows.
	unsure bool
	// mark counts what was ever fetched, as far as we know. It is run's alone.
	mark int64
	// want says that there may be something to fetch; else it is looked for at pollAt. polls counts the vain ones.
	want   bool
	pollAt time.Time
	polls  int
	// retryAt is when the store is asked again after failures in a row.
	retryAt  time.Time
	failures int

	// turn is how many messages may be read now, and expected how many bytes they may have; typical is a message's size.
	inLine   bool
	turn     int
	expected int64
	typical  int64
	// reading is set during a call that reads, which uses turn; reads counts them. ended are the entries whose settlement came to its
	// end during a claim: that may have read them before, and they are not to be given again. It is nil at other times.
	reading bool
	reads   int
	ended   map[entryKey]struct{}

	// buffer is what waits to be sent, in order.
	buffer []Entry
	// inFlight is what was sent, and what is being settled without having been sent.
	inFlight map[entryKey]*delivery
	// ops are settlements that wait for flush, running those in its hands; flushing is set while it runs.
	ops, running []*settlement
	flushing     bool
	// given remembers what was given back, by serial; see remember.
	given memory
}

func newWorker(s *Session, lease Lease, until time.Time) *worker {
	return &worker{
		s: s, lease: lease, until: until, wake: make(chan struct{}, 1), scanning: true, want: true, typical: expectedSize,
		inFlight: map[entryKey]*delivery{},
	}
}

// poke wakes run.
func (w *worker) poke() {
	select {
	case w.wake <- struct{}{}:
	default:
	}
}

// hint says that there is something to fetch. It takes no lock.
func (w *worker) hint() {
	if w.hinted.CompareAndSwap(false, true) {
		w.poke()
	}
}

// step is what run does next.
type step uint8

const (
	stepWait step = iota
	stepClaim
	stepFetch
	stepFree
	stepQuit
)

// run serves the partition until its lease is handed back or lost.
func (w *worker) run() {
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	for {
		step, wait := w.next(time.Now())
		switch step {
		case stepClaim:
			w.claim()
		case stepFetch:
			w.fetch()
		case stepFree:
			w.free()
			return
		case stepQuit:
			return
		case stepWait:
			timer.Reset(wait)
			select {
			case <-w.wake:
			case <-timer.C:
			}
		}
	}
}

// next decides what to do, and how long to wait if that is nothing.
func (w *worker) next(now time.Time) (step, time.Duration) {
	s := w.s
	s.mu.Lock()
	defer s.mu.Unlock()
	hinted := w.hinted.Swap(false)
	w.want = w.want || hinted
	switch {
	case w.lost:
		return stepQuit, 0
	case s.core.Ended():
		// What was sent stays pending for the next owner; what was not is released. All that is asked for is settled first.
		w.giveUpBuffer()
		if w.flushing && s.ctx.Err() == nil {
			return stepWait, time.Hour
		}
		w.freeing = true
		return stepFree, 0
	case w.stopping:
		switch {
		case len(w.inFlight) > 0 || w.flushing:
			return stepWait, time.Hour
		case w.unsure && now.Before(w.until):
			// What that fetch may have read was sent to nobody, and is released before the next owner counts it as lost.
			if now.Before(w.retryAt) {
				return stepWait, w.retryAt.Sub(now)
			}
			return w.read(stepClaim), 0
		}
		w.freeing = true
		return stepFree, 0
	case !now.Before(w.until) || s.group.paused() || w.releasing():
		// A renewal, a change of the topic and the end of a settlement wake it.
		return stepWait, time.Hour
	case now.Before(w.retryAt):
		return stepWait, w.retryAt.Sub(now)
	}
	if !w.scanning && !w.want && now.Before(w.pollAt) {
		return stepWait, w.pollAt.Sub(now)
	}
	if w.turn == 0 {
		if s.ask(w); w.turn == 0 {
			return stepWait, time.Hour
		}
	}
	if w.scanning {
		return w.read(stepClaim), 0
	}
	w.want = false
	return w.read(stepFetch), 0
}

// read notes that a call that reads is decided on.
func (w *worker) read(what step) step {
	w.reading, w.began = true, w.scan
	w.reads++
	return what
}

// releasing reports whether something is being released: until then a claim would give what is on its way out.
func (w *worker) releasing() bool {
	for _, ops := range [][]*settlement{w.ops, w.running} {
		for _, op := range ops {
			if op.Verdict == Release {
				return true
			}
		}
	}
	return false
}

// fetch reads new entries.
func (w *worker) fetch() {
	ctx, cancel := w.s.hub.call(w.s.ctx)
	defer cancel()
	w.s.mu.Lock()
	n, scan := w.turn, w.began
	w.s.mu.Unlock()
	entries, looked, err := w.s.hub.cfg.Store.Fetch(ctx, w.s.group.topic.Load(), w.lease, w.mark, n)
	w.s.mu.Lock()
	defer w.s.mu.Unlock()
	w.reading = false
	if w.failed(err, "fetch") {
		if errors.Is(err, ErrBehind) || !certain(err) {
			w.unsure = true
			w.rescan()
		}
		w.want = true
		w.s.endTurn(w, nil)
		return
	}
	w.mark += int64(looked)
	if looked > 0 {
		w.polls = 0
	}
	// With fewer than it asked for it has all that there was; of what came since a hint tells, or the poll finds it.
	if w.want = w.want || looked >= n; !w.want {
		w.schedulePoll(time.Now())
	}
	if w.scan != scan && !w.stopping && !w.s.core.Ended() {
		// Something older was released meanwhile. What was fetched is pending now, and the scan gives it after that.
		entries = nil
	}
	w.take(entries)
}

// claim reads on in what is pending.
func (w *worker) claim() {
	w.s.mu.Lock()
	place, after, n, scan := w.place, w.after, cmp.Or(w.turn, frameTurn), w.scan // a worker that stops needs no turn
	w.ended = map[entryKey]struct{}{}
	w.s.mu.Unlock()
	ctx, cancel := w.s.hub.call(w.s.ctx)
	defer cancel()
	claimed, err := w.s.hub.cfg.Store.Claim(ctx, w.lease, place, after, n)
	w.s.mu.Lock()
	defer w.s.mu.Unlock()
	w.reading = false
	defer func() { w.ended = nil }()
	if w.failed(err, "claim") {
		// Whatever it did, the same page gives it again.
		w.s.endTurn(w, nil)
		return
	}
	if place == Main && after.IsZero() {
		w.mark = claimed.Mark
	}
	entries := claimed.Entries
	switch {
	case w.scan != scan:
		// What was read now is read again.
		if !w.stopping && !w.s.core.Ended() {
			entries = nil
		}
	case claimed.More:
		w.after = claimed.Next
	case place == Main:
		w.place, w.after = Retries, EntryID{}
	default:
		w.scanning, w.unsure = false, false
	}
	w.take(entries)
}

// failed looks at the error of a call that read, and reports whether there was one.
func (w *worker) failed(err error, what string) bool {
	if err == nil {
		w.failures = 0
		return false
	}
	switch {
	case errors.Is(err, ErrFenced):
		w.lose()
	case errors.Is(err, ErrNoTopic), errors.Is(err, ErrNoGroup):
		w.s.group.suspect()
	default:
		w.s.hub.trouble(what, err)
	}
	w.failures++
	w.retryAt = time.Now().Add(backoff(w.failures))
	return true
}

// take puts what was read into the buffer, but for what is here already, what has no attempt left and what can't be read: those
// become dead letters.
func (w *worker) take(entries []Entry) {
	if w.lost {
		w.s.endTurn(w, nil)
		return
	}
	var (
		topic = w.s.group.topic.Load()
		fresh = entries[:0]
		here  map[entryKey]struct{}
	)
	for i := range w.buffer {
		if here == nil {
			here = make(map[entryKey]struct{}, len(w.buffer))
		}
		here[w.buffer[i].key()] = struct{}{}
	}
	for i := range entries {
		e := entries[i]
		_, waits := here[e.key()]
		_, over := w.ended[e.key()]
		if waits || over || w.inFlight[e.key()] != nil {
			continue
		}
		if e.Unreadable != nil {
			w.s.hub.setAside(w.lease.Ref, &e)
			w.settleUnsent(e, Settlement{Verdict: Dead, Unsent: true, Reason: unreadableReason})
			continue
		}
		if most := topic.Retry.MaxAttempts; most > 0 && e.Attempt > most {
			w.settleUnsent(e, Settlement{Verdict: Dead, Unsent: true, Reason: lostReason(most)})
			continue
		}
		fresh = append(fresh, e)
	}
	w.s.endTurn(w, fresh)
	w.buffer = append(w.buffer, fresh...)
	if w.stopping || w.s.core.Ended() {
		w.giveUpBuffer()
		return
	}
	if len(fresh) > 0 {
		w.s.core.Wake()
	}
}

// giveUpBuffer releases what waits to be sent, so that it does not count as an attempt.
func (w *worker) giveUpBuffer() {
	w.s.withdraw(w)
	entries := w.buffer
	w.buffer = nil
	w.s.unread(entries)
	for i := range entries {
		w.settleUnsent(entries[i], Settlement{Verdict: Release})
	}
}

// rescan has pending entries claimed from the start again.
func (w *worker) rescan() {
	w.scan++
	w.scanning, w.place, w.after = true, Main, EntryID{}
	w.poke()
}

// stop begins to hand the partition back: nothing more is read, and once what is in flight has ended the lease is freed.
func (w *worker) stop() {
	if w.stopping || w.lost || w.freeing {
		return
	}
	w.stopping = true
	w.giveUpBuffer()
	w.poke()
}

// resume takes stop back, and reports whether it still could.
func (w *worker) resume() bool {
	if w.lost || w.freeing {
		return false
	}
	w.stopping = false
	// What stop released is pending and nobody's.
	w.rescan()
	return true
}

// free hands the lease back. Where that fails until the lease must be over, it has ended by itself.
func (w *worker) free() {
	s := w.s
	for failures := 1; ; failures++ {
		ctx, cancel := s.hub.call(s.ctx)
		err := s.hub.cfg.Store.Free(ctx, w.lease)
		cancel()
		s.mu.Lock()
		over := err == nil || errors.Is(err, ErrFenced) || s.ctx.Err() != nil || w.lost || !time.Now().Before(w.until)
		if over {
			w.lost = true
			w.drop()
		}
		s.mu.Unlock()
		if over {
			return
		}
		s.hub.trouble("free", err)
		select {
		case <-s.ctx.Done():
		case <-time.After(backoff(failures)):
		}
	}
}

// lose ends a worker whose lease is another's. What it had is forgotten: the new owner has it.
func (w *worker) lose() {
	if w.lost {
		return
	}
	w.lost = true
	w.drop()
	w.poke()
}

// drop takes the worker off the session's books.
func (w *worker) drop() {
	s := w.s
	s.withdraw(w)
	entries := w.buffer
	w.buffer = nil
	gone := 0
	for _, d := range w.inFlight {
		if d.serial != 0 {
			gone++
		}
	}
	clear(w.inFlight)
	s.inFlight -= gone
	s.hub.metrics.InFlight(w.lease.Topic, w.lease.Partition, w.lease.Group, -gone)
	s.unread(entries)
	ops := w.ops
	w.ops = nil
	for _, op := range ops {
		op.end(leaseLost())
	}
	if s.workers[w.lease.Partition] == w {
		delete(s.workers, w.lease.Partition)
		s.hub.metrics.Owned(w.lease.Topic, w.lease.Group, -1)
		s.assigned = true
		s.drained()
		s.core.Wake()
	}
	s.group.dropped(w)
}

// live reports whether what the worker holds may be sent.
func (w *worker) live(now time.Time) bool {
	return !w.lost && !w.stopping && now.Before(w.until)
}

// renewed moves the lease's end; it was renewed, or acquired, by a call that began at sent.
func (w *worker) renewed(sent time.Time) {
	if until := w.s.hub.until(sent); until.After(w.until) {
		was := w.until
		w.until = until
		if now := time.Now(); !now.Before(was) {
			w.poke()
			w.s.core.Wake()
		}
	}
}

// schedulePoll sets when to look again, having found nothing.
func (w *worker) schedulePoll(now time.Time) {
	wait, most := pollUnhinted, pollUnhintedMax
	if w.s.group.hinted() {
		wait, most = pollHinted, pollHintedMax
	}
	wait = min(wait<<min(w.polls, 8), most)
	w.polls++
	w.pollAt = now.Add(wait*3/4 + rand.N(wait/2))
}
