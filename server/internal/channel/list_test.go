package channel

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/parleyhq/parley/server/internal/fault"
	"github.com/parleyhq/parley/server/internal/ident"
	"github.com/parleyhq/parley/server/internal/message"
)

// row puts a channel with the member bob into the store, with numbers as the change feed would
// write them.
func (b *serviceBundle) row(id string, n Numbers, c Cursor) {
	b.store.rows[id] = Row{ChannelID: id, Numbers: n}
	b.store.members[membership{id, "bob"}] = Member{ChannelID: id, UserID: "bob", Cursor: c}
}

// mine lists all pages of p's channels. It returns a line per channel, and the number of pages.
func (b *serviceBundle) mine(t *testing.T, p *ident.Principal, size int) (lines []string, pages int) {
	t.Helper()
	token := ""
	for {
		page, err := b.svc.UserChannels(as(t, p), size, token)
		if err != nil {
			t.Fatal(err)
		}
		for _, c := range page.Channels {
			line := fmt.Sprintf("%s %d/%d read %d unread %d", c.Row.ChannelID, c.Row.Head, c.Row.Count, c.Read.Seq, c.Unread)
			if c.LastMessage != nil {
				line += " " + c.LastMessage.Content
			}
			lines = append(lines, line)
		}
		pages++
		if token = page.NextPageToken; token == "" {
			return lines, pages
		}
		if len(page.Channels) == 0 {
			t.Fatal("an empty page is not the last")
		}
	}
}

func TestUserChannels(t *testing.T) {
	t.Parallel()
	b := setup(t)
	for _, id := range []string{"a", "b", "c", "d"} {
		for i := range 6 {
			b.log.send(id, fmt.Sprint(id, i+1))
		}
	}
	b.row("a", Numbers{6, 6, 6}, Cursor{4, 4})
	b.row("b", Numbers{4, 4, 4}, Cursor{6, 6})                                                        // the row is behind what bob marked
	b.row("c", Numbers{9, 6, 5}, Cursor{})                                                            // three edits
	b.row("d", Numbers{20, 15, 20}, Cursor{1, 1})                                                     // beyond the log, as after a restore
	b.row("e", Numbers{}, Cursor{})                                                                   // nothing sent yet
	b.store.members[membership{"f", "bob"}] = Member{ChannelID: "f", UserID: "bob"}                   // its row is gone
	b.store.members[membership{"g", "ada"}] = Member{ChannelID: "g", UserID: "ada"}                   // another user's
	b.store.rows["g"], b.store.rows["h"] = Row{ChannelID: "g"}, Row{ChannelID: "h", CreatedBy: "bob"} // bob left
	want := []string{
		"a 6/6 read 4 unread 2 a6",
		"b 6/6 read 6 unread 0 b4",
		"c 9/6 read 0 unread 6 c5",
		"d 20/15 read 1 unread 14",
		"e 0/0 read 0 unread 0",
	}
	for _, size := range []int{0, 1, 2, 5, 200} {
		got, pages := b.mine(t, bob, size)
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("pages of %d: %s", size, diff)
		}
		if size == 5 && pages != 1 || size == 2 && pages != 3 {
			t.Errorf("%d pages of %d", pages, size)
		}
	}
	// A token that covers some channels, and may read the history of one.
	some := &ident.Principal{Subject: "bob", Channels: []ident.Capability{
		{Pattern: "a", Actions: []ident.Action{ident.History}}, {Pattern: "c", Actions: []ident.Action{ident.SendAs}}, {Pattern: "d"},
	}}
	got, pages := b.mine(t, some, 2)
	if diff := cmp.Diff([]string{want[0], "c 9/6 read 0 unread 6"}, got); diff != "" || pages != 1 {
		t.Errorf("%d pages: %s", pages, diff)
	}
	_, err := b.svc.UserChannels(t.Context(), 0, "")
	check(t, "without a token", err, fault.TokenInvalid)
	p, err := b.svc.UserChannels(as(t, bob), 1, "")
	if err != nil {
		t.Fatal(err)
	}
	_, err = b.svc.UserChannels(as(t, ada), 1, p.NextPageToken)
	check(t, "another's page token", err, fault.PageTokenForeign)
	for _, call := range []string{"Memberships", "Rows", "MembersOf"} {
		b.store.script(func(_ context.Context, c string) error {
			if c == call {
				return errors.New("away")
			}
			return nil
		}, nil)
		_, err = b.svc.UserChannels(as(t, bob), 0, "")
		check(t, "with the store away in "+call, err, fault.StoreUnavailable)
	}
	b.store.script(nil, nil)
	b.log.err = fault.New(fault.Unavailable, fault.StoreUnavailable, "away")
	_, err = b.svc.UserChannels(as(t, bob), 0, "")
	check(t, "with the log away", err, fault.StoreUnavailable)
}

