package revocation_test

import (
	"context"
	"log/slog"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"

	"github.com/parleyhq/parley/server/internal/fault"
	"github.com/parleyhq/parley/server/internal/revocation"
	"github.com/parleyhq/parley/server/internal/revocation/revocationtest"
)

// counted counts the look-ups of a Second.
type counted struct {
	revocation.Second

	finds *atomic.Int64
}

func (c counted) Find(ctx context.Context, keys ...string) (map[string]revocation.Entry, bool, error) {
	c.finds.Add(1)
	return c.Second.Find(ctx, keys...)
}

// TestRedisIsAskedSeldom checks that a node that does not hear the store asks Redis a few times a
// second for a token, however often it is used, and that it refuses a revoked one soon all the
// same.
func TestRedisIsAskedSeldom(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var finds atomic.Int64
		var cut revocationtest.Store // of the second node
		f := newFleet(t, 1, nil)
		node, err := revocation.New(revocation.Config{Store: switched{&cut, &f.store}, Second: counted{&f.second, &finds}, Owner: owner{store: &f.store}})
		if err != nil {
			t.Fatal(err)
		}
		if err := node.Start(t.Context()); err != nil {
			t.Fatal(err)
		}
		defer func() { _ = node.Stop(context.WithoutCancel(t.Context())) }()
		time.Sleep(2 * time.Second)
		cut.Set(revocationtest.Down)
		time.Sleep(2 * time.Second)
		p := user("ann", "phone", time.Now())
		use := func() (last fault.Reason) {
			for range 1000 {
				last = reason(t.Context(), node, p)
				time.Sleep(time.Millisecond)
			}
			return last
		}
		began := finds.Load()
		if got := use(); got != "" {
			t.Errorf("not revoked: %q", got)
		}
		if n := finds.Load() - began; n > 6 {
			t.Errorf("1,000 calls in a second asked Redis %d times", n)
		}
		time.Sleep(10 * time.Second)
		if got := reason(t.Context(), node, p); got != "" { // a new answer
			t.Errorf("not revoked: %q", got)
		}
		if _, err := f.nodes[0].Revoke(t.Context(), revocation.Entry{Key: p.Key}, p); err != nil {
			t.Fatal(err)
		}
		time.Sleep(251 * time.Millisecond)
		if got := reason(t.Context(), node, p); got != fault.TokenRevoked {
			t.Errorf("revoked: %q", got)
		}
	})
}

// TestUnknownIsCounted checks the metrics of calls that were refused, or admitted, because nobody
// could tell.
func TestUnknownIsCounted(t *testing.T) {
	t.Parallel()
	for _, open := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			reader := metric.NewManualReader()
			var logged strings.Builder
			f := newFleet(t, 1, func(cfg *revocation.Config) {
				cfg.Logger = slog.New(slog.NewTextHandler(&logged, nil))
				cfg.FailOpen, cfg.Meter = open, metric.NewMeterProvider(metric.WithReader(reader)).Meter("test")
			})
			revoked, other := user("ann", "phone", time.Now()), user("bob", "laptop", time.Now())
			if _, err := f.nodes[0].Revoke(t.Context(), revocation.Entry{Key: revoked.Key}, revoked); err != nil {
				t.Fatal(err)
			}
			_ = f.nodes[0].Check(t.Context(), other) // admitted, because the store answers
			f.store.Set(revocationtest.Down)
			f.second.Set(revocationtest.Down)
			time.Sleep(2 * time.Second)
			for range 3 {
				_ = f.nodes[0].Check(t.Context(), other)
				_ = f.nodes[0].Check(t.Context(), revoked) // known to be revoked
			}
			var all metricdata.ResourceMetrics
			if err := reader.Collect(t.Context(), &all); err != nil {
				t.Fatal(err)
			}
			got := make(map[string]int64)
			for _, m := range all.ScopeMetrics[0].Metrics {
				if sum, ok := m.Data.(metricdata.Sum[int64]); ok {
					for _, p := range sum.DataPoints {
						got[m.Name] += p.Value
					}
				}
			}
			want := map[string]int64{"parley.revocation.unknown_refused": 3, "parley.revocation.unknown_admitted": 0}
			if open {
				want = map[string]int64{"parley.revocation.unknown_refused": 0, "parley.revocation.unknown_admitted": 3}
			}
			lines := 0
			if open {
				lines = 1 // a second
			}
			if n := strings.Count(logged.String(), "tokens are admitted that may have been revoked"); n != lines {
				t.Errorf("open %v: logged %d times, want %d: %s", open, n, lines, logged.String())
			}
			for name, n := range want {
				if got[name] != n {
					t.Errorf("open %v: %s is %d, want %d", open, name, got[name], n)
				}
			}
		})
	}
}

// TestAlone checks that a node that makes all revocations itself asks nobody, however long neither
// the store nor Redis answers.
func TestAlone(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(t, 1, func(c *revocation.Config) { c.Alone = true })
		ann, bob := user("ann", "phone", time.Now()), user("bob", "laptop", time.Now())
		if _, err := f.nodes[0].Revoke(t.Context(), revocation.Entry{Key: ann.Key}, ann); err != nil {
			t.Fatal(err)
		}
		ended := false
		f.nodes[0].Watch(bob, func(error) { ended = true })
		f.store.Set(revocationtest.Down)
		f.second.Set(revocationtest.Down)
		time.Sleep(time.Minute)
		if got := reason(t.Context(), f.nodes[0], bob); got != "" || ended {
			t.Errorf("a token that is not revoked: %s, its stream ended: %v", got, ended)
		}
		if got := reason(t.Context(), f.nodes[0], ann); got != fault.TokenRevoked {
			t.Errorf("a revoked token: %q", got)
		}
	})
}
