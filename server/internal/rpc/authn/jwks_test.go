package authn

import (
	"context"
	"crypto/rand"
	"crypto/rsa"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/golang-jwt/jwt/v5"

	"github.com/parleyhq/parley/server/internal/fault"
	"github.com/parleyhq/parley/server/internal/lifecycle/lifecycletest"
)

// servedKeySet is an HTTP server of a key set that tests change.
type servedKeySet struct {
	body    atomic.Value // string
	fetches atomic.Int64
	onFetch atomic.Pointer[context.CancelFunc] // called within each fetch, unless nil
	url     string
}

func newServedKeySet(t *testing.T) *servedKeySet {
	t.Helper()
	s := &servedKeySet{}
	s.body.Store("")
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		s.fetches.Add(1)
		if hook := s.onFetch.Load(); hook != nil {
			(*hook)()
			select {
			case <-r.Context().Done(): // the fetch was given up
			case <-time.After(100 * time.Millisecond):
			}
		}
		body, _ := s.body.Load().(string)
		if body == "" {
			w.WriteHeader(http.StatusServiceUnavailable)
			return
		}
		_, _ = w.Write([]byte(body))
	}))
	t.Cleanup(server.Close)
	s.url = server.URL
	return s
}

func (s *servedKeySet) serve(t *testing.T, byID map[string]*keys, extra ...map[string]string) {
	t.Helper()
	list := []map[string]string{}
	for kid, k := range byID {
		x := base64.RawURLEncoding.EncodeToString([]byte(k.ed[32:]))
		list = append(list, map[string]string{"kty": "OKP", "crv": "Ed25519", "kid": kid, "x": x})
	}
	body, err := json.Marshal(map[string]any{"keys": append(list, extra...)})
	if err != nil {
		t.Fatal(err)
	}
	s.body.Store(string(body))
}

func TestVerifierStartsAndStops(t *testing.T) {
	t.Parallel()
	k := newKeys(t)
	set := newServedKeySet(t)
	set.serve(t, map[string]*keys{"a": &k})
	lifecycletest.Stress[*Verifier](t, func(t *testing.T) *Verifier {
		v, err := New(Config{KeySets: []KeySet{{ID: "a", URL: set.url}}, Logger: slog.New(slog.DiscardHandler)})
		if err != nil {
			t.Fatal(err)
		}
		return v
	})
}

// TestUnknownUseFailsNoSet checks that a key of a use that is not registered is skipped, and that
// the set's other keys are used.
func TestUnknownUseFailsNoSet(t *testing.T) {
	t.Parallel()
	k, other := newKeys(t), newKeys(t)
	set := newServedKeySet(t)
	set.serve(t, map[string]*keys{"a": &k}, map[string]string{
		"kty": "OKP", "crv": "Ed25519", "kid": "b", "use": "jwt-svid", "x": base64.RawURLEncoding.EncodeToString([]byte(other.ed[32:])),
	})
	v := verifier(t, Config{KeySets: []KeySet{{ID: "a", URL: set.url}}})
	if _, err := v.Verify(t.Context(), sign(t, jwt.SigningMethodEdDSA, k.ed, claimsThatHold(), map[string]any{"kid": "a"})); err != nil {
		t.Error(err)
	}
	if _, err := v.Verify(t.Context(), sign(t, jwt.SigningMethodEdDSA, other.ed, claimsThatHold(), map[string]any{"kid": "b"})); err == nil {
		t.Error("a key of another use verifies a token")
	}
}

// TestKeyForEncryptionVerifiesNothing checks that a key of a set verifies signatures only if its
// use allows that, also for tokens that name no key.
func TestKeyForEncryptionVerifiesNothing(t *testing.T) {
	t.Parallel()
	for use, ok := range map[string]bool{"enc": false, "sig": true} {
		k := newKeys(t)
		set := newServedKeySet(t)
		set.serve(t, nil, map[string]string{
			"kty": "OKP", "crv": "Ed25519", "kid": "a", "use": use, "x": base64.RawURLEncoding.EncodeToString([]byte(k.ed[32:])),
		})
		v := verifier(t, Config{KeySets: []KeySet{{ID: "a", URL: set.url}}})
		for _, header := range []map[string]any{{"kid": "a"}, nil} {
			_, err := v.Verify(t.Context(), sign(t, jwt.SigningMethodEdDSA, k.ed, claimsThatHold(), header))
			if (err == nil) != ok {
				t.Errorf("use %s, header %v: %v", use, header, err)
			}
		}
	}
}

