// Package revocationtest has a store of revocations and a copy of them in memory, for tests. Both
// can be made to fail or to hang.
package revocationtest

import (
	"context"
	"errors"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/parleyhq/parley/server/internal/lifecycle"
	"github.com/parleyhq/parley/server/internal/revocation"
)

// Mode is how an engine behaves.
type Mode int

// The modes. A Down engine refuses every call, a Hung one answers none before its context ends, and
// a Slow one takes half a second.
const (
	Up Mode = iota
	Down
	Hung
	Slow
)

// ErrDown is the error of every call to an engine that is Down.
var ErrDown = errors.New("the engine is down")

// engine is what the engines share.
type engine struct {
	mu      sync.Mutex
	mode    Mode
	delay   time.Duration
	entries map[string]revocation.Entry
}

// SetDelay makes an Up engine take that time for each entry that it answers with.
func (e *engine) SetDelay(d time.Duration) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.delay = d
}

// pause waits for an answer of n entries.
func (e *engine) pause(ctx context.Context, n int) error {
	e.mu.Lock()
	d := e.delay
	e.mu.Unlock()
	return lifecycle.Pause(ctx, time.Duration(n)*d)
}

// Set sets the mode.
func (e *engine) Set(mode Mode) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.mode = mode
}

// enter locks the engine once it is to answer.
func (e *engine) enter(ctx context.Context) error {
	e.mu.Lock()
	mode := e.mode
	e.mu.Unlock()
	switch mode {
	case Down:
		return ErrDown
	case Hung:
		<-ctx.Done()
		return ctx.Err()
	case Slow:
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(500 * time.Millisecond):
		}
	case Up:
	}
	e.mu.Lock()
	return nil
}

// Answers reports whether the engine answers calls, be it slowly.
func (e *engine) Answers() bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.mode == Up || e.mode == Slow
}

func (e *engine) put(entry revocation.Entry) {
	if e.entries == nil {
		e.entries = make(map[string]revocation.Entry)
	}
	was := e.entries[entry.Key]
	if was.Until.After(entry.Until) {
		entry.Until = was.Until
	}
	if was.Before.After(entry.Before) {
		entry.Before = was.Before
	}
	e.entries[entry.Key] = entry
}

// Store is a revocation.Store. The zero value is ready to use.
type Store struct {
	engine

	// order has the keys in the order in which they were stored.
	order []string
}

var _ revocation.Store = (*Store)(nil)

// Revoke implements revocation.Store.
func (s *Store) Revoke(ctx context.Context, e revocation.Entry) error {
	if err := s.enter(ctx); err != nil {
		return err
	}
	defer s.mu.Unlock()
	s.put(e)
	s.order = append(s.order, e.Key)
	return nil
}

// Changes implements revocation.Store.
func (s *Store) Changes(ctx context.Context, after revocation.Stamp) ([]revocation.Entry, revocation.Stamp, error) {
	if err := s.enter(ctx); err != nil {
		return nil, revocation.Stamp{}, err
	}
	var entries []revocation.Entry
	if after != (revocation.Stamp{}) {
		for _, key := range s.order[after.Lo-1:] {
			entries = append(entries, s.entries[key])
		}
	}
	next := revocation.Stamp{Lo: uint32(len(s.order)) + 1}
	s.mu.Unlock()
	return entries, next, s.pause(ctx, len(entries))
}

// List implements revocation.Store.
func (s *Store) List(ctx context.Context, after string, limit int) ([]revocation.Entry, error) {
	if err := s.enter(ctx); err != nil {
		return nil, err
	}
	var entries []revocation.Entry
	for _, key := range slices.Sorted(maps.Keys(s.entries)) {
		if key > after && len(entries) < limit {
			entries = append(entries, s.entries[key])
		}
	}
	s.mu.Unlock()
	return entries, s.pause(ctx, len(entries))
}

// Second is a revocation.Second. The zero value is ready to use.
type Second struct {
	engine

	whole time.Time // until when the declaration is in force
}

var _ revocation.Second = (*Second)(nil)

// Put implements revocation.Second.
func (s *Second) Put(ctx context.Context, entries []revocation.Entry) error {
	if err := s.enter(ctx); err != nil {
		return err
	}
	defer s.mu.Unlock()
	for _, e := range entries {
		s.put(e)
	}
	return nil
}

// Complete implements revocation.Second.
func (s *Second) Complete(ctx context.Context, life time.Duration) error {
	if err := s.enter(ctx); err != nil {
		return err
	}
	defer s.mu.Unlock()
	s.whole = time.Now().Add(life)
	return nil
}

// Whole implements revocation.Second.
func (s *Second) Whole(ctx context.Context) (bool, error) {
	if err := s.enter(ctx); err != nil {
		return false, err
	}
	defer s.mu.Unlock()
	return time.Now().Before(s.whole), nil
}

// Find implements revocation.Second.
func (s *Second) Find(ctx context.Context, keys ...string) (map[string]revocation.Entry, bool, error) {
	if err := s.enter(ctx); err != nil {
		return nil, false, err
	}
	found := make(map[string]revocation.Entry)
	for _, key := range keys {
		if e, ok := s.entries[key]; ok {
			found[key] = e
		}
	}
	whole := time.Now().Before(s.whole)
	s.mu.Unlock()
	return found, whole, s.pause(ctx, len(found))
}

// Flush removes everything, as FLUSHALL does.
func (s *Second) Flush() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.entries, s.whole = nil, time.Time{}
}
