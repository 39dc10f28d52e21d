package storetest

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/parleyhq/parley/server/internal/channel"
	"github.com/parleyhq/parley/server/internal/ident"
)

var sessionContracts = []channelContract{
	{"SessionsAreInTheOrderOfTheirActivity", listSessions},
	{"ADeletedSessionIsNotCreatedAgain", deleteSession},
	{"OnlyCreateCreatesASession", noOpenSession},
	{"SessionsOfAForgottenUserAreNotListed", forgetSessions},
	{"SessionsHaveTitles", titleSessions},
}

func errOf[T any](_ T, err error) error { return err }

// session creates the session of an owner.
func (c *channels) session(t tester, id, ownerID string, n int64) channel.Row {
	t.Helper()
	row := channel.Row{ChannelID: ident.SessionChannel(id), MembersOnly: true, Rev: 1, CreatedBy: ownerID, CreatedAt: at(n)}
	got, err := c.Create(t.Context(), row, []string{ownerID})
	must(t, err)
	row.Active = at(n)
	same(t, "the session", row, got)
	same(t, "the session, read", row, c.row(t, row.ChannelID))
	return row
}

// wantSessions fails the test unless the list of an owner, in pages of each size, has these ids.
func (c *channels) wantSessions(t tester, ownerID string, ids ...string) {
	t.Helper()
	c.wantPages(t, "sessions of "+ownerID, ids, func(after channel.SessionPlace, limit int) ([]channel.Row, error) {
		return c.Sessions(t.Context(), ownerID, after, limit)
	})
}

// wantEvery is wantSessions for the sessions of all users.
func (c *channels) wantEvery(t tester, ids ...string) {
	t.Helper()
	c.wantPages(t, "all sessions", ids, func(after channel.SessionPlace, limit int) ([]channel.Row, error) {
		return c.EverySession(t.Context(), after, limit)
	})
}

func (c *channels) wantPages(t tester, what string, ids []string, read func(after channel.SessionPlace, limit int) ([]channel.Row, error)) {
	t.Helper()
	for size := 1; size <= len(ids)+1; size++ {
		var got []string
		for after := (channel.SessionPlace{}); ; {
			rows, err := read(after, size)
			must(t, err)
			for i := range rows {
				id, _ := ident.SessionOf(rows[i].ChannelID)
				got = append(got, id)
				same(t, "a row", c.row(t, rows[i].ChannelID), rows[i])
				after = channel.SessionPlace{Active: rows[i].Active, ChannelID: rows[i].ChannelID}
			}
			if len(rows) < size || len(got) > len(ids) {
				break
			}
		}
		same(t, fmt.Sprintf("%s in pages of %d", what, size), ids, got)
	}
}

// wantOwners fails the test unless the sessions with the ids have these owners.
func (c *channels) wantOwners(t tester, want map[string]string, ids ...string) {
	t.Helper()
	for i, id := range ids {
		ids[i] = ident.SessionChannel(id)
	}
	owners, err := c.Owners(t.Context(), ids)
	must(t, err)
	got := map[string]string{}
	for channelID, m := range owners {
		id, _ := ident.SessionOf(channelID)
		got[id] = m.UserID
		of, err := c.MembersOf(t.Context(), m.UserID, []string{channelID})
		must(t, err)
		same(t, "an owner", of[channelID], m)
	}
	same(t, "owners", want, got)
}

func listSessions(t *testing.T, c *channels) {
	c.wantSessions(t, "ann")
	c.create(t, "club", "ann")
	for i, id := range []string{"a", "b", "c", "d"} {
		c.session(t, id, "ann", int64(3+i/2)) // two have the same time
	}
	c.session(t, "other", "anna", 4)
	c.wantSessions(t, "ann", "c", "d", "a", "b")
	c.wantEvery(t, "c", "d", "other", "a", "b")
	c.wantOwners(t, map[string]string{"a": "ann", "other": "anna"}, "a", "other", "none")
	c.wantOwners(t, map[string]string{})
	active := func(id string, n int64) channel.Advance {
		move := sent(ident.SessionChannel(id), "ann", n)
		move.Active = at(n)
		return move
	}
	c.advance(t, 1, active("b", 20), active("a", 2)) // the latter is before its creation
	c.wantSessions(t, "ann", "b", "c", "d", "a")
	c.wantEvery(t, "b", "c", "d", "other", "a")
	c.advance(t, 1, active("a", 30), active("b", 2)) // late
	edits := active("d", 40)
	edits.Active = time.Time{}
	c.advance(t, 1, edits)
	c.wantSessions(t, "ann", "a", "b", "c", "d")
	c.wantEvery(t, "a", "b", "c", "d", "other")
	same(t, "its activity", at(30), c.row(t, ident.SessionChannel("a")).Active)
	move := sent("club", "ann", 50)
	move.Active = at(50)
	c.advance(t, 1, move)
	same(t, "activity of a channel", time.Time{}, c.row(t, "club").Active)
}

