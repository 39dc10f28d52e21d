package apikey_test

import (
	"bytes"
	"context"
	"encoding/base64"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/parleyhq/parley/server/internal/apikey"
	"github.com/parleyhq/parley/server/internal/apikey/apikeytest"
	"github.com/parleyhq/parley/server/internal/fault"
	"github.com/parleyhq/parley/server/internal/ident"
	"github.com/parleyhq/parley/server/internal/lifecycle/lifecycletest"
)

var secret = []byte("a secret of the store's own making")

func draft() apikey.Draft {
	return apikey.Draft{
		Name: "import", Subject: "svc", CreatedBy: "root", Life: time.Hour,
		Grants: map[string][]ident.Action{"channel:a-*": {ident.Send}, "admin": {ident.Read}},
	}
}

func create(t *testing.T, keys *apikey.Keys) (apikey.Key, string) {
	t.Helper()
	key, text, err := keys.Create(t.Context(), draft())
	if err != nil {
		t.Fatal(err)
	}
	return key, text
}

func wantReason(t *testing.T, what string, err error, want fault.Reason) {
	t.Helper()
	if !fault.Is(err, want) {
		t.Errorf("%s: %v, want %s", what, err, want)
	}
}

func TestVerify(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store := &apikeytest.Store{}
		here, there := apikey.New(apikey.Config{Store: store, Secret: secret}), apikey.New(apikey.Config{Store: store, Secret: secret})
		key, text := create(t, here)
		if !apikey.Is(text) || !strings.HasPrefix(text, "parley_"+key.ID+"_") || key.Expires.Sub(key.Created) != time.Hour {
			t.Errorf("%s, %+v", text, key)
		}
		tail, err := base64.RawURLEncoding.DecodeString(text[len(text)-43:])
		if err != nil || len(key.Secrets) != 1 || bytes.Equal(key.Secrets[0].Digest[:], tail) {
			t.Errorf("the store has the secret itself: %v", err)
		}
		for _, keys := range []*apikey.Keys{here, there} {
			p, err := keys.Verify(t.Context(), text)
			if err != nil {
				t.Fatal(err)
			}
			if p.Subject != "svc" || p.Key != ident.APIKeyKey(key.ID) || !p.Expires.Equal(key.Expires) || !p.OfAPIKey() ||
				!p.Can(ident.Send, "a-1") || p.Can(ident.History, "a-1") || p.Can(ident.Send, "b") || !slices.Equal(p.Admin, []ident.Action{ident.Read}) {
				t.Errorf("%+v", p)
			}
		}
		time.Sleep(time.Hour - time.Millisecond)
		if _, err := here.Verify(t.Context(), text); err != nil {
			t.Error(err)
		}
		time.Sleep(time.Millisecond)
		_, err = here.Verify(t.Context(), text)
		wantReason(t, "expired", err, fault.TokenExpired)
	})
}

// A credential that this store did not issue is refused without asking the store.
func TestVerifyRefuses(t *testing.T) {
	t.Parallel()
	store := &apikeytest.Store{}
	keys := apikey.New(apikey.Config{Store: store, Secret: secret})
	key, text := create(t, keys)
	_, foreign := create(t, apikey.New(apikey.Config{Store: &apikeytest.Store{}, Secret: []byte("of another store")}))
	_, sister := create(t, keys)
	if _, err := keys.Verify(t.Context(), text); err != nil {
		t.Fatal(err)
	}
	id, tail := "parley_"+key.ID+"_", text[len("parley_"+key.ID+"_"):]
	before := store.Calls()
	for name, credential := range map[string]string{
		"of another store":     foreign,
		"no secret":            id,
		"no id":                "parley__" + tail,
		"only the prefix":      "parley_",
		"a longer secret":      text + "A",
		"a shorter secret":     text[:len(text)-1],
		"a newline inside":     text[:len(text)-2] + "\n" + text[len(text)-2:],
		"padding":              text + "=",
		"upper case":           strings.ToUpper(text),
		"another prefix":       "party_" + text[len("parley_"):],
		"a changed id":         strings.Replace(text, key.ID[:1], string('a'+(key.ID[0]-'a'+1)%26), 1),
		"another's secret":     id + sister[len(id):],
		"the id in upper case": "parley_" + strings.ToUpper(key.ID) + "_" + tail,
	} {
		p, err := keys.Verify(t.Context(), credential)
		if p != nil {
			t.Errorf("%s: %+v", name, p)
		}
		wantReason(t, name, err, fault.TokenInvalid)
	}
	for i := range text {
		for bit := range 8 {
			flipped := []byte(text)
			flipped[i] ^= 1 << bit
			if p, err := keys.Verify(t.Context(), string(flipped)); err == nil {
				t.Fatalf("bit %d of byte %d flipped: accepted as %+v", bit, i, p)
			}
		}
	}
	if n := store.Calls() - before; n != 0 {
		t.Errorf("the store was asked %d times", n)
	}
}

