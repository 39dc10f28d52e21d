package embedded

import (
	"context"
	"errors"
	"fmt"
	"hash/maphash"
	"sync"

	"github.com/cockroachdb/pebble/v2"
	"golang.org/x/sync/errgroup"

	"github.com/parleyhq/parley/server/internal/message"
)

// stripes holds locks that serialize the Apply calls of one message, from read to sync. Calls for
// different messages can share an fsync. The zero value is ready to use.
type stripes struct {
	once  sync.Once
	seed  maphash.Seed
	locks [64]sync.Mutex
}

func (s *stripes) of(channel string, target int64) *sync.Mutex {
	s.once.Do(func() { s.seed = maphash.MakeSeed() })
	h := maphash.String(s.seed, channel) + uint64(target) //nolint:gosec // any number does
	return &s.locks[h%uint64(len(s.locks))]
}

// lockAll locks all stripes until unlock is called.
func (s *stripes) lockAll() (unlock func()) {
	for i := range s.locks {
		s.locks[i].Lock()
	}
	return func() {
		for i := range s.locks {
			s.locks[i].Unlock()
		}
	}
}

// appliesAtOnce is the maximum number of changes that one Apply writes at the same time. They share
// fsyncs.
const appliesAtOnce = 64

// Apply implements message.LogWriter.
func (s *Store) Apply(_ context.Context, changes ...*message.Entry) error {
	var group errgroup.Group
	group.SetLimit(appliesAtOnce)
	for _, c := range changes {
		if c.Kind.Changes() {
			group.Go(func() error { return s.apply(c) })
		}
	}
	return group.Wait()
}

// apply writes all rows of a change in one batch.
func (s *Store) apply(change *message.Entry) error {
	if err := s.begin(); err != nil {
		return fmt.Errorf("apply: %w", err)
	}
	defer s.end()
	lock := s.changing.of(change.ChannelID, change.TargetSeq)
	lock.Lock()
	defer lock.Unlock()
	if err := s.failure.err(); err != nil {
		return fmt.Errorf("apply: %w", err)
	}
	batch := s.db.NewBatch()
	if err := s.rewrite(batch, change); err != nil {
		return fmt.Errorf("apply: %w", errors.Join(err, batch.Close()))
	}
	if batch.Empty() {
		return batch.Close()
	}
	if err := s.commits.commit(batch); err != nil {
		return fmt.Errorf("apply: %w", err)
	}
	return nil
}

// rewrite adds the rows that an edit or a recall alters to the batch: those of the message, those
// of the change itself, and for a recall those of earlier edits that are pending, which lose their
// text. If all are altered already, it adds none. A stripped or deleted message remains as it is.
func (s *Store) rewrite(batch *pebble.Batch, change *message.Entry) error {
	v := s.views.view()
	defer s.views.release(v)
	target, err := v.mustUnlessExpired(change.ChannelID, change.TargetSeq)
	if err != nil {
		return err
	}
	if target.Kind != message.KindSend && target.Kind != message.KindExpired {
		return fmt.Errorf("entry %d of %s is not a message", change.TargetSeq, change.ChannelID)
	}
	own, err := v.mustUnlessExpired(change.ChannelID, change.Seq)
	if err != nil {
		return err
	}
	if target.Kind == message.KindSend && target.ChangedSeq < change.Seq {
		if target.ChangedSeq != target.Seq {
			err = batch.Delete(seqKey(changedRow, target.ChannelID, target.ChangedSeq), nil)
		}
		whole := *change
		whole.Pending = true
		before := target
		target = fold(target, whole)
		if target.FromID != before.FromID {
			target.Traceparent = ""
			err = errors.Join(err, moveClientRow(batch, &before, &target))
		}
		err = errors.Join(err, put(batch, &target),
			batch.Set(seqKey(changedRow, target.ChannelID, target.ChangedSeq), appendNumber(nil, target.Seq), nil))
	}
	if own.Pending {
		own.Pending, own.Content = false, ""
		err = errors.Join(err, put(batch, &own), batch.Delete(seqKey(pendingRow, own.ChannelID, own.Seq), nil))
	}
	if err != nil || change.Kind != message.KindRecall {
		return err
	}
	pending, err := v.pending(change.ChannelID)
	if err != nil {
		return err
	}
	for i := range pending {
		if e := &pending[i]; e.TargetSeq == change.TargetSeq && e.Seq < change.Seq && e.Content != "" {
			e.Content = ""
			if err := put(batch, e); err != nil {
				return err
			}
		}
	}
	return nil
}

// put adds an entry's row to the batch.
func put(batch *pebble.Batch, e *message.Entry) error {
	value, err := encode(e)
	if err != nil {
		return err
	}
	return batch.Set(entryKey(e), value, nil)
}

// fold returns target with its pending changes applied.
func fold(target message.Entry, changes ...message.Entry) message.Entry {
	one := []message.Entry{target}
	message.Fold(one, changes)
	if one[0].Status == message.StatusRecalled {
		one[0].Digest = nil
	}
	return one[0]
}

// Targets implements message.LogWriter.
func (s *Store) Targets(_ context.Context, channelID string, msgIDs []string) (map[string]message.Entry, error) {
	if err := s.begin(); err != nil {
		return nil, fmt.Errorf("targets: %w", err)
	}
	defer s.end()
	v := s.views.view()
	defer s.views.release(v)
	pending, err := v.pending(channelID)
	if err != nil {
		return nil, fmt.Errorf("targets: %w", err)
	}
	targets := make(map[string]message.Entry, len(msgIDs))
	for _, id := range msgIDs {
		target, ok, err := v.message(channelID, id)
		if err != nil {
			return nil, fmt.Errorf("targets: %w", err)
		}
		if ok {
			targets[id] = fold(target, pending...)
		}
	}
	return targets, nil
}

// message returns the stored message with the given id. The bool is false if there is none.
func (v *view) message(channelID, msgID string) (message.Entry, bool, error) {
	if !validNames(channelID, msgID) {
		return message.Entry{}, false, nil
	}
	seq, ok, err := v.seq(messageKey(channelID, msgID))
	if err != nil || !ok {
		return message.Entry{}, false, err
	}
	e, err := v.must(channelID, seq)
	return e, err == nil, err
}

// lastSeq returns the seq of a channel's last entry, or 0 if the channel has no entry.
func (v *view) lastSeq(channelID string) (seq int64, err error) {
	for _, row := range [...]byte{sendRow, changeRow} {
		err = errors.Join(err, v.scan(row, channelID, 0, 0, true, func(key, _ []byte) (bool, error) {
			seq = max(seq, trailingNumber(key))
			return false, nil
		}))
	}
	return seq, err
}
