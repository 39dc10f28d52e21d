package revocation_test

import (
	"context"
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/parleyhq/parley/server/internal/fault"
	"github.com/parleyhq/parley/server/internal/ident"
	"github.com/parleyhq/parley/server/internal/lifecycle/lifecycletest"
	"github.com/parleyhq/parley/server/internal/revocation"
	"github.com/parleyhq/parley/server/internal/revocation/revocationtest"
)

// fleet is nodes that share a store and a copy, and announce their revocations to each other unless
// deaf is set.
type fleet struct {
	store  revocationtest.Store
	second revocationtest.Second
	deaf   atomic.Bool
	nodes  []*revocation.List
}

// owner makes the first node the keeper. A node is able while the fleet's store answers.
type owner struct {
	first bool
	store *revocationtest.Store
}

func (o owner) Owns(int) bool { return o.first }

func (o owner) AnyAble() bool { return o.store.Answers() }

func newFleet(t *testing.T, n int, change func(*revocation.Config)) *fleet {
	t.Helper()
	f := &fleet{}
	for i := range n {
		cfg := revocation.Config{Store: &f.store, Second: &f.second, Owner: owner{i == 0, &f.store}, Announce: func(e revocation.Entry) {
			for _, node := range f.nodes {
				if !f.deaf.Load() {
					node.Heard(e)
				}
			}
		}}
		if change != nil {
			change(&cfg)
		}
		node, err := revocation.New(cfg)
		if err != nil {
			t.Fatal(err)
		}
		f.nodes = append(f.nodes, node)
		lifecycletest.Start(t, node)
	}
	return f
}

func user(name, ssid string, issued time.Time) *ident.Principal {
	return &ident.Principal{Subject: name, SSID: ssid, Key: ident.TokenKey(ssid, [32]byte{1}), IssuedAt: issued, Expires: time.Now().Add(time.Hour)}
}

// reason returns the reason of a Check; empty if it passes.
func reason(ctx context.Context, l *revocation.List, p *ident.Principal) fault.Reason {
	err := l.Check(ctx, p)
	if err == nil {
		return ""
	}
	f, ok := fault.As(err)
	if !ok {
		return fault.Reason(err.Error())
	}
	return f.Reason
}

// TestEverybodyRefuses checks that a revoked token is refused on the revoking node at once, and on
// the others within a second, with and without the announcement; and that no other token is.
func TestEverybodyRefuses(t *testing.T) {
	t.Parallel()
	for _, deaf := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			f := newFleet(t, 3, nil)
			f.deaf.Store(deaf)
			revoked, other, twin := user("ann", "phone", time.Now()), user("ann", "laptop", time.Now()), user("ann", "phone", time.Now())
			if _, err := f.nodes[1].Revoke(t.Context(), revocation.Entry{Key: revoked.Key, By: "ann"}, revoked); err != nil {
				t.Fatal(err)
			}
			if got := reason(t.Context(), f.nodes[1], revoked); got != fault.TokenRevoked {
				t.Errorf("on the revoking node: %q", got)
			}
			if deaf {
				time.Sleep(time.Second)
			}
			for i, node := range f.nodes {
				if got := reason(t.Context(), node, twin); got != fault.TokenRevoked {
					t.Errorf("deaf %v: node %d says %q", deaf, i, got)
				}
				if got := reason(t.Context(), node, other); got != "" {
					t.Errorf("another ssid on node %d: %q", i, got)
				}
			}
		})
	}
}

// TestRevokedUser checks that tokens issued up to the revocation of a user are refused, and later
// ones are not.
func TestRevokedUser(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(t, 1, nil)
		if _, err := f.nodes[0].Revoke(t.Context(), revocation.Entry{Key: revocation.UserKey("ann"), By: "admin"}, nil); err != nil {
			t.Fatal(err)
		}
		for name, tt := range map[string]struct {
			p    *ident.Principal
			want fault.Reason
		}{
			"before":  {user("ann", "", time.Now().Add(-time.Hour)), fault.TokenRevoked},
			"then":    {user("ann", "x", time.Now()), fault.TokenRevoked},
			"no time": {user("ann", "x", time.Time{}), fault.TokenRevoked},
			"later":   {user("ann", "x", time.Now().Add(time.Second)), ""},
			"another": {user("bob", "x", time.Now().Add(-time.Hour)), ""},
		} {
			if got := reason(t.Context(), f.nodes[0], tt.p); got != tt.want {
				t.Errorf("%s: %q", name, got)
			}
		}
	})
}

