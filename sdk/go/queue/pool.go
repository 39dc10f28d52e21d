package queue

import "sync"

// lane is what must be handled one after another: the messages of one key in one partition.
type lane struct {
	partition int
	key       string
}

// pool runs tasks, at most limit at once, those of one lane in order and one at a time. It outlives
// streams: what a lost one still runs keeps its lane. Safe for concurrent use.
type pool struct {
	limit int
	run   func(t *task)

	mu      sync.Mutex // guards what follows
	ready   []*task
	lanes   map[lane][]*task
	running int
	// idle is closed while nothing runs.
	idle chan struct{}
}

func newPool(limit int, run func(t *task)) *pool {
	p := &pool{limit: limit, run: run, lanes: make(map[lane][]*task), idle: make(chan struct{})}
	close(p.idle)
	return p
}

// submit runs the task when its turn comes.
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

// work runs tasks, after the one done, until none is ready.
func (p *pool) work(done *task) {
	t, over := p.next(done), false
	defer func() {
		if !over {
			go p.work(t) // the handler has ended this goroutine, as t.FailNow does
		}
	}()
	for t != nil {
		p.run(t)
		t = p.next(t)
	}
	over = true
}

// next returns the next task after the one done, nil if there is none.
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
