package server_test

import (
	"context"
	"testing"
	"time"

	parleyv1 "github.com/parleyhq/parley/gen/go/parley/v1"
	"github.com/parleyhq/parley/server/internal/ident"
	"github.com/parleyhq/parley/server/servertest"
)

// firstToken is for how long the tokens are valid with which the streams of these tests begin.
const firstToken = 15 * time.Second

// TestNewTokenOnALiveStream renews the token of a stream through another node. The stream outlives
// its first token, loses the channel that the new token does not allow, and ends with the last one.
func TestNewTokenOnALiveStream(t *testing.T) {
	t.Parallel()
	nodes := fleetOf(t, 2)
	allow := func(channels string, ttl time.Duration) string {
		return nodes[0].MintFor("ann", ttl, ident.Capability{Pattern: channels, Actions: user})
	}
	short := nodes[0].Client(allow("*", firstToken))
	s, control := subscribe(t, short, from("kept", 0), from("gone", 0)), subscribe(t, short)
	s.awaitState("kept")
	s.awaitState("gone")
	backend := nodes[1].Client(nodes[1].Mint("backend", user...))
	renew := func(token string) error {
		return callErr(nodes[1].Client(token).UpdateSubscription(t.Context(), &parleyv1.UpdateSubscriptionRequest{
			StreamId: s.streamID, RenewToken: true,
		}))
	}
	if reason, _ := reasonOf(renew(nodes[1].Mint("bob", user...))); reason != parleyv1.ErrorReason_ERROR_REASON_STREAM_NOT_FOUND {
		t.Errorf("another user's token: %v", reason)
	}
	if err := renew(allow("k*", time.Hour)); err != nil {
		t.Fatal(err)
	}
	awaitLost(t, s, "gone", patience)
	send(t, backend, "gone", "secret")
	awaitExpired(t, control)
	send(t, backend, "kept", "hello")
	s.await("kept", 0, 1)
	if got := s.entries("gone"); len(got) > 0 {
		t.Errorf("the stream has %d messages of a channel that its token does not allow", len(got))
	}
	if err := renew(allow("k*", time.Second)); err != nil {
		t.Fatal(err)
	}
	awaitExpired(t, s)
}

// TestNoNewTokenOnAStreamWithPresence checks that a stream with presence keeps its token.
func TestNoNewTokenOnAStreamWithPresence(t *testing.T) {
	t.Parallel()
	s := servertest.Dev(t)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	c := s.Client(s.Token)
	stream, err := c.Subscribe(ctx, &parleyv1.SubscribeRequest{Channels: []*parleyv1.ChannelPosition{from("room", 0)}, Presence: phone(nil)})
	if err != nil {
		t.Fatal(err)
	}
	defer stream.Close()
	if !stream.Receive() {
		t.Fatal(stream.Err())
	}
	req := &parleyv1.UpdateSubscriptionRequest{StreamId: stream.Msg().GetInfo().GetStreamId(), RenewToken: true, Remove: []string{"room"}}
	if reason, _ := reasonOf(callErr(c.UpdateSubscription(ctx, req))); reason != parleyv1.ErrorReason_ERROR_REASON_INVALID_FIELD {
		t.Errorf("a new token: %v", reason)
	}
	send(t, c, "room", "hello")
	for stream.Receive() {
		for _, e := range stream.Msg().GetEvents().GetEvents() {
			if e.GetSent().GetContent() == "hello" {
				return
			}
		}
	}
	t.Fatal(stream.Err())
}

// awaitExpired waits until a stream ends because its token has expired.
func awaitExpired(t *testing.T, s *stream) {
	t.Helper()
	select {
	case <-s.ended:
	case <-time.After(time.Minute):
		t.Fatal("the stream does not end")
	}
	if reason, _ := reasonOf(s.err); reason != parleyv1.ErrorReason_ERROR_REASON_TOKEN_EXPIRED {
		t.Errorf("the stream ended with %v", s.err)
	}
}
