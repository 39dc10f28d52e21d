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

// ReaderConfig sets a reader's limits. Zero values mean the defaults.
type ReaderConfig struct {
	// MaxAge is the maximum age of the cached end of the log that a page is checked against. A list
	// includes every entry that was acknowledged longer ago. The default is 1 s.
	MaxAge time.Duration
	// MaxPageBytes is the maximum size of a page's content. A page has at least one message, which
	// may be larger. The default is 1 MiB.
	MaxPageBytes int
	// StoreTimeout bounds one read of the store, with its repeats while the store is behind. The
	// default is 3 s.
	StoreTimeout time.Duration
	// CacheTimeout bounds one read of the cache. A read that takes longer counts as a miss. The
	// default is 250 ms.
	CacheTimeout time.Duration
	// CacheLagTimeout bounds how long Replay waits, if patient is set, for a cache that is behind. The
	// default is 1 s.
	CacheLagTimeout time.Duration
	// OnList is called, possibly concurrently, for every page of a list that was read, for metrics;
	// may be nil.
	OnList func(fromCache bool)
	Logger *slog.Logger
}

// Reader reads logs. It uses the cache if the cache provably holds the page and is fresh, and the
// store otherwise. An outdated cache costs speed, never a message. It is safe for concurrent use.
type Reader struct {
	log   LogReader
	cache Cache
	epoch string
	cfg   ReaderConfig
	heads heads
	// noWaitUntil holds the time in Unix nanoseconds until which replays do not wait for a cache that
	// is behind. The index is the channel's Bucket of lagShards.
	noWaitUntil [lagShards]atomic.Int64
}

// NewReader returns a reader of logs of this epoch. A nil cache means that every read goes to the
// store.
func NewReader(log LogReader, cache Cache, epoch string, cfg ReaderConfig) *Reader {
	if cfg.MaxAge == 0 {
		cfg.MaxAge = time.Second
	}
	if cfg.MaxPageBytes == 0 {
		cfg.MaxPageBytes = 1 << 20
	}
	if cfg.StoreTimeout == 0 {
		cfg.StoreTimeout = 3 * time.Second
	}
	if cfg.CacheTimeout == 0 {
		cfg.CacheTimeout = 250 * time.Millisecond
	}
	if cfg.CacheLagTimeout == 0 {
		cfg.CacheLagTimeout = time.Second
	}
	if cfg.OnList == nil {
		cfg.OnList = func(bool) {}
	}
	if cfg.Logger == nil {
		cfg.Logger = slog.Default()
	}
	return &Reader{log: log, cache: cache, epoch: epoch, cfg: cfg, heads: heads{log: log}}
}

// ObserveSeq records that the channel's log reaches at least seq. Later lists do not take an
// earlier entry for the end of the log.
func (r *Reader) ObserveSeq(channelID string, seq int64) { r.heads.observe(channelID, seq) }

// State returns the state of a log. It includes every entry that was acknowledged before the call.
func (r *Reader) State(ctx context.Context, channelID string) (State, error) {
	h, err := r.heads.get(ctx, channelID, 0)
	if err != nil {
		return State{}, Unavailable(err)
	}
	return State{Epoch: r.epoch, Oldest: 1, Head: h.Seq, Count: h.Count}, nil // logs are never trimmed
}

// Unavailable returns the fault for a store that does not answer a read: DeadlineExceeded if err is
// context.Canceled, otherwise Unavailable. If err is a fault already, it returns err.
func Unavailable(err error) error {
	if _, ok := fault.As(err); ok {
		return err
	}
	if errors.Is(err, context.Canceled) {
		return fault.Wrap(err, fault.DeadlineExceeded, fault.DeadlinePassed, "the deadline passed")
	}
	// A deadline may be the store's own limit. If it is the caller's, the caller knows.
	return fault.Wrap(err, fault.Unavailable, fault.StoreUnavailable, "the store does not answer")
}

// pageRange selects a page of messages. after and before are exclusive; a before of 0 means no
// upper bound.
type pageRange struct {
	channelID     string
	after, before int64
	desc          bool
	minSeq        int64
	size          int
}

// pageResult is a page. last is the seq of its last message. more reports whether further messages
// follow in the page's direction. head is the end of the log that the page was checked against.
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

