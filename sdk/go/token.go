package parley

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"golang.org/x/sync/singleflight"
)

// tokens holds the client's token and replaces it after a refusal.
type tokens struct {
	source TokenSource
	fixed  string
	limit  time.Duration

	flight singleflight.Group
	mu     sync.Mutex // guards current
	// current is the token in use. If it is empty, the next caller must get a new one.
	current string
}

// refreshable reports whether a refused token can be replaced.
func (t *tokens) refreshable() bool { return t.source != nil }

// get returns the current token. Concurrent callers share one call of the source. That call
// outlives the caller that started it.
func (t *tokens) get(ctx context.Context) (string, error) {
	if t.source == nil {
		return t.fixed, nil
	}
	t.mu.Lock()
	current := t.current
	t.mu.Unlock()
	if current != "" {
		return current, nil
	}
	ctx, cancel := context.WithTimeout(ctx, t.limit)
	defer cancel()
	answer := t.flight.DoChan("token", func() (any, error) { return t.fetch(context.WithoutCancel(ctx)) })
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
	token, err := t.source(ctx)
	if err == nil && token == "" {
		err = errors.New("the token source returned an empty token")
	}
	if err != nil {
		return "", tokenError(fmt.Errorf("get token: %w", err))
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.current = token
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
