package fanout

import (
	"testing"
	"testing/synctest"

	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"
)

func TestMetrics(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		reader := sdkmetric.NewManualReader()
		provider := sdkmetric.NewMeterProvider(sdkmetric.WithReader(reader))
		cfg := noChecks()
		cfg.QueueEvents = 10
		cfg.Meter = provider.Meter("test")
		r := setup(t, cfg)
		s, slow := r.open(live("c"), live("d")), r.open(live("c"))
		r.read(s)
		r.read(slow)
		r.log.add("c") // the bus loses its event
		for range 12 {
			r.send("c")
			r.read(s)
		}
		var all metricdata.ResourceMetrics
		if err := reader.Collect(t.Context(), &all); err != nil {
			t.Fatal(err)
		}
		got := map[string]int64{}
		for _, scope := range all.ScopeMetrics {
			for _, m := range scope.Metrics {
				switch d := m.Data.(type) {
				case metricdata.Sum[int64]:
					got[m.Name] = d.DataPoints[0].Value
				case metricdata.Histogram[float64]:
					got[m.Name] = int64(d.DataPoints[0].Count)
				}
			}
		}
		frames := got["parley.fanout.frames"]
		delete(got, "parley.fanout.frames")
		equal(t, got, map[string]int64{
			"parley.fanout.streams": 2, "parley.fanout.subscribers": 3, "parley.fanout.topics": 2,
			"parley.fanout.deliveries": 13, "parley.fanout.cuts": 1, "parley.fanout.fills": 1, "parley.fanout.demotions": 0,
			"parley.fanout.open_texts": 0, "parley.fanout.open_text_bytes": 0,
			"parley.fanout.read_errors": 0, "parley.fanout.expulsions": 0, "parley.fanout.lag": 13,
			"parley.fanout.shared_replays": 0,
		})
		if frames < 10 {
			t.Fatalf("%d frames", frames)
		}
	})
}
