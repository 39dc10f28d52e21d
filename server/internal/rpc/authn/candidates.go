package authn

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/golang-jwt/jwt/v5"
)

var (
	// errNoKeys reports that a key set that may have the token's key has no keys yet.
	errNoKeys = errors.New("a key set was not fetched yet, or is empty")
	// errOtherIssuer reports that no source of keys accepts the token's `iss` and `aud`.
	errOtherIssuer = errors.New("no source of keys accepts the token's iss and aud")
	// errUnknownKey reports that no source has the key that the token's `kid` names.
	errUnknownKey = errors.New("unknown key")
)

// claimRule says which tokens the keys of a source verify. Empty fields accept any.
type claimRule struct{ issuer, audience string }

func (r claimRule) accept(c *claims) bool {
	return (r.issuer == "" || c.Issuer == r.issuer) && (r.audience == "" || slices.Contains(c.Audience, r.audience))
}

// candidates are the keys that may have signed one token. A source of keys that does not accept the
// token's `iss` and `aud` adds none. These claims are not verified yet when they are read, but they
// are part of what the chosen keys then verify.
type candidates struct {
	keys []jwt.VerificationKey
	// accepted is set if any source with keys for the algorithm accepts the claims.
	accepted bool
	// unknown are the key sets that have no key of the token's kid, or none at all.
	unknown []lacking
	// empty is set if one of the sets has no keys at all.
	empty bool
}

// lacking is a key set that lacks a token's key, and the keys that it had when that was seen.
type lacking struct {
	set  *keySet
	seen *[]servedKey
}

// candidates returns the keys for a token, all of which are of the kind of its algorithm. So no
// public key is ever used as the secret of HS256.
func (v *Verifier) candidates(t *jwt.Token, c *claims) (found candidates) {
	alg, kid := t.Method.Alg(), keyID(t)
	if alg == jwt.SigningMethodHS256.Alg() {
		found.addSecrets(v, kid, c)
		return found
	}
	if static := v.publicKeys[alg]; len(static) > 0 && v.accepts.accept(c) {
		found.accepted = true
		found.keys = slices.Clone(static)
	}
	for _, set := range v.sets {
		if !set.accepts.accept(c) {
			continue
		}
		found.accepted = true
		var served []servedKey
		seen := set.keys.Load()
		if seen != nil {
			served = *seen
		}
		keys, known := findKeys(served, kid, alg)
		found.keys = append(found.keys, keys...)
		if !known {
			found.unknown = append(found.unknown, lacking{set, seen})
		}
		found.empty = found.empty || len(served) == 0
	}
	return found
}

// addSecrets adds the secret that kid names and those without an id. An empty kid names all.
func (f *candidates) addSecrets(v *Verifier, kid string, c *claims) {
	if f.accepted = v.accepts.accept(c); !f.accepted {
		return
	}
	for _, s := range v.secrets {
		if kid == "" || s.ID == "" || s.ID == kid {
			f.keys = append(f.keys, s.Value)
		}
	}
}

// keyID returns the token's kid, which checkHeader has checked, or "".
func keyID(t *jwt.Token) string {
	kid, _ := t.Header["kid"].(string)
	return kid
}

// parse parses a token and verifies its signature and times with the keys that the server has now.
func (v *Verifier) parse(token string) (c claims, found candidates, err error) {
	_, err = v.parser.ParseWithClaims(token, &c, func(t *jwt.Token) (any, error) {
		if err := checkHeader(t.Header); err != nil {
			return nil, err
		}
		found = v.candidates(t, &c)
		switch {
		case !found.accepted:
			return nil, errOtherIssuer
		case len(found.keys) == 0:
			return nil, fmt.Errorf("%w: no key for %s has the kid %q", errUnknownKey, t.Method.Alg(), keyID(t))
		}
		return jwt.VerificationKeySet{Keys: found.keys}, nil
	})
	return c, found, err
}

// unproven reports whether err means that no key of the server verifies the token, so that a key
// that the server does not have might.
func unproven(err error) bool {
	return errors.Is(err, errUnknownKey) || errors.Is(err, jwt.ErrTokenSignatureInvalid)
}

// parseFresh is parse, and parses again after the key sets that lack the token's key were fetched.
// No fetch is made for a token that a key of the server verifies. It returns errNoKeys if a set
// that may have the key has none.
func (v *Verifier) parseFresh(ctx context.Context, token string) (claims, error) {
	c, found, err := v.parse(token)
	if unproven(err) && refetch(ctx, found.unknown) {
		c, found, err = v.parse(token)
	}
	if unproven(err) && found.empty {
		err = errors.Join(errNoKeys, err)
	}
	return c, err
}

// refetch fetches sets at the same time, within their limits, and reports whether any was fetched.
// It waits for up to keySetTimeout.
func refetch(ctx context.Context, sets []lacking) bool {
	if len(sets) == 0 {
		return false
	}
	ctx, cancel := context.WithTimeout(ctx, keySetTimeout)
	defer cancel()
	var fetched atomic.Bool
	var wg sync.WaitGroup
	for _, l := range sets {
		wg.Go(func() {
			if l.set.refetch(ctx, l.seen) {
				fetched.Store(true)
			}
		})
	}
	wg.Wait()
	return fetched.Load()
}
