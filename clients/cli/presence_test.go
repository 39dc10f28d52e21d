package cli_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"connectrpc.com/connect"

	"github.com/parleyhq/parley/clients/cli"
	parleyv1 "github.com/parleyhq/parley/gen/go/parley/v1"
	parley "github.com/parleyhq/parley/sdk/go"
	"github.com/parleyhq/parley/sdk/go/parleytest"
)

// interactive is a command that runs until it is interrupted.
type interactive struct {
	stdout, stderr buffer
	interrupt      context.CancelFunc
	done           chan int
}

// startAs runs the command line as a user until the test ends or interrupts it.
func startAs(t *testing.T, s *parleytest.Server, user string, args ...string) *interactive {
	t.Helper()
	s.SetUser("token of "+user, user)
	ctx, cancel := context.WithCancel(testContext(t))
	one := &interactive{interrupt: cancel, done: make(chan int, 1)}
	args = append([]string{"--addr", s.Addr(), "--token", "token of " + user}, args...)
	go func() {
		one.done <- cli.Run(ctx, args, strings.NewReader(""), &one.stdout, &one.stderr, func(string) string { return "" })
	}()
	t.Cleanup(cancel)
	return one
}

// waitFor waits until a text was written.
func waitFor(t *testing.T, b *buffer, text string) {
	t.Helper()
	eventually(t, func() error {
		if !strings.Contains(b.String(), text) {
			return fmt.Errorf("written: %q, want %q", b.String(), text)
		}
		return nil
	})
}

// TestPresence follows a user who comes, and goes by an interrupt.
func TestPresence(t *testing.T) {
	t.Parallel()
	s := parleytest.Start(t)
	s.SetOfflineAfter(time.Hour) // an interrupt disconnects on purpose, so it is not used
	watch := startAs(t, s, "bob", "presence", "watch", "ann", "carl")
	waitFor(t, &watch.stdout, "carl is offline")
	ann := startAs(t, s, "ann", "presence", "connect", "--platform", "android_tablet", "--user", "carl", "--background")
	waitFor(t, &ann.stdout, "carl is offline")
	waitFor(t, &ann.stderr, "parley: online")
	waitFor(t, &watch.stdout, "ann is online on android_tablet (background)\n")
	if got := run(t, s, "presence", "get", "ann", "nobody").wantOK(t).stdout; got != "ann is online on android_tablet (background)\nnobody is offline\n" {
		t.Errorf("get says %q", got)
	}
	get := run(t, s, "presence", "get", "ann", "nobody", "--json").wantOK(t).objects(t)
	want := "[map[online:true platforms:[map[background:true platform:android_tablet]] user_id:ann] map[online:false platforms:[] user_id:nobody]]"
	if fmt.Sprint(get) != want {
		t.Errorf("get says %v", get)
	}
	if got := run(t, s, "presence", "online").wantOK(t).stdout; got != "ann is online on android_tablet (background)\n" {
		t.Errorf("online says %q", got)
	}
	ann.interrupt()
	if code := <-ann.done; code != 0 {
		t.Errorf("connect: exit code %d, stderr %q", code, ann.stderr.String())
	}
	eventually(t, func() error {
		if strings.Count(watch.stdout.String(), "ann is offline") != 2 {
			return errors.New(watch.stdout.String())
		}
		return nil
	})
	if got := run(t, s, "presence", "online").wantOK(t).stdout; got != "" {
		t.Errorf("online says %q", got)
	}
	watch.interrupt()
	if code := <-watch.done; code != 0 {
		t.Errorf("watch: exit code %d, stderr %q", code, watch.stderr.String())
	}
}

// TestLoginTokenWithoutEvents connects without following anyone. The login token is written as soon
// as the presence is live.
func TestLoginTokenWithoutEvents(t *testing.T) {
	t.Parallel()
	s := parleytest.Start(t)
	ann := startAs(t, s, "ann", "presence", "connect", "--json")
	waitFor(t, &ann.stdout, `"login_token":"login-`)
	ann.interrupt()
	if code := <-ann.done; code != 0 {
		t.Errorf("exit code %d, stderr %q", code, ann.stderr.String())
	}
	if got := ann.stdout.String(); strings.Count(got, "\n") != 1 {
		t.Errorf("written: %q", got)
	}
}

