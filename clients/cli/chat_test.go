package cli_test

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/parleyhq/parley/clients/cli"
	parleyv1 "github.com/parleyhq/parley/gen/go/parley/v1"
	parley "github.com/parleyhq/parley/sdk/go"
	"github.com/parleyhq/parley/sdk/go/parleytest"
)

// chatSDK returns a client with a token.
func chatSDK(t *testing.T, s *parleytest.Server, token string) *parley.Client {
	t.Helper()
	client, err := parley.New(s.Addr(), parley.WithToken(token))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(client.Close)
	return client
}

// said returns the messages of a session as lines of role, status and content.
func said(s *parleytest.Server, session string) string {
	var lines []string
	for _, m := range s.Messages("~" + session) {
		lines = append(lines, fmt.Sprintf("%s %s %q", m.GetMsgType(), strings.ToLower(strings.TrimPrefix(m.GetStatus().String(), "MESSAGE_STATUS_")), m.GetContent()))
	}
	return strings.Join(lines, "\n")
}

// chatOf runs a chat with standard input.
func chatOf(t *testing.T, s *parleytest.Server, stdin string, args ...string) outcome {
	t.Helper()
	return runWith(t, map[string]string{"PARLEY_ADDR": s.Addr(), "PARLEY_TOKEN": "tester"}, stdin, append([]string{"session", "chat"}, args...)...)
}

// TestChatAnswersScript checks that a script's prompts are answered one after another by a program,
// with its arguments, and that the transcript is written.
func TestChatAnswersScript(t *testing.T) {
	t.Parallel()
	s := parleytest.Start(t)
	got := chatOf(t, s, "one\n\n  \ntwo\x00\xff\n", "talk", "--assistant", "sed", "-e", "s/^/re: /", "--").wantOK(t)
	want := "user: one\nassistant: re: one\nuser: two\ufffd\ufffd\nassistant: re: two\ufffd\ufffd\n"
	if got.stdout != want {
		t.Errorf("it says %q, want %q", got.stdout, want)
	}
	if got := said(s, "talk"); got != "user sent \"one\"\nassistant sent \"re: one\\n\"\nuser sent \"two\ufffd\ufffd\"\nassistant sent \"re: two\ufffd\ufffd\\n\"" {
		t.Errorf("the session holds:\n%s", got)
	}
	if m := s.Messages("~talk"); m[1].GetMetadata()["reply_to"] != m[0].GetMsgId() {
		t.Errorf("metadata %v", m[1].GetMetadata())
	}
	more := chatOf(t, s, "three", "talk", "--last", "1", "--assistant", "sh", "-c", "echo $PARLEY_SESSION").wantOK(t)
	if want := "assistant: re: two\ufffd\ufffd\nuser: three\nassistant: talk\n"; more.stdout != want {
		t.Errorf("it goes on with %q, want %q", more.stdout, want)
	}
	if none := chatOf(t, s, "", "talk", "--last", "0").wantOK(t); none.stdout != "" {
		t.Errorf("--last 0 shows %q", none.stdout)
	}
}

// TestChatBeginsSession checks that a chat without a session begins one and tells its id.
func TestChatBeginsSession(t *testing.T) {
	t.Parallel()
	s := parleytest.Start(t)
	got := chatOf(t, s, "hello", "--assistant", "cat").wantOK(t)
	first, _, _ := strings.Cut(got.stderr, "\n")
	id, ok := strings.CutPrefix(first, "parley: new session ")
	if !ok || said(s, id) != "user sent \"hello\"\nassistant sent \"hello\\n\"" {
		t.Errorf("stderr %q; the session holds:\n%s", got.stderr, said(s, id))
	}
	objects := chatOf(t, s, "hello", "--json", "--assistant", "cat").wantOK(t).objects(t)
	kinds := fmt.Sprint(field(objects, "event"))
	if kinds != "[session sent sent delta closed]" && kinds != "[session sent sent closed]" || objects[0]["session_id"] == id {
		t.Errorf("as JSON: %v", objects)
	}
}

