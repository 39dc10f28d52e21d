package fanout

import (
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
		failure(t, r.hub.Update(s.ID(), "ann", Change{Token: &ident.Principal{Subject: "ann"}}), fault.NotFound, fault.StreamNotFound)
	})
}

// TestRenewIsRefused checks that a token that a stream cannot take changes nothing.
func TestRenewIsRefused(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := setup(t, noChecks())
		began := time.Now()
		keeps, takes := r.open(live("c")), r.open(live("c"))
		keeps.KeepToken(fault.Invalid("renew_token", 0, "no"))
		for s, token := range map[*Stream]*ident.Principal{
			keeps: {Subject: "ann", Expires: began.Add(time.Hour)},
			takes: {Subject: "ann", Expires: began},
		} {
			r.read(s)
			err := s.Update(Change{Add: []Position{live("d")}, Remove: []string{"c"}, Token: token})
			if s == keeps {
				failure(t, err, fault.InvalidArgument, fault.InvalidField)
			} else {
				failure(t, err, fault.Unauthenticated, fault.TokenExpired)
			}
		}
		r.send("c")
		r.send("d")
		for _, s := range []*Stream{keeps, takes} {
			equal(t, r.read(s), map[string]string{"c": want("", 1, 1)})
		}
	})
}

// TestRenewWithinTheLimit checks that what a stream loses by its new token makes room for what the
// same change adds.
func TestRenewWithinTheLimit(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		cfg := noChecks()
		cfg.MaxChannelsPerStream = 1
		r := setup(t, cfg)
		s := r.open(live("old"))
		token := &ident.Principal{Subject: "ann", Channels: []ident.Capability{{Pattern: "new", Actions: []ident.Action{ident.Subscribe}}}}
		if err := s.Update(Change{Add: []Position{live("new")}, Token: token}); err != nil {
			t.Fatal(err)
		}
		r.send("new")
		equal(t, r.read(s)["old"], "lost(reason=3)")
	})
}
