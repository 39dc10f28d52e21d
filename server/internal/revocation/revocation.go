// Package revocation ends tokens before they expire.
//
// The store of record keeps the revocations. Every node holds all of them in memory (List), so that
// a check costs two look-ups and no I/O. A revocation is announced to all nodes, and each node asks
// the store for new ones twice a second, always, so that a lost announcement does no harm. A node
// whose questions the store has not answered for a second asks Redis (Second), which has a copy of
// the revocations, and a marker that the copy is complete: a flush of Redis takes the marker along.
// The node that owns the place of the keeper keeps both. If neither can tell, Config.FailOpen
// decides.
//
//	revoke: own memory and streams -> Redis -> announcement -> store -> answer
//	check:  memory -> an answer of the store within a second? -> Redis -> FailOpen
package revocation

import (
	"context"
	"strings"
	"time"
)

// Entry is a revocation.
type Entry struct {
	// Key is what is revoked: an ident.TokenKey, or a UserKey.
	Key string
	// Until is when the last token that it revokes has expired. In whole milliseconds, like the other
	// times.
	Until time.Time
	// Before is only set with a UserKey: it revokes the user's tokens that were issued up to then, and
	// those that do not say when.
	Before time.Time
	// At is when it was revoked, By is the subject who did so, and Reason is why; it may be empty.
	At         time.Time
	By, Reason string
}

// userPrefix begins a UserKey.
const userPrefix = "u:"

// UserKey returns the key of all tokens of a user.
func UserKey(userID string) string { return userPrefix + userID }

// Stamp is a place in the order of a store's changes. The zero value is before all of them.
type Stamp struct{ Hi, Lo uint32 }

// Store is the store of record. Its methods may be called concurrently.
type Store interface {
	// Revoke stores an entry durably. Of two entries with one key the later Until and the later Before
	// count, and the At, By and Reason of the last call. It may be repeated.
	Revoke(ctx context.Context, e Entry) error
	// Changes returns the entries that were stored after a stamp, and the stamp for the next call. It
	// may return entries again. A call returns the entry of an acknowledged Revoke if it begins after
	// the acknowledgement, and its stamp is from before Revoke was called. From the zero stamp it
	// returns no entries, only the current stamp. Stamps of the embedded store are valid only within
	// its process.
	Changes(ctx context.Context, after Stamp) ([]Entry, Stamp, error)
	// List returns up to limit entries whose keys are greater than after, in byte order of the keys.
	// It may return entries whose Until has passed, and omits none before that. It is linearizable.
	List(ctx context.Context, after string, limit int) ([]Entry, error)
}

// Second is the copy of the revocations in Redis. Its methods may be called concurrently.
type Second interface {
	// Put copies entries.
	Put(ctx context.Context, entries []Entry) error
	// Complete declares that the copy has all revocations, for that time from now.
	Complete(ctx context.Context, life time.Duration) error
	// Whole reports whether such a declaration is in force.
	Whole(ctx context.Context) (bool, error)
	// Find returns the copies of the entries with these keys, by key, and whether a declaration is in
	// force.
	Find(ctx context.Context, keys ...string) (found map[string]Entry, whole bool, err error)
}

// userOf returns the user whom a UserKey names. ok is false for any other key.
func userOf(key string) (userID string, ok bool) { return strings.CutPrefix(key, userPrefix) }
