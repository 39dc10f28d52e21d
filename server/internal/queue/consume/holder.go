package consume

import (
	"context"
	"errors"
	"log/slog"
	"maps"
	"math/rand/v2"
	"time"

	"github.com/parleyhq/parley/server/internal/lifecycle"
	"github.com/parleyhq/parley/server/internal/queue/dispatch"
	"github.com/parleyhq/parley/server/internal/queue/qlog"
)

const (
	// callTimeout bounds one call of the store.
	callTimeout = 2 * time.Second
	// Waits after a call of the store that failed.
	firstBackoff   = 20 * time.Millisecond
	longestBackoff = time.Second
	// lookEvery is how often a holder looks for new messages without a hint.
	lookEvery = 15 * time.Second
)

// phase is the state of a holder.
//
//	loading  the lease is acquired and read     serving; ended (held by another, or an error)
//	serving  the dispatcher works               loading (the store lost writes); ended (fenced, released)
//	ended    the node does not hold the lease
type phase uint8

const (
	loading phase = iota
	serving
	ended
)

// holder holds the lease of one partition for a group and does the I/O of its dispatcher. Its fields
// and methods belong to the goroutine of its engine, but for those that say otherwise.
type holder struct {
	e     *engine
	ref   qlog.GroupRef
	phase phase
	epoch int64
	d     *dispatch.Dispatcher
	// calls are the settlements that wait for their commit.
	calls map[*pending]bool
	// counts is nil if nothing is counted.
	counts *holding
	// looking: a look for the newest position is under way.
	looking  bool
	nextLook time.Time
	// readFailures and rereadFailures count those in a row.
	readFailures, rereadFailures int
	// spare is how many messages other nodes could have.
	spare int
	// waiting are errands that came while the state was read.
	waiting []*errand
	// doubtUntil is when entries that no session reported are taken as held by nobody; zero if none
	// are in doubt. deathsUntil is until when consumers of nodes that died may report. awaited are the
	// nodes that have not reported all, and announced is when they were last asked.
	doubtUntil, deathsUntil, announced time.Time
	awaited                            map[string]bool
}

// acquire begins to acquire the lease, whose epoch was expected, and to read what the group keeps.
func (h *holder) acquire(expected int64, survivors []dispatch.Survivor) {
	h.phase, h.d = loading, nil
	h.e.run.Go(func(ctx context.Context) {
		state, chunks, rows, err := h.load(ctx, expected)
		h.e.post(func(now time.Time) { h.loaded(now, state, chunks, rows, survivors, err) })
	})
}

// load acquires the lease and reads the state. It is called without the engine's goroutine.
func (h *holder) load(ctx context.Context, expected int64) (
	state qlog.State, chunks map[int64]string, rows map[qlog.ID]qlog.Row, err error,
) {
	store := h.e.svc.cfg.Store
	once := func(fn func(ctx context.Context)) {
		call, cancel := context.WithTimeout(ctx, callTimeout)
		defer cancel()
		fn(call)
	}
	once(func(ctx context.Context) { state, err = store.Acquire(ctx, h.ref, h.e.svc.cfg.Node, expected) })
	chunks, rows = map[int64]string{}, map[qlog.ID]qlog.Row{}
	for cursor, more := uint64(0), true; err == nil && more; more = cursor != 0 {
		once(func(ctx context.Context) {
			var page map[int64]string
			page, cursor, err = store.Open(ctx, h.ref, cursor)
			maps.Copy(chunks, page)
		})
	}
	for cursor, more := uint64(0), true; err == nil && more; more = cursor != 0 {
		once(func(ctx context.Context) {
			var page map[qlog.ID]qlog.Row
			page, cursor, err = store.Rows(ctx, h.ref, cursor)
			maps.Copy(rows, page)
		})
	}
	return state, chunks, rows, err
}

