package storetest

import (
	"fmt"
	"slices"
	"testing"

	"golang.org/x/sync/errgroup"

	"github.com/parleyhq/parley/server/internal/channel"
)

var lostChannelContracts = []channelContract{
	{"ChangesBeginNow", changesBegin},
	{"ChangesReportRemovedMembers", changesReportRemovals},
	{"ChangesIncludeConcurrentRemovals", changesRace},
}

func (c *channels) changes(t tester, after channel.Stamp) ([]channel.Change, channel.Stamp) {
	t.Helper()
	changed, next, err := c.Changes(t.Context(), after)
	must(t, err)
	if next == (channel.Stamp{}) {
		t.Fatalf("the next place is the zero place")
	}
	return changed, next
}

// hasChange reports whether changes concern a user of a channel.
func hasChange(changed []channel.Change, id, userID string) bool {
	return slices.ContainsFunc(changed, func(c channel.Change) bool {
		return c.ChannelID == id && (len(c.UserIDs) == 0 || slices.Contains(c.UserIDs, userID))
	})
}

func changesBegin(t *testing.T, c *channels) {
	if changed, _ := c.changes(t, channel.Stamp{}); len(changed) > 0 {
		t.Fatalf("changes of a new store: %v", changed)
	}
	c.create(t, "club", "ann")
	must(t, c.RemoveMembers(t.Context(), "club", []string{"ann"}, 1))
	changed, place := c.changes(t, channel.Stamp{})
	if len(changed) > 0 {
		t.Fatalf("changes from the zero place: %v", changed)
	}
	must(t, c.RemoveMembers(t.Context(), "club", []string{"ann", "bob"}, 2))
	if changed, _ = c.changes(t, place); !hasChange(changed, "club", "bob") {
		t.Fatalf("changes from the first place: %v", changed)
	}
}

func changesReportRemovals(t *testing.T, c *channels) {
	_, start := c.changes(t, channel.Stamp{})
	// These remove nobody's access.
	c.ensure(t, "lobby", 1)
	_, err := c.Create(t.Context(), channel.Row{ChannelID: "square", CreatedAt: at(1)}, []string{"ann"})
	must(t, err)
	must(t, c.AddMembers(t.Context(), "lobby", []string{"ann", "bob", "$cem"}, at(2)))
	c.advance(t, 3, sent("lobby", "ann", 1))
	c.mark(t, "lobby", "ann", channel.Cursor{Seq: 1, Count: 1}, true, 4)
	changed, place := c.changes(t, start)
	if len(changed) > 0 {
		t.Fatalf("changes: %v", changed)
	}
	must(t, c.RemoveMembers(t.Context(), "lobby", []string{"ann", "$cem"}, 1))
	for _, after := range []channel.Stamp{start, place} {
		changed, _ = c.changes(t, after)
		if !hasChange(changed, "lobby", "ann") || !hasChange(changed, "lobby", "$cem") ||
			hasChange(changed, "lobby", "bob") || len(changed) != 1 {
			t.Fatalf("changes: %v", changed)
		}
	}
	_, place = c.changes(t, place)
	c.create(t, "club", "ann")
	for _, after := range []channel.Stamp{start, place} {
		if changed, _ = c.changes(t, after); !hasChange(changed, "club", "anyone") {
			t.Fatalf("changes: %v", changed)
		}
	}
	// A removal from a channel that has just been created is reported too.
	must(t, c.RemoveMembers(t.Context(), "club", []string{"ann"}, 0))
	if changed, _ = c.changes(t, start); !hasChange(changed, "club", "ann") || !hasChange(changed, "lobby", "ann") {
		t.Fatalf("changes: %v", changed)
	}
}

// changesRace runs concurrent removers and a follower, which calls Changes with the stamp of its
// previous call. When a call returns, it or an earlier one must have reported every removal that
// was acknowledged before the call began and after the first stamp was returned.
func changesRace(t *testing.T, c *channels) {
	const removers, rounds = 6, 12
	c.ensure(t, "lobby", 1)
	_, place := c.changes(t, channel.Stamp{})
	told := make(chan string, removers*rounds)
	var writers, followers errgroup.Group
	for w := range removers {
		writers.Go(func() error {
			for i := range rounds {
				id := fmt.Sprintf("user %d/%d", w, i)
				if err := c.RemoveMembers(t.Context(), "lobby", []string{id}, 1); err != nil {
					return err
				}
				told <- id
			}
			return nil
		})
	}
	followers.Go(func() error {
		seen := make(map[string]bool)
		for n := 0; n < removers*rounds; {
			ids := []string{<-told}
			for n++; len(told) > 0; n++ {
				ids = append(ids, <-told)
			}
			changed, next, err := c.Changes(t.Context(), place)
			if err != nil {
				return err
			}
			place = next
			for _, what := range changed {
				for _, id := range what.UserIDs {
					seen[id] = true
				}
			}
			for _, id := range ids {
				if !seen[id] {
					return fmt.Errorf("%s was removed, but Changes did not report it", id)
				}
			}
		}
		return nil
	})
	must(t, writers.Wait())
	must(t, followers.Wait())
}
