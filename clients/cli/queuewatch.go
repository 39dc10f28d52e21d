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

// minInterval keeps a view from being a load.
const minInterval = 100 * time.Millisecond

// watching are the flags of what can be shown again and again.
type watching struct {
	Watch    bool `help:"Show it again and again until interrupted: in place on a terminal, else one after another."`
	Interval span `help:"How often --watch shows it, at least 100ms. Default: 1s." placeholder:"DURATION"`
}

func (w *watching) check() error {
	if w.Interval.given && !w.Watch {
		return usagef("--interval goes with --watch")
	}
	return checkSpan("--interval", w.Interval, minInterval, day)
}

// show writes what there is to see.
type show func(ctx context.Context, client *parley.Client, p printer) error

// repeat calls show once, or with --watch until the user interrupts, which is no error. Each call of the client has the deadline of
// --timeout. After a failure that may pass, the view stays as it is, and the error is written beside it.
func (w *watching) repeat(s *session, what string, show show) error {
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
		if err := show(s.ctx, client, printer{w: &b, side: s.stderr, json: s.flags.JSON}); err != nil {
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
	if w.Interval.given {
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
		case passes(err):
			to.note(s.stderr, "parley: "+err.Error()+"; trying again")
		case err != nil:
			return err
		}
	}
}

// passes reports whether an error is one that may pass.
func passes(err error) bool {
	e, ok := errors.AsType[*parley.Error](err)
	return errors.Is(err, context.DeadlineExceeded) || (ok && e.Retryable)
}

// screen is an output. On a terminal each picture takes the place of the one before.
type screen struct {
	w        io.Writer
	fd       int
	terminal bool
	// drawn is how many lines the last picture has.
	drawn int
}

func newScreen(w io.Writer) *screen {
	sc := &screen{w: w, terminal: isTerminal(w)}
	if f, ok := w.(*os.File); ok && sc.terminal {
		sc.fd = int(f.Fd())
	}
	return sc
}

// size gives the terminal's columns and lines.
func (sc *screen) size() (width, height int) {
	width, height, err := term.GetSize(sc.fd)
	if err != nil || width <= 0 || height <= 0 {
		return 80, 24
	}
	return width, height
}

// room gives the columns that there are, which are many where the output is no terminal.
func (sc *screen) room() int {
	if !sc.terminal {
		return 1000
	}
	width, _ := sc.size()
	return width
}

// draw writes a picture, in place of the last one if it is one of several. What does not fit into the terminal is left away then,
// for it could not be drawn over.
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

// note tells people something beside the pictures, which on a terminal the next one takes the place of.
func (sc *screen) note(side io.Writer, text string) {
	if !sc.terminal || !isTerminal(side) {
		_, _ = fmt.Fprintln(side, text)
		return
	}
	width, _ := sc.size()
	_, _ = fmt.Fprintf(sc.w, "%s\x1b[K\r", clip(oneLine(text), width-1))
}
