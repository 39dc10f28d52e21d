package fanout

import (
	"math/rand/v2"
	"sync"
	"time"
)

// pool runs jobs in the order of submission on at most max goroutines. Idle goroutines end.
type pool struct {
	max int

	mu      sync.Mutex
	jobs    []func()
	running int
	closed  bool
	workers sync.WaitGroup
}

// submit queues a job without a limit. It never blocks. A closed pool drops the job.
func (p *pool) submit(job func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return
	}
	p.jobs = append(p.jobs, job)
	if p.running < p.max {
		p.running++
		p.workers.Go(p.work)
	}
}

func (p *pool) work() {
	for {
		p.mu.Lock()
		if len(p.jobs) == 0 {
			p.jobs = nil
			p.running--
			p.mu.Unlock()
			return
		}
		job := p.jobs[0]
		p.jobs[0] = nil
		p.jobs = p.jobs[1:]
		p.mu.Unlock()
		job()
	}
}

// close drops the pending jobs and waits for the running ones.
func (p *pool) close() {
	p.mu.Lock()
	p.closed = true
	p.jobs = nil
	p.mu.Unlock()
	p.workers.Wait()
}

// backoff returns the delay after a number of failures in a row. It is random between zero and a
// limit, which doubles from RetryMin up to RetryMax, so that the retries of many channels do not
// coincide.
func (c *Config) backoff(fails int) time.Duration {
	limit := c.RetryMax
	if shift := min(fails-1, 20); shift >= 0 && c.RetryMin<<shift < limit {
		limit = c.RetryMin << shift
	}
	return rand.N(limit) + 1
}