// TestEngines checks what a node that has not revoked a token itself says of it in each state of
// the engines, once its knowledge is old: every combination of store, Redis, announcements, fail
// mode and revoked or not.
func TestEngines(t *testing.T) {
	t.Parallel()
	modes := map[revocationtest.Mode]string{
		revocationtest.Up: "up", revocationtest.Down: "down", revocationtest.Hung: "hung", revocationtest.Slow: "slow",
	}
	for storeMode, store := range modes {
		for secondMode, second := range modes {
			for _, deaf := range []bool{false, true} {
				for _, open := range []bool{false, true} {
					for _, revoked := range []bool{false, true} {
						name := fmt.Sprintf("store %s, Redis %s, deaf %v, open %v, revoked %v", store, second, deaf, open, revoked)
						synctest.Test(t, func(t *testing.T) {
							f := newFleet(t, 2, func(cfg *revocation.Config) { cfg.FailOpen = open })
							time.Sleep(2 * time.Second) // the keeper has declared the copy complete
							f.deaf.Store(deaf)
							p := user("ann", "phone", time.Now())
							if revoked {
								if _, err := f.nodes[0].Revoke(t.Context(), revocation.Entry{Key: p.Key}, p); err != nil {
									t.Fatal(err)
								}
							}
							f.store.Set(storeMode)
							f.second.Set(secondMode)
							time.Sleep(2 * time.Second)
							want := fault.Reason("")
							hears := storeMode == revocationtest.Up || storeMode == revocationtest.Slow
							switch knows := hears || secondMode == revocationtest.Up; {
							case revoked && (knows || !deaf):
								want = fault.TokenRevoked
							case !knows && !open:
								want = fault.RevocationUnknown
							}
							for range 3 {
								if got := reason(t.Context(), f.nodes[1], p); got != want {
									t.Errorf("%s: %q, want %q", name, got, want)
								}
								time.Sleep(230 * time.Millisecond)
							}
						})
					}
				}
			}
		}
	}
}

// TestFlush checks that nothing comes back to life when Redis is flushed: not while the store
// answers, and not when it stops answering before the keeper has filled the copy again.
func TestFlush(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(t, 2, nil)
		f.deaf.Store(true)
		p, other := user("ann", "phone", time.Now()), user("bob", "phone2", time.Now())
		if _, err := f.nodes[0].Revoke(t.Context(), revocation.Entry{Key: p.Key}, p); err != nil {
			t.Fatal(err)
		}
		f.store.Set(revocationtest.Down) // node 1 has not heard yet
		f.second.Flush()
		time.Sleep(2 * time.Second)
		for _, p := range []*ident.Principal{p, other} {
			if got := reason(t.Context(), f.nodes[1], p); got != fault.RevocationUnknown {
				t.Errorf("with an empty copy: %q", got)
			}
		}
		f.store.Set(revocationtest.Up)
		time.Sleep(2500 * time.Millisecond)
		f.store.Set(revocationtest.Down)
		time.Sleep(2 * time.Second)
		if got := reason(t.Context(), f.nodes[1], p); got != fault.TokenRevoked {
			t.Errorf("with a copy that was filled again: %q", got)
		}
		if got := reason(t.Context(), f.nodes[1], other); got != "" {
			t.Errorf("of another token: %q", got)
		}
	})
}

// TestStoreMustConfirm checks that a revocation is not acknowledged unless it is stored, and is in
// force on this node nevertheless.
func TestStoreMustConfirm(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(t, 1, nil)
		f.store.Set(revocationtest.Down)
		p := user("ann", "phone", time.Now())
		_, err := f.nodes[0].Revoke(t.Context(), revocation.Entry{Key: p.Key}, p)
		if got, ok := fault.As(err); !ok || got.Reason != fault.OutcomeUnknown || !got.Retryable() {
			t.Errorf("revoke: %v", err)
		}
		if got := reason(t.Context(), f.nodes[0], p); got != fault.TokenRevoked || !f.nodes[0].Unstored(p) {
			t.Errorf("check: %q, unstored %v", got, f.nodes[0].Unstored(p))
		}
		// The node repeats the call.
		f.store.Set(revocationtest.Up)
		time.Sleep(2 * time.Second)
		stored, err := f.store.List(t.Context(), "", 10)
		if err != nil || len(stored) != 1 || f.nodes[0].Unstored(p) {
			t.Errorf("stored: %v, %v, unstored %v", stored, err, f.nodes[0].Unstored(p))
		}
	})
}

