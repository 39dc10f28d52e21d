package cli

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"golang.org/x/term"

	parley "github.com/parleyhq/parley/sdk/go"
)

// minInterval is the minimum of --interval. It limits the load on the server.
const minInterval = 100 * time.Millisecond

// watchFlags are the flags of commands that can refresh their output.
type watchFlags struct {
	Watch    bool         `help:"Refresh until interrupted: in place on a terminal, else one after another."`
	Interval durationFlag `help:"Refresh interval of --watch, at least 100ms. Default: 1s." placeholder:"DURATION"`
}

func (w *watchFlags) check() error {
	if w.Interval.set && !w.Watch {
		return usagef("--interval requires --watch")
	}
	return checkDurationFlag("--interval", w.Interval, minInterval, day)
}

// show loads a command's data and writes it to p. With --watch it is called for each refresh.
type show func(ctx context.Context, client *parley.Client, p printer) error

// repeat calls show once, or with --watch until the user interrupts, which is not an error. Each
// call of the client has the deadline of --timeout. After a temporary failure, the view does not
// change, and the error is written beside it.
func (w *watchFlags) repeat(s *session, what string, show show) error {
	client, err := s.client()
	if err != nil {
		return err
	}
	defer client.Close()
	to := newScreen(s.stdout)
	once := func() error {
		var b bytes.Buffer
		if w.Watch && !s.flags.JSON {
			b.WriteString("-- " + time.Now().Format(time.DateTime) + "\n")
		}
		if err := show(s.ctx, client, printer{w: &b, stderr: s.stderr, json: s.flags.JSON}); err != nil {
			return explainQueue(what, err)
		}
		if err := to.draw(b.String(), w.Watch && !s.flags.JSON); err != nil {
			return fmt.Errorf("write: %w", err)
		}
		return nil
	}
	if err := once(); err != nil || !w.Watch {
		return err
	}
	interval := time.Second
	if w.Interval.set {
		interval = w.Interval.d
	}
	ticker := time.NewTicker(interval)
	defer ticker.Stop()
	for {
		select {
		case <-s.ctx.Done():
			return nil
		case <-ticker.C:
		}
		err := once()
		switch {
		case s.ctx.Err() != nil:
			return nil
		case isTemporary(err):
			to.note(s.stderr, "parley: "+err.Error()+"; retrying")
		case err != nil:
			return err
		}
	}
}

// isTemporary reports whether a later call may succeed: after a retryable error or a deadline.
func isTemporary(err error) bool {
	e, ok := errors.AsType[*parley.Error](err)
	return errors.Is(err, context.DeadlineExceeded) || (ok && e.Retryable)
}

// screen writes pictures, the output of a command at one time. On a terminal, with --watch, each
// one replaces the last.
type screen struct {
	w        io.Writer
	fd       int
	terminal bool
	// drawn is the number of lines of the last picture.
	drawn int
}

func newScreen(w io.Writer) *screen {
	sc := &screen{w: w, terminal: isTerminal(w)}
	if f, ok := w.(*os.File); ok && sc.terminal {
		sc.fd = int(f.Fd())
	}
	return sc
}

// size returns the terminal's columns and lines, or 80 and 24 if they are unknown.
func (sc *screen) size() (width, height int) {
	width, height, err := term.GetSize(sc.fd)
	if err != nil || width <= 0 || height <= 0 {
		return 80, 24
	}
	return width, height
}

// columns returns the number of columns, or 1000 if the output is not a terminal.
func (sc *screen) columns() int {
	if !sc.terminal {
		return 1000
	}
	width, _ := sc.size()
	return width
}

// draw writes a picture. With again, and on a terminal, it replaces the last picture. It then omits
// lines that do not fit into the terminal, because they could not be overwritten.
func (sc *screen) draw(text string, again bool) error {
	if !sc.terminal || !again {
		_, err := io.WriteString(sc.w, text)
		return err
	}
	width, height := sc.size()
	lines := strings.Split(strings.TrimSuffix(text, "\n"), "\n")
	if room := max(height-2, 1); len(lines) > room {
		lines = append(lines[:room], fmt.Sprintf("(%d more lines)", len(lines)-room))
	}
	var b strings.Builder
	if sc.drawn > 0 {
		fmt.Fprintf(&b, "\x1b[%dA\r", sc.drawn)
	}
	for _, line := range lines {
		b.WriteString(clip(line, width) + "\x1b[K\n")
	}
	b.WriteString("\x1b[J")
	sc.drawn = len(lines)
	_, err := io.WriteString(sc.w, b.String())
	return err
}

// note writes a message for humans. On a terminal it is shown below the picture, and the next
// picture overwrites it. Otherwise it is written to side.
func (sc *screen) note(side io.Writer, text string) {
	if !sc.terminal || !isTerminal(side) {
		_, _ = fmt.Fprintln(side, text)
		return
	}
	width, _ := sc.size()
	_, _ = fmt.Fprintf(sc.w, "%s\x1b[K\r", clip(oneLine(text), width-1))
}