// loaded begins to serve, or ends: the next look at the leases tries again.
func (h *holder) loaded(
	now time.Time, state qlog.State, chunks map[int64]string, rows map[qlog.ID]qlog.Row, survivors []dispatch.Survivor, err error,
) {
	if h.phase != loading {
		return
	}
	var d *dispatch.Dispatcher
	if err == nil {
		d, err = dispatch.New(h.e.dispatchConfig(h.ref), state, chunks, rows, now)
	}
	if err != nil {
		h.end(err)
		return
	}
	h.d, h.phase, h.epoch, h.nextLook = d, serving, state.Epoch, now.Add(h.e.lookTime())
	h.counts.hold(true)
	h.e.topic(h.ref.Topic).learn(now, h.ref.Partition, h.e.svc.cfg.Node, state.Epoch)
	d.Restore(survivors)
	d.Hint() // one that came while the state was read had nobody to take it
	for _, s := range h.e.sessions {
		for token, held := range s.held {
			if token.partition() == h.at() {
				s.uncount(held)
				d.Held(now, dispatch.Held{ID: token.ID, Gen: token.Gen, Session: s.ID, Begun: held.begun})
			}
		}
		h.attach(s)
		if s.state == Leaving {
			d.Leave(now, s.ID)
		}
	}
	for _, rs := range h.e.remotes {
		if d.Knows(rs.ID) {
			h.attachRemote(rs)
		}
	}
	h.beginDoubt(now)
	h.announce(now)
	for _, x := range h.waiting {
		h.e.route(now, x)
	}
	h.waiting = nil
	if h.e.draining {
		h.d.Release()
	}
}

func (h *holder) at() partition { return partition{h.ref.Topic, h.ref.Partition} }

// release returns a delivery to the dispatcher that its consumer never got.
func (h *holder) release(session string, token Token) {
	h.d.Settle(time.Now(), dispatch.Settlement{ID: token.ID, Gen: token.Gen, Session: session, Verdict: dispatch.Release})
	h.e.post(func(time.Time) {}) // another step
}

// step lets the dispatcher work, and does what it asks for. It returns when it is to be called again;
// zero for never.
func (h *holder) step(now time.Time) time.Time {
	if h.phase != serving {
		return time.Time{}
	}
	h.endDoubt(now)
	if !now.Before(h.nextLook) {
		h.look(now)
	}
	out := h.d.Step(now)
	h.spare = out.Spare
	h.counts.delivered(len(out.Deliveries))
	h.counts.flying(out.InFlight)
	h.e.deliver(h, out.Deliveries)
	for _, end := range out.Ended {
		h.e.lose(h.ref, end)
	}
	for _, a := range out.Settled {
		h.settled(now, a)
	}
	for _, a := range out.Held {
		h.e.heldAnswer(h.ref, a)
	}
	if out.Commit != nil {
		h.commit(out.Commit)
	}
	if out.Read.N > 0 {
		h.read(out.Read)
	}
	if len(out.Reread) > 0 {
		h.reread(out.Reread)
	}
	if out.Released {
		h.tell("")
		h.end(nil)
		return time.Time{}
	}
	return earliest(out.Tick, h.nextLook, h.nextDoubt(now))
}

// earliest returns the earliest time that is not zero.
func earliest(times ...time.Time) (first time.Time) {
	for _, t := range times {
		if !t.IsZero() && (first.IsZero() || t.Before(first)) {
			first = t
		}
	}
	return first
}

// settled answers the call that a settlement is of.
func (h *holder) settled(now time.Time, a dispatch.Answer) {
	h.counts.settled(&a)
	p, ok := a.Token.(*pending)
	if !ok {
		return
	}
	delete(h.calls, p)
	if errors.Is(a.Err, dispatch.ErrMoved) {
		h.e.again(now, p.x, errMoved, false, p.i)
		return
	}
	h.e.answer(p.x, p.i, settleError(a.Err))
}

