package authn

import (
	"context"
	"crypto/ed25519"
	"crypto/x509"
	"encoding/base64"
	"encoding/pem"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/golang-jwt/jwt/v5"

	"github.com/parleyhq/parley/server/internal/fault"
)

func secretOf(letter string) []byte { return []byte(strings.Repeat(letter, 32)) }

// refusal returns the text of an error, which must be TOKEN_INVALID.
func refusal(t *testing.T, err error) string {
	t.Helper()
	f, ok := fault.As(err)
	if !ok || f.Kind != fault.Unauthenticated || f.Reason != fault.TokenInvalid {
		t.Fatalf("not TOKEN_INVALID: %v", err)
	}
	return f.Msg
}

// TestSecretsByKeyID checks which secrets are tried for a token: that of its kid, and those without
// an id; and for a token without a kid all.
func TestSecretsByKeyID(t *testing.T) {
	t.Parallel()
	old, next, plain := secretOf("o"), secretOf("n"), secretOf("p")
	ided := []Secret{{ID: "old", Value: old}, {ID: "next", Value: next}}
	both := append([]Secret{{Value: plain}}, ided...)
	const badSignature, unknown = "signature", "the token's kid names no key"
	for _, tt := range []struct {
		name    string
		secrets []Secret
		key     []byte
		kid     any
		want    string // of the refusal; "" means accepted
	}{
		{"its kid", ided, old, "old", ""},
		{"the other's kid", ided, next, "next", ""},
		{"no kid, the first", ided, old, nil, ""},
		{"no kid, the last", ided, next, nil, ""},
		{"another's kid", ided, old, "next", badSignature},
		{"an unknown kid", ided, old, "gone", unknown},
		{"a stranger's without a kid", ided, secretOf("x"), nil, badSignature},
		{"without an id, no kid", both, plain, nil, ""},
		{"without an id, any kid", both, plain, "whatever", ""},
		{"without an id, another's kid", both, plain, "old", ""},
		{"with an id beside one without", both, next, "next", ""},
		{"with an id, an unknown kid", both, next, "whatever", badSignature},
		{"after its removal", ided[1:], old, "old", unknown},
		{"after its removal, no kid", ided[1:], old, nil, badSignature},
	} {
		v := verifier(t, Config{Secrets: tt.secrets})
		_, err := v.Verify(t.Context(), sign(t, jwt.SigningMethodHS256, tt.key, claimsThatHold(), map[string]any{"kid": tt.kid}))
		if tt.want == "" {
			if err != nil {
				t.Errorf("%s: %v", tt.name, err)
			}
		} else if text := refusal(t, err); !strings.Contains(text, tt.want) {
			t.Errorf("%s: refused with %q, want %q", tt.name, text, tt.want)
		}
	}
}

// TestSecretsAreNotLogged checks that the ids of secrets are logged at the start, and no secret.
func TestSecretsAreNotLogged(t *testing.T) {
	t.Parallel()
	var log strings.Builder
	v, err := New(Config{Secrets: []Secret{{ID: "2026-12", Value: secretOf("s")}}, Logger: slog.New(slog.NewTextHandler(&log, nil))})
	if err != nil {
		t.Fatal(err)
	}
	if err := v.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := v.Stop(t.Context()); err != nil {
		t.Fatal(err)
	}
	if text := log.String(); !strings.Contains(text, "2026-12") || strings.Contains(text, "sss") {
		t.Errorf("logged: %s", text)
	}
}

