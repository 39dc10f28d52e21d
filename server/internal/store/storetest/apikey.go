package storetest

import (
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/parleyhq/parley/server/internal/apikey"
	"github.com/parleyhq/parley/server/internal/ident"
	"github.com/parleyhq/parley/server/internal/message"
)

// RunAPIKeys tests a store of API keys. of returns that of a message store.
func RunAPIKeys(t *testing.T, f Factory, of func(message.Store) apikey.Store) {
	p := newFixture(t, f(t))
	s := of(p.Store)
	ctx := t.Context()
	now := time.Now().UTC().Truncate(time.Millisecond)
	none := time.Time{}
	key := func(id string, expires time.Time) apikey.Key {
		return apikey.Key{
			ID: id, Name: "nightly import", Subject: "svc", Created: now, CreatedBy: "root", Expires: expires,
			Grants:  map[string][]ident.Action{"channel:*": {ident.Send, ident.SendAs}, "presence": {ident.List}},
			Secrets: []apikey.Secret{{Digest: [32]byte([]byte(strings.Repeat(id[:1], 32)))}},
		}
	}
	fails := func(what string, err, want error) {
		t.Helper()
		if !errors.Is(err, want) {
			t.Errorf("%s: %v, want %v", what, err, want)
		}
	}
	_, err := s.Get(ctx, "b")
	fails("get of none", err, apikey.ErrNotFound)
	fails("secrets of none", s.SetSecrets(ctx, "b", 0, nil), apikey.ErrNotFound)

	a, b, old := key("a", now.Add(time.Hour)), key("b", now.Add(2*time.Hour)), key("c", now.Add(-time.Hour))
	for _, k := range []apikey.Key{b, old, a} {
		must(t, s.Create(ctx, k, now.Add(-2*time.Hour), 3))
	}
	same(t, "list", []apikey.Key{a, b, old}, listKeys(t, s, "", 10))
	same(t, "after the first", []apikey.Key{b}, listKeys(t, s, "a", 1))
	fails("the fourth", s.Create(ctx, key("d", now.Add(time.Hour)), now.Add(-2*time.Hour), 3), apikey.ErrFull)
	// What has expired before the given time makes room.
	d := key("d", now.Add(time.Hour))
	must(t, s.Create(ctx, d, now, 3))
	same(t, "list", []apikey.Key{a, b, d}, listKeys(t, s, "", 10))

	b.Secrets = []apikey.Secret{{Digest: [32]byte{1}}, {Digest: [32]byte{2}, Until: now.Add(time.Minute)}}
	must(t, s.SetSecrets(ctx, "b", 0, b.Secrets))
	fails("a second change", s.SetSecrets(ctx, "b", 0, nil), apikey.ErrChanged)
	b.Rev = 1
	must(t, s.Used(ctx, nil))
	must(t, s.Used(ctx, map[string]time.Time{"b": now, "nobody": now}))
	must(t, s.Used(ctx, map[string]time.Time{"b": now.Add(-time.Second)}))
	b.LastUsed = now
	got, err := s.Get(ctx, "b")
	must(t, err)
	same(t, "changed", b, got)
	if got, err := s.Get(ctx, "a"); err != nil || got.LastUsed != none {
		t.Errorf("a: %+v, %v", got, err)
	}
	onlyOneSets(t, s)
	p.reopen(t)
	s = of(p.Store)
	same(t, "after a restart", []apikey.Key{a, b}, listKeys(t, s, "", 2))
}

// onlyOneSets checks that of concurrent changes of one revision only one is made.
func onlyOneSets(t *testing.T, s apikey.Store) {
	t.Helper()
	var wg sync.WaitGroup
	set := make(chan byte, 8)
	for i := range byte(8) {
		wg.Go(func() {
			switch err := s.SetSecrets(t.Context(), "d", 0, []apikey.Secret{{Digest: [32]byte{i}}}); {
			case err == nil:
				set <- i
			case !errors.Is(err, apikey.ErrChanged):
				t.Error(err)
			}
		})
	}
	wg.Wait()
	close(set)
	var winners []byte
	for i := range set {
		winners = append(winners, i)
	}
	got, err := s.Get(t.Context(), "d")
	must(t, err)
	if len(winners) != 1 || got.Secrets[0].Digest[0] != winners[0] || got.Rev != 1 {
		t.Errorf("%d changes were made, and the key is %s", len(winners), fmt.Sprintf("%+v", got))
	}
}

func listKeys(t *testing.T, s apikey.Store, after string, limit int) []apikey.Key {
	t.Helper()
	keys, err := s.List(t.Context(), after, limit)
	must(t, err)
	return keys
}
