package presence

import (
	"context"
	"sync"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/trace"
)

const (
	// maxFlush bounds the users of one flush, maxSet those of one step of the store.
	maxFlush = 500
	maxSet   = 100
	// storePause is the least time between two flushes of a worker while the store does not respond.
	storePause = 100 * time.Millisecond
)

// writer writes the parts of users to the store. Each worker writes the users of its shards, one
// flush at a time. While a flush is under way users gather, and the newest part of each is written
// by the next one. So a part is never overtaken by an older one of this node. The users of the node
// are the bound of what waits.
type writer struct {
	cfg     *Config
	clock   *clock
	conns   *connections
	hub     writerHub
	workers []*worker
}

// writerHub is what a writer needs of the hub.
type writerHub interface {
	// presenceID returns the presence id under which to write, and whether the node may write now.
	presenceID() (id string, ok bool)
	// fenced is called after a step under the id was refused, because the node was declared dead.
	fenced(id string)
	// flushed is called after a flush of so many users, with whether the store responded.
	flushed(users int, took time.Duration, responded bool)
	// leasedEpoch returns the epoch of the shard's log; empty while none is known or while the store
	// may not have this node's lease.
	leasedEpoch(shard int) string
	// appended is called with the entries that a step has appended.
	appended(a Announcement)
	ended(shard int, epoch string, seq int64, at time.Time)
	// epochDiffers is called after a step was refused because the shard has another epoch.
	epochDiffers(shard int)
	// restored is called after the last part of a shard was written in a new epoch.
	restored(shard int)
}

// worker writes the users of some shards.
type worker struct {
	*writer

	wake chan struct{}

	mu sync.Mutex // guards the fields below
	// queue holds the users that wait, in order.
	queue []queuedUser
	// rewrites holds users whose part has to be written again at a time.
	rewrites []queuedRewrite
}

type queuedUser struct {
	shard int
	user  string
	since time.Time
}

type queuedRewrite struct {
	shard int
	user  string
	at    time.Time
}

func newWriter(cfg *Config, clk *clock, hub writerHub) *writer {
	w := &writer{cfg: cfg, clock: clk, hub: hub}
	w.conns = newConnections(cfg.OfflineAfter, w.enqueue)
	for range cfg.Workers {
		w.workers = append(w.workers, &worker{writer: w, wake: make(chan struct{}, 1)})
	}
	return w
}

func (w *writer) worker(shard int) *worker { return w.workers[shard%len(w.workers)] }

// enqueue queues a user for its worker. The mutex of the user's shard is held.
func (w *writer) enqueue(shard int, u *user) {
	if u.queued {
		return
	}
	u.queued = true
	k := w.worker(shard)
	k.mu.Lock()
	k.queue = append(k.queue, queuedUser{shard, u.id, time.Now()})
	k.mu.Unlock()
	k.notify()
}

func (k *worker) notify() {
	select {
	case k.wake <- struct{}{}:
	default:
	}
}

// pending returns the number of users that wait to be written.
func (w *writer) pending() int {
	n := 0
	for _, k := range w.workers {
		k.mu.Lock()
		n += len(k.queue)
		k.mu.Unlock()
	}
	return n
}

// notifyAll makes all workers look again for what they may write.
func (w *writer) notifyAll() {
	for _, k := range w.workers {
		k.notify()
	}
}

// run writes until ctx ends.
func (k *worker) run(ctx context.Context) {
	timer := time.NewTimer(0)
	defer timer.Stop()
	var last time.Time // when the last flush began
	var pause time.Duration
	for {
		wait, due := k.next(last, pause)
		if due {
			last = time.Now()
			if pause = 0; !k.flush(ctx) {
				pause = storePause
			}
			if ctx.Err() == nil {
				continue
			}
			return
		}
		timer.Reset(wait)
		select {
		case <-ctx.Done():
			return
		case <-k.wake:
		case <-timer.C:
		}
	}
}

// next reports whether a flush is due or, if it is not, when to look again at the latest.
func (k *worker) next(last time.Time, pause time.Duration) (wait time.Duration, due bool) {
	now := time.Now()
	k.requeue(now)
	k.mu.Lock()
	defer k.mu.Unlock()
	wait = time.Minute
	if len(k.rewrites) > 0 {
		wait = max(k.rewrites[0].at.Sub(now), time.Millisecond)
	}
	if _, ok := k.hub.presenceID(); !ok || len(k.queue) == 0 {
		return wait, false
	}
	interval := max(k.cfg.FlushInterval, pause)
	since := now.Sub(last)
	if since >= interval || pause == 0 && len(k.queue) >= k.cfg.FlushUsers {
		return 0, true
	}
	return min(wait, interval-since), false
}

// requeue queues the users whose rewrite is due.
func (k *worker) requeue(now time.Time) {
	k.mu.Lock()
	n := 0
	for n < len(k.rewrites) && !now.Before(k.rewrites[n].at) {
		n++
	}
	due := k.rewrites[:n:n]
	k.rewrites = k.rewrites[n:]
	k.mu.Unlock()
	for _, r := range due {
		sh := &k.conns.shards[r.shard]
		sh.mu.Lock()
		switch u := sh.users[r.user]; {
		case u == nil || u.rewriteAt.IsZero():
		case u.rewriteAt.After(now): // a later step had no response either
			k.rewriteLater(queuedRewrite{r.shard, u.id, u.rewriteAt})
		default:
			u.rewriteAt = time.Time{}
			k.conns.unsure(r.shard, u, u.cause)
		}
		sh.mu.Unlock()
	}
}

// rewriteLater queues a user to be written again at a time. A user is queued at most once.
func (k *worker) rewriteLater(r queuedRewrite) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.rewrites = append(k.rewrites, r)
}

