package authn

import (
	"crypto/sha256"
	"strconv"
	"testing"
	"time"

	"github.com/golang-jwt/jwt/v5"

	"github.com/parleyhq/parley/server/internal/fault"
	"github.com/parleyhq/parley/server/internal/ident"
)

// A token is verified once and then trusted for ten seconds, but not beyond its expiry and the
// leeway, and not if the clock goes back.
func TestTokenCache(t *testing.T) {
	t.Parallel()
	began := time.Now().Truncate(time.Second)
	now := began
	v := verifier(t, Config{Secrets: []Secret{{Value: secret}}, Now: func() time.Time { return now }})
	token := sign(t, jwt.SigningMethodHS256, secret, with("exp", began.Add(15*time.Second).Unix()), nil)
	first, err := v.Verify(t.Context(), token)
	if err != nil {
		t.Fatal(err)
	}
	for _, step := range []struct {
		at    time.Duration
		again bool
	}{
		{9 * time.Second, false}, {-time.Second, true}, {10 * time.Second, true},
	} {
		now = began.Add(step.at)
		p, err := v.Verify(t.Context(), token)
		if err != nil {
			t.Fatalf("after %v: %v", step.at, err)
		}
		if (p != first) != step.again {
			t.Errorf("after %v: proved again is %v, want %v", step.at, p != first, step.again)
		}
		first = p
	}
	// The token is used just before its expiry and the leeway have passed, and again just after.
	now = began.Add(15*time.Second + leeway - time.Millisecond)
	if _, err := v.Verify(t.Context(), token); err != nil {
		t.Errorf("before the end: %v", err)
	}
	now = began.Add(15*time.Second + leeway + time.Millisecond)
	if _, err := v.Verify(t.Context(), token); !fault.Is(err, fault.TokenExpired) {
		t.Errorf("after the end: %v", err)
	}
}

// A token becomes invalid at most ten seconds after the verifier has lost its key.
func TestTokenCacheAfterKeyRemoval(t *testing.T) {
	t.Parallel()
	now := time.Now()
	v := verifier(t, Config{Secrets: []Secret{{Value: secret}}, Now: func() time.Time { return now }})
	token := sign(t, jwt.SigningMethodHS256, secret, claimsThatHold(), nil)
	if _, err := v.Verify(t.Context(), token); err != nil {
		t.Fatal(err)
	}
	v.secrets[0].Value = []byte("another secret that has 32 bytes")
	now = now.Add(verifiedTTL)
	if _, err := v.Verify(t.Context(), token); !fault.Is(err, fault.TokenInvalid) {
		t.Errorf("after %v: %v", verifiedTTL, err)
	}
}

// Refused tokens are never cached, and the size of the cache is bounded.
func TestTokenCacheIsBounded(t *testing.T) {
	t.Parallel()
	v := verifier(t, Config{Secrets: []Secret{{Value: secret}}})
	if _, err := v.Verify(t.Context(), "a.b.c"); err == nil {
		t.Fatal("no token is taken for one")
	}
	if n := len(v.cache.tokens); n != 0 {
		t.Errorf("remembers %d tokens that do not hold", n)
	}
	var c tokenCache
	for i := range maxCachedTokens + 10 {
		c.put(sha256.Sum256([]byte(strconv.Itoa(i))), &ident.Principal{}, time.Now())
	}
	if n := len(c.tokens); n == 0 || n > maxCachedTokens {
		t.Errorf("remembers %d tokens", n)
	}
}

// BenchmarkVerify measures Verify for a cached token and for one that must be verified.
func BenchmarkVerify(b *testing.B) {
	claims := with("exp", time.Now().AddDate(1000, 0, 0).Unix())
	token, err := jwt.NewWithClaims(jwt.SigningMethodHS256, claims).SignedString(secret)
	if err != nil {
		b.Fatal(err)
	}
	for name, step := range map[string]time.Duration{"known": 0, "new": verifiedTTL} {
		b.Run(name, func(b *testing.B) {
			now := time.Now()
			v, err := New(Config{Secrets: []Secret{{Value: secret}}, Now: func() time.Time { return now }})
			if err != nil {
				b.Fatal(err)
			}
			b.ReportAllocs()
			for b.Loop() {
				if _, err := v.Verify(b.Context(), token); err != nil {
					b.Fatal(err)
				}
				now = now.Add(step)
			}
		})
	}
}
