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

// openTerminal gives both ends of a pseudo-terminal of so many columns and lines.
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

// drawn gives the lines that a terminal shows after an output.
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

// TestQueueWatchOnTerminal draws in place: whatever has happened, one picture is to be seen, which fits.
func TestQueueWatchOnTerminal(t *testing.T) {
	t.Parallel()
	q := newQueues(t)
	q.ok("create", "jobs", "--partitions", "32", "--group", "work")
	const columns, rows = 60, 12
	outside, inside := openTerminal(t, columns, rows)
	var seen buffer
	read := make(chan struct{})
	go func() {
		defer close(read)
		for b := make([]byte, 4096); ; {
			n, err := outside.Read(b)
			_, _ = seen.Write(b[:n])
			if err != nil {
				return // the other end is closed
			}
		}
	}()
	r := &running{done: make(chan int, 1)}
	q.startTo(r, strings.NewReader(""), inside, "stats", "jobs", "--partitions", "--watch", "--interval", "100ms")
	for n := 1; n < 4; n++ {
		wantText(t, &seen, fmt.Sprintf("jobs  depth %d,", n-1))
		q.ok("produce", "jobs", "x", "--key", "same")
	}
	wantText(t, &seen, "jobs  depth 3,")
	q.ok("consume", "jobs", "--group", "work", "--count", "3")
	wantText(t, &seen, "jobs  depth 0, 0 delayed, 0 dead letters, 3 produced")
	eventually(t, func() error {
		output := strings.ReplaceAll(seen.String(), "\x1b[J", "\x1b[J\x00")
		whole, _, _ := cutLast(output, "\x00")
		screen := drawn(t, strings.ReplaceAll(whole, "\x00", ""))
		if text := strings.Join(screen, "\n"); strings.Count(text, "jobs  depth ") != 1 || !strings.Contains(text, "jobs  depth 0,") ||
			!strings.Contains(text, "more lines)") || len(screen) > rows {
			return fmt.Errorf("the screen shows:\n%s", text)
		}
		for _, line := range screen {
			if n := len([]rune(line)); n > columns {
				return fmt.Errorf("a line of %d columns: %q", n, line)
			}
		}
		return nil
	})
	r.interrupt()
	r.wantEnd(t, 0)
	_ = inside.Close()
	<-read
}

// cutLast cuts at the last separator.
func cutLast(text, separator string) (before, after string, found bool) {
	i := strings.LastIndex(text, separator)
	if i < 0 {
		return text, "", false
	}
	return text[:i], text[i+len(separator):], true
}
