package parley_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"connectrpc.com/connect"

	parleyv1 "github.com/parleyhq/parley/gen/go/parley/v1"
	parley "github.com/parleyhq/parley/sdk/go"
	"github.com/parleyhq/parley/sdk/go/parleytest"
)

var phone = parley.Device{Platform: parley.PlatformIOS, ID: "phone"}

// userClient returns a client of a user.
func userClient(t *testing.T, s *parleytest.Server, user string, opts ...parley.Option) *parley.Client {
	t.Helper()
	s.SetUser("token of "+user, user)
	return newClient(t, s.Addr(), append([]parley.Option{parley.WithToken("token of " + user)}, opts...)...)
}

// online makes a user online and waits until they are. The presence is closed when the test ends.
func online(t *testing.T, c *parley.Client, opts ...parley.PresenceOption) *parley.Presence {
	t.Helper()
	p := c.Presence(testContext(t), phone, opts...)
	t.Cleanup(p.Close)
	waitLive(t, p)
	return p
}

func waitLive(t *testing.T, p *parley.Presence) {
	t.Helper()
	eventually(t, func() error {
		if p.State() != parley.StateLive {
			return fmt.Errorf("state %s, error %w", p.State(), p.Err())
		}
		return nil
	})
}

// shown returns an event as text, such as `ann ios(b)`.
func shown(e parley.PresenceEvent) string {
	switch e.Kind {
	case parley.PresenceOfUser:
		return shownUser(e.User)
	case parley.PresenceOfChannel:
		var users []string
		for _, u := range e.Channel.GetOnline() {
			users = append(users, shownUser(u))
		}
		ch := e.Channel
		return fmt.Sprintf("%s %d of %d: %s", ch.GetChannelId(), ch.GetOnlineCount(), ch.GetMemberCount(), strings.Join(users, ", "))
	case parley.PresenceUserLost:
		return e.Kind.String() + " " + e.User.GetUserId()
	case parley.PresenceLagging:
		return fmt.Sprint("lagging ", e.Lagging)
	default:
		return e.Kind.String() + " " + e.Channel.GetChannelId()
	}
}

func shownUser(u *parley.UserPresence) string {
	all := []string{u.GetUserId()}
	for _, p := range u.GetPlatforms() {
		name := strings.ToLower(strings.TrimPrefix(p.GetPlatform().String(), "PLATFORM_"))
		if p.GetBackground() {
			name += "(b)"
		}
		all = append(all, name)
	}
	return strings.Join(all, " ")
}

// wantStates takes one event per text and fails the test if one differs.
func wantStates(t *testing.T, p *parley.Presence, texts ...string) {
	t.Helper()
	for _, text := range texts {
		e, err := p.Next(testContext(t))
		if err != nil {
			t.Fatalf("next: %v, want %q", err, text)
		}
		if got := shown(e); got != text {
			t.Fatalf("got %q, want %q", got, text)
		}
	}
}

// wantNoState fails the test if an event arrives within 60 ms.
func wantNoState(t *testing.T, p *parley.Presence) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 60*time.Millisecond)
	defer cancel()
	if e, err := p.Next(ctx); !errors.Is(err, context.DeadlineExceeded) {
		t.Fatalf("got %q, %v", shown(e), err)
	}
}

// newest waits until the newest state of a watched user is the given one.
func newest(t *testing.T, p *parley.Presence, user, text string) {
	t.Helper()
	eventually(t, func() error {
		if u, ok := p.User(user); !ok || shownUser(u) != text {
			return fmt.Errorf("%v, want %q", u, text)
		}
		return nil
	})
}

