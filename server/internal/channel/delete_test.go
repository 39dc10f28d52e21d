package channel_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/parleyhq/parley/server/internal/channel"
	"github.com/parleyhq/parley/server/internal/fault"
	"github.com/parleyhq/parley/server/internal/ident"
	"github.com/parleyhq/parley/server/internal/message"
	"github.com/parleyhq/parley/server/internal/testkit"
)

func (r *switchRig) row(t *testing.T) channel.Row {
	t.Helper()
	rows, err := r.store.Channels().Rows(t.Context(), []string{"room"})
	if err != nil {
		t.Fatal(err)
	}
	return rows["room"]
}

// finishDelete does what a Trimmer does with a channel that is Deleting.
func (r *switchRig) finishDelete(t *testing.T) {
	t.Helper()
	c := r.store.Channels()
	if _, err := c.DropMembers(t.Context(), "room", 100); err != nil {
		t.Fatal(err)
	}
	if err := r.store.Clear(t.Context(), "room", 0, r.row(t).Oldest); err != nil {
		t.Fatal(err)
	}
	if err := c.FinishDelete(t.Context(), "room"); err != nil {
		t.Fatal(err)
	}
}

// Once DeleteChannel has returned, no node stores anything for the channel or returns anything of
// it, not even a node that was not told, nor for holders of manage. It can be created anew.
func TestDeleteAndCreateAChannel(t *testing.T) {
	t.Parallel()
	r := newSwitchRig(t)
	boss, ann := caller(t, "boss", ident.Manage), caller(t, "ann")
	send := func(s *message.Service, ctx context.Context, key string) (message.Receipt, error) {
		return s.Send(ctx, message.SendRequest{ChannelID: "room", Content: "secret", ClientMsgID: key})
	}
	list := func(s *message.Service, ctx context.Context) (int, error) {
		page, err := s.List(ctx, message.ListQuery{ChannelID: "room"})
		return len(page.Messages), err
	}
	var sent message.Receipt
	for _, s := range []*message.Service{r.messages, r.other} {
		for _, ctx := range []context.Context{boss, ann} {
			var err error
			if sent, err = send(s, ctx, ""); err != nil {
				t.Fatal(err)
			}
			if n, err := list(s, ctx); n == 0 || err != nil {
				t.Fatalf("listed %d, %v", n, err)
			}
		}
	}
	if _, err := send(r.messages, ann, "again"); err != nil {
		t.Fatal(err)
	}
	if err := r.channels.Delete(ann, "room", ""); !fault.Is(err, fault.NotMember) && !fault.Is(err, fault.CapabilityMissing) {
		t.Fatalf("without manage: %v", err)
	}
	if err := r.channels.Delete(boss, "room", "other"); !fault.Is(err, fault.EtagMismatch) {
		t.Fatalf("with another etag: %v", err)
	}
	before, row := r.head(t), r.row(t)
	for range 2 { // a repeat does nothing
		if err := r.channels.Delete(boss, "room", ""); err != nil {
			t.Fatal(err)
		}
	}
	if h := r.head(t); h.Seq != before.Seq+1 || h.Rev != 1 || h.Oldest != h.Seq+1 || h.Expired != before.Count {
		t.Fatalf("head %+v after %+v", h, before)
	}
	gone := func(what string, err error) {
		t.Helper()
		if !fault.Is(err, fault.ChannelNotFound) {
			t.Errorf("%s: %v", what, err)
		}
	}
	check := func() {
		t.Helper()
		for name, s := range map[string]*message.Service{"this node": r.messages, "other node": r.other} {
			for who, ctx := range map[string]context.Context{"boss": boss, "ann": ann} {
				_, err := send(s, ctx, "")
				gone(name+": send by "+who, err)
				_, err = list(s, ctx)
				gone(name+": list by "+who, err)
				_, _, err = s.Edit(ctx, message.EditRequest{ChannelID: "room", MsgID: sent.MsgID, Content: "x"})
				gone(name+": edit by "+who, err)
			}
		}
		_, err := r.channels.Get(boss, "room")
		gone("get", err)
		_, err = r.update(t, true)
		gone("update", err)
		gone("add members", r.channels.AddMembers(boss, "room", []string{"eve"}))
		gone("set role", r.channels.UpdateMember(boss, "room", "eve", channel.Owner))
		_, err = r.channels.Members(boss, "room", 0, "")
		gone("members", err)
		_, _, err = r.channels.MarkRead(ann, "room", 1)
		gone("mark read", err)
		if page, err := r.channels.UserChannels(ann, 0, ""); err != nil || len(page.Channels) > 0 {
			t.Errorf("channels of a user: %+v, %v", page.Channels, err)
		}
	}
	check()
	create := channel.CreateRequest{ChannelID: "room", MembersOnly: true, UserIDs: []string{"cem"}}
	if _, _, err := r.channels.Create(boss, create); !fault.Is(err, fault.ChannelDeleting) {
		t.Fatalf("create too early: %v", err)
	}
	r.finishDelete(t)
	check()
	if err := r.channels.Delete(boss, "room", ""); err != nil {
		t.Fatalf("delete a deleted channel: %v", err)
	}
	made, _, err := r.channels.Create(boss, create)
	if err != nil || made.State != channel.Live || made.Rev != row.Rev+2 || made.Etag() == row.Etag() {
		t.Fatalf("%+v, %v", made, err)
	}
	if err := r.channels.Delete(boss, "room", row.Etag()); !fault.Is(err, fault.EtagMismatch) {
		t.Fatalf("a late deletion of the former channel: %v", err)
	}
	if _, err := send(r.other, ann, ""); !fault.Is(err, fault.NotMember) {
		t.Fatalf("a member of the former channel sends: %v", err)
	}
	got, err := send(r.other, caller(t, "cem"), "again")
	if err != nil || got.Duplicate || got.Seq != before.Seq+2 || got.Count != before.Count+1 {
		t.Fatalf("%+v, %v", got, err)
	}
	for _, s := range []*message.Service{r.messages, r.other} {
		page, err := s.List(boss, message.ListQuery{ChannelID: "room", MinSeq: got.Seq})
		if err != nil || len(page.Messages) != 1 {
			t.Fatalf("listed %+v, %v", page, err)
		}
	}
	after := int64(1)
	testkit.Eventually(t, 10*time.Second, func() error { // the boundary may be known a second late
		if _, err := r.messages.List(boss, message.ListQuery{ChannelID: "room", After: &after}); !fault.Is(err, fault.HistoryGone) {
			return fmt.Errorf("from a position in the former channel: %w", err)
		}
		return nil
	})
}

