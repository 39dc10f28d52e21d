package queue

import (
	"context"
	"errors"
	"sync"
	"time"
)

// renewBatch is how many leases one call of the store renews.
const renewBatch = 256

// until is how long a lease may be counted on that a call got or renewed which began at sent. It is counted from before the call,
// for the store's clock started during it, and a tenth shorter, for clocks run at different speeds.
func (h *Hub) until(sent time.Time) time.Time { return sent.Add(h.cfg.LeaseTTL - h.cfg.LeaseTTL/10) }

// renewAll renews all leases of the node, three times in a lease's life, and sooner again where that failed.
func (h *Hub) renewAll() {
	timer := time.NewTimer(h.cfg.LeaseTTL / 3)
	defer timer.Stop()
	for {
		select {
		case <-timer.C:
		case <-h.ctx.Done():
			return
		}
		began := time.Now()
		var (
			failed sync.Once
			wait   = h.cfg.LeaseTTL / 3
			calls  sync.WaitGroup
		)
		ctx, cancel := context.WithTimeout(h.ctx, h.cfg.LeaseTTL/3)
		leased := h.leased()
		for len(leased) > 0 {
			n := min(len(leased), renewBatch)
			some := leased[:n]
			leased = leased[n:]
			calls.Go(func() {
				if err := h.renew(ctx, some); err != nil {
					h.trouble("renew", err)
					failed.Do(func() { wait = h.cfg.LeaseTTL / 12 })
				}
			})
		}
		calls.Wait()
		cancel()
		timer.Reset(max(wait-time.Since(began), h.cfg.LeaseTTL/24))
	}
}

// leased gives the workers of all sessions.
func (h *Hub) leased() []*worker {
	var all []*worker
	for _, s := range h.streams.All() {
		s.mu.Lock()
		for _, w := range s.workers {
			all = append(all, w)
		}
		s.mu.Unlock()
	}
	return all
}

// renew renews the leases of workers. Those that are lost end; it fails if it could not be told of one whether it holds.
func (h *Hub) renew(ctx context.Context, workers []*worker) error {
	leases, had := make([]Lease, len(workers)), make([]holding, len(workers))
	for i, w := range workers {
		w.s.mu.Lock()
		leases[i], had[i] = w.lease, w.holding()
		w.s.mu.Unlock()
	}
	sent := time.Now()
	var failure error
	for i, r := range h.cfg.Store.Renew(ctx, leases, h.cfg.LeaseTTL) {
		w := workers[i]
		w.s.mu.Lock()
		switch {
		case r.Err == nil:
			w.renewed(sent)
			if had[i].quiet && w.holding().quiet && had[i].reads == w.reads && r.Pending > had[i].entries {
				w.rescan()
			}
		case errors.Is(r.Err, ErrFenced):
			w.lose()
		default:
			failure = r.Err
		}
		w.s.mu.Unlock()
	}
	return failure
}

// holding is what a worker had of what is pending.
type holding struct {
	entries int
	// quiet says that the worker is through with claiming and reads nothing now; reads counts the calls that read. Between two
	// quiet moments with as many reads it got nothing, so that what is pending beyond its entries is nobody's.
	quiet bool
	reads int
}

// holding tells what the worker has. More may be pending where Redis, restarted, has forgotten settlements, or got a fetch late: that
// must not wait for the next owner. The session's mu is held.
func (w *worker) holding() holding {
	return holding{
		entries: len(w.inFlight) + len(w.buffer),
		quiet:   !w.reading && !w.scanning && !w.stopping && !w.freeing && !w.lost,
		reads:   w.reads,
	}
}
