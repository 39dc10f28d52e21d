package message

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/parleyhq/parley/server/internal/fault"
)

// maxHeads is the number of channels that a lane remembers with their heads (the ends of their
// logs). Beyond it, idle ones are forgotten. A forgotten one costs one read of the store.
const maxHeads = 65_536

// maxHeadAge is the maximum age of a head that seqs are assigned after. Another node may have
// written since, and then the insert conflicts, unless what it wrote has been deleted again: a
// deleted entry's seq is free. Entries are deleted no earlier than MinIdempotencyWindow after their
// append, which must be much longer.
const maxHeadAge = 10 * time.Minute

// headCurrent reports whether seqs may be assigned after the head.
func (c *channel) headCurrent() bool { return c.head != nil && Elapsed(c.headAt) < maxHeadAge }

// lane is the writer of one shard, which is a share of the channels. It has a queue per channel,
// and a loop that joins items of all its channels into one insert.
//
// A channel is resolved if its head is unknown, its next item must be checked against the log, or
// its last insert failed: a goroutine reads what is missing from the store (resolve.go). The
// channel is left out of inserts meanwhile; other channels continue.
type lane struct {
	ctx        context.Context //nolint:containedctx // the lane's own life, not a caller's
	store      LogWriter
	shard      int
	cfg        *WriterConfig
	resolvers  chan struct{} // shared by all lanes; bounds the channels that are resolved at once
	pending    *byteBudget   // shared by all lanes
	background sync.WaitGroup

	mu       sync.Mutex
	wake     *sync.Cond // signals that work is ready, or that the lane is idle, closed or aborted
	channels map[string]*channel
	ready    []*channel // channels that have items and are not being resolved, in order of arrival
	queued   int        // number of items that have no outcome yet
	closed   bool       // refuses new requests
	aborted  bool       // ends the loop
}

// channel is the lane's state of one log. The lane's lock guards it.
type channel struct {
	id    string
	queue []*request
	// head is the end of the log as of headAt; nil if it is not known for certain.
	head   *Head
	headAt time.Time
	// targets holds the messages that the checked edits and recalls of the queue change, by message
	// id, as of head. The value is nil for a message that does not exist.
	targets map[string]*Entry
	// expectDuplicates is set while new items are likely to be in the log already, as when an import
	// is run a second time. Items are then looked up before they are inserted, because a failed insert
	// costs more than a read.
	expectDuplicates bool
	// resolving is true while the channel is being resolved. queued is true while the channel is in
	// lane.ready.
	resolving, queued bool
}

// newLane returns a lane that refuses requests until open is called.
func newLane(store LogWriter, shard int, cfg *WriterConfig, resolvers chan struct{}, pending *byteBudget) *lane {
	l := &lane{
		store: store, shard: shard, cfg: cfg, resolvers: resolvers, pending: pending, channels: make(map[string]*channel),
		closed: true,
	}
	l.wake = sync.NewCond(&l.mu)
	return l
}

func (l *lane) enqueue(r *request) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		r.fail(errStopping, true)
		return
	}
	var bytes int64
	for _, it := range r.items {
		bytes += it.cost()
	}
	if l.queued+len(r.items) > l.cfg.MaxQueue || !l.pending.reserve(bytes) {
		err := fault.New(fault.ResourceExhausted, fault.RateLimited, "too many pending writes; nothing was stored; retry later")
		err.RetryAfter = 100 * time.Millisecond
		r.fail(err, false)
		return
	}
	l.queued += len(r.items)
	c := l.channels[r.channelID]
	if c == nil {
		l.evictIdle()
		c = &channel{id: r.channelID}
		l.channels[r.channelID] = c
	}
	c.queue = append(c.queue, r)
	l.makeReady(c)
}

// evictIdle drops channels without requests if the lane remembers maxHeads channels.
func (l *lane) evictIdle() {
	if len(l.channels) < maxHeads {
		return
	}
	drop := maxHeads / 4
	for id, c := range l.channels {
		if len(c.queue) == 0 && !c.resolving {
			delete(l.channels, id)
			if drop--; drop == 0 {
				return
			}
		}
	}
}

func (l *lane) makeReady(c *channel) {
	if !c.resolving && !c.queued && len(c.queue) > 0 {
		c.queued = true
		l.ready = append(l.ready, c)
	}
	l.wake.Broadcast()
}

// cancel fails the unsettled items of a request whose caller no longer waits; see request.fail for
// cause. It does nothing if the request has ended.
func (l *lane) cancel(r *request, cause error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if r.ended {
		return
	}
	l.release(r)
	r.fail(cause, false)
	l.wake.Broadcast()
}

// release counts the items of a request that have no outcome as no longer pending. The caller holds
// the lock and fails the request.
func (l *lane) release(r *request) {
	for _, it := range r.items {
		if !it.settled {
			l.queued--
			l.pending.release(it.cost())
		}
	}
}

