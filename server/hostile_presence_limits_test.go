package server_test

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"connectrpc.com/connect"

	parleyv1 "github.com/parleyhq/parley/gen/go/parley/v1"
	"github.com/parleyhq/parley/gen/go/parley/v1/parleyv1connect"
	"github.com/parleyhq/parley/server/config"
	"github.com/parleyhq/parley/server/internal/testkit"
)

// User ids that look like patterns or keys of the store are taken literally: each is its own user,
// and touches no other.
func TestHostileUserIDsAreLiteral(t *testing.T) {
	t.Parallel()
	g := attack(t, nil)
	odd := []string{"a:b", "*", "[a-z]?", "{p1}:meta", "log", `\`, "a", strings.Repeat("~", 128)}
	absent := []string{"b", "c", "x?", "ab", "**", "online", "{p1}"}
	var expected []string
	for name, opts := range options {
		reader := g.Presence(g.Token, opts...)
		var streams []*presenceStream
		for _, id := range odd {
			streams = append(streams, connectBy(t, g.Presence(presenceToken(g.Server, id), opts...), phone(nil)))
		}
		expected = slices.Sorted(slices.Values(odd))
		// Each state is read back under its own id, and nobody else is online.
		check := func(online []string) {
			t.Helper()
			testkit.Eventually(t, 20*time.Second, func() error {
				res, err := reader.GetPresence(t.Context(), &parleyv1.GetPresenceRequest{UserIds: append(slices.Clone(odd), absent...)})
				if err != nil {
					return err
				}
				var got []string
				for _, u := range res.GetPresence() {
					if len(u.GetPlatforms()) > 0 {
						got = append(got, u.GetUserId())
					}
				}
				list, err := reader.ListOnlineUsers(t.Context(), &parleyv1.ListOnlineUsersRequest{})
				if err != nil {
					return err
				}
				var listed []string
				for _, u := range list.GetPresence() {
					listed = append(listed, u.GetUserId())
				}
				slices.Sort(got)
				slices.Sort(listed)
				if !slices.Equal(got, online) || !slices.Equal(listed, online) {
					return fmt.Errorf("%s: online are %q, listed %q, want %q", name, got, listed, online)
				}
				return nil
			})
		}
		check(expected)
		watcher := connectBy(t, reader, watching("*"))
		watcher.shows("*", 5*time.Second, parleyv1.Platform_PLATFORM_IOS)
		if _, err := reader.Disconnect(t.Context(), &parleyv1.DisconnectRequest{StreamId: streams[0].id()}); err != nil {
			t.Errorf("%s: disconnecting another's stream: %v", name, err)
		}
		star := g.Presence(presenceToken(g.Server, "*"), opts...)
		if _, err := star.Disconnect(t.Context(), &parleyv1.DisconnectRequest{StreamId: streams[1].id()}); err != nil {
			t.Error(err)
		}
		watcher.shows("*", 5*time.Second)
		check(slices.DeleteFunc(slices.Clone(expected), func(id string) bool { return id == "*" }))
		if states := watcher.statesOf("a"); states != nil {
			t.Errorf("%s: a watch of * sends %v", name, states)
		}
		for i, s := range streams {
			_, _ = g.Presence(presenceToken(g.Server, odd[i]), opts...).Disconnect(t.Context(), &parleyv1.DisconnectRequest{StreamId: s.id()})
		}
		watcher.close()
		check(nil)
	}
}

// Streams, watched users and watched channels beyond the limits are refused in every dialect, and
// what there is stays.
func TestHostilePresenceLimits(t *testing.T) {
	t.Parallel()
	g := attack(t, func(c *config.Config) {
		c.Presence.ConnectionsPerSubject, c.Presence.Connections = 64, 70 // dev has no limit of a subject
	})
	refusedIn := func(procedure string, token string, l line, w want) {
		t.Helper()
		l.procedure = procedure
		for _, d := range l.dialects() {
			g.judge(procedure+", "+d.name, g.call(&l, d, token), w)
		}
	}
	full := func(limit int64) want { return want{code: "resource_exhausted", reason: "NODE_FULL", limit: limit} }
	busy := presenceToken(g.Server, "busy")
	one := g.Presence(busy)
	streams := []*presenceStream{connectBy(t, one, phone(nil))}
	for len(streams) < 64 {
		streams = append(streams, connectBy(t, one, watching()))
	}
	refusedIn(connectPresence, busy, line{message: phone(nil)}, full(64))
	refusedIn(connectPresence, busy, line{message: watching()}, full(64))
	refusedIn(subscribing, busy, line{message: &parleyv1.SubscribeRequest{Presence: phone(nil)}}, full(64))
	other := g.Presence(presenceToken(g.Server, "other"))
	for range 6 {
		connectBy(t, other, phone(nil))
	}
	refusedIn(connectPresence, presenceToken(g.Server, "third"), line{message: phone(nil)}, full(70))
	streams[63].close()
	last := streams[0]
	testkit.Eventually(t, 20*time.Second, func() error {
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		s, err := one.Connect(ctx, watching())
		if err == nil && !s.Receive() {
			err = s.Err()
		}
		return err
	})

	ids := make([]string, 1000)
	for i := range ids {
		ids[i] = fmt.Sprint("user-", i)
	}
	for part := range slices.Chunk(ids, 500) {
		if _, err := one.UpdateWatch(t.Context(), &parleyv1.UpdateWatchRequest{StreamId: last.id(), Add: part}); err != nil {
			t.Fatal(err)
		}
	}
	refusedIn(updateWatch, busy, line{message: &parleyv1.UpdateWatchRequest{StreamId: last.id(), Add: []string{"one-more"}}},
		want{code: "resource_exhausted", reason: "LIMIT_EXCEEDED", field: "add", limit: 1000})
	// A repeat and an exchange fit.
	if _, err := one.UpdateWatch(t.Context(), &parleyv1.UpdateWatchRequest{
		StreamId: last.id(), Add: []string{"one-more", "user-7"}, Remove: []string{"user-8"},
	}); err != nil {
		t.Error(err)
	}

	for i := range 21 {
		if _, err := g.Client(g.Token).CreateChannel(t.Context(), &parleyv1.CreateChannelRequest{
			ChannelId: fmt.Sprint("club-", i), MembersOnly: true, Members: membersOf("busy"),
		}); err != nil {
			t.Fatal(err)
		}
	}
	for i := range 20 {
		if _, err := one.WatchChannel(t.Context(), &parleyv1.WatchChannelRequest{StreamId: last.id(), ChannelId: fmt.Sprint("club-", i)}); err != nil {
			t.Fatal(err)
		}
	}
	refusedIn(watchChannel, busy, line{message: &parleyv1.WatchChannelRequest{StreamId: last.id(), ChannelId: "club-20"}},
		want{code: "resource_exhausted", reason: "LIMIT_EXCEEDED", field: "channel_id", limit: 20})
	if _, err := one.WatchChannel(t.Context(), &parleyv1.WatchChannelRequest{StreamId: last.id(), ChannelId: "club-0"}); err != nil {
		t.Errorf("a repeat: %v", err)
	}
	refusedIn(watchChannel, presenceToken(g.Server, "other"), line{message: &parleyv1.WatchChannelRequest{StreamId: last.id(), ChannelId: "club-0"}},
		want{code: "permission_denied", reason: "NOT_MEMBER", field: "channel_id"})
	refusedIn(setBackground, presenceToken(g.Server, "other"), line{message: &parleyv1.SetBackgroundRequest{StreamId: last.id()}},
		want{code: "not_found", reason: "STREAM_NOT_FOUND"})
}

// A client that does not read its stream while states change ends by the frame deadline. It holds
// up nobody, and leaves no watch behind.
func TestHostileStalledPresence(t *testing.T) {
	t.Parallel()
	const frameTimeout = 2 * time.Second
	g := attack(t, func(c *config.Config) {
		c.Limits.HeartbeatInterval, c.Limits.FrameTimeout = 500*time.Millisecond, frameTimeout
	})
	users := []string{"restless"}
	for i := range 999 {
		users = append(users, fmt.Sprintf("%0128d", i)) // their states are more than the client buffers
	}
	restless := connectAs(t, g.Server, presenceToken(g.Server, "restless"), phone(nil))
	began := time.Now()
	var calls []string
	for name, opts := range options {
		transport := &http.Transport{
			Protocols: new(http.Protocols), HTTP2: &http.HTTP2Config{MaxReceiveBufferPerStream: 64 << 10, MaxReceiveBufferPerConnection: 64 << 10},
		}
		transport.Protocols.SetUnencryptedHTTP2(true)
		t.Cleanup(transport.CloseIdleConnections)
		c := parleyv1connect.NewPresenceServiceClient(&http.Client{Transport: transport}, g.URL, opts...)
		ctx, call := connect.NewClientContext(t.Context())
		call.RequestHeader().Set("Authorization", "Bearer "+g.Token)
		call.RequestHeader().Set("X-Request-Id", "stalled-"+name)
		s, err := c.Connect(ctx, watching(users...))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = s.Close() })
		calls = append(calls, "stalled-"+name)
	}
	reader := connectAs(t, g.Server, g.Token, watching("restless"))
	mine := g.Presence(presenceToken(g.Server, "restless"))
	for i := range 200 {
		background := i%2 == 0
		if _, err := mine.SetBackground(t.Context(), &parleyv1.SetBackgroundRequest{StreamId: restless.id(), Background: background}); err != nil {
			t.Fatal(err)
		}
	}
	testkit.Eventually(t, 5*time.Second, func() error {
		states := reader.statesOf("restless")
		if n := len(states); n == 0 || len(states[n-1].GetPlatforms()) != 1 || states[n-1].GetPlatforms()[0].GetBackground() {
			return fmt.Errorf("the last of %d states is not the newest", n)
		}
		return nil
	})
	// The reader's watch alone is left.
	testkit.Eventually(t, 20*time.Second, func() error {
		if n := metricOf(t, g.Server, "parley_presence_watchers"); n != "1" {
			return fmt.Errorf("%s users are watched", n)
		}
		return nil
	})
	if took := time.Since(began); took < frameTimeout {
		t.Errorf("the streams ended after %v", took)
	}
	for _, id := range calls {
		for _, line := range g.log.failures(id) {
			if line["code"] != "unavailable" {
				t.Errorf("%s: logged %v", id, line)
			}
		}
	}
}
