package cli_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"connectrpc.com/connect"
	"github.com/golang-jwt/jwt/v5"
	"go.uber.org/goleak"
	"google.golang.org/protobuf/proto"

	"github.com/parleyhq/parley/clients/cli"
	parleyv1 "github.com/parleyhq/parley/gen/go/parley/v1"
	"github.com/parleyhq/parley/sdk/go/parleytest"
)

func TestMain(m *testing.M) {
	if code, ok := asProgram(); ok {
		os.Exit(code)
	}
	goleak.VerifyTestMain(m)
}

// buffer is an output that can be read while it is written.
type buffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (b *buffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.Write(p)
}

func (b *buffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.String()
}

func (b *buffer) reset() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.b.Reset()
}

// outcome is the exit code and the output of one run of the command line.
type outcome struct {
	code           int
	stdout, stderr string
}

func testContext(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	t.Cleanup(cancel)
	return ctx
}

// runWith runs the command line with an environment and standard input.
func runWith(t *testing.T, env map[string]string, stdin string, args ...string) outcome {
	t.Helper()
	var stdout, stderr buffer
	code := cli.Run(testContext(t), args, strings.NewReader(stdin), &stdout, &stderr, func(k string) string { return env[k] })
	return outcome{code: code, stdout: stdout.String(), stderr: stderr.String()}
}

// run runs the command line against a server.
func run(t *testing.T, s *parleytest.Server, args ...string) outcome {
	t.Helper()
	return runWith(t, map[string]string{"PARLEY_ADDR": s.Addr(), "PARLEY_TOKEN": "tester"}, "", args...)
}

func (o outcome) wantOK(t *testing.T) outcome {
	t.Helper()
	if o.code != 0 {
		t.Fatalf("exit code %d, stderr:\n%s", o.code, o.stderr)
	}
	return o
}

// objects returns the JSON objects of an output, one per line.
func (o outcome) objects(t *testing.T) []map[string]any {
	t.Helper()
	var all []map[string]any
	for l := range strings.Lines(o.stdout) {
		var v map[string]any
		if err := json.Unmarshal([]byte(l), &v); err != nil {
			t.Fatalf("%q is not a JSON object: %v", l, err)
		}
		all = append(all, v)
	}
	return all
}

func TestUsage(t *testing.T) {
	t.Parallel()
	s := parleytest.Start(t)
	for _, one := range []struct {
		args []string
		code int
	}{
		{[]string{"--help"}, 0},
		{[]string{"import", "--help"}, 0},
		{nil, 2},
		{[]string{"dance"}, 2},
		{[]string{"send"}, 2},
		{[]string{"send", "room", "--nonsense"}, 2},
		{[]string{"send", "room", "--lines", "text"}, 2},
		{[]string{"tail", "room", "--after", "3", "--from-start"}, 2},
		{[]string{"history", "room", "--limit", "0"}, 2},
		{[]string{"channel"}, 2},
		{[]string{"channel", "add", "room"}, 2},
		{[]string{"channel", "create"}, 2},
		{[]string{"read", "room", "0"}, 2},
		{[]string{"typing"}, 2},
		{[]string{"--addr", "http://a,https://b", "send", "room", "text"}, 2},
		{[]string{"import", "somewhere"}, 2},
		{[]string{"--addr", "ftp://host", "send", "room", "text"}, 2},
		{[]string{"token", "--sub", "two words"}, 2},
		{[]string{"token", "--sub", "~erased"}, 2},
		{[]string{"token", "--sub", "ann", "--cap", "send"}, 2},
		{[]string{"token", "--sub", "ann", "--ttl", "-1h"}, 2},
	} {
		got := run(t, s, one.args...)
		if got.code != one.code {
			t.Errorf("%q: exit code %d, want %d; stderr: %s", one.args, got.code, one.code, got.stderr)
		}
		if one.code == 2 && got.stderr == "" {
			t.Errorf("%q: stderr is empty", one.args)
		}
	}
	if n := len(s.Requests()); n != 0 {
		t.Errorf("%d requests were made", n)
	}
}

