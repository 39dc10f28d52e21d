package presence

import (
	"bytes"
	"log/slog"
	"strings"
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

// TestRenewalsOfADeadNodeAreNotLogged checks that the removal of a dead node is logged once,
// although every shard is swept of it again in each renewal, and that a later sweep that finds
// users is logged.
func TestRenewalsOfADeadNodeAreNotLogged(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var logs bytes.Buffer // the handler has a lock for writes; reads follow synctest.Wait
		logger := slog.New(slog.NewTextHandler(&logs, nil))
		removals := func() int {
			synctest.Wait()
			return strings.Count(logs.String(), "removed the presence of a dead node")
		}
		f := newFleet(t, 2, func(c *Config) { c.TTL, c.Logger = 30*time.Second, logger })
		left, died := f.nodes[0], f.nodes[1]
		died.connect("ada", Web, nil)
		f.wait(f.stored("ada", onWeb))
		id, _ := died.hub.lease.current()
		f.kill(died)
		f.wait(f.stored("ada", offline))
		time.Sleep(left.hub.cfg.TTL)
		before := removals()
		if before == 0 {
			t.Fatal("the removal was not logged")
		}
		time.Sleep(3 * left.hub.cfg.TTL) // nine renewals of each shard
		if after := removals(); after != before {
			t.Errorf("%d more removals were logged", after-before)
		}
		f.store.set(func(m *modelStore) {
			m.shards[ShardOf("eve")].users = map[string]map[string]modelPart{"eve": {id: {onIOS, time.Now().Add(time.Hour)}}}
		})
		time.Sleep(left.hub.cfg.TTL/3 + time.Second)
		if problem := f.stored("eve", offline)(); problem != "" {
			t.Error(problem)
		}
		if removals() == before {
			t.Error("the sweep that found a user was not logged")
		}
	})
}
