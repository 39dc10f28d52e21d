package embedded

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/cockroachdb/pebble/v2"

	"github.com/parleyhq/parley/server/internal/message"
)

// Head implements message.LogWriter and message.LogReader.
func (s *Store) Head(_ context.Context, channelID string) (message.Head, error) {
	if err := s.begin(); err != nil {
		return message.Head{}, fmt.Errorf("head: %w", err)
	}
	defer s.end()
	v := s.views.view()
	defer s.views.release(v)
	last, err := v.entries(channelID, message.Range{Desc: true, Limit: 1})
	if err != nil || len(last) == 0 {
		return message.Head{}, err
	}
	return message.Head{Seq: last[0].Seq, Count: last[0].Count, MsgTime: last[0].MsgTime}, nil
}

// Entries implements message.LogReader. It always reads up to the end of the log.
func (s *Store) Entries(_ context.Context, channelID string, r message.Range) ([]message.Entry, error) {
	if err := s.begin(); err != nil {
		return nil, fmt.Errorf("entries: %w", err)
	}
	defer s.end()
	v := s.views.view()
	defer s.views.release(v)
	return v.entries(channelID, r)
}

func (v *view) entries(channelID string, r message.Range) (found []message.Entry, err error) {
	if !validNames(channelID) {
		return nil, nil
	}
	lower, upper := entryBounds(channelID, r.After, r.Before)
	iter, err := v.NewIter(&pebble.IterOptions{LowerBound: lower, UpperBound: upper})
	if err != nil {
		return nil, fmt.Errorf("entries: %w", err)
	}
	defer func() { err = errors.Join(err, iter.Close()) }()
	first, next := iter.First, iter.Next
	if r.Desc {
		first, next = iter.Last, iter.Prev
	}
	size := 0
	for ok := first(); ok && len(found) < r.Limit; ok = next() {
		e, err := decode(iter.Value())
		if err != nil {
			return nil, err
		}
		found = append(found, e)
		if size += len(e.Content); r.MaxBytes > 0 && size > r.MaxBytes {
			break
		}
	}
	return found, iter.Error()
}

// Messages implements message.LogReader.
func (s *Store) Messages(_ context.Context, channelID string, seqs []int64) ([]message.Entry, error) {
	if err := s.begin(); err != nil {
		return nil, fmt.Errorf("messages: %w", err)
	}
	defer s.end()
	v := s.views.view()
	defer s.views.release(v)
	var found []message.Entry
	for _, seq := range seqs {
		e, ok, err := v.entry(channelID, seq)
		if err != nil {
			return nil, fmt.Errorf("messages: %w", err)
		}
		if ok && e.Kind == message.KindSend {
			found = append(found, e)
		}
	}
	return found, nil
}

// Message implements message.LogReader.
func (s *Store) Message(_ context.Context, channelID, msgID string) (message.Entry, bool, error) {
	if err := s.begin(); err != nil {
		return message.Entry{}, false, fmt.Errorf("message: %w", err)
	}
	defer s.end()
	v := s.views.view()
	defer s.views.release(v)
	return v.message(channelID, msgID)
}

// ByClientKeys implements message.LogWriter.
func (s *Store) ByClientKeys(_ context.Context, channelID string, keys []message.ClientKey) (map[message.ClientKey]message.Entry, error) {
	if err := s.begin(); err != nil {
		return nil, fmt.Errorf("by client keys: %w", err)
	}
	defer s.end()
	v := s.views.view()
	defer s.views.release(v)
	found := make(map[message.ClientKey]message.Entry)
	for _, k := range keys {
		if !validNames(channelID, k.FromID, k.ClientMsgID) {
			continue
		}
		seq, ok, err := v.seq(clientKey(channelID, k.FromID, k.ClientMsgID))
		if err != nil {
			return nil, fmt.Errorf("by client keys: %w", err)
		}
		if !ok {
			continue
		}
		if found[k], err = v.must(channelID, seq); err != nil {
			return nil, fmt.Errorf("by client keys: %w", err)
		}
	}
	return found, nil
}

// Changes implements message.LogReader.
func (s *Store) Changes(_ context.Context, channelID string, targets []int64) ([]message.Entry, error) {
	if err := s.begin(); err != nil {
		return nil, fmt.Errorf("changes: %w", err)
	}
	defer s.end()
	v := s.views.view()
	defer s.views.release(v)
	var all []message.Entry
	for _, target := range targets {
		changes, err := v.changes(channelID, target, func(int64, message.Kind) bool { return true })
		if err != nil {
			return nil, err
		}
		all = append(all, changes...)
	}
	slices.SortFunc(all, func(a, b message.Entry) int { return cmp.Compare(a.Seq, b.Seq) })
	return all, nil
}
