package mongostore_test

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/parleyhq/parley/server/internal/channel"
	"github.com/parleyhq/parley/server/internal/store/mongostore"
	"github.com/parleyhq/parley/server/internal/testkit"
)

// wokenClub is a channel whose members change while a primary is suspended.
type wokenClub struct {
	truth *mongostore.Channels
	place channel.Stamp
}

const clubID = "club"

// newWokenClub creates the channel. bob is a member, ann is not.
func newWokenClub(t *testing.T, s *mongostore.Store) *wokenClub {
	t.Helper()
	w := &wokenClub{truth: s.Channels()}
	row := channel.Row{ChannelID: clubID, MembersOnly: true, CreatedAt: time.UnixMilli(0).UTC()}
	if _, err := w.truth.Create(t.Context(), row, []string{"bob", "cem"}); err != nil {
		t.Fatal(err)
	}
	_, place, err := w.truth.Changes(t.Context(), channel.Stamp{})
	if err != nil {
		t.Fatal(err)
	}
	w.place = place
	return w
}

// change makes the changes that the suspended primary misses: ann joins, bob is removed, and the
// log advances to head.
func (w *wokenClub) change(t *testing.T, head int64) {
	t.Helper()
	testkit.Eventually(t, time.Minute, func() error {
		ctx := t.Context()
		if err := w.truth.AddMembers(ctx, clubID, []string{"ann"}, time.UnixMilli(1)); err != nil {
			return err
		}
		if err := w.truth.RemoveMembers(ctx, clubID, []string{"bob", "cem"}, 1); err != nil {
			return err
		}
		return w.truth.Advance(ctx, []channel.Advance{{ChannelID: clubID, Numbers: channel.Numbers{Head: head}}}, time.UnixMilli(1))
	})
}

// calls returns calls of s by name. Each returns all if the answer is up to date, and less if it is
// stale. s should be a store that has received no answers since the change.
func (w *wokenClub) calls(s *mongostore.Store, all int64) map[string]func(context.Context) (int64, error) {
	c := s.Channels()
	truly := func(ok bool) int64 {
		if ok {
			return all
		}
		return 0
	}
	is := func(id string) func(channel.Member) bool {
		return func(m channel.Member) bool { return m.UserID == id }
	}
	return map[string]func(context.Context) (int64, error){
		"Rows": func(ctx context.Context) (int64, error) {
			rows, err := c.Rows(ctx, []string{clubID})
			return rows[clubID].Head, err
		},
		"Members": func(ctx context.Context) (int64, error) {
			found, err := c.Members(ctx, clubID, "", 10)
			return truly(slices.ContainsFunc(found, is("ann")) && !slices.ContainsFunc(found, is("bob"))), err
		},
		"Memberships": func(ctx context.Context) (int64, error) {
			found, err := c.Memberships(ctx, "bob", "", 10)
			return truly(len(found) == 0), err
		},
		"MembersOf": func(ctx context.Context) (int64, error) {
			found, err := c.MembersOf(ctx, "bob", []string{clubID})
			return truly(len(found) == 0), err
		},
		"MarkRead": func(ctx context.Context) (int64, error) {
			_, ok, err := c.MarkRead(ctx, clubID, "ann", channel.Cursor{}, false, time.UnixMilli(2))
			return truly(ok), err
		},
		"Changes": func(ctx context.Context) (int64, error) {
			changed, _, err := c.Changes(ctx, w.place)
			return truly(slices.ContainsFunc(changed, func(c channel.Change) bool { return slices.Contains(c.UserIDs, "bob") })), err
		},
		"StoredEpoch": func(ctx context.Context) (int64, error) {
			_, err := s.StoredEpoch(ctx)
			return all, err
		},
		// On the suspended primary cem still is a member, so the update would change nothing.
		"AddMembers": func(ctx context.Context) (int64, error) {
			if err := c.AddMembers(ctx, clubID, []string{"cem"}, time.UnixMilli(3)); err != nil {
				return 0, err
			}
			found, err := w.truth.MembersOf(context.WithoutCancel(ctx), "cem", []string{clubID})
			if err != nil {
				return 0, fmt.Errorf("look at the truth: %w", err)
			}
			return truly(len(found) == 1), nil
		},
	}
}
