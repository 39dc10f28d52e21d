package parley_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"testing"
	"time"

	parley "github.com/parleyhq/parley/sdk/go"
	"github.com/parleyhq/parley/sdk/go/parleytest"
)

// quick limits the waits between attempts to 50 ms, so that retries are fast enough for tests.
var quick = parley.WithBackoff(parley.Backoff{Base: 5 * time.Millisecond, Max: 50 * time.Millisecond})

// testContext returns a context that ends after 30 s or with the test.
func testContext(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	t.Cleanup(cancel)
	return ctx
}

func newClient(t *testing.T, addr string, opts ...parley.Option) *parley.Client {
	t.Helper()
	c, err := parley.New(addr, append([]parley.Option{quick, parley.WithToken("tester")}, opts...)...)
	if err != nil {
		t.Fatalf("new client: %v", err)
	}
	t.Cleanup(c.Close)
	return c
}

// h2cClient returns an HTTP client that speaks HTTP/2 without TLS, for tests to wrap.
func h2cClient(t *testing.T) *http.Client {
	t.Helper()
	protocols := new(http.Protocols)
	protocols.SetUnencryptedHTTP2(true)
	transport := &http.Transport{Protocols: protocols}
	t.Cleanup(transport.CloseIdleConnections)
	return &http.Client{Transport: transport}
}

func subscribe(t *testing.T, c *parley.Client, opts ...parley.SubscribeOption) *parley.Subscription {
	t.Helper()
	s := c.Subscribe(testContext(t), opts...)
	t.Cleanup(s.Close)
	return s
}

// nextEvent returns the next event of one of the kinds. Without kinds it returns any event except
// an EventChannelState. It drops the others.
func nextEvent(t *testing.T, s *parley.Subscription, kinds ...parley.EventKind) parley.Event {
	t.Helper()
	for {
		e, err := s.Next(testContext(t))
		if err != nil {
			t.Fatalf("next event: %v", err)
		}
		if len(kinds) == 0 && e.Kind != parley.EventChannelState {
			return e
		}
		if slices.Contains(kinds, e.Kind) {
			return e
		}
	}
}

// wantEntries takes events until the channel's entries first..last have come. It fails the test if
// an entry is repeated, missing or out of order.
func wantEntries(t *testing.T, s *parley.Subscription, channel string, first, last int64) {
	t.Helper()
	for want := first; want <= last; want++ {
		e := nextEvent(t, s)
		for e.ChannelID != channel {
			e = nextEvent(t, s)
		}
		if e.Kind == parley.EventGap || e.Seq != want {
			t.Fatalf("channel %s: got %s with seq %d, want entry %d", channel, e.Kind, e.Seq, want)
		}
	}
}

// wantQuiet fails the test if any event except an EventChannelState arrives within 60 ms.
func wantQuiet(t *testing.T, s *parley.Subscription) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 60*time.Millisecond)
	defer cancel()
	for {
		e, err := s.Next(ctx)
		if errors.Is(err, context.DeadlineExceeded) {
			return
		}
		if err != nil {
			t.Fatalf("next event: %v", err)
		}
		if e.Kind != parley.EventChannelState {
			t.Fatalf("an unexpected event: %s of %s, seq %d", e.Kind, e.ChannelID, e.Seq)
		}
	}
}

// eventually polls until check returns nil. After 20 s it fails the test.
func eventually(t *testing.T, check func() error) {
	t.Helper()
	var err error
	for deadline := time.Now().Add(20 * time.Second); time.Now().Before(deadline); <-time.After(2 * time.Millisecond) {
		if err = check(); err == nil {
			return
		}
	}
	t.Fatalf("not in time: %v", err)
}

// waitStreams waits until the server has exactly n live Subscribe streams.
func waitStreams(t *testing.T, s *parleytest.Server, n int) {
	t.Helper()
	eventually(t, func() error {
		if got := s.Streams(); got != n {
			return fmt.Errorf("%d streams, want %d", got, n)
		}
		return nil
	})
}

func asError(t *testing.T, err error) *parley.Error {
	t.Helper()
	var e *parley.Error
	if !errors.As(err, &e) {
		t.Fatalf("got %v (%T), want a *parley.Error", err, err)
	}
	return e
}
