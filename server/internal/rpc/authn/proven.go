package authn

import (
	"crypto/sha256"
	"sync"
	"time"

	"github.com/parleyhq/parley/server/internal/ident"
)

const (
	// believed is how long a verified token is not verified again. It is far below the minutes that
	// a key set takes to change.
	believed = 10 * time.Second
	// maxProven bounds the cached tokens. One more empties the cache, and tokens are verified
	// again.
	maxProven = 16_384
)

// proven caches verified tokens, since a caller sends the same one with every call, and verifying
// it costs as much as all other middleware. It holds digests, not tokens: they have one size, and
// the time of a lookup reveals nothing about a token. The zero value is ready to use. It is safe
// for concurrent use.
type proven struct {
	mu     sync.Mutex // guards tokens
	tokens map[[sha256.Size]byte]proof
}

// proof is a token's principal, and when the token was verified.
type proof struct {
	principal *ident.Principal
	at        time.Time
}

// get returns a token's principal; nil if the token must be verified. That is also the case if the
// clock went back.
func (c *proven) get(digest [sha256.Size]byte, now time.Time) *ident.Principal {
	c.mu.Lock()
	defer c.mu.Unlock()
	p, ok := c.tokens[digest]
	if !ok || now.Before(p.at) || now.Sub(p.at) >= believed || !now.Before(p.principal.Expires.Add(leeway)) {
		return nil
	}
	return p.principal
}

// put caches a token that was verified at a time.
func (c *proven) put(digest [sha256.Size]byte, principal *ident.Principal, at time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.tokens == nil || len(c.tokens) >= maxProven {
		c.tokens = make(map[[sha256.Size]byte]proof)
	}
	c.tokens[digest] = proof{principal, at}
}
