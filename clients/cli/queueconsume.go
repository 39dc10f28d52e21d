package cli

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"
	"unicode/utf8"

	"github.com/parleyhq/parley/sdk/go/queue"
)

const (
	maxConcurrency = 5000
	// printWindow is the default window if messages are only printed. It is small enough for a
	// worker that stops to release all messages that arrive until the window is used up.
	printWindow = 24
)

type queueConsumeCommand struct {
	topicArg

	Group       string `help:"The consumer group, whose partitions its consumers share." required:"" placeholder:"GROUP"`
	Consumer    string `help:"This consumer's name, for people. Default: the machine's, and something random." placeholder:"NAME"`
	Concurrency int64  `help:"How many messages are handled at once, 1 to 5000; those of one key one after another." default:"1" placeholder:"N"`
	Count       int64  `help:"End after so many messages." placeholder:"N"`
	Raw         bool   `help:"Print payloads as they are, also what would command a terminal or break the line."`

	Ack  bool   `help:"Print messages and acknowledge them. The default." xor:"mode"`
	Nack bool   `help:"Print messages and give them back as failed." xor:"mode"`
	Exec string `help:"Run this by sh for each message, with the payload on its standard input and PARLEY_MESSAGE_ID, PARLEY_KEY, PARLEY_ATTEMPT and the like in its environment. Exit code 0 acknowledges the message; another one n gives it back as failed, with the code exit-n." xor:"mode" placeholder:"COMMAND"`

	Reason     string `help:"With --nack: why, for people." placeholder:"TEXT"`
	Code       string `help:"With --nack: the failure's code." placeholder:"CODE"`
	RetryAfter span   `help:"What failed is tried again after this, up to 366d. Default: the topic's backoff." placeholder:"DURATION"`
	DeadLetter bool   `help:"What failed is a dead letter at once."`

	ExecTimeout span `help:"End a command that takes longer, and count it as failed." placeholder:"DURATION"`
	AckTimeout  span `help:"After how long without a word of this consumer its messages go to others, 1s to 12h. Default: 30s." placeholder:"DURATION"`
	StopTimeout span `help:"How long an interrupt waits for commands that run. Default: 30s." placeholder:"DURATION"`
	Unary       bool `help:"Use a call for each request in place of one stream: for HTTP/1.1 and proxies that can't do better."`
}

// payloadJSON is the JSON form of a payload: text if it is valid UTF-8, else base64.
type payloadJSON struct {
	Payload       *string `json:"payload,omitempty"`
	PayloadBase64 string  `json:"payload_base64,omitempty"`
}

func payloadToJSON(payload []byte) payloadJSON {
	if utf8.Valid(payload) {
		return payloadJSON{Payload: new(string(payload))}
	}
	return payloadJSON{PayloadBase64: base64.StdEncoding.EncodeToString(payload)}
}

// deliveryJSON is the JSON form of a delivery.
type deliveryJSON struct {
	Topic     string `json:"topic"`
	Group     string `json:"group"`
	MessageID string `json:"message_id"`
	Partition int    `json:"partition"`
	Key       string `json:"key,omitempty"`
	payloadJSON

	Headers     map[string]string `json:"headers,omitempty"`
	Attempt     int               `json:"attempt"`
	ProduceTime string            `json:"produce_time"`
	Exec        *execJSON         `json:"exec,omitempty"`
}

func deliveryToJSON(d *queue.Delivery) deliveryJSON {
	return deliveryJSON{
		Topic: d.Topic, Group: d.Group, MessageID: d.MessageID, Partition: d.Partition, Key: d.Key,
		payloadJSON: payloadToJSON(d.Payload), Headers: d.Headers, Attempt: d.Attempt, ProduceTime: d.ProduceTime.Format(timeFormat),
	}
}

func (c *queueConsumeCommand) check() error {
	err := firstOf(
		c.topicArg.check(), checkName("--group", c.Group), checkOptionalName("--consumer", c.Consumer),
		checkRange("--concurrency", c.Concurrency, 1, maxConcurrency), checkRange("--count", c.Count, 0, maxMessages),
		checkSpan("--retry-after", c.RetryAfter, 0, maxAhead), checkSpan("--exec-timeout", c.ExecTimeout, time.Millisecond, maxAhead),
		checkSpan("--ack-timeout", c.AckTimeout, time.Second, day/2), checkSpan("--stop-timeout", c.StopTimeout, 0, maxAhead),
	)
	switch {
	case err != nil:
		return err
	case !c.Nack && (c.Reason != "" || c.Code != ""):
		return usagef("--reason and --code go with --nack")
	case !c.Nack && c.Exec == "" && (c.RetryAfter.given || c.DeadLetter):
		return usagef("--retry-after and --dead-letter go with --nack or --exec")
	case c.RetryAfter.given && c.DeadLetter:
		return usagef("--retry-after: what is a dead letter is not tried again")
	case c.Exec == "" && c.ExecTimeout.given:
		return usagef("--exec-timeout goes with --exec")
	case c.Exec != "" && c.Raw:
		return usagef("--raw prints, --exec does not")
	case len(c.Reason) > maxNackReason || !utf8.ValidString(c.Reason):
		return usagef("--reason: %d bytes, want at most %d of UTF-8", len(c.Reason), maxNackReason)
	case c.Code != "":
		return checkCodes("--code", []string{c.Code})
	default:
		return nil
	}
}

