package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	parleyv1 "github.com/parleyhq/parley/gen/go/parley/v1"
	parley "github.com/parleyhq/parley/sdk/go"
	"github.com/parleyhq/parley/server/servertest"
)

// asAssistant is the environment variable that makes the test binary run the assistant instead of
// tests. The assistant is then a process that can be killed, with the race detector if the tests
// have it.
const asAssistant = "PARLEY_EXAMPLE_ASSISTANT"

func TestMain(m *testing.M) {
	if os.Getenv(asAssistant) != "" {
		os.Exit(run(os.Args[1:]))
	}
	os.Exit(m.Run())
}

// desk is a server and a user who talks with assistants.
type desk struct {
	t      *testing.T
	ctx    context.Context
	server *servertest.Server
	user   *parley.Client
}

func newDesk(t *testing.T) *desk {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	t.Cleanup(cancel)
	d := &desk{t: t, ctx: ctx, server: servertest.Dev(t)}
	user, err := parley.New(d.server.URL, parley.WithToken(d.server.TokenOf("ann", "append", "subscribe", "history")))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(user.Close)
	d.user = user
	return d
}

// start starts an assistant in a process, with this number of tokens per second. It returns a
// function that kills the process.
func (d *desk) start(rate int) (kill func()) {
	d.t.Helper()
	cmd := exec.Command(os.Args[0], "--rate", fmt.Sprint(rate))
	cmd.Env = append(os.Environ(), asAssistant+"=1", "PARLEY_ADDR="+d.server.URL,
		"PARLEY_TOKEN="+d.server.TokenOf("assistant", "append", "history", "subscribe", "manage"))
	cmd.Stderr = d.t.Output()
	if err := cmd.Start(); err != nil {
		d.t.Fatal(err)
	}
	killed := false
	kill = func() {
		if !killed {
			killed = true
			_ = cmd.Process.Kill()
			_ = cmd.Wait()
		}
	}
	d.t.Cleanup(kill)
	return kill
}

func (d *desk) ask(session, text string) *parley.Receipt {
	d.t.Helper()
	r, err := d.user.Session(session).Append(d.ctx, parley.SessionRoleUser, text)
	if err != nil {
		d.t.Fatal(err)
	}
	return r
}

// answers returns the answers in a session, by the id of their prompt.
func (d *desk) answers(session string) map[string][]*parley.Message {
	d.t.Helper()
	got := make(map[string][]*parley.Message)
	for m, err := range d.user.Session(session).Messages(d.ctx, parley.AfterSeq(0)) {
		if err != nil {
			d.t.Fatal(err)
		}
		if m.GetMsgType() == string(parley.SessionRoleAssistant) {
			prompt := m.GetMetadata()["reply_to"]
			got[prompt] = append(got[prompt], m)
		}
	}
	return got
}

// answered waits until a prompt has n answers of which none is open, and returns the last one.
func (d *desk) answered(session, prompt string, n int) *parley.Message {
	d.t.Helper()
	var got []*parley.Message
	for ; d.ctx.Err() == nil; <-time.After(20 * time.Millisecond) {
		got = d.answers(session)[prompt]
		if len(got) >= n && got[len(got)-1].GetStatus() != parleyv1.MessageStatus_MESSAGE_STATUS_OPEN {
			break
		}
	}
	if len(got) != n {
		d.t.Fatalf("%d answers, want %d", len(got), n)
	}
	return got[n-1]
}

// streamed waits until a message has text, and returns its id and the text.
func (d *desk) streamed(session string) (id, text string) {
	d.t.Helper()
	sub := d.user.Session(session).Subscribe(d.ctx)
	defer sub.Close()
	var texts parley.OpenTexts
	for event, err := range sub.Events() {
		if err != nil {
			d.t.Fatal(err)
		}
		if id, text, ok := texts.Apply(&event); ok && event.Kind == parley.EventDelta && len(text) > 20 {
			return id, text
		}
	}
	d.t.Fatal("nothing is streamed")
	return "", ""
}

func wantAnswer(t *testing.T, m *parley.Message, status parleyv1.MessageStatus, prompt string) {
	t.Helper()
	tokens, _ := generate(prompt)
	if diff := cmp.Diff(strings.Join(tokens, ""), m.GetContent()); diff != "" || m.GetStatus() != status {
		t.Errorf("the answer is %s (-want +got):\n%s", m.GetStatus(), diff)
	}
}

const (
	sent      = parleyv1.MessageStatus_MESSAGE_STATUS_SENT
	failed    = parleyv1.MessageStatus_MESSAGE_STATUS_FAILED
	cancelled = parleyv1.MessageStatus_MESSAGE_STATUS_CANCELLED
)

