package embedded

import (
	"bytes"
	"context"
	"errors"
	"fmt"

	"github.com/cockroachdb/pebble/v2"

	"github.com/parleyhq/parley/server/internal/message"
)

// BySender implements message.LogEraser. It seeks the user in the client rows of each channel.
func (s *Store) BySender(_ context.Context, userID string, limit int) (found []message.Entry, err error) {
	if err := s.begin(); err != nil {
		return nil, fmt.Errorf("by sender: %w", err)
	}
	defer s.end()
	if !validNames(userID) {
		return nil, errName
	}
	v := s.views.view()
	defer s.views.release(v)
	iter, err := v.NewIter(&pebble.IterOptions{LowerBound: []byte{clientRow}, UpperBound: []byte{clientRow + 1}})
	if err != nil {
		return nil, fmt.Errorf("by sender: %w", err)
	}
	defer func() { err = errors.Join(err, iter.Close()) }()
	for ok := iter.First(); ok && len(found) < limit; {
		key := iter.Key()
		channelID := string(key[1 : 1+bytes.IndexByte(key[1:], 0)])
		prefix := nameKey(clientRow, channelID, userID)
		for ok = iter.SeekGE(prefix); ok && bytes.HasPrefix(iter.Key(), prefix) && len(found) < limit; ok = iter.Next() {
			e, err := v.must(channelID, trailingNumber(iter.Value()))
			if err != nil {
				return nil, fmt.Errorf("by sender: %w", err)
			}
			found = append(found, e)
		}
		next := nameKey(clientRow, channelID)
		next[len(next)-1] = 1
		ok = iter.SeekGE(next)
	}
	return found, iter.Error()
}

// Scrub implements message.LogEraser, in one batch.
func (s *Store) Scrub(_ context.Context, channelID, userID string, seqs []int64) error {
	if err := s.begin(); err != nil {
		return fmt.Errorf("scrub: %w", err)
	}
	defer s.end()
	if !validNames(channelID, userID) {
		return errName
	}
	defer s.changing.lockAll()() // an Apply would write an entry as it was before
	if err := s.failure.err(); err != nil {
		return fmt.Errorf("scrub: %w", err)
	}
	v := s.views.view()
	defer s.views.release(v)
	batch := s.db.NewBatch()
	for _, seq := range seqs {
		e, ok, err := v.entry(channelID, seq)
		if err == nil && ok && e.FromID == userID && e.Kind != message.KindSend {
			err = scrub(batch, e)
		}
		if err != nil {
			return fmt.Errorf("scrub: %w", errors.Join(err, batch.Close()))
		}
	}
	if batch.Empty() {
		return batch.Close()
	}
	if err := s.commits.commit(batch); err != nil {
		return fmt.Errorf("scrub: %w", err)
	}
	return nil
}

func scrub(batch *pebble.Batch, e message.Entry) error {
	before := e
	e.FromID, e.ClientMsgID, e.Digest, e.Traceparent = message.ErasedUser, message.ErasedKey(e.Seq), nil, ""
	return errors.Join(put(batch, &e), moveClientRow(batch, &before, &e))
}

// moveClientRow replaces the row of an entry's client key by that of its new one.
func moveClientRow(batch *pebble.Batch, before, after *message.Entry) error {
	return errors.Join(
		batch.Delete(clientKey(before.ChannelID, before.FromID, before.ClientMsgID), nil),
		batch.Set(clientKey(after.ChannelID, after.FromID, after.ClientMsgID), appendNumber(nil, after.Seq), nil),
	)
}