// TestPresence follows users who come and go, and changes what is watched.
func TestPresence(t *testing.T) {
	t.Parallel()
	s := parleytest.Start(t)
	s.SetOfflineAfter(0)
	ctx := testContext(t)
	ann := userClient(t, s, "ann")
	p := online(t, userClient(t, s, "bob"), parley.WatchUsers("ann", "carl", "ann"))
	wantStates(t, p, "ann", "carl")
	first := online(t, ann)
	wantStates(t, p, "ann ios")
	if p.LoginToken() == "" || p.ConnectionID() == "" || p.ConnectionID() == first.ConnectionID() {
		t.Errorf("login token %q, connection ids %q and %q", p.LoginToken(), p.ConnectionID(), first.ConnectionID())
	}
	for _, background := range []bool{true, true, false} {
		if err := first.SetBackground(ctx, background); err != nil {
			t.Fatalf("background: %v", err)
		}
	}
	newest(t, p, "ann", "ann ios")
	if err := p.Watch(ctx, "dora", "ann"); err != nil {
		t.Fatalf("watch: %v", err)
	}
	if err := p.Unwatch(ctx, "ann", "nobody"); err != nil {
		t.Fatalf("unwatch: %v", err)
	}
	if _, ok := p.User("ann"); ok {
		t.Error("a user that is not watched has a state")
	}
	wantStates(t, p, "dora")
	first.Close()
	first.Close()
	if _, err := first.Next(ctx); !errors.Is(err, parley.ErrClosed) || !errors.Is(first.Err(), parley.ErrClosed) {
		t.Errorf("after Close: %v, %v", err, first.Err())
	}
	online(t, userClient(t, s, "dora"), parley.InBackground())
	wantStates(t, p, "dora ios(b)")
	wantNoState(t, p)
	hidden := ann.Presence(ctx, parley.Device{}, parley.Invisible(), parley.WatchUsers("bob"))
	t.Cleanup(hidden.Close)
	wantStates(t, hidden, "bob ios")
	if hidden.LoginToken() != "" || hidden.ConnectionID() != "" {
		t.Errorf("an invisible presence has the token %q and the connection %q", hidden.LoginToken(), hidden.ConnectionID())
	}
	if err := hidden.SetBackground(ctx, true); err != nil {
		t.Errorf("background of an invisible presence: %v", err)
	}
	if got, err := ann.PresenceOf(ctx, "ann"); err != nil || shownUser(got[0]) != "ann" {
		t.Errorf("presence of an invisible user: %v, %v", got, err)
	}
}

// TestPresenceAfterReconnect ends streams in each way. The login stays the same, a state that has
// changed meanwhile is delivered once, and none that the program has.
func TestPresenceAfterReconnect(t *testing.T) {
	t.Parallel()
	connects := func(s *parleytest.Server) int { return len(parleytest.RequestsOf[*parleyv1.ConnectRequest](s)) }
	for name, end := range map[string]func(s *parleytest.Server){
		"broken":  func(s *parleytest.Server) { s.EndStreams(nil) },
		"advised": func(s *parleytest.Server) { s.Advise(0) },
		"unavailable": func(s *parleytest.Server) {
			s.EndStreams(parleytest.Error(connect.CodeUnavailable, parleyv1.ErrorReason_ERROR_REASON_SHUTTING_DOWN))
		},
		"killed": func(s *parleytest.Server) { s.Kill(); s.Restart() },
		"silent": func(s *parleytest.Server) {
			before := connects(s)
			s.SetSilent(true)
			eventually(t, func() error {
				if connects(s) == before {
					return errors.New("the client keeps the silent stream")
				}
				return nil
			})
			s.SetSilent(false)
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			fleet := parleytest.StartFleet(t, 2)
			bobs, others := fleet[0], fleet[1]
			bobs.SetRepeat(true)
			bobs.SetHeartbeat(20 * time.Millisecond)
			online(t, userClient(t, others, "ann"))
			p := online(t, userClient(t, bobs, "bob"), parley.WatchUsers("ann", "carl", "dora"))
			wantStates(t, p, "ann ios", "carl", "dora")
			token := p.LoginToken()
			online(t, userClient(t, others, "carl"))
			wantStates(t, p, "carl ios")
			before := connects(bobs)
			end(bobs)
			online(t, userClient(t, others, "dora"))
			wantStates(t, p, "dora ios")
			wantNoState(t, p)
			requests := parleytest.RequestsOf[*parleyv1.ConnectRequest](bobs)[before:]
			for _, r := range requests {
				if r.GetLoginToken() != token || token == "" {
					t.Errorf("the login %q became %q", token, r.GetLoginToken())
				}
			}
			if len(requests) == 0 || p.LoginToken() != token {
				t.Errorf("%d streams, the login token %q", len(requests), p.LoginToken())
			}
		})
	}
}

