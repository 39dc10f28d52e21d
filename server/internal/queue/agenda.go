package queue

import (
	"container/heap"
	"context"
	"slices"
	"sync"
	"time"
)

// agenda is what a scheduler knows and has to do. All of it belongs to one goroutine, that of run.
type agenda struct {
	s     *Scheduler
	began time.Time
	plans map[string]*plan
	// wanted are the plans whose topics are to be read.
	wanted map[string]*plan
	// next orders the tasks that no job is at work on.
	next taskHeap
	// jobs wait for their turn; results come from those that are under way.
	jobs            []func(ctx context.Context) (done func())
	busy, probes    int
	results         chan func()
	workers         sync.WaitGroup
	refreshAt       time.Time
	refreshing      bool
	failing         map[trouble]bool
	ownedHasChanged bool
}

// plan is a topic and the partitions of it that are this node's.
type plan struct {
	// topic is nil as long as it has not been read, and after it was found to be gone.
	topic *Topic
	tasks map[int]*task
	// asked is when it was read last; reading says that it is being.
	asked   time.Time
	reading bool
}

func newAgenda(s *Scheduler) *agenda {
	return &agenda{
		s: s, began: time.Now(), plans: make(map[string]*plan), wanted: make(map[string]*plan),
		results: make(chan func()), failing: make(map[trouble]bool),
	}
}

// run works until ctx ends.
func (a *agenda) run(ctx context.Context) {
	defer a.workers.Wait()
	changed := a.s.changed()
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		now := time.Now()
		a.hear(now)
		a.look(ctx, now)
		a.plan(ctx, now)
		a.work(ctx)
		a.show()
		timer.Reset(a.until(now))
		select {
		case <-ctx.Done():
			return
		case <-timer.C:
		case <-a.s.kick:
		case done := <-a.results:
			done()
		case <-changed:
			changed = a.s.changed()
			for name := range a.plans {
				a.apply(ctx, name)
			}
		}
	}
}

// until gives how long there is nothing to do, unless something comes.
func (a *agenda) until(now time.Time) time.Duration {
	next := now.Add(checkEvery)
	earlier := func(t time.Time) {
		if t.Before(next) {
			next = t
		}
	}
	if len(a.next) > 0 {
		earlier(a.next[0].at)
	}
	if !a.refreshing {
		earlier(a.refreshAt)
	}
	for _, p := range a.wanted {
		if !p.reading {
			earlier(p.asked.Add(reloadEvery))
		}
	}
	return max(next.Sub(now), 0)
}

// hear does what wake-ups say.
func (a *agenda) hear(now time.Time) {
	woken, all := a.s.heard()
	if all {
		a.refreshAt = now
		for _, p := range a.plans {
			for _, t := range p.tasks {
				t.stale, t.failures, t.retryAt = true, [workKinds]int{}, [workKinds]time.Time{}
				a.queue(t, now)
			}
		}
	}
	for place := range woken {
		if !a.s.owns(place) {
			continue
		}
		p := a.plans[place.topic]
		if p == nil {
			p = &plan{tasks: make(map[int]*task)}
			a.plans[place.topic] = p
		}
		// The line may be of a group, or the partition of a topic, that is too new to be known.
		a.wanted[place.topic] = p
		if t := p.tasks[place.partition]; t != nil {
			t.stale = true
			a.queue(t, now)
		}
	}
}

// look has the topics read that are to be.
func (a *agenda) look(ctx context.Context, now time.Time) {
	if !a.refreshing && !now.Before(a.refreshAt) {
		a.refreshing = true
		a.begin(ctx, a.refresh)
	}
	for name, p := range a.wanted {
		if !p.reading && now.Sub(p.asked) >= reloadEvery {
			delete(a.wanted, name)
			p.reading, p.asked = true, now
			a.begin(ctx, func(ctx context.Context) func() { return a.reload(ctx, name, p) })
		}
	}
}

// refresh looks all topics up.
func (a *agenda) refresh(ctx context.Context) (done func()) {
	asked := time.Now()
	names, err := a.s.cfg.Catalog.Names(ctx)
	topics := make([]*Topic, len(names))
	errs := make([]error, len(names))
	if err == nil {
		_ = each(ctx, len(names), func(ctx context.Context, i int) error {
			topics[i], errs[i] = a.s.cfg.Catalog.Topic(ctx, names[i])
			return nil
		})
	}
	return func() {
		a.refreshing = false
		a.refreshAt = time.Now().Add(refreshEvery - jitter(refreshEvery/10))
		if err != nil {
			return // what is known goes on; its own calls tell of failures
		}
		for name, p := range a.plans {
			if _, ok := slices.BinarySearch(names, name); !ok && p.asked.Before(asked) && a.wanted[name] == nil {
				p.topic = nil
				a.apply(ctx, name)
				delete(a.plans, name)
			}
		}
		for i, name := range names {
			a.learn(ctx, name, topics[i], errs[i], asked)
		}
	}
}

