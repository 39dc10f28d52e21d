package redislog

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"

	"github.com/parleyhq/parley/server/internal/queue/qlog"
)

var commitScript = newScript("commit", -1, "lib_state", "lib_letters")

// Commit implements qlog.Store.
func (s *Store) Commit(ctx context.Context, ref qlog.GroupRef, c *qlog.Commit) (qlog.Committed, error) {
	committed, err := s.commit(ctx, ref, c)
	if err != nil {
		return qlog.Committed{}, fmt.Errorf("commit %d of group %s in partition %d of %s: %w", c.Ver, ref.Group, ref.Partition, ref.Topic, err)
	}
	return committed, nil
}

func (s *Store) commit(ctx context.Context, ref qlog.GroupRef, c *qlog.Commit) (qlog.Committed, error) {
	if c.Ver != c.Acked+1 {
		return qlog.Committed{}, fmt.Errorf("the commit after version %d has version %d", c.Acked, c.Ver)
	}
	changes := len(c.Open) + len(c.Rows) + len(c.DeleteRows) + len(c.Dead) + len(c.FreeUnique) + len(c.Delete)
	if changes > qlog.MaxChanges {
		return qlog.Committed{}, fmt.Errorf("%w: %d changes, at most %d", qlog.ErrTooLarge, changes, qlog.MaxChanges)
	}
	keys, args := s.commitArgs(ref, c)
	size := 0
	for _, a := range args {
		text, _ := a.(string)
		size += len(text)
	}
	if size > qlog.MaxCallBytes {
		return qlog.Committed{}, fmt.Errorf("%w: %d bytes, at most %d", qlog.ErrTooLarge, size, qlog.MaxCallBytes)
	}
	reply, err := s.write(ctx, commitScript, keys, args...)
	if err != nil {
		return qlog.Committed{}, err
	}
	list, ok := reply.([]any)
	if !ok || len(list) != 7 {
		return qlog.Committed{}, fmt.Errorf("commit.lua returned %v", reply)
	}
	n, err := numbersOf(list)
	if err != nil {
		return qlog.Committed{}, err
	}
	last := qlog.Pos{ID: qlog.ID(n[0]), Ord: n[1]}
	return qlog.Committed{Last: last, GroupsVersion: n[2], Largest: largest(n[3:])}, nil
}

// commitArgs returns the keys and arguments of commit.lua. Equal commits have equal ones.
func (s *Store) commitArgs(ref qlog.GroupRef, c *qlog.Commit) (keys []string, args []any) {
	keys = []string{
		s.keys.state(ref.Ref, ref.Group), s.keys.open(ref.Ref, ref.Group), s.keys.rows(ref.Ref, ref.Group),
		s.keys.due(ref.Ref, ref.Group), s.keys.meta(ref.Ref), s.keys.sizes(ref.Ref), s.keys.main(ref.Ref),
		s.keys.deadLetters(ref.Ref), s.keys.deadData(ref.Ref), s.keys.moved(ref.Ref),
	}
	counters := slices.DeleteFunc(countersOf(&c.Add), func(n counter) bool { return *n.value == 0 })
	args = []any{
		ref.UID, strconv.Itoa(ref.Partition), ref.Group, c.Epoch, c.Acked, c.Ver, c.Cursor.String(), c.Sent.String(),
		flag(c.Release) + flag(c.Release && c.Unsure), c.GroupsVersion, len(counters), len(c.Open), len(c.Rows), len(c.DeleteRows), len(c.Dead),
		len(c.FreeUnique), len(c.Delete),
	}
	for _, n := range counters {
		args = append(args, n.name, *n.value)
	}
	for _, chunk := range slices.Sorted(maps.Keys(c.Open)) {
		args = append(args, chunkField(chunk), c.Open[chunk])
	}
	for _, id := range slices.Sorted(maps.Keys(c.Rows)) {
		row := c.Rows[id]
		due := ""
		if (row.State == qlog.RowRetrying || row.State == qlog.RowSuspect) && !row.Due.IsZero() {
			due = strconv.FormatInt(ceilMilli(row.Due), 10)
		}
		args = append(args, int64(id), encodeRow(&row), due)
	}
	for _, id := range c.DeleteRows {
		args = append(args, int64(id))
	}
	for i := range c.Dead {
		d := &c.Dead[i]
		args = append(args, d.Pos.String(), d.MessageID, d.Attempts, d.Reason, d.Code, d.Key, d.PayloadBytes)
	}
	for _, key := range slices.Sorted(maps.Keys(c.FreeUnique)) {
		keys = append(keys, s.keys.unique(ref.Ref, key))
		args = append(args, int64(c.FreeUnique[key]))
	}
	for _, pos := range c.Delete {
		args = append(args, pos.String())
	}
	return keys, args
}

// counter is a counter and the name of its field.
type counter struct {
	name  string
	value *int64
}

// countersOf returns all counters of c.
func countersOf(c *qlog.Counters) []counter {
	return []counter{
		{"acked", &c.Acked},
		{"dead", &c.Dead},
		{"cancelled", &c.Cancelled},
		{"expired", &c.Expired},
		{"trimmed", &c.Trimmed},
		{"elsewhere", &c.Elsewhere},
		{"retried", &c.Retried},
		{"redelivered", &c.Redelivered},
	}
}

// largest returns the sizes without the zeros at their end.
func largest(sizes []int64) []int {
	for len(sizes) > 0 && sizes[len(sizes)-1] == 0 {
		sizes = sizes[:len(sizes)-1]
	}
	var all []int
	for _, n := range sizes {
		all = append(all, int(n))
	}
	return all
}

var sweepScript = newScript("sweep", 2)

// Sweep implements qlog.Store. At most qlog.MaxChanges entries.
func (s *Store) Sweep(ctx context.Context, ref qlog.Ref, version int64, entries []qlog.Pos) (int, error) {
	if len(entries) == 0 {
		return 0, nil
	}
	if len(entries) > qlog.MaxChanges {
		return 0, fmt.Errorf("sweep: %w: %d entries, at most %d", qlog.ErrTooLarge, len(entries), qlog.MaxChanges)
	}
	args := []any{ref.UID, version}
	for _, pos := range entries {
		args = append(args, pos.String())
	}
	reply, err := s.write(ctx, sweepScript, []string{s.keys.main(ref), s.keys.meta(ref)}, args...)
	if err != nil {
		return 0, fmt.Errorf("sweep partition %d of %s: %w", ref.Partition, ref.Topic, err)
	}
	n, _ := reply.(int64)
	return int(n), nil
}

// comparePos orders positions by their IDs.
func comparePos(a, b qlog.Pos) int { return cmp.Compare(a.ID, b.ID) }
