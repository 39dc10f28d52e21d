package keeper

import (
	"container/heap"
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/parleyhq/parley/server/internal/fault"
	"github.com/parleyhq/parley/server/internal/lifecycle"
	"github.com/parleyhq/parley/server/internal/queue/qlog"
)

const (
	// maxJobs is how many calls of the store for scheduled messages are under way at a time.
	maxJobs = 8
	// maxChecked is how many partitions one call of a check reads.
	maxChecked = 256
	// stuckWait is the wait if the store says that a message is due and moves none.
	stuckWait = 50 * time.Millisecond
)

// agenda knows when the scheduled messages of this node's partitions are due, and has them moved.
// One goroutine owns it, that of work. Calls of the store have goroutines of their own, one at a
// time for each partition.
type agenda struct {
	k     *Keeper
	run   *lifecycle.Run
	lines map[place]*line
	// next has the lines that are to be looked at, by time.
	next    lineHeap
	busy    int
	results chan func(now time.Time)
	// checkAt is when all lines are checked again, checkBegan when the last check began.
	checkAt, checkBegan time.Time
	checking            bool
	// failures counts the failed checks in a row.
	failures int
}

// line is a partition that may have scheduled messages.
type line struct {
	place place
	// at is when the line is looked at next. index is its place in the heap, -1 if it is not there.
	at    time.Time
	index int
	// busy: a job works on the line. again: it was to be looked at meanwhile.
	busy, again bool
	// failures counts the failed calls in a row.
	failures int
	// since is when this node began to know it. listed: it was in the list when that was read last.
	// lost: it should have been, because it has scheduled messages.
	since        time.Time
	listed, lost bool
	// emptySince is since when it has had no scheduled messages; zero if it has some, or nothing is
	// known. forgotten is when it was taken out of the list; zero unless it was.
	emptySince, forgotten time.Time
}

func newAgenda(k *Keeper, run *lifecycle.Run) *agenda {
	return &agenda{k: k, run: run, lines: map[place]*line{}, results: make(chan func(time.Time), maxJobs)}
}

// work runs the agenda until ctx ends.
func (a *agenda) work(ctx context.Context) {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-timer.C:
		case <-a.k.mail.kick:
			a.hear(time.Now())
		case done := <-a.results:
			a.busy--
			done(time.Now())
		}
		now := time.Now()
		a.check(now)
		for a.busy < maxJobs && len(a.next) > 0 && !a.next[0].at.After(now) {
			a.look(heap.Pop(&a.next).(*line)) //nolint:forcetypeassert // the heap has only lines
		}
		timer.Reset(a.until(now))
	}
}

// until returns how long nothing is to be done.
func (a *agenda) until(now time.Time) time.Duration {
	wait := a.k.cfg.times.look
	if !a.checking {
		wait = min(wait, a.checkAt.Sub(now))
	}
	if a.busy < maxJobs && len(a.next) > 0 {
		wait = min(wait, a.next[0].at.Sub(now))
	}
	return max(wait, 0)
}

// job runs fn in a goroutine; what it returns is called on the agenda's.
func (a *agenda) job(fn func(ctx context.Context) (done func(now time.Time))) {
	a.busy++
	a.run.Go(func(ctx context.Context) {
		call, cancel := context.WithTimeout(ctx, callTimeout)
		defer cancel()
		done := fn(call)
		select {
		case a.results <- done:
		case <-ctx.Done():
		}
	})
}

// hear takes what wake-ups say.
func (a *agenda) hear(now time.Time) {
	woken, all := a.k.mail.take()
	if all {
		a.checkAt = now
	}
	for p := range woken {
		if a.k.owner.owns(p) {
			a.plan(a.line(p, now), now)
		}
	}
}

// line returns the line of a partition, which it creates.
func (a *agenda) line(p place, now time.Time) *line {
	l := a.lines[p]
	if l == nil {
		l = &line{place: p, index: -1, since: now}
		a.lines[p] = l
	}
	return l
}

