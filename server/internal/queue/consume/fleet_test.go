package consume_test

import (
	"context"
	"errors"
	"maps"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/parleyhq/parley/server/internal/lifecycle/lifecycletest"
	"github.com/parleyhq/parley/server/internal/queue/consume"
)

// beats is a FleetStore in memory, for tests with synctest's clock.
type beats struct {
	mu    sync.Mutex
	away  bool
	until map[string]time.Time
}

func (b *beats) Beat(_ context.Context, node string, ttl time.Duration) (time.Time, []consume.Beat, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.away {
		return time.Time{}, nil, errors.New("away")
	}
	if b.until == nil {
		b.until = map[string]time.Time{}
	}
	now := time.Now()
	b.until[node] = now.Add(ttl)
	var all []consume.Beat
	for _, n := range slices.Sorted(maps.Keys(b.until)) {
		all = append(all, consume.Beat{Node: n, Until: b.until[n]})
	}
	return now, all, nil
}

func (b *beats) SetCapacity(context.Context, string, string, string, int) error { return nil }

func (b *beats) Capacities(context.Context, string, string) (map[string]int, error) {
	return map[string]int{}, nil
}

func (b *beats) set(away bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.away = away
}

func start(t *testing.T, store *beats, node string) *consume.Fleet {
	t.Helper()
	f := consume.NewFleet(consume.FleetConfig{Store: store, Node: node})
	if err := f.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	<-f.Ready()
	return f
}

func stop(t *testing.T, f *consume.Fleet) {
	t.Helper()
	if err := f.Stop(context.WithoutCancel(t.Context())); err != nil {
		t.Error(err)
	}
}

// TestFleet: a node is alive until its beat ends, at once after Stop, and a node takes over only
// after its own beat has been unbroken for as long as a beat holds.
func TestFleet(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store := &beats{}
		a, b := start(t, store, "a"), start(t, store, "b")
		defer stop(t, a)
		if a.MayTakeOver() {
			t.Error("a node may take over with its first beat")
		}
		time.Sleep(3100 * time.Millisecond)
		if !a.Alive("b") || !a.MayTakeOver() || a.Alive("never") {
			t.Errorf("alive %t, may take over %t", a.Alive("b"), a.MayTakeOver())
		}
		stop(t, b)
		time.Sleep(time.Second)
		if a.Alive("b") {
			t.Error("a node that stopped is alive")
		}
	})
}

// TestFleetAfterOutage: when the store returns after all beats are over, a node takes no lease until
// the others had the time to beat.
func TestFleetAfterOutage(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store := &beats{}
		a, b, dead := start(t, store, "a"), start(t, store, "b"), start(t, store, "dead")
		defer stop(t, a)
		defer stop(t, b)
		stop(t, dead)
		time.Sleep(5 * time.Second)
		store.set(true)
		time.Sleep(10 * time.Second)
		// What became of b is not known, but a knows that its own beat is over.
		if a.MayTakeOver() || !a.Alive("b") || a.Alive("a") || a.Alive("dead") {
			t.Errorf("while the store is away: may take over %t, alive: b %t, a %t, dead %t",
				a.MayTakeOver(), a.Alive("b"), a.Alive("a"), a.Alive("dead"))
		}
		if others := a.Others(); !slices.Equal(others, []string{"b"}) {
			t.Errorf("while the store is away, the others are %v", others)
		}
		store.set(false)
		for range 29 {
			time.Sleep(100 * time.Millisecond)
			if a.MayTakeOver() {
				t.Fatal("a node may take over before the others had the time to beat")
			}
		}
		time.Sleep(2 * time.Second)
		if !a.MayTakeOver() || !a.Alive("b") {
			t.Errorf("later: may take over %t, alive %t", a.MayTakeOver(), a.Alive("b"))
		}
	})
}

// TestFleetStress starts and stops fleets from many goroutines.
func TestFleetStress(t *testing.T) {
	t.Parallel()
	lifecycletest.Stress[*consume.Fleet](t, func(*testing.T) *consume.Fleet {
		return consume.NewFleet(consume.FleetConfig{Store: &beats{}, Node: "a"})
	})
}

// TestServiceStress starts and stops services from many goroutines.
func TestServiceStress(t *testing.T) {
	t.Parallel()
	lifecycletest.Stress[*consume.Service](t, func(*testing.T) *consume.Service {
		return consume.New(consume.Config{Node: "a", Secret: []byte("secret")})
	})
}

// TestLiving checks which nodes count as living: this one and others, until their beats end.
func TestLiving(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store := &beats{}
		a, b := start(t, store, "a"), start(t, store, "b")
		defer stop(t, a)
		time.Sleep(time.Second) // by synctest's clock: each has read the other's beat
		if got := a.Living(); !slices.Equal(got, []string{"a", "b"}) {
			t.Errorf("living: %v", got)
		}
		stop(t, b)
		time.Sleep(time.Second)
		if got := a.Living(); !slices.Equal(got, []string{"a"}) {
			t.Errorf("living after a node stopped: %v", got)
		}
		store.set(true)
		time.Sleep(4 * time.Second)
		if got := a.Living(); len(got) != 0 {
			t.Errorf("living without a store: %v", got)
		}
	})
}
