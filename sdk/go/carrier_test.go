package parley_test

import (
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/proto"

	parleyv1 "github.com/parleyhq/parley/gen/go/parley/v1"
	parley "github.com/parleyhq/parley/sdk/go"
	"github.com/parleyhq/parley/sdk/go/parleytest"
)

// waitOneStream waits until a presence is on the only stream of the server, a Subscribe stream.
func waitOneStream(t *testing.T, s *parleytest.Server, p *parley.Presence) {
	t.Helper()
	eventually(t, func() error {
		if s.Streams() != 1 || s.PresenceStreams() != 1 || s.LiveStreams() != 1 || p.State() != parley.StateLive {
			return fmt.Errorf("%d streams, %d Subscribe, %d with presence, state %s, error %w",
				s.LiveStreams(), s.Streams(), s.PresenceStreams(), p.State(), p.Err())
		}
		return nil
	})
}

// TestOneStream uses a subscription and a presence in both orders. They share a stream, over
// reconnects, and no event is lost.
func TestOneStream(t *testing.T) {
	t.Parallel()
	for _, presenceFirst := range []bool{false, true} {
		t.Run(fmt.Sprint("presence first ", presenceFirst), func(t *testing.T) {
			t.Parallel()
			s := parleytest.Start(t)
			post(s, "room", 2)
			c := userClient(t, s, "bob")
			var p *parley.Presence
			if presenceFirst {
				p = online(t, c, parley.WatchUsers("ann"))
			}
			sub := subscribe(t, c, parley.FromStart("room"))
			wantEntries(t, sub, "room", 1, 2)
			if !presenceFirst {
				p = online(t, c, parley.WatchUsers("ann"))
			}
			waitOneStream(t, s, p)
			wantStates(t, p, "ann")
			token := p.LoginToken()
			post(s, "room", 1)
			wantEntries(t, sub, "room", 3, 3)
			s.EndStreams(nil)
			waitOneStream(t, s, p)
			if err := p.Watch(testContext(t), "bob"); err != nil {
				t.Fatalf("watch: %v", err)
			}
			if err := p.SetBackground(testContext(t), true); err != nil {
				t.Fatalf("background: %v", err)
			}
			newest(t, p, "bob", "bob ios(b)")
			post(s, "room", 1)
			wantEntries(t, sub, "room", 4, 4)
			waitOneStream(t, s, p)
			if p.LoginToken() != token || token == "" {
				t.Errorf("the login token changed from %q to %q", token, p.LoginToken())
			}
			p.Close()
			if got, err := c.PresenceOf(testContext(t), "bob"); err != nil || shownUser(got[0]) != "bob" {
				t.Errorf("after Close: %v, %v", got, err)
			}
			post(s, "room", 1)
			wantEntries(t, sub, "room", 5, 5)
			wantQuiet(t, sub)
			if p := online(t, c, parley.WatchUsers("ann")); s.LiveStreams() != 1 {
				t.Errorf("a second presence has a stream of its own: %s", p.State())
			}
		})
	}
}

// heldTransport holds back the responses of calls to a method until release is closed.
type heldTransport struct {
	http.RoundTripper

	method  string
	release chan struct{}
}

func (h heldTransport) RoundTrip(req *http.Request) (*http.Response, error) {
	res, err := h.RoundTripper.RoundTrip(req)
	if strings.HasSuffix(req.URL.Path, "/"+h.method) {
		select {
		case <-h.release:
		case <-req.Context().Done():
		}
	}
	return res, err
}

// TestOneLogin subscribes before the server has answered the first request of a presence. The
// presence stays on its stream until it has its login token, so that it logs in once.
func TestOneLogin(t *testing.T) {
	t.Parallel()
	s := parleytest.Start(t)
	hc := h2cClient(t)
	held := heldTransport{hc.Transport, "Connect", make(chan struct{})}
	hc.Transport = held
	c := userClient(t, s, "bob", parley.WithHTTPClient(hc))
	p := c.Presence(testContext(t), phone, parley.WatchUsers("ann"))
	t.Cleanup(p.Close)
	eventually(t, func() error {
		if n := len(parleytest.RequestsOf[*parleyv1.ConnectRequest](s)); n != 1 {
			return fmt.Errorf("%d Connect streams", n)
		}
		return nil
	})
	sub := subscribe(t, c, parley.Live("room"))
	nextEvent(t, sub, parley.EventChannelState)
	close(held.release)
	waitOneStream(t, s, p)
	wantStates(t, p, "ann")
	logins := 0
	for _, r := range parleytest.RequestsOf[*parleyv1.ConnectRequest](s) {
		if r.GetLoginToken() == "" {
			logins++
		}
	}
	for _, r := range parleytest.RequestsOf[*parleyv1.SubscribeRequest](s) {
		if r.GetPresence() != nil && r.GetPresence().GetLoginToken() == "" {
			logins++
		}
	}
	if logins != 1 {
		t.Errorf("the presence logged in %d times", logins)
	}
}

