package feed_test

import (
	"testing"

	"go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"

	"github.com/parleyhq/parley/server/internal/feed"
	"github.com/parleyhq/parley/server/internal/lifecycle/lifecycletest"
)

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
		Source: r.bus.Group("redis_cache_group", 256), Cache: r.cache, Store: r.store, Keep: keep, Metrics: metrics, Logger: quiet,
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
		case metricdata.Histogram[float64]:
			got[m.Name] = int64(data.DataPoints[0].Count)
		}
	}
	for name, want := range map[string]int64{
		"parley.feed.published": 3, "parley.feed.publish_lag": 3, "parley.cache.appended": 3, "parley.cache.rebuilds": 1,
	} {
		if got[name] != want {
			t.Errorf("%s is %d, want %d", name, got[name], want)
		}
	}
}
