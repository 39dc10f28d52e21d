package server_test

import (
	"fmt"
	"testing"
	"time"

	"connectrpc.com/connect"

	parleyv1 "github.com/parleyhq/parley/gen/go/parley/v1"
	"github.com/parleyhq/parley/server/config"
	"github.com/parleyhq/parley/server/internal/testkit"
	"github.com/parleyhq/parley/server/servertest"
)

// kickOfflineAfter is the time after which a lost connection counts as offline.
const kickOfflineAfter = time.Minute

// kickedStream is a stream and how it ends.
type kickedStream struct {
	name string
	endingStream

	connectionID string
	end          chan error
}

// kickRig has streams of ann on all nodes.
type kickRig struct {
	t       *testing.T
	nodes   []*servertest.Server
	streams []*kickedStream
}

// open adds a stream that has been opened, and reads its first frame.
func (r *kickRig) open(name string, stream endingStream, err error) *kickedStream {
	r.t.Helper()
	if err != nil || !stream.Receive() {
		r.t.Fatalf("%s: no first frame: %v, %v", name, err, stream.Err())
	}
	s := &kickedStream{name: name, endingStream: stream, end: make(chan error, 1)}
	r.streams = append(r.streams, s)
	return s
}

// follow reads a stream until it ends.
func (r *kickRig) follow() {
	for _, s := range r.streams {
		go func() {
			for s.Receive() {
			}
			s.end <- s.Err()
		}()
	}
}

// device opens a stream with presence.
func (r *kickRig) device(s *servertest.Server, user, device string, platform parleyv1.Platform) *kickedStream {
	r.t.Helper()
	stream, err := s.Presence(login(s, user, user+device)).Connect(r.t.Context(), &parleyv1.ConnectRequest{Platform: platform, DeviceId: device})
	opened := r.open(device, stream, err)
	opened.connectionID = stream.Msg().GetInfo().GetPresence().GetConnectionId()
	return opened
}

// kick calls KickUser and returns how many streams it has ended on how many nodes.
func (r *kickRig) kick(req *parleyv1.KickUserRequest) (ended, nodes int) {
	r.t.Helper()
	res, err := r.nodes[0].Admin(r.nodes[0].TokenOf("root")).KickUser(r.t.Context(), req)
	if err != nil || len(res.GetUnansweredNodeIds()) > 0 {
		r.t.Fatalf("KickUser(%v): %v, %v", req, res, err)
	}
	for _, n := range res.GetNodes() {
		ended += int(n.GetEnded())
	}
	return ended, len(res.GetNodes())
}

// mustEnd reports an error unless the stream ends with KICKED by an operator within a second.
func (r *kickRig) mustEnd(s *kickedStream, reason string) {
	r.t.Helper()
	select {
	case err := <-s.end:
		d := detailOf(r.t, err)
		k := d.GetKick()
		if connect.CodeOf(err) != connect.CodeFailedPrecondition || d.GetReason() != parleyv1.ErrorReason_ERROR_REASON_KICKED || d.GetRetryable() ||
			k.GetCause() != parleyv1.KickCause_KICK_CAUSE_ADMIN || k.GetReason() != reason || k.GetDeviceId() != "" {
			r.t.Errorf("%s ended: %v, %v", s.name, err, d)
		}
	case <-time.After(time.Second + slowMachine):
		r.t.Errorf("%s goes on", s.name)
	}
}

// TestKickUser ends streams of a user on a fleet, and checks that the user is offline at once, that
// other streams go on, and that the user may come again.
func TestKickUser(t *testing.T) {
	t.Parallel()
	slowly := servertest.With(func(c *config.Config) { c.Presence.OfflineAfter = kickOfflineAfter })
	for name, start := range map[string]func(t *testing.T) []*servertest.Server{
		"dev":  func(t *testing.T) []*servertest.Server { return []*servertest.Server{servertest.Dev(t, slowly)} },
		"real": func(t *testing.T) []*servertest.Server { return fleetOf(t, 3, slowly) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := &kickRig{t: t, nodes: start(t)}
			testKickUser(r)
		})
	}
}

