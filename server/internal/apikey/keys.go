package apikey

import (
	"cmp"
	"context"
	"crypto/subtle"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"

	"golang.org/x/sync/singleflight"

	"github.com/parleyhq/parley/server/internal/fault"
	"github.com/parleyhq/parley/server/internal/ident"
	"github.com/parleyhq/parley/server/internal/lifecycle"
)

const (
	// MaxKeys bounds the keys of a store, and the keys that a node remembers.
	MaxKeys = 10_000
	// DefaultOverlap is how long the secrets of before a rotation stay valid, unless the caller says.
	DefaultOverlap = 24 * time.Hour
	// defaultLife is how long a key is valid, unless the caller says.
	defaultLife = 365 * 24 * time.Hour
	// maxSecrets bounds the secrets of a key that are valid at the same time. keptSecrets are kept, so
	// that the holder of one that has ended is told so.
	maxSecrets, keptSecrets = 5, 10
	// maxGrantBytes bounds the names and the actions of a key's capabilities.
	maxGrantBytes = 4096
	// keepExpired is how long a key is listed after it has expired.
	keepExpired = 30 * 24 * time.Hour
	// freshFor is how long a node uses what it has read of a key. So long may a secret be accepted
	// after it was replaced.
	freshFor = 5 * time.Second
	// staleFor is the same while the store does not answer: a call with a key that is known waits for
	// staleWait, and the next ones for freshFor do not ask.
	staleFor, staleWait = time.Hour, 250 * time.Millisecond
	// longestLife is that of the schema, 1830 days.
	longestLife = 1830 * 24 * time.Hour
	// getWait bounds the look-up of a key. A rotation repeats changes that meet others.
	getWait, rotations = 2 * time.Second, 5
	// useEvery is how often the times of the last uses are stored. A key's time is stored if it is
	// usedEvery later than the stored one.
	useEvery, usedEvery, useWait = 15 * time.Second, time.Minute, 5 * time.Second
)

// Config configures Keys. Store and Secret are required.
type Config struct {
	Store Store
	// Secret is a secret of the store, which all nodes share.
	Secret []byte
	// Now returns the current time; nil means time.Now.
	Now    func() time.Time
	Logger *slog.Logger
}

// Keys verifies and manages API keys. Safe for concurrent use.
type Keys struct {
	cfg  Config
	ids  ids
	life lifecycle.Base
	gets singleflight.Group

	mu    sync.Mutex
	known map[string]*entry
}

// entry is what a node remembers of a key. Its principal is nil if there is no such key.
type entry struct {
	principal *ident.Principal
	secrets   []Secret
	// at is when the key was read.
	at time.Time
	// used is when the key was last used here, and stored the last use that the store has.
	used, stored time.Time
	// missed is when the store last did not answer in time.
	missed time.Time
}

// New returns Keys. Without Start the times of last uses are not stored.
func New(cfg Config) *Keys {
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	cfg.Logger = cmp.Or(cfg.Logger, slog.Default())
	return &Keys{cfg: cfg, ids: ids{cfg.Secret}, known: make(map[string]*entry)}
}

// Start begins to store when keys were last used. See lifecycle.Service.
func (k *Keys) Start(ctx context.Context) error {
	return k.life.Start(ctx, func(_ context.Context, run *lifecycle.Run) error {
		run.Go(func(ctx context.Context) {
			for lifecycle.Pause(ctx, useEvery) == nil {
				k.storeUses(ctx)
			}
		})
		run.OnStop(func(ctx context.Context) error {
			k.storeUses(ctx) // a failure loses a time of a minute
			return nil
		})
		return nil
	})
}

// Stop stores the last uses once more. The other methods continue to work.
func (k *Keys) Stop(ctx context.Context) error { return k.life.Stop(ctx) }

// Verify returns the principal of an API key's holder, which must not be modified. It does not
// check whether the key was revoked. Its errors are faults: TOKEN_INVALID, TOKEN_EXPIRED for a key
// or a secret that has ended, and STORE_UNAVAILABLE if the key is not known here and the store does
// not answer.
func (k *Keys) Verify(ctx context.Context, text string) (*ident.Principal, error) {
	id, digest, ok := parse(text)
	if !ok || !k.ids.issued(id) {
		return nil, invalid()
	}
	e, err := k.get(ctx, id)
	if err != nil {
		return nil, fault.Wrap(err, fault.Unavailable, fault.StoreUnavailable, "the API key could not be looked up: retry later")
	}
	if e.principal == nil {
		return nil, invalid()
	}
	now := k.cfg.Now()
	for i := range e.secrets {
		s := &e.secrets[i]
		if subtle.ConstantTimeCompare(s.Digest[:], digest[:]) == 0 {
			continue
		}
		if !now.Before(e.principal.Expires) {
			return nil, fault.New(fault.Unauthenticated, fault.TokenExpired, "the API key has expired")
		}
		if !s.Until.IsZero() && !now.Before(s.Until) {
			return nil, fault.New(fault.Unauthenticated, fault.TokenExpired, "this secret of the API key was replaced by a newer one")
		}
		k.use(id, now)
		return e.principal, nil
	}
	return nil, invalid()
}

