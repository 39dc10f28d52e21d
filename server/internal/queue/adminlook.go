package queue

import (
	"cmp"
	"context"
	"slices"
	"strconv"
	"strings"
	"sync"
)

// maxPending is how many deliveries of each partition Pending looks at.
const maxPending = 10_000

// Stats counts what a topic holds, in all and by partition.
func (a *Admin) Stats(ctx context.Context, topic string) (TopicStats, error) {
	t, err := a.Topic(ctx, topic)
	if err != nil {
		return TopicStats{}, err
	}
	s := TopicStats{Partitions: make([]PartitionStats, t.Partitions), Members: make(map[string]int, len(t.Groups))}
	err = each(ctx, t.Partitions, func(ctx context.Context, p int) (err error) {
		s.Partitions[p], err = a.cfg.Store.Stats(ctx, t, p)
		return err
	})
	if err != nil {
		return TopicStats{}, lookFault(err)
	}
	counts := make([]int, len(t.Groups))
	err = each(ctx, len(t.Groups), func(ctx context.Context, i int) error {
		members, err := a.cfg.Store.Beat(ctx, t.Name, t.Groups[i].Name, nil, lookTTL)
		counts[i] = len(members)
		return err
	})
	if err != nil {
		return TopicStats{}, lookFault(err)
	}
	for i, g := range t.Groups {
		s.Members[g.Name] = counts[i]
	}
	s.Total = total(s.Partitions)
	return s, nil
}

// total adds partitions up. Its ids are of the oldest and newest message, its OldestAge is the greatest.
func total(partitions []PartitionStats) PartitionStats {
	var sum PartitionStats
	groups := make(map[string]*GroupStats)
	for i := range partitions {
		p := &partitions[i]
		sum.Length += p.Length
		sum.Delayed += p.Delayed
		sum.Produced += p.Produced
		sum.Cancelled += p.Cancelled
		sum.DeadLetters += p.DeadLetters
		if p.FirstID != "" && (sum.FirstID == "" || compareMessageIDs(p.FirstID, sum.FirstID) < 0) {
			sum.FirstID = p.FirstID
		}
		if p.LastID != "" && (sum.LastID == "" || compareMessageIDs(p.LastID, sum.LastID) > 0) {
			sum.LastID = p.LastID
		}
		for j := range p.Groups {
			g := &p.Groups[j]
			if groups[g.Group] == nil {
				groups[g.Group] = &GroupStats{Group: g.Group}
			}
			groups[g.Group].add(g)
		}
	}
	for _, g := range groups {
		sum.Groups = append(sum.Groups, *g)
	}
	slices.SortFunc(sum.Groups, func(x, y GroupStats) int { return strings.Compare(x.Group, y.Group) })
	return sum
}

func (g *GroupStats) add(o *GroupStats) {
	g.Unread += o.Unread
	g.Pending += o.Pending
	g.Retrying += o.Retrying
	g.Parked += o.Parked
	g.Acked += o.Acked
	g.Dead += o.Dead
	g.Retried += o.Retried
	g.Replayed += o.Replayed
	g.Trimmed += o.Trimmed
	g.Skipped += o.Skipped
	g.OldestAge = max(g.OldestAge, o.OldestAge)
	g.Held = g.Held || o.Held
}

// compareMessageIDs orders messages of several partitions by when they were taken.
func compareMessageIDs(x, y string) int {
	return cmp.Or(takenAs(x).Compare(takenAs(y)), strings.Compare(x, y))
}

// takenAs gives when a message was taken, from its id.
func takenAs(id string) EntryID {
	if strings.Count(id, "-") > 1 {
		_, id, _ = strings.Cut(id, "-")
	}
	e, _ := ParseEntryID(strings.TrimSuffix(id, "d")) // what is no id is older than all
	return e
}

