package embedded

import (
	"context"
	"errors"
	"fmt"
	"hash/maphash"
	"slices"
	"sync"

	"github.com/cockroachdb/pebble/v2"

	"github.com/parleyhq/parley/server/internal/message"
)

// stripes holds locks that serialize the Apply calls of one message, from read to sync. Calls for
// different messages can share an fsync. The zero value is ready to use.
type stripes struct {
	once  sync.Once
	seed  maphash.Seed
	locks [64]sync.Mutex
}

func (s *stripes) of(channel string, target int64) int {
	s.once.Do(func() { s.seed = maphash.MakeSeed() })
	h := maphash.String(s.seed, channel) + uint64(target) //nolint:gosec // any number does
	return int(h % uint64(len(s.locks)))
}

// lock locks the stripes of the changes' targets until unlock is called.
func (s *stripes) lock(changes []*message.Entry) (unlock func()) {
	indices := make([]int, len(changes))
	for i, c := range changes {
		indices[i] = s.of(c.ChannelID, c.TargetSeq)
	}
	slices.Sort(indices) // one order for all callers, so that none waits for another one in a circle
	return s.lockThese(slices.Compact(indices))
}

// lockAll locks all stripes until unlock is called.
func (s *stripes) lockAll() (unlock func()) {
	indices := make([]int, len(s.locks))
	for i := range indices {
		indices[i] = i
	}
	return s.lockThese(indices)
}

func (s *stripes) lockThese(indices []int) (unlock func()) {
	for _, i := range indices {
		s.locks[i].Lock()
	}
	return func() {
		for _, i := range indices {
			s.locks[i].Unlock()
		}
	}
}

// Apply implements message.LogWriter. It writes all rows of the changes in one batch, which is
// synced once.
func (s *Store) Apply(_ context.Context, changes ...*message.Entry) error {
	changes = slices.DeleteFunc(slices.Clone(changes), func(e *message.Entry) bool { return !e.Kind.Changes() })
	if len(changes) == 0 {
		return nil
	}
	if err := s.begin(); err != nil {
		return fmt.Errorf("apply: %w", err)
	}
	defer s.end()
	defer s.changing.lock(changes)()
	if err := s.failure.err(); err != nil {
		return fmt.Errorf("apply: %w", err)
	}
	r := &rewrite{batch: s.db.NewBatch(), entries: make(map[message.Place]message.Entry), pending: make(map[string][]message.Entry)}
	if err := s.rewrite(r, changes); err != nil {
		return fmt.Errorf("apply: %w", errors.Join(err, r.batch.Close()))
	}
	if r.batch.Empty() {
		return r.batch.Close()
	}
	if err := s.commits.commit(r.batch); err != nil {
		return fmt.Errorf("apply: %w", err)
	}
	return nil
}

func (s *Store) rewrite(r *rewrite, changes []*message.Entry) error {
	r.view = s.views.view()
	defer s.views.release(r.view)
	for _, c := range changes {
		if err := r.apply(c); err != nil {
			return err
		}
	}
	return nil
}

// rewrite is a batch of the rows that changes alter.
type rewrite struct {
	view  *view
	batch *pebble.Batch
	// entries holds the entries that the batch alters, as they will be.
	entries map[message.Place]message.Entry
	// pending holds the pending changes of the channels that have recalls, as they are in view.
	pending map[string][]message.Entry
}

// entry returns an entry as it will be.
func (r *rewrite) entry(channelID string, seq int64) (message.Entry, error) {
	if e, ok := r.entries[message.Place{ChannelID: channelID, Seq: seq}]; ok {
		return e, nil
	}
	return r.view.mustUnlessExpired(channelID, seq)
}

func (r *rewrite) put(e *message.Entry) error {
	r.entries[message.Place{ChannelID: e.ChannelID, Seq: e.Seq}] = *e
	return put(r.batch, e)
}

// apply adds the rows that an edit or a recall alters to the batch: those of the message, those of
// the change itself, and for a recall those of earlier edits that are pending, which lose their
// text. If all are altered already, it adds none. A stripped or deleted message remains as it is.
func (r *rewrite) apply(change *message.Entry) error {
	target, err := r.entry(change.ChannelID, change.TargetSeq)
	if err != nil {
		return err
	}
	if target.Kind != message.KindSend && target.Kind != message.KindExpired {
		return fmt.Errorf("entry %d of %s is not a message", change.TargetSeq, change.ChannelID)
	}
	own, err := r.entry(change.ChannelID, change.Seq)
	if err != nil {
		return err
	}
	if target.Kind == message.KindSend && target.ChangedSeq < change.Seq {
		if target.ChangedSeq != target.Seq {
			err = r.batch.Delete(seqKey(changedRow, target.ChannelID, target.ChangedSeq), nil)
		}
		whole := *change
		whole.Pending = true
		before := target
		target = fold(target, whole)
		if target.FromID != before.FromID {
			target.Traceparent = ""
			err = errors.Join(err, moveClientRow(r.batch, &before, &target))
		}
		err = errors.Join(err, r.put(&target), dropOpen(r.batch, &before),
			r.batch.Set(seqKey(changedRow, target.ChannelID, target.ChangedSeq), appendNumber(nil, target.Seq), nil))
	}
	if own.Pending {
		own.Pending, own.Content = false, ""
		err = errors.Join(err, r.put(&own), r.batch.Delete(seqKey(pendingRow, own.ChannelID, own.Seq), nil))
	}
	if err != nil || change.Kind != message.KindRecall {
		return err
	}
	return r.blankBefore(change)
}

// blankBefore removes the texts of pending edits of a recall's target from before the recall.
func (r *rewrite) blankBefore(recall *message.Entry) error {
	pending, ok := r.pending[recall.ChannelID]
	if !ok {
		var err error
		if pending, err = r.view.pending(recall.ChannelID); err != nil {
			return err
		}
		r.pending[recall.ChannelID] = pending
	}
	for i := range pending {
		if pending[i].TargetSeq != recall.TargetSeq || pending[i].Seq >= recall.Seq {
			continue
		}
		e, err := r.entry(recall.ChannelID, pending[i].Seq)
		if err == nil && e.Content != "" {
			e.Content = ""
			err = r.put(&e)
		}
		if err != nil {
			return err
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
