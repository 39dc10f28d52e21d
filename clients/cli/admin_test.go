package cli_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/parleyhq/parley/server"
	"github.com/parleyhq/parley/server/servertest"
)

// TestErase checks that the commands erase a user, wait for it, and list erasures.
func TestErase(t *testing.T) {
	t.Parallel()
	s := servertest.Dev(t, servertest.WithServerOption(server.WithErasureSettle(200*time.Millisecond)))
	as := func(user string) map[string]string {
		return map[string]string{"PARLEY_ADDR": s.URL, "PARLEY_TOKEN": s.TokenOf(user)}
	}
	admin := as("root")
	runWith(t, as("ann"), "", "send", "room", "secret").wantOK(t)
	eventually(t, func() error { // a sender becomes a member by an event
		if got := runWith(t, admin, "", "channel", "members", "room").wantOK(t); !strings.HasPrefix(got.stdout, "ann ") {
			return fmt.Errorf("the members are %q", got.stdout)
		}
		return nil
	})
	got := runWith(t, admin, "", "admin", "erase", "ann", "--request-id", "7", "--wait", "--timeout", "1m").wantOK(t)
	if want := "7: erasure of ann: erased  1 messages, 0 other entries, 1 memberships\n"; got.stdout != want {
		t.Errorf("erase says %q, want %q", got.stdout, want)
	}
	if got := runWith(t, admin, "", "history", "room").wantOK(t); strings.Contains(got.stdout, "secret") || strings.Contains(got.stdout, "ann") {
		t.Errorf("history says %q", got.stdout)
	}
	runWith(t, admin, "", "admin", "erase", "bob").wantOK(t)
	if got := runWith(t, admin, "", "admin", "erasure", "7").wantOK(t); !strings.HasPrefix(got.stdout, "7: erasure of ann: erased") {
		t.Errorf("erasure says %q", got.stdout)
	}
	listed := runWith(t, admin, "", "admin", "erasures", "--json").wantOK(t).objects(t)
	users := map[string]bool{}
	for _, e := range listed {
		users[fmt.Sprint(e["user_id"], e["create_time"] != "")] = true
	}
	if len(listed) != 2 || !users["anntrue"] || !users["bobtrue"] {
		t.Errorf("erasures say %v", listed)
	}
	for _, args := range [][]string{{"erasure", "none"}, {"erase", "bob", "--request-id", "7"}, {"erase", "~erased"}} {
		if got := runWith(t, admin, "", append([]string{"admin"}, args...)...); got.code != 1 {
			t.Errorf("%v: exit code %d, stderr %q", args, got.code, got.stderr)
		}
	}
}