// TestPresenceOutlivesSubscription closes the subscription. The presence continues on a stream of
// its own, and moves to the next subscription.
func TestPresenceOutlivesSubscription(t *testing.T) {
	t.Parallel()
	s := parleytest.Start(t)
	s.SetOfflineAfter(time.Hour)
	c := userClient(t, s, "bob")
	watcher := online(t, userClient(t, s, "ann"), parley.WatchUsers("bob"))
	wantStates(t, watcher, "bob")
	sub := subscribe(t, c, parley.Live("room"))
	p := online(t, c)
	wantStates(t, watcher, "bob ios")
	for range 3 {
		sub.Close()
		eventually(t, func() error {
			if s.Streams() != 0 || s.PresenceStreams() != 2 {
				return fmt.Errorf("%d Subscribe streams, %d with presence", s.Streams(), s.PresenceStreams())
			}
			return nil
		})
		sub = subscribe(t, c, parley.Live("room"))
		eventually(t, func() error {
			if s.Streams() != 1 || s.PresenceStreams() != 2 || s.LiveStreams() != 2 || p.State() != parley.StateLive {
				return fmt.Errorf("%d streams, %d Subscribe, %d with presence", s.LiveStreams(), s.Streams(), s.PresenceStreams())
			}
			return nil
		})
	}
	wantNoState(t, watcher)
}

// TestPresencesMoveOneByOne has three presences and one subscription. One presence is on its
// stream; the others have streams of their own, which stay. When it ends, another one moves.
func TestPresencesMoveOneByOne(t *testing.T) {
	t.Parallel()
	s := parleytest.Start(t)
	c := userClient(t, s, "bob", patient)
	byID := make(map[string]*parley.Presence)
	for range 3 {
		p := online(t, c)
		byID[p.LoginToken()] = p
	}
	subscribe(t, c, parley.Live("room"))
	connects := func() int { return len(parleytest.RequestsOf[*parleyv1.ConnectRequest](s)) }
	var seen []string
	for left := 3; left > 0; left-- {
		var login string
		eventually(t, func() error {
			// A request that was given up may arrive after the next one.
			for _, r := range parleytest.RequestsOf[*parleyv1.SubscribeRequest](s) {
				if l := r.GetPresence().GetLoginToken(); l != "" && !slices.Contains(seen, l) {
					login = l
				}
			}
			if byID[login] == nil || byID[login].State() != parley.StateLive {
				return fmt.Errorf("the stream has the login %q after %q", login, seen)
			}
			if s.Streams() != 1 || s.LiveStreams() != left || s.PresenceStreams() != left {
				return fmt.Errorf("%d Subscribe streams of %d, %d with presence", s.Streams(), s.LiveStreams(), s.PresenceStreams())
			}
			return nil
		})
		seen = append(seen, login)
		byID[login].Close()
	}
	if n := connects(); n != 3 {
		t.Errorf("%d Connect streams were opened", n)
	}
}

// TestKickedOnOneStream ends the login of a presence on a subscription's stream. Both end, because
// the login is over.
func TestKickedOnOneStream(t *testing.T) {
	t.Parallel()
	s := parleytest.Start(t)
	c := userClient(t, s, "bob", patient)
	sub := subscribe(t, c, parley.FromStart("room"))
	p := online(t, c)
	waitOneStream(t, s, p)
	s.Kick("bob", &parley.Kick{DeviceId: "tablet"})
	_, err := p.Next(testContext(t))
	if e := asError(t, err); !errors.Is(e, parley.ErrKicked) || e.Kick.GetDeviceId() != "tablet" {
		t.Fatalf("the presence got %+v", e)
	}
	for err = nil; err == nil; { // the channel's state may have arrived before
		_, err = sub.Next(testContext(t))
	}
	if !errors.Is(err, parley.ErrKicked) {
		t.Errorf("the subscription got %v", err)
	}
}

// TestRefusedPresenceLeavesTheSubscription refuses the presence on a subscription's stream. It ends
// with the error, and the subscription continues.
func TestRefusedPresenceLeavesTheSubscription(t *testing.T) {
	t.Parallel()
	s := parleytest.Start(t)
	c := userClient(t, s, "bob", patient)
	s.SetActions("token of bob", "subscribe")
	sub := subscribe(t, c, parley.FromStart("room"))
	waitStreams(t, s, 1)
	for _, opts := range [][]parley.PresenceOption{nil, {parley.WatchChannels("open")}} {
		p := c.Presence(testContext(t), phone, opts...)
		t.Cleanup(p.Close)
		_, err := p.Next(testContext(t))
		if want := []error{parley.ErrCapabilityMissing, parley.ErrChannelOpen}[len(opts)]; !errors.Is(err, want) {
			t.Errorf("got %v, want %v", err, want)
		}
		s.SetActions("token of bob", "subscribe", "connect", "watch")
	}
	post(s, "room", 1)
	wantEntries(t, sub, "room", 1, 1)
	if err := sub.Err(); err != nil {
		t.Errorf("the subscription ended: %v", err)
	}
}

