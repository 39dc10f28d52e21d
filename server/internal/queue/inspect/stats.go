package inspect

import (
	"context"
	"slices"
	"strings"
	"time"

	"github.com/parleyhq/parley/server/internal/queue/qlog"
)

// TopicStats counts what a topic holds: each partition at one moment, the partitions one after
// another.
type TopicStats struct {
	Total      PartitionStats
	Partitions []PartitionStats
	// History is empty unless it was asked for.
	History []Sample
}

// PartitionStats counts the messages of a partition, or of a whole topic. See qlog.Counts.
type PartitionStats struct {
	Partition                                           int
	Length, Scheduled, Produced, Cancelled, DeadLetters int64
	First, Last                                         string
	Groups                                              []GroupStats
}

// GroupStats counts the messages of a group in a partition, or in a whole topic. Appended are those
// that were appended since the group's start:
//
//	Appended = Acked + Dead + Cancelled + Expired + Trimmed + Elsewhere + Waiting + Running +
//		Retrying
type GroupStats struct {
	Group string
	qlog.Counters
	Appended                   int64
	Waiting, Running, Retrying int64
	Replayed                   int64
	// OldestAge is the age of the oldest message that is not settled, 0 if there is none.
	OldestAge time.Duration
	// Sessions is how many sessions the group has, in a total. Dispatched is how many partitions
	// have a lease holder.
	Sessions, Dispatched int
}

// load is what the sessions of a group hold of each partition.
type load struct {
	sent, running []int64
	sessions      int
}

// loadOf adds up what sessions hold.
func loadOf(partitions int, sessions []qlog.SessionInfo) load {
	l := load{sent: make([]int64, partitions), running: make([]int64, partitions), sessions: len(sessions)}
	for i := range sessions {
		for _, p := range sessions[i].Loads {
			if p.Partition >= 0 && p.Partition < partitions {
				l.sent[p.Partition] += int64(p.Sent)
				l.running[p.Partition] += int64(p.Running)
			}
		}
	}
	return l
}

// Stats counts what a topic holds, in all and by partition.
func (s *Service) Stats(ctx context.Context, topic string, withHistory bool) (TopicStats, error) {
	t, err := s.topic(ctx, topic)
	if err != nil {
		return TopicStats{}, err
	}
	stats, err := s.stats(ctx, t, func(qlog.GroupCounts) bool { return true })
	if err != nil {
		return TopicStats{}, lookFault(err)
	}
	if samples := s.history.look(time.Now(), t); withHistory {
		stats.History = samples
	}
	return stats, nil
}

// stats counts a topic. Of a group's sessions it asks if ask is true for one of the partitions.
func (s *Service) stats(ctx context.Context, t *qlog.Topic, ask func(qlog.GroupCounts) bool) (TopicStats, error) {
	counts := make([]qlog.Counts, t.Partitions)
	err := each(ctx, t.Partitions, func(ctx context.Context, p int) (err error) {
		counts[p], err = s.cfg.Store.Look(ctx, t.Ref(p))
		return err
	})
	if err != nil {
		return TopicStats{}, err
	}
	wanted := map[string]bool{}
	for p := range counts {
		for _, g := range counts[p].Groups {
			wanted[g.Group] = wanted[g.Group] || ask(g)
		}
	}
	loads := make([]load, len(t.Groups))
	err = each(ctx, len(t.Groups), func(ctx context.Context, i int) error {
		if !wanted[t.Groups[i].Name] {
			return nil
		}
		// The counts of the store are worth something without those of the nodes.
		sessions, _, err := s.cfg.Consumers.Sessions(ctx, t.Name, t.Groups[i].Name)
		if err != nil {
			s.cfg.Logger.DebugContext(ctx, "the sessions of a group are not known", "topic", t.Name, "group", t.Groups[i].Name, "error", err)
		}
		loads[i] = loadOf(t.Partitions, sessions)
		return ctx.Err()
	})
	if err != nil {
		return TopicStats{}, err
	}
	stats := TopicStats{Partitions: make([]PartitionStats, t.Partitions)}
	for p := range counts {
		stats.Partitions[p] = partitionStats(t, p, &counts[p], loads)
	}
	stats.Total = total(stats.Partitions)
	for i := range stats.Total.Groups {
		g := &stats.Total.Groups[i]
		if at := slices.IndexFunc(t.Groups, func(other qlog.Group) bool { return other.Name == g.Group }); at >= 0 {
			g.Sessions = loads[at].sessions
		}
	}
	return stats, nil
}

