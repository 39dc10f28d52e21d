package redisqueue

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/parleyhq/parley/server/internal/queue"
	"github.com/parleyhq/parley/server/internal/store/redisscript"
)

var _ queue.GroupStore = (*Store)(nil)

var (
	groupAcquire = newScript("group_acquire", 5)
	groupRenew   = newScript("group_renew", 3)
	groupFree    = newScript("group_free", 1)
	groupLease   = newScript("group_lease", 2)
)

// fence is the value that a lease has while it is the holder's.
func fence(l *queue.Lease) string { return l.Holder + " " + strconv.FormatInt(l.Epoch, 10) }

// parseFence reads what fence gave.
func parseFence(value string) (holder string, epoch int64, err error) {
	at := strings.LastIndexByte(value, ' ')
	if at < 0 {
		return "", 0, fmt.Errorf("%q is no lease", value)
	}
	if epoch, err = strconv.ParseInt(value[at+1:], 10, 64); err != nil {
		return "", 0, fmt.Errorf("%q is no lease", value)
	}
	return value[:at], epoch, nil
}

// consumerOf is the name under which an epoch reads. So what is pending tells of which epoch it is.
func consumerOf(epoch int64) string { return "e" + strconv.FormatInt(epoch, 10) }

// Leases implements queue.GroupStore.
func (s *Store) Leases(ctx context.Context, t *queue.Topic, group string) ([]queue.Lease, error) {
	calls := make([]redisscript.Call, t.Partitions)
	for p := range calls {
		ref := t.Ref(p)
		calls[p].Keys = []string{s.keys.lease(ref, group), s.keys.epoch(ref, group)}
	}
	leases := make([]queue.Lease, t.Partitions)
	for p, result := range groupLease.Run(ctx, s.client, calls) {
		reply, err := result.Slice()
		if err != nil {
			return nil, fmt.Errorf("leases of %s in %s: %w", group, t.Name, readError(err))
		}
		lease := queue.Lease{Ref: t.Ref(p), Group: group}
		r := reader{fields: reply}
		value, left, last := r.text(), r.number(), r.text()
		if r.err == nil && value != "" {
			lease.Holder, lease.Epoch, r.err = parseFence(value)
			lease.Left = time.Duration(max(left, 0)) * time.Millisecond
		} else if r.err == nil {
			lease.Epoch, r.err = strconv.ParseInt(last, 10, 64)
		}
		if r.err != nil {
			return nil, fmt.Errorf("lease of %s in partition %d of %s: %w", group, p, t.Name, r.err)
		}
		leases[p] = lease
	}
	return leases, nil
}

// Acquire implements queue.GroupStore.
func (s *Store) Acquire(ctx context.Context, ref queue.Ref, group, holder string, ttl time.Duration) (queue.Lease, error) {
	keys := []string{
		s.keys.meta(ref), s.keys.main(ref), s.keys.lease(ref, group), s.keys.epoch(ref, group), s.keys.retry(ref, group),
	}
	reply, err := s.write(ctx, groupAcquire, keys, ref.UID, group, holder, ttl.Milliseconds())
	if err != nil {
		return queue.Lease{}, fmt.Errorf("acquire partition %d of %s for %s: %w", ref.Partition, ref.Topic, group, err)
	}
	text, _ := reply.(string)
	epoch, err := strconv.ParseInt(text, 10, 64)
	if err != nil {
		return queue.Lease{}, fmt.Errorf("acquire partition %d of %s for %s: epoch %v", ref.Partition, ref.Topic, group, reply)
	}
	return queue.Lease{Ref: ref, Group: group, Holder: holder, Epoch: epoch, Left: ttl}, nil
}

// Renew implements queue.GroupStore.
func (s *Store) Renew(ctx context.Context, leases []queue.Lease, ttl time.Duration) []queue.Renewal {
	calls := make([]redisscript.Call, len(leases))
	for i := range leases {
		l := &leases[i]
		calls[i] = redisscript.Call{
			Keys: []string{s.keys.lease(l.Ref, l.Group), s.keys.main(l.Ref), s.keys.retry(l.Ref, l.Group)},
			Args: []any{fence(l), ttl.Milliseconds(), l.Group},
		}
	}
	renewals := make([]queue.Renewal, len(leases))
	if len(leases) == 0 {
		return renewals
	}
	for i, result := range groupRenew.Run(ctx, s.client, calls) {
		l := &leases[i] //nolint:gosec // a result for each
		switch n, err := result.Int(); {
		case err != nil:
			renewals[i].Err = fmt.Errorf("renew the lease of partition %d of %s: %w", l.Partition, l.Topic, writeError(err))
		case n < 0:
			renewals[i].Err = queue.ErrFenced
		default:
			renewals[i].Pending = n
		}
	}
	return renewals
}

// Free implements queue.GroupStore.
func (s *Store) Free(ctx context.Context, lease queue.Lease) error {
	if _, err := s.write(ctx, groupFree, []string{s.keys.lease(lease.Ref, lease.Group)}, fence(&lease)); err != nil {
		return fmt.Errorf("free the lease of partition %d of %s: %w", lease.Partition, lease.Topic, err)
	}
	return nil
}

// reader takes a script's answer apart, value by value. After the first that is of another kind it gives only zeros.
type reader struct {
	fields []any
	at     int
	err    error
}

var errShort = errors.New("an answer is too short")

// readReply begins to read an answer that is a list.
func readReply(reply any) *reader {
	fields, ok := reply.([]any)
	if !ok {
		return &reader{err: fmt.Errorf("an answer is a %T", reply)}
	}
	return &reader{fields: fields}
}

func (r *reader) next() any {
	if r.err == nil && r.at >= len(r.fields) {
		r.err = errShort
	}
	if r.err != nil {
		return nil
	}
	r.at++
	return r.fields[r.at-1]
}

func (r *reader) fail(want string, v any) {
	if r.err == nil {
		r.err = fmt.Errorf("value %d of an answer is a %T, and no %s", r.at, v, want)
	}
}

func (r *reader) text() string {
	v := r.next()
	text, ok := v.(string)
	if !ok {
		r.fail("text", v)
	}
	return text
}

// number reads an integer, or a text that is one: counters come as they are kept.
func (r *reader) number() int64 {
	switch v := r.next().(type) {
	case int64:
		return v
	case string:
		n, err := strconv.ParseInt(v, 10, 64)
		if err != nil {
			r.fail("number", v)
		}
		return n
	default:
		r.fail("number", v)
		return 0
	}
}

// id reads an entry's id; zero if it is empty.
func (r *reader) id() queue.EntryID {
	text := r.text()
	if text == "" {
		return queue.EntryID{}
	}
	id, err := queue.ParseEntryID(text)
	if err != nil {
		r.fail("entry's id", text)
	}
	return id
}

func (r *reader) list() []any {
	v := r.next()
	list, ok := v.([]any)
	if !ok {
		r.fail("list", v)
	}
	return list
}

// more reports whether there is another value.
func (r *reader) more() bool { return r.err == nil && r.at < len(r.fields) }
