package cli_test

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"connectrpc.com/connect"
	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/proto"

	"github.com/parleyhq/parley/clients/cli"
	parleyv1 "github.com/parleyhq/parley/gen/go/parley/v1"
	"github.com/parleyhq/parley/gen/go/parley/v1/parleyv1connect"
	"github.com/parleyhq/parley/sdk/go/parleytest"
	"github.com/parleyhq/parley/server/servertest"
)

// parleytestClient returns a generated client of s that sends no token.
func parleytestClient(t *testing.T, s *parleytest.Server) parleyv1connect.MessageServiceClient {
	t.Helper()
	transport := http.DefaultTransport.(*http.Transport).Clone()
	t.Cleanup(transport.CloseIdleConnections)
	return parleyv1connect.NewMessageServiceClient(&http.Client{Transport: transport}, "http://"+s.Addr())
}

// stored returns the channel's messages, one line per message.
func stored(s *parleytest.Server, channel string) []string {
	var lines []string
	for _, m := range s.Messages(channel) {
		lines = append(lines, fmt.Sprintf("%s|%s|%s|%s", m.GetClientMsgId(), m.GetFromId(), m.GetMsgType(), m.GetContent()))
	}
	return lines
}

func TestImport(t *testing.T) {
	t.Parallel()
	s := parleytest.Start(t)
	want := []string{
		"2001-02-03.a.raw.txt:1|ann|text|good morning",
		"2001-02-03.a.raw.txt:3|b[o]%20b|text|morning, ann :)",
		"2001-02-03.a.raw.txt:4|ann|action|waves at b[o] b",
		"2001-02-03.a.raw.txt:5|carl|text|[09:59] <carl>",
		"2001-02-03.a.raw.txt:6|carl|text|[09:59] <carl>      ",
		"2001-02-03.a.raw.txt:7|ann|text|<carl> you there?",
		"2001-02-03.a.raw.txt:8|d%25d|text|=== looks like a notice",
		"2001-02-04.b.raw.txt:1|zoe|text|caf\uFFFD",
		"2001-02-04.b.raw.txt:3|zoe|text|no newline at the end",
	}
	got := run(t, s, "import", "testdata/logs", "--channel", "room", "--json").wantOK(t)
	if diff := cmp.Diff(want, stored(s, "room")); diff != "" {
		t.Errorf("the room (-want +got):\n%s", diff)
	}
	counts := map[string]any{
		"event": "imported", "channel_id": "room", "files": 2.0, "total": 9.0, "text": 8.0, "action": 1.0, "sent": 9.0,
		"already_there": 0.0, "notices": 2.0, "unknown_lines": 1.0, "repaired_lines": 1.0,
	}
	if diff := cmp.Diff(counts, got.objects(t)[0]); diff != "" {
		t.Errorf("counts (-want +got):\n%s", diff)
	}
	if !strings.Contains(got.stderr, "2001-02-04.b.raw.txt:2") || !strings.Contains(got.stderr, "invalid UTF-8") {
		t.Errorf("stderr %q, want the unknown and the repaired line", got.stderr)
	}
	again := run(t, s, "import", "testdata/logs", "--channel", "room").wantOK(t)
	if !strings.Contains(again.stdout, "0 sent, 9 already there, 9 total") {
		t.Errorf("second import says %q", again.stdout)
	}
	if diff := cmp.Diff(want, stored(s, "room")); diff != "" {
		t.Errorf("the room after a second import (-want +got):\n%s", diff)
	}
}

// TestImportIntoParleyd checks that two imports into a real server, with a restart in between,
// store each message once, and that tail and history return all of them.
func TestImportIntoParleyd(t *testing.T) {
	t.Parallel()
	s := servertest.Dev(t)
	env := map[string]string{"PARLEY_ADDR": s.URL, "PARLEY_TOKEN": s.Token}
	dir, want := bigLog(t, 1300)
	for _, counts := range []string{"1300 sent, 0 already there, 1300 total", "0 sent, 1300 already there, 1300 total"} {
		if got := runWith(t, env, "", "import", dir, "--channel", "room").wantOK(t); !strings.Contains(got.stdout, counts) {
			t.Errorf("import says %q, want %q", got.stdout, counts)
		}
		s.Stop()
		s.Start()
	}
	for _, args := range [][]string{
		{"tail", "room", "--from-start", "--count", "1300", "--json"}, {"history", "room", "--all", "--json"},
	} {
		var got []string
		for _, m := range runWith(t, env, "", args...).wantOK(t).objects(t) {
			got = append(got, fmt.Sprintf("%s|%s|%s|%s", m["client_msg_id"], m["from_id"], m["msg_type"], m["content"]))
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%q (-want +got):\n%s", args, diff)
		}
	}
}

// bigLog writes a log of n messages. It returns its directory and what stored returns after an
// import.
func bigLog(t *testing.T, n int) (dir string, want []string) {
	t.Helper()
	dir = t.TempDir()
	var b strings.Builder
	for i := range n {
		fmt.Fprintf(&b, "[10:00] <nick%d> line %d\n", i%7, i)
		want = append(want, fmt.Sprintf("big.raw.txt:%d|nick%d|text|line %d", i+1, i%7, i))
	}
	if err := os.WriteFile(filepath.Join(dir, "big.raw.txt"), []byte(b.String()), 0o600); err != nil {
		t.Fatal(err)
	}
	return dir, want
}