func TestSendAndHistory(t *testing.T) {
	t.Parallel()
	s := parleytest.Start(t)
	env := map[string]string{"PARLEY_ADDR": s.Addr(), "PARLEY_TOKEN": "tester"}
	if got := run(t, s, "send", "room", "hello", "there").wantOK(t); !strings.Contains(got.stdout, "seq 1") {
		t.Errorf("send says %q", got.stdout)
	}
	runWith(t, env, "two\nlines\n", "send", "room").wantOK(t)
	runWith(t, env, "a\n\nb\n", "send", "room", "--lines").wantOK(t)
	sent := run(t, s, "send", "room", "tagged", "--json", "--id", "my-id", "--type", "note", "--from", "bob", "--meta", "k=v").
		wantOK(t).objects(t)
	if len(sent) != 1 || sent[0]["seq"] != 5.0 || sent[0]["client_msg_id"] != "my-id" || sent[0]["duplicate"] != false {
		t.Errorf("receipt: %v", sent)
	}
	want := []string{"hello there", "two\nlines", "a", "b", "tagged"}
	if got := s.Contents("room"); !slices.Equal(got, want) {
		t.Errorf("the room holds %q, want %q", got, want)
	}
	for name, one := range map[string]struct {
		args []string
		want []float64
	}{
		"newest, in order": {nil, []float64{1, 2, 3, 4, 5}},
		"newest two":       {[]string{"--limit", "2"}, []float64{4, 5}},
		"before":           {[]string{"--before", "4", "--limit", "2"}, []float64{2, 3}},
		"after":            {[]string{"--after", "1", "--limit", "2"}, []float64{2, 3}},
		"all":              {[]string{"--all", "--limit", "1"}, []float64{1, 2, 3, 4, 5}},
		"all between":      {[]string{"--all", "--after", "1", "--before", "5"}, []float64{2, 3, 4}},
	} {
		var got []float64
		for _, m := range run(t, s, append([]string{"history", "room", "--json"}, one.args...)...).wantOK(t).objects(t) {
			got = append(got, m["seq"].(float64))
		}
		if !slices.Equal(got, one.want) {
			t.Errorf("%s: %v, want %v", name, got, one.want)
		}
	}
	lines := strings.Split(strings.TrimSpace(run(t, s, "history", "room").wantOK(t).stdout), "\n")
	if len(lines) != 5 || !strings.HasSuffix(lines[1], `room 2 <tester> two\nlines`) {
		t.Errorf("history, as text: %q", lines)
	}
}

// TestOutputEscapesControlCharacters checks that content that could control the reader's terminal
// is written escaped.
func TestOutputEscapesControlCharacters(t *testing.T) {
	t.Parallel()
	s := parleytest.Start(t)
	s.Post("room", "bob", "\x1b]0;owned\x07 \u202etfel \r\n é 世界")
	got := run(t, s, "history", "room").wantOK(t).stdout
	if !strings.HasSuffix(got, `<bob> \x1b]0;owned\a \u202etfel \r\n é 世界`+"\n") {
		t.Errorf("history writes %q", got)
	}
}

func TestErrorsIncludeReason(t *testing.T) {
	t.Parallel()
	s := parleytest.Start(t)
	s.FaultTimes(1, "SendMessage", parleytest.Fault{
		Err: parleytest.Error(connect.CodePermissionDenied, parleyv1.ErrorReason_ERROR_REASON_CAPABILITY_MISSING),
	})
	got := run(t, s, "send", "room", "hello")
	if got.code != 1 || !strings.Contains(got.stderr, "CAPABILITY_MISSING") || !strings.Contains(got.stderr, "test-request") {
		t.Errorf("exit code %d, stderr %q", got.code, got.stderr)
	}
	s.Kill()
	for _, args := range [][]string{
		{"send", "room", "hello", "--timeout", "300ms"}, {"history", "room", "--timeout", "300ms"},
	} {
		if got := run(t, s, args...); got.code != 1 || !strings.Contains(got.stderr, "refused") {
			t.Errorf("%q on a dead server: exit code %d, stderr %q", args, got.code, got.stderr)
		}
	}
}

