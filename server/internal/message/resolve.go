package message

import (
	"context"
	"slices"
	"time"

	"github.com/cenkalti/backoff/v5"
)

// resolveReason describes the failed insert because of which a channel is resolved. It is zero if
// no insert failed.
type resolveReason struct {
	// conflictSeq is the seq of the entry that could not be inserted because its seq or its client key
	// is taken; 0 if there was no conflict.
	conflictSeq int64
	// delay makes resolve wait before its first read. It is set after any error but a conflict.
	delay bool
}

// maxConflictReads is how often a channel is read after a conflict with an entry that is not
// visible, until the insert is tried again. With the pauses in between they take about two seconds.
const maxConflictReads = 8

// startResolve starts a goroutine that reads the channel's head and the data to check its items
// against. The channel is left out of inserts until it succeeds. If one is running already,
// startResolve does nothing. The caller holds the lane's lock.
func (l *lane) startResolve(c *channel, reason resolveReason) {
	if c.resolving {
		return
	}
	c.resolving = true
	l.background.Go(func() { l.resolve(c, reason) })
}

// lookupResult is what the store holds for a channel's items: stored entries by client key, and the
// targets of edits and recalls by message id, nil for a message that does not exist.
type lookupResult struct {
	head       Head
	began      time.Time // when the read of head began
	duplicates map[ClientKey]Entry
	targets    map[string]*Entry
}

// resolve reads from the store until the state of the channel is known, the channel has no items
// left, or the lane's context ends.
func (l *lane) resolve(c *channel, reason resolveReason) {
	wait := backoff.NewExponentialBackOff()
	wait.InitialInterval, wait.MaxInterval = 5*time.Millisecond, time.Second
	conflicts := 0
	for pause := reason.delay; ; pause = true {
		if pause && !l.sleep(wait.NextBackOff()) {
			break
		}
		items, repeats := l.openItems(c)
		if items == nil {
			break
		}
		f, err := l.lookup(c, items, repeats)
		if err != nil {
			if l.ctx.Err() == nil {
				l.cfg.Logger.WarnContext(l.ctx, "reading a channel head failed", "channel_id", c.id, "error", err)
			}
			continue
		}
		// The conflicting entry is not visible yet. Wait for it. If it does not appear, it is gone: an
		// expired entry with the same client key was deleted meanwhile. The insert is tried again then,
		// with the same seq, so it conflicts if the entry was only late.
		if reason.conflictSeq > f.head.Seq && len(f.duplicates) == 0 && conflicts < maxConflictReads {
			conflicts++
			continue
		}
		l.applyLookup(c, items, f)
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	c.resolving = false
	c.dropEnded()
	l.makeReady(c)
}

func (l *lane) sleep(d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-l.ctx.Done():
		return false
	}
}

// openItems returns the channel's items that are neither settled nor stored, at most one batch; nil
// if there are none. repeats reports whether lookup must search the log for all of them, because
// they are probably stored already. Items beyond the batch are checked later, if they must be.
func (l *lane) openItems(c *channel) (items []*item, repeats bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	c.dropEnded()
	for _, r := range c.queue {
		for _, it := range r.items {
			if !it.settled && !it.stored && len(items) < l.cfg.MaxBatch {
				items = append(items, it)
			}
		}
	}
	return items, c.expectDuplicates
}

// lookup reads the channel's head, the entries that already have the items' client keys, and the
// targets of edits and recalls. If repeats is not set, it omits the keys of sends whose insert has
// not failed yet. It reads the head first, so that the rest is no older, and the targets before the
// keys: if another attempt of a close is stored in between, it is found, and not only that the
// message is closed.
func (l *lane) lookup(c *channel, items []*item, repeats bool) (lookupResult, error) {
	select {
	case l.resolvers <- struct{}{}:
		defer func() { <-l.resolvers }()
	case <-l.ctx.Done():
		return lookupResult{}, context.Cause(l.ctx)
	}
	ctx, cancel := context.WithTimeout(l.ctx, l.cfg.CallTimeout)
	defer cancel()
	f := lookupResult{targets: make(map[string]*Entry), began: time.Now()}
	var err error
	if f.head, err = l.store.Head(ctx, c.id); err != nil {
		return f, err
	}
	if err := l.lookupTargets(ctx, c, items, &f); err != nil {
		return f, err
	}
	var keys []ClientKey
	for _, it := range items {
		if repeats || it.insertFailed || it.Kind.Changes() {
			keys = append(keys, it.key())
		}
	}
	if len(keys) > 0 {
		f.duplicates, err = l.store.ByClientKeys(ctx, c.id, keys)
	}
	return f, err
}

