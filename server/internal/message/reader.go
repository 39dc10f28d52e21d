package message

import (
	"context"
	"errors"
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
	OnList func(channelID string, fromCache bool)
	// OnStale is called, possibly concurrently, if the cache has nothing of a channel, or messages
	// that do not include the entry at seq, which the log has. It must not block. It may be nil.
	OnStale func(channelID string, seq int64)
	Logger  *slog.Logger
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
	// is behind. The index is the channel's share of lagStripes.
	noWaitUntil [lagStripes]atomic.Int64
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
		cfg.OnList = func(string, bool) {}
	}
	if cfg.OnStale == nil {
		cfg.OnStale = func(string, int64) {}
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
	return r.state(h), nil
}

// States returns the states of at most 500 logs, by channel id, as State does. It costs about as
// much as one state.
func (r *Reader) States(ctx context.Context, channelIDs []string) (map[string]State, error) {
	states := make(map[string]State, len(channelIDs))
	if len(channelIDs) == 1 { // shares reads with other calls
		state, err := r.State(ctx, channelIDs[0])
		states[channelIDs[0]] = state
		return states, err
	}
	heads, err := r.heads.getMany(ctx, channelIDs)
	if err != nil {
		return nil, Unavailable(err)
	}
	for _, id := range channelIDs {
		states[id] = r.state(heads[id])
	}
	return states, nil
}

