package topics

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/parleyhq/parley/server/internal/queue/qlog"
)

const (
	// freshFor is how long a topic is returned from memory without a read, less up to a fifth.
	// After that it is read again while the old one is still returned, until staleAfter.
	freshFor   = time.Second
	staleAfter = 2 * time.Second
	// absentFor is how long a topic that does not exist is remembered as such.
	absentFor = 250 * time.Millisecond
	// loadTimeout bounds a read, or a healing, that serves everybody who waits for it.
	loadTimeout = 2 * time.Second
	// maxCatalog bounds the names that are remembered, those of absent topics included.
	maxCatalog = 10_000
)

// CatalogConfig configures a Catalog. Store is required.
type CatalogConfig struct {
	Store qlog.TopicStore
	// Logger defaults to slog.Default.
	Logger *slog.Logger
}

// Catalog finds topics by name and remembers them. What it returns is at most two seconds old,
// counted from when the store was asked; most of it less than one second. Nodes tell each other
// nothing of changes: each reads the topics that it uses. Safe for concurrent use.
type Catalog struct {
	steps steps

	mu      sync.RWMutex // guards the fields below
	entries map[string]*entry
	loads   map[string]*flight[*entry]
	heals   map[qlog.Ref]*flight[struct{}]
}

// entry is what the store answered. It is not changed.
type entry struct {
	// topic is nil if there is none, or none that is Live.
	topic *qlog.Topic
	// asked is when the store was asked; fresh is how long after it the store is not asked again.
	asked time.Time
	fresh time.Duration
}

// flight is a call of the store that several callers wait for. result and err are set before done
// is closed.
type flight[T any] struct {
	done   chan struct{}
	result T
	err    error
	// anew is set for a read that Reload began.
	anew bool
}

// NewCatalog creates a catalog of the store's topics.
func NewCatalog(c CatalogConfig) *Catalog {
	return &Catalog{
		steps: steps{store: c.Store, log: cmp.Or(c.Logger, slog.Default())}, entries: make(map[string]*entry),
		loads: make(map[string]*flight[*entry]), heals: make(map[qlog.Ref]*flight[struct{}]),
	}
}

// Topic returns a topic, which must not be changed. It fails with TOPIC_NOT_FOUND unless the topic
// is Live, and with STORE_UNAVAILABLE if the store does not answer and what is known is too old.
// Settings that the store lost are restored. If a creation or a deletion of the topic was broken
// off, it is completed.
func (c *Catalog) Topic(ctx context.Context, name string) (*qlog.Topic, error) {
	if !validName(name) {
		return nil, noTopic()
	}
	c.mu.RLock()
	e := c.entries[name]
	c.mu.RUnlock()
	if e != nil {
		age := time.Since(e.asked)
		if age < e.fresh {
			return e.give()
		}
		if e.topic != nil && age < staleAfter {
			c.load(ctx, name, false)
			return e.give()
		}
	}
	return c.wait(ctx, c.load(ctx, name, false))
}

// Known returns a topic as it was last read, however long ago that was, also while the store is away.
// It is nil if the topic was never read, or did not exist then.
func (c *Catalog) Known(name string) *qlog.Topic {
	c.mu.RLock()
	defer c.mu.RUnlock()
	if e := c.entries[name]; e != nil {
		return e.topic
	}
	return nil
}

// Reload is Topic with a read of the store that begins after the call, or that another Reload
// began.
func (c *Catalog) Reload(ctx context.Context, name string) (*qlog.Topic, error) {
	if !validName(name) {
		return nil, noTopic()
	}
	return c.wait(ctx, c.load(ctx, name, true))
}

// Forget makes the next Topic read the store.
func (c *Catalog) Forget(name string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.entries, name)
	delete(c.loads, name)
}

