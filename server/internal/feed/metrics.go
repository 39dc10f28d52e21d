package feed

import (
	"context"
	"errors"
	"time"

	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/metric/noop"
)

// Metrics holds the instruments of the Feeder and the Builder.
type Metrics struct {
	// Published counts events that the stream has acknowledged, including repeats after a failure or a
	// restart, but not those of Feeder.Republish.
	Published metric.Int64Counter
	// PublishFailures counts calls of Publisher.Publish that failed. The Feeder repeats each.
	PublishFailures metric.Int64Counter
	// PublishLag is the time in seconds from the append of an entry until the stream acknowledged
	// it.
	PublishLag metric.Float64Histogram
	// Appended counts events that the builder has processed, including repeats.
	Appended metric.Int64Counter
	// Rebuilds counts how often the Builder began to rebuild a channel's cached messages from the
	// store.
	Rebuilds metric.Int64Counter
	// Refills counts the rebuilds that a read asked for because it found no set, or an old one.
	Refills metric.Int64Counter
	// Abandoned counts rebuilds that left the channel uncached because the store did not return the
	// published entries in time.
	Abandoned metric.Int64Counter
	// Foreign counts events that the Builder ignored because they are of another epoch.
	Foreign metric.Int64Counter

	// unpublished is what the gauge parley.feed.oldest_unpublished observes.
	unpublished oldest
}

// NewMetrics creates the instruments. With a nil meter they do nothing.
func NewMetrics(meter metric.Meter) (*Metrics, error) {
	if meter == nil {
		meter = noop.Meter{}
	}
	var errs []error
	counter := func(name, description string) metric.Int64Counter {
		c, err := meter.Int64Counter(name, metric.WithDescription(description))
		errs = append(errs, err)
		return c
	}
	lag, err := meter.Float64Histogram("parley.feed.publish_lag", metric.WithUnit("s"),
		metric.WithDescription("Time from the append of an entry until the change stream had it."),
		metric.WithExplicitBucketBoundaries(.001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 60, 600))
	errs = append(errs, err)
	m := &Metrics{
		Published:       counter("parley.feed.published", "Events that the change stream has acknowledged."),
		PublishFailures: counter("parley.feed.publish_failures", "Attempts to publish that failed and were repeated."),
		PublishLag:      lag,
		Appended:        counter("parley.cache.appended", "Events that the cache's builder has handled."),
		Rebuilds:        counter("parley.cache.rebuilds", "Cached sets that were loaded from the store."),
		Refills:         counter("parley.cache.refills", "Cached sets that were loaded because a read missed them."),
		Abandoned:       counter("parley.cache.abandoned", "Cached sets that were dropped because the store lagged."),
		Foreign:         counter("parley.cache.foreign_events", "Events of another epoch, which were ignored."),
	}
	_, err = meter.Float64ObservableGauge("parley.feed.oldest_unpublished", metric.WithUnit("s"),
		metric.WithDescription("Age of the oldest entry that this node has read from the store and not published yet; 0 if there is none."),
		metric.WithFloat64Callback(func(_ context.Context, o metric.Float64Observer) error {
			o.Observe(m.unpublished.age(time.Now()).Seconds())
			return nil
		}))
	return m, errors.Join(append(errs, err)...)
}
