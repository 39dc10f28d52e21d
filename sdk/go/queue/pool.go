package queue

import "sync"

// lane identifies messages that must be handled one after another: those of one key in one
// partition of a topic.
type lane struct {
	topic     string
	partition int
	key       string
}

// pool runs tasks, at most limit at once. Tasks of one lane run in order and one at a time. A
// task keeps its lane until its handler has returned, also if its delivery is lost meanwhile. Safe
// for concurrent use.
type pool struct {
	limit int
	run   func(t *task)

	mu      sync.Mutex // guards the fields below
	ready   []*task
	lanes   map[lane][]*task
	running int
	// idle is closed while no task runs.
	idle chan struct{}
}

func newPool(limit int, run func(t *task)) *pool {
	p := &pool{limit: limit, run: run, lanes: make(map[lane][]*task), idle: make(chan struct{})}
	close(p.idle)
	return p
}

// submit queues the task. It runs when its lane is free and fewer than limit tasks run.
func (p *pool) submit(t *task) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if t.d.Key != "" {
		waiting, busy := p.lanes[t.lane()]
		if busy {
			p.lanes[t.lane()] = append(waiting, t)
			return
		}
		p.lanes[t.lane()] = nil
	}
	p.ready = append(p.ready, t)
	if p.running == p.limit {
		return
	}
	if p.running == 0 {
		p.idle = make(chan struct{})
	}
	p.running++
	go p.work(nil)
}

// work runs tasks until none is ready. done is the task that has just finished in a goroutine that
// its handler ended, or nil.
func (p *pool) work(done *task) {
	t, over := p.next(done), false
	defer func() {
		if !over {
			go p.work(t) // the handler has ended this goroutine, like t.FailNow
		}
	}()
	for t != nil {
		p.run(t)
		t = p.next(t)
	}
	over = true
}

// next returns the next task, or nil if none is ready. done is the task that has just finished, or
// nil.
func (p *pool) next(done *task) *task {
	p.mu.Lock()
	defer p.mu.Unlock()
	if done != nil && done.d.Key != "" {
		if waiting := p.lanes[done.lane()]; len(waiting) > 0 {
			p.lanes[done.lane()] = waiting[1:]
			p.ready = append(p.ready, waiting[0])
		} else {
			delete(p.lanes, done.lane())
		}
	}
	if len(p.ready) == 0 {
		p.ready = nil
		if p.running--; p.running == 0 {
			close(p.idle)
		}
		return nil
	}
	t := p.ready[0]
	p.ready = p.ready[1:]
	return t
}

// quiet returns a channel that is closed when no task runs.
func (p *pool) quiet() <-chan struct{} {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.idle
}
