package channel

import (
	"context"
	"slices"
	"testing"

	"github.com/parleyhq/parley/server/internal/ident"
)

// listener returns a principal that may subscribe to every channel, and nothing else.
func listener(subject string) *ident.Principal {
	return &ident.Principal{Subject: subject, Channels: []ident.Capability{
		{Pattern: "*", Actions: []ident.Action{ident.Subscribe}},
	}}
}

func TestJoinRacesMembersOnlyCreation(t *testing.T) {
	t.Parallel()
	b := setup(t)
	eve := listener("eve")
	b.store.script(func(_ context.Context, call string) error {
		if call == "AddMembers" { // runs between the check of eve's access and her write
			b.store.mu.Lock()
			b.store.rows["board"] = Row{ChannelID: "board", MembersOnly: true}
			b.store.mu.Unlock()
		}
		return nil
	}, nil)
	err := b.svc.AddMembers(as(t, eve), "board", []string{"eve"})
	if slices.Contains(b.members("board"), "eve") {
		t.Errorf("eve, who may only subscribe, is a member of a members-only channel (error %v)", err)
	}
}

func TestJoinRacesRemoval(t *testing.T) {
	t.Parallel()
	b := setup(t)
	ctx := t.Context()
	eve := listener("eve")
	if _, err := b.store.Create(ctx, Row{ChannelID: "board", MembersOnly: true}, []string{"eve"}); err != nil {
		t.Fatal(err)
	}
	if err := b.svc.AddMembers(as(t, eve), "board", []string{"eve"}); err != nil { // caches the membership for 500 ms
		t.Fatal(err)
	}
	// Another node removes eve; its announcement has not arrived here yet.
	if err := b.store.RemoveMembers(ctx, "board", []string{"eve"}, 0); err != nil {
		t.Fatal(err)
	}
	_ = b.svc.AddMembers(as(t, eve), "board", []string{"eve"})
	if slices.Contains(b.members("board"), "eve") {
		t.Error("eve was removed and has put herself back")
	}
}