// Run consumes until it is interrupted, which is not an error, or has handled --count messages. It
// then finishes the messages that it has begun and releases the other ones, which does not count as
// an attempt.
func (c *queueConsumeCommand) Run(s *session) error {
	if err := c.check(); err != nil {
		return err
	}
	client, err := s.client()
	if err != nil {
		return err
	}
	defer client.Close()
	ctx, stop := context.WithCancel(s.ctx)
	defer stop()
	run := &consuming{queueConsumeCommand: c, s: s, stop: stop}
	worker := queue.NewWorker(client, c.Topic, c.Group, run.handle, run.options()...)
	err = worker.Run(ctx)
	// The worker does not wait for commands that still run after the stop timeout. They are ended
	// then, and waited for here.
	run.commands.Wait()
	if stats := worker.Stats(); err == nil || stats.Delivered > 0 {
		run.tell(stats)
	}
	if run.failure != nil {
		return run.failure
	}
	if err != nil {
		return explainQueue("consume", err)
	}
	return nil
}

// consuming is the state of a running consume command.
type consuming struct {
	*queueConsumeCommand

	s        *session
	stop     context.CancelFunc
	commands sync.WaitGroup

	mu      sync.Mutex // guards the fields below, and the outputs
	begun   int64
	failure error
}

func (c *consuming) options() []queue.WorkerOption {
	report := &connectionReport{w: c.s.stderr, live: "consuming " + c.Topic + " as " + c.Group}
	opts := []queue.WorkerOption{
		queue.WithConcurrency(int(c.Concurrency)), queue.WithOnState(report.changed),
		queue.WithOnLost(func(d *queue.Delivery, err error) {
			c.note(fmt.Sprintf("%s: lost, it comes again: %s", d.MessageID, err))
		}),
	}
	window := int64(0) // the default
	if c.Exec == "" {
		window = max(printWindow, 2*c.Concurrency)
	}
	if c.Count > 0 {
		window = min(c.Count, max(window, 2*c.Concurrency))
	}
	opts = append(opts, queue.WithWindow(int(window), 0))
	if c.Consumer != "" {
		opts = append(opts, queue.WithConsumerName(c.Consumer))
	}
	if c.AckTimeout.given {
		opts = append(opts, queue.WithAckTimeout(c.AckTimeout.d))
	}
	if c.StopTimeout.given {
		opts = append(opts, queue.WithStopTimeout(c.StopTimeout.d))
	}
	if c.ExecTimeout.given {
		opts = append(opts, queue.WithHandlerTimeout(c.ExecTimeout.d))
	}
	if c.Unary {
		opts = append(opts, queue.WithUnaryCalls())
	}
	return opts
}

// handle handles one message.
func (c *consuming) handle(ctx context.Context, d *queue.Delivery) error {
	if !c.begin() {
		return queue.ErrRelease
	}
	if c.Exec != "" {
		return c.execute(ctx, d)
	}
	if err := c.print(d); err != nil {
		return c.fail(err)
	}
	if c.Nack {
		reason := c.Reason
		if reason == "" {
			reason = "nacked by hand"
		}
		return c.failed(errors.New(reason), c.Code)
	}
	return nil
}

// failed returns a handler's error that applies the flags for failures.
func (c *consuming) failed(err error, code string) error {
	if c.RetryAfter.given {
		err = queue.RetryAfter(err, c.RetryAfter.d)
	}
	if c.DeadLetter {
		err = queue.DeadLetter(err)
	}
	if code != "" {
		err = queue.Code(err, code)
	}
	return err
}

// begin reports whether one more message may be handled. The last message stops the worker.
func (c *consuming) begin() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.failure != nil || (c.Count > 0 && c.begun == c.Count) {
		return false
	}
	if c.begun++; c.begun == c.Count {
		c.stop()
	}
	return true
}

// fail ends the command because of an error that the message did not cause. It returns
// queue.ErrRelease, so that the message is released.
func (c *consuming) fail(err error) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.failure == nil {
		c.failure = err
	}
	c.stop()
	return queue.ErrRelease
}

func (c *consuming) print(d *queue.Delivery) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	text := string(d.Payload)
	if !c.Raw {
		text = oneLine(text)
	}
	if err := c.s.printer().print(deliveryToJSON(d), text); err != nil {
		return fmt.Errorf("write: %w", err)
	}
	return nil
}

// note writes a line to the error output, for humans.
func (c *consuming) note(text string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	_, _ = fmt.Fprintln(c.s.stderr, "parley: "+oneLine(text))
}

// tell writes how many messages were acked, failed, released and lost.
func (c *consuming) tell(stats queue.Stats) {
	parts := []string{fmt.Sprintf("%d acked", stats.Acked)}
	for _, one := range []struct {
		n    int64
		what string
	}{{stats.Nacked, "failed"}, {stats.Released, "given back unhandled"}, {stats.Lost, "lost"}} {
		if one.n > 0 {
			parts = append(parts, fmt.Sprintf("%d %s", one.n, one.what))
		}
	}
	c.note(strings.Join(parts, ", "))
}