// TestChatWithBadPrograms checks what becomes of answers of programs that fail, write what no
// message can hold, or write too much.
func TestChatWithBadPrograms(t *testing.T) {
	t.Parallel()
	s := parleytest.Start(t)
	for name, one := range map[string]struct {
		script, want, stderr string
		code                 int
	}{
		"fails":          {"printf so; echo why >&2; exit 3", `failed "so"`, "exit status 3", 1},
		"says nothing":   {"true", `sent ""`, "", 0},
		"invalid":        {`printf 'a\303'; sleep 0.1; printf '\244\377\000b\303'`, `sent "aä` + "\ufffd\ufffdb\ufffd" + `"`, "", 0},
		"reads nothing":  {"exec <&-; echo ok", `sent "ok\n"`, "", 0},
		"leaves a child": {"sleep 30 2>/dev/null & echo ok", `sent "ok\n"`, "", 0},
		"controls":       {`printf '\033[2J'`, `sent "\x1b[2J"`, "", 0},
		"kills itself":   {`printf x; kill -9 $$`, `failed "x"`, "signal: killed", 1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			id := strings.ReplaceAll(name, " ", "-")
			got := chatOf(t, s, "go", id, "--assistant", "sh", "-c", one.script)
			if got.code != one.code || !strings.Contains(got.stderr, one.stderr) {
				t.Errorf("exit code %d, stderr %q", got.code, got.stderr)
			}
			if content := said(s, id); content != "user sent \"go\"\nassistant "+one.want {
				t.Errorf("the session holds:\n%s", content)
			}
			if strings.ContainsRune(got.stdout, '\x1b') {
				t.Errorf("it writes %q", got.stdout)
			}
		})
	}
	if got := chatOf(t, s, "go", "x", "--assistant", "/no/such/program"); got.code != 2 || said(s, "x") != "" {
		t.Errorf("without a program: exit code %d, stderr %q", got.code, got.stderr)
	}
}

// TestChatCutsLongAnswer checks that the output of a program is cut to what a message can hold, and
// that the program is stopped.
func TestChatCutsLongAnswer(t *testing.T) {
	t.Parallel()
	s := parleytest.Start(t)
	got := chatOf(t, s, "go", "talk", "--assistant", "yes", "größer")
	if got.code != 1 || !strings.Contains(got.stderr, "too long") {
		t.Errorf("exit code %d, stderr %q", got.code, got.stderr)
	}
	m := s.Messages("~talk")[1]
	text := m.GetContent()
	if len(text) > 128<<10 || len(text) < 127<<10 || !strings.HasSuffix(text, "The rest is cut.]\n") || strings.ContainsRune(text, '\ufffd') ||
		m.GetStatus() != parleyv1.MessageStatus_MESSAGE_STATUS_FAILED {
		t.Errorf("%d bytes, %s, the end is %q", len(text), m.GetStatus(), text[max(0, len(text)-80):])
	}
	if !strings.HasSuffix(got.stdout, "The rest is cut.]\n(failed)\n") {
		t.Errorf("the output ends with %q", got.stdout[max(0, len(got.stdout)-80):])
	}
}

// chatting is a chat that runs in a process of its own.
type chatting struct {
	t              *testing.T
	cmd            *exec.Cmd
	stdin          io.WriteCloser
	stdout, stderr buffer
}

func startChat(t *testing.T, s *parleytest.Server, args ...string) *chatting {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	name := filepath.Join(t.TempDir(), parleyName)
	if err := os.Symlink(self, name); err != nil {
		t.Fatal(err)
	}
	c := &chatting{t: t, cmd: exec.CommandContext(testContext(t), name, append([]string{"session", "chat"}, args...)...)}
	c.cmd.Env = append(os.Environ(), "PARLEY_ADDR="+s.Addr(), "PARLEY_TOKEN=tester")
	c.cmd.Stdout, c.cmd.Stderr = &c.stdout, &c.stderr
	if c.stdin, err = c.cmd.StdinPipe(); err != nil {
		t.Fatal(err)
	}
	if err := c.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	return c
}

func (c *chatting) say(text string) {
	if _, err := io.WriteString(c.stdin, text+"\n"); err != nil {
		c.t.Error(err)
	}
}

func (c *chatting) wantText(text string) {
	c.t.Helper()
	eventually(c.t, func() error {
		if !strings.Contains(c.stdout.String(), text) {
			return fmt.Errorf("stdout %q, stderr %q; want %q", c.stdout.String(), c.stderr.String(), text)
		}
		return nil
	})
}

