package cli_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/parleyhq/parley/clients/cli"
	"github.com/parleyhq/parley/sdk/go/parleytest"
)

// field returns a field of each object.
func field(objects []map[string]any, name string) []any {
	var all []any
	for _, o := range objects {
		all = append(all, o[name])
	}
	return all
}

// TestChannels checks that the channel commands create a channel, change and list its members, and
// that strangers are refused.
func TestChannels(t *testing.T) {
	t.Parallel()
	s := parleytest.Start(t)
	s.SetPageSize(2)
	s.SetUser("anns", "ann")
	s.SetActions("anns", "send", "history", "subscribe")
	ann := map[string]string{"PARLEY_ADDR": s.Addr(), "PARLEY_TOKEN": "anns"}
	made := run(t, s, "channel", "create", "secret", "--member", "bob", "--member", "carl", "--members-only",
		"--idempotency-key", "once", "--json").wantOK(t).objects(t)
	if len(made) != 1 || made[0]["channel_id"] != "secret" || made[0]["members_only"] != true || made[0]["created_by"] != "tester" {
		t.Errorf("create says %v", made)
	}
	if made[0]["head_seq"] != 0.0 || made[0]["oldest_seq"] != 1.0 || made[0]["expired_count"] != 0.0 || made[0]["epoch"] == "" {
		t.Errorf("create says %v", made)
	}
	again := run(t, s, "channel", "create", "secret", "--member", "bob", "--member", "carl", "--members-only", "--idempotency-key", "once")
	if again.wantOK(t).stdout != "secret is created (members only)\n" {
		t.Errorf("a repeat of create says %q", again.stdout)
	}
	if got := run(t, s, "channel", "create", "other", "bob"); got.code != 2 {
		t.Errorf("a member without --member: exit code %d, stderr %q", got.code, got.stderr)
	}
	if got := run(t, s, "channel", "create", "secret"); got.code != 1 || !strings.Contains(got.stderr, "CHANNEL_EXISTS") {
		t.Errorf("create again: exit code %d, stderr %q", got.code, got.stderr)
	}
	if got := runWith(t, ann, "", "send", "secret", "hello"); got.code != 1 || !strings.Contains(got.stderr, "NOT_MEMBER") {
		t.Errorf("send of a stranger: exit code %d, stderr %q", got.code, got.stderr)
	}
	got := runWith(t, ann, "", "tail", "open", "secret")
	if got.code != 1 || !strings.Contains(got.stderr, "NOT_MEMBER") || !strings.Contains(got.stderr, "(secret)") {
		t.Errorf("tail of a stranger: exit code %d, stderr %q", got.code, got.stderr)
	}
	if got := run(t, s, "channel", "add", "secret", "ann").wantOK(t); !strings.Contains(got.stdout, "secret: added ann") {
		t.Errorf("add says %q", got.stdout)
	}
	changed := run(t, s, "channel", "remove", "secret", "bob", "nobody", "--json").wantOK(t).objects(t)
	if fmt.Sprint(changed) != "[map[channel_id:secret event:removed user_ids:[bob nobody]]]" {
		t.Errorf("remove says %v", changed)
	}
	runWith(t, ann, "", "send", "secret", "hello").wantOK(t)
	runWith(t, ann, "", "send", "secret", "again").wantOK(t)
	members := run(t, s, "channel", "members", "secret", "--json").wantOK(t).objects(t)
	if got := field(members, "user_id"); fmt.Sprint(got) != "[ann carl tester]" || fmt.Sprint(field(members, "read_seq")) != "[2 0 0]" {
		t.Errorf("members %v", members)
	}
	if got := field(members, "role"); fmt.Sprint(got) != "[member member owner]" {
		t.Errorf("roles %v", got)
	}
	if got := run(t, s, "channel", "members", "secret").wantOK(t).stdout; !strings.HasPrefix(got, "ann  member since ") || !strings.Contains(got, "read up to 2") {
		t.Errorf("members, as text: %q", got)
	}
	if got := run(t, s, "read", "secret", "1").wantOK(t).stdout; got != "secret: read up to 1, 1 unread\n" {
		t.Errorf("read says %q", got)
	}
	read := run(t, s, "read", "secret", "1", "--json").wantOK(t).objects(t)
	if want := fmt.Sprintf("[map[channel_id:secret epoch:%s read_seq:1 unread:1]]", made[0]["epoch"]); fmt.Sprint(read) != want {
		t.Errorf("read says %v", read)
	}
	if got := run(t, s, "read", "secret", "3"); got.code != 1 || !strings.Contains(got.stderr, "OUT_OF_RANGE") {
		t.Errorf("read beyond the head: exit code %d, stderr %q", got.code, got.stderr)
	}
	run(t, s, "channel", "create", "empty").wantOK(t)
	run(t, s, "send", "lobby", "hi").wantOK(t)
	mine := run(t, s, "channel", "list", "--json").wantOK(t).objects(t)
	if fmt.Sprint(field(mine, "channel_id"), field(mine, "unread"), field(mine, "head_seq")) != "[empty lobby secret] [0 0 1] [0 1 2]" {
		t.Errorf("list: %v", mine)
	}
	if last, ok := mine[2]["last_message"].(map[string]any); !ok || last["content"] != "again" || mine[0]["last_message"] != nil {
		t.Errorf("last messages: %v", mine)
	}
	if got := run(t, s, "channel", "list").wantOK(t).stdout; !strings.Contains(got, "secret  1 unread, head 2, last <ann> again\n") {
		t.Errorf("list, as text: %q", got)
	}
	s.Kill()
	for _, args := range [][]string{
		{"channel", "list"},
		{"channel", "members", "x"},
		{"channel", "create", "x"},
		{"channel", "add", "x", "y"},
		{"channel", "remove", "x", "y"},
		{"read", "x", "1"},
		{"typing", "x"},
		{"info"},
	} {
		if got := run(t, s, append(args, "--timeout", "300ms")...); got.code != 1 || !strings.Contains(got.stderr, "refused") {
			t.Errorf("%q on a dead server: exit code %d, stderr %q", args, got.code, got.stderr)
		}
	}
	late := run(t, s, "channel", "create", "x", "--timeout", "4s")
	if lines := strings.Split(strings.TrimSpace(late.stderr), "\n"); len(lines) != 2 || !strings.HasPrefix(lines[0], "parley: still trying: ") {
		t.Errorf("a command that retries for 4 s: stderr %q", late.stderr)
	}
}