// TestImportThroughCrashes checks that an import stores each message once and in order although the
// server is killed several times and responses are lost.
func TestImportThroughCrashes(t *testing.T) {
	t.Parallel()
	s := parleytest.Start(t)
	dir, want := bigLog(t, 5200)
	var calls atomic.Int32
	crash := make(chan struct{}, 100)
	s.Fault(func(method string, _ proto.Message) *parleytest.Fault {
		if method != "SendMessages" {
			return nil
		}
		switch n := calls.Add(1); n % 5 {
		case 2:
			crash <- struct{}{}
			return &parleytest.Fault{Drop: true, Applied: true}
		case 4:
			return &parleytest.Fault{Drop: true}
		default:
			return nil
		}
	})
	stopped := make(chan struct{})
	go func() {
		defer close(stopped)
		for range crash {
			s.Kill()
			s.Restart()
		}
	}()
	got := run(t, s, "import", dir, "--channel", "room").wantOK(t)
	close(crash)
	<-stopped
	if !strings.Contains(got.stdout, "5200 total") {
		t.Errorf("stdout is %q", got.stdout)
	}
	if diff := cmp.Diff(want, stored(s, "room")); diff != "" {
		t.Errorf("the room (-want +got):\n%s", diff)
	}
}

// TestImportIsResumed checks that an interrupted import, run again, stores the rest and no message
// twice.
func TestImportIsResumed(t *testing.T) {
	t.Parallel()
	s := parleytest.Start(t)
	dir, want := bigLog(t, 2600)
	ctx, interrupt := context.WithCancel(t.Context())
	defer interrupt()
	var calls atomic.Int32
	s.Fault(func(method string, _ proto.Message) *parleytest.Fault {
		if method == "SendMessages" && calls.Add(1) == 3 {
			interrupt()
			return &parleytest.Fault{Drop: true, Applied: true}
		}
		return nil
	})
	var stdout, stderr buffer
	code := cli.Run(ctx, []string{"--addr", s.Addr(), "--token", "t", "import", dir, "--channel", "room"}, strings.NewReader(""),
		&stdout, &stderr, func(string) string { return "" })
	if code != 1 || !strings.Contains(stderr.String(), "1000 of 2600") || !strings.Contains(stderr.String(), "again to continue") {
		t.Fatalf("exit code %d, stderr %q", code, stderr.String())
	}
	got := run(t, s, "import", dir, "--channel", "room").wantOK(t)
	if !strings.Contains(got.stdout, "2600 total") {
		t.Errorf("stdout is %q", got.stdout)
	}
	if diff := cmp.Diff(want, stored(s, "room")); diff != "" {
		t.Errorf("the room (-want +got):\n%s", diff)
	}
}

// TestImportValidatesBeforeSending imports lines that no server accepts. Nothing may be sent, and
// the error must list each line.
func TestImportValidatesBeforeSending(t *testing.T) {
	t.Parallel()
	s := parleytest.Start(t)
	dir := t.TempDir()
	log := "[10:00] <ann> fine\n[10:00] <ann> " + strings.Repeat("x", 65537) + "\n[10:01] <" + strings.Repeat("é", 30) + "> hi\n"
	if err := os.WriteFile(filepath.Join(dir, "long.raw.txt"), []byte(log), 0o600); err != nil {
		t.Fatal(err)
	}
	got := run(t, s, "import", dir, "--channel", "room")
	if got.code != 1 || !strings.Contains(got.stderr, "long.raw.txt:2") || !strings.Contains(got.stderr, "65536") ||
		!strings.Contains(got.stderr, "long.raw.txt:3") {
		t.Errorf("exit code %d, stderr %q", got.code, got.stderr)
	}
	if n := len(s.Requests()); n != 0 {
		t.Errorf("%d requests were made", n)
	}
}

func TestImportReportsRefusedLine(t *testing.T) {
	t.Parallel()
	s := parleytest.Start(t)
	s.Fault(itemFault("2001-02-03.a.raw.txt:3", 1,
		parleytest.Error(connect.CodePermissionDenied, parleyv1.ErrorReason_ERROR_REASON_SENDER_MISMATCH)))
	got := run(t, s, "import", "testdata/logs", "--channel", "room")
	if got.code != 1 || !strings.Contains(got.stderr, "2001-02-03.a.raw.txt:3") || !strings.Contains(got.stderr, "SENDER_MISMATCH") {
		t.Errorf("exit code %d, stderr %q", got.code, got.stderr)
	}
}

func TestImportStopsAfterRetryFor(t *testing.T) {
	t.Parallel()
	s := parleytest.Start(t)
	s.Kill()
	got := run(t, s, "import", "testdata/logs", "--channel", "room", "--retry-for", "300ms")
	if got.code != 1 || !strings.Contains(got.stderr, "0 of 9") {
		t.Errorf("exit code %d, stderr %q", got.code, got.stderr)
	}
}
