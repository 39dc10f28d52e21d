package redisqueue

import (
	"context"
	"fmt"

	"github.com/parleyhq/parley/server/internal/queue"
)

var (
	groupFetch       = newScript("group_fetch", 5, "lib_fetch")
	groupFetchStrict = newScript("group_fetch_strict", 8, "lib_group", "lib_fetch")
	groupClaim       = newScript("group_claim", 7, "lib_group")
)

// Fetch implements queue.GroupStore.
func (s *Store) Fetch(ctx context.Context, t *queue.Topic, lease queue.Lease, mark int64, n int) ([]queue.Entry, int, error) {
	ref, g := lease.Ref, lease.Group
	script := groupFetch
	keys := []string{s.keys.meta(ref), s.keys.lease(ref, g), s.keys.retry(ref, g), s.keys.main(ref)}
	args := []any{ref.UID, fence(&lease), g, consumerOf(lease.Epoch), n, mark}
	if !t.StrictOrder {
		keys = append(keys, s.keys.stats(ref, g))
	} else {
		script = groupFetchStrict
		keys = append(keys, s.keys.unsettled(ref, g), s.keys.parked(ref, g), s.keys.parkedData(ref, g), s.keys.stats(ref, g))
		args = append(args, ref.Partition)
	}
	reply, err := s.write(ctx, script, keys, args...)
	if err != nil {
		return nil, 0, fmt.Errorf("fetch from partition %d of %s for %s: %w", ref.Partition, ref.Topic, g, err)
	}
	r := readReply(reply)
	looked, retries, mains := int(r.number()), r.list(), r.list()
	if r.err != nil {
		return nil, 0, fmt.Errorf("fetch from partition %d of %s for %s: %w", ref.Partition, ref.Topic, g, r.err)
	}
	entries := make([]queue.Entry, 0, len(retries)+len(mains))
	for i, read := range [][]any{retries, mains} {
		place := queue.Retries
		if i == 1 {
			place = queue.Main
		}
		for _, raw := range read {
			e, err := decodeEntry(ref.Partition, place, raw)
			if err != nil {
				return nil, 0, fmt.Errorf("fetch from partition %d of %s for %s: %w", ref.Partition, ref.Topic, g, err)
			}
			entries = append(entries, e)
		}
	}
	return entries, looked, nil
}

// Claim implements queue.GroupStore.
func (s *Store) Claim(
	ctx context.Context, lease queue.Lease, place queue.Place, after queue.EntryID, n int,
) (queue.Claimed, error) {
	ref, g := lease.Ref, lease.Group
	stream := s.keys.main(ref)
	if place == queue.Retries {
		stream = s.keys.retry(ref, g)
	}
	keys := []string{
		s.keys.lease(ref, g), stream, s.keys.stats(ref, g), s.keys.unsettled(ref, g), s.keys.parked(ref, g), s.keys.parkedData(ref, g),
		s.keys.retry(ref, g),
	}
	reply, err := s.write(ctx, groupClaim, keys, fence(&lease), g, consumerOf(lease.Epoch), from(after), n)
	if err != nil {
		return queue.Claimed{}, fmt.Errorf("claim in partition %d of %s for %s: %w", ref.Partition, ref.Topic, g, err)
	}
	r := readReply(reply)
	looked, claimed := r.number(), queue.Claimed{Next: r.id(), Mark: r.number()}
	claimed.More = looked == int64(n)
	for r.more() {
		entry := reader{fields: r.list()}
		raw := []any{entry.next(), entry.next()}
		deliveries := entry.number()
		if entry.err != nil {
			r.err = entry.err
			break
		}
		e, err := decodeEntry(ref.Partition, place, raw)
		if err != nil {
			r.err = err
			break
		}
		e.Attempt += int(deliveries) - 1
		claimed.Entries = append(claimed.Entries, e)
	}
	if r.err != nil {
		return queue.Claimed{}, fmt.Errorf("claim in partition %d of %s for %s: %w", ref.Partition, ref.Topic, g, r.err)
	}
	return claimed, nil
}

// from is where a range begins that goes on after an id: at the stream's beginning if that is zero.
func from(after queue.EntryID) string {
	if after.IsZero() {
		return "-"
	}
	return "(" + after.String()
}