func TestKeySetRotates(t *testing.T) {
	t.Parallel()
	old, next := newKeys(t), newKeys(t)
	set := newServedKeySet(t)
	set.serve(t, map[string]*keys{"old": &old})
	v := verifier(t, Config{KeySets: []KeySet{{ID: "a", URL: set.url}}})
	token := func(k *keys, kid any) string {
		return sign(t, jwt.SigningMethodEdDSA, k.ed, claimsThatHold(), map[string]any{"kid": kid})
	}
	if _, err := v.Verify(t.Context(), token(&old, "old")); err != nil {
		t.Fatal(err)
	}
	if _, err := v.Verify(t.Context(), token(&old, nil)); err != nil {
		t.Errorf("a token that names no key: %v", err)
	}
	if _, err := v.Verify(t.Context(), token(&next, "old")); err == nil {
		t.Error("accepted under another's key id")
	}
	set.serve(t, map[string]*keys{"old": &old, "next": &next})
	if _, err := v.Verify(t.Context(), token(&next, "next")); err != nil {
		t.Errorf("after the rotation: %v", err)
	}
	set.body.Store("") // the old keys stay valid while the set is unavailable
	if _, err := v.Verify(t.Context(), token(&next, "next")); err != nil {
		t.Errorf("while the key set is away: %v", err)
	}
	before := set.fetches.Load()
	for i := range 1000 {
		_, err := v.Verify(t.Context(), token(&next, fmt.Sprintf("k%d", i)))
		if !fault.Is(err, fault.TokenInvalid) {
			t.Fatalf("unknown key id: %v", err)
		}
	}
	if n := set.fetches.Load() - before; n > 1 {
		t.Errorf("1000 unknown key ids made %d fetches", n)
	}
}

// A fetch for an unknown key continues after its caller has left, because it is the only one for a
// minute.
func TestKeySetFetchOutlivesItsCaller(t *testing.T) {
	t.Parallel()
	old, next := newKeys(t), newKeys(t)
	set := newServedKeySet(t)
	set.serve(t, map[string]*keys{"old": &old})
	v := verifier(t, Config{KeySets: []KeySet{{ID: "a", URL: set.url}}})
	set.serve(t, map[string]*keys{"old": &old, "next": &next})
	token := sign(t, jwt.SigningMethodEdDSA, next.ed, claimsThatHold(), map[string]any{"kid": "next"})
	ctx, leave := context.WithCancel(t.Context())
	set.onFetch.Store(&leave)
	_, _ = v.Verify(ctx, token) // the caller is gone and gets no result
	if ctx.Err() == nil {
		t.Fatal("the key set was not fetched")
	}
	if _, err := v.Verify(t.Context(), token); err != nil {
		t.Errorf("after a caller left during the fetch: %v", err)
	}
}

// A symmetric key in a published key set verifies no token: everyone knows it.
func TestKeySetSymmetricKey(t *testing.T) {
	t.Parallel()
	k := newKeys(t)
	set := newServedKeySet(t)
	set.serve(t, map[string]*keys{"a": &k},
		map[string]string{"kty": "oct", "kid": "s", "k": base64.RawURLEncoding.EncodeToString(secret), "alg": "HS256"})
	v := verifier(t, Config{KeySets: []KeySet{{ID: "a", URL: set.url}}})
	if _, err := v.Verify(t.Context(), sign(t, jwt.SigningMethodEdDSA, k.ed, claimsThatHold(), map[string]any{"kid": "a"})); err != nil {
		t.Fatal(err)
	}
	if _, err := v.Verify(t.Context(), sign(t, jwt.SigningMethodHS256, secret, claimsThatHold(), map[string]any{"kid": "s"})); err == nil {
		t.Error("accepted a token signed with a published symmetric key")
	}
}

// If the key set can't be fetched, is not a key set or is too large, Verify fails as unavailable.
// Weak keys of a set verify no token.
func TestKeySetNeverFetched(t *testing.T) {
	t.Parallel()
	k := newKeys(t)
	set := newServedKeySet(t)
	set.serve(t, map[string]*keys{"a": &k})
	good, _ := set.body.Load().(string)
	for name, body := range map[string]string{
		"away": "", "garbage": "<html>", "huge": `{"pad":"` + strings.Repeat("x", 2<<20) + `",` + good[1:],
	} {
		set.body.Store(body)
		v := verifier(t, Config{KeySets: []KeySet{{ID: "a", URL: set.url}}})
		_, err := v.Verify(t.Context(), sign(t, jwt.SigningMethodEdDSA, k.ed, claimsThatHold(), map[string]any{"kid": "a"}))
		if f, ok := fault.As(err); !ok || f.Kind != fault.Unavailable {
			t.Errorf("%s: %v", name, err)
		}
	}
	weak, err := rsa.GenerateKey(rand.Reader, 1024)
	if err != nil {
		t.Fatal(err)
	}
	set.serve(t, map[string]*keys{"a": &k}, map[string]string{
		"kty": "RSA", "kid": "w", "n": base64.RawURLEncoding.EncodeToString(weak.N.Bytes()), "e": "AQAB",
	})
	v := verifier(t, Config{KeySets: []KeySet{{ID: "a", URL: set.url}}})
	token := sign(t, jwt.SigningMethodRS256, weak, claimsThatHold(), map[string]any{"kid": "w"})
	if _, err := v.Verify(t.Context(), token); !fault.Is(err, fault.TokenInvalid) {
		t.Errorf("a weak key: %v", err)
	}
	token = sign(t, jwt.SigningMethodEdDSA, k.ed, claimsThatHold(), map[string]any{"kid": "a"})
	if _, err := v.Verify(t.Context(), token); err != nil {
		t.Errorf("a good key beside a weak one: %v", err)
	}
}
