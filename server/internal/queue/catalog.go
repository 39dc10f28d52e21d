package queue

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/parleyhq/parley/server/internal/fault"
)

const (
	// freshFor is how long a topic is answered from memory without another thought, less up to a fifth; after that it is
	// read anew while the old one still serves, until staleAfter.
	freshFor   = time.Second
	staleAfter = 2 * time.Second
	// absentFor is how long a topic that is not there is taken for absent.
	absentFor = 250 * time.Millisecond
	// loadTimeout bounds a read that serves all who wait for it.
	loadTimeout = 2 * time.Second
	// maxCatalog bounds the names that are remembered, absent ones among them.
	maxCatalog = 10_000
)

// Catalog knows topics by name. What it answers is at most two seconds old, counted from when the store was asked; most of
// it less than one. Safe for concurrent use.
type Catalog struct {
	store TopicStore

	mu      sync.RWMutex
	entries map[string]*catalogEntry
	loads   map[string]*catalogLoad
}

// catalogEntry is what the store told. It is not changed.
type catalogEntry struct {
	// topic is nil if there is none, or none that is whole.
	topic *Topic
	// asked is when the store was asked; fresh is how long after it nothing needs to be read.
	asked time.Time
	fresh time.Duration
}

// catalogLoad is a read of the store that is under way. err and entry are set before done is closed.
type catalogLoad struct {
	done  chan struct{}
	entry *catalogEntry
	err   error
	// anew is true of a read that Reload began.
	anew bool
}

// NewCatalog makes a catalog of the store's topics.
func NewCatalog(store TopicStore) *Catalog {
	return &Catalog{store: store, entries: make(map[string]*catalogEntry), loads: make(map[string]*catalogLoad)}
}

// Topic gives a topic, which must not be changed; TOPIC_NOT_FOUND unless it is Live, and STORE_UNAVAILABLE once what is known
// is too old and the store does not answer.
func (c *Catalog) Topic(ctx context.Context, name string) (*Topic, error) {
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
	return c.load(ctx, name, false).wait(ctx)
}

// Reload reads the topic from the store, whatever is known of it; errors as Topic. Calls at the same time share the read.
func (c *Catalog) Reload(ctx context.Context, name string) (*Topic, error) {
	return c.load(ctx, name, true).wait(ctx)
}

// Forget makes the next Topic read the store.
func (c *Catalog) Forget(name string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.entries, name)
	delete(c.loads, name)
}

// Names gives the names of all topics, in order, whole or not. It reads the store.
func (c *Catalog) Names(ctx context.Context) ([]string, error) {
	names, err := c.store.TopicNames(ctx)
	if err != nil {
		return nil, unread(err)
	}
	return names, nil
}

// load joins the read of the topic that is under way, or begins one; anew joins none but those that are anew too. It outlives
// its caller, for others wait for it too.
func (c *Catalog) load(ctx context.Context, name string, anew bool) *catalogLoad {
	c.mu.Lock()
	defer c.mu.Unlock()
	if l := c.loads[name]; l != nil && (l.anew || !anew) {
		return l
	}
	l := &catalogLoad{done: make(chan struct{}), anew: anew}
	c.loads[name] = l
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), loadTimeout)
	go func() {
		defer cancel()
		l.entry, l.err = c.read(ctx, name)
		c.finish(name, l)
		close(l.done)
	}()
	return l
}

func (c *Catalog) read(ctx context.Context, name string) (*catalogEntry, error) {
	e := &catalogEntry{asked: time.Now(), fresh: freshFor - rand.N(freshFor/5)}
	t, err := c.store.Topic(ctx, name)
	switch {
	case errors.Is(err, ErrNoTopic):
		e.fresh = absentFor
	case err != nil:
		return nil, unread(err)
	case t.State == Making:
		e.fresh = 0 // it may be whole at any moment, and whoever makes it may use it then, on any node
	case t.State != Live:
		e.fresh = absentFor
	default:
		e.topic = t
	}
	return e, nil
}

// finish keeps what was read, unless the topic was forgotten meanwhile.
func (c *Catalog) finish(name string, l *catalogLoad) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.loads[name] != l {
		return
	}
	delete(c.loads, name)
	if l.err != nil {
		return
	}
	if c.entries[name] == nil && len(c.entries) >= maxCatalog {
		c.makeRoom()
	}
	c.entries[name] = l.entry
}

// makeRoom drops what is of no more use, or else some. mu is held.
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

func (l *catalogLoad) wait(ctx context.Context) (*Topic, error) {
	select {
	case <-l.done:
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
	if l.err != nil {
		return nil, l.err
	}
	return l.entry.give()
}

func (e *catalogEntry) give() (*Topic, error) {
	if e.topic == nil {
		return nil, noTopic()
	}
	return e.topic, nil
}

func noTopic() *fault.Error {
	e := fault.New(fault.NotFound, fault.TopicNotFound, "there is no such topic")
	e.Field = "topic"
	return e
}
