package cli_test

import (
	"fmt"
	"testing"

	"github.com/parleyhq/parley/clients/cli"
	"github.com/parleyhq/parley/sdk/go/parleytest"
)

// TestChatAtTerminal checks that a user at a terminal gets a prompt, and does not see again what
// they typed, and that an answer that does not come lets them ask again.
func TestChatAtTerminal(t *testing.T) {
	t.Parallel()
	s := parleytest.Start(t)
	outside, inside := openTerminal(t, 80, 24)
	var stdout, stderr buffer
	say := func(text string) {
		if _, err := outside.WriteString(text); err != nil {
			t.Error(err)
		}
	}
	want := func(text string) {
		t.Helper()
		eventually(t, func() error {
			if got := stdout.String(); got != text {
				return fmt.Errorf("stdout %q, want %q; stderr %q", got, text, stderr.String())
			}
			return nil
		})
	}
	begin := func(args ...string) (code chan int) {
		code = make(chan int, 1)
		args = append([]string{"--addr", s.Addr(), "--token", "tester", "session", "chat", "talk"}, args...)
		go func() {
			code <- cli.Run(testContext(t), args, inside, &stdout, &stderr, func(string) string { return "" })
		}()
		return code
	}
	ended := begin("--assistant", "sh", "-c", "read x; echo re $x; [ $x = one ]")
	want("> ")
	say("one\n")
	want("> assistant: re one\n> ")
	say("two\n")
	want("> assistant: re one\n> assistant: re two\n(failed)\n> ")
	say("\x04")
	if code := <-ended; code != 0 {
		t.Errorf("exit code %d, stderr %q", code, stderr.String())
	}
	stdout.reset()
	ended = begin("--last", "1")
	want("assistant: re two\n(failed)\n> ")
	say("nobody answers\n")
	want("assistant: re two\n(failed)\n> > ")
	say("\x04")
	if code := <-ended; code != 0 {
		t.Errorf("exit code %d, stderr %q", code, stderr.String())
	}
}
