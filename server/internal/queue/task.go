package queue

import (
	"container/heap"
	"context"
	"errors"
	"time"

	"github.com/parleyhq/parley/server/internal/fault"
)

// task is a partition that is this node's to schedule.
type task struct {
	place place
	uid   string
	// lines are the partition's scheduled messages, first, and each group's retries.
	lines []lineTask
	// stale says that the lines are to be looked at now; checkAt when they are anyhow.
	stale   bool
	checkAt time.Time
	trimAt  time.Time
	// failures counts those in a row, of each kind of work; retryAt is when to try it again.
	failures [workKinds]int
	retryAt  [workKinds]time.Time
	// last is what was done last, so that nothing is put off for ever by something that always comes first.
	last work
	// busy is true while a job is at work on it, gone once it is no task any more.
	busy, gone bool
	// probing is true while the job is to see whether what failed works again.
	probing bool
	// at is the time of the next thing to do, and index the place among the tasks that wait; -1 if it is not there.
	at    time.Time
	index int
}

// lineTask is what is known of a line: when its first message is due, if any waits.
type lineTask struct {
	group string
	waits bool
	due   time.Time
}

// work is something to do with a partition.
type work uint8

const (
	workCheck work = iota
	workMove
	workTrim
	workKinds
)

// setLines makes the lines those of the groups, and reports whether there are new ones, which are to be looked at.
func (t *task) setLines(groups []Group) (fresh bool) {
	known := make(map[string]lineTask, len(t.lines))
	for _, l := range t.lines {
		known[l.group] = l
	}
	lines := make([]lineTask, 0, 1+len(groups))
	add := func(group string) {
		l, ok := known[group]
		if !ok {
			fresh = true
			l.group = group
		}
		lines = append(lines, l)
	}
	add("")
	for _, g := range groups {
		add(g.Name)
	}
	t.lines = lines
	t.stale = t.stale || fresh
	return fresh
}

// line finds the line of the group; nil if it is gone.
func (t *task) line(group string) *lineTask {
	for i := range t.lines {
		if t.lines[i].group == group {
			return &t.lines[i]
		}
	}
	return nil
}

// first gives the line that is due first; nil if nothing waits.
func (t *task) first() *lineTask {
	var first *lineTask
	for i := range t.lines {
		if l := &t.lines[i]; l.waits && (first == nil || l.due.Before(first.due)) {
			first = l
		}
	}
	return first
}

// workAt gives when the work is to be done next; ok is false if it need not be.
func (t *task) workAt(w work, now time.Time) (at time.Time, ok bool) {
	switch w { //nolint:exhaustive // workKinds counts them
	case workCheck:
		if at = t.checkAt; t.stale {
			at = now
		}
	case workMove:
		l := t.first()
		if l == nil {
			return time.Time{}, false
		}
		at = l.due
	case workTrim:
		at = t.trimAt
	}
	if t.retryAt[w].After(at) {
		at = t.retryAt[w]
	}
	return at, true
}

// nextAt gives when there is something to do.
func (t *task) nextAt(now time.Time) time.Time {
	next, _ := t.workAt(workCheck, now)
	for _, w := range [...]work{workMove, workTrim} {
		if at, ok := t.workAt(w, now); ok && at.Before(next) {
			next = at
		}
	}
	return next
}

// pick gives what to do now: of several things the one after what was done last.
func (t *task) pick(now time.Time) (w work, ok bool) {
	for i := range workKinds {
		w = (t.last + 1 + i) % workKinds
		if at, ok := t.workAt(w, now); ok && !at.After(now) {
			return w, true
		}
	}
	return 0, false
}

// set notes when the line's first message is due, as the store has just told.
func (l *lineTask) set(next time.Duration, now time.Time) {
	l.waits = next != Never
	if l.waits {
		l.due = now.Add(max(next, 0))
	}
}

// plan turns tasks whose time has come into jobs.
func (a *agenda) plan(ctx context.Context, now time.Time) {
	var checks []*task
	lines := 0
	for len(a.next) > 0 && !a.next[0].at.After(now) {
		t := heap.Pop(&a.next).(*task) //nolint:forcetypeassert // nothing else is in it
		if !a.s.owns(t.place) {
			a.drop(ctx, t)
			continue
		}
		w, ok := t.pick(now)
		if !ok { // what there was to do has gone
			a.queue(t, now)
			continue
		}
		if t.failures[w] > 0 {
			if a.probes >= maxProbes {
				// Calls that hang must not keep the partitions waiting that are well.
				t.retryAt[w] = now.Add(failWait)
				a.queue(t, now)
				continue
			}
			a.probes++
			t.probing = true
		}
		t.busy, t.last = true, w
		switch {
		case w == workMove:
			a.jobs = append(a.jobs, a.moveJob(t, t.first().group))
		case w == workTrim:
			a.jobs = append(a.jobs, a.trimJob(t))
		case t.failures[w] > 0: // alone, lest it fail others' look
			a.jobs = append(a.jobs, a.checkJob([]*task{t}))
		default:
			checks = append(checks, t)
			if lines += len(t.lines); lines >= maxChecked {
				a.jobs = append(a.jobs, a.checkJob(checks))
				checks, lines = nil, 0
			}
		}
	}
	if len(checks) > 0 {
		a.jobs = append(a.jobs, a.checkJob(checks))
	}
}