func invalid() error {
	return fault.New(fault.Unauthenticated, fault.TokenInvalid, "the API key is not valid")
}

// get returns what is known of a key, and reads it if that is not fresh.
func (k *Keys) get(ctx context.Context, id string) (*entry, error) {
	now := k.cfg.Now()
	var late <-chan time.Time // nil if nothing that is known may be used
	k.mu.Lock()
	e := k.known[id]
	if e != nil {
		stale := now.Sub(e.at) < staleFor
		if now.Sub(e.at).Abs() < freshFor || stale && now.Sub(e.missed).Abs() < freshFor {
			k.mu.Unlock()
			return e, nil
		}
		if stale {
			late = time.After(staleWait)
		}
	}
	k.mu.Unlock()
	answer := k.gets.DoChan(id, func() (any, error) {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), getWait)
		defer cancel()
		return k.read(ctx, id)
	})
	var err error
	select {
	case <-ctx.Done():
		err = ctx.Err()
	case a := <-answer:
		if a.Err == nil {
			return a.Val.(*entry), nil //nolint:forcetypeassert // what read returns
		}
		err = a.Err
	case <-late:
	}
	if late == nil {
		return nil, err
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	e.missed = k.cfg.Now()
	return e, nil
}

// read reads a key from the store, and remembers it.
func (k *Keys) read(ctx context.Context, id string) (*entry, error) {
	e := &entry{at: k.cfg.Now()}
	key, err := k.cfg.Store.Get(ctx, id)
	switch {
	case err == nil:
		if e.principal, err = key.Principal(); err != nil {
			return nil, err
		}
		e.secrets, e.stored = key.Secrets, key.LastUsed
	case !errors.Is(err, ErrNotFound):
		return nil, err
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	if was := k.known[id]; was != nil {
		e.used = was.used
	} else if len(k.known) >= MaxKeys {
		clear(k.known)
	}
	k.known[id] = e
	return e, nil
}

// use records that a key was used.
func (k *Keys) use(id string, now time.Time) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if e := k.known[id]; e != nil {
		e.used = now
	}
}