// TestAssistantAnswers checks answers to prompts from before the start, to new ones in old and new
// sessions, and to an edited one, and that an answer can fail.
func TestAssistantAnswers(t *testing.T) {
	t.Parallel()
	d := newDesk(t)
	before := d.ask("old", "hello there")
	d.start(1000)
	wantAnswer(t, d.answered("old", before.MsgID, 1), sent, "hello there")
	bad := d.ask("old", "fail, please")
	wantAnswer(t, d.answered("old", bad.MsgID, 1), sent, "fail, please")
	bad = d.ask("old", "Fail now")
	wantAnswer(t, d.answered("old", bad.MsgID, 1), failed, "Fail now")
	fresh := d.ask("new", "one")
	wantAnswer(t, d.answered("new", fresh.MsgID, 1), sent, "one")
	if _, err := d.user.Session("new").Edit(d.ctx, fresh.MsgID, "one two three"); err != nil {
		t.Fatal(err)
	}
	wantAnswer(t, d.answered("new", fresh.MsgID, 2), sent, "one two three")
	recalled, next := d.ask("new", "long one"), d.ask("new", "next")
	if _, err := d.user.Session("new").Recall(d.ctx, next.MsgID); err != nil {
		t.Fatal(err)
	}
	last := d.ask("new", "last")
	d.answered("new", last.MsgID, 1)
	got := d.answers("new")
	if len(got[recalled.MsgID]) != 1 || len(got[next.MsgID]) != 0 {
		t.Errorf("%d and %d answers, want 1 and none for a recalled prompt", len(got[recalled.MsgID]), len(got[next.MsgID]))
	}
}

// TestAssistantIsStopped checks that a user can cancel and recall an answer, and that the next
// prompt is then answered.
func TestAssistantIsStopped(t *testing.T) {
	t.Parallel()
	d := newDesk(t)
	d.start(100)
	prompt := d.ask("talk", "long")
	id, text := d.streamed("talk")
	if _, err := d.user.Session("talk").Cancel(d.ctx, id); err != nil {
		t.Fatal(err)
	}
	if m := d.answered("talk", prompt.MsgID, 1); m.GetStatus() != cancelled || !strings.HasPrefix(m.GetContent(), text) {
		t.Errorf("the answer is %s, %q", m.GetStatus(), m.GetContent())
	}
	d.ask("talk", "long")
	id, _ = d.streamed("talk")
	if _, err := d.user.Session("talk").Recall(d.ctx, id); err != nil {
		t.Fatal(err)
	}
	last := d.ask("talk", "fail")
	wantAnswer(t, d.answered("talk", last.MsgID, 1), failed, "fail")
}

// TestAssistantIsKilled kills the assistant in the middle of an answer. The next one begins the
// answer anew, and answers no other prompt again.
func TestAssistantIsKilled(t *testing.T) {
	t.Parallel()
	d := newDesk(t)
	first := d.ask("talk", "hello")
	kill := d.start(1000)
	d.answered("talk", first.MsgID, 1)
	kill()
	kill = d.start(20)
	second := d.ask("talk", "hello again")
	id, _ := d.streamed("talk")
	kill()
	d.start(1000)
	m := d.answered("talk", second.MsgID, 1)
	wantAnswer(t, m, sent, "hello again")
	if m.GetMsgId() != id {
		t.Error("the answer is another message")
	}
	if n := len(d.answers("talk")[first.MsgID]); n != 1 {
		t.Errorf("the first prompt has %d answers", n)
	}
}

// TestTwoAssistants checks that two assistants give one answer to each prompt.
func TestTwoAssistants(t *testing.T) {
	t.Parallel()
	d := newDesk(t)
	d.start(500)
	d.start(500)
	for i := range 5 {
		text := fmt.Sprint("question ", i)
		prompt := d.ask(fmt.Sprint("talk-", i%2), text)
		wantAnswer(t, d.answered(fmt.Sprint("talk-", i%2), prompt.MsgID, 1), sent, text)
	}
	for i := range 2 {
		for prompt, got := range d.answers(fmt.Sprint("talk-", i)) {
			if len(got) != 1 {
				t.Errorf("the prompt %s has %d answers", prompt, len(got))
			}
		}
	}
}

// TestAssistantSkipsAnswered checks that a prompt that another assistant has answered stays as it
// is.
func TestAssistantSkipsAnswered(t *testing.T) {
	t.Parallel()
	d := newDesk(t)
	other, err := parley.New(d.server.URL, parley.WithToken(d.server.Token))
	if err != nil {
		t.Fatal(err)
	}
	defer other.Close()
	prompt := d.ask("talk", "hello")
	if _, err := other.Session("talk").Append(d.ctx, parley.SessionRoleAssistant, "hi",
		parley.WithMetadata(map[string]string{"reply_to": prompt.MsgID})); err != nil {
		t.Fatal(err)
	}
	d.start(1000)
	last := d.ask("talk", "last")
	d.answered("talk", last.MsgID, 1)
	if n := len(d.answers("talk")[prompt.MsgID]); n != 1 {
		t.Errorf("the first prompt has %d answers", n)
	}
}

// TestAssistantReportsErrors starts the assistant with tokens that do not allow it to work.
func TestAssistantReportsErrors(t *testing.T) {
	t.Parallel()
	d := newDesk(t)
	for name, one := range map[string]struct{ token, want string }{
		"no token":             {"", "--token"},
		"a token that may not": {d.server.TokenOf("ann", "append", "subscribe", "history"), "CAPABILITY_MISSING"},
	} {
		cmd := exec.CommandContext(d.ctx, os.Args[0])
		cmd.Env = append(os.Environ(), asAssistant+"=1", "PARLEY_ADDR="+d.server.URL)
		if one.token != "" {
			cmd.Env = append(cmd.Env, "PARLEY_TOKEN="+one.token)
		}
		out, err := cmd.CombinedOutput()
		if err == nil || !strings.Contains(string(out), one.want) {
			t.Errorf("%s: %v, output %q, want %q", name, err, out, one.want)
		}
	}
}
