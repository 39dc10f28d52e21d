package embedded

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"sync"

	"github.com/cockroachdb/pebble/v2"

	"github.com/parleyhq/parley/server/internal/message"
)

// maxHeads bounds the channels whose last seq a shard caches.
const maxHeads = 4096

// shard is what the store keeps in memory for one shard, a share of the channels.
type shard struct {
	number int

	// mu serializes the Inserts of the shard, from their checks to their sync. It guards the
	// fields below.
	mu sync.Mutex
	// heads caches the last seq of some channels.
	heads map[string]int64
	// ordinal is the number of the last row in the shard's outbox.
	ordinal int64

	// waking guards arrived.
	waking sync.Mutex
	// arrived is closed and replaced when the shard's feeds have new entries.
	arrived chan struct{}
}

// newShard creates a shard that continues after the last row of its outbox. Ordinals of published
// rows may be reused, because these rows are deleted.
func newShard(db *pebble.DB, number int) (b *shard, err error) {
	b = &shard{number: number, heads: map[string]int64{}, arrived: make(chan struct{})}
	iter, err := db.NewIter(&pebble.IterOptions{LowerBound: outboxKey(number, 0), UpperBound: outboxEnd(number)})
	if err != nil {
		return nil, fmt.Errorf("outbox of shard %d: %w", number, err)
	}
	defer func() { err = errors.Join(err, iter.Close()) }()
	if iter.Last() {
		b.ordinal = trailingNumber(iter.Key())
	}
	return b, iter.Error()
}

// arrival returns a channel that is closed once the shard's next Insert is visible. Call it before
// taking a view, so that no Insert in between is missed.
func (b *shard) arrival() <-chan struct{} {
	b.waking.Lock()
	defer b.waking.Unlock()
	return b.arrived
}

func (b *shard) wake() {
	b.waking.Lock()
	defer b.waking.Unlock()
	close(b.arrived)
	b.arrived = make(chan struct{})
}

// Insert implements message.LogWriter. It checks ctx before it starts but not while it waits for
// the fsync, because a batch passed to the log can't be withdrawn.
func (s *Store) Insert(ctx context.Context, shardNumber int, entries []message.Entry) (int, error) {
	if err := s.begin(); err != nil {
		return 0, notStored(err)
	}
	defer s.end()
	if err := s.check(shardNumber, entries); err != nil {
		return 0, notStored(err)
	}
	if len(entries) == 0 {
		return 0, nil
	}
	b := s.shards[shardNumber]
	b.mu.Lock()
	defer b.mu.Unlock()
	if err := errors.Join(ctx.Err(), s.failure.err()); err != nil {
		return 0, notStored(err)
	}
	v := s.views.view()
	defer s.views.release(v)
	a := &appending{view: v, shard: b, batch: s.db.NewBatch(), heads: map[string]int64{}, keys: map[string]struct{}{}, ordinal: b.ordinal}
	n, err := a.addAll(entries)
	var conflict *message.ConflictError
	if err != nil && !errors.As(err, &conflict) {
		return 0, notStored(errors.Join(err, a.batch.Close()))
	}
	if n == 0 {
		return 0, errors.Join(err, a.batch.Close())
	}
	if err := s.commits.commit(a.batch); err != nil {
		return 0, fmt.Errorf("insert, outcome unknown: %w", err)
	}
	b.advance(a)
	b.wake()
	return n, err
}

func notStored(err error) error { return fmt.Errorf("insert: %w: %w", message.ErrNotStored, err) }

// check returns an error if the shard does not exist, or if an entry belongs to another shard or
// has an id that can't be part of a key.
func (s *Store) check(shardNumber int, entries []message.Entry) error {
	if shardNumber < 0 || shardNumber >= len(s.shards) {
		return fmt.Errorf("shard %d is not one of %d", shardNumber, len(s.shards))
	}
	for i := range entries {
		e := &entries[i]
		if message.Shard(e.ChannelID, len(s.shards)) != shardNumber {
			return fmt.Errorf("channel %q is not in shard %d", e.ChannelID, shardNumber)
		}
		if !validNames(e.ChannelID, e.MsgID, e.FromID, e.ClientMsgID) {
			return errors.New("an id contains a zero byte")
		}
	}
	return nil
}

// advance records the last seqs and the last ordinal of a stored batch. The caller holds b.mu.
func (b *shard) advance(a *appending) {
	b.ordinal = a.ordinal
	if len(b.heads)+len(a.heads) > maxHeads {
		clear(b.heads)
	}
	maps.Copy(b.heads, a.heads)
}

// appending builds the batch of an Insert. It reads the store as of the last sync, which includes
// all earlier Inserts of the shard, and its own batch.
type appending struct {
	view    *view
	shard   *shard
	batch   *pebble.Batch
	heads   map[string]int64
	keys    map[string]struct{}
	ordinal int64
}

// addAll adds entries up to the first conflict, and returns how many. The error of a conflict is a
// *message.ConflictError.
func (a *appending) addAll(entries []message.Entry) (int, error) {
	keys := make([][]byte, len(entries))
	for i := range entries {
		keys[i] = clientKey(entries[i].ChannelID, entries[i].FromID, entries[i].ClientMsgID)
	}
	used, err := a.view.have(keys)
	if err != nil {
		return 0, err
	}
	for i := range entries {
		e := &entries[i]
		head, err := a.head(e.ChannelID)
		if err != nil {
			return i, err
		}
		_, twice := a.keys[string(keys[i])]
		if used[i] || twice || e.Seq != head+1 {
			return i, &message.ConflictError{ChannelID: e.ChannelID}
		}
		if err := a.add(e, keys[i]); err != nil {
			return i, err
		}
		a.heads[e.ChannelID] = e.Seq
		a.keys[string(keys[i])] = struct{}{}
	}
	return len(entries), nil
}

func (a *appending) head(channel string) (int64, error) {
	if seq, ok := a.heads[channel]; ok {
		return seq, nil
	}
	if seq, ok := a.shard.heads[channel]; ok {
		return seq, nil
	}
	return a.view.lastSeq(channel)
}

// add adds an entry's rows to the batch. key is that of its clientRow.
func (a *appending) add(e *message.Entry, key []byte) error {
	stored := *e
	stored.Pending = e.Kind.Changes()
	seq := appendNumber(nil, e.Seq)
	a.ordinal++
	err := errors.Join(
		put(a.batch, &stored),
		a.batch.Set(key, seq, nil),
		a.batch.Set(outboxKey(a.shard.number, a.ordinal), outboxValue(e.ChannelID, e.Seq), nil),
	)
	switch {
	case e.Kind == message.KindSend:
		err = errors.Join(err, a.batch.Set(messageKey(e.ChannelID, e.MsgID), seq, nil), addOpen(a.batch, e))
	case e.Kind.Changes():
		err = errors.Join(err, a.batch.Set(seqKey(pendingRow, e.ChannelID, e.Seq), appendNumber(nil, e.TargetSeq), nil))
	}
	if err != nil {
		return fmt.Errorf("add entry %d of %s: %w", e.Seq, e.ChannelID, err)
	}
	return nil
}