// take removes up to maxFlush users from the queue.
func (k *worker) take() []queuedUser {
	k.mu.Lock()
	defer k.mu.Unlock()
	n := min(len(k.queue), maxFlush)
	taken := k.queue[:n:n]
	k.queue = k.queue[n:]
	if len(k.queue) == 0 {
		k.queue = nil
	}
	return taken
}

// flush writes the users that wait, up to maxFlush. It reports whether it is of use to go on at
// once: the store responded, and the epochs are known.
func (k *worker) flush(ctx context.Context) bool {
	taken := k.take()
	calls, ok := k.calls(taken)
	if len(calls) == 0 {
		return ok
	}
	users := 0
	for i := range calls {
		users += len(calls[i].Users)
	}
	ctx, span := k.cfg.Tracer.Start(ctx, "presence flush", trace.WithAttributes(
		attribute.Int("parley.presence.users", users), attribute.Int("parley.presence.shards", len(calls))))
	defer span.End()
	ctx, cancel := context.WithTimeout(ctx, k.cfg.StoreTimeout)
	defer cancel()
	sent := time.Now()
	results := k.cfg.Store.Set(ctx, calls)
	responded := false
	for i := range results {
		if results[i].Outcome != Unknown {
			responded = true
		}
		ok = ok && results[i].Outcome != OtherEpoch
		k.clock.saw(calls[i].Shard, results[i].Now, sent)
		k.settle(&calls[i], &results[i])
	}
	if !responded {
		span.SetStatus(codes.Error, "the store did not respond")
	}
	k.hub.flushed(users, time.Since(sent), responded)
	return responded && ok
}

// calls returns the steps that write the users' parts, each for up to maxSet users of one shard.
// Users of a shard without a leasedEpoch are queued again; then ok is false.
func (k *worker) calls(taken []queuedUser) (calls []SetCall, ok bool) {
	ok = true
	open := map[int]int{} // shard -> index of the call that takes its next user
	id, _ := k.hub.presenceID()
	for _, q := range taken {
		epoch := k.hub.leasedEpoch(q.shard)
		p, changed := k.part(q, epoch)
		if !changed {
			ok = ok && epoch != ""
			continue
		}
		i, found := open[q.shard]
		if !found || len(calls[i].Users) == maxSet {
			i = len(calls)
			open[q.shard] = i
			calls = append(calls, SetCall{
				Shard: q.shard, Node: id, Epoch: epoch, NotAfter: k.clock.notAfter(q.shard, k.cfg.StoreTimeout),
			})
		}
		calls[i].Users = append(calls[i].Users, p)
	}
	return calls, ok
}

// part takes a user off the queue, and returns its part and whether it has to be written now.
func (k *worker) part(q queuedUser, epoch string) (Part, bool) {
	sh := &k.conns.shards[q.shard]
	sh.mu.Lock()
	defer sh.mu.Unlock()
	u := sh.users[q.user]
	if u == nil {
		return Part{}, false
	}
	u.queued = false
	p := Part{UserID: u.id, State: u.part(), Cause: u.cause}
	if u.sure && u.written == p.State && (u.epoch == epoch || p.State == 0) {
		k.conns.collect(q.shard, u)
		return p, false
	}
	if epoch == "" {
		k.enqueue(q.shard, u)
		return p, false
	}
	u.sure = false // until the step has succeeded
	switch {
	case u.epoch == epoch || u.written == 0:
	case p.State == u.written:
		p.Mode = Restore
	case p.State == 0:
		p.Mode = Force
	}
	return p, true
}

// settle records the result of a step.
func (k *worker) settle(call *SetCall, r *SetResult) {
	switch r.Outcome {
	case Done:
		k.hub.appended(Announcement{Shard: call.Shard, Epoch: call.Epoch, Entries: entriesOf(call, r)})
		k.hub.ended(call.Shard, call.Epoch, r.Seq, r.LastAt)
	case Fenced:
		k.hub.fenced(call.Node)
	case OtherEpoch:
		k.hub.epochDiffers(call.Shard)
	case Late, Unknown:
	}
	// After a death the parts count as not written, regardless of the outcome of steps under the old
	// id.
	id, _ := k.hub.presenceID()
	done := r.Outcome == Done && call.Node == id
	sh := &k.conns.shards[call.Shard]
	sh.mu.Lock()
	for i := range call.Users {
		p := &call.Users[i]
		u := sh.users[p.UserID]
		if u == nil {
			continue
		}
		if done {
			k.conns.wrote(call, u, p)
			continue
		}
		if r.Outcome == Unknown {
			queued := !u.rewriteAt.IsZero()
			u.rewriteAt = time.Now().Add(k.cfg.StoreTimeout + 400*time.Millisecond)
			if !queued {
				k.rewriteLater(queuedRewrite{call.Shard, u.id, u.rewriteAt})
			}
		}
		k.conns.unsure(call.Shard, u, p.Cause)
	}
	restored := done && sh.restoredIn(call.Epoch)
	sh.mu.Unlock()
	if restored {
		k.hub.restored(call.Shard)
	}
}

// wrote records that the store has a part of a user. The shard's mutex must be held.
func (cs *connections) wrote(call *SetCall, u *user, p *Part) {
	u.written, u.epoch, u.sure = p.State, call.Epoch, true
	cs.changed(call.Shard, u, p.Cause)
}

// entriesOf returns the entries that a step has appended to the log.
func entriesOf(call *SetCall, r *SetResult) []Entry {
	var entries []Entry
	for i, c := range r.Changes {
		if c.Seq != 0 {
			entries = append(entries, Entry{
				Seq: c.Seq, At: r.Now, UserID: call.Users[i].UserID, State: c.State, Cause: call.Users[i].Cause,
			})
		}
	}
	return entries
}
