package redisqueue

import (
	"context"
	"fmt"
	"time"

	"github.com/parleyhq/parley/server/internal/queue"
)

var _ queue.LookStore = (*Store)(nil)

var (
	lookStats   = newScript("look_stats", -1, "lib_group")
	lookPending = newScript("look_pending", 3, "lib_group")
	lookCut     = newScript("look_cut", -1, "lib_group")
)

// Stats implements queue.LookStore. A group of t that the partition does not have is left out.
func (s *Store) Stats(ctx context.Context, t *queue.Topic, partition int) (queue.PartitionStats, error) {
	ref := t.Ref(partition)
	keys := []string{s.keys.meta(ref), s.keys.main(ref), s.keys.deadLetters(ref), s.keys.delayed(ref)}
	args := []any{t.UID, partition}
	for _, g := range t.Groups {
		keys = append(keys, s.keys.lease(ref, g.Name), s.keys.retry(ref, g.Name), s.keys.retrying(ref, g.Name), s.keys.parked(ref, g.Name),
			s.keys.stats(ref, g.Name))
		args = append(args, g.Name)
	}
	reply, err := s.read(ctx, lookStats, keys, args...)
	if err != nil {
		return queue.PartitionStats{}, fmt.Errorf("count partition %d of %s: %w", partition, t.Name, err)
	}
	r := readReply(reply)
	stats := queue.PartitionStats{
		Partition: partition, Length: r.number(), Delayed: r.number(), Produced: r.number(), Cancelled: r.number(), DeadLetters: r.number(),
		FirstID: r.text(), LastID: r.text(),
	}
	for _, g := range t.Groups {
		c := reader{fields: r.list()}
		if c.number() == 0 {
			continue
		}
		group := queue.GroupStats{
			Group: g.Name, Unread: c.number(), Pending: c.number(), Retrying: c.number(), Parked: c.number(),
			Acked: c.number(), Dead: c.number(), Retried: c.number(), Replayed: c.number(), Trimmed: c.number(), Skipped: c.number(),
			OldestAge: time.Duration(c.number()) * time.Millisecond, Held: c.number() == 1,
		}
		if r.err == nil {
			r.err = c.err
		}
		stats.Groups = append(stats.Groups, group)
	}
	if r.err != nil {
		return queue.PartitionStats{}, fmt.Errorf("count partition %d of %s: %w", partition, t.Name, r.err)
	}
	return stats, nil
}

// pendingStep is how many deliveries one call of the script looks at: it reads their messages, and Redis does nothing else meanwhile.
const pendingStep = 500

// Pending implements queue.LookStore: what is pending in the partition's stream first, then in the group's retries. It goes in steps, so
// that what is delivered or settled meanwhile may be among them or not, and what is retried meanwhile twice. ErrNoTopic, ErrNoGroup.
func (s *Store) Pending(ctx context.Context, ref queue.Ref, group string, n int) ([]queue.PendingEntry, error) {
	var all []queue.PendingEntry
	for _, stream := range []string{s.keys.main(ref), s.keys.retry(ref, group)} {
		for after, more := (queue.EntryID{}), true; more && len(all) < n; {
			step := min(n-len(all), pendingStep)
			some, last, err := s.pendingIn(ctx, ref, group, stream, after, step)
			if err != nil {
				return nil, fmt.Errorf("pending of %s in partition %d of %s: %w", group, ref.Partition, ref.Topic, err)
			}
			all = append(all, some...)
			after, more = last, len(some) == step
		}
	}
	return all, nil
}

// pendingIn gives up to n deliveries of one stream, after an id, and the last one's id.
func (s *Store) pendingIn(
	ctx context.Context, ref queue.Ref, group, stream string, after queue.EntryID, n int,
) (entries []queue.PendingEntry, last queue.EntryID, err error) {
	keys := []string{s.keys.meta(ref), stream, s.keys.lease(ref, group)}
	reply, err := s.read(ctx, lookPending, keys, ref.UID, group, ref.Partition, from(after), n)
	if err != nil {
		return nil, last, err
	}
	r := readReply(reply)
	holder, consumer := "", ""
	if value := r.text(); value != "" {
		var epoch int64
		if holder, epoch, err = parseFence(value); err != nil {
			return nil, last, err
		}
		consumer = consumerOf(epoch)
	}
	now := time.UnixMilli(r.number())
	last = r.id()
	for r.more() {
		p := reader{fields: r.list()}
		e := queue.PendingEntry{MessageID: p.text(), Partition: ref.Partition}
		if p.text() == consumer {
			e.StreamID = holder
		}
		e.Idle, e.Attempt = time.Duration(p.number())*time.Millisecond, int(p.number())
		e.Delivered = now.Add(-e.Idle)
		if r.err == nil {
			r.err = p.err
		}
		entries = append(entries, e)
	}
	return entries, last, r.err
}

// cutStep is how many messages one call of the script looks at: it reads them, and Redis does nothing else meanwhile.
const cutStep = 500

// Cut implements queue.LookStore. It goes in steps, each of which is atomic; after an error the earlier ones are done, and told.
// With Force ErrConflict, and nothing done by that step, if the partition has a group that t does not name.
func (s *Store) Cut(ctx context.Context, t *queue.Topic, partition int, c queue.Cut) (removed, lost int64, err error) {
	ref := t.Ref(partition)
	keys := []string{s.keys.meta(ref), s.keys.main(ref)}
	args := []any{t.UID, partition, c.Messages, c.Age.Milliseconds(), flag(c.Force), cutStep}
	for _, g := range t.Groups {
		keys = append(keys, s.keys.retry(ref, g.Name), s.keys.unsettled(ref, g.Name), s.keys.parked(ref, g.Name),
			s.keys.parkedData(ref, g.Name), s.keys.stats(ref, g.Name))
		args = append(args, g.Name)
	}
	for more := true; more; {
		reply, err := s.write(ctx, lookCut, keys, args...)
		if err != nil {
			return removed, lost, fmt.Errorf("trim partition %d of %s: %w", partition, t.Name, err)
		}
		r := readReply(reply)
		removed, lost, more = removed+r.number(), lost+r.number(), r.number() == 1
		if r.err != nil {
			return removed, lost, fmt.Errorf("trim partition %d of %s: %w", partition, t.Name, r.err)
		}
	}
	return removed, lost, nil
}