// headFor returns the seq of a log's last entry, at most MaxAge old and not below the seqs passed
// to ObserveSeq. If minSeq or after is beyond it, the head is read again; if they are still beyond
// it, the error is POSITION_OUT_OF_RANGE.
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
			e := fault.New(fault.OutOfRange, fault.PositionOutOfRange, "%s: beyond the end of the log at seq %d", p.field, h.Seq)
			e.Field, e.Limit = p.field, h.Seq
			return 0, e
		}
	}
	return h.Seq, nil
}

// readFunc reads all entries of a range, without a gap, or fails. Only rg.Limit and rg.MaxBytes may
// end the result early. reach is a seq that the log has; rg.Before is at most reach+1.
type readFunc func(ctx context.Context, channelID string, rg Range, reach int64) ([]Entry, error)

var errNotCached = errors.New("page not in cache")

// walk reads entries until it has a page of messages or the range ends. Several reads may be
// necessary because of edits and recalls between the messages.
func (r *Reader) walk(ctx context.Context, q pageRange, head int64, read readFunc) (pageResult, error) {
	var res pageResult
	rg := Range{After: q.after, Before: q.before, Desc: q.desc, MaxBytes: r.cfg.MaxPageBytes}
	if q.before > head+1 {
		rg.Before = head + 1 // entries beyond the head that was read belong to a later page
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

// readCache reads entries from the cache. If the cache cannot serve the range up to the seq reach,
// it fails with errNotCached, or with errCacheBehind, which wraps it.
func (r *Reader) readCache(ctx context.Context, channelID string, rg Range, reach int64) ([]Entry, error) {
	if r.cache == nil {
		return nil, errNotCached
	}
	ctx, cancel := context.WithTimeout(ctx, r.cfg.CacheTimeout)
	defer cancel()
	p, err := r.cache.Page(ctx, channelID, rg)
	switch {
	case err != nil:
		r.cfg.Logger.DebugContext(ctx, "reading the cache failed", "channel_id", channelID, "error", err)
		return nil, errNotCached
	case p.Epoch != r.epoch:
		return nil, errNotCached
	case p.Newest < reach && p.Oldest <= rg.After+1:
		return nil, errCacheBehind
	case p.Newest < reach:
		return nil, errNotCached
	}
	entries := make([]Entry, len(p.Entries))
	for i := range p.Entries {
		c := &p.Entries[i]
		entries[i] = Entry{Kind: c.Kind, TargetSeq: c.TargetSeq, Message: c.Message}
		entries[i].ChannelID, entries[i].Seq, entries[i].Count = channelID, c.Seq, c.Count
	}
	if !dense(entries, rg, reach) {
		return nil, errNotCached
	}
	return entries, nil
}

// readStore reads entries from the store. It retries until the result has the range up to the seq
// reach, or StoreTimeout ends.
func (r *Reader) readStore(ctx context.Context, channelID string, rg Range, reach int64) ([]Entry, error) {
	bounded, cancel := context.WithTimeoutCause(ctx, r.cfg.StoreTimeout, errStoreBehind)
	defer cancel()
	entries, err := backoff.Retry(bounded, func() ([]Entry, error) {
		entries, err := r.log.Entries(bounded, channelID, rg)
		if err != nil {
			return nil, backoff.Permanent(err)
		}
		if !dense(entries, rg, reach) {
			return nil, errStoreBehind
		}
		if err := r.applyChanges(ctx, channelID, entries); err != nil {
			return nil, backoff.Permanent(err)
		}
		return entries, nil
	}, backoff.WithBackOff(&backoff.ExponentialBackOff{
		InitialInterval: 5 * time.Millisecond, RandomizationFactor: 0.5, Multiplier: 2, MaxInterval: 250 * time.Millisecond,
	}), backoff.WithMaxElapsedTime(r.cfg.StoreTimeout))
	if err != nil && bounded.Err() != nil && ctx.Err() == nil {
		err = errStoreBehind // The timeout may surface as any of several errors.
	}
	if err != nil {
		return nil, Unavailable(err)
	}
	return entries, nil
}

// applyChanges applies the log's edits and recalls to the messages among entries. A writer may have
// died before the store applied its change, and a page up to the head must show all changes up to
// the head.
func (r *Reader) applyChanges(ctx context.Context, channelID string, entries []Entry) error {
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

// errStoreBehind is the fault of a store whose reads do not reach entries that are known to exist.
var errStoreBehind = fault.New(fault.Unavailable, fault.StoreUnavailable, "the store is behind; retry")

// dense reports whether entries have every seq of the range up to reach, without a gap from the
// start (the upper end if rg.Desc). They may end earlier only because of rg.Limit or rg.MaxBytes.
// rg.Before is at most reach+1.
func dense(entries []Entry, rg Range, reach int64) bool {
	last := min(rg.Before-1, reach)
	if rg.Before == 0 {
		last = reach
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

// CountAt returns the number of messages in the log up to and including the entry at seq. It fails
// if the log ends before seq.
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
		return 0, fmt.Errorf("channel %s: no entry at seq %d", channelID, seq)
	}
	return entries[0].Count, nil
}

// MessageAt returns the message at seq in its current state. ok is false if the log ends before seq
// or has an edit or a recall there.
func (r *Reader) MessageAt(ctx context.Context, channelID string, seq int64) (m Message, ok bool, err error) {
	for last := false; ; last = true {
		es, err := r.log.Messages(ctx, channelID, []int64{seq})
		if err != nil {
			return Message{}, false, Unavailable(err)
		}
		if len(es) == 1 {
			if err := r.applyChanges(ctx, channelID, es); err != nil {
				return Message{}, false, Unavailable(err)
			}
			return es[0].Message, true, nil
		}
		if last {
			return Message{}, false, nil
		}
		// A read may lag, but not if it follows a linearizable read of the head.
		if _, err := r.heads.get(ctx, channelID, 0); err != nil {
			return Message{}, false, Unavailable(err)
		}
	}
}

// message returns a message by its id. If atLeast is not 0, it is the seq of an entry that changed
// the message, and the result includes that change.
func (r *Reader) message(ctx context.Context, channelID, msgID string, atLeast int64) (Message, error) {
	for last := false; ; last = true {
		e, ok, err := r.log.Message(ctx, channelID, msgID)
		if err != nil {
			return Message{}, Unavailable(err)
		}
		if ok {
			found := []Entry{e}
			if err := r.applyChanges(ctx, channelID, found); err != nil {
				return Message{}, Unavailable(err)
			}
			if m := found[0].Message; m.ChangedSeq >= atLeast {
				return m, nil
			}
		}
		switch {
		case last && ok:
			return Message{}, fault.New(fault.Unavailable, fault.StoreUnavailable, "the store is behind; retry")
		case last:
			return Message{}, notFound()
		}
		// A read may lag, but not if it follows a linearizable read of the head.
		if _, err := r.heads.get(ctx, channelID, 0); err != nil {
			return Message{}, Unavailable(err)
		}
	}
}

// Replay returns the events with the seqs from after+1 to atLeast, without gaps, each with its
// message in its current state. It ends earlier after limit events or before contents exceed
// maxBytes, but has at least one event if after is below atLeast; a maxBytes of 0 means no limit.
// It reads the cache if that reaches atLeast, else the store. If patient is set, it first waits up
// to ReaderConfig.CacheLagTimeout for a cache that is only behind.
func (r *Reader) Replay(
	ctx context.Context, channelID string, after, atLeast int64, limit, maxBytes int, patient bool,
) ([]Event, error) {
	if after >= atLeast {
		return nil, nil
	}
	rg := Range{After: after, Before: atLeast + 1, Limit: limit, MaxBytes: maxBytes}
	read := r.readCache
	if patient {
		read = r.readCacheOrWait
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

// events converts entries to events. Events of edits and recalls carry the messages that they
// changed, in their current state. The events end before their contents exceed maxBytes, as in
// Replay.
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
		if err := r.applyChanges(ctx, channelID, targets); err != nil {
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
				return nil, fmt.Errorf("channel %s: entry %d changes message %d, which does not exist", channelID, e.Seq, e.TargetSeq)
			}
			if m.ChangedSeq < e.Seq { // the entry is cached, but the store's answer predates it
				return nil, errStoreBehind
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
