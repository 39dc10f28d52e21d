package embedded

import (
	"context"
	"errors"
	"fmt"

	"github.com/cockroachdb/pebble/v2"

	"github.com/parleyhq/parley/server/internal/message"
)

// Strip implements message.LogTrimmer, in one batch. A stripped message is moved from the rows of
// sends to those of changes, so that reads of messages do not pass over it.
func (s *Store) Strip(_ context.Context, channelID string, after, before int64) error {
	return s.trim("strip", channelID, after, before, func(batch *pebble.Batch, e *message.Entry) error {
		if e.Kind == message.KindExpired {
			return nil
		}
		stub, err := strip(batch, e)
		return errors.Join(err, put(batch, &stub))
	})
}

// Clear implements message.LogTrimmer, in one batch.
func (s *Store) Clear(_ context.Context, channelID string, after, before int64) error {
	return s.trim("clear", channelID, after, before, func(batch *pebble.Batch, e *message.Entry) error {
		stub, err := strip(batch, e)
		stub.FromID, stub.ClientMsgID = message.ErasedUser, message.ErasedKey(e.Seq)
		return errors.Join(err, put(batch, &stub), moveClientRow(batch, e, &stub))
	})
}

// strip deletes the rows of an entry that its stub does not have, and returns the stub.
func strip(batch *pebble.Batch, e *message.Entry) (stub message.Entry, err error) {
	switch {
	case e.Kind == message.KindSend:
		err = errors.Join(batch.Delete(entryKey(e), nil), batch.Delete(messageKey(e.ChannelID, e.MsgID), nil), dropOpen(batch, e))
		if e.ChangedSeq != e.Seq {
			err = errors.Join(err, batch.Delete(seqKey(changedRow, e.ChannelID, e.ChangedSeq), nil))
		}
	case e.Pending:
		err = batch.Delete(seqKey(pendingRow, e.ChannelID, e.Seq), nil)
	}
	return message.Entry{
		Kind: message.KindExpired, TargetSeq: e.TargetSeq, Bytes: e.Bytes,
		Message: message.Message{
			MsgID: e.MsgID, ChannelID: e.ChannelID, Seq: e.Seq, Count: e.Count, FromID: e.FromID, ClientMsgID: e.ClientMsgID,
			MsgTime: e.MsgTime, ChangedSeq: e.ChangedSeq, Rev: e.Rev,
		},
	}, err
}

// Delete implements message.LogTrimmer, in one batch. It deletes each row, because many range
// deletions in a memtable slow down every iterator.
func (s *Store) Delete(_ context.Context, channelID string, after, before int64) error {
	return s.trim("delete", channelID, after, before, func(batch *pebble.Batch, e *message.Entry) error {
		return errors.Join(batch.Delete(entryKey(e), nil), batch.Delete(clientKey(channelID, e.FromID, e.ClientMsgID), nil))
	})
}

// trim calls alter with each entry with after < seq < before, and commits the batch. No Apply runs
// meanwhile: it would write an entry as it was before.
func (s *Store) trim(what, channelID string, after, before int64, alter func(*pebble.Batch, *message.Entry) error) error {
	if err := s.begin(); err != nil {
		return fmt.Errorf("%s: %w", what, err)
	}
	defer s.end()
	if !validNames(channelID) {
		return errName
	}
	defer s.changing.lockAll()()
	if err := s.failure.err(); err != nil {
		return fmt.Errorf("%s: %w", what, err)
	}
	v := s.views.view()
	defer s.views.release(v)
	batch := s.db.NewBatch()
	for _, row := range [...]byte{sendRow, changeRow} {
		err := v.scan(row, channelID, after, before, false, func(_, value []byte) (bool, error) {
			e, err := decode(value)
			if err != nil {
				return false, err
			}
			return true, alter(batch, &e)
		})
		if err != nil {
			return fmt.Errorf("%s: %w", what, errors.Join(err, batch.Close()))
		}
	}
	if batch.Empty() {
		return batch.Close()
	}
	if err := s.commits.commit(batch); err != nil {
		return fmt.Errorf("%s: %w", what, err)
	}
	return nil
}

// boundary reads where the readable part of a log begins.
func (v *view) boundary(channelID string) (message.Boundary, error) {
	var record channelRecord
	_, err := v.record(channelKey(channelID), &record)
	return message.Boundary{Oldest: record.Oldest, Expired: record.Expired}, err
}
