package channel

import (
	"context"
	"slices"
	"testing"
	"time"

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
	if err := b.svc.OpenSession(t.Context(), "s", "ada", ""); err != nil {
		t.Fatal(err)
	}
	check(t, "the owner's again", b.svc.OpenSession(t.Context(), "s", "ada", ""), "")
	check(t, "another's", b.svc.OpenSession(t.Context(), "s", "eve", ""), fault.NotMember)
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
	check(t, "an unknown outcome", b.svc.OpenSession(t.Context(), "t", "ada", ""), fault.OutcomeUnknown)
}

// A log whose row was lost, as after a restore, gets no new owner, and its streams no readers.
func TestSessionWithoutRow(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.log.send("~lost", "secret")
	for range 2 {
		check(t, "open", b.svc.OpenSession(t.Context(), "lost", "eve", ""), fault.NotMember)
	}
	if _, ok := b.store.rows["~lost"]; ok {
		t.Error("the session has an owner")
	}
	_, _, err := b.access.Readers(t.Context(), "~lost", []string{"eve"}, false, 0)
	check(t, "readers", err, fault.ChannelNotFound)
	b.log.err = fault.New(fault.Unavailable, fault.StoreUnavailable, "away")
	check(t, "without the log's head", b.svc.OpenSession(t.Context(), "new", "eve", ""), fault.StoreUnavailable)
}

// A user's sessions are listed by their activity, with the owner's cursors, to the owner and to
// those who manage all sessions. Others can neither list nor delete them.
func TestUserSessions(t *testing.T) {
	t.Parallel()
	b := setup(t)
	owner := inSessions("ada", ident.Append, ident.History)
	for i, id := range []string{"a", "b", "c", "d"} {
		b.clock.pass(time.Second)
		if err := b.svc.OpenSession(t.Context(), id, "ada", ""); err != nil {
			t.Fatal(err)
		}
		for range i {
			b.log.send("~"+id, "x")
		}
	}
	if _, _, err := b.svc.MarkRead(as(t, owner), "~d", 1); err != nil {
		t.Fatal(err)
	}
	row := b.store.rows["~d"]
	row.Numbers = Numbers{3, 3, 3}
	b.store.rows["~d"] = row
	list := func(p *ident.Principal, ownerID string, size int) (ids []string) {
		t.Helper()
		for token := ""; ; {
			page, err := b.svc.UserSessions(as(t, p), ownerID, size, token)
			if err != nil {
				t.Fatal(err)
			}
			for _, c := range page.Channels {
				ids = append(ids, c.Row.ChannelID)
				if c.Row.ChannelID == "~d" && (c.Read != Cursor{1, 1} || c.Unread != 2) {
					t.Errorf("the owner has read %+v, %d are unread", c.Read, c.Unread)
				}
			}
			if token = page.NextPageToken; token == "" {
				return ids
			}
		}
	}
	admin := &ident.Principal{Subject: "root", Admin: []ident.Action{ident.Read}}
	some := inSessions("ada", ident.History)
	some.Sessions[0].Pattern = "b"
	for size := range 5 {
		for name, tc := range map[string]struct {
			p     *ident.Principal
			owner string
			want  []string
		}{
			"the owner":                 {owner, "", []string{"~d", "~c", "~b", "~a"}},
			"the owner, by name":        {owner, "ada", []string{"~d", "~c", "~b", "~a"}},
			"a manager":                 {inSessions("bot", ident.Manage, ident.History), "ada", []string{"~d", "~c", "~b", "~a"}},
			"an operator":               {admin, "ada", []string{"~d", "~c", "~b", "~a"}},
			"a narrow token":            {some, "", []string{"~b"}},
			"another user":              {inSessions("eve", ident.History), "", nil},
			"a token without sessions":  {can("ada", "*", ident.ChannelActions...), "", nil},
			"a manager without history": {inSessions("bot", ident.Manage), "ada", nil},
		} {
			if got := list(tc.p, tc.owner, size); !slices.Equal(got, tc.want) {
				t.Errorf("%s, in pages of %d: %v, want %v", name, size, got, tc.want)
			}
		}
	}
	narrow := inSessions("bot", ident.Manage, ident.History)
	narrow.Sessions[0].Pattern = "a*"
	for name, p := range map[string]*ident.Principal{"a stranger": inSessions("eve", ident.History), "a manager of some": narrow} {
		_, err := b.svc.UserSessions(as(t, p), "ada", 0, "")
		check(t, name, err, fault.CapabilityMissing)
	}
	first, err := b.svc.UserSessions(as(t, owner), "", 1, "")
	check(t, "a page", err, "")
	_, err = b.svc.UserSessions(as(t, inSessions("bot", ident.Manage)), "ada", 1, first.NextPageToken)
	check(t, "another's page token", err, fault.PageTokenForeign)

	check(t, "ben's", b.svc.OpenSession(t.Context(), "bens", "ben", ""), "")
	every := func(p *ident.Principal, size int) (ids []string) {
		t.Helper()
		for token := ""; ; {
			page, err := b.svc.EverySession(as(t, p), size, token)
			check(t, p.Subject+" lists all", err, "")
			for _, c := range page.Channels {
				ids = append(ids, c.Row.ChannelID)
				if c.Row.ChannelID == "~d" && (c.Read != Cursor{1, 1} || c.Unread != 2) {
					t.Errorf("the owner has read %+v, %d are unread", c.Read, c.Unread)
				}
			}
			if token = page.NextPageToken; token == "" {
				return ids
			}
		}
	}
	for size := range 7 {
		for _, p := range []*ident.Principal{admin, inSessions("bot", ident.Manage, ident.History)} {
			if got := every(p, size); !slices.Equal(got, []string{"~bens", "~d", "~c", "~b", "~a"}) {
				t.Errorf("all of %s, in pages of %d: %v", p.Subject, size, got)
			}
		}
		if got := every(inSessions("bot", ident.Manage), size); got != nil {
			t.Errorf("all without history: %v", got)
		}
	}
	operator := &ident.Principal{Subject: "root", Admin: []ident.Action{ident.Manage}}
	for name, p := range map[string]*ident.Principal{"an owner": owner, "a manager of some": narrow, "an operator who may not read": operator} {
		_, err := b.svc.EverySession(as(t, p), 0, "")
		check(t, name+" lists all", err, fault.CapabilityMissing)
	}
	_, err = b.svc.EverySession(as(t, admin), 1, first.NextPageToken)
	check(t, "the page token of another list", err, fault.PageTokenForeign)

	check(t, "a stranger deletes", b.svc.DeleteSession(as(t, inSessions("eve", ident.Append)), "a"), fault.ChannelNotFound)
	check(t, "none is deleted", b.svc.DeleteSession(as(t, owner), "none"), fault.ChannelNotFound)
}

