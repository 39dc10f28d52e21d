package cli_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/parleyhq/parley/sdk/go/parleytest"
)

// TestSessions checks that the session commands append messages, once for each id, and show them.
func TestSessions(t *testing.T) {
	t.Parallel()
	s := parleytest.Start(t)
	s.SetUser("anns", "ann")
	s.SetActions("anns", "append", "history", "subscribe")
	ann := map[string]string{"PARLEY_ADDR": s.Addr(), "PARLEY_TOKEN": "anns"}
	got := runWith(t, ann, "", "session", "append", "chat", "hello", "there", "--id", "once", "--meta", "k=v").wantOK(t)
	if !strings.HasPrefix(got.stdout, "appended to session chat: seq 1, id ") {
		t.Errorf("append says %q", got.stdout)
	}
	again := runWith(t, ann, "hello there\n", "session", "append", "chat", "--id", "once", "--meta", "k=v").wantOK(t)
	if !strings.HasSuffix(again.stdout, " (duplicate)\n") {
		t.Errorf("a repeat says %q", again.stdout)
	}
	answers := run(t, s, "session", "append", "chat", "hi", "--role", "assistant", "--json").wantOK(t).objects(t)
	if len(answers) != 1 || answers[0]["channel_id"] != "~chat" || answers[0]["seq"] != 2.0 {
		t.Errorf("append says %v", answers)
	}
	shown := runWith(t, ann, "", "session", "show", "chat", "--json").wantOK(t).objects(t)
	if fmt.Sprint(field(shown, "msg_type"), field(shown, "content")) != "[user assistant] [hello there hi]" {
		t.Errorf("show says %v", shown)
	}
	if got := runWith(t, ann, "", "tail", "~chat", "--from-start", "--count", "2").wantOK(t).stdout; strings.Count(got, "\n") != 2 {
		t.Errorf("tail says %q", got)
	}
	for want, args := range map[string][]string{
		"CAPABILITY_MISSING": {"append", "chat", "x", "--role", "system"}, "CHANNEL_NOT_FOUND": {"show", "none"},
	} {
		if got := runWith(t, ann, "", append([]string{"session"}, args...)...); got.code != 1 || !strings.Contains(got.stderr, want) {
			t.Errorf("%v: exit code %d, stderr %q", args, got.code, got.stderr)
		}
	}
	if got := run(t, s, "session", "append", "chat", "x", "--role", "boss"); got.code != 2 {
		t.Errorf("an unknown role: exit code %d", got.code)
	}
}