// TestUnstoredElsewhere checks that a node that only received the announcement of a revocation
// knows that it may not be stored, until a poll shows it.
func TestUnstoredElsewhere(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(t, 2, nil)
		p := user("ann", "phone", time.Now())
		if _, err := f.nodes[0].Revoke(t.Context(), revocation.Entry{Key: p.Key}, p); err != nil {
			t.Fatal(err)
		}
		if f.nodes[0].Unstored(p) || !f.nodes[1].Unstored(p) {
			t.Errorf("unstored: %v here, %v there", f.nodes[0].Unstored(p), f.nodes[1].Unstored(p))
		}
		time.Sleep(time.Second)
		if f.nodes[1].Unstored(p) {
			t.Error("unstored after a poll")
		}
	})
}

// TestSlowRefill checks that a copy of many entries becomes complete although copying takes longer
// than any call may.
func TestSlowRefill(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(t, 1, nil)
		for i := range 4500 {
			e := revocation.Entry{Key: fmt.Sprintf("s:%d", i), Until: time.Now().Add(time.Hour)}
			if err := f.store.Revoke(t.Context(), e); err != nil {
				t.Fatal(err)
			}
		}
		time.Sleep(time.Second)
		f.second.Flush()
		f.store.Set(revocationtest.Slow)
		f.second.Set(revocationtest.Slow)
		time.Sleep(15 * time.Second)
		f.second.Set(revocationtest.Up)
		if found, whole, err := f.second.Find(t.Context(), "s:0", "s:4499"); err != nil || !whole || len(found) != 2 {
			t.Errorf("found %d, whole %v, %v", len(found), whole, err)
		}
	})
}

// TestLongSilence checks that a node that could not ask the store for a long time knows everything
// soon after.
func TestLongSilence(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var cut revocationtest.Store // of the second node, until it is connected
		f := newFleet(t, 1, nil)
		node, err := revocation.New(revocation.Config{Store: switched{&cut, &f.store}})
		if err != nil {
			t.Fatal(err)
		}
		lifecycletest.Start(t, node)
		cut.Set(revocationtest.Hung)
		p := user("ann", "phone", time.Now())
		if _, err := f.nodes[0].Revoke(t.Context(), revocation.Entry{Key: p.Key}, p); err != nil {
			t.Fatal(err)
		}
		for i := range 4000 { // more than a poll can read
			e := revocation.Entry{Key: fmt.Sprintf("s:%d", i), Until: time.Now().Add(24 * time.Hour)}
			if err := f.store.Revoke(t.Context(), e); err != nil {
				t.Fatal(err)
			}
		}
		time.Sleep(time.Hour)
		f.store.SetDelay(time.Millisecond)
		cut.Set(revocationtest.Up)
		time.Sleep(15 * time.Second)
		if got := reason(t.Context(), node, p); got != fault.TokenRevoked {
			t.Errorf("after an hour: %q", got)
		}
	})
}

// switched is a store whose calls must pass the first one, and are answered by the second.
type switched struct{ gate, store *revocationtest.Store }

func (s switched) Revoke(ctx context.Context, e revocation.Entry) error {
	return s.store.Revoke(ctx, e)
}

func (s switched) Changes(ctx context.Context, after revocation.Stamp) ([]revocation.Entry, revocation.Stamp, error) {
	if _, _, err := s.gate.Changes(ctx, revocation.Stamp{}); err != nil {
		return nil, revocation.Stamp{}, err
	}
	return s.store.Changes(ctx, after)
}

func (s switched) List(ctx context.Context, after string, limit int) ([]revocation.Entry, error) {
	if _, err := s.gate.List(ctx, "", 1); err != nil {
		return nil, err
	}
	return s.store.List(ctx, after, limit)
}