// TestAccess checks the sources of address and token, and that the token of a local server is sent
// to no other server.
func TestAccess(t *testing.T) {
	t.Parallel()
	s := parleytest.Start(t)
	dir := t.TempDir()
	writeFile(t, dir, "dev-addr", "http://"+s.Addr())
	writeFile(t, dir, "dev-token", "from-file")
	for name, one := range map[string]struct {
		env  map[string]string
		args []string
		want string
	}{
		"files":                      {nil, nil, "from-file"},
		"environment":                {map[string]string{"PARLEY_TOKEN": "from-env"}, nil, "from-env"},
		"flag":                       {map[string]string{"PARLEY_TOKEN": "from-env"}, []string{"--token", "from-flag"}, "from-flag"},
		"address of a flag":          {map[string]string{"PARLEY_ADDR": "127.0.0.1:1"}, []string{"--addr", s.Addr()}, "from-file"},
		"address of the environment": {map[string]string{"PARLEY_ADDR": s.Addr()}, nil, "from-file"},
	} {
		runWith(t, one.env, "", append(one.args, "--data-dir", dir, "send", "room", "hello")...).wantOK(t)
		if tokens := s.Tokens(); tokens[len(tokens)-1] != one.want {
			t.Errorf("%s: the token %q was used, want %q", name, tokens[len(tokens)-1], one.want)
		}
	}
	got := runWith(t, nil, "", "--addr", "parley.example.com:443", "--data-dir", dir, "send", "room", "hello")
	if got.code != 2 || !strings.Contains(got.stderr, "no token") {
		t.Errorf("a local token for another server: exit code %d, stderr %q", got.code, got.stderr)
	}
}

// TestTail checks that tail writes the messages, edits and recalls of two channels, also after the
// server was killed and restarted.
func TestTail(t *testing.T) {
	t.Parallel()
	s := parleytest.Start(t)
	s.SetUser("", "bob") // for the client below, which edits and recalls messages of bob
	s.Post("room", "bob", "one")
	s.Post("room", "bob", "two")
	args := []string{"--addr", s.Addr(), "--token", "tester", "tail", "room", "other", "--after", "1", "--count", "5"}
	var stdout, stderr buffer
	done := make(chan int, 1)
	go func() {
		done <- cli.Run(testContext(t), args, strings.NewReader(""), &stdout, &stderr, func(string) string { return "" })
	}()
	// The other channel has no entries, so a start after 1 is a gap.
	eventually(t, func() error {
		if !strings.Contains(stdout.String(), "<bob> two") || !strings.Contains(stdout.String(), "-- other:") {
			return fmt.Errorf("stdout is %q", stdout.String())
		}
		return nil
	})
	s.Kill()
	s.Restart()
	s.Post("other", "ann", "three")
	first := s.Messages("room")[0].GetMsgId()
	client := parleytestClient(t, s)
	if _, err := client.EditMessage(testContext(t), &parleyv1.EditMessageRequest{
		ChannelId: "room", MsgId: first, Content: "ONE", ClientMsgId: "edit",
	}); err != nil {
		t.Fatal(err)
	}
	eventually(t, func() error {
		if !strings.Contains(stdout.String(), "room 3 (edited 1) <bob> ONE") {
			return fmt.Errorf("stdout is %q", stdout.String())
		}
		return nil
	})
	if _, err := client.RecallMessage(testContext(t), &parleyv1.RecallMessageRequest{
		ChannelId: "room", MsgId: first, ClientMsgId: "recall",
	}); err != nil {
		t.Fatal(err)
	}
	s.Post("room", "bob", "last")
	if code := <-done; code != 0 {
		t.Fatalf("exit code %d, stderr %s", code, stderr.String())
	}
	if got := stdout.String(); !strings.Contains(got, "room 4 (recalled 1) <bob> (recalled)") ||
		!strings.Contains(got, "other 1 <ann> three") || !strings.Contains(got, "room 5 <bob> last") {
		t.Errorf("stdout is %q", got)
	}
	if !strings.Contains(stderr.String(), "reconnected") {
		t.Errorf("stderr is %q", stderr.String())
	}
	events := run(t, s, "tail", "room", "--from-start", "--count", "5", "--json").wantOK(t).objects(t)
	var kinds []string
	for _, e := range events {
		kinds = append(kinds, e["event"].(string))
	}
	if want := []string{"sent", "sent", "edited", "recalled", "sent"}; !slices.Equal(kinds, want) {
		t.Errorf("events %v, want %v", kinds, want)
	}
}