func deleteSession(t *testing.T, c *channels) {
	row := c.session(t, "a", "ann", 1)
	c.session(t, "b", "ann", 2)
	deleted, err := c.Delete(t.Context(), row.ChannelID, 0, at(3))
	must(t, err)
	same(t, "activity of a deleted session", time.Time{}, deleted.Active)
	move := sent(row.ChannelID, "ann", 9)
	move.Active = at(9)
	c.advance(t, 4, move)
	c.wantSessions(t, "ann", "b")
	c.wantEvery(t, "b")
	must(t, c.FinishDelete(t.Context(), row.ChannelID))
	for _, key := range []string{"", "key"} {
		again := channel.Row{ChannelID: row.ChannelID, MembersOnly: true, CreatedBy: "eve", CreatedAt: at(5), CreateKey: key}
		got, err := c.Create(t.Context(), again, []string{"eve"})
		if !errors.Is(err, channel.ErrExists) || got.State != channel.Deleted || got.CreatedBy != "ann" {
			t.Fatalf("created again: %+v, %v", got, err)
		}
	}
	c.wantSessions(t, "ann", "b")
	c.wantSessions(t, "eve")
	c.wantEvery(t, "b")
}

func forgetSessions(t *testing.T, c *channels) {
	c.session(t, "a", "ann", 1)
	c.session(t, "b", "ben", 1)
	must(t, c.RemoveMembers(t.Context(), ident.SessionChannel("a"), []string{"ann"}, 0))
	must(t, errOf(c.Forget(t.Context(), "ann", 10)))
	c.wantSessions(t, "ann")
	move := sent(ident.SessionChannel("a"), "ann", 5)
	move.Active = at(5)
	c.advance(t, 2, move)
	c.wantSessions(t, "ann")
	c.wantSessions(t, "")
	c.wantSessions(t, "ben", "b")
	c.wantEvery(t, "b")
	c.wantOwners(t, map[string]string{"b": "ben"}, "a", "b")
	same(t, "activity of a forgotten user", time.Time{}, c.row(t, ident.SessionChannel("a")).Active)
}

func titleSessions(t *testing.T, c *channels) {
	id := ident.SessionChannel("a")
	if err := c.SetTitle(t.Context(), id, "x"); !errors.Is(err, channel.ErrNotFound) {
		t.Fatalf("the title of no session: %v", err)
	}
	row := channel.Row{ChannelID: id, MembersOnly: true, Rev: 1, CreatedBy: "ann", CreatedAt: at(1), Title: "Grüße"}
	got, err := c.Create(t.Context(), row, []string{"ann"})
	must(t, err)
	row.Active = at(1)
	same(t, "created", row, got)
	again := row
	again.Title = "other"
	if got, err = c.Create(t.Context(), again, []string{"ann"}); !errors.Is(err, channel.ErrExists) {
		t.Fatalf("created again: %v", err)
	}
	same(t, "created again", row, got)
	b := c.session(t, "b", "ann", 2)
	for _, title := range []string{"Grüße", "two", "two", "", "", "three"} {
		must(t, c.SetTitle(t.Context(), id, title))
		row.Title = title
		c.reopen(t)
		same(t, "titled", row, c.row(t, id))
		same(t, "another session", b, c.row(t, b.ChannelID))
		c.wantSessions(t, "ann", "b", "a")
	}
	deleted, err := c.Delete(t.Context(), id, 0, at(3))
	must(t, err)
	same(t, "title of a deleted session", "", deleted.Title)
	for range 2 {
		if err := c.SetTitle(t.Context(), id, "late"); !errors.Is(err, channel.ErrNotFound) {
			t.Fatalf("the title of a deleted session: %v", err)
		}
		same(t, "title of a deleted session, read", "", c.row(t, id).Title)
		must(t, c.FinishDelete(t.Context(), id))
	}
	must(t, c.SetTitle(t.Context(), b.ChannelID, "of ann"))
	must(t, c.RemoveMembers(t.Context(), b.ChannelID, []string{"ann"}, 0))
	must(t, errOf(c.Forget(t.Context(), "ann", 10)))
	same(t, "title of a forgotten user", "", c.row(t, b.ChannelID).Title)
}

func noOpenSession(t *testing.T, c *channels) {
	id := ident.SessionChannel("a")
	if row, err := c.Ensure(t.Context(), id, at(1)); !errors.Is(err, channel.ErrNotFound) {
		t.Fatalf("ensure: %+v, %v", row, err)
	}
	if cursor, ok, err := c.MarkRead(t.Context(), id, "eve", channel.Cursor{Seq: 1, Count: 1}, true, at(1)); err != nil || ok {
		t.Fatalf("mark: %+v, %v, %v", cursor, ok, err)
	}
	c.advance(t, 2, sent(id, "eve", 3))
	rows, err := c.Rows(t.Context(), []string{id})
	must(t, err)
	same(t, "rows", map[string]channel.Row{}, rows)
	row := c.session(t, "a", "ann", 4)
	got, err := c.Ensure(t.Context(), id, at(5))
	must(t, err)
	same(t, "ensure", row, got)
	if _, ok, err := c.MarkRead(t.Context(), id, "eve", channel.Cursor{Seq: 1, Count: 1}, true, at(5)); err != nil || ok {
		t.Fatalf("a stranger marks: %v, %v", ok, err)
	}
	c.wantNone(t, id, "eve")
}
