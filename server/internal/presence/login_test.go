package presence

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/parleyhq/parley/server/internal/fault"
)

// TestProvisionalLoginHasItsArrival checks that a login whose node did not reach the store is as
// old as its arrival: a device that arrived later stays the newer one, whenever the first one was
// entered.
func TestProvisionalLoginHasItsArrival(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(t, 2, func(c *Config) { c.Policy = PolicySingle })
		f.nodes[0].store.set(func(m *modelStore) { m.away = true })
		var older *device
		done := make(chan struct{})
		go func() {
			defer close(done)
			older = f.nodes[0].connect("ada", Web, nil)
		}()
		time.Sleep(loginWait / 2)
		newer := f.nodes[1].connect("ada", IOS, nil)
		<-done
		if older.err != nil || newer.err != nil {
			t.Fatal(older.err, newer.err)
		}
		f.nodes[0].store.set(func(m *modelStore) { m.away = false })
		time.Sleep(2 * time.Second)
		if end := older.end(); end == nil || end.Reason != fault.Kicked || end.Kick.Platform != uint8(IOS) {
			t.Errorf("the older login ended with %v", end)
		}
		if end := newer.end(); end != nil {
			t.Errorf("the newer login ended with %v", end)
		}
	})
}
