package feed

import (
	"errors"

	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/metric/noop"
)

// Metrics are the instruments that Feeder and Builder write to.
type Metrics struct {
	// Published counts events that the stream has acknowledged, repeats included.
	Published metric.Int64Counter
	// PublishFailures counts attempts to publish a batch that failed.
	PublishFailures metric.Int64Counter
	// PublishLag is how long an entry was appended when the stream acknowledged it, in seconds.
	PublishLag metric.Float64Histogram
	// Appended counts events that the builder has handled, repeats included.
	Appended metric.Int64Counter
	// Rebuilds counts sets that were loaded from the store.
	Rebuilds metric.Int64Counter
	// Abandoned counts sets that were dropped because the store did not show what it had published.
	Abandoned metric.Int64Counter
	// Foreign counts events of another epoch, which were ignored.
	Foreign metric.Int64Counter
}

// NewMetrics makes the instruments. A nil meter gives ones that do nothing.
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
		Abandoned:       counter("parley.cache.abandoned", "Cached sets that were dropped because the store lagged."),
		Foreign:         counter("parley.cache.foreign_events", "Events of another epoch, which were ignored."),
	}
	return m, errors.Join(errs...)
}
