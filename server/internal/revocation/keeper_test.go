package revocation_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/parleyhq/parley/server/internal/fault"
	"github.com/parleyhq/parley/server/internal/revocation"
	"github.com/parleyhq/parley/server/internal/revocation/revocationtest"
)

// TestKeeperMakesUp checks that a revocation that the revoking node could not copy to Redis is
// there a second later.
func TestKeeperMakesUp(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(t, 2, nil)
		time.Sleep(2 * time.Second)
		f.second.Set(revocationtest.Down)
		p := user("ann", "phone", time.Now())
		if _, err := f.nodes[1].Revoke(t.Context(), revocation.Entry{Key: p.Key}, p); err != nil {
			t.Fatal(err)
		}
		f.second.Set(revocationtest.Up)
		time.Sleep(2 * time.Second)
		found, whole, err := f.second.Find(t.Context(), p.Key)
		if err != nil || !whole || len(found) != 1 {
			t.Errorf("found %v, whole %v, %v", found, whole, err)
		}
	})
}

// TestKeeperIsCutOff checks that a keeper that is cut off from the store alone does not declare the
// copy complete while another node acknowledges revocations that it cannot copy.
func TestKeeperIsCutOff(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var cut revocationtest.Store
		var lost revocationtest.Second // takes the second node's writes
		first := true
		f := newFleet(t, 2, func(cfg *revocation.Config) {
			if first {
				cfg.Store = switched{&cut, cfg.Store.(*revocationtest.Store)}
			} else {
				cfg.Second = &lost
			}
			first = false
		})
		f.deaf.Store(true)
		time.Sleep(2 * time.Second)
		cut.Set(revocationtest.Down)
		p := user("ann", "phone", time.Now())
		if _, err := f.nodes[1].Revoke(t.Context(), revocation.Entry{Key: p.Key}, p); err != nil {
			t.Fatal(err)
		}
		time.Sleep(7 * time.Second) // longer than a declaration is in force
		if got := reason(t.Context(), f.nodes[0], p); got != fault.RevocationUnknown {
			t.Errorf("on the node that is cut off: %q", got)
		}
		// Nobody can acknowledge a revocation now, and the copy is what all know.
		cut.Set(revocationtest.Up)
		time.Sleep(2 * time.Second)
		f.store.Set(revocationtest.Down)
		cut.Set(revocationtest.Down)
		time.Sleep(time.Minute)
		if got := reason(t.Context(), f.nodes[0], user("bob", "laptop", time.Now())); got != "" {
			t.Errorf("with a copy that is complete: %q", got)
		}
	})
}
