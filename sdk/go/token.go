package parley

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"connectrpc.com/connect"
	"golang.org/x/sync/singleflight"

	parleyv1 "github.com/parleyhq/parley/gen/go/parley/v1"
)

// tokens holds the client's token and replaces it after a refusal.
type tokens struct {
	source TokenSource
	fixed  string
	limit  time.Duration

	flight singleflight.Group
	mu     sync.Mutex // guards the fields below
	// current is the token in use. If it is empty, the next caller must get a new one.
	current string
	// renewals counts the calls of renew. A token that was requested before the last one is not used.
	renewals int
}

// refreshable reports whether a refused token can be replaced.
func (t *tokens) refreshable() bool { return t.source != nil }

// get returns the current token. Concurrent callers share one call of the source. That call
// outlives the caller that started it.
func (t *tokens) get(ctx context.Context) (string, error) {
	if t.source == nil {
		return checkToken(t.fixed)
	}
	t.mu.Lock()
	current := t.current
	t.mu.Unlock()
	if current != "" {
		return current, nil
	}
	return t.request(ctx)
}

// renew gets a new token from the source and replaces the current one, which it returns too. It
// changes nothing if the source fails or ctx ends. Without a source it returns the fixed token
// twice.
func (t *tokens) renew(ctx context.Context) (before, now string, err error) {
	if t.source == nil {
		return t.fixed, t.fixed, nil
	}
	t.mu.Lock()
	before = t.current
	t.renewals++
	t.mu.Unlock()
	t.flight.Forget(flightKey) // its token may have been made before the reason to renew it
	now, err = t.request(ctx)
	return before, now, err
}

// flightKey is the key of the one call of the source in tokens.flight.
const flightKey = "token"

// request returns the token of a call of the source, which it shares with concurrent callers.
func (t *tokens) request(ctx context.Context) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, t.limit)
	defer cancel()
	answer := t.flight.DoChan(flightKey, func() (any, error) { return t.fetch(context.WithoutCancel(ctx)) })
	select {
	case <-ctx.Done():
		return "", ctx.Err()
	case r := <-answer:
		if r.Err != nil {
			return "", r.Err
		}
		return r.Val.(string), nil //nolint:forcetypeassert // fetch returns a string
	}
}

func (t *tokens) fetch(ctx context.Context) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, t.limit)
	defer cancel()
	t.mu.Lock()
	renewals := t.renewals
	t.mu.Unlock()
	token, err := t.source(ctx)
	if err == nil && token == "" {
		err = errors.New("the token source returned an empty token")
	}
	if err != nil {
		return "", tokenError(fmt.Errorf("get token: %w", err))
	}
	if token, err = checkToken(token); err != nil {
		return "", err
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if renewals == t.renewals {
		t.current = token
	}
	return token, nil
}

// invalidate removes the current token if it is the refused one. It reports whether a new token can
// be requested.
func (t *tokens) invalidate(token string) bool {
	if t.source == nil {
		return false
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.current == token {
		t.current = ""
	}
	return true
}

// checkToken returns the token, or a final error if no header can carry it: net/http would refuse
// the request as if the network had failed, and the client would retry it.
func checkToken(token string) (string, error) {
	if strings.IndexFunc(token, func(r rune) bool { return r < 0x20 || r > 0x7e }) < 0 {
		return token, nil
	}
	return "", &Error{
		Code:    connect.CodeUnauthenticated,
		Reason:  parleyv1.ErrorReason_ERROR_REASON_TOKEN_INVALID,
		Message: "the token is not printable ASCII text",
	}
}
