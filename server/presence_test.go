package server_test

import (
	"context"
	"testing"
	"time"

	"connectrpc.com/connect"

	parleyv1 "github.com/parleyhq/parley/gen/go/parley/v1"
	"github.com/parleyhq/parley/server/config"
	"github.com/parleyhq/parley/server/internal/ident"
	"github.com/parleyhq/parley/server/servertest"
)

// With presence.watch: shared_channel, users are refused the presence of those with whom they share
// no members-only channel.
func TestWatchOfStrangers(t *testing.T) {
	t.Parallel()
	s := servertest.Dev(t, servertest.With(func(c *config.Config) { c.Presence.Watch = config.WatchSharedChannel }))
	_, err := s.Client(s.Token).CreateChannel(t.Context(), &parleyv1.CreateChannelRequest{
		ChannelId: "club", MembersOnly: true, Members: []*parleyv1.ChannelMember{{UserId: "ann"}, {UserId: "bob"}},
	})
	if err != nil {
		t.Fatal(err)
	}
	ann := s.Presence(s.MintAs(&ident.Principal{Subject: "ann", Presence: []ident.Action{ident.Watch}}, time.Hour))
	_, err = ann.GetPresence(t.Context(), &parleyv1.GetPresenceRequest{UserIds: []string{"bob", "ann", "cy"}})
	if err == nil {
		t.Fatal("ann reads the presence of cy")
	}
	d := detailOf(t, err)
	if d.GetReason() != parleyv1.ErrorReason_ERROR_REASON_NO_SHARED_CHANNEL || d.GetField() != "user_ids[2]" || connect.CodeOf(err) != connect.CodePermissionDenied {
		t.Errorf("%v, %v", err, d)
	}
	_, err = ann.UpdateWatch(t.Context(), &parleyv1.UpdateWatchRequest{StreamId: guessedStream, Add: []string{"bob"}})
	if d := detailOf(t, err); d.GetReason() != parleyv1.ErrorReason_ERROR_REASON_STREAM_NOT_FOUND {
		t.Errorf("watching bob: %v", err)
	}
}

// A Subscribe stream with presence begins on a real server, and continues after Disconnect.
func TestPresenceOnSubscribe(t *testing.T) {
	t.Parallel()
	s := servertest.Dev(t)
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	messages, presence := s.Client(s.Token), s.Presence(s.Token)
	stream, err := messages.Subscribe(ctx, &parleyv1.SubscribeRequest{
		Channels: []*parleyv1.ChannelPosition{{ChannelId: "room"}}, Presence: phone(func(r *parleyv1.ConnectRequest) { r.Watch = []string{"bob"} }),
	})
	if err != nil {
		t.Fatal(err)
	}
	defer stream.Close()
	if !stream.Receive() {
		t.Fatal(stream.Err())
	}
	id := stream.Msg().GetInfo().GetStreamId()
	if !stream.Receive() || stream.Msg().GetPresenceInfo().GetLoginToken() == "" || stream.Msg().GetPresenceInfo().GetConnectionId() == "" {
		t.Fatalf("second frame: %v, %v", stream.Msg(), stream.Err())
	}
	if _, err := presence.SetBackground(ctx, &parleyv1.SetBackgroundRequest{StreamId: id, Background: true}); err != nil {
		t.Error(err)
	}
	for range 2 {
		if _, err := presence.Disconnect(ctx, &parleyv1.DisconnectRequest{StreamId: id}); err != nil {
			t.Error(err)
		}
	}
	if _, err := messages.SendMessage(ctx, &parleyv1.SendMessageRequest{ChannelId: "room", Content: "hello"}); err != nil {
		t.Fatal(err)
	}
	for {
		if !stream.Receive() {
			t.Fatal(stream.Err())
		}
		for _, e := range stream.Msg().GetEvents().GetEvents() {
			if e.GetSent().GetContent() == "hello" {
				return
			}
		}
	}
}
