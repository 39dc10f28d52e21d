package inspect

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"

	"github.com/parleyhq/parley/server/internal/queue/qlog"
)

const (
	// countEvery is how old the gauges' numbers may be, countTimeout how long it may take to count
	// anew.
	countEvery   = 10 * time.Second
	countTimeout = 2 * time.Second
)

// Looker is the part of the store that gauges call.
type Looker interface {
	Look(ctx context.Context, ref qlog.Ref) (qlog.Counts, error)
}

// gauges report what the partitions hold of which this node is the keeper, so that each is reported
// once. Nothing is counted unless somebody collects.
type gauges struct {
	store Looker
	owned func(ctx context.Context) []qlog.Ref
	all   []gauge

	mu sync.Mutex // guards the fields below; it is held while partitions are counted, so that collectors share it
	// counted are the numbers at the time at.
	counted map[qlog.Ref]qlog.Counts
	at      time.Time
}

// gauge is an instrument and where its number comes from: of a partition, or of a group in it.
type gauge struct {
	instrument metric.Int64ObservableGauge
	partition  func(*qlog.Counts) int64
	group      func(g *qlog.GroupCounts, now time.Time) int64
}

// NewGauges registers the gauges parley.queue.*: depth, delayed and dead_letters of each partition;
// unread (not looked at), open (delivered or waiting for their key, not settled), retrying, and
// oldest_age in seconds of each group in it. owned returns the partitions to report. The caller
// unregisters.
func NewGauges(meter metric.Meter, store Looker, owned func(ctx context.Context) []qlog.Ref) (metric.Registration, error) {
	g := &gauges{store: store, owned: owned}
	var errs []error
	add := func(name, text string, partition func(*qlog.Counts) int64, group func(*qlog.GroupCounts, time.Time) int64) {
		i, err := meter.Int64ObservableGauge("parley.queue."+name, metric.WithDescription(text))
		errs = append(errs, err)
		g.all = append(g.all, gauge{i, partition, group})
	}
	add("depth", "Messages that are in the partition.", func(c *qlog.Counts) int64 { return c.Length }, nil)
	add("delayed", "Scheduled messages that are not due yet.", func(c *qlog.Counts) int64 { return c.Scheduled }, nil)
	add("dead_letters", "Dead letters that are kept.", func(c *qlog.Counts) int64 { return c.DeadLetters }, nil)
	add("unread", "Messages that the group was never delivered.", nil, func(c *qlog.GroupCounts, _ time.Time) int64 { return c.Unsent })
	add("open", "Messages that the group was delivered, or that wait for an earlier one, and that are not settled.", nil,
		func(c *qlog.GroupCounts, _ time.Time) int64 { return c.Open })
	add("retrying", "Messages that wait for their next attempt.", nil, func(c *qlog.GroupCounts, _ time.Time) int64 { return c.Retrying })
	add("oldest_age", "Age in seconds of the group's oldest message that is not settled; 0 if there is none.", nil,
		func(c *qlog.GroupCounts, now time.Time) int64 {
			if c.Oldest.IsZero() {
				return 0
			}
			return int64(max(now.Sub(c.Oldest), 0) / time.Second)
		})
	if err := errors.Join(errs...); err != nil {
		return nil, fmt.Errorf("queue gauges: %w", err)
	}
	instruments := make([]metric.Observable, len(g.all))
	for i := range g.all {
		instruments[i] = g.all[i].instrument
	}
	r, err := meter.RegisterCallback(func(ctx context.Context, to metric.Observer) error {
		g.observe(ctx, to)
		return nil
	}, instruments...)
	if err != nil {
		return nil, fmt.Errorf("observe queues: %w", err)
	}
	return r, nil
}

// observe reports the numbers of the partitions that are still this node's.
func (g *gauges) observe(ctx context.Context, to metric.Observer) {
	ctx, cancel := context.WithTimeout(ctx, 2*countTimeout)
	defer cancel()
	refs := g.owned(ctx)
	counted := g.count(ctx, refs)
	for _, ref := range refs {
		counts, ok := counted[ref]
		if !ok {
			continue
		}
		topic, partition := attribute.String("topic", ref.Topic), attribute.String("partition", strconv.Itoa(ref.Partition))
		of := metric.WithAttributeSet(attribute.NewSet(topic, partition))
		for _, one := range g.all {
			if one.partition != nil {
				to.ObserveInt64(one.instrument, one.partition(&counts), of)
			}
		}
		for i := range counts.Groups {
			group := &counts.Groups[i]
			of := metric.WithAttributeSet(attribute.NewSet(topic, partition, attribute.String("group", group.Group)))
			for _, one := range g.all {
				if one.group != nil {
					to.ObserveInt64(one.instrument, one.group(group, counts.Now), of)
				}
			}
		}
	}
}

// count returns numbers that are at most countEvery old. Partitions that cannot be counted, or not
// in time, are missing.
func (g *gauges) count(ctx context.Context, refs []qlog.Ref) map[qlog.Ref]qlog.Counts {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.counted != nil && time.Since(g.at) < countEvery {
		return g.counted
	}
	ctx, cancel := context.WithTimeout(ctx, countTimeout)
	defer cancel()
	var mu sync.Mutex // guards counted
	counted := make(map[qlog.Ref]qlog.Counts, len(refs))
	_ = each(ctx, len(refs), func(ctx context.Context, i int) error {
		counts, err := g.store.Look(ctx, refs[i])
		if err != nil {
			return nil
		}
		mu.Lock()
		defer mu.Unlock()
		counted[refs[i]] = counts
		return nil
	})
	g.counted, g.at = counted, time.Now()
	return counted
}