func TestTailEndsQuietlyWhenInterrupted(t *testing.T) {
	t.Parallel()
	s := parleytest.Start(t)
	ctx, cancel := context.WithCancel(t.Context())
	var stdout, stderr buffer
	done := make(chan int, 1)
	go func() {
		done <- cli.Run(ctx, []string{"--addr", s.Addr(), "--token", "t", "tail", "room"}, strings.NewReader(""), &stdout, &stderr,
			func(string) string { return "" })
	}()
	eventually(t, func() error {
		if s.Streams() != 1 {
			return fmt.Errorf("%d streams", s.Streams())
		}
		return nil
	})
	cancel()
	if code := <-done; code != 0 {
		t.Errorf("exit code %d, stderr %q", code, stderr.String())
	}
}

func TestToken(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	const secret = "0123456789abcdef0123456789abcdef"
	if got := runWith(t, nil, "", "--data-dir", dir, "token", "--sub", "ann"); got.code != 1 {
		t.Errorf("without a secret: exit code %d", got.code)
	}
	if err := os.WriteFile(filepath.Join(dir, "dev-secret"), []byte(secret+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	got := runWith(t, nil, "", "--data-dir", dir, "token", "--sub", "auth0|42", "--ttl", "2h",
		"--cap", "channel:*=send,history,manage", "--cap", "channel:irc-*=send_as").wantOK(t)
	claims := jwt.MapClaims{}
	_, err := jwt.ParseWithClaims(strings.TrimSpace(got.stdout), claims, func(*jwt.Token) (any, error) { return []byte(secret), nil },
		jwt.WithValidMethods([]string{"HS256"}), jwt.WithExpirationRequired(), jwt.WithIssuedAt())
	if err != nil {
		t.Fatalf("parse: %v", err)
	}
	if life := claims["exp"].(float64) - claims["iat"].(float64); life != 7200 || claims["sub"] != "auth0|42" {
		t.Errorf("claims %v", claims)
	}
	want := map[string]any{"channel:*": []any{"send", "history", "manage"}, "channel:irc-*": []any{"send_as"}}
	if fmt.Sprint(claims["cap"]) != fmt.Sprint(want) {
		t.Errorf("capabilities %v, want %v", claims["cap"], want)
	}
	env := map[string]string{"PARLEY_AUTH_HS256_SECRET": strings.Repeat("e", 32)}
	other := runWith(t, env, "", "--data-dir", dir, "token", "--sub", "ann").wantOK(t)
	if _, err := jwt.Parse(strings.TrimSpace(other.stdout), func(*jwt.Token) (any, error) {
		return []byte(env["PARLEY_AUTH_HS256_SECRET"]), nil
	}); err != nil {
		t.Errorf("with the secret of the environment: %v", err)
	}
	file := filepath.Join(t.TempDir(), "secret")
	if err := os.WriteFile(file, []byte(env["PARLEY_AUTH_HS256_SECRET"]+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	fromFile := runWith(t, map[string]string{"PARLEY_AUTH_HS256_SECRET_FILE": file}, "", "--data-dir", dir, "token", "--sub", "ann").wantOK(t)
	if _, err := jwt.Parse(strings.TrimSpace(fromFile.stdout), func(*jwt.Token) (any, error) {
		return []byte(env["PARLEY_AUTH_HS256_SECRET"]), nil
	}); err != nil {
		t.Errorf("with the secret of a file: %v", err)
	}
	if got := runWith(t, map[string]string{"PARLEY_AUTH_HS256_SECRET_FILE": file + "-none"}, "", "--data-dir", dir, "token", "--sub", "ann"); got.code == 0 ||
		!strings.Contains(got.stderr, file+"-none") {
		t.Errorf("with a missing file: exit code %d, %s", got.code, got.stderr)
	}
	one := runWith(t, nil, "", "--data-dir", dir, "token", "--sub", "ann", "--json").wantOK(t).objects(t)
	if len(one) != 1 || one[0]["sub"] != "ann" || one[0]["token"] == "" {
		t.Errorf("for programs: %v", one)
	}
}

// TestTokenCapabilities checks that a capability or action that no server knows is an error: a
// token with it would seem to allow something.
func TestTokenCapabilities(t *testing.T) {
	t.Parallel()
	env := map[string]string{"PARLEY_AUTH_HS256_SECRET": strings.Repeat("e", 32)}
	const forms, onChannels, onQueues, onAdmin = "must be channel:<pattern>=<action>,..., member:<pattern>=<action>,..., session:<pattern>=<action>,..., queue:<pattern>=<action>,..., presence=<action>,..., presence, admin=<action>,... or admin",
		"must be one of send, history, subscribe, moderate, send_as, create, manage", "must be one of produce, consume", "must be one of read, write"
	for capability, want := range map[string]string{
		"send": forms, "admn": forms, "Admin": forms, "admin:*=read": forms, "admin:": forms, "chanel:*=send": forms, "topic:*=produce": forms, "channel:*": forms, "": forms,
		"channel:*=sned": onChannels, "channel:*=send,": onChannels, "channel:*=": onChannels, "channel:*=Send": onChannels, "channel:*=produce": onChannels,
		"admin=all": onAdmin, "admin=": onAdmin, "admin=reed": onAdmin, "admin=read,wright": onAdmin, "admin=*": onAdmin, "admin=true": onAdmin,
		"session:*=send": "must be one of append, history, subscribe, send_as, manage", "session:~a=append": "the pattern must be", "session": forms,
		"queue:*=consum": onQueues, "queue:jobs=produce,send": onQueues, "queue:jobs=*": onQueues, "queue:jobs=admin": onQueues,
		"channel:=send": "the pattern must be", "queue:a*b=consume": "the pattern must be", "queue:a:b=consume": "the pattern must be",
		"queue:**=consume": "the pattern must be", "channel:" + strings.Repeat("a", 129) + "=send": "the pattern must be 1 to 128", "queue:" + strings.Repeat("a", 65) + "=consume": "the pattern must be 1 to 64",
	} {
		got := runWith(t, env, "", "token", "--sub", "ann", "--cap", "queue:jobs=produce", "--cap", capability)
		if got.code != 2 || got.stdout != "" || !strings.Contains(got.stderr, want) {
			t.Errorf("%q: exit code %d, stderr %q, want %q", capability, got.code, got.stderr, want)
		}
	}
	for _, capability := range []string{
		"admin", "channel:*=send, history,subscribe,moderate,send_as,manage", "queue:a-b_C9=produce,consume", "queue:jobs-*=consume", "session:*=append,history,subscribe,send_as,manage",
		"channel:" + strings.Repeat("a", 128) + "*=send", "queue:" + strings.Repeat("a", 64) + "=consume",
	} {
		runWith(t, env, "", "token", "--sub", "ann", "--cap", capability).wantOK(t)
	}
	for capability, want := range map[string]string{
		"admin": "[read write]", "admin=read": "[read]", "admin=write": "[write]", "admin=read, write": "[read write]",
	} {
		minted := runWith(t, env, "", "token", "--sub", "ann", "--cap", capability).wantOK(t)
		var claims jwt.MapClaims
		if _, _, err := jwt.NewParser().ParseUnverified(strings.TrimSpace(minted.stdout), &claims); err != nil {
			t.Fatal(err)
		}
		if got := fmt.Sprint(claims["cap"]); got != "map[admin:"+want+"]" {
			t.Errorf("%s: minted %s, want %s", capability, got, want)
		}
	}
}

func writeFile(t *testing.T, dir, name, content string) {
	t.Helper()
	if err := os.WriteFile(filepath.Join(dir, name), []byte(content+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
}

func eventually(t *testing.T, check func() error) {
	t.Helper()
	var err error
	for deadline := time.Now().Add(20 * time.Second); time.Now().Before(deadline); <-time.After(2 * time.Millisecond) {
		if err = check(); err == nil {
			return
		}
	}
	t.Fatalf("not in time: %v", err)
}

// itemFault fails the item with an id the first n times.
func itemFault(id string, n int, err error) func(string, proto.Message) *parleytest.Fault {
	return func(method string, _ proto.Message) *parleytest.Fault {
		if method != "SendMessages/"+id || n == 0 {
			return nil
		}
		n--
		return &parleytest.Fault{Err: err}
	}
}