// TestRefusedUser loses a user whom the server refuses when the stream is opened again.
func TestRefusedUser(t *testing.T) {
	t.Parallel()
	s := parleytest.Start(t)
	text := startAs(t, s, "bob", "presence", "watch", "ann", "carl")
	object := startAs(t, s, "bob", "presence", "watch", "ann", "carl", "--json")
	waitFor(t, &text.stdout, "carl is offline")
	waitFor(t, &object.stdout, `"user_id":"carl"`)
	s.SetStrangers("bob", "carl")
	s.EndStreams(parleytest.Error(connect.CodeUnavailable, parleyv1.ErrorReason_ERROR_REASON_SHUTTING_DOWN))
	waitFor(t, &text.stderr, "-- carl: lost (no shared channel)")
	waitFor(t, &object.stdout, `{"event":"user_lost","user_id":"carl"}`)
}

// TestPresenceOfChannel follows a channel, and continues a login.
func TestPresenceOfChannel(t *testing.T) {
	t.Parallel()
	s := parleytest.Start(t)
	run(t, s, "channel", "create", "room", "--members-only", "--member", "ann").wantOK(t)
	first := run(t, s, "presence", "connect", "--channel", "room", "--json", "--count", "1", "--device", "d").wantOK(t).objects(t)
	if len(first) != 2 || first[0]["event"] != "login" || first[1]["event"] != "channel" || first[1]["online_count"] != 1.0 ||
		first[1]["member_count"] != 2.0 || first[1]["complete"] != true || len(first[1]["online"].([]any)) != 1 {
		t.Errorf("connect says %v", first)
	}
	token := first[0]["login_token"].(string)
	again := run(t, s, "presence", "connect", "--channel", "room", "--login-token", token, "--platform", "web", "--count", "1").wantOK(t)
	if !strings.HasSuffix(again.stdout, "room: 1 of 2 online: tester\n") {
		t.Errorf("connect again says %q", again.stdout)
	}
	requests := parleytest.RequestsOf[*parleyv1.ConnectRequest](s)
	if len(requests) != 2 || requests[1].GetLoginToken() != token || token == "" {
		t.Errorf("requests %v", requests)
	}
	if got := run(t, s, "presence", "watch", "--channel", "open"); got.code != 1 || !strings.Contains(got.stderr, "CHANNEL_OPEN") {
		t.Errorf("watch an open channel: exit code %d, stderr %q", got.code, got.stderr)
	}
}

// TestKicked replaces the login of a command.
func TestKicked(t *testing.T) {
	t.Parallel()
	s := parleytest.Start(t)
	ann := startAs(t, s, "ann", "presence", "connect")
	waitFor(t, &ann.stderr, "parley: online")
	s.Kick("ann", &parleyv1.Kick{DeviceId: "tablet", Platform: parley.PlatformIPadOS})
	if code := <-ann.done; code != 1 || !strings.Contains(ann.stderr.String(), `replaced by device "tablet" on ipados`) {
		t.Errorf("exit code %d, stderr %q", code, ann.stderr.String())
	}
}

func TestPresenceUsage(t *testing.T) {
	t.Parallel()
	s := parleytest.Start(t)
	for _, args := range [][]string{
		{"presence"},
		{"presence", "get"},
		{"presence", "watch"},
		{"presence", "connect", "--platform", "toaster"},
		{"presence", "connect", "--device", ""},
		{"presence", "connect", "--count", "-1"},
		{"token", "--sub", "ann", "--cap", "presence=send"},
		{"token", "--sub", "ann", "--cap", "presence:x=watch"},
	} {
		if got := run(t, s, args...); got.code != 2 || got.stderr == "" {
			t.Errorf("%q: exit code %d, stderr: %s", args, got.code, got.stderr)
		}
	}
	if n := len(s.Requests()); n != 0 {
		t.Errorf("%d requests were made", n)
	}
}
