package bench_test

import (
	"context"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/parleyhq/parley/bench"
	"github.com/parleyhq/parley/internal/rig"
)

// TestPresenceKill kills a node with 500 users. The area fails unless every watcher on the other
// nodes receives exactly one offline state of every user.
func TestPresenceKill(t *testing.T) {
	t.Parallel()
	figures := measureFleet(t, "presence-kill", 500)
	want := []string{"presence-kill/time", "presence-kill/redis", "presence-kill/nodes"}
	if diff := cmp.Diff(want, ids(figures)); diff != "" {
		t.Fatalf("figures (-want +got):\n%s", diff)
	}
	f := figures[0]
	t.Logf("%v against %v, %q", f.Value, f.Floor, f.Notes)
	if f.Value.Median < f.Floor.Median || f.BarMet == nil || *f.BarMet != (f.Value.Max <= 7) {
		t.Errorf("%v against %v, bar met: %v", f.Value, f.Floor, f.BarMet)
	}
	if got := f.Setup["connections"]; !strings.HasPrefix(got, "2 (HTTP/2") {
		t.Errorf("connections: %s", got)
	}
}

// TestPresenceStop halts a node with users, half of whom leave, and resumes it. The area fails if
// one of them is shown online again.
func TestPresenceStop(t *testing.T) {
	t.Parallel()
	figures := measureFleet(t, "presence-stop", 1000)
	if diff := cmp.Diff([]string{"presence-stop/return"}, ids(figures)); diff != "" || figures[0].Value.Median <= 0 {
		t.Fatalf("figures (-want +got):\n%s", diff)
	}
}

func TestPresenceLatency(t *testing.T) {
	t.Parallel()
	figures := measureFleet(t, "presence-latency", 1)
	if diff := cmp.Diff([]string{"presence-latency/p50", "presence-latency/p99"}, ids(figures)); diff != "" {
		t.Fatalf("figures (-want +got):\n%s", diff)
	}
	if figures[0].Value.Median <= 0 || figures[1].Value.Median < figures[0].Value.Median {
		t.Errorf("p50 %v, p99 %v", figures[0].Value, figures[1].Value)
	}
}

// measureFleet measures an area on a fleet of three nodes, whose leases last as long as by default.
func measureFleet(t *testing.T, name string, users int) []bench.Figure {
	t.Helper()
	const lease = 4 * time.Second
	options := tiny(t)
	options.Users, options.Duration = users, time.Second
	fleet, err := rig.Start(t.Context(), rig.Options{
		MongoMembers: 1, NATSServers: 1, Binary: options.Parleyd,
		Env: []string{"PARLEY_PRESENCE_LEASE_TTL=" + lease.String(), "PARLEY_PRESENCE_CONNECTIONS_PER_SUBJECT=1000"},
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := fleet.Close(); err != nil {
			t.Error(err)
		}
	})
	options.Addrs = fleet.Addresses()
	for _, n := range fleet.Nodes() {
		options.Ops = append(options.Ops, n.OpsAddr())
	}
	last := fleet.Node(2)
	areas := bench.PresenceAreas(func(context.Context) (*bench.PresenceFleet, error) {
		return &bench.PresenceFleet{
			Token: func(user string) (string, error) { return fleet.Token(user, nil) },
			Redis: fleet.Redis.Addr(), LeaseTTL: lease,
			Kill: last.Kill, Restart: last.Restart, Stop: last.Stop, Continue: last.Cont,
		}, nil
	})
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	var got collector
	areas = slices.DeleteFunc(areas, func(a bench.Area) bool { return a.Name != name })
	if err := bench.Run(ctx, areas, options, &got); err != nil {
		t.Fatal(err)
	}
	return got.figures
}

func TestPresence(t *testing.T) {
	t.Parallel()
	options := tiny(t)
	options.Users = 200
	figures := measure(t, "presence", options)
	want := []string{"presence/read/cpu", "presence/read/growth", "presence/change/cpu", "presence/change/redis"}
	if diff := cmp.Diff(want, ids(figures)); diff != "" {
		t.Fatalf("figures (-want +got):\n%s", diff)
	}
	for _, f := range figures {
		if f.Floor == nil || f.Value.Median < 0 {
			t.Errorf("figure: %+v", f)
		}
	}
}

func TestPresenceMemory(t *testing.T) {
	t.Parallel()
	figures := measure(t, "presence-memory", tiny(t))
	want := []string{"presence-memory/stream", "presence-memory/joined", "presence-memory/redis"}
	if diff := cmp.Diff(want, ids(figures)); diff != "" {
		t.Fatalf("figures (-want +got):\n%s", diff)
	}
	if inRedis := figures[2]; inRedis.Value.Median <= inRedis.Floor.Median {
		t.Errorf("a user who is online takes %v, a single key %v", inRedis.Value, inRedis.Floor)
	}
}

func TestPresenceReconnect(t *testing.T) {
	t.Parallel()
	figures := measure(t, "presence-reconnect", tiny(t))
	if diff := cmp.Diff([]string{"presence-reconnect/time"}, ids(figures)); diff != "" || figures[0].Value.Median <= 0 {
		t.Fatalf("figures (-want +got):\n%s", diff)
	}
}
