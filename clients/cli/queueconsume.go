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

	queue "github.com/parleyhq/parley/sdk/go/queue"
)

// printInFlight is the number of messages that a consumer that only prints them holds at least.
const printInFlight = 100

type queueConsumeCommand struct {
	Topics []string `arg:"" help:"The topics, 1 to 16, each of which has the group."`

	Group       string `help:"The consumer group. Its consumers share its messages." required:"" placeholder:"GROUP"`
	Consumer    string `help:"This consumer's name in 'queue consumers' and 'queue jobs'. Default: the host name and a random suffix." placeholder:"NAME"`
	Concurrency int64  `help:"Maximum number of messages in progress, 1 to 10000. Messages of one key are handled one after another." default:"1" placeholder:"N"`
	MaxInFlight int64  `help:"Maximum number of messages that this consumer holds, in progress or waiting for that: --concurrency to 10000. Default: twice --concurrency, and more to print messages." placeholder:"N"`
	Count       int64  `help:"Exit after this number of messages." placeholder:"N"`
	Raw         bool   `help:"Print payloads unchanged, including control characters and line breaks."`

	Ack  bool   `help:"Print messages and acknowledge them. The default." xor:"mode"`
	Nack bool   `help:"Print messages and nack them." xor:"mode"`
	Exec string `help:"Run this shell command for each message, with the payload on its standard input and PARLEY_MESSAGE_ID, PARLEY_KEY, PARLEY_ATTEMPT and more in its environment. Exit code 0 acknowledges the message; any other exit code n nacks it with the code exit-n." xor:"mode" placeholder:"COMMAND"`

	Reason     string       `help:"With --nack: the reason of the failure." placeholder:"TEXT"`
	Code       string       `help:"With --nack: the code of the failure." placeholder:"CODE"`
	RetryAfter durationFlag `help:"Delay before a failed message is delivered again, up to 366d. Default: the group's backoff." placeholder:"DURATION"`
	DeadLetter bool         `help:"Make failed messages dead letters at once, without further attempts."`

	ExecTimeout durationFlag `help:"Time limit of a command. A command that takes longer is terminated and counts as failed." placeholder:"DURATION"`
	AckTimeout  durationFlag `help:"If this consumer sends nothing for this long, its messages are delivered to other consumers, 1s to 12h. Default: 30s." placeholder:"DURATION"`
	StopTimeout durationFlag `help:"How long an interrupt waits for running commands. Default: 30s." placeholder:"DURATION"`
	Unary       bool         `help:"Use one unary call per request instead of a bidirectional stream: for HTTP/1.1 and proxies without bidirectional streaming."`
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
	err := firstError(
		checkNames("<topics>", c.Topics), checkName("--group", c.Group), checkOptionalName("--consumer", c.Consumer),
		checkRange("--concurrency", c.Concurrency, 1, maxConcurrency), checkRange("--count", c.Count, 0, maxMessages),
		checkDurationFlag("--retry-after", c.RetryAfter, 0, maxDelay),
		checkDurationFlag("--exec-timeout", c.ExecTimeout, time.Millisecond, maxDelay),
		checkDurationFlag("--ack-timeout", c.AckTimeout, time.Second, maxAckTimeout), checkDurationFlag("--stop-timeout", c.StopTimeout, 0, maxDelay),
	)
	switch {
	case err != nil:
		return err
	case len(c.Topics) > maxTopics:
		return usagef("<topics>: %d topics; must be at most %d", len(c.Topics), maxTopics)
	case c.MaxInFlight != 0 && (c.MaxInFlight < c.Concurrency || c.MaxInFlight > maxConcurrency):
		return usagef("--max-in-flight %d: must be --concurrency, %d, to %d", c.MaxInFlight, c.Concurrency, maxConcurrency)
	case !c.Nack && (c.Reason != "" || c.Code != ""):
		return usagef("--reason and --code require --nack")
	case !c.Nack && c.Exec == "" && (c.RetryAfter.set || c.DeadLetter):
		return usagef("--retry-after and --dead-letter require --nack or --exec")
	case c.RetryAfter.set && c.DeadLetter:
		return usagef("--retry-after and --dead-letter exclude each other: a dead letter is not retried")
	case c.Exec == "" && c.ExecTimeout.set:
		return usagef("--exec-timeout requires --exec")
	case c.Exec != "" && c.Raw:
		return usagef("--raw and --exec exclude each other: --exec prints no payloads")
	case len(c.Reason) > maxNackReason || !utf8.ValidString(c.Reason):
		return usagef("--reason: %d bytes; must be at most %d bytes of UTF-8", len(c.Reason), maxNackReason)
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
	run := &consumeRun{queueConsumeCommand: c, s: s, stop: stop}
	worker := queue.NewWorker(client, c.Group, run.options()...)
	for _, topic := range c.Topics {
		worker.Handle(topic, run.handle)
	}
	err = worker.Run(ctx)
	// The worker does not wait for commands that still run after the stop timeout. They are ended
	// then, and waited for here.
	run.commands.Wait()
	if stats := worker.Stats(); err == nil || stats.Delivered > 0 {
		run.printStats(stats)
	}
	if run.failure != nil {
		return run.failure
	}
	if err != nil {
		return explainQueue("consume", err)
	}
	return nil
}

// consumeRun is the state of a running consume command.
type consumeRun struct {
	*queueConsumeCommand

	s        *session
	stop     context.CancelFunc
	commands sync.WaitGroup

	mu      sync.Mutex // guards the fields below, and the outputs
	started int64
	failure error
}

func (c *consumeRun) options() []queue.WorkerOption {
	report := &connectionReport{w: c.s.stderr, live: "consuming " + strings.Join(c.Topics, ", ") + " as " + c.Group}
	opts := []queue.WorkerOption{
		queue.WithOnState(report.changed),
		queue.WithOnLost(func(d *queue.Delivery, err error) {
			c.printNote(fmt.Sprintf("%s: delivery lost: %s", d.MessageID, err))
		}),
	}
	concurrency, inFlight := c.Concurrency, c.MaxInFlight
	if inFlight == 0 {
		inFlight = 2 * concurrency
		if c.Exec == "" {
			inFlight = max(inFlight, printInFlight)
		}
	}
	if c.Count > 0 { // what the server sends beyond --count would only be returned
		concurrency, inFlight = min(concurrency, c.Count), min(inFlight, c.Count)
	}
	opts = append(opts, queue.WithConcurrency(int(concurrency)), queue.WithMaxInFlight(int(min(inFlight, maxConcurrency)), 0))
	if c.Consumer != "" {
		opts = append(opts, queue.WithConsumerName(c.Consumer))
	}
	if c.AckTimeout.set {
		opts = append(opts, queue.WithAckTimeout(c.AckTimeout.d))
	}
	if c.StopTimeout.set {
		opts = append(opts, queue.WithStopTimeout(c.StopTimeout.d))
	}
	if c.ExecTimeout.set {
		opts = append(opts, queue.WithHandlerTimeout(c.ExecTimeout.d))
	}
	if c.Unary {
		opts = append(opts, queue.WithUnaryCalls())
	}
	return opts
}

// handle prints one message, or runs the command for it. The error decides whether the message is
// acked, nacked or released.
func (c *consumeRun) handle(ctx context.Context, d *queue.Delivery) error {
	if !c.admit() {
		return queue.ErrRelease
	}
	if c.Exec != "" {
		return c.execute(ctx, d)
	}
	if err := c.print(d); err != nil {
		return c.abort(err)
	}
	if c.Nack {
		reason := c.Reason
		if reason == "" {
			reason = "nacked by hand"
		}
		return c.withFailureFlags(errors.New(reason), c.Code)
	}
	return nil
}

// withFailureFlags returns err with the code, if that is not empty, and with what --retry-after and
// --dead-letter request.
func (c *consumeRun) withFailureFlags(err error, code string) error {
	if c.RetryAfter.set {
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

// admit reports whether one more message may be handled. The last message that --count allows stops
// the worker.
func (c *consumeRun) admit() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.failure != nil || (c.Count > 0 && c.started == c.Count) {
		return false
	}
	if c.started++; c.started == c.Count {
		c.stop()
	}
	return true
}

// abort ends the command because of an error that the message did not cause. It returns
// queue.ErrRelease, so that the message is released.
func (c *consumeRun) abort(err error) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.failure == nil {
		c.failure = err
	}
	c.stop()
	return queue.ErrRelease
}

func (c *consumeRun) print(d *queue.Delivery) error {
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

// printNote writes a line to the error output, for humans.
func (c *consumeRun) printNote(text string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	_, _ = fmt.Fprintln(c.s.stderr, "parley: "+oneLine(text))
}

// printStats writes how many messages were acked, failed, released and lost.
func (c *consumeRun) printStats(stats queue.Stats) {
	parts := []string{fmt.Sprintf("%d acked", stats.Acked)}
	for _, one := range []struct {
		n    int64
		what string
	}{{stats.Nacked, "failed"}, {stats.Released, "released"}, {stats.Lost, "lost"}} {
		if one.n > 0 {
			parts = append(parts, fmt.Sprintf("%d %s", one.n, one.what))
		}
	}
	c.printNote(strings.Join(parts, ", "))
}
