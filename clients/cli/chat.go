package cli

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"strings"
	"sync"
	"time"

	"github.com/alecthomas/kong"
	"github.com/google/uuid"

	parleyv1 "github.com/parleyhq/parley/gen/go/parley/v1"
	parley "github.com/parleyhq/parley/sdk/go"
)

const (
	// maxPrompt bounds a prompt, as the server does.
	maxPrompt = 128 << 10
	// endsWithin is the time within which a second interrupt ends a chat.
	endsWithin = 2 * time.Second
	// replayWithin is how long the last messages may take to come before the first prompt.
	replayWithin = 3 * time.Second
)

type sessionChatCommand struct {
	Session   string        `arg:"" optional:"" help:"The session's id. Without it, a new session begins."`
	Last      int           `help:"How many of the last messages to show at the start." default:"20"`
	Wait      time.Duration `help:"How long an answer may take to begin if standard input is not a terminal; 0 means forever." default:"1m"`
	Assistant commandLine   `help:"Play the assistant, too: run this program for each prompt. It gets the prompt on standard input, and its standard output is the answer. The rest of the line is its arguments. Requires the action manage." placeholder:"PROGRAM [ARGS...]"`
}

// commandLine is a program and its arguments: the value of a flag that takes the rest of the line.
type commandLine []string

// Decode implements kong.MapperValue.
func (c *commandLine) Decode(ctx *kong.DecodeContext) error {
	var program string
	if err := ctx.Scan.PopValueInto("PROGRAM", &program); err != nil {
		return err //nolint:wrapcheck // kong adds the flag's name
	}
	*c = commandLine{program}
	for !ctx.Scan.Peek().IsEOL() {
		*c = append(*c, ctx.Scan.Pop().String())
	}
	return nil
}

// Run talks until the end of standard input. An interrupt cancels the answer under way; without
// one, or as the second within endsWithin, it ends the chat, which is not an error.
func (c *sessionChatCommand) Run(s *session) error {
	if c.Last < 0 || c.Wait < 0 {
		return usagef("--last and --wait must not be negative")
	}
	if len(c.Assistant) > 0 {
		if _, err := exec.LookPath(c.Assistant[0]); err != nil {
			return usagef("--assistant: %w", err)
		}
	}
	// Interrupts no longer end the program's context.
	signal.Reset(os.Interrupt)
	interrupts := make(chan os.Signal, 1)
	signal.Notify(interrupts, os.Interrupt)
	defer signal.Stop(interrupts)
	client, err := s.client()
	if err != nil {
		return err
	}
	defer client.Close()
	id := c.Session
	if id == "" {
		unique, err := uuid.NewV7()
		if err != nil {
			return fmt.Errorf("generate an id: %w", err)
		}
		id = unique.String()
		value := map[string]string{"event": "session", "session_id": id}
		if err := s.printer().notice(value, "parley: new session "+id); err != nil {
			return fmt.Errorf("write: %w", err)
		}
	}
	terminal := isTerminal(s.stdin)
	t := &chat{
		s: s, command: c, client: client, session: client.Session(id), terminal: terminal,
		view:       newChatView(s.printer(), terminal),
		interrupts: interrupts, lines: make(chan promptLine), asked: make(chan asked, 1), ran: make(chan error, 1),
		opened: make(chan *parley.Receipt, 1), events: make(chan chatEvent),
	}
	return t.run(s.ctx)
}

// chat is one run of `session chat`. Its fields are used by the goroutine of run only, except for
// the channels.
type chat struct {
	s        *session
	command  *sessionChatCommand
	client   *parley.Client
	session  *parley.Session
	terminal bool // standard input is one
	view     *chatView

	interrupts <-chan os.Signal
	lines      chan promptLine
	asked      chan asked           // the result of the append of a prompt
	opened     chan *parley.Receipt // the answer of the program
	ran        chan error           // the result of the program
	events     chan chatEvent
	work       sync.WaitGroup

	sub *parley.Subscription // nil until the session exists
	// asking and running are set while a prompt is appended, and while the program runs.
	asking, running bool
	stop            context.CancelFunc // stops the program
	answerID        string             // the id of the program's answer, once it is open
	// replayTo is the position up to which the subscription replays older messages.
	replayTo int64
	replayed bool
	// replayedBy ends the wait for the replay: the last entries of a log need not have events.
	replayedBy <-chan time.Time
	// answerFrom is the lowest seq that the answer to the last prompt can have; 0 if it is answered
	// or there was none.
	answerFrom    int64
	tooLate       <-chan time.Time
	ended         bool // standard input has
	interruptedAt time.Time
	incomplete    int // answers
}