// TestTokensOfOneLogin checks that of the tokens of one ssid only those are refused that were
// issued before their user was revoked, also if Redis is asked about both at once.
func TestTokensOfOneLogin(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(t, 2, nil)
		time.Sleep(2 * time.Second)
		f.deaf.Store(true)
		f.store.Set(revocationtest.Up)
		before, after := user("ann", "phone", time.Now()), user("ann", "phone", time.Now().Add(time.Minute))
		if _, err := f.nodes[0].Revoke(t.Context(), revocation.Entry{Key: revocation.UserKey("ann")}, nil); err != nil {
			t.Fatal(err)
		}
		f.store.Set(revocationtest.Down)          // before the other node has asked
		f.second.SetDelay(100 * time.Millisecond) // so that all ask before there is an answer
		time.Sleep(1500 * time.Millisecond)
		var wg sync.WaitGroup
		for range 10 {
			for p, want := range map[*ident.Principal]fault.Reason{before: fault.TokenRevoked, after: ""} {
				wg.Go(func() {
					if got := reason(t.Context(), f.nodes[1], p); got != want {
						t.Errorf("issued at %v: %q, want %q", p.IssuedAt, got, want)
					}
				})
			}
		}
		wg.Wait()
	})
}

// TestLife checks that an entry lives as long as any token that it revokes, and is forgotten then;
// and that a node that starts knows the entries of before.
func TestLife(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(t, 1, func(cfg *revocation.Config) { cfg.MaxTokenLife = 2 * time.Hour })
		short, long := user("ann", "phone", time.Now()), user("bob", "", time.Now())
		long.Expires = time.Now().Add(10 * time.Hour)
		for _, p := range []*ident.Principal{short, long} {
			e, err := f.nodes[0].Revoke(t.Context(), revocation.Entry{Key: p.Key}, p)
			if err != nil {
				t.Fatal(err)
			}
			if !e.Until.After(p.Expires) || e.Until.Before(time.Now().Add(2*time.Hour)) {
				t.Errorf("%s is revoked until %v", p.Subject, e.Until)
			}
		}
		later, err := revocation.New(revocation.Config{Store: &f.store})
		if err != nil {
			t.Fatal(err)
		}
		lifecycletest.Start(t, later)
		expect := func(want ...fault.Reason) {
			t.Helper()
			for i, p := range []*ident.Principal{short, long} {
				if got := reason(t.Context(), later, p); got != want[i] {
					t.Errorf("%s: %q, want %q", p.Subject, got, want[i])
				}
			}
		}
		expect(fault.TokenRevoked, fault.TokenRevoked)
		time.Sleep(3 * time.Hour)
		expect("", fault.TokenRevoked)
	})
}

// TestRacingChecks makes a million checks on three nodes around a revocation. None may pass on the
// revoking node after the acknowledgement, and none on the others a second after it.
func TestRacingChecks(t *testing.T) {
	t.Parallel()
	const total, slack = 1_000_000, 500 * time.Millisecond
	f := newFleet(t, 3, nil)
	f.deaf.Store(true)
	p := user("ann", "phone", time.Now())
	var acked atomic.Pointer[time.Time]
	var checks, passed atomic.Int64
	var wg sync.WaitGroup
	for i := range 6 {
		wg.Go(func() {
			node := f.nodes[i%3]
			bound := time.Duration(0)
			if i%3 != 0 {
				bound = time.Second + slack
			}
			for checks.Load() < total || acked.Load() == nil || time.Since(*acked.Load()) < bound+time.Second {
				at := acked.Load()
				late := at != nil && time.Since(*at) > bound
				checks.Add(1)
				if node.Check(t.Context(), p) != nil {
					continue
				}
				passed.Add(1)
				if late {
					t.Errorf("node %d admits a token %v after its revocation", i%3, time.Since(*at))
					return
				}
			}
		})
	}
	for passed.Load() < 1000 {
		runtime.Gosched()
	}
	if _, err := f.nodes[0].Revoke(t.Context(), revocation.Entry{Key: p.Key}, p); err != nil {
		t.Fatal(err)
	}
	now := time.Now()
	acked.Store(&now)
	wg.Wait()
	t.Logf("%d checks, of which %d passed", checks.Load(), passed.Load())
}

func TestLifecycle(t *testing.T) {
	t.Parallel()
	lifecycletest.Stress[*revocation.List](t, func(t *testing.T) *revocation.List {
		l, err := revocation.New(revocation.Config{Store: &revocationtest.Store{}, Second: &revocationtest.Second{}})
		if err != nil {
			t.Fatal(err)
		}
		return l
	})
}
