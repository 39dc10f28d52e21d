package embedded

import (
	"cmp"
	"context"
	"fmt"
	"slices"

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
	boundary, err := v.boundary(channelID)
	return message.Head{
		Seq: last[0].Seq, Count: last[0].Count, MsgTime: last[0].MsgTime, Bytes: last[0].Bytes, Rev: last[0].Rev, Boundary: boundary,
	}, err
}

// Heads implements message.LogReader.
func (s *Store) Heads(ctx context.Context, channelIDs []string) (map[string]message.Head, error) {
	heads := make(map[string]message.Head, len(channelIDs))
	for _, id := range channelIDs {
		head, err := s.Head(ctx, id)
		if err != nil {
			return nil, err
		}
		heads[id] = head
	}
	return heads, nil
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

func (v *view) entries(channelID string, r message.Range) ([]message.Entry, error) {
	if !validNames(channelID) || r.Limit <= 0 {
		return nil, nil
	}
	sends, err := v.entriesOf(sendRow, channelID, r)
	if err != nil || r.MessagesOnly {
		return sends, err
	}
	changes, err := v.entriesOf(changeRow, channelID, r)
	if err != nil || len(changes) == 0 {
		return sends, err
	}
	all := slices.Concat(sends, changes)
	slices.SortFunc(all, func(a, b message.Entry) int {
		if r.Desc {
			return cmp.Compare(b.Seq, a.Seq)
		}
		return cmp.Compare(a.Seq, b.Seq)
	})
	merged := limited{limit: r.Limit, maxBytes: r.MaxBytes}
	for i := range all {
		if !merged.add(&all[i]) {
			break
		}
	}
	return merged.found, nil
}

// entriesOf returns the entries of a range of one kind of rows.
func (v *view) entriesOf(row byte, channelID string, r message.Range) ([]message.Entry, error) {
	l := limited{limit: r.Limit, maxBytes: r.MaxBytes}
	err := v.scan(row, channelID, r.After, r.Before, r.Desc, func(_, value []byte) (bool, error) {
		e, err := decode(value)
		if err != nil {
			return false, err
		}
		if r.HeadersOnly {
			e.Content, e.Metadata = "", nil
		}
		return l.add(&e), nil
	})
	return l.found, err
}

// Messages implements message.LogReader.
func (s *Store) Messages(_ context.Context, places []message.Place) ([]message.Entry, error) {
	if err := s.begin(); err != nil {
		return nil, fmt.Errorf("messages: %w", err)
	}
	defer s.end()
	v := s.views.view()
	defer s.views.release(v)
	var found []message.Entry
	for _, p := range places {
		e, ok, err := v.entry(p.ChannelID, p.Seq)
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

// Pending implements message.LogReader.
func (s *Store) Pending(_ context.Context, channelIDs ...string) (pending []message.Entry, err error) {
	if err := s.begin(); err != nil {
		return nil, fmt.Errorf("pending: %w", err)
	}
	defer s.end()
	v := s.views.view()
	defer s.views.release(v)
	for _, id := range channelIDs {
		some, err := v.pending(id)
		if err != nil {
			return nil, fmt.Errorf("pending: %w", err)
		}
		pending = append(pending, some...)
	}
	return pending, nil
}

// Changed implements message.LogReader.
func (s *Store) Changed(
	_ context.Context, channelID string, after, before int64, limit, maxBytes int,
) ([]message.Entry, error) {
	if err := s.begin(); err != nil {
		return nil, fmt.Errorf("changed: %w", err)
	}
	defer s.end()
	if !validNames(channelID) || limit <= 0 {
		return nil, nil
	}
	v := s.views.view()
	defer s.views.release(v)
	l := limited{limit: limit, maxBytes: maxBytes}
	err := v.scan(changedRow, channelID, after, before, false, func(_, value []byte) (bool, error) {
		e, err := v.must(channelID, trailingNumber(value))
		if err != nil {
			return false, err
		}
		return l.add(&e), nil
	})
	return l.found, err
}