// TestNoKeyServesAnotherAlgorithm checks that neither a public key nor a secret verifies a token of
// an algorithm other than its own, for any kid.
func TestNoKeyServesAnotherAlgorithm(t *testing.T) {
	t.Parallel()
	k := newKeys(t)
	set := newServedKeySet(t)
	x := []byte(k.ed[32:])
	n, e := base64.RawURLEncoding.EncodeToString(k.rsa.N.Bytes()), "AQAB"
	set.serve(t, map[string]*keys{"a": &k}, map[string]string{"kty": "RSA", "kid": "r", "n": n, "e": e},
		map[string]string{"kty": "oct", "kid": "s", "k": base64.RawURLEncoding.EncodeToString(secretOf("p")), "alg": "HS256"},
		map[string]string{
			"kty": "OKP", "crv": "Ed25519", "kid": "private", "x": base64.RawURLEncoding.EncodeToString(x),
			"d": base64.RawURLEncoding.EncodeToString(k.ed.Seed()),
		},
		map[string]string{"kty": "RSA", "kid": "rs512", "n": n, "e": e, "alg": "RS512"})
	v := verifier(t, Config{Secrets: []Secret{{ID: "a", Value: secretOf("a")}}, PublicKeys: k.public(), KeySets: []KeySet{{ID: "set", URL: set.url}}})
	der, err := x509.MarshalPKIXPublicKey(&k.rsa.PublicKey)
	if err != nil {
		t.Fatal(err)
	}
	pkcs1 := x509.MarshalPKCS1PublicKey(&k.rsa.PublicKey)
	for name, key := range map[string][]byte{
		"PKIX PEM": pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: der}), "PKIX": der, "PKCS #1": pkcs1,
		"PKCS #1 PEM": pem.EncodeToMemory(&pem.Block{Type: "RSA PUBLIC KEY", Bytes: pkcs1}),
		"modulus":     k.rsa.N.Bytes(), "modulus in base64": []byte(n), "Ed25519": x, "published secret": secretOf("p"), "empty": {},
	} {
		for _, kid := range []any{nil, "a", "r", "s", "private"} {
			token := sign(t, jwt.SigningMethodHS256, key, claimsThatHold(), map[string]any{"kid": kid})
			if _, err := v.Verify(t.Context(), token); err == nil {
				t.Errorf("HS256 with %s as the secret and kid %v is accepted", name, kid)
			}
		}
	}
	for _, kid := range []any{"a", "s", "rs512"} {
		head := fmt.Sprintf(`{"alg":"EdDSA","kid":"%s"}`, kid)
		body := strings.Split(sign(t, jwt.SigningMethodHS256, secretOf("a"), claimsThatHold(), nil), ".")
		text := base64.RawURLEncoding.EncodeToString([]byte(head)) + "." + body[1]
		mac, err := jwt.SigningMethodHS256.Sign(text, secretOf("a"))
		if err != nil {
			t.Fatal(err)
		}
		if _, err := v.Verify(t.Context(), text+"."+base64.RawURLEncoding.EncodeToString(mac)); err == nil {
			t.Errorf("the secret verifies EdDSA with kid %v", kid)
		}
	}
	only := verifier(t, Config{KeySets: []KeySet{{ID: "set", URL: set.url}}})
	for kid, want := range map[string]string{"private": "kid names no key", "rs512": "kid names no key", "s": "kid names no key"} {
		method, key := jwt.SigningMethod(jwt.SigningMethodEdDSA), any(k.ed)
		if kid == "rs512" {
			method, key = jwt.SigningMethodRS256, k.rsa
		}
		_, err := only.Verify(t.Context(), sign(t, method, key, claimsThatHold(), map[string]any{"kid": kid}))
		if text := refusal(t, err); !strings.Contains(text, want) {
			t.Errorf("the key %s of the set: %q", kid, text)
		}
	}
	if _, err := only.Verify(t.Context(), sign(t, jwt.SigningMethodHS256, secretOf("p"), claimsThatHold(), map[string]any{"kid": "s"})); err == nil {
		t.Error("a server without secrets accepts HS256")
	}
}

