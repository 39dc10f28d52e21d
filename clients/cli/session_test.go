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
	got := runWith(t, ann, "", "session", "append", "chat", "hello", "there", "--id", "once", "--meta", "k=v", "--title", "Restart").wantOK(t)
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
	listed := runWith(t, ann, "", "session", "list", "--json").wantOK(t).objects(t)
	if len(listed) != 1 || listed[0]["session_id"] != "chat" || listed[0]["count"] != 2.0 || listed[0]["owner_id"] != "ann" || listed[0]["title"] != "Restart" {
		t.Errorf("list says %v", listed)
	}
	if got := run(t, s, "session", "list", "--user", "ann").wantOK(t).stdout; !strings.Contains(got, "  chat  2 messages, ") {
		t.Errorf("list says %q", got)
	}
	for want, args := range map[string][]string{"  two\\twords\n": {"two\twords"}, " unread\n": nil} {
		got := runWith(t, ann, "", append([]string{"session", "rename", "chat"}, args...)...).wantOK(t)
		if got.stdout != "session chat is renamed\n" {
			t.Errorf("rename says %q", got.stdout)
		}
		if got := runWith(t, ann, "", "session", "list").wantOK(t).stdout; !strings.HasSuffix(got, want) {
			t.Errorf("list says %q, want the end %q", got, want)
		}
	}
	run(t, s, "session", "append", "other", "x").wantOK(t)
	all := run(t, s, "session", "list", "--all", "--json").wantOK(t).objects(t)
	if fmt.Sprint(field(all, "session_id"), field(all, "owner_id")) != "[other chat] [tester ann]" {
		t.Errorf("list says %v", all)
	}
	if got := run(t, s, "session", "list", "--all").wantOK(t).stdout; !strings.Contains(got, "  ann  chat  2 messages, ") {
		t.Errorf("list says %q", got)
	}
	if got := runWith(t, ann, "", "session", "list", "--all"); got.code != 1 || !strings.Contains(got.stderr, "CAPABILITY_MISSING") {
		t.Errorf("a list of all for one user: exit code %d, stderr %q", got.code, got.stderr)
	}
	if got := run(t, s, "session", "list", "--all", "--user", "ann"); got.code != 2 {
		t.Errorf("a list of all and of one: exit code %d", got.code)
	}
	runWith(t, ann, "", "session", "append", "gone", "x").wantOK(t)
	if got := runWith(t, ann, "", "session", "delete", "gone").wantOK(t).stdout; got != "session gone is deleted\n" {
		t.Errorf("delete says %q", got)
	}
	if got := runWith(t, ann, "", "session", "append", "gone", "x"); got.code != 1 || !strings.Contains(got.stderr, "SESSION_DELETED") {
		t.Errorf("append to a deleted session: exit code %d, stderr %q", got.code, got.stderr)
	}
	for want, args := range map[string][]string{
		"CAPABILITY_MISSING": {"append", "chat", "x", "--role", "system"}, "CHANNEL_NOT_FOUND": {"rename", "none", "x"},
	} {
		if got := runWith(t, ann, "", append([]string{"session"}, args...)...); got.code != 1 || !strings.Contains(got.stderr, want) {
			t.Errorf("%v: exit code %d, stderr %q", args, got.code, got.stderr)
		}
	}
	if got := run(t, s, "session", "append", "chat", "x", "--role", "boss"); got.code != 2 {
		t.Errorf("an unknown role: exit code %d", got.code)
	}
}
