package parley_test

import (
	"errors"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"

	parley "github.com/parleyhq/parley/sdk/go"
	"github.com/parleyhq/parley/sdk/go/parleytest"
)

func TestChannelSettings(t *testing.T) {
	t.Parallel()
	s := parleytest.Start(t)
	ctx, c := testContext(t), newClient(t, s.Addr())
	if _, err := c.Channel(ctx, "room"); !errors.Is(err, parley.ErrChannelNotFound) {
		t.Errorf("a missing channel: %v", err)
	}
	if _, err := c.SetRetention(ctx, "room", nil); !errors.Is(err, parley.ErrChannelNotFound) {
		t.Errorf("settings of a missing channel: %v", err)
	}
	week := &parley.Retention{MaxAge: durationpb.New(7 * 24 * time.Hour), MaxMessages: 1000}
	made, err := c.CreateChannel(ctx, "room", parley.WithRetention(week))
	if err != nil || !proto.Equal(made.GetRetention(), week) {
		t.Fatalf("create: %v, %v", made, err)
	}
	if got, err := c.Channel(ctx, "room"); err != nil || !proto.Equal(got, made) {
		t.Errorf("channel: %v, %v", got, err)
	}
	all, err := c.SetRetention(ctx, "room", &parley.Retention{}, parley.IfEtag(made.GetEtag()))
	if err != nil || all.GetRetention() == nil || !proto.Equal(all.GetRetention(), &parley.Retention{}) {
		t.Errorf("no limits: %v, %v", all, err)
	}
	if _, err := c.SetRetention(ctx, "room", week, parley.IfEtag(made.GetEtag())); !errors.Is(err, parley.ErrEtagMismatch) {
		t.Errorf("an old etag: %v", err)
	}
	if own, err := c.SetRetention(ctx, "room", nil); err != nil || own.GetRetention() != nil {
		t.Errorf("the default: %v, %v", own, err)
	}
	closed, err := c.SetMembersOnly(ctx, "room", true)
	if err != nil || !closed.GetMembersOnly() {
		t.Errorf("closed: %v, %v", closed, err)
	}
	if _, err := c.SetMembersOnly(ctx, "room", false, parley.IfEtag(made.GetEtag())); !errors.Is(err, parley.ErrEtagMismatch) {
		t.Errorf("an old etag: %v", err)
	}
	if open, err := c.SetMembersOnly(ctx, "room", false, parley.IfEtag(closed.GetEtag())); err != nil || open.GetMembersOnly() {
		t.Errorf("opened: %v, %v", open, err)
	}
	if _, err := c.Channel(ctx, "\xff"); !errors.Is(err, parley.ErrInvalidField) {
		t.Errorf("an invalid id: %v", err)
	}
}
