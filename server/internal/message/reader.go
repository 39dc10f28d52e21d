package message

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync/atomic"
	"time"

	"github.com/cenkalti/backoff/v5"

	"github.com/parleyhq/parley/server/internal/fault"
)

// ReaderConfig sets a reader's limits; zero values mean the defaults.
type ReaderConfig struct {
	// MaxAge is how old the knowledge of a log's end may be when a page is judged by it: 1 s. It is the promise that a
	// list is never further behind what was acknowledged.
	MaxAge time.Duration
	// MaxPageBytes ends a page with the message that takes its content past it: 1 MiB.
	MaxPageBytes int
	// Patience bounds how long a read waits for a store that is behind: 3 s.
	Patience time.Duration
	// CacheTimeout bounds a look into the cache: 250 ms. A slow cache is no cache.
	CacheTimeout time.Duration
	// CacheLag bounds how long a patient replay waits for a cache that is behind: 1 s.
	CacheLag time.Duration
	// OnList is told of every page, for metrics; may be nil.
	OnList func(fromCache bool)
	Logger *slog.Logger
}

// Reader reads logs: from the cache where a page is provably there and fresh, else from the store. An old cache costs
// speed, never a message. Safe for concurrent use.
type Reader struct {
	log   LogReader
	cache Cache
	epoch string
	cfg   ReaderConfig
	heads heads
	// noWaitUntil is until when nobody waits for a cache that is behind, in Unix nanoseconds, by Bucket of the channel.
	noWaitUntil [lagPauses]atomic.Int64
}

// NewReader makes a reader of logs of this epoch.
func NewReader(log LogReader, cache Cache, epoch string, cfg ReaderConfig) *Reader {
	if cfg.MaxAge == 0 {
		cfg.MaxAge = time.Second
	}
	if cfg.MaxPageBytes == 0 {
		cfg.MaxPageBytes = 1 << 20
	}
	if cfg.Patience == 0 {
		cfg.Patience = 3 * time.Second
	}
	if cfg.CacheTimeout == 0 {
		cfg.CacheTimeout = 250 * time.Millisecond
	}
	if cfg.CacheLag == 0 {
		cfg.CacheLag = time.Second
	}
	if cfg.OnList == nil {
		cfg.OnList = func(bool) {}
	}
	if cfg.Logger == nil {
		cfg.Logger = slog.Default()
	}
	return &Reader{log: log, cache: cache, epoch: epoch, cfg: cfg, heads: heads{log: log}}
}

// Epoch is that of every log.
func (r *Reader) Epoch() string { return r.epoch }

// Saw tells the reader that the channel's log reaches at least seq: nothing that it answers from now on ends before.
func (r *Reader) Saw(channelID string, seq int64) { r.heads.saw(channelID, seq) }

// State tells where a log stands: no older than what was acknowledged when the call began.
func (r *Reader) State(ctx context.Context, channelID string) (State, error) {
	h, err := r.heads.get(ctx, channelID, 0)
	if err != nil {
		return State{}, Unavailable(err)
	}
	return State{Epoch: r.epoch, Oldest: 1, Head: h.Seq, Count: h.Count}, nil // nothing is ever trimmed
}

// Unavailable is the fault of a store that does not answer a read: err itself if that is a fault.
func Unavailable(err error) error {
	if _, ok := fault.As(err); ok {
		return err
	}
	if errors.Is(err, context.Canceled) {
		return fault.Wrap(err, fault.DeadlineExceeded, fault.DeadlinePassed, "the deadline passed")
	}
	// A deadline may be the store's own limit; if it is the caller's, he knows.
	return fault.Wrap(err, fault.Unavailable, fault.StoreUnavailable, "the store does not answer")
}

// pageRange asks for a page of messages; before 0 is no bound.
type pageRange struct {
	channelID     string
	after, before int64
	desc          bool
	minSeq        int64
	size          int
}

// pageResult is a page; last is the seq of its last message, more whether there are messages beyond.
type pageResult struct {
	messages  []Message
	last      int64
	more      bool
	head      int64
	fromCache bool
}

