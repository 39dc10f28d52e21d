package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	parley "github.com/parleyhq/parley/sdk/go"
	"github.com/parleyhq/parley/server/servertest"
)

// asBot is the environment variable that makes the test binary run the bot instead of tests. The
// bot is then a process that can be killed, with the race detector if the tests have it.
const asBot = "PARLEY_EXAMPLE_BOT"

func TestMain(m *testing.M) {
	if os.Getenv(asBot) != "" {
		os.Exit(run(os.Args[1:]))
	}
	os.Exit(m.Run())
}

// room is a server, a user who asks questions, and the file with the bot's position.
type room struct {
	t      *testing.T
	ctx    context.Context
	server *servertest.Server
	user   *parley.Client
	state  string
}

func newRoom(t *testing.T) *room {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	t.Cleanup(cancel)
	r := &room{t: t, ctx: ctx, server: servertest.Dev(t), state: filepath.Join(t.TempDir(), "position.json")}
	user, err := parley.New(r.server.URL, parley.WithToken(r.server.Mint("ann", "send", "subscribe", "history")))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(user.Close)
	r.user = user
	return r
}

// start starts the bot in a process. It returns a function that kills the process.
func (r *room) start() (kill func()) {
	r.t.Helper()
	cmd := exec.Command(os.Args[0], "--channel", "room", "--state", r.state)
	cmd.Env = append(os.Environ(), asBot+"=1", "PARLEY_ADDR="+r.server.URL,
		"PARLEY_TOKEN="+r.server.Mint("bot", "send", "subscribe"))
	cmd.Stderr = r.t.Output()
	if err := cmd.Start(); err != nil {
		r.t.Fatal(err)
	}
	killed := false
	kill = func() {
		if !killed {
			killed = true
			_ = cmd.Process.Kill()
			_ = cmd.Wait()
		}
	}
	r.t.Cleanup(kill)
	return kill
}

// ready waits until the bot has stored a position.
func (r *room) ready() {
	r.t.Helper()
	for r.ctx.Err() == nil {
		if _, err := os.Stat(r.state); err == nil {
			return
		}
		<-time.After(5 * time.Millisecond)
	}
	r.t.Fatal("the bot is not ready in time")
}

// ask sends a question and returns the message's id.
func (r *room) ask(text string) string {
	r.t.Helper()
	receipt, err := r.user.Send(r.ctx, "room", text)
	if err != nil {
		r.t.Fatal(err)
	}
	return receipt.MsgID
}

// answers sends "!echo end" and waits for its answer. It returns all answers of the bot before
// that, by the id of their question.
func (r *room) answers() map[string][]string {
	r.t.Helper()
	end := r.ask("!echo end")
	sub := r.user.Subscribe(r.ctx, parley.FromStart("room"))
	defer sub.Close()
	said := make(map[string][]string)
	for event, err := range sub.Events() {
		if err != nil {
			r.t.Fatal(err)
		}
		if event.Kind != parley.EventSent || event.Message.GetFromId() != "bot" {
			continue
		}
		question := event.Message.GetMetadata()["reply_to"]
		if question == end {
			break
		}
		said[question] = append(said[question], event.Message.GetContent())
	}
	return said
}

func TestBotAnswers(t *testing.T) {
	t.Parallel()
	r := newRoom(t)
	r.ask("!echo before the bot was there")
	r.start()
	r.ready()
	want := map[string][]string{
		r.ask("!help"):             {help},
		r.ask("!echo"):             {help},
		r.ask("!echo !echo !help"): {"!echo !help"},
	}
	clock := r.ask(" !time ")
	r.ask("hello")
	r.ask("!timetable")
	got := r.answers()
	if said := got[clock]; len(said) != 1 || !strings.HasPrefix(said[0], "It is ") {
		t.Errorf("!time is answered with %q", said)
	}
	delete(got, clock)
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("answers (-want +got):\n%s", diff)
	}
}

// TestBotIsKilled kills and starts the bot repeatedly, and restarts the server once, while
// questions are sent. Each question must be answered once.
func TestBotIsKilled(t *testing.T) {
	t.Parallel()
	r := newRoom(t)
	kill := r.start()
	r.ready()
	want := make(map[string][]string)
	for i := range 60 {
		text := fmt.Sprint("question ", i)
		want[r.ask("!echo "+text)] = []string{text}
		switch {
		case i == 30:
			r.server.Stop()
			r.server.Start()
		case i%10 == 5:
			kill()
		case i%10 == 8:
			kill = r.start()
		}
	}
	if diff := cmp.Diff(want, r.answers()); diff != "" {
		t.Errorf("answers (-want +got):\n%s", diff)
	}
}

// TestBotWithLostPosition restores an older position of the bot, as after a crash before it stored
// one. The bot answers questions again, and no answer may be stored twice.
func TestBotWithLostPosition(t *testing.T) {
	t.Parallel()
	r := newRoom(t)
	kill := r.start()
	r.ready()
	place, err := os.ReadFile(r.state)
	if err != nil {
		t.Fatal(err)
	}
	clock := r.ask("!time")
	want := map[string][]string{r.ask("!echo one"): {"one"}}
	first := r.answers()
	want[clock] = first[clock]
	if diff := cmp.Diff(want, first); diff != "" {
		t.Fatalf("answers (-want +got):\n%s", diff)
	}
	kill()
	if err := os.WriteFile(r.state, place, 0o600); err != nil {
		t.Fatal(err)
	}
	r.start() // It computes another answer to the same !time question, which must not be stored.
	second := r.answers()
	for id, said := range second {
		if said[0] == "end" {
			delete(second, id) // The question that ended the first call of answers.
		}
	}
	if diff := cmp.Diff(want, second); diff != "" {
		t.Errorf("answers after it was started again (-want +got):\n%s", diff)
	}
}

// TestBotReportsErrors starts the bot with invalid input. It must end with an error.
func TestBotReportsErrors(t *testing.T) {
	t.Parallel()
	r := newRoom(t)
	broken := filepath.Join(t.TempDir(), "broken.json")
	other := filepath.Join(t.TempDir(), "other.json")
	for path, content := range map[string]string{broken: `{"channel`, other: `{"channel_id": "kitchen", "seq": 7}`} {
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	good := r.server.Mint("bot", "send", "subscribe")
	for name, c := range map[string]struct{ token, state, want string }{
		"no token":             {"", r.state, "--token"},
		"not a token":          {"abc", r.state, "read the token"},
		"a token that may not": {r.server.Mint("bot", "send"), r.state, "CAPABILITY_MISSING"},
		"a broken file":        {good, broken, "broken.json"},
		"another channel's":    {good, other, "kitchen"},
	} {
		cmd := exec.CommandContext(r.ctx, os.Args[0], "--channel", "room", "--state", c.state)
		cmd.Env = append(os.Environ(), asBot+"=1", "PARLEY_ADDR="+r.server.URL)
		if c.token != "" {
			cmd.Env = append(cmd.Env, "PARLEY_TOKEN="+c.token)
		}
		out, err := cmd.CombinedOutput()
		if err == nil || !strings.Contains(string(out), c.want) {
			t.Errorf("%s: %v, output %q, want %q", name, err, out, c.want)
		}
	}
}
