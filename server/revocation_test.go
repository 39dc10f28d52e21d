package server_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"connectrpc.com/connect"

	parleyv1 "github.com/parleyhq/parley/gen/go/parley/v1"
	"github.com/parleyhq/parley/server/internal/ident"
	"github.com/parleyhq/parley/server/internal/testkit"
	"github.com/parleyhq/parley/server/servertest"
)

const tokenRevoked = parleyv1.ErrorReason_ERROR_REASON_TOKEN_REVOKED

// login returns a token of a user's login, with every capability.
func login(s *servertest.Server, userID, ssid string) string {
	return s.MintAs(principal(userID, ssid), time.Hour)
}

// principal returns the principal of a user's login, with every capability.
func principal(userID, ssid string) *ident.Principal {
	return &ident.Principal{
		Subject: userID, SSID: ssid,
		Channels: []ident.Capability{{Pattern: "*", Actions: ident.ChannelActions}},
		Queues:   []ident.Capability{{Pattern: "*", Actions: ident.QueueActions}},
		Presence: ident.PresenceActions, Admin: ident.AdminActions,
	}
}

// ends collects how streams end.
type ends struct {
	t  *testing.T
	wg sync.WaitGroup
}

// endingStream is a server stream.
type endingStream interface {
	Receive() bool
	Err() error
}

// watch reads the first frame of a stream, and reports an error unless the stream then ends with
// TOKEN_REVOKED within a second of the time that revoked returns.
func (e *ends) watch(name string, stream endingStream, err error, revoked func() time.Time) {
	e.t.Helper()
	if err != nil || !stream.Receive() {
		e.t.Fatalf("%s: no first frame: %v, %v", name, err, stream.Err())
	}
	e.wg.Go(func() {
		for stream.Receive() {
		}
		if reason, _ := reasonOf(stream.Err()); reason != tokenRevoked {
			e.t.Errorf("%s ended: %v", name, stream.Err())
		}
		at := revoked() // zero while the call has not returned
		if late := time.Since(at); !at.IsZero() && late > time.Second+slowMachine {
			e.t.Errorf("%s ended %v after the sign-out", name, late)
		}
	})
}

// bidi is a bidirectional stream as an endingStream.
type bidi struct {
	receive func() error
	err     error
}

func (b *bidi) Receive() bool { b.err = b.receive(); return b.err == nil }

func (b *bidi) Err() error { return b.err }

// slowMachine is how much more time than promised a test allows.
const slowMachine = 2 * time.Second

// refusedSoon reports an error unless calls with the token fail with TOKEN_REVOKED from a second
// after the sign-out on.
func refusedSoon(t *testing.T, s *servertest.Server, token string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Second+slowMachine)
	defer cancel()
	for {
		_, err := s.Client(token).ListChannels(t.Context(), &parleyv1.ListChannelsRequest{})
		if reason, _ := reasonOf(err); reason == tokenRevoked && connect.CodeOf(err) == connect.CodeUnauthenticated {
			return
		}
		if ctx.Err() != nil {
			t.Fatalf("a revoked token: %v", err)
		}
	}
}

