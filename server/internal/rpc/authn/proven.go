package authn

import (
	"crypto/sha256"
	"sync"
	"time"

	"github.com/parleyhq/parley/server/internal/ident"
)

const (
	// believed is how long a token is not looked at again. It is far below the minutes that a key set takes to change.
	believed = 10 * time.Second
	// maxProven is how many tokens are remembered; with one more all are forgotten, and proved again when they come.
	maxProven = 16_384
)

// proven remembers tokens that were proved, since a caller sends the same one with every call, and to prove it costs as
// much as all else that middleware does. It holds digests, not tokens: they are of one size, and how long a look takes says
// nothing of what is in it. The zero value is ready. It is safe for concurrent use.
type proven struct {
	mu     sync.Mutex // guards tokens
	tokens map[[sha256.Size]byte]proof
}

// proof is whom a token speaks for, and when that was looked at.
type proof struct {
	principal *ident.Principal
	at        time.Time
}

// get gives whom a token speaks for, or nil if it must be proved. A clock that went back proves nothing.
func (c *proven) get(digest [sha256.Size]byte, now time.Time) *ident.Principal {
	c.mu.Lock()
	defer c.mu.Unlock()
	p, ok := c.tokens[digest]
	if !ok || now.Before(p.at) || now.Sub(p.at) >= believed || !now.Before(p.principal.Expires.Add(leeway)) {
		return nil
	}
	return p.principal
}

// put remembers a token that was proved at a time.
func (c *proven) put(digest [sha256.Size]byte, principal *ident.Principal, at time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.tokens == nil || len(c.tokens) >= maxProven {
		c.tokens = make(map[[sha256.Size]byte]proof)
	}
	c.tokens[digest] = proof{principal, at}
}
