package produce_test

import (
	"fmt"
	"testing"
	"time"

	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"

	"github.com/parleyhq/parley/server/internal/queue/produce"
	"github.com/parleyhq/parley/server/internal/queue/qlog"
)

func TestMetrics(t *testing.T) {
	t.Parallel()
	b := newBench(t, 1, func(t *qlog.Topic) { t.MaxMessages = 4 })
	reader := sdkmetric.NewManualReader()
	metrics, err := produce.NewMetrics(sdkmetric.NewMeterProvider(sdkmetric.WithReader(reader)).Meter("test"))
	b.check(err)
	b.Service = produce.New(produce.Config{Store: b.store, Topics: b.topics, Metrics: metrics})
	b.produce(produce.Request{Messages: []produce.Message{
		{}, {IdempotencyKey: "a"}, {IdempotencyKey: "a"}, {Delay: time.Hour}, {}, {}, {}, {Key: "\x00"},
	}})
	b.update(func(t *qlog.Topic) { t.ProducePaused = true })
	_, _ = b.Produce(t.Context(), produce.Request{Topic: "orders", Messages: messages(5, 0)})
	_ = b.client.Close()
	_, _ = b.Produce(t.Context(), produce.Request{Topic: "orders", Messages: messages(7, 0)})
	var data metricdata.ResourceMetrics
	b.check(reader.Collect(t.Context(), &data))
	got := map[string]int64{}
	for _, scope := range data.ScopeMetrics {
		for _, m := range scope.Metrics {
			for _, point := range m.Data.(metricdata.Sum[int64]).DataPoints {
				topic, _ := point.Attributes.Value("topic")
				partition, _ := point.Attributes.Value("partition")
				result, _ := point.Attributes.Value("result")
				got[fmt.Sprintf("%s %s/%s %s", m.Name, topic.AsString(), partition.AsString(), result.AsString())] += point.Value
			}
		}
	}
	const name = "parley.queue.produced orders/0 "
	want := map[string]int64{
		name + "stored": 3, name + "duplicate": 1, name + "scheduled": 1, name + "refused": 2 + 5, name + "failed": 7,
	}
	if fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("counted %v, want %v", got, want)
	}
}