// TestSignOut signs a login out, and checks on every node that its tokens and its streams are
// refused, also after a restart, and that other tokens of the user are not.
func TestSignOut(t *testing.T) {
	t.Parallel()
	for name, start := range map[string]func(t *testing.T) []*servertest.Server{
		"dev":  func(t *testing.T) []*servertest.Server { return []*servertest.Server{servertest.Dev(t)} },
		"real": func(t *testing.T) []*servertest.Server { return fleetOf(t, 3) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			nodes := start(t)
			first := nodes[0]
			phone, twin, laptop := login(first, "ann", "phone"), login(first, "ann", "phone"), login(first, "ann", "laptop")
			admin := first.Admin(first.TokenOf("root"))
			topics := first.QueueAdmin(first.TokenOf("root"))
			if err := callErr(topics.CreateTopic(t.Context(), &parleyv1.CreateTopicRequest{Topic: &parleyv1.Topic{Name: "jobs", Partitions: 1}})); err != nil {
				t.Fatal(err)
			}
			if err := callErr(topics.CreateGroup(t.Context(), &parleyv1.CreateGroupRequest{Topic: "jobs", Group: &parleyv1.Group{Name: "g"}})); err != nil {
				t.Fatal(err)
			}
			var mu sync.Mutex
			var at time.Time
			revoked := func() time.Time { mu.Lock(); defer mu.Unlock(); return at }
			e := &ends{t: t}
			for i, s := range nodes {
				subscription, err := s.Client(twin).Subscribe(t.Context(), &parleyv1.SubscribeRequest{Channels: []*parleyv1.ChannelPosition{from("room", 0)}})
				e.watch(fmt.Sprint("Subscribe on node ", i), subscription, err, revoked)
				joined, err := s.Client(twin).Subscribe(t.Context(), &parleyv1.SubscribeRequest{Presence: &parleyv1.ConnectRequest{
					Platform: parleyv1.Platform_PLATFORM_WEB, DeviceId: fmt.Sprint("joined", i),
				}})
				e.watch(fmt.Sprint("Subscribe with presence on node ", i), joined, err, revoked)
				online, err := s.Presence(twin).Connect(t.Context(), &parleyv1.ConnectRequest{
					Platform: parleyv1.Platform_PLATFORM_IOS, DeviceId: fmt.Sprint("device", i),
				})
				e.watch(fmt.Sprint("Connect on node ", i), online, err, revoked)
				consumer, err := s.Queues(twin).Consume(t.Context(), consumingAs("jobs", "g"))
				e.watch(fmt.Sprint("Consume on node ", i), consumer, err, revoked)
				both, err := s.Queues(twin).StreamingConsume(t.Context())
				if err == nil {
					err = both.Send(&parleyv1.StreamingConsumeRequest{Request: &parleyv1.StreamingConsumeRequest_Start{
						Start: consumingAs("jobs", "g"),
					}})
				}
				e.watch(fmt.Sprint("StreamingConsume on node ", i), &bidi{receive: func() error { _, err := both.Receive(); return err }}, err, revoked)
			}
			going := subscribe(t, nodes[len(nodes)-1].Client(laptop), from("room", 0))
			going.awaitState("room")

			if err := callErr(first.Presence(phone).SignOut(t.Context(), &parleyv1.SignOutRequest{})); err != nil {
				t.Fatal(err)
			}
			mu.Lock()
			at = time.Now()
			mu.Unlock()
			for _, s := range nodes {
				for _, token := range []string{phone, twin, login(first, "ann", "phone")} {
					refusedSoon(t, s, token)
				}
			}
			e.wg.Wait()
			if err := callErr(first.Presence(phone).SignOut(t.Context(), &parleyv1.SignOutRequest{})); true {
				if reason, _ := reasonOf(err); reason != tokenRevoked {
					t.Errorf("a repeated SignOut: %v", err)
				}
			}
			if _, err := first.Client(laptop).SendMessage(t.Context(), &parleyv1.SendMessageRequest{ChannelId: "room", Content: "still here"}); err != nil {
				t.Errorf("another login: %v", err)
			}
			going.await("room", 0, 1)

			listed, err := admin.ListRevocations(t.Context(), &parleyv1.ListRevocationsRequest{})
			if err != nil || len(listed.GetRevocations()) != 1 || listed.GetRevocations()[0].GetSsid() != "phone" ||
				listed.GetRevocations()[0].GetRevokedBy() != "ann" {
				t.Errorf("listed: %v, %v", listed, err)
			}
			first.Stop()
			first.Start()
			err = callErr(first.Client(twin).ListChannels(t.Context(), &parleyv1.ListChannelsRequest{}))
			if reason, _ := reasonOf(err); reason != tokenRevoked {
				t.Errorf("after a restart: %v", err)
			}
		})
	}
}

// TestRevokedUserSignsInAgain checks that RevokeTokens of a user ends what the user has, and that a
// later token works.
func TestRevokedUserSignsInAgain(t *testing.T) {
	t.Parallel()
	nodes := fleetOf(t, 2)
	here, there := nodes[0], nodes[1]
	old := login(here, "ann", "")
	revocation, err := here.Admin(here.TokenOf("root")).RevokeTokens(t.Context(), &parleyv1.RevokeTokensRequest{
		Target: &parleyv1.RevokeTokensRequest_UserId{UserId: "ann"}, Reason: "lost phone",
	})
	if r := revocation.GetRevocation(); err != nil || r.GetUserId() != "ann" || r.GetReason() != "lost phone" || r.GetRevokedBy() != "root" {
		t.Fatalf("revoke: %v, %v", revocation, err)
	}
	for _, s := range nodes {
		refusedSoon(t, s, old)
	}
	testkit.Eventually(t, 5*time.Second, func() error { // a token of the next second
		_, err := there.Client(login(here, "ann", "")).ListChannels(t.Context(), &parleyv1.ListChannelsRequest{})
		return err
	})
	if err := callErr(there.Client(login(here, "bob", "")).ListChannels(t.Context(), &parleyv1.ListChannelsRequest{})); err != nil {
		t.Errorf("another user: %v", err)
	}
}

// TestRenewedStreamFollowsItsToken checks that a stream ends with the login of its newest token,
// and not with that of an earlier one, on whichever node the token was renewed.
func TestRenewedStreamFollowsItsToken(t *testing.T) {
	t.Parallel()
	nodes := fleetOf(t, 2)
	here, there := nodes[0], nodes[1]
	stream := subscribe(t, here.Client(login(here, "ann", "old")), from("room", 0))
	stream.awaitState("room")
	if err := callErr(there.Client(login(here, "ann", "new")).UpdateSubscription(t.Context(), &parleyv1.UpdateSubscriptionRequest{
		StreamId: stream.streamID, RenewToken: true,
	})); err != nil {
		t.Fatal(err)
	}
	for _, ssid := range []string{"old", "new"} {
		if err := callErr(there.Presence(login(here, "ann", ssid)).SignOut(t.Context(), &parleyv1.SignOutRequest{})); err != nil {
			t.Fatal(err)
		}
		refusedSoon(t, here, login(here, "ann", ssid))
		if ssid == "old" {
			if err := callErr(here.Client(login(here, "bob", "b")).SendMessage(t.Context(), &parleyv1.SendMessageRequest{ChannelId: "room", Content: "hi"})); err != nil {
				t.Fatal(err)
			}
			stream.await("room", 0, 1)
		}
	}
	<-stream.ended
	stream.mu.Lock()
	defer stream.mu.Unlock()
	if reason, _ := reasonOf(stream.err); reason != tokenRevoked {
		t.Errorf("the stream ended with %v", stream.err)
	}
}
