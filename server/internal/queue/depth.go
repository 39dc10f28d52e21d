package queue

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"go.opentelemetry.io/otel/metric"
)

const (
	// depthEvery is how old the gauges' numbers may be, and depthTimeout how long it may take to count anew.
	depthEvery   = 10 * time.Second
	depthTimeout = 2 * time.Second
)

// gauges tell what the partitions hold that a scheduler has. Nothing is counted unless somebody collects.
type gauges struct {
	scheduler *Scheduler

	mu sync.Mutex // guards what follows; it is held while partitions are counted, so that collectors share it
	// counted are the numbers at the time at.
	counted map[Ref]PartitionStats
	at      time.Time
}

// gauge is an instrument and where its number comes from: of a partition, or of a group in it.
type gauge struct {
	instrument metric.Int64ObservableGauge
	partition  func(*PartitionStats) int64
	group      func(*GroupStats) int64
}

// register makes the instruments; nil metrics have none.
func (g *gauges) register(m *Metrics) (metric.Registration, error) {
	if m == nil {
		return nil, nil //nolint:nilnil // there is nothing to unregister
	}
	var all []gauge
	var errs []error
	add := func(name, text string, partition func(*PartitionStats) int64, group func(*GroupStats) int64) {
		i, err := m.meter.Int64ObservableGauge("parley.queue."+name, metric.WithDescription(text))
		errs = append(errs, err)
		all = append(all, gauge{i, partition, group})
	}
	add("depth", "Messages that are in the partition.", func(s *PartitionStats) int64 { return s.Length }, nil)
	add("delayed", "Scheduled messages that are not due yet.", func(s *PartitionStats) int64 { return s.Delayed }, nil)
	add("dead_letters", "Dead letters that are kept.", func(s *PartitionStats) int64 { return s.DeadLetters }, nil)
	add("unread", "Messages that the group was never delivered.", nil, func(s *GroupStats) int64 { return s.Unread })
	add("pending", "Deliveries to the group that are not settled.", nil, func(s *GroupStats) int64 { return s.Pending })
	add("retrying", "Messages that wait for their next attempt.", nil, func(s *GroupStats) int64 { return s.Retrying })
	add("parked", "Messages that wait for an earlier one of their key.", nil, func(s *GroupStats) int64 { return s.Parked })
	if err := errors.Join(errs...); err != nil {
		return nil, fmt.Errorf("queue gauges: %w", err)
	}
	instruments := make([]metric.Observable, len(all))
	for i := range all {
		instruments[i] = all[i].instrument
	}
	r, err := m.meter.RegisterCallback(func(ctx context.Context, to metric.Observer) error {
		g.observe(ctx, m, all, to)
		return nil
	}, instruments...)
	if err != nil {
		return nil, fmt.Errorf("observe queues: %w", err)
	}
	return r, nil
}

// observe reports the numbers of the partitions that are still this node's.
func (g *gauges) observe(ctx context.Context, m *Metrics, all []gauge, to metric.Observer) {
	owned := g.scheduler.owned.Load()
	if owned == nil {
		return
	}
	counted := g.count(ctx, *owned)
	for _, ref := range *owned {
		stats, ok := counted[ref]
		if !ok {
			continue
		}
		of := m.sets.get(series{topic: ref.Topic, partition: ref.Partition})
		for _, one := range all {
			if one.partition != nil {
				to.ObserveInt64(one.instrument, one.partition(&stats), of)
			}
		}
		for i := range stats.Groups {
			group := &stats.Groups[i]
			of := m.sets.get(series{topic: ref.Topic, partition: ref.Partition, group: group.Group})
			for _, one := range all {
				if one.group != nil {
					to.ObserveInt64(one.instrument, one.group(group), of)
				}
			}
		}
	}
}

// count gives numbers that are at most depthEvery old. Partitions that can't be counted, or not in time, are left out.
func (g *gauges) count(ctx context.Context, refs []Ref) map[Ref]PartitionStats {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.counted != nil && time.Since(g.at) < depthEvery {
		return g.counted
	}
	ctx, cancel := context.WithTimeout(ctx, depthTimeout)
	defer cancel()
	var mu sync.Mutex
	counted := make(map[Ref]PartitionStats, len(refs))
	_ = each(ctx, len(refs), func(ctx context.Context, i int) error {
		cfg := &g.scheduler.cfg
		t, err := cfg.Catalog.Topic(ctx, refs[i].Topic)
		if err != nil || t.UID != refs[i].UID {
			return nil
		}
		stats, err := cfg.Store.Stats(ctx, t, refs[i].Partition)
		if err != nil {
			return nil
		}
		mu.Lock()
		defer mu.Unlock()
		counted[refs[i]] = stats
		return nil
	})
	g.counted, g.at = counted, time.Now()
	return counted
}