// commit writes a commit, unchanged until its outcome is known.
func (h *holder) commit(c *qlog.Commit) {
	d := h.d
	h.e.run.Go(func(ctx context.Context) {
		for failures := 0; ; failures++ {
			call, cancel := context.WithTimeout(ctx, callTimeout)
			began := time.Now()
			answer, err := h.e.svc.cfg.Store.Commit(call, h.ref, c)
			took := time.Since(began)
			cancel()
			final := err == nil || errors.Is(err, qlog.ErrFenced) || errors.Is(err, qlog.ErrRolledBack) ||
				errors.Is(err, qlog.ErrNoTopic) || errors.Is(err, qlog.ErrNoGroup) || errors.Is(err, qlog.ErrTooLarge)
			h.e.post(func(now time.Time) {
				if err == nil {
					h.counts.committed(&c.Add, took)
				}
				if h.phase == serving && h.d == d {
					h.committed(now, c, answer, err, final)
				}
			})
			if final || pause(ctx, failures) != nil {
				return
			}
		}
	})
}

// committed takes up the answer to a commit. Deadlines stand still while commits fail.
func (h *holder) committed(now time.Time, c *qlog.Commit, answer qlog.Committed, err error, final bool) {
	switch {
	case err == nil:
		h.d.Thaw(now)
		h.d.Committed(now, answer)
		if n := c.Add.Acked + c.Add.Dead + c.Add.Cancelled + c.Add.Expired; n > 0 && h.e.svc.cfg.Dirty != nil {
			h.e.svc.cfg.Dirty(h.ref.Ref, int(n))
		}
	case !final:
		h.d.Freeze(now)
		h.e.trouble("commit", err)
	case errors.Is(err, qlog.ErrFenced), errors.Is(err, qlog.ErrTooLarge):
		h.end(err)
	default:
		h.reload()
	}
}

// reload acquires the lease again, because the store lost writes, or all that it had of the group. What
// sessions hold they keep.
func (h *holder) reload() {
	survivors, lost := h.d.Survivors(), h.epoch
	h.drop(time.Now())
	h.phase, h.d = loading, nil
	settings := h.e.topic(h.ref.Topic).settings
	h.e.run.Go(func(ctx context.Context) {
		for failures := 0; ; failures++ {
			call, cancel := context.WithTimeout(ctx, callTimeout)
			holder, epoch, err := h.e.lease(call, settings, h.ref.Partition)
			cancel()
			if err != nil && unsettled(err) && !isGone(err) && pause(ctx, failures) == nil {
				continue
			}
			h.e.post(func(time.Time) {
				switch {
				case err != nil:
					h.end(err)
				case epoch > lost: // it is another group of the name, or another holder's
					h.end(qlog.ErrFenced)
				case holder != "" && holder != h.e.svc.cfg.Node && h.e.svc.cfg.Fleet.Alive(holder):
					h.end(qlog.ErrHeld)
				default:
					h.acquire(epoch, survivors)
				}
			})
			return
		}
	})
}

// lease returns the holder of a lease and its epoch. It heals the partition if the store lost the
// group. It is called without the engine's goroutine.
func (e *engine) lease(ctx context.Context, settings *qlog.Topic, p int) (node string, epoch int64, err error) {
	ref := qlog.GroupRef{Ref: settings.Ref(p), Group: e.group}
	node, epoch, err = e.svc.cfg.Store.Lease(ctx, ref)
	if isGone(err) {
		if err = e.svc.cfg.Topics.Heal(ctx, settings, p); err == nil {
			node, epoch, err = e.svc.cfg.Store.Lease(ctx, ref)
		}
	}
	return node, epoch, err
}

// isGone reports whether the store does not have the topic or the group of a partition.
func isGone(err error) bool {
	return errors.Is(err, qlog.ErrNoGroup) || errors.Is(err, qlog.ErrNoTopic)
}

