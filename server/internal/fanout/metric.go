package fanout

import (
	"context"
	"fmt"
	"sync/atomic"

	"go.opentelemetry.io/otel/metric"
)

// stats are the hub's counters. The instruments read them when metrics are collected, because an
// instrument's Add costs more than the delivery of an event.
type stats struct {
	streams, subscribers, topics             atomic.Int64
	deliveries, frames, cuts, fills, demoted atomic.Int64
	expelled, readErrors, shared             atomic.Int64
	texts, textBytes                         atomic.Int64
}

// instruments creates the hub's instruments and registers a callback that reports stats. unregister
// removes the callback.
func (h *Hub) instruments(m metric.Meter) (unregister func(), err error) {
	lag, err := m.Float64Histogram("parley.fanout.lag", metric.WithUnit("s"),
		metric.WithDescription("Time from an entry's append to its being queued to the node's live subscribers."),
		metric.WithExplicitBucketBoundaries(.001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 60))
	if err != nil {
		return nil, fmt.Errorf("fan-out lag: %w", err)
	}
	type observed struct {
		name, text string
		value      *atomic.Int64
		gauge      bool
	}
	var (
		all      []metric.Observable
		observes []func(metric.Observer)
	)
	for _, o := range []observed{
		{"streams", "Live streams.", &h.stats.streams, true},
		{"subscribers", "Channels that streams follow, summed over the streams.", &h.stats.subscribers, true},
		{"topics", "Channels that the node listens to.", &h.stats.topics, true},
		{"deliveries", "Log entries handed to streams.", &h.stats.deliveries, false},
		{"frames", "Frames handed to streams.", &h.stats.frames, false},
		{"cuts", "Streams ended because their subscriber read too slowly.", &h.stats.cuts, false},
		{"fills", "Holes in the live events that were filled from the log.", &h.stats.fills, false},
		{"demotions", "Live subscribers sent back to replay, because a hole was too large.", &h.stats.demoted, false},
		{"expulsions", "Channels that streams lost because their subject may no longer receive them.", &h.stats.expelled, false},
		{"shared_replays", "Replays that took what another subscriber's had just read.", &h.stats.shared, false},
		{"open_texts", "Texts of open messages that the node holds for subscribers.", &h.stats.texts, true},
		{"open_text_bytes", "Bytes of these texts.", &h.stats.textBytes, true},
		{"read_errors", "Reads of the log, and subscriptions to the bus, that failed.", &h.stats.readErrors, false},
	} {
		var inst metric.Int64Observable
		if o.gauge {
			inst, err = m.Int64ObservableUpDownCounter("parley.fanout."+o.name, metric.WithDescription(o.text))
		} else {
			inst, err = m.Int64ObservableCounter("parley.fanout."+o.name, metric.WithDescription(o.text))
		}
		if err != nil {
			return nil, fmt.Errorf("fan-out %s: %w", o.name, err)
		}
		all = append(all, inst)
		observes = append(observes, func(to metric.Observer) { to.ObserveInt64(inst, o.value.Load()) })
	}
	reg, err := m.RegisterCallback(func(_ context.Context, to metric.Observer) error {
		for _, observe := range observes {
			observe(to)
		}
		return nil
	}, all...)
	if err != nil {
		return nil, fmt.Errorf("observe fan-out: %w", err)
	}
	h.lag = lag
	return func() { _ = reg.Unregister() }, nil
}