func (c *chatting) signal(s os.Signal) {
	if err := c.cmd.Process.Signal(s); err != nil {
		c.t.Error(err)
	}
}

func (c *chatting) wantExit(code int) {
	c.t.Helper()
	_ = c.cmd.Wait()
	if got := c.cmd.ProcessState.ExitCode(); got != code {
		c.t.Errorf("exit code %d, want %d; stderr %q", got, code, c.stderr.String())
	}
}

// slowly is a program that writes its process id to the file in $0, and then a word each 50 ms. It
// ignores SIGTERM if the prompt is stay.
const slowly = `echo $$ > "$0"; read x; [ "$x" = stay ] && trap '' TERM; while :; do printf 'word '; sleep 0.05; done`

func wantKilled(t *testing.T, pidFile string) {
	t.Helper()
	eventually(t, func() error {
		data, err := os.ReadFile(pidFile)
		if err != nil {
			return err
		}
		var pid int
		_, _ = fmt.Sscan(string(data), &pid)
		if err := syscall.Kill(pid, 0); pid == 0 || err == nil {
			return fmt.Errorf("process %d lives", pid)
		}
		return nil
	})
}

// TestChatInterrupted checks that an interrupt cancels the answer under way and stops its program,
// that the chat goes on, and that an interrupt without an answer ends it.
func TestChatInterrupted(t *testing.T) {
	t.Parallel()
	s := parleytest.Start(t)
	pid := filepath.Join(t.TempDir(), "pid")
	c := startChat(t, s, "talk", "--assistant", "sh", "-c", slowly, pid)
	c.say("one")
	c.wantText("assistant: word word ")
	c.signal(os.Interrupt)
	c.wantText("(cancelled)\n")
	wantKilled(t, pid)
	<-time.After(2 * time.Second) // a second interrupt within this time would end the chat
	c.say("stay")
	c.wantText("(cancelled)\nuser: stay\nassistant: word ")
	c.signal(os.Interrupt)
	eventually(t, func() error {
		if n := strings.Count(c.stdout.String(), "(cancelled)\n"); n != 2 {
			return fmt.Errorf("%d answers are cancelled", n)
		}
		return nil
	})
	c.signal(os.Interrupt) // while the program ignores that it is to end
	c.wantExit(0)
	wantKilled(t, pid)
	for i, m := range s.Messages("~talk") {
		if i%2 == 1 && (m.GetStatus() != parleyv1.MessageStatus_MESSAGE_STATUS_CANCELLED || !strings.HasPrefix(m.GetContent(), "word ")) {
			t.Errorf("message %d is %s, %q", i, m.GetStatus(), m.GetContent())
		}
	}
	idle := startChat(t, s, "talk")
	idle.wantText("user: stay\n")
	idle.signal(os.Interrupt)
	idle.wantExit(0)
}

// TestChatTerminated checks that the end of the chat closes the answer under way as cancelled.
func TestChatTerminated(t *testing.T) {
	t.Parallel()
	s := parleytest.Start(t)
	pid := filepath.Join(t.TempDir(), "pid")
	ctx, cancel := context.WithCancel(testContext(t))
	var stdout, stderr buffer
	done := make(chan int, 1)
	args := []string{"--addr", s.Addr(), "--token", "tester", "session", "chat", "talk", "--assistant", "sh", "-c", slowly, pid}
	go func() {
		done <- cli.Run(ctx, args, strings.NewReader("go"), &stdout, &stderr, func(string) string { return "" })
	}()
	eventually(t, func() error {
		if !strings.Contains(stdout.String(), "word word") {
			return fmt.Errorf("stdout %q, stderr %q", stdout.String(), stderr.String())
		}
		return nil
	})
	cancel()
	if code := <-done; code != 0 {
		t.Errorf("exit code %d, stderr %q", code, stderr.String())
	}
	if m := s.Messages("~talk")[1]; m.GetStatus() != parleyv1.MessageStatus_MESSAGE_STATUS_CANCELLED || !strings.HasPrefix(m.GetContent(), "word ") {
		t.Errorf("the answer is %s, %q", m.GetStatus(), m.GetContent())
	}
	wantKilled(t, pid)
}