// A page is full even if hundreds of channels that the token does not cover come first.
func TestUserChannelsFillsPages(t *testing.T) {
	t.Parallel()
	b := setup(t)
	for i := range 1300 {
		id := fmt.Sprintf("x%04d", i)
		if i%400 == 399 {
			id = fmt.Sprintf("y%04d", i) // after all others
		}
		b.row(id, Numbers{}, Cursor{})
	}
	b.row("w", Numbers{}, Cursor{})
	some := &ident.Principal{Subject: "bob", Channels: []ident.Capability{
		{Pattern: "w", Actions: []ident.Action{ident.Send}}, {Pattern: "y*", Actions: []ident.Action{ident.Send}},
	}}
	for _, size := range []int{1, 2, 3, 4, 5} {
		page, err := b.svc.UserChannels(as(t, some), size, "")
		if err != nil || len(page.Channels) != min(size, 4) || (page.NextPageToken == "") != (size >= 4) {
			t.Errorf("a page of %d: %d channels, token %t, %v", size, len(page.Channels), page.NextPageToken != "", err)
		}
	}
	if page, err := b.svc.UserChannels(as(t, can("bob", "z*", ident.Send)), 1, ""); err != nil || len(page.Channels) != 0 || page.NextPageToken != "" {
		t.Errorf("covering none: %+v, %v", page, err)
	}
}

// Messages that a user sends during the listing are not unread: the cursor is moved before the row,
// and read after it.
func TestOwnMessagesAreNeverUnread(t *testing.T) {
	t.Parallel()
	for _, call := range []string{"Memberships", "Rows", "MembersOf"} {
		b := setup(t)
		b.log.send("a", "1")
		b.row("a", Numbers{1, 1, 1}, Cursor{1, 1})
		b.store.script(nil, func(ctx context.Context, c string) error {
			if c != call {
				return nil
			}
			b.store.script(nil, nil)
			b.log.send("a", "2")
			return b.store.Advance(ctx, []Advance{{
				ChannelID: "a", Numbers: Numbers{2, 2, 2}, Senders: map[string]Cursor{"bob": {2, 2}},
			}}, b.clock.now())
		})
		page, err := b.svc.UserChannels(as(t, bob), 0, "")
		if err != nil || len(page.Channels) != 1 || page.Channels[0].Unread != 0 {
			t.Errorf("sent after %s: %+v, %v", call, page.Channels, err)
		}
	}
}

// A channel from which the user is removed during the listing is omitted.
func TestUserChannelsOmitsLostRows(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.row("a", Numbers{}, Cursor{})
	b.store.script(nil, func(ctx context.Context, c string) error {
		if c == "Rows" {
			b.store.script(nil, nil)
			return b.store.RemoveMembers(ctx, "a", []string{"bob"}, 0)
		}
		return nil
	})
	if page, err := b.svc.UserChannels(as(t, bob), 0, ""); err != nil || len(page.Channels) != 0 {
		t.Errorf("%+v, %v", page, err)
	}
}

// A page ends before its last messages would exceed MaxPageBytes, and the next page continues
// there.
func TestUserChannelsLimitsPageSize(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.svc.cfg.MaxPageBytes = 100
	for i := range 7 {
		id := fmt.Sprint("c", i)
		b.log.send(id, strings.Repeat("x", 40))
		b.row(id, Numbers{1, 1, 1}, Cursor{})
	}
	b.log.logs["c3"][0].Content = strings.Repeat("y", 500)
	if got, pages := b.mine(t, bob, 200); len(got) != 7 || pages != 5 {
		t.Errorf("%d channels on %d pages", len(got), pages)
	}
}

// An expired last message is not shown, nor read.
func TestUserChannelsOmitsExpiredLastMessages(t *testing.T) {
	t.Parallel()
	b := setup(t)
	for i := range 3 {
		b.log.send("a", fmt.Sprint("a", i+1))
	}
	b.row("a", Numbers{3, 3, 3}, Cursor{1, 1})
	row := b.store.rows["a"]
	row.Boundary = message.Boundary{Oldest: 4, Expired: 3}
	b.store.rows["a"] = row
	got, _ := b.mine(t, bob, 0)
	if diff := cmp.Diff([]string{"a 3/3 read 1 unread 0"}, got); diff != "" || b.log.reads != 0 {
		t.Errorf("%d reads of messages: %s", b.log.reads, diff)
	}
}

// The last messages of a page are read together, and only about as many as the page has room for.
func TestUserChannelsReadsLastMessagesTogether(t *testing.T) {
	t.Parallel()
	b := setup(t)
	for i := range 100 {
		id := fmt.Sprintf("c%03d", i)
		b.log.send(id, strings.Repeat("x", 40))
		b.row(id, Numbers{1, 1, 1}, Cursor{})
	}
	if got, pages := b.mine(t, bob, 200); len(got) != 100 || pages != 1 || b.log.reads != 4 {
		t.Errorf("%d channels on %d pages took %d reads", len(got), pages, b.log.reads)
	}
	b.log.reads, b.svc.cfg.MaxPageBytes = 0, 100
	page, err := b.svc.UserChannels(as(t, bob), 200, "")
	if err != nil || len(page.Channels) != 2 || b.log.reads != 1 {
		t.Errorf("a page of %d channels took %d reads, %v", len(page.Channels), b.log.reads, err)
	}
}