type promptLine struct {
	text string
	err  error // io.EOF at the end
}

type asked struct {
	text    string
	receipt *parley.Receipt
	err     error
}

type chatEvent struct {
	parley.Event
	err error
}

func (c *chat) run(ctx context.Context) (err error) {
	ctx, cancel := context.WithCancel(ctx)
	defer c.work.Wait()
	defer cancel()
	defer func() { err = errors.Join(err, c.view.end()) }()
	from, err := c.oldestShown(ctx)
	switch {
	case errors.Is(err, parley.ErrChannelNotFound):
		c.replayed = true // the first prompt creates the session
	case ctx.Err() != nil:
		return nil
	case err != nil:
		return explain("chat", err)
	default:
		c.follow(ctx, from)
	}
	// The goroutine of a terminal ends with the program: a read cannot be interrupted.
	go readPrompts(ctx, c.s.stdin, c.lines)
	for {
		lines := c.lines
		switch ready := c.ready(); {
		case !ready:
			lines = nil
		case c.ended:
			return c.result()
		default:
			if err := c.view.prompt(); err != nil {
				return fmt.Errorf("write: %w", err)
			}
		}
		select {
		case l := <-lines:
			err = c.take(ctx, l)
		case r := <-c.asked:
			err = c.wasAsked(ctx, r)
		case r := <-c.opened:
			c.answerID, c.answerFrom = r.MsgID, r.Seq
		case failure := <-c.ran:
			err = c.hasRun(failure)
		case e := <-c.events:
			if ctx.Err() == nil { // else the loop ends
				err = c.event(e)
			}
		case <-c.interrupts:
			if c.interrupt(ctx) {
				return nil
			}
		case <-c.replayedBy:
			c.replayed = true
		case <-c.tooLate:
			if c.answerFrom > 0 && !c.view.isOpen() {
				return fmt.Errorf("chat: no answer began within %s; does an assistant serve the session?", c.command.Wait)
			}
		case <-ctx.Done():
			return nil
		}
		if err != nil {
			return err
		}
	}
}

// oldestShown returns the position before the oldest message to show. The view ignores changes of
// older messages.
func (c *chat) oldestShown(ctx context.Context) (parley.Start, error) {
	var seq int64
	for m, err := range c.session.Messages(ctx, parley.Limit(max(c.command.Last, 1))) {
		if err != nil {
			return parley.Start{}, err
		}
		if seq = m.GetSeq() - 1; c.command.Last == 0 {
			seq = m.GetSeq()
		}
	}
	c.view.from = seq
	return parley.After(parley.Position{ChannelID: c.session.ChannelID(), Seq: seq}), nil
}

// follow subscribes to the session.
func (c *chat) follow(ctx context.Context, from parley.Start) {
	report := &connectionReport{w: c.s.stderr, live: "in session " + c.session.ID()}
	c.sub = c.client.Subscribe(ctx, from, parley.OnState(report.changed))
	sub := c.sub
	c.work.Go(func() {
		defer sub.Close()
		for e, err := range sub.Events() {
			select {
			case c.events <- chatEvent{e, err}:
			case <-ctx.Done():
				return
			}
		}
	})
}

// readPrompts sends the lines of r that are not empty, and then the error that ended them.
func readPrompts(ctx context.Context, r io.Reader, to chan<- promptLine) {
	scanner := bufio.NewScanner(r)
	scanner.Buffer(nil, maxPrompt+2)
	next := promptLine{err: io.EOF}
	for scanner.Scan() {
		text := promptText(scanner.Text())
		if strings.TrimSpace(text) == "" {
			continue
		}
		select {
		case to <- promptLine{text: text}:
		case <-ctx.Done():
			return
		}
	}
	if err := scanner.Err(); err != nil {
		next.err = fmt.Errorf("read standard input: %w", err)
	}
	select {
	case to <- next:
	case <-ctx.Done():
	}
}

// promptText returns a line with everything replaced that a message cannot contain.
func promptText(line string) string {
	return strings.ReplaceAll(strings.ToValidUTF8(line, "\ufffd"), "\x00", "\ufffd")
}

// ready reports whether the next prompt can be taken.
func (c *chat) ready() bool {
	if c.asking || c.running || !c.replayed || c.view.isOpen() {
		return false
	}
	// A user at a terminal need not wait for an assistant that does not come.
	return c.answerFrom == 0 || c.terminal && len(c.command.Assistant) == 0
}

