package keeper

import (
	"container/heap"
	"context"
	"errors"
	"math/rand/v2"
	"time"

	"github.com/parleyhq/parley/server/internal/fault"
	"github.com/parleyhq/parley/server/internal/lifecycle"
	"github.com/parleyhq/parley/server/internal/queue/qlog"
)

const (
	// maxJobs is how many calls of the store for scheduled messages are under way at a time.
	maxJobs = 8
	// stuckWait is the wait if the store says that a message is due and moves none.
	stuckWait = 50 * time.Millisecond
)

// agenda knows when the scheduled messages of this node's partitions are due, and has them moved. One
// goroutine owns it, that of work. Calls of the store have goroutines of their own, one at a time for
// each partition.
type agenda struct {
	k       *Keeper
	run     *lifecycle.Run
	lines   map[place]*line
	next    lineHeap // the lines that no job works on
	busy    int
	results chan func(now time.Time)
	// refreshAt is when the list of partitions is read again, refreshBegan when the last read began.
	refreshAt, refreshBegan time.Time
	refreshing              bool
}

// line is a partition that may have scheduled messages.
type line struct {
	place place
	// at is when the line is looked at next, and index its place in the heap; -1 while a job works on
	// it. again: it was woken meanwhile.
	at    time.Time
	index int
	again bool
	// failures counts the failed calls in a row.
	failures int
	// since is when this node began to look at it. listed: it was in the list when that was read last.
	// lost: it should have been, because it has scheduled messages.
	since        time.Time
	listed, lost bool
	// emptySince is since when it has had no scheduled messages; zero if it has some. forgotten is when
	// it was taken out of the list; zero unless it was.
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
		a.refresh(now)
		for a.busy < maxJobs && len(a.next) > 0 && !a.next[0].at.After(now) {
			a.look(heap.Pop(&a.next).(*line)) //nolint:forcetypeassert // the heap has only lines
		}
		timer.Reset(a.until(now))
	}
}

// until returns how long nothing is to be done.
func (a *agenda) until(now time.Time) time.Duration {
	wait := a.k.cfg.times.look
	if !a.refreshing {
		wait = min(wait, a.refreshAt.Sub(now))
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
		a.refreshAt = now
		for _, l := range a.lines {
			a.plan(l, now)
		}
	}
	for p := range woken {
		if a.k.owner.owns(p) {
			a.plan(a.line(p, now), now)
		}
	}
}

// line returns the line of a partition, which it creates.
func (a *agenda) line(p place, at time.Time) *line {
	l := a.lines[p]
	if l == nil {
		l = &line{place: p, at: at, since: at}
		a.lines[p] = l
		heap.Push(&a.next, l)
	}
	return l
}

// plan has a line looked at, unless it is before.
func (a *agenda) plan(l *line, at time.Time) {
	switch {
	case l.index < 0:
		l.again = true
	case at.Before(l.at):
		l.at = at
		heap.Fix(&a.next, l.index)
	}
}

// refresh reads the list of partitions if it is time.
func (a *agenda) refresh(now time.Time) {
	if a.refreshing || now.Before(a.refreshAt) {
		return
	}
	a.refreshing, a.refreshBegan = true, now
	a.job(func(ctx context.Context) func(time.Time) {
		refs, err := a.k.cfg.Store.Scheduled(ctx)
		return func(now time.Time) { a.refreshed(now, refs, err) }
	})
}

func (a *agenda) refreshed(now time.Time, refs []qlog.Ref, err error) {
	look := a.k.cfg.times.look
	a.refreshing, a.refreshAt = false, now.Add(look-rand.N(look/10))
	if err != nil {
		a.k.trouble("list partitions with scheduled messages", err)
		return
	}
	for _, l := range a.lines {
		l.listed = false
	}
	for _, ref := range refs {
		p := place{ref.Topic, ref.Partition}
		if a.k.owner.owns(p) {
			a.line(p, now).listed = true
		}
	}
	for p, l := range a.lines {
		// The producer registered the partition before the store sent the wake-up that this line is from.
		l.lost = !l.listed && l.forgotten.IsZero() && l.emptySince.IsZero() && l.since.Before(a.refreshBegan)
		if l.index >= 0 && (!a.k.owner.owns(p) || !l.listed && l.forgotten.IsZero() && !l.emptySince.IsZero()) {
			heap.Remove(&a.next, l.index)
			delete(a.lines, p)
		}
	}
}

// look has the due messages of a line moved.
func (a *agenda) look(l *line) {
	forget := a.toForget(l)
	a.job(func(ctx context.Context) func(time.Time) {
		if !a.k.owner.owns(l.place) {
			return func(time.Time) { delete(a.lines, l.place) }
		}
		moved, next, err := a.k.due(ctx, l.place)
		if err == nil && forget && (next == qlog.Never || !l.forgotten.IsZero() || l.lost) {
			err = a.k.cfg.Store.ForgetScheduled(ctx, qlog.Ref{Topic: l.place.topic, Partition: l.place.partition})
		} else {
			forget = false
		}
		return func(now time.Time) { a.looked(now, l, moved, next, forget, err) }
	})
}

// toForget reports whether a line is to be taken out of the list: if it has been empty for long, and
// once more later, because a node that scheduled a message meanwhile could rely on the list. The
// second time puts it into the list again if it has messages, which is also how a line is listed whose
// entry was lost.
func (a *agenda) toForget(l *line) bool {
	if l.lost {
		return true
	}
	if !l.forgotten.IsZero() {
		return time.Since(l.forgotten) >= a.k.cfg.times.again
	}
	return !l.emptySince.IsZero() && time.Since(l.emptySince) >= a.k.cfg.times.forget
}

// looked plans a line's next look.
func (a *agenda) looked(now time.Time, l *line, moved int, next time.Duration, forgot bool, err error) {
	look := a.k.cfg.times.look
	wait := look - rand.N(look/10)
	if err != nil {
		l.failures++
		a.k.trouble("move due messages", err)
		wait = backoff(l.failures)
	} else {
		l.failures = 0
		switch {
		case forgot && l.lost:
			l.lost = false
		case forgot && !l.forgotten.IsZero():
			l.forgotten, l.emptySince = time.Time{}, time.Time{}
		case forgot:
			l.forgotten = now
		}
		switch {
		case next != qlog.Never:
			l.emptySince = time.Time{}
		case l.emptySince.IsZero():
			l.emptySince = now
		}
		if wait = min(wait, next); wait <= 0 && moved == 0 {
			wait = stuckWait
		}
	}
	if l.again {
		l.again, wait = false, 0
	}
	l.at = now.Add(wait)
	heap.Push(&a.next, l)
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
