package parley_test

import (
	"errors"
	"fmt"
	"slices"
	"testing"

	parley "github.com/parleyhq/parley/sdk/go"
)

// scenarioMembers takes a user into a members-only channel and out of it, with a subscription under way.
func scenarioMembers(t *testing.T, b backend, c *parley.Client) {
	ctx := testContext(t)
	ann := newClient(t, b.Addr(), parley.WithToken(b.TokenOf("ann")))
	made, err := c.CreateChannel(ctx, "secret", parley.MembersOnly(), parley.WithMembers("bob"))
	if err != nil || !made.GetMembersOnly() || made.GetCreatedBy() != "tester" || made.GetChannelId() != "secret" {
		t.Fatalf("create: %v, %v", made, err)
	}
	if _, err := c.CreateChannel(ctx, "secret"); !errors.Is(err, parley.ErrChannelExists) {
		t.Errorf("create again: %v", err)
	}
	if err := c.AddMembers(ctx, "nowhere", "ann"); !errors.Is(err, parley.ErrChannelNotFound) {
		t.Errorf("add to no channel: %v", err)
	}
	if _, err := ann.Send(ctx, "secret", "hello"); !errors.Is(err, parley.ErrNotMember) {
		t.Errorf("send as a stranger: %v", err)
	}
	_, err = subscribe(t, ann, parley.Live("open"), parley.Live("secret")).Next(ctx)
	if e := asError(t, err); !errors.Is(err, parley.ErrNotMember) || len(e.Positions) != 1 || e.Positions[0].ChannelID != "secret" {
		t.Errorf("subscribe as a stranger: %+v", e)
	}
	if err := c.AddMembers(ctx, "secret", "ann"); err != nil {
		t.Fatalf("add: %v", err)
	}
	if got, want := memberIDs(t, c, "secret"), []string{"ann", "bob", "tester"}; !slices.Equal(got, want) {
		t.Errorf("members %v, want %v", got, want)
	}
	sub := subscribe(t, ann, parley.FromStart("secret"), parley.FromStart("open"))
	if _, err := c.Send(ctx, "secret", "welcome"); err != nil {
		t.Fatalf("send: %v", err)
	}
	wantEntries(t, sub, "secret", 1, 1)
	if err := c.Typing(ctx, "secret"); err != nil {
		t.Errorf("typing: %v", err)
	}
	if e := nextEvent(t, sub); e.Kind != parley.EventTyping || e.Typing.GetUserId() != "tester" {
		t.Errorf("got %s %+v, want typing", e.Kind, e)
	}
	scenarioCursor(t, c, ann)
	if err := c.RemoveMembers(ctx, "secret", "ann", "nobody"); err != nil {
		t.Fatalf("remove: %v", err)
	}
	if e := nextEvent(t, sub); e.Kind != parley.EventLost || e.ChannelID != "secret" || e.Seq != 1 {
		t.Fatalf("got %s of %s at %d, want the loss", e.Kind, e.ChannelID, e.Seq)
	}
	if _, err := c.Send(ctx, "secret", "among us"); err != nil {
		t.Fatalf("send: %v", err)
	}
	if _, err := c.Send(ctx, "open", "to all"); err != nil {
		t.Fatalf("send: %v", err)
	}
	if e := nextEvent(t, sub); e.ChannelID != "open" || e.Seq != 1 {
		t.Errorf("got %s of %s at %d, want the open channel's message", e.Kind, e.ChannelID, e.Seq)
	}
}

// scenarioCursor reads the one message of the channel.
func scenarioCursor(t *testing.T, c, ann *parley.Client) {
	t.Helper()
	ctx := testContext(t)
	// What a list tells may be a moment behind.
	eventually(t, func() error {
		var told []string
		for mine, err := range ann.Channels(ctx) {
			if err != nil {
				return err
			}
			told = append(told, fmt.Sprintf("%s %d %d %s", mine.GetChannel().GetChannelId(), mine.GetReadSeq(), mine.GetUnread(),
				mine.GetLastMessage().GetContent()))
		}
		if !slices.Equal(told, []string{"secret 0 1 welcome"}) {
			return fmt.Errorf("channels %q", told)
		}
		return nil
	})
	if got, err := ann.MarkRead(ctx, "secret", 1); err != nil || got != (parley.ReadCursor{Seq: 1}) {
		t.Errorf("mark read: %+v, %v", got, err)
	}
	if _, err := ann.MarkRead(ctx, "secret", 2); !errors.Is(err, parley.ErrOutOfRange) {
		t.Errorf("mark read beyond the head: %v", err)
	}
	for m, err := range c.Members(ctx, "secret") {
		if err != nil {
			t.Fatalf("members: %v", err)
		}
		if m.GetUserId() == "ann" && m.GetReadSeq() != 1 {
			t.Errorf("ann has read up to %d", m.GetReadSeq())
		}
	}
}
