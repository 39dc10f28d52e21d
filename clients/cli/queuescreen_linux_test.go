package cli_test

import (
	"fmt"
	"os"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// openTerminal returns both ends of a pseudo-terminal of this size.
func openTerminal(t *testing.T, columns, lines uint16) (outside, inside *os.File) {
	t.Helper()
	outside, err := os.OpenFile("/dev/ptmx", os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = outside.Close() })
	fd := int(outside.Fd())
	number, err := unix.IoctlGetInt(fd, unix.TIOCGPTN)
	if err != nil {
		t.Fatal(err)
	}
	if err := unix.IoctlSetPointerInt(fd, unix.TIOCSPTLCK, 0); err != nil {
		t.Fatal(err)
	}
	if err := unix.IoctlSetWinsize(fd, unix.TIOCSWINSZ, &unix.Winsize{Col: columns, Row: lines}); err != nil {
		t.Fatal(err)
	}
	inside, err = os.OpenFile("/dev/pts/"+strconv.Itoa(number), os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = inside.Close() })
	return outside, inside
}

var control = regexp.MustCompile(`\r|\n|\x1b\[(\d*)([A-Z])|[^\r\n\x1b]+`)

// drawn returns the lines that a terminal shows after an output.
func drawn(t *testing.T, output string) []string {
	t.Helper()
	lines, row, column := []string{""}, 0, 0
	for _, m := range control.FindAllStringSubmatch(output, -1) {
		switch n, _ := strconv.Atoi(m[1]); {
		case m[0] == "\r":
			column = 0
		case m[0] == "\n":
			if row++; row == len(lines) {
				lines = append(lines, "")
			}
		case m[2] == "A":
			if row -= n; row < 0 {
				t.Fatalf("it goes above the first line:\n%q", output)
			}
		case m[2] == "K":
			lines[row] = string([]rune(lines[row])[:column])
		case m[2] == "J":
			lines = append(lines[:row], "")
		case m[2] != "":
			t.Fatalf("%q is no control that is known here", m[0])
		default:
			old, text := []rune(lines[row]), []rune(m[0])
			shown := append(append([]rune{}, old[:column]...), text...)
			if column += len(text); column < len(old) {
				shown = append(shown, old[column:]...)
			}
			lines[row] = string(shown)
		}
	}
	return lines
}

// terminalView is a command that runs on a terminal.
type terminalView struct {
	*running

	t             *testing.T
	columns, rows int
	inside        *os.File
	seen          buffer
	read          chan struct{}
}

func (q *queues) startOnTerminal(columns, rows uint16, args ...string) *terminalView {
	q.t.Helper()
	outside, inside := openTerminal(q.t, columns, rows)
	v := &terminalView{
		running: &running{done: make(chan int, 1)}, t: q.t, columns: int(columns), rows: int(rows), inside: inside,
		read: make(chan struct{}),
	}
	go func() {
		defer close(v.read)
		for b := make([]byte, 4096); ; {
			n, err := outside.Read(b)
			_, _ = v.seen.Write(b[:n])
			if err != nil {
				return // the other end is closed
			}
		}
	}()
	q.startTo(v.running, strings.NewReader(""), inside, args...)
	return v
}

// wantScreen waits until the screen shows each text once, and fits.
func (v *terminalView) wantScreen(texts ...string) {
	v.t.Helper()
	eventually(v.t, func() error {
		screen := drawn(v.t, v.seen.String())
		shown := strings.Join(screen, "\n")
		for _, text := range texts {
			if n := strings.Count(shown, text); n != 1 {
				return fmt.Errorf("%q is %d times on the screen:\n%s", text, n, shown)
			}
		}
		if len(screen) > v.rows {
			return fmt.Errorf("%d lines:\n%s", len(screen), shown)
		}
		for _, line := range screen {
			if n := len([]rune(line)); n > v.columns {
				return fmt.Errorf("a line of %d columns: %q", n, line)
			}
		}
		return nil
	})
}

func (v *terminalView) end() {
	v.t.Helper()
	v.interrupt()
	v.wantEnd(v.t, 0)
	_ = v.inside.Close()
	<-v.read
}

// TestQueueWatchOnTerminal checks that on a terminal each refresh replaces the previous output and
// fits the screen.
func TestQueueWatchOnTerminal(t *testing.T) {
	t.Parallel()
	q := newQueues(t)
	q.ok("create", "jobs", "--partitions", "32", "--group", "work")
	v := q.startOnTerminal(60, 12, "stats", "jobs", "--partitions", "--watch", "--interval", "100ms")
	for n := range 3 {
		v.wantScreen(fmt.Sprintf("jobs  depth %d,", n), "jobs  depth ", "more lines)", "-- ")
		q.ok("produce", "jobs", "x", "--key", "same")
	}
	q.ok("consume", "jobs", "--group", "work", "--count", "3")
	v.wantScreen("jobs  depth 0, 0 scheduled, 0 dead letters, 3 produced", "jobs  depth ", "more lines)", "-- ")
	v.end()
}

// TestQueueWatchShrinks checks that a shorter picture leaves no lines of the previous one.
func TestQueueWatchShrinks(t *testing.T) {
	t.Parallel()
	q := newQueues(t)
	q.ok("create", "jobs", "--partitions", "1")
	q.ok("create", "other", "--partitions", "1", "--group", "work")
	v := q.startOnTerminal(100, 24, "stats", "--watch", "--interval", "100ms", "--timeout", "300ms")
	v.wantScreen("jobs  depth 0", "other  depth 0", "  work   0")
	q.ok("delete", "other", "--confirm", "other")
	eventually(t, func() error {
		if shown := strings.Join(drawn(t, v.seen.String()), "\n"); strings.Contains(shown, "other") || strings.Contains(shown, "work") {
			return fmt.Errorf("the screen shows:\n%s", shown)
		}
		return nil
	})
	v.wantScreen("jobs  depth 0")
	q.s.Stop()
	wantText(t, &v.stderr, "retrying")
	q.s.Start()
	q.ok("produce", "jobs", "x")
	v.wantScreen("jobs  depth 1")
	v.end()
}