// lookupTargets reads the targets of the edits and recalls among items. A message that has expired
// does not exist, except for its erasure.
func (l *lane) lookupTargets(ctx context.Context, c *channel, items []*item, f *lookupResult) error {
	var ids []string
	erased := make(map[string]bool)
	for _, it := range items {
		if !it.Kind.Changes() {
			continue
		}
		if _, ok := f.targets[it.MsgID]; !ok {
			f.targets[it.MsgID] = nil
			ids = append(ids, it.MsgID)
		}
		erased[it.MsgID] = erased[it.MsgID] || it.erases()
	}
	if len(ids) == 0 {
		return nil
	}
	targets, err := l.store.Targets(ctx, c.id, ids)
	for id, e := range targets {
		if e.Seq >= f.head.First() || erased[id] {
			f.targets[id] = &e
		}
	}
	return err
}

// applyLookup applies the result of lookup: it settles the items that are stored already, and ends
// the resolving of the channel, so that its other items are inserted after the head.
func (l *lane) applyLookup(c *channel, items []*item, f lookupResult) {
	l.mu.Lock()
	defer l.mu.Unlock()
	var changes []storedChange
	checked := make(map[*item]bool, len(items))
	for _, it := range items {
		checked[it] = true
	}
	for _, r := range c.queue {
		for _, it := range r.items {
			if !checked[it] || it.settled || it.stored {
				continue
			}
			it.checked = true
			e, found := f.duplicates[it.key()]
			if !found {
				continue
			}
			out := duplicateOutcome(it, &e, f.targets[it.MsgID])
			if !it.Kind.Changes() || out.Err != nil || e.Kind == KindExpired {
				l.settle(r, it, out)
				continue
			}
			it.stored = true
			duplicate := !it.insertFailed // if it was tried, that try most likely stored it
			changes = append(changes, storedChange{r, it, &e, duplicate})
		}
		// An item that was tried and is not found was not stored, as far as reads can show. It is
		// tried again.
	}
	l.applyLater(changes)
	head := f.head
	c.headAt = f.began
	c.head, c.targets, c.expectDuplicates, c.resolving = &head, f.targets, len(f.duplicates) > 0, false
	c.dropEnded()
	l.makeReady(c)
}

// storedChange is an edit or a recall whose entry is stored, and the item that it comes from.
type storedChange struct {
	request   *request
	item      *item
	entry     *Entry
	duplicate bool // whether the outcome says so
}

// appliesAtOnce is the maximum number of changes in one call of the store's Apply, so that it ends
// within the time for a call.
const appliesAtOnce = 250

// applyLater starts to apply changes, those of one insert or lookup together.
func (l *lane) applyLater(changes []storedChange) {
	if len(changes) == 0 {
		return
	}
	l.background.Go(func() {
		for some := range slices.Chunk(changes, appliesAtOnce) {
			l.applyAndSettle(some)
		}
	})
}

// applyAndSettle changes the targets of stored edits and recalls, retrying until it succeeds or the
// lane's context ends. It then settles their items.
func (l *lane) applyAndSettle(changes []storedChange) {
	entries := make([]*Entry, len(changes))
	for i, c := range changes {
		entries[i] = c.entry
	}
	applied := l.apply(entries)
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, c := range changes {
		switch {
		case applied:
			l.settle(c.request, c.item, c.entry.outcome(c.duplicate))
		case !c.request.ended:
			// Once all its items are stored, a request is in no queue, so abort does not find it. The Feeder
			// applies the change.
			l.release(c.request)
			c.request.fail(errStopping, true)
		}
	}
	l.wake.Broadcast()
}

// apply calls the store's Apply until it succeeds. It returns false if the lane's context ends
// first.
func (l *lane) apply(entries []*Entry) bool {
	wait := backoff.NewExponentialBackOff()
	wait.InitialInterval, wait.MaxInterval = 5*time.Millisecond, time.Second
	for {
		ctx, cancel := context.WithTimeout(l.ctx, l.cfg.CallTimeout)
		err := l.store.Apply(ctx, entries...)
		cancel()
		if err == nil {
			return true
		}
		if !l.sleep(wait.NextBackOff()) {
			return false
		}
		l.cfg.Logger.WarnContext(l.ctx, "applying message changes failed", "shard", l.shard, "changes", len(entries),
			"first_channel_id", entries[0].ChannelID, "first_seq", entries[0].Seq, "error", err)
	}
}
