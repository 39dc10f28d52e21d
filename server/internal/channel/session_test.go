package channel

import (
	"context"
	"testing"

	"github.com/parleyhq/parley/server/internal/fault"
	"github.com/parleyhq/parley/server/internal/ident"
)

// inSessions returns a principal with the actions in all sessions.
func inSessions(subject string, actions ...ident.Action) *ident.Principal {
	return &ident.Principal{Subject: subject, Sessions: []ident.Capability{{Pattern: "*", Actions: actions}}}
}

// A session is used by its owner and by holders of manage, and never created by an access check.
func TestAccessToSession(t *testing.T) {
	t.Parallel()
	b := setup(t)
	if err := b.svc.OpenSession(t.Context(), "s", "ada"); err != nil {
		t.Fatal(err)
	}
	check(t, "the owner's again", b.svc.OpenSession(t.Context(), "s", "ada"), "")
	check(t, "another's", b.svc.OpenSession(t.Context(), "s", "eve"), fault.NotMember)
	owner, other := inSessions("ada", ident.Append, ident.History, ident.Subscribe), inSessions("eve", ident.Append, ident.History, ident.Subscribe)
	bot := inSessions("bot", ident.Append, ident.History, ident.Subscribe, ident.Manage)
	for _, tc := range []struct {
		p       *ident.Principal
		channel string
		want    fault.Reason
	}{
		{owner, "~s", ""},
		{other, "~s", fault.ChannelNotFound},
		{bot, "~s", ""},
		{owner, "~none", fault.ChannelNotFound},
		{bot, "~none", fault.ChannelNotFound},
	} {
		for range 2 { // once from the store, once from the cache
			_, err := b.access.ForSend(t.Context(), tc.p, tc.channel, 0)
			check(t, tc.p.Subject+" appends to "+tc.channel, err, tc.want)
			_, err = b.access.ForRead(t.Context(), tc.p, ident.History, tc.channel, 0)
			check(t, tc.p.Subject+" reads "+tc.channel, err, tc.want)
			check(t, tc.p.Subject+" follows "+tc.channel, b.access.ForSubscribe(t.Context(), tc.p, []string{tc.channel}), tc.want)
			anySender, _, err := b.access.ForRecall(t.Context(), tc.p, tc.channel, 0)
			if check(t, tc.p.Subject+" recalls in "+tc.channel, err, tc.want); anySender != (tc.want == "") {
				t.Errorf("%s may recall others' messages in %s: %t", tc.p.Subject, tc.channel, anySender)
			}
		}
	}
	if _, ok := b.store.rows["~none"]; ok {
		t.Error("an access check made a session")
	}
	b.store.script(func(context.Context, string) error { return context.DeadlineExceeded }, nil)
	check(t, "an unknown outcome", b.svc.OpenSession(t.Context(), "t", "ada"), fault.OutcomeUnknown)
}

// Sessions are neither in the list of a user's channels nor among those that users share, and the
// list does not read past the first of them.
func TestSessionsAreNotListed(t *testing.T) {
	t.Parallel()
	b := setup(t)
	for _, id := range []string{"a", "b"} {
		if err := b.svc.OpenSession(t.Context(), id, "ada"); err != nil {
			t.Fatal(err)
		}
	}
	p := can("ada", "*", ident.ChannelActions...)
	p.Sessions = inSessions("ada", ident.SessionActions...).Sessions
	for size := range 4 {
		page, err := b.svc.UserChannels(as(t, p), size, "")
		if err != nil {
			t.Fatal(err)
		}
		for _, c := range page.Channels {
			if _, session := ident.SessionOf(c.Row.ChannelID); session {
				t.Errorf("%s is listed", c.Row.ChannelID)
			}
		}
		if len(page.Channels) < 2 && size != 1 || page.NextPageToken != "" && size != 1 {
			t.Errorf("pages of %d: %+v", size, page)
		}
	}
	mine, err := b.access.membersOnlyOf(t.Context(), "ada")
	if err != nil || len(mine) != 1 || mine[0] != "closed" {
		t.Errorf("members-only channels of ada: %v, %v", mine, err)
	}
}