// TestSameKeyIDInTwoSets checks that the keys of two sets with one kid are both tried, and that a
// set's issuer and audience hold for its own keys only.
func TestSameKeyIDInTwoSets(t *testing.T) {
	t.Parallel()
	east, west := newKeys(t), newKeys(t)
	eastSet, westSet := newServedKeySet(t), newServedKeySet(t)
	eastSet.serve(t, map[string]*keys{"1": &east})
	westSet.serve(t, map[string]*keys{"1": &west})
	token := func(k *keys, iss, aud string, kid any) string {
		c := with("iss", iss)
		c["aud"] = aud
		return sign(t, jwt.SigningMethodEdDSA, k.ed, c, map[string]any{"kid": kid})
	}
	open := verifier(t, Config{KeySets: []KeySet{{ID: "east", URL: eastSet.url}, {ID: "west", URL: westSet.url}}})
	bound := verifier(t, Config{
		Issuer: "east", Audience: "parley", Secrets: []Secret{{Value: secret}},
		KeySets: []KeySet{{ID: "east", URL: eastSet.url}, {ID: "west", URL: westSet.url, Issuer: "west", Audience: "parley-west"}},
	})
	for _, kid := range []any{"1", nil} {
		for _, k := range []*keys{&east, &west} {
			if _, err := open.Verify(t.Context(), token(k, "any", "any", kid)); err != nil {
				t.Errorf("kid %v: %v", kid, err)
			}
		}
		for _, tt := range []struct {
			k        *keys
			iss, aud string
			want     string
		}{
			{&east, "east", "parley", ""},
			{&west, "west", "parley-west", ""},
			{&east, "west", "parley-west", "signature"},
			{&west, "east", "parley", "signature"},
			{&west, "west", "parley", "iss or aud"},
			{&east, "north", "parley", "iss or aud"},
		} {
			_, err := bound.Verify(t.Context(), token(tt.k, tt.iss, tt.aud, kid))
			if tt.want == "" {
				if err != nil {
					t.Errorf("%s, %s, kid %v: %v", tt.iss, tt.aud, kid, err)
				}
			} else if text := refusal(t, err); !strings.Contains(text, tt.want) {
				t.Errorf("%s, %s, kid %v: refused with %q, want %q", tt.iss, tt.aud, kid, text, tt.want)
			}
		}
	}
	c := with("iss", "west")
	c["aud"] = "parley-west"
	if text := refusal(t, errOf(bound.Verify(t.Context(), sign(t, jwt.SigningMethodHS256, secret, c, nil)))); !strings.Contains(text, "iss or aud") {
		t.Errorf("a secret's token with the issuer of a set: %q", text)
	}
}

func errOf[T any](_ T, err error) error { return err }

// TestKeysOfOneKid checks that a kid may name several keys of a set, and that the number of keys
// that are tried is bounded.
func TestKeysOfOneKid(t *testing.T) {
	t.Parallel()
	set := newServedKeySet(t)
	list := make([]map[string]string, maxKeysTried+1)
	private := make([]ed25519.PrivateKey, len(list))
	for i := range list {
		_, key, err := ed25519.GenerateKey(nil)
		if err != nil {
			t.Fatal(err)
		}
		private[i] = key
		list[i] = map[string]string{"kty": "OKP", "crv": "Ed25519", "kid": "1", "x": base64.RawURLEncoding.EncodeToString(key[32:])}
	}
	set.serve(t, nil, list...)
	v := verifier(t, Config{KeySets: []KeySet{{ID: "a", URL: set.url}}})
	for _, kid := range []any{"1", nil} {
		for i, key := range private {
			_, err := v.Verify(t.Context(), sign(t, jwt.SigningMethodEdDSA, key, claimsThatHold(), map[string]any{"kid": kid}))
			if (err == nil) != (i < maxKeysTried) {
				t.Errorf("key %d, kid %v: %v", i, kid, err)
			}
		}
	}
}

