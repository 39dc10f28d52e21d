package presence

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"go.opentelemetry.io/otel/codes"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
)

// metricReader reads the metrics of a hub.
type metricReader struct {
	t      *testing.T
	reader *sdkmetric.ManualReader
}

// read returns the value of each number, with its cause if it has one, and the count and the sum of
// each histogram. The names are without their prefix.
func (r *metricReader) read() map[string]float64 {
	r.t.Helper()
	var data metricdata.ResourceMetrics
	if err := r.reader.Collect(r.t.Context(), &data); err != nil {
		r.t.Fatal(err)
	}
	values := map[string]float64{}
	for _, m := range data.ScopeMetrics[0].Metrics {
		name := m.Name[len("parley.presence."):]
		switch d := m.Data.(type) {
		case metricdata.Sum[int64]:
			for _, p := range d.DataPoints {
				key := name
				if cause, ok := p.Attributes.Value("cause"); ok {
					key += " " + cause.AsString()
				}
				values[key] = float64(p.Value)
			}
		case metricdata.Gauge[float64]:
			values[name] = d.DataPoints[0].Value
		case metricdata.Histogram[float64]:
			values[name+" count"], values[name] = float64(d.DataPoints[0].Count), d.DataPoints[0].Sum
		case metricdata.Histogram[int64]:
			values[name+" count"], values[name] = float64(d.DataPoints[0].Count), float64(d.DataPoints[0].Sum)
		default:
			r.t.Errorf("%s is a %T", m.Name, d)
		}
	}
	return values
}

// TestMetrics checks each number of the write side, and that every instrument is collected.
func TestMetrics(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := &metricReader{t, sdkmetric.NewManualReader()}
		meter := sdkmetric.NewMeterProvider(sdkmetric.WithReader(r.reader)).Meter("test")
		first := true
		f := newFleet(t, 2, func(c *Config) {
			c.Policy = PolicyPlatform
			if first {
				c.Meter = meter
			}
			first = false
		})
		x, peer := f.nodes[0], f.nodes[1]
		is := func(what string, want map[string]float64) {
			t.Helper()
			f.wait(func() string {
				got := r.read()
				for name, n := range want {
					if got[name] != n {
						return fmt.Sprintf("after %s %s is %v, not %v", what, name, got[name], n)
					}
				}
				return ""
			})
		}
		opened := r.read()["epochs"]
		is("the start", map[string]float64{"users": 0, "connections": 0, "pending": 0, "changes connected": 0, "lagging": 0})

		x.connect("ada", Web, nil)
		old := x.connect("ada", IOS, nil)
		is("a user came", map[string]float64{"users": 1, "connections": 2})
		f.wait(f.stored("ada", onWeb|onIOS))
		got := r.read()
		if n := got["changes connected"]; n < 1 || n > 2 || got["flush.users"] != got["flush.users count"] || got["flush.users"] < n {
			t.Errorf("two platforms are %v", got)
		}
		time.Sleep(time.Millisecond)
		peer.connect("ada", Web, nil)
		is("a login", map[string]float64{"kicks login": 1, "kicks replaced": 0})
		time.Sleep(time.Millisecond)
		x.connect("ada", IOS, old.login)
		is("a reconnect", map[string]float64{"kicks login": 1, "kicks replaced": 1})

		peer.connect("bob", Web, nil)
		f.wait(f.stored("bob", onWeb))
		f.wait(func() string {
			if _, err := x.hub.Get(t.Context(), []string{"bob", "nobody"}); err != nil {
				return err.Error()
			}
			return ""
		})
		if got := r.read(); got["cache_misses"] < 1 {
			t.Errorf("a read of the store is %v", got)
		}
		x.watch("bob")
		before := r.read()["cache_hits"]
		if _, err := x.hub.Get(t.Context(), []string{"bob"}); err != nil {
			t.Fatal(err)
		}
		is("a watch", map[string]float64{"watchers": 1, "cache_hits": before + 1})
		f.set(func() { f.cut[1] = true })
		peer.connect("dan", IOS, nil)
		is("a lost announcement", map[string]float64{"missed": 1})
		f.set(func() { f.cut[1] = false })
		f.kill(peer)
		f.wait(f.stored("bob", offline))
		is("the death of the peer", map[string]float64{"swept_users": 3, "changes node_lost": 3, "sweep.duration count": 1})

		f.store.set(func(m *modelStore) { m.fails = func(method string) bool { return method == "set" } })
		x.connect("cyd", Web, nil)
		f.wait(func() string {
			if r.read()["store_failures"] < 2 {
				return "no failures are counted"
			}
			return ""
		})
		for i := range 5 {
			x.connect(fmt.Sprint("user", i), Web, nil)
		}
		f.wait(func() string {
			if r.read()["pending"] < 4 {
				return fmt.Sprint(r.read()["pending"], " users are pending")
			}
			return ""
		})
		f.store.set(func(m *modelStore) { m.fails = nil })
		is("the return of the store", map[string]float64{"pending": 0})

		f.store.flush()
		f.wait(func() string {
			if n := r.read()["epochs"]; n != opened+Shards {
				return fmt.Sprintf("%v of %v epochs were opened", n, opened+Shards)
			}
			return ""
		})
		for _, name := range []string{
			"watchers", "channels", "lagging", "missed", "heads_behind", "resets", "cache_hits", "cache_misses", "read_errors",
			"load_failures", "staleness", "flush.duration count",
		} {
			if _, ok := r.read()[name]; !ok {
				t.Errorf("there is no %s", name)
			}
		}
	})
}

// TestFlushIsTraced checks the span of a flush, and that one without a response is an error.
func TestFlushIsTraced(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		spans := tracetest.NewInMemoryExporter()
		tracer := sdktrace.NewTracerProvider(sdktrace.WithSyncer(spans)).Tracer("test")
		f := newFleet(t, 1, func(c *Config) { c.Tracer = tracer })
		f.store.set(func(m *modelStore) { m.fails = func(method string) bool { return method == "set" } })
		f.nodes[0].connect("ada", Web, nil)
		synctest.Wait()
		f.store.set(func(m *modelStore) { m.fails = nil })
		f.wait(f.stored("ada", onWeb))
		time.Sleep(time.Second)
		got := spans.GetSpans()
		if len(got) < 2 || got[0].Status.Code != codes.Error || got[1].Status.Code != codes.Unset {
			t.Fatalf("the spans are %v", got)
		}
		for _, s := range got {
			if s.Name != "presence flush" || len(s.Attributes) != 2 || s.Attributes[0].Value.AsInt64() != 1 {
				t.Errorf("the span is %+v", s)
			}
		}
	})
}
