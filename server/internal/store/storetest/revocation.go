package storetest

import (
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/parleyhq/parley/server/internal/message"
	"github.com/parleyhq/parley/server/internal/revocation"
)

// RunRevocations tests a store of revocations. of returns that of a message store. told is whether
// Changes returns what other processes store; otherwise it has no entries.
func RunRevocations(t *testing.T, f Factory, of func(message.Store) revocation.Store, told bool) {
	p := newFixture(t, f(t))
	s := of(p.Store)
	ctx := t.Context()
	now := time.Now().UTC().Truncate(time.Millisecond)
	life := now.Add

	none, start, err := s.Changes(ctx, revocation.Stamp{})
	must(t, err)
	if len(none) != 0 || start == (revocation.Stamp{}) {
		t.Fatalf("from the zero stamp: %v, %v", none, start)
	}
	first := revocation.Entry{Key: "u:ann", Until: life(3 * time.Hour), Before: life(-time.Minute), At: now, By: "admin", Reason: "lost phone"}
	must(t, s.Revoke(ctx, first))
	// The later times win, and the words of the last call.
	must(t, s.Revoke(ctx, revocation.Entry{Key: "u:ann", Until: life(time.Hour), Before: life(0), At: life(time.Second), By: "root"}))
	ann := revocation.Entry{Key: "u:ann", Until: first.Until, Before: life(0), At: life(time.Second), By: "root"}
	same(t, "list", []revocation.Entry{ann}, listRevoked(t, s, "", 10))

	token := revocation.Entry{Key: "t:digest", Until: life(time.Hour), At: now, By: "bob"}
	session := revocation.Entry{Key: "s:login", Until: life(time.Hour), At: now, By: "bob"}
	for range 2 {
		must(t, s.Revoke(ctx, token))
		must(t, s.Revoke(ctx, session))
	}
	all := []revocation.Entry{session, token, ann}
	same(t, "list", all, listRevoked(t, s, "", 10))
	same(t, "the first two", all[:2], listRevoked(t, s, "", 2))
	same(t, "after the second", all[2:], listRevoked(t, s, all[1].Key, 2))
	same(t, "after the last", []revocation.Entry{}, listRevoked(t, s, all[2].Key, 2))

	changed, next, err := s.Changes(ctx, start)
	must(t, err)
	if told {
		found := make(map[string]revocation.Entry)
		for _, e := range changed {
			found[e.Key] = e
		}
		for _, e := range all {
			same(t, "changed "+e.Key, e, found[e.Key])
		}
		revokedAtOnce(t, s, next)
	}
	p.reopen(t)
	s = of(p.Store)
	same(t, "after a restart", all, listRevoked(t, s, "", 3))
}

func listRevoked(t *testing.T, s revocation.Store, after string, limit int) []revocation.Entry {
	t.Helper()
	entries, err := s.List(t.Context(), after, limit)
	must(t, err)
	if entries == nil {
		entries = []revocation.Entry{}
	}
	return entries
}

// revokedAtOnce checks that Changes misses nothing of many concurrent calls.
func revokedAtOnce(t *testing.T, s revocation.Store, stamp revocation.Stamp) {
	t.Helper()
	const callers, each = 8, 10
	var wg sync.WaitGroup
	acked := make(chan string, callers*each)
	for c := range callers {
		wg.Go(func() {
			for i := range each {
				key := fmt.Sprintf("u:many-%d-%d", c, i)
				if err := s.Revoke(t.Context(), revocation.Entry{Key: key, Until: time.Now().Add(time.Hour), Before: time.Now(), At: time.Now()}); err != nil {
					t.Error(err)
					return
				}
				acked <- key
			}
		})
	}
	seen := make(map[string]bool)
	go func() { wg.Wait(); close(acked) }()
	for key := range acked {
		if seen[key] {
			continue
		}
		entries, next, err := s.Changes(t.Context(), stamp)
		must(t, err)
		stamp = next
		for _, e := range entries {
			seen[e.Key] = true
		}
		if !seen[key] {
			t.Fatalf("%s was acknowledged, and is not among the changes", key)
		}
	}
}
