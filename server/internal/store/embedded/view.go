package embedded

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"sync"

	"github.com/cockroachdb/pebble/v2"

	"github.com/parleyhq/parley/server/internal/message"
)

// view is a snapshot of the database taken after a sync. All readers between that sync and the next
// share it.
type view struct {
	*pebble.Snapshot
	// refs counts the users, plus one while it is the current view. Guarded by views.mu.
	refs int
}

// views holds the current view.
type views struct {
	mu      sync.Mutex
	current *view
}

// view returns the current view. The caller must release it.
func (vs *views) view() *view {
	vs.mu.Lock()
	defer vs.mu.Unlock()
	vs.current.refs++
	return vs.current
}

func (vs *views) release(v *view) {
	vs.mu.Lock()
	v.refs--
	last := v.refs == 0
	vs.mu.Unlock()
	if last {
		// Close of a snapshot always returns nil.
		_ = v.Close()
	}
}

func (vs *views) replace(snapshot *pebble.Snapshot) {
	vs.mu.Lock()
	old := vs.current
	vs.current = &view{Snapshot: snapshot, refs: 1}
	vs.mu.Unlock()
	vs.release(old)
}

// have reports which of the keys have a row. It reads in key order, which stays within one file for
// long. Unlike Get it also uses the filters of the lowest level, so that a missing key, as nearly
// all are, costs no read of a block.
func (v *view) have(keys [][]byte) (found []bool, err error) {
	iter, err := v.NewIter(&pebble.IterOptions{UseL6Filters: true})
	if err != nil {
		return nil, fmt.Errorf("find: %w", err)
	}
	defer func() { err = errors.Join(err, iter.Close()) }()
	order := make([]int, len(keys))
	for i := range order {
		order[i] = i
	}
	slices.SortFunc(order, func(a, b int) int { return bytes.Compare(keys[a], keys[b]) })
	found = make([]bool, len(keys))
	for _, i := range order {
		found[i] = iter.SeekPrefixGE(keys[i])
	}
	return found, iter.Error()
}

// seq reads a row whose value is a seq. ok is false if there is none.
func (v *view) seq(key []byte) (seq int64, ok bool, err error) {
	value, closer, err := v.Get(key)
	if errors.Is(err, pebble.ErrNotFound) {
		return 0, false, nil
	}
	if err != nil {
		return 0, false, fmt.Errorf("get: %w", err)
	}
	seq = trailingNumber(value)
	return seq, true, closer.Close()
}

// entry reads an entry by its seq. ok is false if there is none.
func (v *view) entry(channel string, seq int64) (e message.Entry, ok bool, err error) {
	for _, row := range [...]byte{sendRow, changeRow} {
		value, closer, err := v.Get(seqKey(row, channel, seq))
		if errors.Is(err, pebble.ErrNotFound) {
			continue
		}
		if err != nil {
			return message.Entry{}, false, fmt.Errorf("get: %w", err)
		}
		e, err = decode(value)
		return e, err == nil, errors.Join(err, closer.Close())
	}
	return message.Entry{}, false, nil
}

// must reads an entry that another row of the same view refers to. A missing entry is an error.
func (v *view) must(channel string, seq int64) (message.Entry, error) {
	e, ok, err := v.entry(channel, seq)
	if err == nil && !ok {
		err = fmt.Errorf("entry %d of %s is missing", seq, channel)
	}
	return e, err
}

// mustUnlessExpired is must, except that it returns an entry of KindExpired for one that is missing
// because it has expired.
func (v *view) mustUnlessExpired(channel string, seq int64) (message.Entry, error) {
	e, ok, err := v.entry(channel, seq)
	if err != nil || ok {
		return e, err
	}
	boundary, err := v.boundary(channel)
	if err != nil {
		return message.Entry{}, err
	}
	if seq >= boundary.First() {
		return message.Entry{}, fmt.Errorf("entry %d of %s is missing", seq, channel)
	}
	return message.Entry{Message: message.Message{ChannelID: channel, Seq: seq}, Kind: message.KindExpired}, nil
}

// scan calls yield with the keys and values of a channel's rows with after < number < before, in
// ascending order, or descending if desc is set, until yield returns false or an error. Both are
// valid until yield returns.
func (v *view) scan(
	row byte, channel string, after, before int64, desc bool, yield func(key, value []byte) (more bool, err error),
) (err error) {
	lower, upper := seqBounds(row, channel, after, before)
	iter, err := v.NewIter(&pebble.IterOptions{LowerBound: lower, UpperBound: upper})
	if err != nil {
		return fmt.Errorf("scan: %w", err)
	}
	defer func() { err = errors.Join(err, iter.Close()) }()
	first, next := iter.First, iter.Next
	if desc {
		first, next = iter.Last, iter.Prev
	}
	for ok := first(); ok; ok = next() {
		if more, err := yield(iter.Key(), iter.Value()); err != nil || !more {
			return err
		}
	}
	return iter.Error()
}

// pending returns a channel's edits and recalls that are not applied, ascending by seq.
func (v *view) pending(channel string) (pending []message.Entry, err error) {
	if !validNames(channel) {
		return nil, nil
	}
	err = v.scan(pendingRow, channel, 0, 0, false, func(key, _ []byte) (bool, error) {
		e, err := v.must(channel, trailingNumber(key))
		pending = append(pending, e)
		return true, err
	})
	return pending, err
}

// limited collects entries within the limits of a Range.
type limited struct {
	found           []message.Entry
	limit, maxBytes int
	size            int
}

// add adds an entry. It returns false if that was the last one.
func (l *limited) add(e *message.Entry) bool {
	l.found = append(l.found, *e)
	l.size += e.Size()
	return len(l.found) < l.limit && (l.maxBytes == 0 || l.size <= l.maxBytes)
}