// The owner and holders of manage rename a session. For others, and after the deletion, it does not
// exist.
func TestRenameSession(t *testing.T) {
	t.Parallel()
	b := setup(t)
	owner, bot := inSessions("ada", ident.Append), inSessions("bot", ident.Manage)
	check(t, "open", b.svc.OpenSession(t.Context(), "s", "ada", "first"), "")
	check(t, "open again", b.svc.OpenSession(t.Context(), "s", "ada", "ignored"), "")
	want := func(title string) {
		t.Helper()
		if got := b.store.rows["~s"].Title; got != title {
			t.Errorf("the title is %q, want %q", got, title)
		}
	}
	want("first")
	for _, p := range []*ident.Principal{owner, bot} {
		for _, title := range []string{"by " + p.Subject, "by " + p.Subject, "", "again"} {
			check(t, p.Subject+" renames", b.svc.RenameSession(as(t, p), "s", title), "")
			want(title)
		}
	}
	narrow := inSessions("bot", ident.Manage)
	narrow.Sessions[0].Pattern = "other*"
	for name, p := range map[string]*ident.Principal{"a stranger": inSessions("eve", ident.Append), "a manager of others": narrow} {
		check(t, name, b.svc.RenameSession(as(t, p), "s", "x"), fault.ChannelNotFound)
	}
	check(t, "none", b.svc.RenameSession(as(t, owner), "none", "x"), fault.ChannelNotFound)
	check(t, "none of a manager", b.svc.RenameSession(as(t, bot), "none", "x"), fault.ChannelNotFound)
	want("again")
	row := b.store.rows["~s"]
	row.State = Deleting
	b.store.rows["~s"] = row
	check(t, "deleted", b.svc.RenameSession(as(t, owner), "s", "x"), fault.ChannelNotFound)
	b.store.script(func(_ context.Context, call string) error {
		if call == "SetTitle" {
			return context.DeadlineExceeded
		}
		return nil
	}, nil)
	check(t, "an unknown outcome", b.svc.RenameSession(as(t, owner), "s", "x"), fault.OutcomeUnknown)
}

// Sessions are neither in the list of a user's channels nor among those that users share, and the
// list does not read past the first of them.
func TestSessionsAreNotListed(t *testing.T) {
	t.Parallel()
	b := setup(t)
	for _, id := range []string{"a", "b"} {
		if err := b.svc.OpenSession(t.Context(), id, "ada", ""); err != nil {
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
