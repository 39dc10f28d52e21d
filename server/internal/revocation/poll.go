package revocation

import (
	"context"
	"math/rand/v2"
	"time"

	"github.com/parleyhq/parley/server/internal/lifecycle"
)

const (
	// trust is how long after the begin of a poll, if the store answered it, this node knows all
	// revocations.
	trust = time.Second
	// pollsAtOnce bounds the polls in progress. There are several so that a store that takes half a
	// second for an answer is still heard in time.
	pollsAtOnce = 4
	// pollWait bounds a poll. One that takes longer than trust still returns what was revoked, but
	// does not prove that nothing else was.
	pollWait = 2 * time.Second
	// listPage is the number of entries of one call of Store.List, and pageWait its time limit.
	listPage, pageWait = 1000, 10 * time.Second
	// reloadAfter is the silence after which all revocations are read again.
	reloadAfter = time.Minute
)

// load reads all revocations. The stamp is from before it reads them, so that the first poll has
// what is revoked meanwhile.
func (l *List) load(ctx context.Context) error {
	began := time.Now()
	first, cancel := context.WithTimeout(ctx, pageWait)
	defer cancel()
	_, stamp, err := l.cfg.Store.Changes(first, Stamp{})
	if err != nil {
		return err
	}
	err = l.each(ctx, func(entries []Entry) error {
		l.apply(entries, true)
		return nil
	})
	if err != nil {
		return err
	}
	l.mu.Lock()
	if later(stamp, l.stamp) {
		l.stamp = stamp
	}
	l.mu.Unlock()
	l.hear(began)
	return nil
}

// each passes all entries of the store to fn, page by page.
func (l *List) each(ctx context.Context, fn func([]Entry) error) error {
	after := ""
	for {
		entries, err := l.page(ctx, after)
		if err != nil {
			return err
		}
		if err := fn(entries); err != nil || len(entries) < listPage {
			return err
		}
		after = entries[len(entries)-1].Key
	}
}

// page is a call of Store.List.
func (l *List) page(ctx context.Context, after string) ([]Entry, error) {
	ctx, cancel := context.WithTimeout(ctx, pageWait)
	defer cancel()
	return l.cfg.Store.List(ctx, after, listPage)
}

// poll asks the store for new entries until ctx ends.
func (l *List) poll(ctx context.Context, run *lifecycle.Run) {
	slots := make(chan struct{}, pollsAtOnce)
	forgotten := time.Now()
	for wait := time.Duration(0); lifecycle.Pause(ctx, wait) == nil; wait = l.cfg.Interval - rand.N(l.cfg.Interval/10+1) {
		if time.Since(forgotten) >= forgetEvery {
			l.forget()
			forgotten = time.Now()
		}
		select {
		case slots <- struct{}{}:
			run.Go(func(ctx context.Context) {
				defer func() { <-slots }()
				l.pollOnce(ctx)
			})
		default: // the store hangs
		}
	}
}

func (l *List) pollOnce(ctx context.Context) {
	if l.silence() > reloadAfter {
		l.reload(ctx)
		return
	}
	began := time.Now()
	ctx, cancel := context.WithTimeout(ctx, pollWait)
	defer cancel()
	l.mu.RLock()
	after := l.stamp
	l.mu.RUnlock()
	entries, next, err := l.cfg.Store.Changes(ctx, after)
	if err != nil {
		l.cfg.Logger.DebugContext(ctx, "asking for revocations failed", "error", err)
		return
	}
	l.apply(entries, true)
	l.mu.Lock()
	if later(next, l.stamp) {
		l.stamp = next
	}
	l.mu.Unlock()
	l.hear(began)
	l.keeper.add(entries)
	l.store(ctx)
}

// reload reads all revocations, page by page: after a long silence one poll could be too long.
func (l *List) reload(ctx context.Context) {
	if !l.reloading.CompareAndSwap(false, true) {
		return
	}
	defer l.reloading.Store(false)
	if err := l.load(ctx); err != nil {
		l.cfg.Logger.DebugContext(ctx, "reading the revocations failed", "error", err)
	}
}

// store repeats the calls of Store.Revoke that were not confirmed.
func (l *List) store(ctx context.Context) {
	l.mu.Lock()
	entries := l.unstored
	l.unstored = nil
	l.mu.Unlock()
	for i, e := range entries {
		if err := l.cfg.Store.Revoke(ctx, e); err != nil {
			l.mu.Lock()
			l.unstored = append(l.unstored, entries[i:]...)
			l.mu.Unlock()
			return
		}
		l.apply([]Entry{e}, true)
	}
}

func later(a, b Stamp) bool { return a.Hi > b.Hi || a.Hi == b.Hi && a.Lo > b.Lo }

// hear records that a poll that began then was answered.
func (l *List) hear(began time.Time) {
	at := int64(began.Sub(l.began))
	for {
		was := l.heard.Load()
		if at <= was || l.heard.CompareAndSwap(was, at) {
			return
		}
	}
}

// current reports whether the node knows all revocations that were acknowledged: it has heard from
// the store recently enough, or makes them all itself.
func (l *List) current() bool { return l.cfg.Alone || l.silence() <= trust }

// silence returns how long ago the newest poll that the store answered began.
func (l *List) silence() time.Duration {
	return time.Since(l.began) - time.Duration(l.heard.Load())
}
