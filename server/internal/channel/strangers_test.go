package channel

import (
	"context"
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/parleyhq/parley/server/internal/fault"
)

// Users share a channel if both are members of it and it is members-only: everyone can join an open
// one.
func TestStrangers(t *testing.T) {
	t.Parallel()
	store := newFakeStore()
	access := NewAccess(AccessConfig{Store: store})
	ctx := t.Context()
	create := func(id string, membersOnly bool, users ...string) {
		t.Helper()
		if _, err := store.Create(ctx, Row{ChannelID: id, MembersOnly: membersOnly}, users); err != nil {
			t.Fatal(err)
		}
	}
	create("club", true, "ann", "bob")
	create("hall", false, "ann", "cy")
	create("other", true, "bob", "dan")
	others := []string{"dan", "bob", "cy", "ann", "nobody", "bob"}
	strangers, err := access.Strangers(ctx, "ann", others)
	if diff := cmp.Diff([]string{"dan", "cy", "nobody"}, strangers); diff != "" || err != nil {
		t.Error(err, diff)
	}
	if err := store.RemoveMembers(ctx, "club", []string{"bob"}, 0); err != nil {
		t.Fatal(err)
	}
	strangers, err = access.Strangers(ctx, "ann", []string{"bob"})
	if diff := cmp.Diff([]string{"bob"}, strangers); diff != "" || err != nil {
		t.Error("after he left:", err, diff)
	}
	for _, failing := range []string{"Memberships", "Rows", "MembersOf"} {
		access := NewAccess(AccessConfig{Store: store})
		store.script(func(_ context.Context, call string) error {
			if call == failing {
				return errors.New("away")
			}
			return nil
		}, nil)
		if _, err := access.Strangers(ctx, "bob", others); !fault.Is(err, fault.StoreUnavailable) {
			t.Errorf("%s: %v", failing, err)
		}
	}
}

// New members of a members-only channel are announced, for those who watch its presence.
func TestJoinsAreAnnounced(t *testing.T) {
	t.Parallel()
	b := setup(t)
	for id, membersOnly := range map[string]bool{"club": true, "hall": false} {
		if _, _, err := b.svc.Create(as(t, boss), CreateRequest{ChannelID: id, MembersOnly: membersOnly}); err != nil {
			t.Fatal(err)
		}
		if err := b.svc.AddMembers(as(t, boss), id, []string{"ann"}); err != nil {
			t.Fatal(err)
		}
	}
	if diff := cmp.Diff([]string{"club"}, b.joined); diff != "" {
		t.Error(diff)
	}
}
