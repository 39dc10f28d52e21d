package revocation_test

import (
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/parleyhq/parley/server/internal/fault"
	"github.com/parleyhq/parley/server/internal/ident"
	"github.com/parleyhq/parley/server/internal/revocation"
	"github.com/parleyhq/parley/server/internal/revocation/revocationtest"
)

// TestStreams checks that a stream ends once, with the right fault, by every way in which its token
// can be revoked, and not by a revocation of the token that it had before.
func TestStreams(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(t, 2, nil)
		f.deaf.Store(true)
		var mu sync.Mutex
		ended := make(map[string][]fault.Reason)
		watch := func(name string, p *ident.Principal) *revocation.Stream {
			return f.nodes[1].Watch(p, func(err error) {
				got, _ := fault.As(err)
				mu.Lock()
				defer mu.Unlock()
				ended[name] = append(ended[name], got.Reason)
			})
		}
		revoke := func(e revocation.Entry) {
			t.Helper()
			if _, err := f.nodes[0].Revoke(t.Context(), e, nil); err != nil {
				t.Fatal(err)
			}
			time.Sleep(time.Second)
		}
		expect := func(want map[string]int) {
			t.Helper()
			mu.Lock()
			defer mu.Unlock()
			for name, n := range want {
				if len(ended[name]) != n || n > 0 && ended[name][0] != fault.TokenRevoked {
					t.Errorf("%s ended %v", name, ended[name])
				}
			}
			if len(ended) > len(want) {
				t.Errorf("ended: %v", ended)
			}
		}
		now := time.Now()
		watch("phone", user("ann", "phone", now))
		watch("phone too", user("ann", "phone", now))
		watch("laptop", user("ann", "laptop", now))
		watch("bob", user("bob", "b", now))
		watch("closed", user("ann", "phone", now)).Close()
		renewed := watch("renewed", user("ann", "old", now))
		renewed.Renew(user("ann", "new", now.Add(time.Hour)))

		revoke(revocation.Entry{Key: ident.SSIDKey("phone")})
		expect(map[string]int{"phone": 1, "phone too": 1})
		revoke(revocation.Entry{Key: ident.SSIDKey("old")})
		expect(map[string]int{"phone": 1, "phone too": 1})
		revoke(revocation.Entry{Key: revocation.UserKey("ann")})
		expect(map[string]int{"phone": 1, "phone too": 1, "laptop": 1})
		revoke(revocation.Entry{Key: ident.SSIDKey("new")})
		expect(map[string]int{"phone": 1, "phone too": 1, "laptop": 1, "renewed": 1})

		late := watch("late", user("ann", "fine", now.Add(time.Hour)))
		late.Renew(user("ann", "phone", now.Add(time.Hour)))
		expect(map[string]int{"phone": 1, "phone too": 1, "laptop": 1, "renewed": 1, "late": 1})
	})
}

// TestStreamsOfTheUnknown checks that streams live on for seconds while nobody can tell, and that
// they then end unless FailOpen is set.
func TestStreamsOfTheUnknown(t *testing.T) {
	t.Parallel()
	for _, open := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			f := newFleet(t, 1, func(cfg *revocation.Config) { cfg.FailOpen = open })
			var ended atomic.Pointer[fault.Error]
			f.nodes[0].Watch(user("ann", "phone", time.Now()), func(err error) {
				got, _ := fault.As(err)
				ended.Store(got)
			})
			time.Sleep(2 * time.Second)
			f.store.Set(revocationtest.Down)
			time.Sleep(time.Minute) // Redis can tell
			for range 5 {           // it fails now and then
				f.second.Set(revocationtest.Down)
				time.Sleep(2 * time.Second)
				f.second.Set(revocationtest.Up)
				time.Sleep(3 * time.Second)
			}
			if got := ended.Load(); got != nil {
				t.Fatalf("open %v: ended with %s although Redis can tell", open, got.Reason)
			}
			f.second.Set(revocationtest.Down)
			time.Sleep(15 * time.Second)
			if got := ended.Load(); open != (got == nil) || got != nil && got.Reason != fault.RevocationUnknown {
				t.Errorf("open %v: ended with %v", open, got)
			}
		})
	}
}

// TestStreamsWithoutTheStore checks that a stream ends within a second of the acknowledgement also
// if its node has not heard the announcement and the store does not answer any more, whenever the
// node's last poll was.
func TestStreamsWithoutTheStore(t *testing.T) {
	t.Parallel()
	for at := time.Duration(0); at < time.Second; at += 50 * time.Millisecond {
		synctest.Test(t, func(t *testing.T) {
			f := newFleet(t, 2, nil)
			f.deaf.Store(true)
			var ended atomic.Pointer[time.Time]
			p := user("ann", "phone", time.Now())
			f.nodes[1].Watch(p, func(error) {
				now := time.Now()
				ended.Store(&now)
			})
			time.Sleep(2*time.Second + at)
			if _, err := f.nodes[0].Revoke(t.Context(), revocation.Entry{Key: p.Key}, p); err != nil {
				t.Fatal(err)
			}
			f.store.Set(revocationtest.Hung)
			acked := time.Now()
			time.Sleep(5 * time.Second)
			if got := ended.Load(); got == nil || got.Sub(acked) > time.Second {
				t.Errorf("revoked %v after the start: ended at %v, acknowledged at %v", 2*time.Second+at, got, acked)
			}
		})
	}
}
