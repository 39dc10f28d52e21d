package natsbus

import (
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/parleyhq/parley/server/internal/message"
	"github.com/parleyhq/parley/server/internal/testkit"
)

func TestTypingReachesSubscribersOfTheChannelOnly(t *testing.T) {
	t.Parallel()
	url := testkit.NATS(t).URL()
	bus, peer := connect(t, Config{URL: url}), connect(t, Config{URL: url})
	room, other := make(chan string, 16), make(chan string, 16)
	ignore := func(message.Event) { t.Error("typing came as an event") }
	cancel, err := bus.Subscribe("room", ignore, func(userID string) { room <- userID })
	if err != nil {
		t.Fatal(err)
	}
	if _, err := bus.Subscribe("other", ignore, func(userID string) { other <- userID }); err != nil {
		t.Fatal(err)
	}
	users := []string{"auth0|42", "a.b*c>d", "ann@example.org", strings.Repeat("~", 128)}
	for _, user := range users {
		if err := peer.PublishTyping("room", user); err != nil {
			t.Fatal(err)
		}
	}
	var got []string
	for range users {
		got = append(got, <-room)
	}
	if diff := cmp.Diff(users, got); diff != "" {
		t.Error(diff)
	}
	for _, user := range []string{"", "a b", "a\n", "é", "\x7f", strings.Repeat("x", 129)} {
		if err := peer.PublishTyping("room", user); err == nil {
			t.Errorf("user id %q was published", user)
		}
		// A client that bypasses PublishTyping is ignored as well.
		if err := peer.nc.Publish("parley.typing.room", []byte(user)); err != nil {
			t.Fatal(err)
		}
	}
	if err := peer.PublishTyping("room", "end"); err != nil {
		t.Fatal(err)
	}
	if user := <-room; user != "end" {
		t.Errorf("%q came through", user)
	}
	for _, channelID := range []string{"", "*", ">", "a.b", "a b", strings.Repeat("x", 129)} {
		if err := peer.PublishTyping(channelID, "ann"); err == nil {
			t.Errorf("published to channel %q", channelID)
		}
	}
	subscriptions := bus.nc.NumSubscriptions()
	cancel()
	if n := subscriptions - bus.nc.NumSubscriptions(); n != 2 {
		t.Errorf("cancel ended %d subscriptions", n)
	}
	if err := peer.PublishTyping("room", "late"); err != nil {
		t.Fatal(err)
	}
	if err := peer.PublishTyping("other", "last"); err != nil {
		t.Fatal(err)
	}
	if user := <-other; user != "last" {
		t.Errorf("another channel's subscriber got %q", user)
	}
	select {
	case user := <-room:
		t.Errorf("got %q", user)
	default:
	}
	if stream, err := bus.js.Stream(t.Context(), streamName); err != nil || stream.CachedInfo().State.Msgs != 0 {
		t.Errorf("the stream keeps who types (%v)", err)
	}
}

func TestTypingIsNotStored(t *testing.T) {
	t.Parallel()
	server := testkit.NATS(t)
	bus := connect(t, Config{URL: server.URL()})
	got := make(chan string, 16)
	if _, err := bus.Subscribe("room", func(message.Event) {}, func(userID string) { got <- userID }); err != nil {
		t.Fatal(err)
	}
	server.Stop()
	testkit.Eventually(t, patience, func() error {
		if err := bus.PublishTyping("room", "early"); err == nil {
			return errors.New("published without a server")
		}
		return nil
	})
	server.Start()
	testkit.Eventually(t, patience, func() error { return bus.PublishTyping("room", "late") })
	if user := <-got; user != "late" {
		t.Errorf("got %q", user)
	}
}
