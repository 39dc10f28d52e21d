package server

import (
	"context"
	"slices"
	"testing"
	"time"

	"github.com/parleyhq/parley/server/internal/channel"
	"github.com/parleyhq/parley/server/internal/fault"
	"github.com/parleyhq/parley/server/internal/store/embedded"
)

// countingStore counts the reads of a store of channels.
type countingStore struct {
	channel.Store

	rows, counts int
}

func (c *countingStore) Rows(ctx context.Context, ids []string) (map[string]channel.Row, error) {
	c.rows++
	return c.Store.Rows(ctx, ids)
}

func (c *countingStore) CountMembers(ctx context.Context, id string) (int, error) {
	c.counts++
	return c.Store.CountMembers(ctx, id)
}

// The members of a members-only channel are read page by page. Only the first page reads the
// channel and counts the members, and it counts none if it has all. An open channel has no list of
// members.
func TestChannelMembers(t *testing.T) {
	t.Parallel()
	store, err := embedded.Open(t.TempDir(), embedded.Config{Shards: 1})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := store.Close(context.WithoutCancel(t.Context())); err != nil {
			t.Error(err)
		}
	})
	channels := store.Channels()
	for id, membersOnly := range map[string]bool{"club": true, "hall": false} {
		row := channel.Row{ChannelID: id, MembersOnly: membersOnly, CreatedAt: time.UnixMilli(1)}
		if _, err := channels.Create(t.Context(), row, []string{"ann", "bob", "cy"}); err != nil {
			t.Fatal(err)
		}
	}
	counting := &countingStore{Store: channels}
	m := channelMembers{counting}
	for _, tt := range []struct {
		after               string
		limit               int
		users               []string
		total, rows, counts int
	}{
		{"", 10, []string{"ann", "bob", "cy"}, 3, 1, 0},
		{"", 2, []string{"ann", "bob"}, 3, 1, 1},
		{"bob", 1, []string{"cy"}, 0, 0, 0},
		{"cy", 2, nil, 0, 0, 0},
	} {
		counting.rows, counting.counts = 0, 0
		users, total, err := m.Members(t.Context(), "club", tt.after, tt.limit)
		if err != nil || total != tt.total || counting.rows != tt.rows || counting.counts != tt.counts || !slices.Equal(users, tt.users) {
			t.Errorf("%d after %q: %q of %d, %v, with %d reads and %d counts", tt.limit, tt.after, users, total, err, counting.rows, counting.counts)
		}
	}
	for id, want := range map[string]fault.Reason{"hall": fault.ChannelOpen, "none": fault.ChannelNotFound} {
		_, _, err := m.Members(t.Context(), id, "", 10)
		if f, ok := fault.As(err); !ok || f.Reason != want || f.Field != "channel_id" {
			t.Errorf("%s: %v", id, err)
		}
	}
}