// TestPresenceKeepsStates checks that a reconnect delivers no state that the program has, and
// that states which were not taken are merged.
func TestPresenceKeepsStates(t *testing.T) {
	t.Parallel()
	fleet := parleytest.StartFleet(t, 2)
	fleet[0].SetOfflineAfter(0)
	bobs, others := fleet[0], fleet[1]
	p := online(t, userClient(t, bobs, "bob"), parley.WatchUsers("ann", "carl"))
	wantStates(t, p, "ann", "carl")
	ann := userClient(t, others, "ann")
	first := online(t, ann)
	wantStates(t, p, "ann ios")
	bobs.Kill()
	first.Close()
	second := online(t, userClient(t, others, "carl"))
	third := online(t, ann)
	bobs.Restart()
	wantStates(t, p, "carl ios")
	wantNoState(t, p)
	for _, background := range []bool{true, false} {
		if err := third.SetBackground(testContext(t), background); err != nil {
			t.Fatalf("background: %v", err)
		}
		want := map[bool]string{true: "ann ios(b)", false: "ann ios"}[background]
		newest(t, p, "ann", want)
	}
	if err := second.SetBackground(testContext(t), true); err != nil {
		t.Fatalf("background: %v", err)
	}
	wantStates(t, p, "carl ios(b)")
	wantNoState(t, p)
}

// TestKicked ends a login. The presence ends with the winner, and does not connect again.
func TestKicked(t *testing.T) {
	t.Parallel()
	s := parleytest.Start(t)
	c := userClient(t, s, "ann")
	p := online(t, c)
	token := p.LoginToken()
	kick := &parley.Kick{
		Cause: parley.KickLogin, DeviceId: "tablet", Platform: parley.PlatformIPadOS, ConnectionId: "c-2",
	}
	if n := s.Kick("ann", kick); n != 1 {
		t.Fatalf("kicked %d streams", n)
	}
	_, err := p.Next(testContext(t))
	if e := asError(t, err); !errors.Is(err, parley.ErrKicked) || e.Retryable || e.Kick.GetDeviceId() != "tablet" ||
		e.Kick.GetPlatform() != parley.PlatformIPadOS || e.Kick.GetConnectionId() != "c-2" {
		t.Fatalf("got %+v", e)
	}
	if p.State() != parley.StateEnded || !errors.Is(p.Err(), parley.ErrKicked) {
		t.Errorf("state %s, error %v", p.State(), p.Err())
	}
	if n := len(parleytest.RequestsOf[*parleyv1.ConnectRequest](s)); n != 1 {
		t.Errorf("%d streams were opened", n)
	}
	if p.LoginToken() != "" {
		t.Errorf("the login token is %q after the end of the login", p.LoginToken())
	}
	again := c.Presence(testContext(t), phone, parley.WithLoginToken(token))
	t.Cleanup(again.Close)
	if _, err := again.Next(testContext(t)); !errors.Is(err, parley.ErrKicked) {
		t.Errorf("with the old login: %v", err)
	}
	online(t, c)
}

// TestLoginToken passes a stored login token to a new client.
func TestLoginToken(t *testing.T) {
	t.Parallel()
	s := parleytest.Start(t)
	tokens := make(chan string, 1)
	p := userClient(t, s, "ann").Presence(testContext(t), phone, parley.OnState(func(c parley.StateChange) {
		if c.State == parley.StateLive {
			tokens <- c.LoginToken
		}
	}))
	token := <-tokens
	if p.LoginToken() != token {
		t.Errorf("the login token is %q, the state had %q", p.LoginToken(), token)
	}
	p.Close()
	if next := online(t, userClient(t, s, "ann"), parley.WithLoginToken(token)); next.LoginToken() != token || token == "" {
		t.Errorf("the login %q became %q", token, next.LoginToken())
	}
}

