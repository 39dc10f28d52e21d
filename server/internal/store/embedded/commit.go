package embedded

import (
	"fmt"
	"sync"

	"github.com/cockroachdb/pebble/v2"
)

// committer writes queued batches, all of them joined into one write with one fsync, and then takes
// a new view, the snapshot that readers use. If all batches are lazy, it neither syncs nor takes a
// view. It is a single goroutine, so that the database has only synced data when the view is taken.
type committer struct {
	store *Store
	// wake has a buffer of one and holds a value while batches may be queued.
	wake chan struct{}
	// quit is closed to stop the goroutine. ended is closed once it has written everything queued
	// before.
	quit, ended chan struct{}

	// mu guards queue.
	mu    sync.Mutex
	queue []*pending
}

// pending is one batch waiting to be written. The committer owns the batch.
type pending struct {
	batch *pebble.Batch
	// lazy is true for a batch that needs no sync: losing it in a crash only repeats work. Views
	// do not show it before the next sync.
	lazy bool
	// done is closed once err is set. If err is nil, the current view then shows the batch. A lazy
	// batch may be in the database only.
	done chan struct{}
	err  error
}

func (c *committer) start(s *Store) {
	c.store = s
	c.wake = make(chan struct{}, 1)
	c.quit, c.ended = make(chan struct{}), make(chan struct{})
	go c.run()
}

// commit makes a batch durable and visible. After an error the outcome is unknown.
func (c *committer) commit(batch *pebble.Batch) error { return c.wait(c.add(batch, false)) }

// add queues a batch for writing and returns at once. For lazy see pending.
func (c *committer) add(batch *pebble.Batch, lazy bool) *pending {
	p := &pending{batch: batch, lazy: lazy, done: make(chan struct{})}
	c.mu.Lock()
	c.queue = append(c.queue, p)
	c.mu.Unlock()
	select {
	case c.wake <- struct{}{}:
	default:
	}
	return p
}

// wait blocks until a queued batch is written, and returns the result of the write. If the store
// fails before, it returns that failure.
func (c *committer) wait(p *pending) error {
	select {
	case <-p.done:
		return p.err
	case <-c.store.failure.failed:
		return c.store.failure.err()
	}
}

// stop ends the committer once all queued batches are written. If the store fails, it returns the
// failure without waiting. add must not be called afterwards.
func (c *committer) stop() error {
	close(c.quit)
	select {
	case <-c.ended:
		return c.store.failure.err()
	case <-c.store.failure.failed:
		return c.store.failure.err()
	}
}

func (c *committer) run() {
	defer close(c.ended)
	for {
		select {
		case <-c.wake:
			c.writeAll()
		case <-c.quit:
			c.writeAll()
			return
		}
	}
}

// writeAll writes all queued batches as one and reports the result to each waiter.
func (c *committer) writeAll() {
	c.mu.Lock()
	group := c.queue
	c.queue = nil
	c.mu.Unlock()
	if len(group) == 0 {
		return
	}
	err := c.write(group)
	for _, p := range group {
		p.err = err
		close(p.done)
	}
}

func (c *committer) write(group []*pending) (err error) {
	if err := c.store.failure.err(); err != nil {
		return err
	}
	// Pebble panics, holding its own locks, if it can't append to its log. No batch is written
	// after that.
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("commit: %v", r)
			c.store.failure.fail(err)
		}
	}()
	batch, lazy := group[0].batch, group[0].lazy
	for _, p := range group[1:] {
		lazy = lazy && p.lazy
		if err := batch.Apply(p.batch, nil); err != nil {
			return fmt.Errorf("commit: %w", err)
		}
		if err := p.batch.Close(); err != nil {
			return fmt.Errorf("commit: %w", err)
		}
	}
	sync := pebble.Sync
	if lazy {
		sync = pebble.NoSync
	}
	if err := c.store.db.Apply(batch, sync); err != nil {
		return fmt.Errorf("commit: %w", err)
	}
	if !lazy {
		c.store.views.replace(c.store.db.NewSnapshot())
	}
	if err := batch.Close(); err != nil {
		return fmt.Errorf("commit: %w", err)
	}
	return nil
}
