package queue_test

import (
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"go.opentelemetry.io/otel/attribute"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"

	"github.com/parleyhq/parley/server/internal/lifecycle/lifecycletest"
	"github.com/parleyhq/parley/server/internal/queue"
	"github.com/parleyhq/parley/server/internal/testkit"
)

// Two schedulers work on the same partitions while messages are scheduled, moved about and cancelled, and Redis is killed and
// comes back. Each message appears once, and none before it is due.
func TestSchedulersOverRedis(t *testing.T) {
	t.Parallel()
	store, server := testStore(t, testkit.RedisAppendOnly())
	catalog := queue.NewCatalog(store)
	admin := queue.NewAdmin(queue.AdminConfig{Store: store, Catalog: catalog})
	service := queue.NewService(queue.ServiceConfig{Store: store, Catalog: catalog})
	ctx := t.Context()
	topic, err := admin.CreateTopic(ctx, queue.Topic{Name: "t", Partitions: 4})
	if err != nil {
		t.Fatal(err)
	}
	for range 2 {
		s := queue.NewScheduler(queue.SchedulerConfig{Store: store, Catalog: queue.NewCatalog(store)})
		lifecycletest.Start(t, s)
	}
	if err := admin.CreateGroup(ctx, "t", queue.Group{Name: "g"}); err != nil {
		t.Fatal(err)
	}
	due := map[string]time.Time{}
	schedule := func(from, n int, delay time.Duration) {
		t.Helper()
		drafts := make([]queue.Draft, n)
		for i := range drafts {
			drafts[i] = queue.Draft{Message: queue.Message{Key: fmt.Sprint("k", i)}, Delay: delay, IdempotencyKey: fmt.Sprint(from + i)}
		}
		outcomes, err := service.Schedule(ctx, "t", drafts)
		if err != nil {
			t.Fatal(err)
		}
		for _, o := range outcomes {
			if o.Err != nil {
				t.Fatal(o.Err)
			}
			due[o.MessageID] = o.Due
		}
	}
	schedule(0, 600, 300*time.Millisecond)
	schedule(1000, 600, 1500*time.Millisecond)
	schedule(2000, 5, time.Hour)
	n := 0
	for id, at := range due {
		if time.Until(at) < 30*time.Minute {
			continue
		}
		if n++; n == 1 {
			if err := service.Cancel(ctx, "t", id); err != nil {
				t.Fatal(err)
			}
			delete(due, id)
			continue
		}
		if due[id], err = service.Reschedule(ctx, "t", id, 200*time.Millisecond, time.Time{}); err != nil {
			t.Fatal(err)
		}
	}
	if server != nil {
		server.Kill()
		server.Start()
	}
	waitLength(t, admin, int64(len(due)))
	seen := map[string]bool{}
	for p := range 4 {
		lease, err := store.Acquire(ctx, topic.Ref(p), "g", "s", time.Minute)
		if err != nil {
			t.Fatal(err)
		}
		entries, _, err := store.Fetch(ctx, topic, lease, 0, 2000)
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range entries {
			at, ok := due[e.MessageID]
			if !ok || seen[e.MessageID] {
				t.Fatalf("%s came, which was cancelled or came before", e.MessageID)
			}
			seen[e.MessageID] = true
			if appeared := time.UnixMilli(int64(e.ID.MS)); appeared.Before(at) {
				t.Fatalf("%s appeared %s early", e.MessageID, at.Sub(appeared))
			}
		}
	}
	if len(seen) != len(due) {
		t.Fatalf("%d of %d appeared", len(seen), len(due))
	}
}

func waitLength(t *testing.T, admin *queue.Admin, n int64) {
	t.Helper()
	testkit.Eventually(t, soon, func() error {
		s, err := admin.Stats(t.Context(), "t")
		if err == nil && (s.Total.Length != n || s.Total.Delayed != 0) {
			err = fmt.Errorf("%d messages and %d delayed, want %d", s.Total.Length, s.Total.Delayed, n)
		}
		return err
	})
}

