// Package user lets one client of a fleet make calls in the name of many users.
package user

import (
	"context"
	"sync"

	"connectrpc.com/connect"

	"github.com/parleyhq/parley/internal/rig"
)

// Tokens is an interceptor that makes each call with the token of the user of its context. Streams
// keep the client's token. It is safe for concurrent use.
type Tokens struct {
	fleet        *rig.Fleet
	token        string // of calls without a user
	capabilities map[string][]string

	mu     sync.Mutex        // guards tokens
	tokens map[string]string // by user
}

var _ connect.Interceptor = (*Tokens)(nil)

// NewTokens returns an interceptor. Calls without a user have the given token, and the tokens of
// users have the capabilities; see rig.Token.
func NewTokens(fleet *rig.Fleet, token string, capabilities map[string][]string) *Tokens {
	return &Tokens{fleet: fleet, token: token, capabilities: capabilities, tokens: make(map[string]string)}
}

// key is the context key of the user whose token a call has.
type key struct{}

// As returns a context whose calls have the token of a user.
func As(ctx context.Context, user string) context.Context {
	return context.WithValue(ctx, key{}, user)
}

// WrapUnary implements connect.Interceptor.
func (t *Tokens) WrapUnary(next connect.UnaryFunc) connect.UnaryFunc {
	return func(ctx context.Context, req connect.AnyRequest) (connect.AnyResponse, error) {
		token := t.token
		if user, ok := ctx.Value(key{}).(string); ok {
			var err error
			if token, err = t.of(user); err != nil {
				return nil, err
			}
		}
		req.Header().Set("Authorization", "Bearer "+token)
		return next(ctx, req)
	}
}

// WrapStreamingClient implements connect.Interceptor.
func (*Tokens) WrapStreamingClient(next connect.StreamingClientFunc) connect.StreamingClientFunc {
	return next
}

// WrapStreamingHandler implements connect.Interceptor.
func (*Tokens) WrapStreamingHandler(next connect.StreamingHandlerFunc) connect.StreamingHandlerFunc {
	return next
}

func (t *Tokens) of(user string) (string, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if token, ok := t.tokens[user]; ok {
		return token, nil
	}
	token, err := t.fleet.Token(user, t.capabilities)
	if err == nil {
		t.tokens[user] = token
	}
	return token, err
}
