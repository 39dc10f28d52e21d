package cli_test

import (
	"strings"
	"testing"

	"github.com/parleyhq/parley/clients/cli"
	"github.com/parleyhq/parley/server/servertest"
)

// TestSignOut checks that sign-out and revoke make a server refuse tokens, and that they are
// listed.
func TestSignOut(t *testing.T) {
	t.Parallel()
	s := servertest.Dev(t)
	as := func(user string) map[string]string {
		return map[string]string{"PARLEY_ADDR": s.URL, "PARLEY_TOKEN": s.TokenOf(user)}
	}
	ann, bob, admin := as("ann"), as("bob"), as("root")
	runWith(t, ann, "", "send", "room", "hello").wantOK(t)
	for range 2 { // a repeat succeeds
		runWith(t, ann, "", "sign-out").wantOK(t)
	}
	if got := runWith(t, ann, "", "send", "room", "hello again"); got.code != 1 || !strings.Contains(got.stderr, "revoked") {
		t.Errorf("send: exit code %d, stderr %q", got.code, got.stderr)
	}
	runWith(t, bob, "", "send", "room", "hello").wantOK(t)
	got := runWith(t, admin, "", "admin", "revoke", "--user", "bob", "--reason", "lost phone").wantOK(t)
	if !strings.HasPrefix(got.stdout, "user bob: revoked ") || !strings.Contains(got.stdout, " by root ") || !strings.HasSuffix(got.stdout, "lost phone\n") {
		t.Errorf("revoke says %q", got.stdout)
	}
	if got := runWith(t, bob, "", "send", "room", "hello again"); got.code != 1 || !strings.Contains(got.stderr, "revoked") {
		t.Errorf("send: exit code %d, stderr %q", got.code, got.stderr)
	}
	runWith(t, admin, "", "admin", "revoke", "--ssid", "phone").wantOK(t)
	listed := runWith(t, admin, "", "admin", "revoked", "--json").wantOK(t).objects(t)
	if len(listed) != 3 || listed[0]["ssid"] != "phone" || listed[1]["token_digest"] == "" || listed[1]["revoked_by"] != "ann" || listed[2]["user_id"] != "bob" {
		t.Errorf("revoked says %v", listed)
	}
	for _, args := range [][]string{{"revoke"}, {"revoke", "--ssid", "a", "--user", "b"}} {
		if got := runWith(t, admin, "", append([]string{"admin"}, args...)...); got.code != 2 {
			t.Errorf("%v: exit code %d, stderr %q", args, got.code, got.stderr)
		}
	}
}

// TestKick checks that kick ends the streams of a user, and says how many.
func TestKick(t *testing.T) {
	t.Parallel()
	s := servertest.Dev(t)
	as := func(user string) map[string]string {
		return map[string]string{"PARLEY_ADDR": s.URL, "PARLEY_TOKEN": s.TokenOf(user)}
	}
	var stdout, stderr buffer
	done := make(chan int, 1)
	go func() {
		args := []string{"presence", "connect", "--device", "phone", "--platform", "ios"}
		done <- cli.Run(testContext(t), args, strings.NewReader(""), &stdout, &stderr, func(name string) string { return as("ann")[name] })
	}()
	waitFor(t, &stderr, "parley: online")
	if got := runWith(t, as("root"), "", "admin", "kick", "ann", "--platform", "web").wantOK(t); got.stdout != "user ann: 0 streams ended on 0 nodes\n" {
		t.Errorf("kick of another platform says %q", got.stdout)
	}
	got := runWith(t, as("root"), "", "admin", "kick", "ann", "--platform", "ios", "--reason", "stolen phone").wantOK(t)
	if got.stdout != "user ann: 1 streams ended on 1 nodes\n" {
		t.Errorf("kick says %q", got.stdout)
	}
	if code := <-done; code != 1 || !strings.Contains(stderr.String(), "an operator ended the stream") || !strings.Contains(stderr.String(), "(stolen phone)") {
		t.Errorf("connect: exit code %d, stderr %q", code, stderr.String())
	}
	if got := runWith(t, as("root"), "", "admin", "kick", "ann", "--platform", "toaster"); got.code != 2 {
		t.Errorf("kick --platform toaster: exit code %d, stderr %q", got.code, got.stderr)
	}
}