// What all have settled goes without anybody asking.
func TestSchedulerTrims(t *testing.T) {
	t.Parallel()
	r := newAdminRig(t)
	r.create(queue.Topic{Name: "t", Partitions: 2}, "g")
	s := queue.NewScheduler(queue.SchedulerConfig{Store: r.store, Catalog: r.catalog})
	lifecycletest.Start(t, s)
	r.produce("t", 100)
	left := int64(100 - r.settle("t", "g", 0, queue.Ack))
	waitLength(t, r.Admin, left)
	if r.settle("t", "g", 1, 0) != int(left) {
		t.Fatal("messages that nobody had read were trimmed")
	}
}

func TestMetricsTellWhatThePartitionsHold(t *testing.T) {
	t.Parallel()
	r := newAdminRig(t)
	r.create(queue.Topic{Name: "t", Partitions: 2}, "g")
	reader := sdkmetric.NewManualReader()
	metrics, err := queue.NewMetrics(sdkmetric.NewMeterProvider(sdkmetric.WithReader(reader)).Meter("test"))
	r.must(err)
	service := queue.NewService(queue.ServiceConfig{Store: r.store, Catalog: r.catalog, Metrics: metrics})
	drafts := make([]queue.Draft, 11)
	for i := range drafts {
		drafts[i].Key, drafts[i].IdempotencyKey = fmt.Sprint(i), fmt.Sprint(i)
	}
	for range 2 {
		_, err := service.Produce(t.Context(), "t", drafts)
		r.must(err)
	}
	var all sync.WaitGroup
	for _, v := range []queue.Verdict{queue.Ack, queue.Retry, queue.Dead, queue.Release} {
		all.Go(func() { metrics.Settled("t", 1, "g", v, 2, time.Second) })
	}
	all.Wait()
	metrics.Delivered("t", 1, "g", 4)
	metrics.AckTook("t", "g", time.Millisecond)
	metrics.InFlight("t", 1, "g", 5)
	metrics.InFlight("t", 1, "g", -2)
	metrics.Owned("t", "g", 2)
	(*queue.Metrics)(nil).Owned("t", "g", 1)

	s := queue.NewScheduler(queue.SchedulerConfig{Store: r.store, Catalog: r.catalog, Metrics: metrics})
	lifecycletest.Start(t, s)
	want := map[string]int64{
		"parley.queue.produced/stored": 11, "parley.queue.produced/duplicate": 11, "parley.queue.consumed/": 4, "parley.queue.acked/": 2,
		"parley.queue.retried/": 2, "parley.queue.dead_lettered/": 2, "parley.queue.released/": 2, "parley.queue.in_flight/": 3,
		"parley.queue.partitions_owned/": 2, "parley.queue.depth/": 11, "parley.queue.unread/": 11, "parley.queue.pending/": 0,
		"parley.queue.retrying/": 0, "parley.queue.parked/": 0, "parley.queue.delayed/": 0, "parley.queue.dead_letters/": 0,
	}
	testkit.Eventually(t, soon, func() error {
		var data metricdata.ResourceMetrics
		if err := reader.Collect(t.Context(), &data); err != nil {
			return err
		}
		got := map[string]int64{}
		add := func(name string, points []metricdata.DataPoint[int64]) {
			for _, p := range points {
				if topic, ok := p.Attributes.Value("topic"); !ok || topic.AsString() != "t" {
					got[name+" of no topic"]++
				}
				result, _ := p.Attributes.Value(attribute.Key("result"))
				got[name+"/"+result.AsString()] += p.Value
			}
		}
		for _, m := range data.ScopeMetrics[0].Metrics {
			switch d := m.Data.(type) {
			case metricdata.Sum[int64]:
				add(m.Name, d.DataPoints)
			case metricdata.Gauge[int64]:
				add(m.Name, d.DataPoints)
			}
		}
		for name := range got {
			if strings.HasSuffix(name, " of no topic") {
				return errors.New(name)
			}
		}
		for name, n := range want {
			if v, ok := got[name]; !ok || v != n {
				return fmt.Errorf("%s is %d (%v), want %d", name, v, ok, n)
			}
		}
		return nil
	})
}
