package parley

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"connectrpc.com/connect"
)

// TestLateRefusalKeepsTheNewToken refuses a token again after it was replaced. The new token must
// stay in use.
func TestLateRefusalKeepsTheNewToken(t *testing.T) {
	t.Parallel()
	minted := 0
	tokens := &tokens{limit: time.Second, source: func(context.Context) (string, error) {
		minted++
		return fmt.Sprintf("token-%d", minted), nil
	}}
	want := func(token string) {
		t.Helper()
		if got, err := tokens.get(t.Context()); err != nil || got != token {
			t.Fatalf("got %q, %v; want %q", got, err, token)
		}
	}
	want("token-1")
	tokens.invalidate("token-1")
	want("token-2")
	tokens.invalidate("token-1")
	want("token-2")
}

// TestTokenFetchOutlivesCaller cancels the first of two callers. The second one must get the token
// that the first one had requested.
func TestTokenFetchOutlivesCaller(t *testing.T) {
	t.Parallel()
	asked, release := make(chan struct{}), make(chan struct{})
	tokens := &tokens{limit: 10 * time.Second, source: func(ctx context.Context) (string, error) {
		close(asked) // a second call of the source panics here
		select {
		case <-release:
			return "token", nil
		case <-ctx.Done():
			return "", ctx.Err()
		}
	}}
	first, cancel := context.WithCancel(t.Context())
	gone := make(chan error, 1)
	go func() {
		_, err := tokens.get(first)
		gone <- err
	}()
	<-asked
	cancel()
	if err := <-gone; err == nil {
		t.Errorf("a cancelled caller got a token")
	}
	close(release)
	if got, err := tokens.get(t.Context()); err != nil || got != "token" {
		t.Errorf("got %q, %v", got, err)
	}
}

// TestTokenThatNoHeaderCanCarry sets tokens with characters that a header cannot carry. They must
// be a final error and must not be kept.
func TestTokenThatNoHeaderCanCarry(t *testing.T) {
	t.Parallel()
	for _, text := range []string{"token\n", "two\nlines", "tab\t", "\x7f", "\xff", "schlüssel", "\x00"} {
		calls := 0
		source := func(context.Context) (string, error) { calls++; return text, nil }
		for name, held := range map[string]*tokens{"fixed": {fixed: text}, "source": {limit: time.Second, source: source}} {
			got, err := held.get(t.Context())
			var e *Error
			if got != "" || !errors.As(err, &e) || !errors.Is(e, ErrTokenInvalid) || e.Code != connect.CodeUnauthenticated || e.Retryable {
				t.Errorf("%s token %q: got %q, %v; want a final TOKEN_INVALID", name, text, got, err)
			}
			if held.current != "" {
				t.Errorf("%s token %q is kept", name, text)
			}
		}
	}
	printable := " !~AZ"
	if got, err := (&tokens{fixed: printable}).get(t.Context()); err != nil || got != printable {
		t.Errorf("got %q, %v; want %q", got, err, printable)
	}
}
