package embedded

import (
	"context"
	"errors"
	"fmt"
	"hash/maphash"
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

func (s *stripes) of(channel string, target int64) *sync.Mutex {
	s.once.Do(func() { s.seed = maphash.MakeSeed() })
	h := maphash.String(s.seed, channel) + uint64(target) //nolint:gosec // any number does
	return &s.locks[h%uint64(len(s.locks))]
}

// Apply implements message.LogWriter. It writes all rows of a recall in one batch.
func (s *Store) Apply(_ context.Context, change *message.Entry) error {
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
	rewritten, err := s.rewrite(change)
	if err != nil {
		return fmt.Errorf("apply: %w", err)
	}
	if len(rewritten) == 0 {
		return nil
	}
	batch := s.db.NewBatch()
	for i := range rewritten {
		e := &rewritten[i]
		value, err := encode(e)
		if err == nil {
			err = batch.Set(entryKey(e.ChannelID, e.Seq), value, nil)
		}
		if err != nil {
			return fmt.Errorf("apply: %w", errors.Join(err, batch.Close()))
		}
	}
	if err := s.commits.commit(batch); err != nil {
		return fmt.Errorf("apply: %w", err)
	}
	return nil
}

// rewrite returns the entries that an edit or recall alters, as altered: the message and, for a
// recall, its earlier edits, which lose their text. If all are altered already, it returns none.
func (s *Store) rewrite(change *message.Entry) ([]message.Entry, error) {
	v := s.views.view()
	defer s.views.release(v)
	target, err := v.must(change.ChannelID, change.TargetSeq)
	if err != nil {
		return nil, err
	}
	if target.Kind != message.KindSend {
		return nil, fmt.Errorf("entry %d of %s is not a message", change.TargetSeq, change.ChannelID)
	}
	var rewritten []message.Entry
	if target.ChangedSeq < change.Seq {
		rewritten = append(rewritten, fold(target, *change))
	}
	if change.Kind != message.KindRecall {
		return rewritten, nil
	}
	edits, err := v.changes(change.ChannelID, change.TargetSeq, func(seq int64, kind message.Kind) bool {
		return kind == message.KindEdit && seq < change.Seq
	})
	if err != nil {
		return nil, err
	}
	for _, e := range edits {
		if e.Content != "" || len(e.Digest) != 0 {
			e.Content, e.Digest = "", nil
			rewritten = append(rewritten, e)
		}
	}
	return rewritten, nil
}

// fold returns target with its changes applied.
func fold(target message.Entry, changes ...message.Entry) message.Entry {
	entries := append([]message.Entry{target}, changes...)
	message.Fold(entries)
	if entries[0].Status == message.StatusRecalled {
		entries[0].Digest = nil
	}
	return entries[0]
}

// Target implements message.LogWriter.
func (s *Store) Target(_ context.Context, channelID, msgID string) (message.Entry, bool, error) {
	if err := s.begin(); err != nil {
		return message.Entry{}, false, fmt.Errorf("target: %w", err)
	}
	defer s.end()
	v := s.views.view()
	defer s.views.release(v)
	target, ok, err := v.message(channelID, msgID)
	if err != nil || !ok {
		return message.Entry{}, false, err
	}
	changes, err := v.changes(channelID, target.Seq, func(seq int64, _ message.Kind) bool { return seq > target.ChangedSeq })
	if err != nil {
		return message.Entry{}, false, fmt.Errorf("target: %w", err)
	}
	return fold(target, changes...), true, nil
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
	lower, upper := entryBounds(channelID, 0, 0)
	iter, err := v.NewIter(&pebble.IterOptions{LowerBound: lower, UpperBound: upper})
	if err != nil {
		return 0, fmt.Errorf("last entry: %w", err)
	}
	defer func() { err = errors.Join(err, iter.Close()) }()
	if iter.Last() {
		seq = trailingNumber(iter.Key())
	}
	return seq, iter.Error()
}
