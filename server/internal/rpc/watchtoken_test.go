package rpc

import (
	"context"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/parleyhq/parley/server/internal/fault"
	"github.com/parleyhq/parley/server/internal/ident"
	"github.com/parleyhq/parley/server/internal/lifecycle/lifecycletest"
	"github.com/parleyhq/parley/server/internal/revocation"
	"github.com/parleyhq/parley/server/internal/revocation/revocationtest"
	"github.com/parleyhq/parley/server/internal/rpc/intercept"
)

// revokedOnceChecked is a List in which a token is revoked at the moment after a Check.
type revokedOnceChecked struct{ *revocation.List }

func (r revokedOnceChecked) Check(ctx context.Context, p *ident.Principal) error {
	err := r.List.Check(ctx, p)
	if _, revokeErr := r.Revoke(ctx, revocation.Entry{Key: p.Key}, p); revokeErr != nil {
		return revokeErr
	}
	return err
}

// TestStreamIsWatchedBeforeItsCheck checks that a stream ends whose token is revoked right after
// the last check before it opens.
func TestStreamIsWatchedBeforeItsCheck(t *testing.T) {
	t.Parallel()
	opened := false
	openWatched(t, func(list *revocation.List) Revocations { return revokedOnceChecked{list} }, func(_ http.ResponseWriter, r *http.Request) {
		opened = true
		select {
		case <-r.Context().Done():
		case <-time.After(10 * time.Second):
		}
		if cause := context.Cause(r.Context()); !fault.Is(cause, fault.TokenRevoked) {
			t.Errorf("the stream's context ended with %v", cause)
		}
	})
	if !opened {
		t.Error("the stream was not opened")
	}
}

// TestStreamIsCheckedOnceWatched checks that a stream is refused whose token was revoked after the
// check of the call and before the stream was watched.
func TestStreamIsCheckedOnceWatched(t *testing.T) {
	t.Parallel()
	status := openWatched(t, func(list *revocation.List) Revocations {
		if _, err := list.Revoke(t.Context(), revocation.Entry{Key: watched.Key}, watched); err != nil {
			t.Fatal(err)
		}
		return list
	}, func(http.ResponseWriter, *http.Request) { t.Error("the stream was opened") })
	if status != http.StatusUnauthorized {
		t.Errorf("the status is %d", status)
	}
}

// watched is the principal of the stream that openWatched opens.
var watched = &ident.Principal{Subject: "ann", Key: ident.SSIDKey("phone"), Expires: time.Now().Add(time.Hour)}

// openWatched calls a stream's handler through watchToken, with what wrap makes of a new list, and
// returns the status.
func openWatched(t *testing.T, wrap func(*revocation.List) Revocations, stream http.HandlerFunc) (status int) {
	t.Helper()
	list, err := revocation.New(revocation.Config{Store: &revocationtest.Store{}})
	if err != nil {
		t.Fatal(err)
	}
	lifecycletest.Start(t, list)
	calls := intercept.NewCalls(intercept.Config{Logger: slog.New(slog.DiscardHandler), ToWire: toWire})
	handler := watchToken(&Deps{Revocations: wrap(list)}, calls, stream)
	w := httptest.NewRecorder()
	r := httptest.NewRequestWithContext(ident.NewContext(t.Context(), watched), http.MethodPost, "/", strings.NewReader("{}"))
	r.Header.Set("Content-Type", "application/json")
	calls.Wrap(handler).ServeHTTP(w, r)
	return w.Code
}