// TestRefusedSubscriptionLeavesThePresence refuses the channels of a subscription that carries a
// presence. It ends with the error, and the presence continues.
func TestRefusedSubscriptionLeavesThePresence(t *testing.T) {
	t.Parallel()
	s := parleytest.Start(t)
	c := userClient(t, s, "bob", patient)
	p := online(t, c, parley.WatchUsers("ann"))
	wantStates(t, p, "ann")
	s.SetActions("token of bob", "connect", "watch")
	sub := subscribe(t, c, parley.FromStart("room"))
	if _, err := sub.Next(testContext(t)); !errors.Is(err, parley.ErrCapabilityMissing) {
		t.Errorf("the subscription: %v", err)
	}
	waitLive(t, p)
	online(t, userClient(t, s, "ann"))
	wantStates(t, p, "ann ios")
}

// TestFinalErrorOfLiveStream ends the live stream that a subscription and a presence share with a
// final error that is about neither. Both continue on streams of their own.
func TestFinalErrorOfLiveStream(t *testing.T) {
	t.Parallel()
	s := parleytest.Start(t)
	c := userClient(t, s, "bob", patient)
	sub := subscribe(t, c, parley.FromStart("room"))
	p := online(t, c)
	waitOneStream(t, s, p)
	s.EndStreams(parleytest.Error(connect.CodePermissionDenied, parleyv1.ErrorReason_ERROR_REASON_CAPABILITY_MISSING))
	eventually(t, func() error {
		if s.Streams() != 1 || s.LiveStreams() != 2 || p.State() != parley.StateLive {
			return fmt.Errorf("%d Subscribe streams of %d, state %s, error %w", s.Streams(), s.LiveStreams(), p.State(), p.Err())
		}
		return nil
	})
	post(s, "room", 1)
	wantEntries(t, sub, "room", 1, 1)
}

// TestRefusedChannelsOnOneStream ends a user's memberships between two streams. Subscription and
// presence lose their channels, and continue.
func TestRefusedChannelsOnOneStream(t *testing.T) {
	t.Parallel()
	fleet := parleytest.StartFleet(t, 2)
	bobs, others := fleet[0], fleet[1]
	admin := adminOf(t, others, "both", "watched")
	c := userClient(t, bobs, "bob")
	bobs.SetActions("token of bob", "connect", "watch", "subscribe", "history")
	sub := subscribe(t, c, parley.FromStart("both"), parley.FromStart("open"))
	p := online(t, c, parley.WatchChannels("both", "watched"))
	waitOneStream(t, bobs, p)
	wantStates(t, p, "both 1 of 3: bob ios", "watched 1 of 3: bob ios")
	bobs.Kill()
	remove(t, admin, "both", "bob")
	remove(t, admin, "watched", "bob")
	post(others, "open", 1)
	bobs.Restart()
	wantStates(t, p, "channel_lost both", "channel_lost watched")
	if e := nextEvent(t, sub); e.Kind != parley.EventLost || e.ChannelID != "both" {
		t.Errorf("got %s of %s", e.Kind, e.ChannelID)
	}
	wantEntries(t, sub, "open", 1, 1)
	waitOneStream(t, bobs, p)
}

// TestCloseOnOneStreamWithLostAnswer loses the request of Close to disconnect. The subscription
// opens its stream again, so that the user does not stay online.
func TestCloseOnOneStreamWithLostAnswer(t *testing.T) {
	t.Parallel()
	s := parleytest.Start(t)
	s.SetOfflineAfter(0)
	c := userClient(t, s, "bob", patient)
	sub := subscribe(t, c, parley.FromStart("room"))
	p := online(t, c)
	waitOneStream(t, s, p)
	s.Fault(func(method string, _ proto.Message) *parleytest.Fault {
		if method != "Disconnect" {
			return nil
		}
		return &parleytest.Fault{Err: parleytest.Error(connect.CodeUnavailable, parleyv1.ErrorReason_ERROR_REASON_STORE_UNAVAILABLE)}
	})
	p.Close()
	eventually(t, func() error {
		if s.PresenceStreams() != 0 || s.Streams() != 1 {
			return fmt.Errorf("%d streams with presence, %d Subscribe streams", s.PresenceStreams(), s.Streams())
		}
		return nil
	})
	post(s, "room", 1)
	wantEntries(t, sub, "room", 1, 1)
}
