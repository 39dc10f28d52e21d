// Package apikey verifies and manages API keys: long-lived credentials of servers, beside the
// tokens of users.
//
// An API key is a text with the id of the key and a secret:
//
//	parley_<id: 24 of a-z 2-7>_<secret: 43 of A-Z a-z 0-9 _ ->
//
// The store of record has a Key for each id, with the SHA-256 digests of its secrets: they have 256
// random bits, so a slow hash would protect nothing more. The last 72 bits of an id are an HMAC of
// the first 48 with the store's secret, so that a node asks the store only about ids that were
// issued. A node remembers a key for freshFor, and uses it for up to staleFor while the store does
// not answer. Whether a key is revoked is not a part of it: package revocation knows that, as it
// does of any token.
package apikey

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/parleyhq/parley/server/internal/ident"
)

// Key is what the store has of an API key. It is immutable.
type Key struct {
	ID string
	// Name says what the key is for.
	Name string
	// Subject is the user id in whose name the holder calls.
	Subject string
	// Grants are its capabilities: their names, as in the claim `cap` of a token, and the actions.
	Grants map[string][]ident.Action
	// Created and Expires are in whole milliseconds, like the other times. CreatedBy is a user id.
	Created, Expires time.Time
	CreatedBy        string
	// Secrets are the valid ones, and may include some that have ended. The newest is the first.
	Secrets []Secret
	// LastUsed is when the key was last used, up to a few minutes ago; zero if it never was.
	LastUsed time.Time
	// Rev is increased by each Store.SetSecrets.
	Rev int64
}

// Secret is a secret of a key, which the server does not know.
type Secret struct {
	Digest [32]byte
	// Until is when the secret ends; zero if it ends with its key.
	Until time.Time
}

var (
	// ErrNotFound is the error of Store for an id that it does not have.
	ErrNotFound = errors.New("there is no API key with this id")
	// ErrChanged is the error of Store.SetSecrets after another change of the key.
	ErrChanged = errors.New("the API key was changed meanwhile")
	// ErrFull is the error of Store.Create if there are as many keys as there may be.
	ErrFull = errors.New("there are too many API keys")
)

// Store is the store of record of the keys. Its methods may be called concurrently. Reads are
// linearizable.
type Store interface {
	// Create stores a new key durably. It removes keys that expired before the time forget, and fails
	// with ErrFull if there are limit others.
	Create(ctx context.Context, k Key, forget time.Time, limit int) error
	// Get returns a key, or ErrNotFound.
	Get(ctx context.Context, id string) (Key, error)
	// SetSecrets replaces the secrets of a key whose Rev is the given one, and increases it. Otherwise
	// it fails with ErrNotFound or ErrChanged.
	SetSecrets(ctx context.Context, id string, rev int64, secrets []Secret) error
	// Used sets the LastUsed of keys, by their ids, if it is later than the stored one. It passes over
	// ids that it does not have, and need not be durable.
	Used(ctx context.Context, at map[string]time.Time) error
	// List returns up to limit keys whose ids are greater than after, in byte order of the ids. It may
	// return keys that expired.
	List(ctx context.Context, after string, limit int) ([]Key, error)
}

// Principal returns the caller that a key's holder is. It fails for a malformed Grants.
func (k *Key) Principal() (*ident.Principal, error) {
	p := &ident.Principal{Subject: k.Subject, Key: ident.APIKeyKey(k.ID), IssuedAt: k.Created, Expires: k.Expires}
	all := make(map[string]json.RawMessage, len(k.Grants))
	for name, actions := range k.Grants {
		text, err := json.Marshal(actions)
		if err != nil {
			return nil, fmt.Errorf("capability %q: %w", name, err)
		}
		all[name] = text
	}
	return p, p.SetCapabilities(all)
}
