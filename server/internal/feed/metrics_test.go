package feed_test

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"

	"go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"

	"github.com/parleyhq/parley/server/internal/feed"
	"github.com/parleyhq/parley/server/internal/lifecycle/lifecycletest"
	"github.com/parleyhq/parley/server/internal/message"
	"github.com/parleyhq/parley/server/internal/testkit"
)

// TestOldestUnpublishedGrows checks that the age of an entry that cannot be published is a metric.
func TestOldestUnpublishedGrows(t *testing.T) {
	t.Parallel()
	metrics, age := oldestUnpublished(t)
	r := newRig(t)
	ages := make(chan float64, 100)
	publisher := &fakePublisher{before: func(attempt int) error {
		ages <- age()
		if attempt < 4 {
			return errProvoked
		}
		return nil
	}}
	var err error
	if r.feeder, err = feed.NewFeeder(feed.FeederConfig{Store: r.store, Publisher: publisher, Metrics: metrics, Logger: quiet}); err != nil {
		t.Fatal(err)
	}
	lifecycletest.Start(t, r.feeder)
	r.send("room", "x")
	publisher.wait(t, 1)
	last := 0.0
	for range 4 {
		next := <-ages
		if next <= last {
			t.Errorf("the age was %v s after %v s", next, last)
		}
		last = next
	}
	testkit.Eventually(t, patience, func() error {
		if a := age(); a != 0 {
			return fmt.Errorf("after the publish the age is %v s", a)
		}
		return nil
	})
}

// brokenHistory is a feed.History that fails while NATS is away.
type brokenHistory struct{ away atomic.Bool }

func (h *brokenHistory) LastPublished(context.Context, int) (e message.Event, ok bool, err error) {
	if h.away.Load() {
		return e, false, errProvoked
	}
	return e, false, nil
}

// TestOldestUnpublishedAtStart checks the metric of a Feeder that starts while NATS is away.
func TestOldestUnpublishedAtStart(t *testing.T) {
	t.Parallel()
	metrics, age := oldestUnpublished(t)
	r := newRig(t)
	r.send("room", "x")
	history := new(brokenHistory)
	history.away.Store(true)
	publisher := new(fakePublisher)
	var err error
	if r.feeder, err = feed.NewFeeder(feed.FeederConfig{
		Store: r.store, Publisher: publisher, History: history, Metrics: metrics, Logger: quiet,
	}); err != nil {
		t.Fatal(err)
	}
	lifecycletest.Start(t, r.feeder)
	wait := func(what string, ok func(age float64) bool) {
		t.Helper()
		testkit.Eventually(t, patience, func() error {
			if a := age(); !ok(a) {
				return fmt.Errorf("%s: the age is %v s", what, a)
			}
			return nil
		})
	}
	wait("while NATS is away", func(age float64) bool { return age > 0 })
	history.away.Store(false)
	publisher.wait(t, 1)
	wait("after the publish", func(age float64) bool { return age == 0 })
}

// oldestUnpublished returns metrics for a Feeder, and a function that returns the age of its oldest
// unpublished entry in seconds.
func oldestUnpublished(t *testing.T) (metrics *feed.Metrics, age func() float64) {
	t.Helper()
	reader := metric.NewManualReader()
	metrics, err := feed.NewMetrics(metric.NewMeterProvider(metric.WithReader(reader)).Meter("test"))
	if err != nil {
		t.Fatal(err)
	}
	return metrics, func() float64 {
		var collected metricdata.ResourceMetrics
		if err := reader.Collect(t.Context(), &collected); err != nil {
			t.Error(err)
		}
		for _, m := range collected.ScopeMetrics[0].Metrics {
			if gauge, ok := m.Data.(metricdata.Gauge[float64]); ok && m.Name == "parley.feed.oldest_unpublished" {
				return gauge.DataPoints[0].Value
			}
		}
		return -1
	}
}

func TestMetrics(t *testing.T) {
	t.Parallel()
	reader := metric.NewManualReader()
	provider := metric.NewMeterProvider(metric.WithReader(reader))
	metrics, err := feed.NewMetrics(provider.Meter("test"))
	if err != nil {
		t.Fatal(err)
	}
	r := newRig(t)
	if r.feeder, err = feed.NewFeeder(feed.FeederConfig{Store: r.store, Publisher: r.bus, Metrics: metrics, Logger: quiet}); err != nil {
		t.Fatal(err)
	}
	r.builder, err = feed.NewBuilder(feed.BuilderConfig{
		Source: r.bus.Group("redis_cache_group", 256), Cache: r.cache, Store: r.store, Metrics: metrics, Logger: quiet,
	})
	if err != nil {
		t.Fatal(err)
	}
	r.start()
	for range 3 {
		r.send("room", "x")
		r.waitMirror("room")
	}
	r.waitConsumed()
	lifecycletest.Stop(t, r.feeder)
	lifecycletest.Stop(t, r.builder)

	var collected metricdata.ResourceMetrics
	if err := reader.Collect(t.Context(), &collected); err != nil {
		t.Fatal(err)
	}
	got := map[string]int64{}
	for _, m := range collected.ScopeMetrics[0].Metrics {
		switch data := m.Data.(type) {
		case metricdata.Sum[int64]:
			got[m.Name] = data.DataPoints[0].Value
		case metricdata.Gauge[float64]:
			got[m.Name] = int64(data.DataPoints[0].Value)
		case metricdata.Histogram[float64]:
			got[m.Name] = int64(data.DataPoints[0].Count)
		}
	}
	if age, ok := got["parley.feed.oldest_unpublished"]; !ok || age != 0 {
		t.Errorf("parley.feed.oldest_unpublished is %d, %v, want 0", age, ok)
	}
	for name, want := range map[string]int64{
		"parley.feed.published": 3, "parley.feed.publish_lag": 3, "parley.cache.appended": 3, "parley.cache.rebuilds": 1,
	} {
		if got[name] != want {
			t.Errorf("%s is %d, want %d", name, got[name], want)
		}
	}
}