func (r *Reader) state(h Head) State {
	return State{Epoch: r.epoch, Oldest: h.First(), Head: h.Seq, Count: h.Count, Expired: h.Expired, Rev: h.Rev}
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
// upper bound. afterField names the field that after comes from, for errors.
type pageRange struct {
	channelID     string
	after, before int64
	afterField    string
	desc          bool
	minSeq        int64
	size          int
}

// pageResult is a page. last is the seq of its last message. more reports whether further messages
// follow in the page's direction. bytes is the size of the messages. head is the end of the log
// that the page was checked against, with its boundary.
type pageResult struct {
	messages  []Message
	last      int64
	bytes     int
	more      bool
	head      Head
	fromCache bool
}

func (r *Reader) page(ctx context.Context, q pageRange) (pageResult, error) {
	began := time.Now()
	head, err := r.headFor(ctx, q.channelID, q.minSeq, q.after)
	if err != nil {
		return pageResult{}, err
	}
	if q.after > 0 && q.after+1 < head.First() {
		return pageResult{}, historyGone(q.afterField, head.First())
	}
	q.after = max(q.after, head.First()-1)
	res, err := r.walk(ctx, q, head, r.readCache)
	res.fromCache = err == nil
	if errors.Is(err, errNotCached) {
		res, err = r.walk(ctx, q, head, r.readStore)
	}
	if err == nil && time.Since(began) > readWithin {
		err = errTooSlow
	}
	res.head = head
	if err == nil {
		r.cfg.OnList(q.channelID, res.fromCache)
	}
	return res, err
}

// rev returns the access revision at which the caller must be allowed to read the page.
func (res *pageResult) rev() int64 {
	rev := res.head.Rev
	for i := range res.messages {
		rev = max(rev, res.messages[i].Rev)
	}
	return rev
}

// headFor returns the end of a log, at most MaxAge old and not below the seqs passed to ObserveSeq.
// If minSeq or after is beyond it, the head is read again; if they are still beyond it, the error
// is POSITION_OUT_OF_RANGE.
func (r *Reader) headFor(ctx context.Context, channelID string, minSeq, after int64) (Head, error) {
	h, err := r.heads.get(ctx, channelID, r.cfg.MaxAge)
	if err == nil && max(minSeq, after) > h.Seq {
		h, err = r.heads.get(ctx, channelID, 0)
	}
	if err != nil {
		return Head{}, Unavailable(err)
	}
	for _, p := range [...]struct {
		field string
		seq   int64
	}{{"min_seq", minSeq}, {"after_seq", after}} {
		if p.seq > h.Seq {
			e := fault.New(fault.OutOfRange, fault.PositionOutOfRange, "%s: beyond the end of the log at seq %d", p.field, h.Seq)
			e.Field, e.Limit = p.field, h.Seq
			return Head{}, e
		}
	}
	return h, nil
}

var errNotCached = errors.New("page not in cache")

// readFunc reads the messages of a range, without a gap. cut reports whether a limit of the range
// ended the result. reach is a seq that the log has; rg.Before is at most reach+1.
type readFunc func(ctx context.Context, channelID string, rg Range, reach int64) (entries []Entry, cut bool, err error)

// walk reads a page of a log that ends at head. q.after is not before its boundary. Entries beyond
// the head that was read belong to a later page. Several reads are necessary if limits end one
// before it has a page of messages.
func (r *Reader) walk(ctx context.Context, q pageRange, head Head, read readFunc) (res pageResult, err error) {
	rg := Range{After: q.after, Before: head.Seq + 1, Desc: q.desc, MaxBytes: r.cfg.MaxPageBytes, MessagesOnly: true}
	if q.before > 0 {
		rg.Before = min(rg.Before, q.before)
	}
	// Whether messages follow is shown by one more, or, down to the beginning of the log, by the count
	// of the last: the cache can then serve a page of all that it has.
	extra := 1
	if q.desc && q.after < head.First() {
		extra = 0
	}
	for rg.After+1 < rg.Before {
		rg.Limit = min(q.size-len(res.messages)+extra, 1000)
		entries, cut, err := read(ctx, q.channelID, rg, head.Seq)
		if err != nil {
			return res, err
		}
		if !res.add(entries, q.size, r.cfg.MaxPageBytes) || !cut || len(entries) == 0 {
			return res, nil
		}
		if extra == 0 && len(res.messages) == q.size {
			res.more = res.messages[q.size-1].Count > head.Expired+1
			return res, nil
		}
		last := entries[len(entries)-1].Seq
		if rg.Desc {
			rg.Before = last
		} else {
			rg.After = last
		}
	}
	return res, nil
}

// add adds messages to the page, up to its limits. It returns false once a further message is known
// to follow.
func (res *pageResult) add(entries []Entry, size, maxBytes int) bool {
	if res.messages == nil {
		res.messages = make([]Message, 0, min(len(entries), size))
	}
	for i := range entries {
		e := &entries[i]
		if len(res.messages) == size || len(res.messages) > 0 && res.bytes+e.Size() > maxBytes {
			res.more = true
			return false
		}
		res.bytes += e.Size()
		res.messages = append(res.messages, e.Message)
		res.last = e.Seq
	}
	return true
}

// cut reports whether the limit or the size may have ended a read of the range by a store.
func (rg *Range) cut(entries []Entry) bool {
	bytes := 0
	for i := range entries {
		bytes += entries[i].Size()
	}
	return len(entries) >= rg.Limit || rg.MaxBytes > 0 && bytes > rg.MaxBytes
}

// readCache reads messages of a range from the cache; see cachedEvents.
func (r *Reader) readCache(ctx context.Context, channelID string, rg Range, reach int64) ([]Entry, bool, error) {
	p, err := r.cachedEvents(ctx, channelID, rg, reach)
	if err != nil {
		return nil, false, err
	}
	entries := make([]Entry, len(p.Events))
	for i := range p.Events {
		entries[i].Message = p.Events[i].Message
	}
	if !whole(entries, rg, Head{}) {
		return nil, false, errNotCached
	}
	return entries, p.Cut, nil
}

// cachedEvents reads the events of a range from the cache. If the cache cannot serve the range up
// to the seq reach, it fails with errNotCached, or with errCacheBehind, which wraps it.
func (r *Reader) cachedEvents(ctx context.Context, channelID string, rg Range, reach int64) (CachedPage, error) {
	if r.cache == nil {
		return CachedPage{}, errNotCached
	}
	ctx, cancel := context.WithTimeout(ctx, r.cfg.CacheTimeout)
	defer cancel()
	p, err := r.cache.Page(ctx, channelID, rg)
	if err == nil && (p.Epoch != r.epoch || p.Newest < reach) {
		r.cfg.OnStale(channelID, reach)
	}
	switch {
	case err != nil:
		r.cfg.Logger.DebugContext(ctx, "reading the cache failed", "channel_id", channelID, "error", err)
		return CachedPage{}, errNotCached
	case p.Epoch != r.epoch:
		return CachedPage{}, errNotCached
	case p.Cut && len(p.Events) == 0:
		return CachedPage{}, errNotCached
	case rg.After < p.Oldest-1 && (!rg.Desc || !p.Cut): // a page downwards may end before Oldest
		return CachedPage{}, errNotCached
	case !rg.MessagesOnly && rg.After < p.Unknown:
		return CachedPage{}, errNotCached
	case p.Newest < reach:
		return CachedPage{}, errCacheBehind
	}
	return p, nil
}

// readStore reads messages of a range from the store, with all changes of the log up to the seq
// reach. It retries until the store has reach, or StoreTimeout ends.
func (r *Reader) readStore(ctx context.Context, channelID string, rg Range, reach int64) (entries []Entry, cut bool, err error) {
	err = r.untilReached(ctx, channelID, reach, func(ctx context.Context) error {
		pending, err := r.log.Pending(ctx, channelID)
		if err != nil {
			return err
		}
		if entries, err = r.log.Entries(ctx, channelID, rg); err != nil {
			return err
		}
		if !whole(entries, rg, r.heads.stored(channelID)) {
			return errStoreBehind
		}
		cut = rg.cut(entries) // of what was stored: a recall makes it smaller
		Fold(entries, pending)
		return nil
	})
	return entries, cut, err
}

// whole reports whether the messages of a range are consecutive, and, if the range ends with the
// log, whether they are the log's last ones. head is the end of the log as the store returned it
// before; zero if that is not known.
func whole(entries []Entry, rg Range, head Head) bool {
	for i := 1; i < len(entries); i++ {
		if step := entries[i].Count - entries[i-1].Count; step != 1 && !rg.Desc || step != -1 && rg.Desc {
			return false
		}
	}
	if head.Seq == 0 || rg.Before != head.Seq+1 || !rg.Desc && rg.cut(entries) {
		return true
	}
	switch {
	case len(entries) == 0:
		return rg.After > 0 || head.Count == 0
	case rg.Desc:
		return entries[0].Count == head.Count
	default:
		return entries[len(entries)-1].Count == head.Count
	}
}

// untilReached calls read, which reads the store, once the store has the entry at the seq reach. No
// read is older than an earlier one, so read then finds all entries up to reach. It retries for
// StoreTimeout while the store, or read by returning errStoreBehind, is behind.
func (r *Reader) untilReached(ctx context.Context, channelID string, reach int64, read func(context.Context) error) error {
	bounded, cancel := context.WithTimeoutCause(ctx, r.cfg.StoreTimeout, errStoreBehind)
	defer cancel()
	_, err := backoff.Retry(bounded, func() (struct{}, error) {
		reached, err := r.reached(bounded, channelID, reach)
		switch {
		case err != nil:
		case !reached:
			err = errStoreBehind
		default:
			err = read(bounded)
		}
		if err != nil && !errors.Is(err, errStoreBehind) {
			err = backoff.Permanent(err)
		}
		return struct{}{}, err
	}, backoff.WithBackOff(&backoff.ExponentialBackOff{
		InitialInterval: 5 * time.Millisecond, RandomizationFactor: 0.5, Multiplier: 2, MaxInterval: 250 * time.Millisecond,
	}), backoff.WithMaxElapsedTime(r.cfg.StoreTimeout))
	if err != nil && bounded.Err() != nil && ctx.Err() == nil {
		err = errStoreBehind // The timeout may surface as any of several errors.
	}
	if err != nil {
		return Unavailable(err)
	}
	return nil
}

// reached reports whether the store has the entry at seq.
func (r *Reader) reached(ctx context.Context, channelID string, seq int64) (bool, error) {
	if seq == 0 || r.heads.stored(channelID).Seq >= seq {
		return true, nil
	}
	entries, err := r.log.Entries(ctx, channelID, Range{After: seq - 1, Before: seq + 1, Limit: 1, HeadersOnly: true})
	return len(entries) == 1, err
}

// errStoreBehind is the fault of a store whose reads do not reach entries that are known to exist.
var errStoreBehind = fault.New(fault.Unavailable, fault.StoreUnavailable, "the store is behind; retry")

// CountAt returns the number of messages in the log up to and including the entry at seq. It fails
// if the log ends before seq, or if the entry has expired.
func (r *Reader) CountAt(ctx context.Context, channelID string, seq int64) (int64, error) {
	// The last message up to seq has the same count.
	rg := Range{Before: seq + 1, Desc: true, Limit: 1, MessagesOnly: true}
	if entries, _, err := r.readCache(ctx, channelID, rg, seq); err == nil && len(entries) == 1 {
		return entries[0].Count, nil
	}
	e, err := r.entryAt(ctx, channelID, seq)
	return e.Count, err
}

// entryAt reads the entry at seq from the store, which must have it, without text and metadata.
func (r *Reader) entryAt(ctx context.Context, channelID string, seq int64) (e Entry, err error) {
	err = r.untilReached(ctx, channelID, 0, func(ctx context.Context) error {
		entries, err := r.log.Entries(ctx, channelID, Range{After: seq - 1, Before: seq + 1, Limit: 1, HeadersOnly: true})
		if err != nil {
			return err
		}
		if len(entries) == 0 {
			return errStoreBehind
		}
		e = entries[0]
		return nil
	})
	return e, err
}

// targetExpired reports whether the message that the edit or recall at seq changes is known to have
// expired.
func (r *Reader) targetExpired(ctx context.Context, channelID string, seq int64) bool {
	head, err := r.heads.get(ctx, channelID, 0)
	if err != nil {
		return false
	}
	change, err := r.entryAt(ctx, channelID, seq)
	return err == nil && change.TargetSeq < head.First()
}

// MessagesAt returns the messages at the given places in their current state, at most 500. Places
// without a message are absent. It costs about as much as one message.
func (r *Reader) MessagesAt(ctx context.Context, places []Place) (map[Place]Message, error) {
	found := make(map[Place]Message, len(places))
	if err := r.messagesAt(ctx, places, found); err != nil || len(found) == len(places) {
		return found, err
	}
	// A read may lag, but not if it follows linearizable reads of the heads.
	missing := slices.DeleteFunc(slices.Clone(places), func(p Place) bool { _, ok := found[p]; return ok })
	if _, err := r.heads.getMany(ctx, channelsOf(missing)); err != nil {
		return nil, Unavailable(err)
	}
	return found, r.messagesAt(ctx, missing, found)
}

func (r *Reader) messagesAt(ctx context.Context, places []Place, found map[Place]Message) error {
	pending, err := r.log.Pending(ctx, channelsOf(places)...)
	if err != nil {
		return Unavailable(err)
	}
	entries, err := r.log.Messages(ctx, places)
	if err != nil {
		return Unavailable(err)
	}
	Fold(entries, pending)
	for i := range entries {
		found[Place{entries[i].ChannelID, entries[i].Seq}] = entries[i].Message
	}
	return nil
}

// channelsOf returns the ids of the channels of places, each once.
func channelsOf(places []Place) []string {
	ids := make([]string, len(places))
	for i := range places {
		ids[i] = places[i].ChannelID
	}
	slices.Sort(ids)
	return slices.Compact(ids)
}

// messageAfterChange is message for the writer of the change at seq, which is applied: it does not
// read what other changes are pending. So the result may lack a later change that another reader
// has been shown, as it may if the writer was answered before.
func (r *Reader) messageAfterChange(ctx context.Context, channelID, msgID string, seq int64) (Message, error) {
	boundary, err := r.heads.get(ctx, channelID, r.cfg.MaxAge)
	if err != nil {
		return Message{}, Unavailable(err)
	}
	e, ok, err := r.log.Message(ctx, channelID, msgID)
	if err != nil {
		return Message{}, Unavailable(err)
	}
	if ok && e.Seq >= boundary.First() && e.ChangedSeq >= seq {
		return e.Message, nil
	}
	return r.message(ctx, channelID, msgID, seq)
}

// Message returns a message by its id. If atLeast is not 0, it is the seq of an entry that sent or
// changed the message, and the result includes that. It fails with MESSAGE_NOT_FOUND if there is
// none, and does not check who asks.
func (r *Reader) Message(ctx context.Context, channelID, msgID string, atLeast int64) (Message, error) {
	return r.message(ctx, channelID, msgID, atLeast)
}

// message returns a message by its id. If atLeast is not 0, it is the seq of an entry that changed
// the message, and the result includes that change.
func (r *Reader) message(ctx context.Context, channelID, msgID string, atLeast int64) (Message, error) {
	boundary, err := r.heads.get(ctx, channelID, r.cfg.MaxAge)
	if err != nil {
		return Message{}, Unavailable(err)
	}
	for last := false; ; last = true {
		pending, err := r.log.Pending(ctx, channelID)
		if err != nil {
			return Message{}, Unavailable(err)
		}
		e, ok, err := r.log.Message(ctx, channelID, msgID)
		if err != nil {
			return Message{}, Unavailable(err)
		}
		if ok && e.Seq < boundary.First() {
			return Message{}, notFound()
		}
		if ok {
			found := []Entry{e}
			Fold(found, pending)
			if m := found[0].Message; m.ChangedSeq >= atLeast {
				return m, nil
			}
		}
		switch {
		case last && ok:
			return Message{}, errStoreBehind
		case last:
			return Message{}, notFound()
		}
		// A read may lag, but not if it follows a linearizable read of the head.
		if boundary, err = r.heads.get(ctx, channelID, 0); err != nil {
			return Message{}, Unavailable(err)
		}
	}
}