// read reads a page of the log for the dispatcher.
func (h *holder) read(r dispatch.Read) {
	d := h.d
	h.fetch(&h.readFailures, func(ctx context.Context) ([]qlog.Entry, error) {
		return h.e.svc.cfg.Store.Read(ctx, h.ref.Ref, r.After, r.N)
	}, d.ReadFailed, func(now time.Time, entries []qlog.Entry) {
		if d.Entries(now, entries) != nil {
			h.reload()
		}
	})
}

// reread reads payloads again that the dispatcher had dropped.
func (h *holder) reread(at []qlog.Pos) {
	d := h.d
	h.fetch(&h.rereadFailures, func(ctx context.Context) ([]qlog.Entry, error) {
		return h.e.svc.cfg.Store.ReadEntries(ctx, h.ref.Ref, at)
	}, d.RereadFailed, func(_ time.Time, entries []qlog.Entry) { d.Reread(entries) })
}

// fetch reads entries, and passes them on while the dispatcher serves. Failures counts those in a row:
// the more, the later the dispatcher is told of one, which then asks again.
func (h *holder) fetch(
	failures *int, read func(ctx context.Context) ([]qlog.Entry, error), failed func(), done func(now time.Time, entries []qlog.Entry),
) {
	d := h.d
	h.e.background(func(ctx context.Context) {
		entries, err := read(ctx)
		h.e.post(func(now time.Time) {
			switch {
			case h.phase != serving || h.d != d:
			case err != nil:
				h.e.trouble("read", err)
				h.e.postAfter(backoff(*failures), func(time.Time) { failed() })
				*failures++
			default:
				*failures = 0
				done(now, entries)
			}
		})
	})
}

// look asks the store for the newest position of the log, in case a hint was lost or what it was about
// was trimmed.
func (h *holder) look(now time.Time) {
	h.nextLook = now.Add(h.e.lookTime())
	if h.looking {
		return
	}
	h.looking = true
	h.e.background(func(ctx context.Context) {
		last, err := h.e.svc.cfg.Store.Last(ctx, h.ref.Ref)
		h.e.post(func(now time.Time) {
			h.looking = false
			if h.phase != serving {
				return
			}
			if err != nil {
				h.e.trouble("look", err)
				h.nextLook = now.Add(longestBackoff)
				return
			}
			h.d.Seen(last)
		})
	})
}

// end ends the holder. What waits for it asks the next one.
func (h *holder) end(err error) {
	if h.phase == ended {
		return
	}
	if err != nil {
		h.e.svc.cfg.Logger.Debug("a lease of a queue ended", slog.String("topic", h.ref.Topic),
			slog.Int("partition", h.ref.Partition), slog.String("group", h.ref.Group), slog.Any("error", err))
	}
	now := time.Now()
	waiting := h.waiting
	h.waiting = nil
	h.drop(now)
	h.phase, h.d = ended, nil
	h.e.ended(now, h, err)
	for _, x := range waiting {
		h.e.again(now, x, errMoved, false, x.items...)
	}
}

// drop has what waits for a commit of the dispatcher ask again. What sessions have they keep.
func (h *holder) drop(now time.Time) {
	for p := range h.calls {
		h.e.again(now, p.x, errMoved, true, p.i)
	}
	clear(h.calls)
	h.counts.hold(false)
	if h.d == nil {
		return
	}
	h.d.Close()
	for _, s := range h.e.sessions {
		for token, held := range s.held {
			if token.partition() == h.at() {
				s.count(held)
			}
		}
	}
}

// backoff returns the wait after so many failures and one more.
func backoff(failures int) time.Duration {
	most := min(firstBackoff<<min(failures, 8), longestBackoff)
	return most/2 + rand.N(most/2)
}

// pause waits before a call is repeated. It fails if ctx ends.
func pause(ctx context.Context, failures int) error { return lifecycle.Pause(ctx, backoff(failures)) }