// plan has a line looked at, unless it is before.
func (a *agenda) plan(l *line, at time.Time) {
	switch {
	case l.busy:
		l.again = true
	case l.index < 0:
		l.at = at
		heap.Push(&a.next, l)
	case at.Before(l.at):
		l.at = at
		heap.Fix(&a.next, l.index)
	}
}

// drop forgets a line on this node.
func (a *agenda) drop(l *line) {
	if l.index >= 0 {
		heap.Remove(&a.next, l.index)
	}
	delete(a.lines, l.place)
}

// check reads the list of partitions and when the first message of each is due, if it is time.
func (a *agenda) check(now time.Time) {
	if a.checking || now.Before(a.checkAt) {
		return
	}
	a.checking, a.checkBegan = true, now
	known := make([]place, 0, len(a.lines))
	for p := range a.lines {
		known = append(known, p)
	}
	a.job(func(ctx context.Context) func(time.Time) {
		listed, next, err := a.k.readList(ctx, known)
		return func(now time.Time) { a.checked(now, listed, next, err) }
	})
}

// readList returns which partitions of this node are listed, and when the first scheduled message
// of those and of the known ones is due.
func (k *Keeper) readList(ctx context.Context, known []place) (listed map[place]bool, next map[place]time.Duration, err error) {
	all, err := k.cfg.Store.Scheduled(ctx)
	if err != nil {
		return nil, nil, err
	}
	listed = make(map[place]bool, len(all))
	var refs []qlog.Ref
	for _, ref := range all {
		if p := (place{ref.Topic, ref.Partition}); k.owner.owns(p) {
			listed[p] = true
			refs = append(refs, ref)
		}
	}
	for _, p := range known {
		if !listed[p] {
			refs = append(refs, qlog.Ref{Topic: p.topic, Partition: p.partition})
		}
	}
	next = make(map[place]time.Duration, len(refs))
	for some := range slices.Chunk(refs, maxChecked) {
		waits, err := k.cfg.Store.Next(ctx, some)
		if err != nil {
			return nil, nil, err
		}
		for i, ref := range some {
			next[place{ref.Topic, ref.Partition}] = waits[i]
		}
	}
	return listed, next, nil
}

// checked plans the looks that a check found necessary.
func (a *agenda) checked(now time.Time, listed map[place]bool, next map[place]time.Duration, err error) {
	a.checking = false
	if err != nil {
		a.k.trouble("check scheduled messages", err)
		a.failures++
		a.checkAt = now.Add(backoff(a.failures))
		return
	}
	a.failures = 0
	a.checkAt = now.Add(a.k.cfg.times.look - rand.N(a.k.cfg.times.look/10))
	for p, wait := range next {
		l := a.line(p, now)
		l.listed = listed[p]
		a.note(now, l, wait)
		// The producer lists the partition before the store sends the wake-up that this line is
		// from.
		l.lost = !l.listed && wait != qlog.Never && l.forgotten.IsZero() && l.since.Before(a.checkBegan)
		switch {
		case l.busy:
		case !a.k.owner.owns(p), !l.listed && wait == qlog.Never && l.forgotten.IsZero():
			a.drop(l)
		case l.toForget(&a.k.cfg.times):
			a.plan(l, now)
		}
	}
}

// note plans the look at a line's first message.
func (a *agenda) note(now time.Time, l *line, wait time.Duration) {
	switch {
	case wait != qlog.Never:
		l.emptySince = time.Time{}
		a.plan(l, now.Add(wait))
	case l.emptySince.IsZero():
		l.emptySince = now
	}
}

