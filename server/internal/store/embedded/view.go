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
	value, closer, err := v.Get(entryKey(channel, seq))
	if errors.Is(err, pebble.ErrNotFound) {
		return message.Entry{}, false, nil
	}
	if err != nil {
		return message.Entry{}, false, fmt.Errorf("get: %w", err)
	}
	e, err = decode(value)
	return e, err == nil, errors.Join(err, closer.Close())
}

// must reads an entry that another row of the same view refers to. A missing entry is an error.
func (v *view) must(channel string, seq int64) (message.Entry, error) {
	e, ok, err := v.entry(channel, seq)
	if err == nil && !ok {
		err = fmt.Errorf("entry %d of %s is missing", seq, channel)
	}
	return e, err
}

// changes returns the edits and recalls of the message at seq target for which keep returns true,
// ascending by seq.
func (v *view) changes(channel string, target int64, keep func(seq int64, kind message.Kind) bool) (found []message.Entry, err error) {
	iter, err := v.NewIter(&pebble.IterOptions{
		LowerBound: changeKey(channel, target, 0),
		UpperBound: changeKey(channel, target+1, 0),
	})
	if err != nil {
		return nil, fmt.Errorf("changes of %d: %w", target, err)
	}
	defer func() { err = errors.Join(err, iter.Close()) }()
	for iter.First(); iter.Valid(); iter.Next() {
		seq := trailingNumber(iter.Key())
		if !keep(seq, message.Kind(iter.Value()[0])) { //nolint:gosec // written from an int8
			continue
		}
		e, err := v.must(channel, seq)
		if err != nil {
			return nil, err
		}
		found = append(found, e)
	}
	return found, iter.Error()
}
