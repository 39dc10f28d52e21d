package cli

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"sync"
	"time"

	"golang.org/x/text/runes"
	"golang.org/x/text/transform"

	parley "github.com/parleyhq/parley/sdk/go"
)

const (
	// maxAnswer is how much of a program's output is streamed. With cutNotice it is a message of at
	// most 128 KiB.
	maxAnswer = 128<<10 - len(cutNotice)
	cutNotice = "\n\n[The output was longer than a message can be. The rest is cut.]\n"
	// programGrace is how long a program may take to end after SIGTERM.
	programGrace = 2 * time.Second
)

// answerer answers prompts by the output of a local program.
type answerer struct {
	s       *session
	args    []string
	session *parley.Session
	opened  chan<- *parley.Receipt // gets the receipt of each answer
}

// answer opens an answer to a prompt, runs the program and closes the answer. The end of runs stops
// the program's process group and closes the answer as cancelled, as does the end of ctx. A program
// that fails is not an error.
func (p *answerer) answer(ctx, runs context.Context, msgID, prompt string) error {
	answer, err := p.session.Open(ctx, parley.SessionRoleAssistant, parley.WithMetadata(map[string]string{"reply_to": msgID}))
	if err != nil {
		return err
	}
	p.opened <- answer.Receipt()
	runs, stop := context.WithCancel(runs)
	var work sync.WaitGroup
	defer work.Wait()
	defer stop()
	work.Go(func() {
		select {
		case <-answer.Done(): // closed by somebody else
			stop()
		case <-runs.Done():
		}
	})
	out := &answerWriter{answer: answer, stop: stop}
	err = p.run(runs, out, prompt)
	ctx = context.WithoutCancel(ctx) // each call has the deadline of --timeout
	text := answer.Text()
	switch {
	case out.full:
		p.notef("the output of %s is too long; it was stopped", p.args[0])
		_, err = answer.Fail(ctx, text)
	case runs.Err() != nil && isClosed(answer.Err()):
		err = nil
	case errors.Is(answer.Err(), parley.ErrAppendSuperseded):
		err = answer.Err()
	case runs.Err() != nil:
		_, err = answer.Cancel(ctx, text)
	case err != nil:
		p.notef("%s failed: %s", p.args[0], err)
		_, err = answer.Fail(ctx, text)
	default:
		_, err = answer.Complete(ctx, text)
	}
	if isClosed(err) {
		err = nil
	}
	return err //nolint:wrapcheck // the caller names the command
}

// run runs the program with a prompt.
func (p *answerer) run(ctx context.Context, out *answerWriter, prompt string) error {
	cmd := groupCommand(ctx, programGrace, p.args[0], p.args[1:]...)
	cmd.Env = append(os.Environ(), "PARLEY_SESSION="+p.session.ID())
	cmd.Stdin = strings.NewReader(prompt + "\n")
	// A message is UTF-8 without NUL. Map itself replaces what is not UTF-8.
	valid := transform.NewWriter(out, runes.Map(func(r rune) rune {
		if r == 0 {
			return '\ufffd'
		}
		return r
	}))
	stderr := &lineWriter{mu: new(sync.Mutex), w: p.s.stderr}
	cmd.Stdout, cmd.Stderr = valid, stderr
	err := runGroup(ctx, cmd)
	stderr.end()
	if closeErr := valid.Close(); err == nil {
		err = closeErr
	}
	if errors.Is(err, exec.ErrWaitDelay) {
		return nil // processes that it left behind do not count
	}
	return err
}

func (p *answerer) notef(format string, args ...any) {
	_, _ = fmt.Fprintf(p.s.stderr, "parley: "+format+"\n", args...)
}

// answerWriter streams the output of a program, up to maxAnswer.
type answerWriter struct {
	answer *parley.OpenMessage
	stop   context.CancelFunc // stops the program

	written int
	full    bool
}

var errFull = errors.New("the answer is too long")

// Write implements io.Writer. p is valid UTF-8.
func (w *answerWriter) Write(p []byte) (int, error) {
	if w.full {
		return 0, errFull
	}
	if rest := maxAnswer - w.written; len(p) > rest {
		w.full = true
		w.stop()
		p = append(cutText(p, rest), cutNotice...)
	}
	n, err := w.answer.Write(p)
	w.written += n
	switch {
	case err != nil:
		w.stop()
		return n, err //nolint:wrapcheck // only tells the caller to end
	case w.full:
		return 0, errFull
	}
	return n, nil
}

// cutText returns a copy of at most n bytes of p, without an incomplete character at its end.
func cutText(p []byte, n int) []byte {
	return []byte(strings.ToValidUTF8(string(p[:n]), ""))
}
