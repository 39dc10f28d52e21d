package cli_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/parleyhq/parley/sdk/go/parleytest"
)

// TestChannelSettings checks that the commands create a channel with a retention, show it and
// change it.
func TestChannelSettings(t *testing.T) {
	t.Parallel()
	s := parleytest.Start(t)
	if got := run(t, s, "channel", "get", "room"); got.code != 1 || !strings.Contains(got.stderr, "CHANNEL_NOT_FOUND") {
		t.Errorf("a missing channel: exit code %d, stderr %q", got.code, got.stderr)
	}
	made := run(t, s, "channel", "create", "room", "--max-age", "720h", "--max-messages", "500", "--json").wantOK(t).objects(t)
	if want := "map[max_age:720h0m0s max_bytes:0 max_messages:500]"; len(made) != 1 || fmt.Sprint(made[0]["retention"]) != want {
		t.Errorf("create says %v, want %s", made, want)
	}
	for _, tc := range []struct {
		args []string
		want string
	}{
		{[]string{"get", "room"}, "room (open)  head 0, oldest 1, 0 messages, kept for 720h0m0s, up to 500 messages\n"},
		{[]string{"retain", "room", "--max-bytes", "4096"}, "room: messages are kept up to 4096 bytes\n"},
		{[]string{"retain", "room", "--all"}, "room: messages are kept without a limit\n"},
		{[]string{"retain", "room", "--default"}, "room: messages are kept by the server's default\n"},
		{[]string{"close", "room"}, "room is members only\n"},
		{[]string{"open", "room"}, "room is open\n"},
		{[]string{"delete", "room", "--confirm", "room"}, "room is deleted\n"},
		{[]string{"create", "room"}, "room is created (open)\n"},
	} {
		if got := run(t, s, append([]string{"channel"}, tc.args...)...).wantOK(t); got.stdout != tc.want {
			t.Errorf("%v says %q, want %q", tc.args, got.stdout, tc.want)
		}
	}
	if got := run(t, s, "channel", "retain", "room", "--max-messages", "5", "--etag", "old"); got.code != 1 || !strings.Contains(got.stderr, "ETAG_MISMATCH") {
		t.Errorf("an old etag: exit code %d, stderr %q", got.code, got.stderr)
	}
	for _, args := range [][]string{{"room"}, {"room", "--confirm", "rom"}} {
		if got := run(t, s, append([]string{"channel", "delete"}, args...)...); got.code != 2 {
			t.Errorf("delete %v: exit code %d, stderr %q", args, got.code, got.stderr)
		}
	}
	for _, args := range [][]string{{"room"}, {"room", "--all", "--default"}, {"room", "--all", "--max-bytes", "1"}} {
		if got := run(t, s, append([]string{"channel", "retain"}, args...)...); got.code != 2 {
			t.Errorf("%v: exit code %d, stderr %q", args, got.code, got.stderr)
		}
	}
}
