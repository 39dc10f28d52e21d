package rpc

import (
	"context"
	"slices"
	"testing"
	"time"

	"connectrpc.com/connect"

	parleyv1 "github.com/parleyhq/parley/gen/go/parley/v1"
	"github.com/parleyhq/parley/server/internal/fault"
	"github.com/parleyhq/parley/server/internal/revocation"
	"github.com/parleyhq/parley/server/internal/revocation/revocationtest"
)

// TestSignOutIsStored checks that a SignOut which the store did not confirm can be repeated until
// it does, although the token is refused for every other call meanwhile.
func TestSignOutIsStored(t *testing.T) {
	t.Parallel()
	b := setup(t, nil)
	presence, messages := b.presenceClient(0, b.token), b.client(0, b.token)
	signOut := func() error {
		_, err := presence.SignOut(t.Context(), &parleyv1.SignOutRequest{})
		return err
	}
	b.revoking.Set(revocationtest.Down)
	for range 2 {
		if err := signOut(); connect.CodeOf(err) != connect.CodeUnavailable {
			t.Fatalf("without the store: %v", err)
		}
		if _, err := messages.ListChannels(t.Context(), &parleyv1.ListChannelsRequest{}); connect.CodeOf(err) != connect.CodeUnauthenticated {
			t.Fatalf("another call: %v", err)
		}
	}
	b.revoking.Set(revocationtest.Up)
	if err := signOut(); err != nil && connect.CodeOf(err) != connect.CodeUnauthenticated { // the node may have repeated it
		t.Fatal(err)
	}
	if err := signOut(); connect.CodeOf(err) != connect.CodeUnauthenticated {
		t.Errorf("once it is stored: %v", err)
	}
	stored, err := b.revoking.List(t.Context(), "", 10)
	if err != nil || len(stored) != 1 {
		t.Errorf("stored: %v, %v", stored, err)
	}
}

// TestNothingIsWrittenToARevokedStream checks that a stream whose token was revoked gets no further
// frame, although its client reads.
func TestNothingIsWrittenToARevokedStream(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancelCause(t.Context())
	sent := 0
	w := &frameWriter[int]{send: func(any) error { sent++; return nil }, timeout: time.Minute, deadline: time.Now().Add(time.Hour)}
	if err := w.write(ctx, 1); err != nil {
		t.Fatal(err)
	}
	cancel(revocation.Revoked())
	if err := w.write(ctx, 2); !fault.Is(err, fault.TokenRevoked) || sent != 1 {
		t.Errorf("after %d frames: %v", sent, err)
	}
}

// TestListRevocations reads the revocations page by page. Those that have ended are not there,
// although the store still has them.
func TestListRevocations(t *testing.T) {
	t.Parallel()
	b := setup(t, nil)
	admin := b.adminClient(0, b.mintAs(operator("ada")))
	now := time.Now()
	for key, until := range map[string]time.Time{
		"s:a": now.Add(time.Hour), "s:b": now.Add(-time.Second), "s:c": now.Add(time.Hour), "u:d": now.Add(time.Hour),
	} {
		if err := b.revoking.Revoke(t.Context(), revocation.Entry{Key: key, Until: until, At: now, By: "ada"}); err != nil {
			t.Fatal(err)
		}
	}
	var got []string
	for token, pages := "", 0; ; pages++ {
		page, err := admin.ListRevocations(t.Context(), &parleyv1.ListRevocationsRequest{PageSize: 1, PageToken: token})
		if err != nil || len(page.GetRevocations()) > 1 || pages > 5 {
			t.Fatalf("page %d: %v, %v", pages, page, err)
		}
		for _, r := range page.GetRevocations() {
			got = append(got, r.GetSsid()+r.GetUserId())
		}
		if token = page.GetNextPageToken(); token == "" {
			break
		}
	}
	if !slices.Equal(got, []string{"a", "c", "d"}) {
		t.Errorf("listed %v", got)
	}
}
