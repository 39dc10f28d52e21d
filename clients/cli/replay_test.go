package cli_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/parleyhq/parley/clients/cli"
	parleyv1 "github.com/parleyhq/parley/gen/go/parley/v1"
	"github.com/parleyhq/parley/sdk/go/parleytest"
)

// writeLog writes a log of messages with these times. It returns the expected content of the
// channel.
func writeLog(t *testing.T, dir string, stamps ...string) (want []string) {
	t.Helper()
	var b strings.Builder
	for i, stamp := range stamps {
		fmt.Fprintf(&b, "[%s] <ann> line %d\n", stamp, i)
		want = append(want, fmt.Sprintf("log.raw.txt:%d|ann|text|line %d", i+1, i))
	}
	if err := os.WriteFile(filepath.Join(dir, "log.raw.txt"), []byte(b.String()), 0o600); err != nil {
		t.Fatal(err)
	}
	return want
}

// TestImportAtSpeed replays an hour and nine minutes, through a midnight and at 1200 times their
// speed. No message may be sent early.
func TestImportAtSpeed(t *testing.T) {
	t.Parallel()
	s := parleytest.Start(t)
	dir := t.TempDir()
	want := writeLog(t, dir, "11:55", "11:55", "11:58", "12:01", "12:04", "01:01", "01:04")
	offsets := []int{0, 25, 150, 300, 450, 3300, 3450} // In ms; one minute is 50.
	begin := time.Now()
	got := run(t, s, "import", dir, "--channel", "room", "--speed", "1200").wantOK(t)
	if !strings.Contains(got.stdout, "7 sent, 0 already there, 7 total") {
		t.Errorf("stdout is %q", got.stdout)
	}
	if diff := cmp.Diff(want, stored(s, "room")); diff != "" {
		t.Fatalf("the room (-want +got):\n%s", diff)
	}
	for i, m := range s.Messages("room") {
		if passed := m.GetMsgTime().AsTime().Sub(begin); passed < time.Duration(offsets[i])*time.Millisecond {
			t.Errorf("message %d was sent after %s, want %d ms", i, passed, offsets[i])
		}
	}
}

// TestImportAtSpeedCatchesUp checks that messages that became due during a request are sent
// together, up to 500 per request.
func TestImportAtSpeedCatchesUp(t *testing.T) {
	t.Parallel()
	s := parleytest.Start(t)
	dir, want := bigLog(t, 1300)
	run(t, s, "import", dir, "--channel", "room", "--speed", "1e6").wantOK(t)
	if diff := cmp.Diff(want, stored(s, "room")); diff != "" {
		t.Errorf("the room (-want +got):\n%s", diff)
	}
	var sizes []int
	for _, r := range s.Requests() {
		if batch, ok := r.(*parleyv1.SendMessagesRequest); ok {
			sizes = append(sizes, len(batch.GetMessages()))
		}
	}
	if diff := cmp.Diff([]int{1, 500, 500, 299}, sizes); diff != "" {
		t.Errorf("messages per request (-want +got):\n%s", diff)
	}
}

// TestImportAtSpeedSkipsStoredMessages checks that a replay does not wait for messages that an
// earlier run stored: ten hours, which would take a minute at 600 times their speed.
func TestImportAtSpeedSkipsStoredMessages(t *testing.T) {
	t.Parallel()
	s := parleytest.Start(t)
	dir := t.TempDir()
	writeLog(t, dir, "10:00", "11:00", "20:00")
	run(t, s, "import", dir, "--channel", "room").wantOK(t)
	want := writeLog(t, dir, "10:00", "11:00", "20:00", "21:00", "21:03", "21:03")
	begin := time.Now()
	got := run(t, s, "import", dir, "--channel", "room", "--speed", "600").wantOK(t)
	if !strings.Contains(got.stdout, "3 sent, 3 already there, 6 total") {
		t.Errorf("stdout is %q", got.stdout)
	}
	if diff := cmp.Diff(want, stored(s, "room")); diff != "" {
		t.Fatalf("the room (-want +got):\n%s", diff)
	}
	for i, offset := range []time.Duration{0, 300 * time.Millisecond, 350 * time.Millisecond} {
		if passed := s.Messages("room")[3+i].GetMsgTime().AsTime().Sub(begin); passed < offset {
			t.Errorf("message %d was sent after %s, want %s", 3+i, passed, offset)
		}
	}
}

// TestImportAtSpeedIsInterrupted checks that an interrupt ends a replay that waits for the next
// message's time.
func TestImportAtSpeedIsInterrupted(t *testing.T) {
	t.Parallel()
	s := parleytest.Start(t)
	dir := t.TempDir()
	writeLog(t, dir, "10:00", "11:00")
	ctx, interrupt := context.WithCancel(testContext(t))
	defer interrupt()
	go func() {
		for len(s.Contents("room")) == 0 && ctx.Err() == nil {
			<-time.After(time.Millisecond)
		}
		interrupt()
	}()
	var stdout, stderr buffer
	code := cli.Run(ctx, []string{"--addr", s.Addr(), "--token", "t", "import", dir, "--channel", "room", "--speed", "1"},
		strings.NewReader(""), &stdout, &stderr, func(string) string { return "" })
	if code != 1 || !strings.Contains(stderr.String(), "of 2 messages are stored in room") || len(s.Contents("room")) != 1 {
		t.Errorf("exit code %d, stderr %q, the room %q", code, stderr.String(), s.Contents("room"))
	}
}

func TestImportRefusesInvalidSpeed(t *testing.T) {
	t.Parallel()
	s := parleytest.Start(t)
	for _, speed := range []string{"-1", "0.001", "1e9", "NaN"} {
		got := run(t, s, "import", "testdata/logs", "--channel", "room", "--speed="+speed)
		if got.code != 2 || !strings.Contains(got.stderr, "--speed") || len(s.Requests()) != 0 {
			t.Errorf("%s: exit code %d, stderr %q, %d requests", speed, got.code, got.stderr, len(s.Requests()))
		}
	}
}