func (r *Reader) page(ctx context.Context, q pageRange) (pageResult, error) {
	head, err := r.headFor(ctx, q.channelID, q.minSeq, q.after)
	if err != nil {
		return pageResult{}, err
	}
	walk := func(read readFunc) (pageResult, error) {
		res, err := r.walk(ctx, q, head, read)
		res.head = head
		return res, err
	}
	res, err := walk(r.readCache)
	res.fromCache = err == nil
	if errors.Is(err, errNotCached) {
		res, err = walk(r.readStore)
	}
	if err == nil {
		r.cfg.OnList(res.fromCache)
	}
	return res, err
}

// headFor gives a log's end as it is at most MaxAge ago, not below what this node has seen. Positions beyond it are
// looked at again, and are out of range if the log truly ends before them.
func (r *Reader) headFor(ctx context.Context, channelID string, minSeq, after int64) (int64, error) {
	h, err := r.heads.get(ctx, channelID, r.cfg.MaxAge)
	if err == nil && max(minSeq, after) > h.Seq {
		h, err = r.heads.get(ctx, channelID, 0)
	}
	if err != nil {
		return 0, Unavailable(err)
	}
	for _, p := range [...]struct {
		field string
		seq   int64
	}{{"min_seq", minSeq}, {"after_seq", after}} {
		if p.seq > h.Seq {
			e := fault.New(fault.OutOfRange, fault.PositionOutOfRange, "%s is beyond the log's end, which is %d", p.field, h.Seq)
			e.Field, e.Limit = p.field, h.Seq
			return 0, e
		}
	}
	return h.Seq, nil
}

// readFunc reads entries of a range, dense from its near end, reaching at least to reach or to the range's limit.
type readFunc func(ctx context.Context, channelID string, rg Range, reach int64) ([]Entry, error)

var errNotCached = errors.New("the cache does not hold the page")

// walk reads entries until it has a page of messages: edits and recalls lie between them.
func (r *Reader) walk(ctx context.Context, q pageRange, head int64, read readFunc) (pageResult, error) {
	var res pageResult
	rg := Range{After: q.after, Before: q.before, Desc: q.desc, MaxBytes: r.cfg.MaxPageBytes}
	if q.before > head+1 {
		rg.Before = head + 1 // what lies beyond the head that was read belongs to a later page
	}
	if rg.Before == 0 {
		rg.Before = head + 1
	}
	bytes := 0
	for rg.After+1 < rg.Before {
		rg.Limit = min(q.size-len(res.messages)+1, 1000)
		entries, err := read(ctx, q.channelID, rg, head)
		if err != nil {
			return res, err
		}
		if res.messages == nil {
			res.messages = make([]Message, 0, min(len(entries), q.size))
		}
		for i := range entries {
			e := &entries[i]
			if e.Kind == KindSend {
				if len(res.messages) == q.size || len(res.messages) > 0 && bytes+len(e.Content) > r.cfg.MaxPageBytes {
					res.more = true
					return res, nil
				}
				bytes += len(e.Content)
				res.messages = append(res.messages, e.Message)
				res.last = e.Seq
			}
			if rg.Desc {
				rg.Before = e.Seq
			} else {
				rg.After = e.Seq
			}
		}
	}
	return res, nil
}

// readCache reads entries from the cache, or fails with errNotCached.
func (r *Reader) readCache(ctx context.Context, channelID string, rg Range, head int64) ([]Entry, error) {
	if r.cache == nil {
		return nil, errNotCached
	}
	ctx, cancel := context.WithTimeout(ctx, r.cfg.CacheTimeout)
	defer cancel()
	p, err := r.cache.Page(ctx, channelID, rg)
	switch {
	case err != nil:
		r.cfg.Logger.DebugContext(ctx, "reading the cache failed", "channel", channelID, "err", err)
		return nil, errNotCached
	case p.Epoch != r.epoch:
		return nil, errNotCached
	case p.Newest < head && p.Oldest <= rg.After+1:
		return nil, errCacheBehind
	case p.Newest < head:
		return nil, errNotCached
	}
	entries := make([]Entry, len(p.Entries))
	for i := range p.Entries {
		c := &p.Entries[i]
		entries[i] = Entry{Kind: c.Kind, TargetSeq: c.TargetSeq, Message: c.Message}
		entries[i].ChannelID, entries[i].Seq, entries[i].Count = channelID, c.Seq, c.Count
	}
	if !dense(entries, rg, head) {
		return nil, errNotCached
	}
	return entries, nil
}

