package authn

import (
	"crypto/sha256"
	"sync"
	"time"

	"github.com/parleyhq/parley/server/internal/ident"
)

const (
	// verifiedTTL is how long a verified token is trusted without another verification. It is far
	// below the minutes that a key set takes to change.
	verifiedTTL = 10 * time.Second
	// maxCachedTokens bounds the cached tokens. When the cache is full, the next token empties it, and
	// all others are verified again.
	maxCachedTokens = 16_384
)

// tokenCache caches verified tokens, since a caller sends the same one with every call, and
// verifying it costs as much as all other middleware. It holds digests, not tokens: they have one
// size, and the time of a lookup reveals nothing about a token. The zero value is ready to use. It
// is safe for concurrent use.
type tokenCache struct {
	mu     sync.Mutex // guards tokens
	tokens map[[sha256.Size]byte]cachedToken
}

// cachedToken is a token's principal, and when the token was verified.
type cachedToken struct {
	principal *ident.Principal
	at        time.Time
}

// get returns the principal of a token with this digest. It returns nil if the token must be
// verified, also if the clock went back.
func (c *tokenCache) get(digest [sha256.Size]byte, now time.Time) *ident.Principal {
	c.mu.Lock()
	defer c.mu.Unlock()
	p, ok := c.tokens[digest]
	if !ok || now.Before(p.at) || now.Sub(p.at) >= verifiedTTL || !now.Before(p.principal.Expires.Add(leeway)) {
		return nil
	}
	return p.principal
}

// put caches the principal of a token that was verified at the given time.
func (c *tokenCache) put(digest [sha256.Size]byte, principal *ident.Principal, at time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.tokens == nil || len(c.tokens) >= maxCachedTokens {
		c.tokens = make(map[[sha256.Size]byte]cachedToken)
	}
	c.tokens[digest] = cachedToken{principal, at}
}