// tailing is a running tail command.
type tailing struct {
	stdout, stderr buffer
	done           chan int
}

func startTail(t *testing.T, args ...string) *tailing {
	t.Helper()
	run := &tailing{done: make(chan int, 1)}
	go func() {
		run.done <- cli.Run(testContext(t), append([]string{"--token", "tester"}, args...), strings.NewReader(""),
			&run.stdout, &run.stderr, func(string) string { return "" })
	}()
	return run
}

func wantText(t *testing.T, b *buffer, text string) {
	t.Helper()
	eventually(t, func() error {
		if !strings.Contains(b.String(), text) {
			return fmt.Errorf("%q is not in %q", text, b.String())
		}
		return nil
	})
}

// TestTailReportsTypingAndLoss checks that tail writes typing events and lost channels to stderr,
// or as JSON to stdout, and fails once it has lost all channels.
func TestTailReportsTypingAndLoss(t *testing.T) {
	t.Parallel()
	s := parleytest.Start(t)
	s.SetActions("tester", "send", "history", "subscribe")
	s.SetUser("anns", "ann")
	ann := map[string]string{"PARLEY_ADDR": s.Addr(), "PARLEY_TOKEN": "anns"}
	for _, id := range []string{"one", "two"} {
		runWith(t, ann, "", "channel", "create", id, "--member", "tester", "--members-only").wantOK(t)
	}
	text := startTail(t, "--server", s.Addr(), "tail", "one", "two", "two")
	objects := startTail(t, "--addr", s.Addr(), "--json", "tail", "one", "two")
	eventually(t, func() error {
		if n := s.Streams(); n != 2 {
			return fmt.Errorf("%d streams", n)
		}
		// Only current followers get the event.
		if got := runWith(t, ann, "", "typing", "one"); got.code != 0 {
			return fmt.Errorf("typing: %s", got.stderr)
		}
		if !strings.Contains(text.stderr.String(), "-- one: ann is typing") {
			return fmt.Errorf("stderr is %q", text.stderr.String())
		}
		return nil
	})
	wantText(t, &objects.stdout, `{"event":"typing","channel_id":"one","user_id":"ann"}`)
	runWith(t, ann, "", "send", "one", "bye").wantOK(t)
	wantText(t, &text.stdout, "one 1 <ann> bye")
	wantText(t, &objects.stdout, `"content":"bye"`)
	runWith(t, ann, "", "channel", "remove", "one", "tester").wantOK(t)
	wantText(t, &text.stderr, "-- one: lost after 1 (not member)")
	runWith(t, ann, "", "send", "two", "still here").wantOK(t)
	wantText(t, &text.stdout, "two 1 <ann> still here")
	runWith(t, ann, "", "channel", "remove", "two", "tester").wantOK(t)
	for _, one := range []*tailing{text, objects} {
		if code := <-one.done; code != 1 || !strings.Contains(one.stderr.String(), "lost all channels") {
			t.Errorf("exit code %d, stderr %q", code, one.stderr.String())
		}
	}
	if got := text.stdout.String(); strings.Contains(got, "typing") || strings.Contains(got, "lost") {
		t.Errorf("stdout is %q", got)
	}
	var kinds []any
	for _, k := range field(outcome{stdout: objects.stdout.String()}.objects(t), "event") {
		if k != "typing" {
			kinds = append(kinds, k)
		}
	}
	if want := []any{"sent", "lost", "sent", "lost"}; !slices.Equal(kinds, want) {
		t.Errorf("events %v, want %v", kinds, want)
	}
}