// readStore reads entries from the store, again and again while it does not reach as far as is known.
func (r *Reader) readStore(ctx context.Context, channelID string, rg Range, head int64) ([]Entry, error) {
	patience, cancel := context.WithTimeoutCause(ctx, r.cfg.Patience, errBehind)
	defer cancel()
	entries, err := backoff.Retry(patience, func() ([]Entry, error) {
		entries, err := r.log.Entries(patience, channelID, rg)
		if err != nil {
			return nil, backoff.Permanent(err)
		}
		if !dense(entries, rg, head) {
			return nil, errBehind
		}
		if err := r.complete(ctx, channelID, entries); err != nil {
			return nil, backoff.Permanent(err)
		}
		return entries, nil
	}, backoff.WithBackOff(&backoff.ExponentialBackOff{
		InitialInterval: 5 * time.Millisecond, RandomizationFactor: 0.5, Multiplier: 2, MaxInterval: 250 * time.Millisecond,
	}), backoff.WithMaxElapsedTime(r.cfg.Patience))
	if err != nil && patience.Err() != nil && ctx.Err() == nil {
		err = errBehind // however the end of patience shows
	}
	if err != nil {
		return nil, Unavailable(err)
	}
	return entries, nil
}

// complete applies to messages what the log holds of edits and recalls. Who appended one may have died before the store
// applied it, and a log that is shown up to its head is shown with all that it says.
func (r *Reader) complete(ctx context.Context, channelID string, entries []Entry) error {
	var sends []int64
	for i := range entries {
		if entries[i].Kind == KindSend {
			sends = append(sends, entries[i].Seq)
		}
	}
	if len(sends) == 0 {
		return nil
	}
	changes, err := r.log.Changes(ctx, channelID, sends)
	if err != nil {
		return err
	}
	at := make(map[int64]*Entry, len(sends))
	for i := range entries {
		if entries[i].Kind == KindSend {
			at[entries[i].Seq] = &entries[i]
		}
	}
	for i := range changes {
		if target := at[changes[i].TargetSeq]; target != nil {
			target.apply(&changes[i])
		}
	}
	return nil
}

// errBehind is the fault of a store whose reads do not reach what is known to be there.
var errBehind = fault.New(fault.Unavailable, fault.StoreUnavailable, "the store is behind; try again")

// dense tells whether entries are the range's, from its near end on without a hole, as far as the limits or the head
// let them reach. The range's Before is at most head+1.
func dense(entries []Entry, rg Range, head int64) bool {
	last := min(rg.Before-1, head)
	if rg.Before == 0 {
		last = head
	}
	if rg.After >= last {
		return true
	}
	next, step := rg.After+1, int64(1)
	if rg.Desc {
		next, step = last, -1
	}
	bytes := 0
	for i := range entries {
		if entries[i].Seq != next {
			return false
		}
		bytes += len(entries[i].Content)
		next += step
	}
	ended := next == rg.After && rg.Desc || next == last+1 && !rg.Desc
	return ended || len(entries) > 0 && (len(entries) == rg.Limit || rg.MaxBytes > 0 && bytes >= rg.MaxBytes)
}

// CountAt gives how many messages the log holds up to and with the entry at seq. It fails if the log ends before that.
func (r *Reader) CountAt(ctx context.Context, channelID string, seq int64) (int64, error) {
	rg := Range{After: seq - 1, Before: seq + 1, Limit: 1}
	entries, err := r.readCache(ctx, channelID, rg, seq)
	if errors.Is(err, errNotCached) {
		entries, err = r.readStore(ctx, channelID, rg, seq)
	}
	if err != nil {
		return 0, err
	}
	if len(entries) == 0 {
		return 0, fmt.Errorf("channel %s: asked for the count at %d", channelID, seq)
	}
	return entries[0].Count, nil
}

// MessageAt gives the message at seq, as it is now. ok is false if the log ends before it, or holds an edit or a recall
// there.
func (r *Reader) MessageAt(ctx context.Context, channelID string, seq int64) (m Message, ok bool, err error) {
	for last := false; ; last = true {
		es, err := r.log.Messages(ctx, channelID, []int64{seq})
		if err != nil {
			return Message{}, false, Unavailable(err)
		}
		if len(es) == 1 {
			if err := r.complete(ctx, channelID, es); err != nil {
				return Message{}, false, Unavailable(err)
			}
			return es[0].Message, true, nil
		}
		if last {
			return Message{}, false, nil
		}
		// As in message: a read may be behind.
		if _, err := r.heads.get(ctx, channelID, 0); err != nil {
			return Message{}, false, Unavailable(err)
		}
	}
}

