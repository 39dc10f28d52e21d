package presence

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"

	"go.opentelemetry.io/otel/metric"
)

// viewStats are the counters of a view, which its instruments read when metrics are collected.
type viewStats struct {
	watchers, channels, expelled       atomic.Int64
	missed, behind, resets, hits       atomic.Int64
	misses, errors, loadFailures, lags atomic.Int64
}

// instruments creates the view's instruments. unregister removes their callback.
func (v *view) instruments(m metric.Meter) (unregister func(), err error) {
	staleness, err := m.Float64ObservableGauge("parley.presence.staleness", metric.WithUnit("s"),
		metric.WithDescription("Age of the oldest shard's states."))
	if err != nil {
		return nil, fmt.Errorf("presence staleness: %w", err)
	}
	all := []metric.Observable{staleness}
	observes := []func(metric.Observer){func(to metric.Observer) { to.ObserveFloat64(staleness, v.staleness().Seconds()) }}
	for _, o := range []struct {
		name, text string
		value      *atomic.Int64
		gauge      bool
	}{
		{"watchers", "Users that streams watch, summed over the streams.", &v.stats.watchers, true},
		{"channels", "Channels whose members are watched.", &v.stats.channels, true},
		{"expelled", "Channels that streams stopped watching because their users are no longer members, or because they can no longer be watched.", &v.stats.expelled, false},
		{"lagging", "Shards whose states are older than 5 s.", &v.stats.lags, true},
		{"missed", "Log entries that were read because no announcement of them arrived.", &v.stats.missed, false},
		{"heads_behind", "Broadcast heads that were beyond the entries that had arrived.", &v.stats.behind, false},
		{"resets", "Shards of which entries were trimmed before they could be read.", &v.stats.resets, false},
		{"cache_hits", "Users whose state was answered from memory.", &v.stats.hits, false},
		{"cache_misses", "Users whose state was read from the store for an answer.", &v.stats.misses, false},
		{"read_errors", "Reads of the store and of members that failed.", &v.stats.errors, false},
		{"load_failures", "Loads of a shard of the full cache that failed.", &v.stats.loadFailures, false},
	} {
		var inst metric.Int64Observable
		if o.gauge {
			inst, err = m.Int64ObservableUpDownCounter("parley.presence."+o.name, metric.WithDescription(o.text))
		} else {
			inst, err = m.Int64ObservableCounter("parley.presence."+o.name, metric.WithDescription(o.text))
		}
		if err != nil {
			return nil, fmt.Errorf("presence %s: %w", o.name, err)
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
		return nil, fmt.Errorf("observe presence: %w", err)
	}
	return func() { _ = reg.Unregister() }, nil
}

// staleness returns the age of the oldest shard's states.
func (v *view) staleness() time.Duration {
	oldest := time.Duration(0)
	now := time.Now()
	for i := range v.shards {
		s := &v.shards[i]
		s.mu.Lock()
		oldest = max(oldest, v.age(s, now))
		s.mu.Unlock()
	}
	return oldest
}

// age returns the age of the states of a shard that streams may have been sent. The caller holds
// s.mu.
func (v *view) age(s *viewShard, now time.Time) time.Duration {
	if s.level.IsZero() {
		return now.Sub(v.began)
	}
	return now.Sub(s.level)
}