// What a node knows of a key is used for an hour while the store is away, and read again when it is
// back.
func TestVerifyWithoutStore(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store := &apikeytest.Store{}
		keys := apikey.New(apikey.Config{Store: store, Secret: secret})
		d := draft()
		d.Life = 24 * time.Hour
		key, text, err := keys.Create(t.Context(), d)
		if err != nil {
			t.Fatal(err)
		}
		store.SetAway(true)
		_, err = keys.Verify(t.Context(), text)
		wantReason(t, "never seen", err, fault.StoreUnavailable)
		store.SetAway(false)
		if _, err := keys.Verify(t.Context(), text); err != nil {
			t.Fatal(err)
		}
		store.SetAway(true)
		time.Sleep(time.Hour - time.Second)
		if _, err := keys.Verify(t.Context(), text); err != nil {
			t.Error("within an hour:", err)
		}
		time.Sleep(2 * time.Second)
		_, err = keys.Verify(t.Context(), text)
		wantReason(t, "after an hour", err, fault.StoreUnavailable)
		_, _, err = keys.Create(t.Context(), draft())
		wantReason(t, "create", err, fault.OutcomeUnknown)
		_, _, err = keys.Rotate(t.Context(), key.ID, 0)
		wantReason(t, "rotate", err, fault.StoreUnavailable)
		_, _, err = keys.List(t.Context(), "", 10)
		wantReason(t, "list", err, fault.StoreUnavailable)
		store.SetAway(false)
		if _, err := keys.Verify(t.Context(), text); err != nil {
			t.Error("with the store again:", err)
		}
	})
}

// TestVerifyWithoutAnswers checks that a known key costs its holder no more than a quarter of a
// second every five while the store hangs, and that the store is asked again afterwards.
func TestVerifyWithoutAnswers(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store := &apikeytest.Store{}
		keys := apikey.New(apikey.Config{Store: store, Secret: secret})
		key, text := create(t, keys)
		if _, err := keys.Verify(t.Context(), text); err != nil {
			t.Fatal(err)
		}
		store.SetHung(true)
		time.Sleep(6 * time.Second)
		began := time.Now()
		for range 100 {
			if _, err := keys.Verify(t.Context(), text); err != nil {
				t.Fatal(err)
			}
		}
		if took := time.Since(began); took > 250*time.Millisecond {
			t.Errorf("100 calls waited %v", took)
		}
		if p, err := keys.Holder(t.Context(), key.ID); err != nil || p.Key != ident.APIKeyKey(key.ID) || time.Until(p.Expires) < 5*365*24*time.Hour {
			t.Errorf("for a revocation: %+v, %v", p, err)
		}
		store.SetHung(false)
		if _, _, err := keys.Rotate(t.Context(), key.ID, 0); err != nil {
			t.Fatal(err)
		}
		time.Sleep(6 * time.Second)
		_, err := keys.Verify(t.Context(), text)
		wantReason(t, "replaced", err, fault.TokenExpired)
	})
}

func TestRotate(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store := &apikeytest.Store{}
		here, there := apikey.New(apikey.Config{Store: store, Secret: secret}), apikey.New(apikey.Config{Store: store, Secret: secret})
		key, first := create(t, here)
		valid := func(what, text string) {
			t.Helper()
			for _, keys := range []*apikey.Keys{here, there} {
				if _, err := keys.Verify(t.Context(), text); err != nil {
					t.Errorf("%s: %v", what, err)
				}
			}
		}
		ended := func(what, text string) {
			t.Helper()
			for _, keys := range []*apikey.Keys{here, there} {
				_, err := keys.Verify(t.Context(), text)
				wantReason(t, what, err, fault.TokenExpired)
			}
		}
		rotate := func(overlap time.Duration) string {
			t.Helper()
			rotated, text, err := here.Rotate(t.Context(), key.ID, overlap)
			if err != nil {
				t.Fatal(err)
			}
			if stored, err := store.Get(t.Context(), key.ID); err != nil || stored.Rev != rotated.Rev || len(stored.Secrets) != len(rotated.Secrets) {
				t.Errorf("%+v, stored %+v, %v", rotated, stored, err)
			}
			return text
		}
		valid("the first", first)
		second := rotate(10 * time.Minute)
		time.Sleep(5 * time.Second) // the other node reads the key again
		valid("the first, for ten minutes more", first)
		valid("the second", second)
		time.Sleep(5 * time.Minute)
		// The answer of this rotation is lost, and its repeat ends nothing later or sooner.
		rotate(10 * time.Minute)
		third := rotate(10 * time.Minute)
		time.Sleep(5*time.Minute - 6*time.Second)
		valid("the first, a second before its end", first)
		time.Sleep(time.Second)
		ended("the first", first)
		valid("the second", second)
		valid("the third", third)
		fourth := rotate(0)
		time.Sleep(5 * time.Second)
		ended("the second, at once", second)
		ended("the third, at once", third)
		valid("the fourth", fourth)
		// A key has a bounded number of secrets.
		for range 4 {
			rotate(time.Minute)
		}
		_, _, err := here.Rotate(t.Context(), key.ID, time.Minute)
		wantReason(t, "a sixth secret", err, fault.LimitExceeded)
		valid("the fourth", fourth)
		time.Sleep(time.Minute)
		rotate(time.Minute)
		_, _, err = here.Rotate(t.Context(), strings.Repeat("a", 24), 0)
		wantReason(t, "an unknown key", err, fault.APIKeyNotFound)
	})
}