func partitionStats(t *qlog.Topic, partition int, c *qlog.Counts, loads []load) PartitionStats {
	s := PartitionStats{
		Partition: partition, Length: c.Length, Scheduled: c.Scheduled, Produced: c.Produced, Cancelled: c.Cancelled,
		DeadLetters: c.DeadLetters, First: c.First, Last: c.Last,
	}
	for i := range c.Groups {
		g := &c.Groups[i]
		at := slices.IndexFunc(t.Groups, func(other qlog.Group) bool { return other.Name == g.Group })
		if at < 0 {
			continue // it is being deleted
		}
		var running int64
		if l := &loads[at]; l.running != nil {
			running = l.running[partition]
			if t.Groups[at].Mode == qlog.Shared {
				running += l.sent[partition]
			}
		}
		s.Groups = append(s.Groups, groupStats(g, running, c.Now))
	}
	return s
}

// groupStats counts a group. What sessions say they hold is of another moment than the rest.
func groupStats(c *qlog.GroupCounts, running int64, now time.Time) GroupStats {
	g := GroupStats{Group: c.Group, Counters: c.Counters, Appended: c.Appended, Replayed: c.Replayed}
	g.Retrying = min(c.Retrying, c.Open)
	g.Running = max(min(running, c.Open-g.Retrying), 0)
	g.Waiting = c.Open + c.Unsent - g.Retrying - g.Running
	if !c.Oldest.IsZero() {
		g.OldestAge = max(now.Sub(c.Oldest), 0)
	}
	if c.Holder != "" {
		g.Dispatched = 1
	}
	return g
}

// total adds partitions up. Its IDs are those of the oldest and the newest message, its OldestAge
// is the greatest.
func total(partitions []PartitionStats) PartitionStats {
	var sum PartitionStats
	groups := map[string]*GroupStats{}
	for i := range partitions {
		p := &partitions[i]
		sum.Length += p.Length
		sum.Scheduled += p.Scheduled
		sum.Produced += p.Produced
		sum.Cancelled += p.Cancelled
		sum.DeadLetters += p.DeadLetters
		if p.First != "" && (sum.First == "" || takenAt(p.First) < takenAt(sum.First)) {
			sum.First = p.First
		}
		if p.Last != "" && (sum.Last == "" || takenAt(p.Last) > takenAt(sum.Last)) {
			sum.Last = p.Last
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
	slices.SortFunc(sum.Groups, func(a, b GroupStats) int { return strings.Compare(a.Group, b.Group) })
	return sum
}

// takenAt returns when a message was accepted, by its ID.
func takenAt(messageID string) qlog.ID {
	_, id, _, ok := qlog.ParseMessageID(messageID)
	if !ok {
		return 0
	}
	return id
}

func (g *GroupStats) add(o *GroupStats) {
	g.Acked += o.Acked
	g.Dead += o.Dead
	g.Cancelled += o.Cancelled
	g.Expired += o.Expired
	g.Trimmed += o.Trimmed
	g.Elsewhere += o.Elsewhere
	g.Retried += o.Retried
	g.Redelivered += o.Redelivered
	g.Appended += o.Appended
	g.Waiting += o.Waiting
	g.Running += o.Running
	g.Retrying += o.Retrying
	g.Replayed += o.Replayed
	g.OldestAge = max(g.OldestAge, o.OldestAge)
	g.Dispatched += o.Dispatched
}