// reload reads one topic.
func (a *agenda) reload(ctx context.Context, name string, p *plan) (done func()) {
	t, err := a.s.cfg.Catalog.Reload(ctx, name)
	return func() {
		p.reading = false
		if a.plans[name] == p {
			a.learn(ctx, name, t, err, p.asked)
		}
	}
}

// learn takes in what was read of a topic.
func (a *agenda) learn(ctx context.Context, name string, t *Topic, err error, asked time.Time) {
	p := a.plans[name]
	if p == nil {
		if t == nil {
			return
		}
		p = &plan{tasks: make(map[int]*task)}
		a.plans[name] = p
	}
	switch {
	case t == nil && !isNoTopic(err):
		return // it could not be read
	case asked.Before(p.asked):
		return // it has been read since, or is being
	case t != nil && p.topic != nil && t.UID == p.topic.UID && t.Version < p.topic.Version:
		return // it was read before what is known
	}
	p.topic, p.asked = t, asked
	a.apply(ctx, name)
}

// apply makes the plan's tasks those of the topic's partitions that are this node's.
func (a *agenda) apply(ctx context.Context, name string) {
	p := a.plans[name]
	now := time.Now()
	for _, t := range p.tasks {
		if p.topic == nil || t.uid != p.topic.UID || !a.s.owns(t.place) {
			a.drop(ctx, t)
		}
	}
	if p.topic == nil {
		return
	}
	for partition := range p.topic.Partitions {
		at := place{name, partition}
		t := p.tasks[partition]
		if t == nil {
			if !a.s.owns(at) {
				continue
			}
			t = &task{place: at, uid: p.topic.UID, index: -1, trimAt: now.Add(jitter(trimEvery))}
			p.tasks[partition] = t
			a.ownedHasChanged = true
		}
		if t.setLines(p.topic.Groups) {
			a.queue(t, now)
		}
	}
}

// drop forgets a task. A job that is at work on it finds it gone.
func (a *agenda) drop(ctx context.Context, t *task) {
	t.gone = true
	a.ownedHasChanged = true
	if t.index >= 0 {
		heap.Remove(&a.next, t.index)
	}
	for w := range workKinds {
		a.recovered(ctx, t, w)
	}
	if p := a.plans[t.place.topic]; p != nil && p.tasks[t.place.partition] == t {
		delete(p.tasks, t.place.partition)
	}
}

// queue puts a task where its next time says, unless a job is at work on it.
func (a *agenda) queue(t *task, now time.Time) {
	if t.busy || t.gone {
		return
	}
	t.at = t.nextAt(now)
	if t.index < 0 {
		heap.Push(&a.next, t)
	} else {
		heap.Fix(&a.next, t.index)
	}
}

// show tells the gauges which partitions there are.
func (a *agenda) show() {
	if !a.ownedHasChanged {
		return
	}
	a.ownedHasChanged = false
	var refs []Ref
	for _, p := range a.plans {
		for partition := range p.tasks {
			refs = append(refs, p.topic.Ref(partition))
		}
	}
	a.s.owned.Store(&refs)
}

// trouble is a kind of work that fails in a partition.
type trouble struct {
	task *task
	work work
}

// failed notes that a task's job failed. It is tried again after a while.
func (a *agenda) failed(ctx context.Context, t *task, w work, err error, now time.Time) {
	t.failures[w]++
	t.retryAt[w] = now.Add(failureWait(t.failures[w]))
	if w != workTrim {
		t.stale = true
	}
	if isNoTopic(err) {
		// The topic, or a group, is gone or another one.
		if p := a.plans[t.place.topic]; p != nil {
			a.wanted[t.place.topic] = p
		}
		return
	}
	if len(a.failing) == 0 && ctx.Err() == nil {
		a.s.cfg.Logger.WarnContext(ctx, "scheduling a queue failed; trying again",
			"topic", t.place.topic, "partition", t.place.partition, "error", err)
	}
	a.failing[trouble{t, w}] = true
}

// recovered notes that a task's job went well, or is no more.
func (a *agenda) recovered(ctx context.Context, t *task, w work) {
	t.failures[w], t.retryAt[w] = 0, time.Time{}
	if !a.failing[trouble{t, w}] {
		return
	}
	delete(a.failing, trouble{t, w})
	if len(a.failing) == 0 {
		a.s.cfg.Logger.InfoContext(ctx, "scheduling queues works again")
	}
}

// begin runs fn beside the jobs.
func (a *agenda) begin(ctx context.Context, fn func(ctx context.Context) (done func())) {
	a.workers.Go(func() {
		done := fn(ctx)
		select {
		case a.results <- done:
		case <-ctx.Done():
		}
	})
}

// work begins jobs as far as there is room.
func (a *agenda) work(ctx context.Context) {
	for a.busy < maxJobs && len(a.jobs) > 0 {
		job := a.jobs[0]
		a.jobs[0] = nil
		a.jobs = a.jobs[1:]
		a.busy++
		a.begin(ctx, func(ctx context.Context) func() {
			done := job(ctx)
			return func() {
				a.busy--
				done()
			}
		})
	}
}
