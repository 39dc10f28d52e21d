package embedded

import (
	"context"
	"errors"
	"fmt"

	"github.com/cockroachdb/pebble/v2"

	"github.com/parleyhq/parley/server/internal/message"
)

// feed implements message.Feed over a shard's outbox, the rows of its unpublished entries.
// Published deletes rows without waiting for a sync: if a crash loses a deletion, the next feed
// only returns those entries again.
type feed struct {
	store *Store
	shard *shard
	// next is the ordinal (number) of the outbox row to read from. It saves seeking over deleted
	// rows more than once.
	next int64
	// returned holds the ordinals of rows whose entries Next has returned. Published deletes them.
	returned []int64
	// saving is the last deletion that was queued for writing, or nil. Close waits for it.
	saving *pending
}

// outboxEnd returns the exclusive upper bound of a shard's outbox rows. No ordinal ever reaches
// it.
func outboxEnd(shard int) []byte { return outboxKey(shard, 1<<63-1) }

// OpenFeed implements message.Store.
func (s *Store) OpenFeed(_ context.Context, shardNumber int) (message.Feed, error) {
	if shardNumber < 0 || shardNumber >= len(s.shards) {
		return nil, fmt.Errorf("open feed: shard %d is not one of %d", shardNumber, len(s.shards))
	}
	if err := s.begin(); err != nil {
		return nil, fmt.Errorf("open feed: %w", err)
	}
	defer s.end()
	return &feed{store: s, shard: s.shards[shardNumber]}, nil
}

// Next implements message.Feed.
func (f *feed) Next(ctx context.Context, most int) ([]message.Entry, error) {
	for {
		arrival := f.shard.arrival()
		entries, err := f.read(most)
		if err != nil {
			return nil, fmt.Errorf("feed: %w", err)
		}
		if len(entries) > 0 {
			return entries, nil
		}
		select {
		case <-arrival:
		case <-ctx.Done():
			return nil, fmt.Errorf("feed: %w", context.Cause(ctx))
		case <-f.store.done:
			return nil, fmt.Errorf("feed: %w", ErrClosed)
		}
	}
}

// read returns up to most entries of the outbox and advances next. It returns none, without
// waiting, if there are none.
func (f *feed) read(most int) (entries []message.Entry, err error) {
	if err := f.store.begin(); err != nil {
		return nil, err
	}
	defer f.store.end()
	v := f.store.views.view()
	defer f.store.views.release(v)
	iter, err := v.NewIter(&pebble.IterOptions{
		LowerBound: outboxKey(f.shard.number, f.next),
		UpperBound: outboxEnd(f.shard.number),
	})
	if err != nil {
		return nil, fmt.Errorf("outbox: %w", err)
	}
	defer func() { err = errors.Join(err, iter.Close()) }()
	var ordinals []int64
	for iter.First(); iter.Valid() && len(entries) < most; iter.Next() {
		channel, seq := outboxEntry(iter.Value())
		e, err := v.mustUnlessExpired(channel, seq)
		if err != nil {
			return nil, err
		}
		entries = append(entries, e)
		ordinals = append(ordinals, trailingNumber(iter.Key()))
	}
	if err := iter.Error(); err != nil {
		return nil, fmt.Errorf("outbox: %w", err)
	}
	if n := len(ordinals); n > 0 {
		f.next = ordinals[n-1] + 1
		f.returned = append(f.returned, ordinals...)
	}
	return entries, nil
}

// Published implements message.Feed. It does not wait for the disk.
func (f *feed) Published(context.Context) error {
	if len(f.returned) == 0 {
		return nil
	}
	if err := f.store.begin(); err != nil {
		return fmt.Errorf("published: %w", err)
	}
	defer f.store.end()
	if err := f.store.failure.err(); err != nil {
		return fmt.Errorf("published: %w", err)
	}
	// Delete each row, not one range: for each new iterator Pebble collects all range deletions of
	// its memtable again, which gets slower and slower.
	batch := f.store.db.NewBatch()
	for _, ordinal := range f.returned {
		if err := batch.Delete(outboxKey(f.shard.number, ordinal), nil); err != nil {
			return fmt.Errorf("published: %w", errors.Join(err, batch.Close()))
		}
	}
	f.saving = f.store.commits.add(batch, true)
	f.returned = f.returned[:0]
	return nil
}

// Close implements message.Feed.
func (f *feed) Close(context.Context) error {
	if f.saving == nil {
		return nil
	}
	if err := f.store.commits.wait(f.saving); err != nil {
		return fmt.Errorf("close feed: %w", err)
	}
	f.saving = nil
	return nil
}