// Partitions gives a topic's partitions by number, and if group is not empty who has each of them in it.
func (a *Admin) Partitions(ctx context.Context, topic, group string) ([]Owner, error) {
	var t *Topic
	var err error
	if group == "" {
		t, err = a.Topic(ctx, topic)
	} else {
		t, err = a.group(ctx, topic, group)
	}
	if err != nil {
		return nil, err
	}
	owners := make([]Owner, t.Partitions)
	for p := range owners {
		owners[p].Partition = p
	}
	if group == "" {
		return owners, nil
	}
	leases, members, err := a.holders(ctx, t, group)
	if err != nil {
		return nil, err
	}
	byID := make(map[string]Member, len(members))
	for _, m := range members {
		byID[m.StreamID] = m
	}
	for _, l := range leases {
		if l.Partition < len(owners) {
			m := byID[l.Holder] // of one that has gone and left its lease nothing but the id is known
			owners[l.Partition] = Owner{
				Partition: l.Partition, StreamID: l.Holder, Consumer: m.Consumer, NodeID: m.NodeID, Epoch: l.Epoch, Left: l.Left,
			}
		}
	}
	return owners, nil
}

// Pending gives n of what the group has been delivered and has not settled, from the offset on: those that are idle longest
// first, or byAttempts those that were delivered most often. total is how many there are, of which it looks at 10,000 of each
// partition.
func (a *Admin) Pending(
	ctx context.Context, topic, group string, byAttempts bool, offset, n int,
) (entries []PendingEntry, total int, err error) {
	t, err := a.group(ctx, topic, group)
	if err != nil {
		return nil, 0, err
	}
	var mu sync.Mutex // guards entries and total
	order := func(x, y PendingEntry) int {
		// Not by how long ago that is: the partitions are asked one after another.
		byIdle, attempts := x.Delivered.Compare(y.Delivered), cmp.Compare(y.Attempt, x.Attempt)
		rest := cmp.Or(cmp.Compare(x.Partition, y.Partition), compareMessageIDs(x.MessageID, y.MessageID))
		if byAttempts {
			return cmp.Or(attempts, byIdle, rest)
		}
		return cmp.Or(byIdle, attempts, rest)
	}
	// Only what can be on the page is kept.
	cut := func(to int) {
		if len(entries) > to {
			slices.SortFunc(entries, order)
			clear(entries[offset+n:])
			entries = entries[:offset+n]
		}
	}
	err = each(ctx, t.Partitions, func(ctx context.Context, p int) error {
		some, err := a.cfg.Store.Pending(ctx, t.Ref(p), group, maxPending)
		if err != nil {
			return err
		}
		mu.Lock()
		defer mu.Unlock()
		total += len(some)
		entries = append(entries, some...)
		cut(2*(offset+n) + maxPending)
		return nil
	})
	if err != nil {
		return nil, 0, lookFault(err)
	}
	cut(offset + n)
	slices.SortFunc(entries, order)
	entries = entries[min(offset, len(entries)):]
	if err := a.nameConsumers(ctx, t.Name, group, entries); err != nil {
		return nil, 0, err
	}
	return entries, total, nil
}

// nameConsumers adds the consumers' names to deliveries whose sessions live.
func (a *Admin) nameConsumers(ctx context.Context, topic, group string, entries []PendingEntry) error {
	if len(entries) == 0 {
		return nil
	}
	members, err := a.cfg.Store.Beat(ctx, topic, group, nil, lookTTL)
	if err != nil {
		return lookFault(err)
	}
	names := make(map[string]string, len(members))
	for _, m := range members {
		names[m.StreamID] = m.Consumer
	}
	for i := range entries {
		entries[i].Consumer = names[entries[i].StreamID]
	}
	return nil
}

// Trim removes a topic's oldest messages by hand. lost counts removed messages once for each group that had not settled them,
// which only happens with Force.
func (a *Admin) Trim(ctx context.Context, topic string, c Cut) (removed, lost int64, err error) {
	t, err := a.Topic(ctx, topic)
	if err != nil {
		return 0, 0, err
	}
	var mu sync.Mutex // guards the sums
	err = each(ctx, t.Partitions, func(ctx context.Context, p int) error {
		r, l, err := a.cfg.Store.Cut(ctx, t, p, c)
		mu.Lock()
		defer mu.Unlock()
		removed, lost = removed+r, lost+l
		return err
	})
	if err != nil {
		return 0, 0, undone(err)
	}
	return removed, lost, nil
}

// deadLetterID names a dead letter.
func deadLetterID(partition int, id EntryID) string {
	return strconv.Itoa(partition) + "-" + id.String()
}
