package presence

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/parleyhq/parley/server/internal/fault"
)

// TestRenewalRepairs checks that a node writes its users again within a third of the TTL if the
// store has lost the part of one, and removes a part of a user who has no connection.
func TestRenewalRepairs(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(t, 1, func(c *Config) { c.TTL = 30 * time.Second })
		x := f.nodes[0]
		w := x.watch("ada", "eve")
		ada := x.connect("ada", Web, nil)
		f.wait(f.stored("ada", onWeb))
		f.wait(w.is("ada", onWeb))

		id, _ := x.hub.lease.current()
		f.store.set(func(m *modelStore) {
			delete(m.shards[ShardOf("ada")].users, "ada")
			s := &m.shards[ShardOf("eve")]
			if s.users == nil {
				s.users = map[string]map[string]modelPart{}
			}
			s.users["eve"] = map[string]modelPart{id: {onIOS, time.Now().Add(time.Hour)}}
		})
		time.Sleep(x.hub.cfg.TTL/3 + time.Second)
		if problem := f.stored("ada", onWeb)(); problem != "" {
			t.Error(problem)
		}
		if problem := f.stored("eve", offline)(); problem != "" {
			t.Error(problem)
		}
		w.saw(t, "ada", offline, onWeb)
		ada.lose()
		f.wait(f.stored("ada", offline))
	})
}

// TestRenewalKeepsSlot checks that a login which was replaced stays so, although the stream of the
// newer one lives for longer than the store keeps slots.
func TestRenewalKeepsSlot(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(t, 1, func(c *Config) { c.Policy, c.TTL = PolicySingle, 30*time.Second })
		f.store.set(func(m *modelStore) { m.slotTTL = 20 * time.Second })
		x := f.nodes[0]
		older := x.connect("ada", Web, nil)
		time.Sleep(time.Second)
		newer := x.connect("ada", IOS, nil)
		time.Sleep(time.Minute)
		if d := x.connect("ada", Web, older.login); !fault.Is(d.err, fault.Kicked) {
			t.Errorf("the older login returned: %v", d.err)
		}
		if end := newer.end(); end != nil {
			t.Errorf("the newer login ended with %v", end)
		}
	})
}
