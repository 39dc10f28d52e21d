package inspect

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"go.opentelemetry.io/otel/attribute"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"

	"github.com/parleyhq/parley/server/internal/queue/qlog"
)

// The gauges report what this node is the keeper of, and are counted at most once in 10 s.
func TestGauges(t *testing.T) {
	t.Parallel()
	r := newRig(t, 2, nil)
	r.put(1, 6, 10, nil)
	r.settle(1, "g1", "adbr")
	r.put(1, 2, 10, func(d *qlog.Draft) { d.Delay = time.Hour })
	reader := sdkmetric.NewManualReader()
	provider := sdkmetric.NewMeterProvider(sdkmetric.WithReader(reader))
	owned := []qlog.Ref{r.topic.Ref(1), {Topic: "gone", UID: "X"}}
	registration, err := NewGauges(provider.Meter("test"), r.store, func(context.Context) []qlog.Ref { return owned })
	r.check(err)
	collect := func() (all []string) {
		t.Helper()
		var got metricdata.ResourceMetrics
		r.check(reader.Collect(t.Context(), &got))
		for _, scope := range got.ScopeMetrics {
			for _, m := range scope.Metrics {
				gauge, _ := m.Data.(metricdata.Gauge[int64])
				for _, p := range gauge.DataPoints {
					group, _ := p.Attributes.Value(attribute.Key("group"))
					partition, _ := p.Attributes.Value(attribute.Key("partition"))
					all = append(all, fmt.Sprint(m.Name, " ", partition.AsString(), " ", group.AsString(), " ", p.Value))
				}
			}
		}
		slices.Sort(all)
		return all
	}
	want := []string{
		"parley.queue.dead_letters 1  1", "parley.queue.delayed 1  2", "parley.queue.depth 1  6", "parley.queue.oldest_age 1 g1 0",
		"parley.queue.oldest_age 1 g2 0", "parley.queue.open 1 g1 2", "parley.queue.open 1 g2 0", "parley.queue.retrying 1 g1 1",
		"parley.queue.retrying 1 g2 0", "parley.queue.unread 1 g1 2", "parley.queue.unread 1 g2 6",
	}
	if got := collect(); !slices.Equal(got, want) {
		t.Errorf("got %q", got)
	}
	r.put(1, 1, 10, nil)
	if got := collect(); !slices.Equal(got, want) {
		t.Errorf("counted again: %q", got)
	}
	owned = nil
	if got := collect(); len(got) != 0 {
		t.Errorf("of another node: %q", got)
	}
	r.check(registration.Unregister())
}