// TestChatCancelledElsewhere checks that a cancel by another program stops a silent one.
func TestChatCancelledElsewhere(t *testing.T) {
	t.Parallel()
	s := parleytest.Start(t)
	pid := filepath.Join(t.TempDir(), "pid")
	c := startChat(t, s, "talk", "--assistant", "sh", "-c", `echo $$ > "$0"; printf hello; exec sleep 60`, pid)
	c.say("go")
	c.wantText("assistant: hello")
	began := time.Now()
	if _, err := chatSDK(t, s, "tester").Session("talk").Cancel(testContext(t), s.Messages("~talk")[1].GetMsgId()); err != nil {
		t.Fatal(err)
	}
	c.wantText("hello\n(cancelled)\n")
	wantKilled(t, pid)
	if took := time.Since(began); took > 10*time.Second {
		t.Errorf("it took %s", took)
	}
	_ = c.stdin.Close()
	c.wantExit(1)
}

// TestChatShowsAnswers checks what a chat shows of an assistant that is another program: text as it
// comes, an answer that begins again, edits and recalls.
func TestChatShowsAnswers(t *testing.T) {
	t.Parallel()
	s := parleytest.Start(t)
	ctx, backend := testContext(t), chatSDK(t, s, "tester").Session("talk")
	c := startChat(t, s, "talk")
	c.say("one")
	c.wantText("user: one\n")
	open := func(id, text string) *parley.OpenMessage {
		t.Helper()
		m, err := backend.Open(ctx, parley.SessionRoleAssistant, parley.WithClientMsgID(id))
		if err != nil {
			t.Fatal(err)
		}
		_, _ = io.WriteString(m, text)
		return m
	}
	open("a", "first\ntry")
	c.wantText("assistant: first\ntry")
	again := open("a", "second ")
	c.wantText("try\n(the text begins again)\nassistant: second ")
	other := open("b", "beside")
	_, _ = io.WriteString(again, "try")
	c.wantText("second try")
	if _, err := other.Fail(ctx, "beside"); err != nil {
		t.Fatal(err)
	}
	if err := again.Close(); err != nil {
		t.Fatal(err)
	}
	c.wantText("second try\nassistant: beside\n(failed)\n")
	prompt, answer := s.Messages("~talk")[0].GetMsgId(), again.Receipt().MsgID
	if _, err := backend.Edit(ctx, prompt, "ONE"); err != nil {
		t.Fatal(err)
	}
	c.wantText("(edited) user: ONE\n")
	if _, err := backend.Recall(ctx, answer); err != nil {
		t.Fatal(err)
	}
	c.wantText("(recalled) assistant: second try\n")
	_ = c.stdin.Close()
	c.wantExit(1) // the last answer has failed
	shown := chatOf(t, s, "", "talk").wantOK(t).stdout
	if shown != "user: ONE\nassistant: beside\n(failed)\n" {
		t.Errorf("the next chat shows %q", shown)
	}
	if got := chatOf(t, s, "two", "talk", "--wait", "50ms"); got.code != 1 || !strings.Contains(got.stderr, "no answer began within 50ms") {
		t.Errorf("without an assistant: exit code %d, stderr %q", got.code, got.stderr)
	}
}

// TestChatCancelsAnswer checks that an interrupt cancels the answer of another program.
func TestChatCancelsAnswer(t *testing.T) {
	t.Parallel()
	s := parleytest.Start(t)
	c := startChat(t, s, "talk")
	c.say("go")
	c.wantText("user: go\n")
	answer, err := chatSDK(t, s, "tester").Session("talk").Open(testContext(t), parley.SessionRoleAssistant)
	if err != nil {
		t.Fatal(err)
	}
	_, _ = io.WriteString(answer, "hello")
	c.wantText("assistant: hello")
	c.signal(os.Interrupt)
	c.wantText("hello\n(cancelled)\n")
	_ = c.stdin.Close()
	c.wantExit(1)
	if got := said(s, "talk"); got != "user sent \"go\"\nassistant cancelled \"hello\"" {
		t.Errorf("the session holds:\n%s", got)
	}
}