// A deletion whose node could not end the log is completed by a repeat of the call, or by EndLog.
// Until then nobody can use the channel either.
func TestInterruptedDelete(t *testing.T) {
	t.Parallel()
	r := newSwitchRig(t)
	boss := caller(t, "boss", ident.Manage)
	send := func() error {
		_, err := r.messages.Send(boss, message.SendRequest{ChannelID: "room", Content: "x"})
		return err
	}
	if err := send(); err != nil {
		t.Fatal(err)
	}
	r.appender.err = errors.New("away")
	if err := r.channels.Delete(boss, "room", ""); !fault.Is(err, fault.OutcomeUnknown) {
		t.Fatalf("without an end: %v", err)
	}
	if err := send(); !fault.Is(err, fault.ChannelNotFound) {
		t.Fatalf("send: %v", err)
	}
	if h := r.head(t); h.Seq != 1 || h.Oldest != 0 {
		t.Fatalf("head %+v", h)
	}
	r.appender.err = nil
	row := r.row(t)
	for range 2 {
		if end, err := channel.EndLog(t.Context(), r.store.Channels(), r.appender, &row, time.Now()); end.Oldest != 3 || end.At.IsZero() || err != nil {
			t.Fatalf("end %+v, %v", end, err)
		}
	}
	if h := r.head(t); h.Seq != 2 || h.Oldest != 3 || h.Expired != 1 {
		t.Fatalf("head %+v", h)
	}
	r.finishDelete(t)
	if _, _, err := r.channels.Create(boss, channel.CreateRequest{ChannelID: "room"}); err != nil {
		t.Fatal(err)
	}
	if err := send(); err != nil {
		t.Fatal(err)
	}
	// A node that still has the former row does nothing.
	if end, err := channel.EndLog(t.Context(), r.store.Channels(), r.appender, &row, time.Now()); end != (channel.LogEnd{}) || err != nil {
		t.Fatalf("end %+v, %v", end, err)
	}
	if h := r.head(t); h.Seq != 3 || h.Oldest != 3 {
		t.Fatalf("head %+v", h)
	}
}

// Holders of manage by membership need the role of an owner.
func TestOwnersDeleteChannels(t *testing.T) {
	t.Parallel()
	r := newSwitchRig(t)
	as := func(subject string) context.Context {
		return ident.NewContext(t.Context(), &ident.Principal{Subject: subject, Members: []ident.Capability{{
			Pattern: "*", Actions: []ident.Action{ident.Manage, ident.Send, ident.History},
		}}})
	}
	if _, _, err := r.channels.Create(caller(t, "ann", ident.Manage), channel.CreateRequest{ChannelID: "room", UserIDs: []string{"bob"}}); err != nil {
		t.Fatal(err)
	}
	if err := r.channels.Delete(as("eve"), "room", ""); !fault.Is(err, fault.NotMember) {
		t.Fatalf("by a stranger: %v", err)
	}
	if err := r.channels.Delete(as("bob"), "room", ""); !fault.Is(err, fault.CapabilityMissing) {
		t.Fatalf("by a member: %v", err)
	}
	row := r.row(t)
	if err := r.channels.Delete(as("ann"), "room", row.Etag()); err != nil {
		t.Fatalf("by its owner: %v", err)
	}
	if _, err := r.messages.Send(as("bob"), message.SendRequest{ChannelID: "room", Content: "x"}); !fault.Is(err, fault.NotMember) {
		t.Fatalf("a former member sends: %v", err)
	}
	if err := r.channels.Delete(caller(t, "ann", ident.Manage), "never", ""); !fault.Is(err, fault.ChannelNotFound) {
		t.Fatalf("a channel that never was: %v", err)
	}
}