// look has the due messages of a line moved.
func (a *agenda) look(l *line) {
	l.busy = true
	forget, despite := l.toForget(&a.k.cfg.times), !l.forgotten.IsZero() || l.lost // despite messages
	a.job(func(ctx context.Context) func(time.Time) {
		if !a.k.owner.owns(l.place) {
			return func(time.Time) { a.drop(l) }
		}
		moved, next, err := a.k.due(ctx, l.place)
		if forget = forget && err == nil && (next == qlog.Never || despite); forget {
			err = a.k.cfg.Store.ForgetScheduled(ctx, qlog.Ref{Topic: l.place.topic, Partition: l.place.partition})
		}
		return func(now time.Time) { a.looked(now, l, moved, next, forget, err) }
	})
}

// looked plans a line's next look.
func (a *agenda) looked(now time.Time, l *line, moved int, next time.Duration, forgot bool, err error) {
	again := l.again
	l.busy, l.again = false, false
	if again {
		a.plan(l, now)
	}
	if err != nil {
		l.failures++
		a.k.trouble("move due messages", err)
		a.plan(l, now.Add(backoff(l.failures)))
		return
	}
	l.failures = 0
	switch {
	case forgot && l.lost:
		l.lost = false
	case forgot && !l.forgotten.IsZero():
		l.forgotten, l.emptySince = time.Time{}, time.Time{}
	case forgot:
		l.forgotten = now
	}
	if next == 0 && moved == 0 {
		next = stuckWait
	}
	a.note(now, l, next)
}

// toForget reports whether a line is to be taken out of the list: if it has been empty for long,
// and once more later, because a node that scheduled a message meanwhile could rely on the list.
// The second time puts it into the list again if it has messages, which is also how a line is
// listed whose entry was lost.
func (l *line) toForget(t *times) bool {
	switch {
	case l.lost:
		return true
	case !l.forgotten.IsZero():
		return time.Since(l.forgotten) >= t.again
	}
	return !l.emptySince.IsZero() && time.Since(l.emptySince) >= t.forget
}

// due moves the due messages of a partition once. A partition whose topic does not exist has none.
func (k *Keeper) due(ctx context.Context, p place) (moved int, next time.Duration, err error) {
	t, err := k.cfg.Topics.Topic(ctx, p.topic)
	if err == nil && p.partition >= t.Partitions {
		t, err = k.newest(ctx, p.topic)
	}
	for healed := false; ; healed = true {
		if fault.Is(err, fault.TopicNotFound) || err == nil && p.partition >= t.Partitions {
			return 0, qlog.Never, nil
		}
		if err != nil {
			return 0, 0, err
		}
		moved, next, err = k.cfg.Store.Due(ctx, t.Ref(p.partition))
		if err == nil {
			if moved > 0 {
				k.ready(p.topic, p.partition)
			}
			return moved, next, nil
		}
		if healed || !errors.Is(err, qlog.ErrNoTopic) {
			return 0, 0, err
		}
		if t, err = k.newest(ctx, p.topic); err == nil && p.partition < t.Partitions {
			err = k.cfg.Topics.Heal(ctx, t, p.partition)
		}
	}
}

// newest reads a topic of which a newer state may exist.
func (k *Keeper) newest(ctx context.Context, topic string) (*qlog.Topic, error) {
	k.cfg.Topics.Forget(topic)
	return k.cfg.Topics.Topic(ctx, topic)
}

// lineHeap orders lines by when they are looked at. It implements heap.Interface.
type lineHeap []*line

func (h lineHeap) Len() int           { return len(h) }
func (h lineHeap) Less(i, j int) bool { return h[i].at.Before(h[j].at) }
func (h lineHeap) Swap(i, j int) {
	h[i], h[j] = h[j], h[i]
	h[i].index, h[j].index = i, j
}

// Push implements heap.Interface.
func (h *lineHeap) Push(x any) {
	l := x.(*line) //nolint:forcetypeassert // only lines are pushed
	l.index = len(*h)
	*h = append(*h, l)
}

// Pop implements heap.Interface.
func (h *lineHeap) Pop() any {
	old := *h
	l := old[len(old)-1]
	old[len(old)-1] = nil
	*h, l.index = old[:len(old)-1], -1
	return l
}
