package channel_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/parleyhq/parley/server/internal/channel"
	"github.com/parleyhq/parley/server/internal/fault"
	"github.com/parleyhq/parley/server/internal/ident"
	"github.com/parleyhq/parley/server/internal/lifecycle/lifecycletest"
	"github.com/parleyhq/parley/server/internal/message"
	"github.com/parleyhq/parley/server/internal/store/embedded"
)

// switchRig is two nodes on one store. The second one receives no announcements of changes.
type switchRig struct {
	store           *embedded.Store
	channels        *channel.Service
	messages, other *message.Service
	appender        *failingAppender
}

// failingAppender fails appends of access entries with err.
type failingAppender struct {
	message.Appender
	err error
}

func (a *failingAppender) Append(ctx context.Context, drafts []message.Draft) []message.Outcome {
	if a.err != nil && drafts[0].Kind == message.KindAccess {
		return []message.Outcome{{Err: a.err}}
	}
	return a.Appender.Append(ctx, drafts)
}

func newSwitchRig(t *testing.T) *switchRig {
	t.Helper()
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
	r := &switchRig{store: store, appender: &failingAppender{Appender: w}}
	reader := func() *message.Reader { return message.NewReader(store, nil, id.Epoch, message.ReaderConfig{}) }
	access := channel.NewAccess(channel.AccessConfig{Store: store.Channels()})
	first := reader()
	r.messages = message.NewService(w, first, id, access)
	r.other = message.NewService(w, reader(), id, channel.NewAccess(channel.AccessConfig{Store: store.Channels()}))
	r.channels = channel.NewService(channel.ServiceConfig{
		Store: store.Channels(), Access: access, Log: first, Appender: r.appender, TypingPublisher: silence{}, Secret: id.Secret,
	})
	return r
}

func caller(t *testing.T, subject string, actions ...ident.Action) context.Context {
	t.Helper()
	return ident.NewContext(t.Context(), &ident.Principal{Subject: subject, Channels: []ident.Capability{{
		Pattern: "*", Actions: append(actions, ident.Send, ident.History, ident.Subscribe),
	}}})
}

func (r *switchRig) update(t *testing.T, membersOnly bool) (channel.Row, error) {
	t.Helper()
	return r.channels.Update(caller(t, "boss", ident.Manage), channel.UpdateRequest{ChannelID: "room", MembersOnly: &membersOnly})
}

func (r *switchRig) head(t *testing.T) message.Head {
	t.Helper()
	h, err := r.store.Head(t.Context(), "room")
	if err != nil {
		t.Fatal(err)
	}
	return h
}

// Once UpdateChannel has closed a channel, a node that still remembers it as open stores nothing of
// strangers and shows them no later entry, and serves members. Opening lets strangers in again.
func TestCloseAndOpenAChannel(t *testing.T) {
	t.Parallel()
	r := newSwitchRig(t)
	ann, eve := caller(t, "ann"), caller(t, "eve")
	send := func(s *message.Service, ctx context.Context) error {
		_, err := s.Send(ctx, message.SendRequest{ChannelID: "room", Content: "x"})
		return err
	}
	for _, s := range []*message.Service{r.messages, r.other} {
		for _, ctx := range []context.Context{ann, eve} {
			if err := send(s, ctx); err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := r.store.Channels().AddMembers(t.Context(), "room", []string{"ann"}, time.Now()); err != nil {
		t.Fatal(err)
	}
	before := r.head(t)
	row, err := r.update(t, true)
	if err != nil || !row.MembersOnly || row.Rev != 1 {
		t.Fatalf("%+v, %v", row, err)
	}
	if h := r.head(t); h.Seq != before.Seq+1 || h.Count != before.Count || h.Rev != 1 {
		t.Fatalf("head %+v after %+v", h, before)
	}
	if err := send(r.other, eve); !fault.Is(err, fault.NotMember) {
		t.Fatalf("a stranger sends: %v", err)
	}
	for _, s := range []*message.Service{r.messages, r.other} {
		if err := send(s, ann); err != nil {
			t.Fatalf("a member sends: %v", err)
		}
		if _, err := s.List(eve, message.ListQuery{ChannelID: "room"}); !fault.Is(err, fault.NotMember) {
			t.Fatalf("a stranger lists: %v", err)
		}
		if page, err := s.List(ann, message.ListQuery{ChannelID: "room"}); err != nil || len(page.Messages) < 5 {
			t.Fatalf("a member lists: %d, %v", len(page.Messages), err)
		}
	}
	if _, err := r.update(t, true); err != nil { // a repeat appends nothing
		t.Fatal(err)
	}
	if h := r.head(t); h.Seq != before.Seq+3 {
		t.Fatalf("head %+v after a repeat", h)
	}
	if row, err := r.update(t, false); err != nil || row.MembersOnly || row.Rev != 2 {
		t.Fatalf("%+v, %v", row, err)
	}
	for _, s := range []*message.Service{r.messages, r.other} {
		if err := send(s, ann); err != nil {
			t.Fatal(err)
		}
	}
	if err := send(r.messages, eve); err != nil {
		t.Fatalf("a stranger sends to an open channel: %v", err)
	}
}

// The access entry of a call that ended between its two steps is appended by a repeat. The call
// that ended did not succeed.
func TestRepeatedUpdateAppendsTheMissingAccessEntry(t *testing.T) {
	t.Parallel()
	r := newSwitchRig(t)
	if _, err := r.messages.Send(caller(t, "ann"), message.SendRequest{ChannelID: "room", Content: "x"}); err != nil {
		t.Fatal(err)
	}
	r.appender.err = errors.New("away")
	if _, err := r.update(t, true); !fault.Is(err, fault.OutcomeUnknown) {
		t.Fatalf("without an access entry: %v", err)
	}
	if h := r.head(t); h.Seq != 1 {
		t.Fatalf("head %+v", h)
	}
	r.appender.err = nil
	if _, err := r.update(t, true); err != nil {
		t.Fatal(err)
	}
	if h := r.head(t); h.Seq != 2 || h.Rev != 1 {
		t.Fatalf("head %+v", h)
	}
}

// The first entry of a channel that was created closed has revision 1, and no entry marks it.
func TestClosedChannelsBeginWithRevisionOne(t *testing.T) {
	t.Parallel()
	r := newSwitchRig(t)
	boss := caller(t, "boss", ident.Manage)
	if _, _, err := r.channels.Create(boss, channel.CreateRequest{ChannelID: "room", MembersOnly: true}); err != nil {
		t.Fatal(err)
	}
	if _, err := r.update(t, true); err != nil { // changes nothing
		t.Fatal(err)
	}
	sent, err := r.other.Send(boss, message.SendRequest{ChannelID: "room", Content: "x"})
	if err != nil || sent.Seq != 1 || r.head(t).Rev != 1 {
		t.Fatalf("%+v, %v, head %+v", sent, err, r.head(t))
	}
}
