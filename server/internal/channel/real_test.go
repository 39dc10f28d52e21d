package channel_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/parleyhq/parley/server/internal/channel"
	"github.com/parleyhq/parley/server/internal/fault"
	"github.com/parleyhq/parley/server/internal/ident"
	"github.com/parleyhq/parley/server/internal/lifecycle/lifecycletest"
	"github.com/parleyhq/parley/server/internal/message"
	"github.com/parleyhq/parley/server/internal/store/embedded"
)

type silence struct{}

func (silence) PublishTyping(string, string) error { return nil }

// channel.Service and message.Service agree about members, messages and read positions on the
// embedded store: creation, sends, reading, removal.
func TestServicesOnARealStore(t *testing.T) {
	t.Parallel()
	store, err := embedded.Open(t.TempDir(), embedded.Config{Shards: 2})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), 5*time.Second)
		defer cancel()
		if err := store.Close(ctx); err != nil {
			t.Error(err)
		}
	})
	w := message.NewWriter(store, 2, message.WriterConfig{})
	lifecycletest.Start(t, w)
	id := store.Identity()
	reader := message.NewReader(store, nil, id.Epoch, message.ReaderConfig{})
	access := channel.NewAccess(channel.AccessConfig{Store: store.Channels()})
	messages := message.NewService(w, reader, id, access)
	channels := channel.NewService(channel.ServiceConfig{
		Store: store.Channels(), Access: access, Log: reader, Appender: w, TypingPublisher: silence{}, Secret: id.Secret,
	})
	as := func(subject string, actions ...ident.Action) context.Context {
		return ident.NewContext(t.Context(), &ident.Principal{Subject: subject, Channels: []ident.Capability{{
			Pattern: "*", Actions: append(actions, ident.Send, ident.History, ident.Subscribe),
		}}})
	}
	boss, ada, bob := as("boss", ident.Manage), as("ada"), as("bob")

	if _, _, err := channels.Create(boss, channel.CreateRequest{ChannelID: "team", MembersOnly: true, UserIDs: []string{"ada"}}); err != nil {
		t.Fatal(err)
	}
	var last message.Receipt
	for i := range 5 {
		if last, err = messages.Send(ada, message.SendRequest{ChannelID: "team", Content: fmt.Sprint(i)}); err != nil {
			t.Fatal(err)
		}
	}
	if _, _, err := messages.Edit(ada, message.EditRequest{ChannelID: "team", MsgID: last.MsgID, Content: "new"}); err != nil {
		t.Fatal(err)
	}
	if _, err := messages.Send(bob, message.SendRequest{ChannelID: "team", Content: "x"}); !fault.Is(err, fault.NotMember) {
		t.Errorf("a stranger sends: %v", err)
	}
	if _, err := messages.List(bob, message.ListQuery{ChannelID: "team"}); !fault.Is(err, fault.NotMember) {
		t.Errorf("a stranger reads: %v", err)
	}
	if _, err := messages.Send(bob, message.SendRequest{ChannelID: "hall", Content: "x"}); err != nil {
		t.Errorf("a first send: %v", err)
	}
	// The change feed would make this call.
	if err := store.Channels().Advance(t.Context(), []channel.Advance{
		{ChannelID: "team", Numbers: channel.Numbers{Head: 6, Count: 5, LastMessage: 5}, Senders: map[string]channel.Cursor{"ada": {Seq: 6, Count: 5}}},
		{ChannelID: "hall", Numbers: channel.Numbers{Head: 1, Count: 1, LastMessage: 1}, Senders: map[string]channel.Cursor{"bob": {Seq: 1, Count: 1}}},
	}, time.Now()); err != nil {
		t.Fatal(err)
	}
	if c, unread, err := channels.MarkRead(boss, "team", 2); err != nil || c != (channel.Cursor{Seq: 2, Count: 2}) || unread != 3 {
		t.Errorf("marked: %+v, %d unread, %v", c, unread, err)
	}
	if _, _, err := channels.MarkRead(boss, "team", 7); !fault.Is(err, fault.PositionOutOfRange) {
		t.Errorf("beyond the end: %v", err)
	}
	mine := func(ctx context.Context) (lines []string) {
		t.Helper()
		page, err := channels.UserChannels(ctx, 0, "")
		if err != nil {
			t.Fatal(err)
		}
		for _, c := range page.Channels {
			lines = append(lines, fmt.Sprintf("%s %d/%d read %d unread %d %s", c.Row.ChannelID, c.Row.Head, c.Row.Count, c.Read.Seq, c.Unread, c.LastMessage.Content))
		}
		return lines
	}
	for name, tc := range map[string]struct {
		ctx  context.Context
		want []string
	}{
		"boss": {boss, []string{"team 6/5 read 2 unread 3 new"}},
		"ada":  {ada, []string{"team 6/5 read 6 unread 0 new"}},
		"bob":  {bob, []string{"hall 1/1 read 1 unread 0 x"}},
	} {
		if diff := cmp.Diff(tc.want, mine(tc.ctx)); diff != "" {
			t.Errorf("%s: %s", name, diff)
		}
	}
	if err := channels.RemoveMembers(boss, "team", []string{"ada"}); err != nil {
		t.Fatal(err)
	}
	if _, err := messages.Send(ada, message.SendRequest{ChannelID: "team", Content: "x"}); !fault.Is(err, fault.NotMember) {
		t.Errorf("removed, she sends: %v", err)
	}
	if err := channels.RemoveMembers(bob, "hall", []string{"bob"}); err != nil {
		t.Fatal(err)
	}
	if got := append(mine(ada), mine(bob)...); len(got) != 0 {
		t.Errorf("having left: %v", got)
	}
}
