package consume_test

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"go.opentelemetry.io/otel/attribute"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"

	"github.com/parleyhq/parley/server/internal/queue/consume"
	"github.com/parleyhq/parley/server/internal/queue/dispatch"
	"github.com/parleyhq/parley/server/internal/queue/qlog"
	"github.com/parleyhq/parley/server/internal/testkit"
)

// measured returns all values of counters, and of histograms how many values they have, by name and
// attributes; without those that are 0.
func measured(t *testing.T, reader *sdkmetric.ManualReader) (counts map[string]int64, sums map[string]float64) {
	t.Helper()
	var data metricdata.ResourceMetrics
	if err := reader.Collect(t.Context(), &data); err != nil {
		t.Fatal(err)
	}
	counts, sums = map[string]int64{}, map[string]float64{}
	name := func(m metricdata.Metrics, of attribute.Set) string {
		text := strings.TrimPrefix(m.Name, "parley.queue.")
		for _, kv := range of.ToSlice() { // sorted by key
			text += " " + kv.Value.AsString()
		}
		return text
	}
	for _, scope := range data.ScopeMetrics {
		for _, m := range scope.Metrics {
			switch all := m.Data.(type) {
			case metricdata.Sum[int64]:
				for _, p := range all.DataPoints {
					counts[name(m, p.Attributes)] += p.Value
				}
			case metricdata.Histogram[float64]:
				for _, p := range all.DataPoints {
					counts[name(m, p.Attributes)] += int64(p.Count)
					sums[name(m, p.Attributes)] += p.Sum
				}
			default:
				t.Errorf("%s is a %T", m.Name, all)
			}
		}
	}
	maps.DeleteFunc(counts, func(_ string, n int64) bool { return n == 0 })
	return counts, sums
}

// TestMetrics: each delivery is measured once, by what became of it, and what a node has is measured
// until it has it no longer.
func TestMetrics(t *testing.T) {
	t.Parallel()
	b := newBench(t, 1, 0, func(g *qlog.Group) { g.Retry.MaxAttempts, g.Retry.MinBackoff = 2, time.Millisecond })
	reader := sdkmetric.NewManualReader()
	var err error
	if b.metrics, err = consume.NewMetrics(sdkmetric.NewMeterProvider(sdkmetric.WithReader(reader)).Meter("test")); err != nil {
		t.Fatal(err)
	}
	n := b.start("node0")
	b.put(0, 6, 0)
	began := time.Now()
	s := b.open(n, 6)
	got := take(t, s, 6)
	received := time.Now()
	settle := func(d []consume.Delivery, v dispatch.Verdict) { b.settle(n, s, verdicts(d, v)) }
	settled := time.Now()
	settle(got[:2], dispatch.Ack)
	answered := time.Now()
	settle(got[:2], dispatch.Ack) // a repeat
	settle(got[2:3], dispatch.Retry)
	again := take(t, s, 1)
	settle(again, dispatch.Retry) // no attempt is left
	settle(got[3:4], dispatch.DeadLetter)
	settle(got[4:5], dispatch.Release)
	take(t, s, 1)
	counts, sums := measured(t, reader)
	if counts["ack.duration work orders"] < 4 {
		t.Errorf("%d commits", counts["ack.duration work orders"])
	}
	delete(counts, "ack.duration work orders")
	want := map[string]int64{
		"consumed work 0 orders": 8, "acked work 0 orders": 2, "retried work 0 orders": 1, "dead_lettered work 0 orders": 2,
		"released work 0 orders": 1, "redelivered work 0 orders": 1, "in_flight work 0 orders": 2, "partitions_owned work orders": 1,
		"sessions work orders": 1, "handle.duration work acked orders": 2, "handle.duration work retried orders": 1,
		"handle.duration work dead_lettered orders": 2, "handle.duration work released orders": 1,
	}
	if !maps.Equal(counts, want) {
		t.Errorf("measured %v, want %v", counts, want)
	}
	least, most := 2*settled.Sub(received).Seconds(), 2*answered.Sub(began).Seconds()
	if took := sums["handle.duration work acked orders"]; took < least || took > most {
		t.Errorf("two handlers took %v s, which is not from %v to %v", took, least, most)
	}
	if topics := n.LocalTopics(); !slices.Equal(topics, []string{"orders"}) {
		t.Errorf("sessions of the topics %v", topics)
	}
	if err := n.Leave(t.Context(), "alice", s.ID()); err != nil {
		t.Fatal(err)
	}
	n.Close(s)
	testkit.Eventually(t, 20*time.Second, func() error {
		counts, _ := measured(t, reader)
		for _, name := range []string{"in_flight work 0 orders", "partitions_owned work orders", "sessions work orders"} {
			if counts[name] != 0 {
				return fmt.Errorf("%s is %d", name, counts[name])
			}
		}
		return nil
	})
	if topics := n.LocalTopics(); len(topics) > 0 {
		t.Errorf("sessions of the topics %v afterwards", topics)
	}
}

// take returns the next n deliveries of a stream.
func take(t *testing.T, s *consume.Stream, n int) (got []consume.Delivery) {
	t.Helper()
	for len(got) < n {
		f, err := s.Next(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		got = append(got, f.Deliveries...)
	}
	return got
}
