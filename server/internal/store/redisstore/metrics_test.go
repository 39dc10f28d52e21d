package redisstore

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"

	"github.com/parleyhq/parley/server/internal/testkit"
)

// measured returns the values of the metrics, by name and attribute; a histogram's is its count.
func measured(t *testing.T, reader *sdkmetric.ManualReader) map[string]int64 {
	t.Helper()
	var data metricdata.ResourceMetrics
	if err := reader.Collect(context.Background(), &data); err != nil {
		t.Fatal(err)
	}
	got := map[string]int64{}
	for _, scope := range data.ScopeMetrics {
		for _, m := range scope.Metrics {
			name := func(points metricdata.DataPoint[int64]) string {
				for _, kv := range points.Attributes.ToSlice() {
					return m.Name + " " + kv.Value.AsString()
				}
				return m.Name
			}
			switch d := m.Data.(type) {
			case metricdata.Gauge[int64]:
				for _, p := range d.DataPoints {
					got[name(p)] = p.Value
				}
			case metricdata.Sum[int64]:
				for _, p := range d.DataPoints {
					got[name(p)] = p.Value
				}
			case metricdata.Histogram[float64]:
				for _, p := range d.DataPoints {
					got[name(metricdata.DataPoint[int64]{Attributes: p.Attributes})] = int64(p.Count)
				}
			}
		}
	}
	return got
}

// TestObserve checks the metrics of a client while its Redis works, is silent, is busy and is away.
func TestObserve(t *testing.T) {
	t.Parallel()
	server := testkit.Redis(t)
	proxy := testkit.NewProxy(t, "unix", server.Addr())
	client, err := NewClient(ClientConfig{Addrs: []string{proxy.Addr()}, PoolSize: 2, PoolTimeout: 50 * time.Millisecond, ReadTimeout: 200 * time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = client.Close() })
	reader := sdkmetric.NewManualReader()
	meters := sdkmetric.NewMeterProvider(sdkmetric.WithReader(reader))
	if err := Observe(client, meters.Meter("test")); err != nil {
		t.Fatal(err)
	}
	ctx := t.Context()
	for i := range 3 {
		if err := client.Set(ctx, fmt.Sprint("k", i), "v", 0).Err(); err != nil {
			t.Fatal(err)
		}
	}
	client.Get(ctx, "none")         // redis.Nil is an answer
	client.LPush(ctx, "k1", "oops") // so is WRONGTYPE
	if _, err := client.Pipelined(ctx, func(p redis.Pipeliner) error { p.Get(ctx, "k1"); p.Get(ctx, "k2"); return nil }); err != nil {
		t.Fatal(err)
	}
	got := measured(t, reader)
	if got["parley.redis.call.duration ok"] < 6 || got["parley.redis.call.duration timeout"]+got["parley.redis.call.duration error"] != 0 {
		t.Errorf("calls that were answered: %v", got)
	}
	if got["parley.redis.keys"] != 3 || got["parley.redis.memory"] < 100_000 {
		t.Errorf("what Redis has: %v", got)
	}
	if got["parley.redis.pool.connections idle"] != 1 || got["parley.redis.pool.connections used"] != 0 ||
		got["parley.redis.pool.gets miss"] != 1 || got["parley.redis.pool.gets hit"] < 3 {
		t.Errorf("the pool: %v", got)
	}

	proxy.Stall()
	silent := make(chan error)
	for range 2 {
		go func() { silent <- client.Ping(ctx).Err() }()
	}
	testkit.Eventually(t, 10*time.Second, func() error {
		if s := client.PoolStats(); s.TotalConns-s.IdleConns != 2 {
			return fmt.Errorf("%+v", s)
		}
		return nil
	})
	if err := client.Ping(ctx).Err(); err == nil {
		t.Error("there was a third connection")
	}
	for range 2 {
		if err := <-silent; err == nil {
			t.Error("a silent server answered")
		}
	}
	proxy.Restore()
	got = measured(t, reader)
	if got["parley.redis.call.duration timeout"] < 3 || got["parley.redis.pool.gets timeout"] != 1 {
		t.Errorf("timeouts: %v", got)
	}

	server.Kill()
	if err := client.Ping(ctx).Err(); err == nil {
		t.Error("a dead server answered")
	}
	got = measured(t, reader)
	if _, ok := got["parley.redis.memory"]; ok || got["parley.redis.call.duration error"] == 0 {
		t.Errorf("without Redis: %v", got)
	}
}
