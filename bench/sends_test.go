package bench_test

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/parleyhq/parley/bench"
	"github.com/parleyhq/parley/gen/go/parley/v1/parleyv1connect"
	"github.com/parleyhq/parley/internal/rig"
)

func TestSends(t *testing.T) {
	t.Parallel()
	figures := measure(t, "sends", tiny(t))
	if diff := cmp.Diff([]string{"sends/single/rate", "sends/batched/rate"}, ids(figures)); diff != "" {
		t.Fatalf("figures (-want +got):\n%s", diff)
	}
	f := figures[0]
	// How they compare is no business of a short run; that they are what the ratio and the bar say is.
	if f.Value.Median <= 0 || f.Floor.Median <= 0 || f.Ratio.Median != f.Value.Median/f.Floor.Median || f.FloorName == "" ||
		f.BarMet == nil || *f.BarMet != (f.Ratio.Median >= 0.5) {
		t.Errorf("%v against %v, bar met: %v", f.Value, f.Floor, f.BarMet)
	}
	if got := f.Setup["senders"]; got != "4" {
		t.Errorf("%s senders", got)
	}
}

func TestReads(t *testing.T) {
	t.Parallel()
	figures := measure(t, "reads", tiny(t))
	if diff := cmp.Diff([]string{"reads/cpu"}, ids(figures)); diff != "" {
		t.Fatalf("figures (-want +got):\n%s", diff)
	}
	var rate, cached, stored int
	note := figures[0].Notes[0]
	if _, err := fmt.Sscanf(note, "%d pages/s; %d pages came from the cache, %d from the store", &rate, &cached, &stored); err != nil {
		t.Fatalf("%q: %v", note, err)
	}
	if cached <= stored { // an overloaded machine may cache some pages too late
		t.Errorf("pages were not listed from the cache: %s", note)
	}
}

func TestGrowth(t *testing.T) {
	t.Parallel()
	options := tiny(t)
	options.Channels = 20
	options.Duration = time.Second // a busy machine may deliver nothing in less time
	figures := measure(t, "growth", options)
	if diff := cmp.Diff([]string{"growth/delivery/cpu", "growth/send/cpu"}, ids(figures)); diff != "" {
		t.Fatalf("figures (-want +got):\n%s", diff)
	}
	for _, f := range figures {
		if f.Floor == nil || f.BarMet == nil {
			t.Errorf("figure: %+v", f)
		}
	}
}

// TestMongo checks that the figures on MongoDB can be measured on a real fleet of two nodes.
func TestMongo(t *testing.T) {
	t.Parallel()
	options := tiny(t)
	fleet, err := rig.Start(t.Context(), rig.Options{Nodes: 2, MongoMembers: 1, NATSServers: 1, Binary: options.Parleyd})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := fleet.Close(); err != nil {
			t.Error(err)
		}
	})
	if options.Token, err = fleet.Token("bench", nil); err != nil {
		t.Fatal(err)
	}
	options.Addrs, options.MongoURI = fleet.Addresses(), fleet.Mongo.URI()
	for _, n := range fleet.Nodes() {
		options.Ops = append(options.Ops, n.OpsAddr())
	}
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	alone := 0
	areas := append(area(t, "hot"), bench.SpreadArea(func(ctx context.Context, fn func(context.Context) error) error {
		alone++
		return fn(ctx)
	}))
	var got collector
	if err := bench.Run(ctx, areas, options, &got); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{"hot/single/rate", "hot/batched/rate", "spread/rate"}, ids(got.figures)); diff != "" {
		t.Fatalf("figures (-want +got):\n%s", diff)
	}
	for _, f := range got.figures {
		if f.Value.Median <= 0 || f.Floor.Median <= 0 || !strings.Contains(strings.Join(f.Notes, "\n"), "mongod about") {
			t.Errorf("%s: %v against %v, notes %q", f.Name, f.Value, f.Floor, f.Notes)
		}
	}
	if alone != options.Rounds {
		t.Errorf("a single node was measured %d times in %d rounds", alone, options.Rounds)
	}
}

// TestMongoRequiresURI checks that the figures on MongoDB are skipped without its URI.
func TestMongoRequiresURI(t *testing.T) {
	t.Parallel()
	var got collector
	if err := bench.Run(t.Context(), area(t, "hot"), tiny(t), &got); err != nil {
		t.Fatal(err)
	}
	if why := got.skipped["hot"]; why == nil || !strings.Contains(why.Error(), "--mongo-uri") {
		t.Errorf("left out: %v", why)
	}
}

// TestCallsAreChecked checks that a measurement fails if the server refuses calls.
func TestCallsAreChecked(t *testing.T) {
	t.Parallel()
	mux := http.NewServeMux()
	mux.Handle(parleyv1connect.NewMessageServiceHandler(parleyv1connect.UnimplementedMessageServiceHandler{}))
	mux.HandleFunc("GET /metrics", func(w http.ResponseWriter, _ *http.Request) {
		_, _ = w.Write([]byte("# TYPE process_cpu_seconds_total counter\nprocess_cpu_seconds_total 1\n"))
	})
	server := httptest.NewServer(mux)
	t.Cleanup(server.Close)
	options := tiny(t)
	options.Addrs, options.Ops, options.Token = []string{server.URL}, []string{server.URL}, "any"
	options.Duration = 30 * time.Second // the run must fail earlier
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	err := bench.Run(ctx, area(t, "sends"), options, &collector{})
	if err == nil || !strings.Contains(err.Error(), "unimplemented") {
		t.Errorf("error: %v", err)
	}
}