// Each of two rotations at the same moment makes a secret that is valid.
func TestConcurrentRotations(t *testing.T) {
	t.Parallel()
	store := &apikeytest.Store{}
	keys := apikey.New(apikey.Config{Store: store, Secret: secret})
	key, _ := create(t, keys)
	var other string
	store.BeforeSet = func() {
		store.BeforeSet = nil
		var err error
		if _, other, err = keys.Rotate(t.Context(), key.ID, time.Hour); err != nil {
			t.Error(err)
		}
	}
	_, text, err := keys.Rotate(t.Context(), key.ID, time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	for _, each := range []string{text, other} {
		if _, err := keys.Verify(t.Context(), each); err != nil {
			t.Error(err)
		}
	}
}

func TestCreateRefuses(t *testing.T) {
	t.Parallel()
	store := &apikeytest.Store{}
	keys := apikey.New(apikey.Config{Store: store, Secret: secret})
	for name, grants := range map[string]map[string][]ident.Action{
		"an action of another kind": {"channel:*": {ident.Produce}},
		"an unknown action":         {"queue:*": {"fly"}},
		"send_as of a member":       {"member:*": {ident.SendAs}},
		"too large":                 {"channel:" + strings.Repeat("a", 4096): {ident.Send}},
	} {
		d := draft()
		d.Grants = grants
		_, _, err := keys.Create(t.Context(), d)
		wantReason(t, name, err, fault.InvalidField)
		if f, ok := fault.As(err); !ok || f.Field != "capabilities" {
			t.Errorf("%s: %+v", name, f)
		}
	}
	for i := range apikey.MaxKeys {
		must(t, store.Create(t.Context(), apikey.Key{ID: fmt.Sprint(i), Expires: time.Now().Add(time.Hour)}, time.Time{}, apikey.MaxKeys))
	}
	_, _, err := keys.Create(t.Context(), draft())
	wantReason(t, "one too many", err, fault.LimitExceeded)
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// The time of the last use is stored within two minutes, and at the stop, not with each use.
func TestLastUse(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store := &apikeytest.Store{}
		keys := apikey.New(apikey.Config{Store: store, Secret: secret})
		must(t, keys.Start(t.Context()))
		key, text := create(t, keys)
		last := func() time.Time {
			got, err := store.Get(t.Context(), key.ID)
			must(t, err)
			return got.LastUsed
		}
		for range 1000 {
			if _, err := keys.Verify(t.Context(), text); err != nil {
				t.Fatal(err)
			}
			time.Sleep(time.Second)
		}
		if ago := time.Since(last()); ago > 90*time.Second {
			t.Errorf("the last use was stored as %v ago", ago)
		}
		// One look-up every five seconds, and one time every minute or more.
		if n := store.Calls(); n > 250 {
			t.Errorf("%d calls of the store", n)
		}
		time.Sleep(10 * time.Minute)
		was := last()
		if _, err := keys.Verify(t.Context(), text); err != nil {
			t.Fatal(err)
		}
		must(t, keys.Stop(context.WithoutCancel(t.Context())))
		if !last().After(was) {
			t.Error("the use before the stop is not stored")
		}
	})
}

func TestLifecycle(t *testing.T) {
	t.Parallel()
	lifecycletest.Stress[*apikey.Keys](t, func(*testing.T) *apikey.Keys {
		return apikey.New(apikey.Config{Store: &apikeytest.Store{}, Secret: secret})
	})
}

func FuzzVerify(f *testing.F) {
	store := &apikeytest.Store{}
	keys := apikey.New(apikey.Config{Store: store, Secret: secret})
	_, text, err := keys.Create(f.Context(), draft())
	if err != nil {
		f.Fatal(err)
	}
	for _, seed := range []string{text, "", "parley_", "parley_" + strings.Repeat("a", 24) + "_" + strings.Repeat("A", 43), text + "\n"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, credential string) {
		if p, err := keys.Verify(t.Context(), credential); (err == nil) != (credential == text) || (p == nil) != (err != nil) {
			t.Fatalf("%q: %+v, %v", credential, p, err)
		}
	})
}

func BenchmarkVerify(b *testing.B) {
	keys := apikey.New(apikey.Config{Store: &apikeytest.Store{}, Secret: secret, Now: func() time.Time { return time.Unix(1_800_000_000, 0) }})
	_, text, err := keys.Create(b.Context(), draft())
	if err != nil {
		b.Fatal(err)
	}
	for b.Loop() {
		if _, err := keys.Verify(b.Context(), text); err != nil {
			b.Fatal(err)
		}
	}
}