// settle sets the outcome of an item, unless it has one, and counts it as no longer pending. It
// does that first: a client that has the outcome can append as much again. The caller holds the
// lock.
func (l *lane) settle(r *request, it *item, out Outcome) {
	if it.settled {
		return
	}
	l.pending.release(it.cost())
	r.settle(it, out)
	if l.queued--; l.queued == 0 {
		l.wake.Broadcast()
	}
}

// open starts accepting requests. The calls of the store that they cause end when ctx ends.
func (l *lane) open(ctx context.Context) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.ctx, l.closed = ctx, false
}

func (l *lane) close() {
	l.mu.Lock()
	l.closed = true
	l.wake.Broadcast()
	l.mu.Unlock()
}

func (l *lane) waitIdle() {
	l.mu.Lock()
	for l.queued > 0 && !l.aborted {
		l.wake.Wait()
	}
	l.mu.Unlock()
}

// abort fails the pending requests and makes run return.
func (l *lane) abort() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.aborted = true
	for _, c := range l.channels {
		for _, r := range c.queue {
			if !r.ended {
				l.release(r)
				r.fail(errStopping, true)
			}
		}
	}
	l.wake.Broadcast()
}

// run inserts one batch after another. It returns once the lane is aborted.
func (l *lane) run() {
	for {
		b := l.nextBatch()
		if b == nil {
			return
		}
		if len(b.entries) == 0 {
			continue
		}
		ctx, cancel := context.WithTimeout(l.ctx, l.cfg.CallTimeout)
		start := time.Now()
		n, err := l.store.Insert(ctx, l.shard, b.entries)
		cancel()
		l.cfg.OnInsert(len(b.entries), time.Since(start), err)
		l.finish(b, n, err, start)
	}
}

// batch holds the entries of one insert, and for each the item that it comes from.
type batch struct {
	entries []Entry
	items   []batchItem
	bytes   int
	keys    map[batchKey]struct{}
}

type batchKey struct {
	channelID string
	ClientKey
}

// batchItem is the item, with its request and channel, that an entry of a batch comes from. head is
// the end of the channel's log once the entry is stored.
type batchItem struct {
	channel *channel
	request *request
	item    *item
	head    Head
}

// nextBatch waits for channels with items to insert and returns a batch. The batch may be empty,
// for example if all of them must be resolved first. It returns nil once the lane is aborted.
func (l *lane) nextBatch() *batch {
	l.mu.Lock()
	defer l.mu.Unlock()
	for len(l.ready) == 0 && !l.aborted {
		l.wake.Wait()
	}
	if l.aborted {
		return nil
	}
	b := &batch{keys: make(map[batchKey]struct{})}
	for n := len(l.ready); n > 0 && len(b.entries) < l.cfg.MaxBatch && b.bytes < l.cfg.MaxBatchBytes; n-- {
		c := l.ready[0]
		l.ready = l.ready[1:]
		c.queued = false
		if !c.headCurrent() {
			c.head = nil
			l.startResolve(c, resolveReason{})
			continue
		}
		l.assignSeqs(c, b)
	}
	return b
}

// assignSeqs assigns seqs to the channel's items and adds them to the batch. It stops at the limits
// of the batch, or at the first item that must be checked against the log or depends on the outcome
// of another item in the batch.
func (l *lane) assignSeqs(c *channel, b *batch) {
	c.dropEnded()
	head := *c.head
	touched := make(map[*Entry]bool)
	taken := 0
	for _, r := range c.queue {
		for _, it := range r.items {
			if r.passed(it) {
				continue
			}
			if len(b.entries) >= l.cfg.MaxBatch || b.bytes >= l.cfg.MaxBatchBytes {
				return
			}
			key := batchKey{c.id, it.key()}
			if _, repeated := b.keys[key]; repeated {
				return // wait for the outcome of the item with the same key
			}
			if out, settled := c.checkRev(it, head.Rev); settled {
				l.settle(r, it, out)
				continue
			}
			if c.mustCheck(it) {
				if taken == 0 {
					l.startResolve(c, resolveReason{})
				}
				return
			}
			e := it.entry(c, &head, l.cfg.Now())
			if it.Kind.Changes() {
				t := c.targets[it.MsgID]
				if out, refused := checkChange(it, t); refused {
					if touched[t] { // nil is never touched
						return // the change in this batch must be stored before an answer depends on it
					}
					l.settle(r, it, out)
					continue
				}
				e.change(it, t)
				touched[t] = true
			}
			head.Seq, head.Count, head.Bytes, head.MsgTime, head.Rev = e.Seq, e.Count, e.Bytes, e.MsgTime, e.Rev
			b.keys[key] = struct{}{}
			b.entries = append(b.entries, e)
			b.items = append(b.items, batchItem{c, r, it, head})
			b.bytes += len(e.Content)
			r.inFlight = true
			taken++
		}
	}
	c.dropEnded()
}