// result returns the error of a script whose answers are not all complete.
func (c *chat) result() error {
	if c.incomplete > 0 && !c.terminal {
		return fmt.Errorf("chat: %d answers are not complete", c.incomplete)
	}
	return nil
}

// take appends a prompt.
func (c *chat) take(ctx context.Context, l promptLine) error {
	if errors.Is(l.err, io.EOF) {
		c.ended = true
		return nil
	}
	if l.err != nil {
		return l.err
	}
	id, err := uuid.NewV7()
	if err != nil {
		return fmt.Errorf("generate an id: %w", err)
	}
	c.view.typed(id.String())
	c.asking = true
	c.work.Go(func() {
		r, err := c.session.Append(ctx, parley.SessionRoleUser, l.text, parley.WithClientMsgID(id.String()))
		c.asked <- asked{text: l.text, receipt: r, err: err}
	})
	return nil
}

// wasAsked starts what answers a prompt.
func (c *chat) wasAsked(ctx context.Context, r asked) error {
	c.asking = false
	if r.err != nil {
		return explain("chat", r.err)
	}
	c.answerFrom = r.receipt.Seq + 1
	if c.sub == nil {
		c.follow(ctx, parley.FromStart(c.session.ChannelID()))
	}
	if len(c.command.Assistant) == 0 {
		if !c.terminal && c.command.Wait > 0 {
			c.tooLate = time.After(c.command.Wait)
		}
		return c.settle()
	}
	runs, stop := context.WithCancel(ctx)
	c.running, c.stop = true, stop
	p := &answerer{s: c.s, args: c.command.Assistant, session: c.session, opened: c.opened}
	c.work.Go(func() {
		defer stop()
		c.ran <- p.answer(ctx, runs, r.receipt.MsgID, r.text)
	})
	return nil
}

func (c *chat) hasRun(failure error) error {
	if failure != nil {
		return explain("chat", failure)
	}
	select {
	case r := <-c.opened:
		c.answerFrom = r.Seq
	default:
	}
	c.running, c.answerID = false, ""
	return c.settle()
}

// event shows an event.
func (c *chat) event(e chatEvent) error {
	if e.err != nil {
		return explain("chat", e.err)
	}
	if err := c.view.apply(&e.Event); err != nil {
		return fmt.Errorf("write: %w", err)
	}
	switch e.Kind {
	case parley.EventChannelState:
		if !c.replayed {
			c.replayTo, c.replayedBy = e.Channel.GetHeadSeq(), time.After(replayWithin)
		}
	case parley.EventLost:
		return errors.New("chat: lost the session")
	default:
	}
	if e.Kind != parley.EventTyping && e.Kind != parley.EventDelta && e.Seq >= c.replayTo {
		c.replayed = true
	}
	if m := e.Message; m != nil && m.GetMsgId() == c.answerID && m.GetStatus() != parleyv1.MessageStatus_MESSAGE_STATUS_OPEN {
		c.stop() // somebody closed or recalled the answer, and the program may be silent
	}
	return c.settle()
}

// settle ends the wait for an answer if it is complete.
func (c *chat) settle() error {
	if c.running || c.answerFrom == 0 || c.view.answered < c.answerFrom {
		return nil
	}
	c.answerFrom, c.tooLate = 0, nil
	if !c.view.complete {
		c.incomplete++
	}
	return nil
}

// interrupt cancels the answer under way. It reports whether the chat ends instead.
func (c *chat) interrupt(ctx context.Context) (end bool) {
	again := time.Since(c.interruptedAt) < endsWithin
	c.interruptedAt = time.Now()
	id := cmp.Or(c.answerID, c.view.openAnswer())
	if again || id == "" && !c.running {
		return true
	}
	if c.running {
		c.stop()
	}
	if id == "" {
		return false // the program's goroutine closes the answer
	}
	c.work.Go(func() {
		_, err := c.session.Cancel(ctx, id)
		if err != nil && !isClosed(err) && ctx.Err() == nil {
			_, _ = fmt.Fprintf(c.s.stderr, "parley: %s\n", explain("cancel", err))
		}
	})
	return false
}

// isClosed reports whether a message could not be closed because it is not open any more.
func isClosed(err error) bool {
	return errors.Is(err, parley.ErrMessageClosed) || errors.Is(err, parley.ErrMessageRecalled)
}
