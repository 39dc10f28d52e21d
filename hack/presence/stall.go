package main

import (
	"sync"
	"time"
)

// stallTick is how often stalls looks at the clock.
const stallTick = 50 * time.Millisecond

// stalls measures for how long the machine did not run this process when it should have: the nodes
// wait as long. A node that does not run for the time of its lease is declared dead, as promised.
type stalls struct {
	stop chan struct{}
	done sync.WaitGroup

	mu      sync.Mutex
	longest time.Duration // guarded by mu
}

func watchStalls() *stalls {
	s := &stalls{stop: make(chan struct{})}
	s.done.Go(func() {
		tick := time.NewTicker(stallTick)
		defer tick.Stop()
		for last := time.Now(); ; {
			select {
			case <-tick.C:
			case <-s.stop:
				return
			}
			s.mu.Lock()
			s.longest = max(s.longest, time.Since(last)-stallTick)
			s.mu.Unlock()
			last = time.Now()
		}
	})
	return s
}

// take returns the longest stall since the last call.
func (s *stalls) take() time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	longest := s.longest
	s.longest = 0
	return longest
}

func (s *stalls) close() {
	close(s.stop)
	s.done.Wait()
}
