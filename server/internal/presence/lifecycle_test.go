package presence

import (
	"log/slog"
	"testing"

	"go.uber.org/goleak"

	"github.com/parleyhq/parley/server/internal/lifecycle/lifecycletest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// deafBus is a Bus without other nodes.
type deafBus struct{}

func (deafBus) Announce(Announcement) {}
func (deafBus) Heads([]ShardHead)     {}
func (deafBus) Beat(NodeBeat)         {}
func (deafBus) Dead(string)           {}

func (deafBus) Listen(BusHandler) (func(), error) { return func() {}, nil }

// TestHubStartsAndStops does so without a store, for which a hub waits neither at its start nor at
// its end.
func TestHubStartsAndStops(t *testing.T) {
	t.Parallel()
	lifecycletest.Stress[*Hub](t, func(*testing.T) *Hub {
		store := newModelStore()
		store.down = true
		return NewHub(Config{Store: store, Bus: deafBus{}, Owner: modOwner{0, 1}, Node: "n", Logger: slog.New(slog.DiscardHandler)})
	})
}
