package server_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/proto"

	parleyv1 "github.com/parleyhq/parley/gen/go/parley/v1"
	"github.com/parleyhq/parley/gen/go/parley/v1/parleyv1connect"
	"github.com/parleyhq/parley/server/internal/ident"
	"github.com/parleyhq/parley/server/internal/testkit"
	"github.com/parleyhq/parley/server/servertest"
)

// presenceToken returns a token of a user who may use presence and subscribe to every channel.
func presenceToken(n *servertest.Server, userID string) string {
	return n.MintAs(&ident.Principal{
		Subject: userID, Presence: ident.PresenceActions,
		Channels: []ident.Capability{{Pattern: "*", Actions: []ident.Action{ident.Subscribe}}},
	}, time.Hour)
}

// presenceStream reads a Connect stream and keeps what its client knows.
type presenceStream struct {
	t      *testing.T
	cancel context.CancelFunc
	info   *parleyv1.ConnectInfo
	ended  chan struct{}

	mu       sync.Mutex // guards the fields below
	users    map[string][]*parleyv1.UserPresence
	channels map[string][]*parleyv1.ChannelPresence
	lagging  []bool
	advised  bool
	err      error
}

// connectAs opens a Connect stream with a token and waits for its first frame.
func connectAs(t *testing.T, n *servertest.Server, token string, r *parleyv1.ConnectRequest) *presenceStream {
	t.Helper()
	return connectBy(t, n.Presence(token), r)
}

// connectBy is connectAs with a client.
func connectBy(t *testing.T, c parleyv1connect.PresenceServiceClient, r *parleyv1.ConnectRequest) *presenceStream {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	s := &presenceStream{
		t: t, cancel: cancel, ended: make(chan struct{}), users: map[string][]*parleyv1.UserPresence{},
		channels: map[string][]*parleyv1.ChannelPresence{},
	}
	conn, err := c.Connect(ctx, r)
	if err != nil {
		cancel()
		t.Fatalf("connect: %v", err)
	}
	if !conn.Receive() {
		cancel()
		t.Fatalf("connect: %v", conn.Err())
	}
	s.info = proto.CloneOf(conn.Msg().GetInfo())
	s.update(s.info.GetPresence().GetPresence())
	go s.read(conn)
	t.Cleanup(s.close)
	return s
}

func (s *presenceStream) read(conn *connect.ServerStreamForClient[parleyv1.ConnectResponse]) {
	defer close(s.ended)
	for conn.Receive() {
		s.update(conn.Msg().GetPresence())
		s.mu.Lock()
		s.advised = s.advised || conn.Msg().GetReconnect() != nil
		s.mu.Unlock()
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.err = conn.Err()
}

func (s *presenceStream) update(u *parleyv1.PresenceUpdate) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, state := range u.GetUsers() {
		s.users[state.GetUserId()] = append(s.users[state.GetUserId()], proto.CloneOf(state))
	}
	for _, state := range u.GetChannels() {
		s.channels[state.GetChannelId()] = append(s.channels[state.GetChannelId()], proto.CloneOf(state))
	}
	if u != nil && u.Lagging != nil {
		s.lagging = append(s.lagging, u.GetLagging())
	}
}

// close ends the stream by the client.
func (s *presenceStream) close() {
	s.cancel()
	<-s.ended
}

// id returns the stream's id.
func (s *presenceStream) id() string { return s.info.GetStream().GetStreamId() }

// statesOf returns the states of a user that the stream has sent.
func (s *presenceStream) statesOf(userID string) []*parleyv1.UserPresence {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]*parleyv1.UserPresence(nil), s.users[userID]...)
}

// shows waits until the last state of a user that the stream has sent has exactly these platforms.
func (s *presenceStream) shows(userID string, within time.Duration, platforms ...parleyv1.Platform) {
	s.t.Helper()
	testkit.Eventually(s.t, within, func() error {
		states := s.statesOf(userID)
		if len(states) == 0 {
			return fmt.Errorf("no state of %s", userID)
		}
		return onExactly(states[len(states)-1], platforms...)
	})
}

// channel waits until the last state of a channel that the stream has sent is accepted.
func (s *presenceStream) channel(channelID string, within time.Duration, accept func(c *parleyv1.ChannelPresence) bool) {
	s.t.Helper()
	testkit.Eventually(s.t, within, func() error {
		s.mu.Lock()
		defer s.mu.Unlock()
		states := s.channels[channelID]
		if len(states) == 0 || !accept(states[len(states)-1]) {
			return fmt.Errorf("the states of %s are %v", channelID, states)
		}
		return nil
	})
}

// neverOffline fails the test if the stream has sent that a user is offline, after the first time
// online.
func (s *presenceStream) neverOffline(userID string) {
	s.t.Helper()
	online := false
	for _, state := range s.statesOf(userID) {
		if online = online || len(state.GetPlatforms()) > 0; online && len(state.GetPlatforms()) == 0 {
			s.t.Errorf("%s was shown offline", userID)
		}
	}
}

// onExactly returns an error if a user is not online on exactly these platforms.
func onExactly(u *parleyv1.UserPresence, platforms ...parleyv1.Platform) error {
	same := len(u.GetPlatforms()) == len(platforms)
	for i, p := range u.GetPlatforms() {
		same = same && p.GetPlatform() == platforms[i]
	}
	if !same {
		return fmt.Errorf("%s is on %v, not on %v", u.GetUserId(), u.GetPlatforms(), platforms)
	}
	return nil
}

// watching returns the request of an invisible stream that watches users.
func watching(users ...string) *parleyv1.ConnectRequest {
	return &parleyv1.ConnectRequest{Invisible: true, Watch: users}
}

// watchingChannels returns the request of an invisible stream that watches channels.
func watchingChannels(channels ...string) *parleyv1.ConnectRequest {
	return &parleyv1.ConnectRequest{Invisible: true, WatchChannels: channels}
}

// metricOf returns the value of a metric without labels of a node.
func metricOf(t *testing.T, n *servertest.Server, name string) string {
	t.Helper()
	resp, err := http.Get(n.OpsURL + "/metrics")
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	data, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.SplitSeq(string(data), "\n") {
		if metric, value, ok := strings.Cut(line, " "); ok && (metric == name || strings.HasPrefix(metric, name+"{")) {
			return value
		}
	}
	t.Fatalf("there is no metric %s", name)
	return ""
}
