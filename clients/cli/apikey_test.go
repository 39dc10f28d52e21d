package cli_test

import (
	"strings"
	"testing"

	"github.com/parleyhq/parley/server/servertest"
)

// TestKey checks that a key that was created can be used, listed, rotated and revoked.
func TestKey(t *testing.T) {
	t.Parallel()
	s := servertest.Dev(t)
	with := func(credential string) map[string]string {
		return map[string]string{"PARLEY_ADDR": s.URL, "PARLEY_TOKEN": credential}
	}
	admin := with(s.TokenOf("root"))
	create := []string{"key", "create", "nightly import", "--sub", "importer", "--cap", "channel:room=send,history", "--cap", "presence=list", "--ttl", "1h"}
	credential := strings.TrimSpace(runWith(t, admin, "", create...).wantOK(t).stdout)
	if !strings.HasPrefix(credential, "parley_") {
		t.Fatalf("created %q", credential)
	}
	id := strings.Split(credential, "_")[1]
	runWith(t, with(credential), "", "send", "room", "hello").wantOK(t)
	if got := runWith(t, with(credential), "", "send", "hall", "hello"); got.code != 1 || !strings.Contains(got.stderr, "capability") {
		t.Errorf("send to another channel: exit code %d, stderr %q", got.code, got.stderr)
	}
	listed := runWith(t, admin, "", "key", "list", "--json").wantOK(t).objects(t)
	if len(listed) != 1 || listed[0]["key_id"] != id || listed[0]["subject"] != "importer" || listed[0]["state"] != "active" ||
		listed[0]["name"] != "nightly import" || listed[0]["created_by"] != "root" || listed[0]["credential"] != nil {
		t.Errorf("listed %v", listed)
	}
	line := runWith(t, admin, "", "key", "list").wantOK(t).stdout
	if !strings.HasPrefix(line, id+"  active  nightly import as importer  expires ") || strings.Contains(line, credential) ||
		!strings.HasSuffix(line, "  channel:room=send,history presence=list\n") {
		t.Errorf("list says %q", line)
	}
	rotated := runWith(t, admin, "", "key", "rotate", id, "--json").wantOK(t).objects(t)
	fresh, _ := rotated[0]["credential"].(string)
	if fresh == credential || rotated[0]["old_secret_expire_time"] == nil {
		t.Errorf("rotated: %v", rotated)
	}
	for _, each := range []string{credential, fresh} {
		runWith(t, with(each), "", "send", "room", "hello").wantOK(t)
	}
	got := runWith(t, admin, "", "key", "revoke", id, "--reason", "leaked").wantOK(t)
	if !strings.HasPrefix(got.stdout, "API key "+id+": revoked ") || !strings.HasSuffix(got.stdout, "leaked\n") {
		t.Errorf("revoke says %q", got.stdout)
	}
	for _, each := range []string{credential, fresh} {
		if got := runWith(t, with(each), "", "send", "room", "hello again"); got.code != 1 || !strings.Contains(got.stderr, "revoked") {
			t.Errorf("send: exit code %d, stderr %q", got.code, got.stderr)
		}
	}
	if line := runWith(t, admin, "", "key", "list").wantOK(t).stdout; !strings.HasPrefix(line, id+"  revoked  ") {
		t.Errorf("list says %q", line)
	}
	for _, args := range [][]string{{"create", "x"}, {"create", "x", "--sub", "a", "--cap", "queue:*=fly"}, {"rotate"}, {"revoke"}} {
		if got := runWith(t, admin, "", append([]string{"key"}, args...)...); got.code != 2 {
			t.Errorf("%v: exit code %d, stderr %q", args, got.code, got.stderr)
		}
	}
	if got := runWith(t, admin, "", "key", "revoke", strings.Repeat("a", 24)); got.code != 1 || !strings.Contains(got.stderr, "no API key") {
		t.Errorf("revoke of none: exit code %d, stderr %q", got.code, got.stderr)
	}
}