// message returns one message by its id, in a state that includes the entry at atLeast if that entry changed it.
func (r *Reader) message(ctx context.Context, channelID, msgID string, atLeast int64) (Message, error) {
	for last := false; ; last = true {
		e, ok, err := r.log.Message(ctx, channelID, msgID)
		if err != nil {
			return Message{}, Unavailable(err)
		}
		if ok {
			found := []Entry{e}
			if err := r.complete(ctx, channelID, found); err != nil {
				return Message{}, Unavailable(err)
			}
			if m := found[0].Message; m.ChangedSeq >= atLeast {
				return m, nil
			}
		}
		switch {
		case last && ok:
			return Message{}, fault.New(fault.Unavailable, fault.StoreUnavailable, "the store is behind")
		case last:
			f := fault.New(fault.NotFound, fault.MessageNotFound, "the channel has no message with this msg_id")
			f.Field = "msg_id"
			return Message{}, f
		}
		// A read may be behind; one after a linearizable read of the head is not.
		if _, err := r.heads.get(ctx, channelID, 0); err != nil {
			return Message{}, Unavailable(err)
		}
	}
}

// Replay returns the events after a place, dense from after+1 and each with its message as it now is: up to limit of
// them or about maxBytes of content, at least one if the log holds one up to atLeast. It takes them from the cache
// where that reaches atLeast, for which a patient caller waits up to ReaderConfig.CacheLag if it is only behind.
func (r *Reader) Replay(
	ctx context.Context, channelID string, after, atLeast int64, limit, maxBytes int, patient bool,
) ([]Event, error) {
	if after >= atLeast {
		return nil, nil
	}
	rg := Range{After: after, Before: atLeast + 1, Limit: limit, MaxBytes: maxBytes}
	read := r.readCache
	if patient {
		read = r.readLevelCache
	}
	entries, err := read(ctx, channelID, rg, atLeast)
	if errors.Is(err, errNotCached) {
		entries, err = r.readStore(ctx, channelID, rg, atLeast)
	}
	if err != nil {
		return nil, err
	}
	return r.events(ctx, channelID, entries, maxBytes)
}

// events makes events of entries: those of edits and recalls carry their targets.
func (r *Reader) events(ctx context.Context, channelID string, entries []Entry, maxBytes int) ([]Event, error) {
	sends := make(map[int64]*Entry, len(entries))
	var missing []int64
	for i := range entries {
		if entries[i].Kind == KindSend {
			sends[entries[i].Seq] = &entries[i]
		}
	}
	for i := range entries {
		if e := &entries[i]; e.Kind != KindSend && sends[e.TargetSeq] == nil {
			missing = append(missing, e.TargetSeq)
		}
	}
	if len(missing) > 0 {
		slices.Sort(missing)
		targets, err := r.log.Messages(ctx, channelID, slices.Compact(missing))
		if err != nil {
			return nil, Unavailable(err)
		}
		if err := r.complete(ctx, channelID, targets); err != nil {
			return nil, Unavailable(err)
		}
		for i := range targets {
			sends[targets[i].Seq] = &targets[i]
		}
	}
	events := make([]Event, 0, len(entries))
	bytes := 0
	for i := range entries {
		e := &entries[i]
		m := e
		if e.Kind != KindSend {
			if m = sends[e.TargetSeq]; m == nil {
				return nil, fmt.Errorf("channel %s: entry %d changes %d, which is not there", channelID, e.Seq, e.TargetSeq)
			}
			if m.ChangedSeq < e.Seq { // the entry is cached, and the store's answer is from before it
				return nil, errBehind
			}
		}
		if bytes += len(m.Content); maxBytes > 0 && bytes > maxBytes && len(events) > 0 {
			break
		}
		events = append(events, Event{
			Kind: e.Kind, Epoch: r.epoch, Seq: e.Seq, Count: e.Count, Time: e.MsgTime, Message: m.Message,
			Traceparent: e.Traceparent,
		})
	}
	return events, nil
}