func TestPresenceLagging(t *testing.T) {
	t.Parallel()
	s := parleytest.Start(t)
	p := online(t, userClient(t, s, "bob"))
	s.SetLagging(true)
	wantStates(t, p, "lagging true")
	if !p.Lagging() {
		t.Error("the presence is not lagging")
	}
	s.SetLagging(false)
	wantStates(t, p, "lagging false")
}

// TestCloseMakesOffline checks that Close and the end of the context disconnect on purpose: the
// user is offline at once, although streams that break keep users online for an hour.
func TestCloseMakesOffline(t *testing.T) {
	t.Parallel()
	s := parleytest.Start(t)
	s.SetOfflineAfter(time.Hour)
	c := userClient(t, s, "ann")
	isOffline := func() error {
		got, err := c.PresenceOf(testContext(t), "ann")
		if err != nil || shownUser(got[0]) != "ann" {
			return fmt.Errorf("presence %v, %w", got, err)
		}
		return nil
	}
	online(t, c).Close()
	if err := isOffline(); err != nil {
		t.Error(err)
	}
	ctx, cancel := context.WithCancel(testContext(t))
	p := c.Presence(ctx, phone)
	waitLive(t, p)
	cancel()
	if _, err := p.Next(testContext(t)); !errors.Is(err, context.Canceled) {
		t.Errorf("after the end of the context: %v", err)
	}
	if err := isOffline(); err != nil {
		t.Error(err)
	}
	p.Close()
	if n := len(parleytest.RequestsOf[*parleyv1.ConnectRequest](s)); n != 2 {
		t.Errorf("%d streams were opened", n)
	}
	frozen := c.Presence(testContext(t), phone)
	waitLive(t, frozen)
	s.Freeze()
	began := time.Now()
	frozen.Close()
	if took := time.Since(began); took > 10*time.Second {
		t.Errorf("Close took %s", took)
	}
	s.Thaw()
}

// TestPresenceLists reads the presence of many users, and lists all that are online.
func TestPresenceLists(t *testing.T) {
	t.Parallel()
	s := parleytest.Start(t)
	s.SetPageSize(2)
	want := []string{"ann ios", "bob ios", "carl ios", "dora ios", "emil ios"}
	for _, user := range want {
		online(t, userClient(t, s, strings.TrimSuffix(user, " ios")))
	}
	c := newClient(t, s.Addr())
	var got []string
	for u, err := range c.OnlineUsers(testContext(t), parley.PageSize(3)) {
		if err != nil {
			t.Fatalf("list: %v", err)
		}
		got = append(got, shownUser(u))
	}
	for _, r := range parleytest.RequestsOf[*parleyv1.ListOnlineUsersRequest](s) {
		if r.GetPageSize() != 3 {
			t.Errorf("a page of %d users was asked for", r.GetPageSize())
		}
	}
	if slices.Sort(got); !slices.Equal(got, want) {
		t.Errorf("online: %q, want %q", got, want)
	}
	ids := make([]string, 1200)
	for i := range ids {
		ids[i] = []string{"ann", "nobody", "emil"}[i%3]
	}
	states, err := c.PresenceOf(testContext(t), ids...)
	if err != nil || len(states) != len(ids) {
		t.Fatalf("%d states, %v", len(states), err)
	}
	for i, u := range states {
		if got, want := shownUser(u), []string{"ann ios", "nobody", "emil ios"}[i%3]; got != want {
			t.Fatalf("state %d: %q, want %q", i, got, want)
		}
	}
	if none, err := c.PresenceOf(testContext(t)); err != nil || len(none) != 0 {
		t.Errorf("of nobody: %v, %v", none, err)
	}
}