// dropEnded removes requests without items left to insert from the queue. If the queue is then
// empty, it also discards the targets.
func (c *channel) dropEnded() {
	n := 0
	for _, r := range c.queue {
		if !r.inserted() {
			c.queue[n] = r
			n++
		}
	}
	clear(c.queue[n:])
	c.queue = c.queue[:n]
	if n == 0 {
		c.targets = nil
	}
}

// discardChecks discards what the last lookup found: the targets, and the checked marks of the
// queued items.
func (c *channel) discardChecks() {
	c.targets = nil
	for _, r := range c.queue {
		for _, it := range r.items {
			it.checked = false
		}
	}
}

// recheck discards the checks of the queued items with a client key that is stored now. Otherwise
// the repeat of a close would be refused, because the message is closed.
func (c *channel) recheck(key ClientKey) {
	for _, r := range c.queue {
		for _, it := range r.items {
			if it.key() == key {
				it.checked = false
			}
		}
	}
}

// inserted reports whether the request has no items left to insert.
func (r *request) inserted() bool {
	if r.ended {
		return true
	}
	for _, it := range r.items {
		if !it.settled && !it.stored {
			return false
		}
	}
	return true
}

// entry returns the item's entry with the seq after head.
func (it *item) entry(c *channel, head *Head, now time.Time) Entry {
	at := now.UTC().Truncate(time.Millisecond)
	if at.Before(head.MsgTime) { // message times must not go back within a channel, even if the clock did
		at = head.MsgTime
	}
	e := Entry{
		Kind: it.Kind, Pending: it.Kind.Changes(), Traceparent: it.Traceparent,
		Message: Message{
			MsgID: it.MsgID, ChannelID: c.id, Seq: head.Seq + 1, Count: head.Count, FromID: it.FromID, MsgType: it.MsgType,
			Content: it.Content, Metadata: it.Metadata, ClientMsgID: it.ClientMsgID, MsgTime: at, ChangedSeq: head.Seq + 1,
			Rev: it.Rev, // not below head.Rev
		},
	}
	if it.Kind == KindSend {
		e.Count++
		e.Digest = newDigest(it.Draft, nil)
		if it.Open {
			e.Status = StatusOpen
		}
	}
	e.Bytes = head.Bytes + e.StoredSize()
	return e
}

// finish processes the result of an insert that began at the given time, of which the first n
// entries are stored.
func (l *lane) finish(b *batch, n int, err error, began time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for i := range b.items {
		b.items[i].request.inFlight = false
	}
	var changes []storedChange
	for i := range b.items[:n] {
		p := &b.items[i]
		head := p.head
		p.channel.head, p.channel.headAt = &head, began
		if !p.item.Kind.Changes() {
			l.settle(p.request, p.item, b.entries[i].outcome(false))
			continue
		}
		p.item.stored = true
		if p.item.Kind.Closes() {
			p.channel.recheck(p.item.key())
		}
		changes = append(changes, storedChange{p.request, p.item, &b.entries[i], false})
	}
	l.applyLater(changes)
	unresolved := make(map[*channel]resolveReason)
	l.handleUnstored(b, n, err, unresolved)
	for i := range b.items {
		c := b.items[i].channel
		c.dropEnded()
		if reason, ok := unresolved[c]; ok {
			delete(unresolved, c)
			c.head = nil
			c.discardChecks()
			l.startResolve(c, reason)
		}
		l.makeReady(c)
	}
	l.wake.Broadcast()
}

// handleUnstored handles the items after the first n of a batch, which an insert that failed with
// err did not store or may not have stored. It marks them and adds their channels to unresolved if
// they must be resolved. A nil err means that all are stored.
func (l *lane) handleUnstored(b *batch, n int, err error, unresolved map[*channel]resolveReason) {
	if err == nil {
		return
	}
	var conflict *ConflictError
	isConflict := errors.As(err, &conflict) && n < len(b.items)
	notStored := isConflict || errors.Is(err, ErrNotStored)
	if !isConflict {
		l.cfg.Logger.WarnContext(l.ctx, "insert failed", "shard", l.shard, "entries", len(b.entries), "stored", n, "error", err)
	}
	for i := n; i < len(b.items); i++ {
		p := &b.items[i]
		switch {
		case isConflict && p.channel == b.items[n].channel:
			p.item.insertFailed = true // forces a lookup: the item may already be in the log
			if _, ok := unresolved[p.channel]; !ok {
				unresolved[p.channel] = resolveReason{conflictSeq: b.entries[i].Seq}
			}
		case isConflict:
			p.channel.discardChecks() // the targets were changed by entries that are not stored
		default:
			p.item.insertFailed = true
			if !notStored {
				p.request.maybeStored = true
			}
			unresolved[p.channel] = resolveReason{delay: true}
		}
	}
}