// finish puts a task back after a job, which failed or did not.
func (a *agenda) finish(ctx context.Context, t *task, w work, err error, now time.Time) {
	t.busy = false
	if t.probing {
		t.probing = false
		a.probes--
	}
	if t.gone {
		return
	}
	if err != nil {
		a.failed(ctx, t, w, err, now)
	} else {
		a.recovered(ctx, t, w)
	}
	a.queue(t, now)
}

// checkJob asks when the first messages of the tasks' lines are due.
func (a *agenda) checkJob(tasks []*task) func(ctx context.Context) func() {
	var lines []Line
	for _, t := range tasks {
		t.stale = false
		for _, l := range t.lines {
			lines = append(lines, Line{Ref: t.ref(), Group: l.group})
		}
	}
	return func(ctx context.Context) func() {
		nexts, err := a.s.cfg.Store.Next(ctx, lines)
		return func() {
			now := time.Now()
			at := 0
			for _, t := range tasks {
				for ; err == nil && at < len(lines) && lines[at].Ref == t.ref(); at++ {
					if l := t.line(lines[at].Group); l != nil {
						l.set(nexts[at], now)
					}
				}
				t.checkAt = a.nextCheck(now)
				a.finish(ctx, t, workCheck, err, now)
			}
		}
	}
}

// nextCheck gives the time of the next look, in steps from the beginning on, so that looks come together.
func (a *agenda) nextCheck(now time.Time) time.Time {
	after := now.Sub(a.began) + checkEvery + jitter(checkSpread)
	return a.began.Add(after.Truncate(checkStep))
}

// moveJob moves what of the line is due.
func (a *agenda) moveJob(t *task, group string) func(ctx context.Context) func() {
	return func(ctx context.Context) func() {
		moved, next, err := a.s.cfg.Store.Due(ctx, Line{Ref: t.ref(), Group: group}, maxDue)
		if moved > 0 || errors.Is(err, ErrUnknownOutcome) {
			a.s.ready(t.place)
		}
		return func() {
			now := time.Now()
			if l := t.line(group); l != nil && err == nil {
				if moved == 0 && next <= 0 {
					next = stuckWait
				}
				l.set(next, now)
			}
			a.finish(ctx, t, workMove, err, now)
		}
	}
}

// trimJob removes what is done with.
func (a *agenda) trimJob(t *task) func(ctx context.Context) func() {
	return func(ctx context.Context) func() {
		// The settings are younger than the plan's: a node must go by changes of them within two seconds.
		topic, err := a.s.cfg.Catalog.Topic(ctx, t.place.topic)
		if err == nil && topic.UID != t.uid {
			err = ErrNoTopic
		}
		var removed int64
		if err == nil {
			removed, err = a.s.cfg.Store.Trim(ctx, topic, t.place.partition, maxTrim)
		}
		return func() {
			now := time.Now()
			t.trimAt = now
			if removed < maxTrim {
				t.trimAt = now.Add(trimEvery + jitter(trimEvery/10))
			}
			a.finish(ctx, t, workTrim, err, now)
		}
	}
}

func (t *task) ref() Ref { return Ref{t.place.topic, t.uid, t.place.partition} }

// isNoTopic reports whether err says that a topic or group is gone.
func isNoTopic(err error) bool {
	return errors.Is(err, ErrNoTopic) || errors.Is(err, ErrNoGroup) || fault.Is(err, fault.TopicNotFound)
}

// taskHeap orders tasks by their times, for container/heap.
type taskHeap []*task

func (h taskHeap) Len() int           { return len(h) }
func (h taskHeap) Less(i, j int) bool { return h[i].at.Before(h[j].at) }

func (h taskHeap) Swap(i, j int) {
	h[i], h[j] = h[j], h[i]
	h[i].index, h[j].index = i, j
}

// Push implements heap.Interface.
func (h *taskHeap) Push(x any) {
	t := x.(*task) //nolint:forcetypeassert // nothing else is pushed
	t.index = len(*h)
	*h = append(*h, t)
}

// Pop implements heap.Interface.
func (h *taskHeap) Pop() any {
	last := len(*h) - 1
	t := (*h)[last]
	(*h)[last] = nil
	*h = (*h)[:last]
	t.index = -1
	return t
}
