package embedded

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/cockroachdb/pebble/v2"

	"github.com/parleyhq/parley/server/internal/message"
)

// openKey returns the key of an open message's openRow.
func openKey(e *message.Entry) []byte {
	key := append(appendNumber([]byte{openRow}, e.MsgTime.UnixMilli()), e.ChannelID...)
	return appendNumber(append(key, 0), e.Seq)
}

// isOpen reports whether a stored entry has an openRow.
func isOpen(e *message.Entry) bool {
	return e.Kind == message.KindSend && e.Status == message.StatusOpen
}

// addOpen adds the openRow of a new message, if it is open.
func addOpen(batch *pebble.Batch, e *message.Entry) error {
	if !isOpen(e) {
		return nil
	}
	return batch.Set(openKey(e), nil, nil)
}

// dropOpen deletes the openRow of a message that the batch changes or strips, if it is open. e is
// the message before that.
func dropOpen(batch *pebble.Batch, e *message.Entry) error {
	if !isOpen(e) {
		return nil
	}
	return batch.Delete(openKey(e), nil)
}

// OpenMessages implements message.OpenLister.
func (s *Store) OpenMessages(
	_ context.Context, shards []int, from, before time.Time, limit int,
) (found []message.Entry, err error) {
	if err := s.begin(); err != nil {
		return nil, fmt.Errorf("open messages: %w", err)
	}
	defer s.end()
	v := s.views.view()
	defer s.views.release(v)
	bound := func(at time.Time) []byte { // stored times are whole milliseconds; a fraction is rounded up
		return appendNumber([]byte{openRow}, max(at.Add(time.Millisecond-1).UnixMilli(), 0))
	}
	iter, err := v.NewIter(&pebble.IterOptions{LowerBound: bound(from), UpperBound: bound(before)})
	if err != nil {
		return nil, fmt.Errorf("open messages: %w", err)
	}
	defer func() { err = errors.Join(err, iter.Close()) }()
	for ok := iter.First(); ok && len(found) < limit; ok = iter.Next() {
		key := iter.Key()
		channelID := string(key[1+8 : len(key)-1-8])
		if !slices.Contains(shards, message.Shard(channelID, len(s.shards))) {
			continue
		}
		e, err := v.must(channelID, trailingNumber(key))
		if err != nil {
			return nil, fmt.Errorf("open messages: %w", err)
		}
		e.Content, e.Metadata = "", nil
		found = append(found, e)
	}
	return found, iter.Error()
}