func testKickUser(r *kickRig) {
	t, n := r.t, len(r.nodes)
	last := r.nodes[n-1]
	phone := r.device(last, "ann", "phone", parleyv1.Platform_PLATFORM_IOS)
	tablet := r.device(last, "ann", "tablet", parleyv1.Platform_PLATFORM_IOS)
	laptop := r.device(r.nodes[0], "ann", "laptop", parleyv1.Platform_PLATFORM_WEB)
	joined, err := last.Client(login(last, "ann", "j")).Subscribe(t.Context(), &parleyv1.SubscribeRequest{Presence: &parleyv1.ConnectRequest{
		Platform: parleyv1.Platform_PLATFORM_MACOS, DeviceId: "desk",
	}})
	desk := r.open("desk", joined, err)
	var plain []*kickedStream
	for i, s := range r.nodes {
		subscription, err := s.Client(login(s, "ann", "s")).Subscribe(t.Context(), &parleyv1.SubscribeRequest{})
		plain = append(plain, r.open(fmt.Sprint("Subscribe on node ", i), subscription, err))
	}
	bob := r.device(last, "bob", "phone", parleyv1.Platform_PLATFORM_IOS)
	r.follow()

	for _, c := range []struct {
		req  *parleyv1.KickUserRequest
		ends *kickedStream // nil if none does
	}{
		{&parleyv1.KickUserRequest{DeviceId: "phone", Platform: parleyv1.Platform_PLATFORM_WEB}, nil},
		{&parleyv1.KickUserRequest{DeviceId: "phone", Reason: "stolen"}, phone},
		{&parleyv1.KickUserRequest{DeviceId: "phone"}, nil}, // it was the last one
		{&parleyv1.KickUserRequest{ConnectionId: tablet.connectionID}, tablet},
		{&parleyv1.KickUserRequest{Platform: parleyv1.Platform_PLATFORM_MACOS}, desk},
	} {
		c.req.UserId = "ann"
		want := 0
		if c.ends != nil {
			want = 1
		}
		if ended, nodes := r.kick(c.req); ended != want || nodes != want {
			t.Errorf("KickUser(%v) ended %d streams on %d nodes, want %d", c.req, ended, nodes, want)
		}
		if c.ends != nil {
			r.mustEnd(c.ends, c.req.GetReason())
		}
	}
	if got := platformsOf(t, r.nodes[0], "ann", 1); len(got) != 1 || got[0] != parleyv1.Platform_PLATFORM_WEB {
		t.Errorf("without her devices, ann is online on %v", got)
	}
	if ended, nodes := r.kick(&parleyv1.KickUserRequest{UserId: "ann"}); ended != 1+n || nodes != n {
		t.Errorf("KickUser ended %d streams on %d nodes, want %d on %d", ended, nodes, 1+n, n)
	}
	for _, s := range append(plain, laptop) {
		r.mustEnd(s, "")
	}
	platformsOf(t, r.nodes[0], "ann", 0)
	select {
	case err := <-bob.end:
		t.Errorf("another user's stream ended: %v", err)
	default:
	}
	again, err := last.Client(login(last, "ann", "s")).Subscribe(t.Context(), &parleyv1.SubscribeRequest{})
	r.open("a new stream", again, err)
}

// platformsOf waits until a user is online on so many platforms, for less than the time after which
// a lost connection counts as offline.
func platformsOf(t *testing.T, s *servertest.Server, user string, want int) (got []parleyv1.Platform) {
	t.Helper()
	testkit.Eventually(t, kickOfflineAfter/2, func() error {
		res, err := s.Presence(s.TokenOf("root")).GetPresence(t.Context(), &parleyv1.GetPresenceRequest{UserIds: []string{user}})
		if err != nil {
			return err
		}
		got = nil
		for _, p := range res.GetPresence()[0].GetPlatforms() {
			got = append(got, p.GetPlatform())
		}
		if len(got) != want {
			return fmt.Errorf("%s is online on %v, want %d platforms", user, got, want)
		}
		return nil
	})
	return got
}