// Heal brings a partition of a topic in line with the topic's settings. A caller of the store that
// gets ErrNoTopic or ErrNoGroup for a partition and a group that the topic has calls it. So does
// one that gets ErrPaused though the topic is not paused. The partition lost its settings or a
// group, or a change of the topic was broken off. If Heal returns nil, the caller repeats its call
// once. Heal fails with TOPIC_NOT_FOUND if no topic has t's UID any more; another one may have the
// name, which Topic returns. Calls for the same partition share the work.
func (c *Catalog) Heal(ctx context.Context, t *qlog.Topic, partition int) error {
	now, err := c.Reload(ctx, t.Name)
	if err != nil {
		return err
	}
	if now.UID != t.UID || partition < 0 || partition >= now.Partitions {
		return noTopic()
	}
	f := c.heal(ctx, now, partition)
	select {
	case <-f.done:
		return f.err
	case <-ctx.Done():
		return readFault(context.Cause(ctx))
	}
}

// heal joins the healing of a partition, or begins one.
func (c *Catalog) heal(ctx context.Context, t *qlog.Topic, partition int) *flight[struct{}] {
	ref := t.Ref(partition)
	c.mu.Lock()
	defer c.mu.Unlock()
	if f := c.heals[ref]; f != nil {
		return f
	}
	f := &flight[struct{}]{done: make(chan struct{})}
	c.heals[ref] = f
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), loadTimeout)
	go func() {
		defer cancel()
		if err := c.steps.heal(ctx, t, partition); err != nil {
			f.err = writeFault(err)
			c.steps.log.WarnContext(ctx, "a partition cannot be healed", "topic", t.Name, "partition", partition, "error", err)
		}
		c.mu.Lock()
		delete(c.heals, ref)
		c.mu.Unlock()
		close(f.done)
	}()
	return f
}

// load joins the read of a topic, or begins one; anew joins only those that are anew too. The read
// does not end with its caller, because others wait for it too.
func (c *Catalog) load(ctx context.Context, name string, anew bool) *flight[*entry] {
	c.mu.Lock()
	defer c.mu.Unlock()
	if f := c.loads[name]; f != nil && (f.anew || !anew) {
		return f
	}
	f := &flight[*entry]{done: make(chan struct{}), anew: anew}
	c.loads[name] = f
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), loadTimeout)
	go func() {
		defer cancel()
		f.result, f.err = c.read(ctx, name)
		c.finish(name, f)
		close(f.done)
	}()
	return f
}

func (c *Catalog) read(ctx context.Context, name string) (*entry, error) {
	e := &entry{asked: time.Now(), fresh: freshFor - rand.N(freshFor/5)}
	t, err := c.steps.find(ctx, name)
	switch {
	case errors.Is(err, qlog.ErrNoTopic):
		e.fresh = absentFor
	case errors.Is(err, errOvertaken):
		e.fresh = 0 // it may be Live at any moment, and its creator may use it then, on any node
	case err != nil:
		return nil, readFault(err)
	default:
		e.topic = t
	}
	return e, nil
}

// finish remembers what was read, unless the topic was forgotten meanwhile.
func (c *Catalog) finish(name string, f *flight[*entry]) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.loads[name] != f {
		return
	}
	delete(c.loads, name)
	if f.err != nil {
		return
	}
	if c.entries[name] == nil && len(c.entries) >= maxCatalog {
		c.makeRoom()
	}
	c.entries[name] = f.result
}

// makeRoom forgets what is too old to be returned, and if that is not enough, other names. The
// caller holds mu.
func (c *Catalog) makeRoom() {
	now := time.Now()
	for name, e := range c.entries {
		if age := now.Sub(e.asked); age >= staleAfter || e.topic == nil && age >= absentFor {
			delete(c.entries, name)
		}
	}
	for name := range c.entries {
		if len(c.entries) <= maxCatalog*9/10 {
			return
		}
		delete(c.entries, name)
	}
}

func (c *Catalog) wait(ctx context.Context, f *flight[*entry]) (*qlog.Topic, error) {
	select {
	case <-f.done:
	case <-ctx.Done():
		return nil, readFault(context.Cause(ctx))
	}
	if f.err != nil {
		return nil, f.err
	}
	return f.result.give()
}

func (e *entry) give() (*qlog.Topic, error) {
	if e.topic == nil {
		return nil, noTopic()
	}
	return e.topic, nil
}