// TestOneKeySetAway checks that a set that cannot be fetched, or that does not answer, changes
// nothing for the tokens of other keys, and that its own tokens are refused only for now.
func TestOneKeySetAway(t *testing.T) {
	t.Parallel()
	here, away, static := newKeys(t), newKeys(t), newKeys(t)
	set := newServedKeySet(t)
	set.serve(t, map[string]*keys{"here": &here})
	hang := make(chan struct{})
	hanging := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		select {
		case <-hang:
		case <-r.Context().Done():
		}
	}))
	t.Cleanup(hanging.Close)
	t.Cleanup(func() { close(hang) })
	refusing := httptest.NewServer(http.NotFoundHandler())
	refusing.Close()
	v := verifier(t, Config{
		Secrets: []Secret{{ID: "s", Value: secret}}, PublicKeys: static.public(),
		KeySets: []KeySet{{ID: "refusing", URL: refusing.URL}, {ID: "here", URL: set.url}, {ID: "hanging", URL: hanging.URL}},
	})
	start := time.Now()
	for name, token := range map[string]string{
		"of the other set":                sign(t, jwt.SigningMethodEdDSA, here.ed, claimsThatHold(), map[string]any{"kid": "here"}),
		"of the other set, without a kid": sign(t, jwt.SigningMethodEdDSA, here.ed, claimsThatHold(), nil),
		"of a static key":                 sign(t, jwt.SigningMethodRS256, static.rsa, claimsThatHold(), map[string]any{"kid": "unknown"}),
		"of a secret":                     sign(t, jwt.SigningMethodHS256, secret, claimsThatHold(), map[string]any{"kid": "s"}),
	} {
		if _, err := v.Verify(t.Context(), token); err != nil {
			t.Errorf("a token %s: %v", name, err)
		}
	}
	if took := time.Since(start); took > keySetTimeout/2 {
		t.Errorf("took %v: a token waited for the set that is away", took)
	}
	for _, kid := range []any{"away", nil} {
		_, err := v.Verify(t.Context(), sign(t, jwt.SigningMethodEdDSA, away.ed, claimsThatHold(), map[string]any{"kid": kid}))
		if f, ok := fault.As(err); !ok || f.Kind != fault.Unavailable {
			t.Errorf("a token of a set that was never fetched, kid %v: %v", kid, err)
		}
	}
	_, err := v.Verify(t.Context(), sign(t, jwt.SigningMethodHS256, secret, claimsThatHold(), map[string]any{"kid": "away"}))
	if text := refusal(t, err); !strings.Contains(text, "kid names no key") {
		t.Errorf("HS256 with an unknown kid: %q", text)
	}
}

// TestNewKeyIsFetchedOnce checks that many concurrent callers with a new key are served by one
// fetch, and none of them is refused.
func TestNewKeyIsFetchedOnce(t *testing.T) {
	t.Parallel()
	old, next := newKeys(t), newKeys(t)
	set, other, start := newServedKeySet(t), newServedKeySet(t), time.Now()
	set.serve(t, map[string]*keys{"old": &old})
	other.serve(t, map[string]*keys{"other": &old})
	v := verifier(t, Config{KeySets: []KeySet{{ID: "a", URL: set.url}, {ID: "b", URL: other.url}}})
	set.serve(t, map[string]*keys{"old": &old, "next": &next})
	slow := context.CancelFunc(func() {})
	set.onFetch.Store(&slow) // each fetch takes 100 ms, so that callers come while it is in flight
	var wg sync.WaitGroup
	errs := make([]error, 100)
	for i := range errs {
		c := with("sub", fmt.Sprint("user", i))
		token := sign(t, jwt.SigningMethodEdDSA, next.ed, c, map[string]any{"kid": "next"})
		wg.Go(func() { _, errs[i] = v.Verify(t.Context(), token) })
	}
	wg.Wait()
	if err := errors.Join(errs...); err != nil {
		t.Error(err)
	}
	for i := range 1000 {
		_, err := v.Verify(t.Context(), sign(t, jwt.SigningMethodEdDSA, next.ed, claimsThatHold(), map[string]any{"kid": fmt.Sprint("k", i)}))
		if text := refusal(t, err); !strings.Contains(text, "kid names no key") {
			t.Fatalf("an unknown kid: %q", text)
		}
	}
	for name, s := range map[string]*servedKeySet{"a": set, "b": other} {
		// At the start, for the new key, and what a slow machine has time for.
		allowed := 2 + int64(time.Since(start)/keySetUnknown) + int64(time.Since(start)/keySetRefresh)
		if n := s.fetches.Load(); n > allowed {
			t.Errorf("set %s was fetched %d times, %d are allowed", name, n, allowed)
		}
	}
}
