package fanout

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/parleyhq/parley/server/internal/fault"
	"github.com/parleyhq/parley/server/internal/ident"
)

// TestRenew checks that a stream continues with its new token, and loses what that does not allow
// as the token before did.
func TestRenew(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := setup(t, noChecks())
		began := time.Now()
		s, err := r.hub.Open("ann", began.Add(20*time.Second))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(s.Close)
		must := func(c Change) {
			t.Helper()
			if err := r.hub.Update(s.ID(), "ann", c); err != nil {
				t.Fatal(err)
			}
		}
		mine := Position{ChannelID: "mine", Member: true}
		must(Change{Add: []Position{
			live("kept"), live("gone"), live("members"), live("removed"), live("again"), mine, exemptFrom("managed"), exemptFrom("demoted"),
		}})
		r.read(s)
		token := &ident.Principal{
			Subject: "ann", Expires: began.Add(time.Minute),
			Channels: []ident.Capability{
				{Pattern: "kept", Actions: []ident.Action{ident.Subscribe}},
				{Pattern: "demoted", Actions: []ident.Action{ident.Subscribe}},
				{Pattern: "managed", Actions: []ident.Action{ident.Subscribe, ident.Manage}},
			},
			Members: []ident.Capability{{Pattern: "m*", Actions: []ident.Action{ident.Subscribe}}},
		}
		r.send("gone")
		must(Change{Add: []Position{live("again")}, Remove: []string{"removed"}, Token: token})
		const lost = "lost(reason=3)"
		equal(t, r.read(s), map[string]string{
			"gone": lost, "members": lost, "demoted": lost, "again": want("state(e1/0,head=0,recovered=false)", 1, 0),
		})
		time.Sleep(30 * time.Second) // past the end of the first token
		for _, id := range []string{"kept", "gone", "members", "removed", "again", "mine", "managed", "demoted"} {
			r.send(id)
		}
		one := want("", 1, 1)
		equal(t, r.read(s), map[string]string{"kept": one, "again": one, "mine": one, "managed": one})
		for err == nil {
			_, err = s.Next(t.Context())
		}
		e := failure(t, err, fault.Unauthenticated, fault.TokenExpired)
		equal(t, len(e.Positions), 4)
		equal(t, time.Since(began), time.Minute)
		failure(t, r.hub.Update(s.ID(), "ann", Change{Token: token}), fault.NotFound, fault.StreamNotFound)
	})
}

// TestRenewIsRefused checks that a token that Guard's check refuses changes nothing.
func TestRenewIsRefused(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := setup(t, noChecks())
		began := time.Now()
		s, err := r.hub.Open("ann", began.Add(20*time.Second))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(s.Close)
		refused := errors.New("refused")
		s.Guard(func(token *ident.Principal) error {
			if token.CanPresence(ident.Connect) {
				return nil
			}
			return refused
		})
		if err := s.Add([]Position{live("c")}); err != nil {
			t.Fatal(err)
		}
		r.read(s)
		narrow := &ident.Principal{Subject: "ann", Expires: began.Add(time.Hour)}
		if err := s.Update(Change{Remove: []string{"c"}, Token: narrow}); !errors.Is(err, refused) {
			t.Fatalf("a token without the capability: %v", err)
		}
		r.send("c")
		equal(t, r.read(s)["c"], want("", 1, 1))
		narrow.Presence = []ident.Action{ident.Connect}
		if err := s.Update(Change{Token: narrow}); err != nil {
			t.Fatal(err)
		}
		equal(t, r.read(s)["c"], "lost(reason=3)")
		ctx, cancel := context.WithTimeout(t.Context(), 50*time.Minute)
		defer cancel()
		for err == nil {
			_, err = s.Next(ctx)
		}
		if !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("the stream ended with the first token: %v", err)
		}
	})
}
