package mongostore

import (
	"context"
	"sync"
	"time"
)

// saveAfter and saveEvents limit how long a confirmed position stays unsaved. saveIdle is the
// minimum time between saves of the position of an idle feed.
const (
	saveAfter  = 200 * time.Millisecond
	saveEvents = 256
	saveIdle   = 10 * time.Second
)

// saver saves a feed's confirmed positions in the background, so that delivery never waits for it.
// A position may be confirmed only once everything before it has been published.
type saver struct {
	save func(position) error
	fail func(error)
	wake chan struct{}
	full chan struct{}
	stop chan struct{}
	done chan struct{}

	mu      sync.Mutex
	pending *position // guarded by mu
	events  int       // guarded by mu; confirmed since the last save
}

// newSaver starts a saver. save must be bounded in time. fail is called with its error, after which
// the saver waits for the next position.
func newSaver(save func(position) error, fail func(error)) *saver {
	s := &saver{
		save: save, fail: fail, wake: make(chan struct{}, 1), full: make(chan struct{}, 1), stop: make(chan struct{}),
		done: make(chan struct{}),
	}
	go s.run()
	return s
}

// confirm sets the position to save next, without waiting. events is the number of entries that it
// confirms beyond the previous position.
func (s *saver) confirm(p position, events int) {
	s.mu.Lock()
	s.pending = &p
	s.events += events
	full := s.events >= saveEvents
	s.mu.Unlock()
	signal(s.wake)
	if full {
		signal(s.full)
	}
}

func signal(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

func (s *saver) run() {
	defer close(s.done)
	for {
		select {
		case <-s.wake:
		case <-s.stop:
			return
		}
		wait := time.NewTimer(saveAfter)
		select {
		case <-wait.C:
		case <-s.full:
		case <-s.stop:
			wait.Stop()
			return
		}
		wait.Stop()
		if err := s.flush(); err != nil {
			s.fail(err)
		}
	}
}

// flush saves the pending position. If that fails, the position stays pending, unless there is a
// newer one.
func (s *saver) flush() error {
	s.mu.Lock()
	p := s.pending
	s.pending, s.events = nil, 0
	s.mu.Unlock()
	if p == nil {
		return nil
	}
	err := s.save(*p)
	if err != nil {
		s.mu.Lock()
		if s.pending == nil {
			s.pending = p
		}
		s.mu.Unlock()
	}
	return err
}

// close ends the background work and saves the pending position. If ctx ends before the work does,
// the position stays unsaved.
func (s *saver) close(ctx context.Context) error {
	close(s.stop)
	select {
	case <-s.done:
		return s.flush()
	case <-ctx.Done():
		return ctx.Err()
	}
}