// storeUses stores when keys were last used, if that is not stored or was long before.
func (k *Keys) storeUses(ctx context.Context) {
	at := make(map[string]time.Time)
	k.mu.Lock()
	for id, e := range k.known {
		if e.used.Sub(e.stored) >= usedEvery {
			at[id] = e.used.UTC().Truncate(time.Millisecond)
		}
	}
	k.mu.Unlock()
	if len(at) == 0 {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, useWait)
	defer cancel()
	if err := k.cfg.Store.Used(ctx, at); err != nil {
		k.cfg.Logger.DebugContext(ctx, "storing the last uses of API keys failed", "error", err)
		return
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	for id, used := range at {
		if e := k.known[id]; e != nil {
			e.stored = used
		}
	}
}

// Draft is a key to be created.
type Draft struct {
	Name, Subject string
	Grants        map[string][]ident.Action
	// Life is how long the key is valid; 0 means a year.
	Life      time.Duration
	CreatedBy string
}

// Create stores a new key and returns it, with the text of the API key, which is shown this once. A
// repeat after a failure creates another key. The caller has checked the fields except for the
// capabilities as a whole.
func (k *Keys) Create(ctx context.Context, d Draft) (Key, string, error) {
	if err := checkGrants(d.Grants); err != nil {
		return Key{}, "", err
	}
	now := k.cfg.Now().UTC().Truncate(time.Millisecond)
	text, digest := freshSecret()
	key := Key{
		ID: k.ids.fresh(), Name: d.Name, Subject: d.Subject, Grants: d.Grants, Created: now,
		Expires: now.Add(cmp.Or(d.Life, defaultLife)), CreatedBy: d.CreatedBy, Secrets: []Secret{{Digest: digest}},
	}
	switch err := k.cfg.Store.Create(ctx, key, now.Add(-keepExpired), MaxKeys); {
	case errors.Is(err, ErrFull):
		e := fault.Wrap(err, fault.ResourceExhausted, fault.LimitExceeded, "there are %d API keys: revoked ones count until they expire", MaxKeys)
		e.Limit = MaxKeys
		return Key{}, "", e
	case err != nil:
		return Key{}, "", fault.Wrap(err, fault.Unavailable, fault.OutcomeUnknown, "the store did not confirm the API key: repeat the call for another one")
	}
	return key, format(key.ID, text), nil
}

// checkGrants returns a fault for capabilities that are too large, or allow nothing because they
// have a wrong name or action.
func checkGrants(grants map[string][]ident.Action) error {
	size := 0
	for name, actions := range grants {
		size += len(name)
		for _, a := range actions {
			size += len(a)
		}
	}
	if size > maxGrantBytes {
		e := fault.New(fault.InvalidArgument, fault.InvalidField, "capabilities: must have at most %d bytes, and have %d", maxGrantBytes, size)
		e.Field, e.Limit = "capabilities", maxGrantBytes
		return e
	}
	p, err := (&Key{Grants: grants}).Principal()
	if err = cmp.Or(err, p.CheckActions()); err != nil {
		e := fault.Wrap(err, fault.InvalidArgument, fault.InvalidField, "capabilities: %v", err)
		e.Field = "capabilities"
		return e
	}
	return nil
}

// Rotate adds a new secret to a key, and returns the key and the text of the API key with it, which
// is shown this once. The secrets of before stay valid for overlap, or for less if they would have
// ended earlier. A repeat after a failure adds another secret, and ends none sooner.
func (k *Keys) Rotate(ctx context.Context, id string, overlap time.Duration) (Key, string, error) {
	text, digest := freshSecret()
	for range rotations {
		key, err := k.stored(ctx, id)
		if err != nil {
			return Key{}, "", err
		}
		now := k.cfg.Now().UTC().Truncate(time.Millisecond)
		secrets, err := rotated(key.Secrets, digest, now, now.Add(overlap))
		if err != nil {
			return Key{}, "", err
		}
		err = k.cfg.Store.SetSecrets(ctx, id, key.Rev, secrets)
		if errors.Is(err, ErrChanged) {
			continue
		}
		if err != nil {
			return Key{}, "", fault.Wrap(err, fault.Unavailable, fault.OutcomeUnknown, "the store did not confirm the new secret: repeat the call for another one")
		}
		k.forget(id)
		key.Secrets, key.Rev = secrets, key.Rev+1
		return key, format(id, text), nil
	}
	return Key{}, "", fault.New(fault.Unavailable, fault.StoreUnavailable, "other calls keep rotating the API key: retry later")
}

// rotated returns the secrets of a key that gets a new one now, newest first. Those of before end
// at end, or earlier. Older ones never end later, so the last are those that have ended.
func rotated(secrets []Secret, digest [32]byte, now, end time.Time) ([]Secret, error) {
	all := []Secret{{Digest: digest}}
	valid := 1
	for _, s := range secrets {
		if s.Digest == digest { // stored by an attempt whose answer was lost
			continue
		}
		if s.Until.IsZero() || end.Before(s.Until) {
			s.Until = end
		}
		if now.Before(s.Until) {
			valid++
		}
		all = append(all, s)
	}
	if valid > maxSecrets {
		e := fault.New(fault.ResourceExhausted, fault.LimitExceeded,
			"the API key has %d valid secrets: wait until an older one ends, or rotate with a shorter overlap", maxSecrets)
		e.Limit = maxSecrets
		return nil, e
	}
	return all[:min(len(all), keptSecrets)], nil
}

// forget makes this node read a key again.
func (k *Keys) forget(id string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	delete(k.known, id)
}

// Holder returns what the revocation of a key needs of its principal: the key of the revocation and
// the expiry. If the store does not answer, so that the expiry is not known, it is that of a key of
// the longest life: a revocation must not wait. It fails with the fault API_KEY_NOT_FOUND if there
// is no such key.
func (k *Keys) Holder(ctx context.Context, id string) (*ident.Principal, error) {
	ctx, cancel := context.WithTimeout(ctx, getWait)
	defer cancel()
	key, err := k.stored(ctx, id)
	switch {
	case fault.Is(err, fault.APIKeyNotFound):
		return nil, err
	case err != nil:
		key.Expires = k.cfg.Now().Add(longestLife)
	}
	return &ident.Principal{Key: ident.APIKeyKey(id), Expires: key.Expires}, nil
}

// stored returns a key as the store has it.
func (k *Keys) stored(ctx context.Context, id string) (Key, error) {
	if !k.ids.issued(id) {
		return Key{}, notFound()
	}
	key, err := k.cfg.Store.Get(ctx, id)
	if errors.Is(err, ErrNotFound) {
		return Key{}, notFound()
	}
	return key, unavailable(err)
}

func notFound() error {
	e := fault.New(fault.NotFound, fault.APIKeyNotFound, "key_id: there is no API key with this id")
	e.Field = "key_id"
	return e
}

func unavailable(err error) error {
	if err == nil {
		return nil
	}
	return fault.Wrap(err, fault.Unavailable, fault.StoreUnavailable, "the store did not answer: retry later")
}

// List returns up to n keys whose ids are greater than after, ordered by id. more reports whether
// there are others.
func (k *Keys) List(ctx context.Context, after string, n int) (keys []Key, more bool, err error) {
	keys, err = k.cfg.Store.List(ctx, after, n+1)
	if err != nil {
		return nil, false, unavailable(fmt.Errorf("list API keys: %w", err))
	}
	if len(keys) > n {
		return slices.Clip(keys[:n]), true, nil
	}
	return keys, false, nil
}
