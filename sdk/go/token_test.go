package parley

import (
	"context"
	"fmt"
	"testing"
	"time"
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
