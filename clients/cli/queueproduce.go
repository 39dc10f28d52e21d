package cli

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	queue "github.com/parleyhq/parley/sdk/go/queue"
)

// The limits of a batch, which is one call of the SDK: its number of messages, and the bytes of
// payload after which no message is added.
const (
	produceBatch      = 1000
	produceBatchBytes = 1 << 20
)

type queueProduceCommand struct {
	topicArg
	dueFlags

	Payloads []string `arg:"" optional:"" help:"The payloads, one per message. Without payloads, each line of standard input is a message."`

	Key            string            `help:"The messages' key. Messages of one key stay in order. Up to 256 bytes." placeholder:"KEY" xor:"key"`
	KeySeparator   string            `help:"Separator between key and payload. The text before it is the key and is removed from the payload." placeholder:"TEXT" xor:"key"`
	Header         map[string]string `help:"A header, as name=value; may be repeated, up to 32." mapsep:"none" placeholder:"NAME=VALUE"`
	IdempotencyKey string            `help:"Idempotency key of a single message. The message is stored once, however often it is produced with this key." placeholder:"KEY"`

	MaxAttempts    *int         `help:"Number of attempts before a message becomes a dead letter, 1 to 1000. Default: the group's." placeholder:"N"`
	HandlerTimeout durationFlag `help:"Time limit of handlers, 1ms to 7d. Default: the group's." placeholder:"DURATION"`
	TTL            durationFlag `name:"ttl" help:"Time after which a message expires where no handler has begun it, 1ms to 366d. Default: no limit." placeholder:"DURATION"`
	uniqueFlags

	Whole bool `help:"Treat the whole standard input as one message."`
	Quiet bool `short:"q" help:"Print only the number of messages, not a line per message."`
}

// uniqueFlags are the flags of a message's unique key.
type uniqueFlags struct {
	Unique       string       `help:"Unique key of a single message: at most one message with this key is scheduled or waits at a time." placeholder:"KEY"`
	OnConflict   string       `help:"With --unique, if another message has the key: reject the new message, keep the earlier one, or replace it. Default: reject." placeholder:"reject|keep|replace"`
	WhileRunning bool         `help:"With --unique: the message has the key until every group has settled it, not only until a handler begins it."`
	UniqueFor    durationFlag `help:"With --unique: the longest time that the message has the key, 1s to 7d. Default: 1d." placeholder:"DURATION"`
}

var conflicts = map[string]queue.Conflict{"": queue.Reject, "reject": queue.Reject, "keep": queue.KeepEarlier, "replace": queue.Replace}

func (c *uniqueFlags) check() error {
	if _, ok := conflicts[c.OnConflict]; !ok {
		return usagef("--on-conflict %q: must be reject, keep or replace", c.OnConflict)
	}
	if c.Unique == "" && (c.OnConflict != "" || c.WhileRunning || c.UniqueFor.set) {
		return usagef("--on-conflict, --while-running and --unique-for require --unique")
	}
	return firstError(checkKey("--unique", c.Unique), checkDurationFlag("--unique-for", c.UniqueFor, time.Second, week))
}

// unique returns the unique key, or nil if none is given.
func (c *uniqueFlags) unique() *queue.Unique {
	if c.Unique == "" {
		return nil
	}
	return &queue.Unique{Key: c.Unique, OnConflict: conflicts[c.OnConflict], WhileRunning: c.WhileRunning, AtMost: c.UniqueFor.d}
}

// producedJSON is the JSON form of a stored message.
type producedJSON struct {
	Topic     string `json:"topic"`
	MessageID string `json:"message_id"`
	Partition int    `json:"partition"`
	Key       string `json:"key,omitempty"`
	Duplicate bool   `json:"duplicate"`
	DueTime   string `json:"due_time,omitempty"`
}

// producedCountJSON is the JSON form of the number of produced messages.
type producedCountJSON struct {
	Event      string `json:"event"`
	Topic      string `json:"topic"`
	Produced   int    `json:"produced"`
	Duplicates int    `json:"duplicates"`
}

// outgoing is a message to produce. from describes its origin in errors.
type outgoing struct {
	queue.Message

	from string
}

// produceRun is the state of a running produce command.
type produceRun struct {
	*queueProduceCommand

	s        *session
	producer *queue.Producer
	count    producedCountJSON
}

func (c *queueProduceCommand) check() error {
	err := firstError(
		c.topicArg.check(), c.dueFlags.check(), checkMessage(c.Key, c.IdempotencyKey, c.Header),
		checkOptional("--max-attempts", c.MaxAttempts, 1, maxAttempts),
		checkDurationFlag("--handler-timeout", c.HandlerTimeout, time.Millisecond, week),
		checkDurationFlag("--ttl", c.TTL, time.Millisecond, maxDelay), c.uniqueFlags.check(),
	)
	single := c.Whole || len(c.Payloads) == 1
	switch {
	case err != nil:
		return err
	case c.Whole && len(c.Payloads) > 0:
		return usagef("--whole reads standard input and accepts no payloads")
	case c.Whole && c.KeySeparator != "":
		return usagef("--key-separator and --whole exclude each other")
	case c.IdempotencyKey != "" && !single:
		return usagef("--idempotency-key applies to a single message: requires one payload or --whole")
	case c.Unique != "" && !single:
		return usagef("--unique applies to a single message: requires one payload or --whole")
	}
	for i, payload := range c.Payloads {
		if _, err := c.message(payload, fmt.Sprintf("payload %d", i+1)); err != nil {
			return usageError{err}
		}
	}
	return nil
}

// Run produces messages.
func (c *queueProduceCommand) Run(s *session) error {
	if err := c.check(); err != nil {
		return err
	}
	client, err := s.client()
	if err != nil {
		return err
	}
	defer client.Close()
	p := &produceRun{
		queueProduceCommand: c, s: s, producer: queue.NewProducer(client, c.Topic),
		count: producedCountJSON{Event: "produced", Topic: c.Topic},
	}
	if err := p.all(); err != nil {
		if p.count.Produced > 0 {
			err = fmt.Errorf("%w\n%s produced before that", err, count(int64(p.count.Produced), "message was", "messages were"))
		}
		return err
	}
	if !c.Quiet {
		return nil
	}
	text := fmt.Sprintf("%s: %s produced", c.Topic, count(int64(p.count.Produced), "message", "messages"))
	if p.count.Duplicates > 0 {
		text += fmt.Sprintf(", of which %d were duplicates", p.count.Duplicates)
	}
	return s.printer().print(p.count, text)
}

func (p *produceRun) all() error {
	switch {
	case len(p.Payloads) > 0:
		var batch []outgoing
		for i, payload := range p.Payloads {
			m, err := p.message(payload, fmt.Sprintf("payload %d", i+1))
			if err != nil {
				return err
			}
			batch = append(batch, m)
		}
		return p.send(batch)
	case p.Whole:
		data, err := io.ReadAll(io.LimitReader(p.s.stdin, maxQueuePayload+1))
		if err != nil {
			return fmt.Errorf("read standard input: %w", err)
		}
		m, err := p.message(string(data), "standard input")
		if err != nil {
			return err
		}
		return p.send([]outgoing{m})
	default:
		return p.lines()
	}
}

// message returns the message for a payload, or for a key and a payload with --key-separator. from
// describes its origin in errors.
func (c *queueProduceCommand) message(payload, from string) (outgoing, error) {
	m := outgoing{from: from, Message: queue.Message{
		Key: c.Key, Headers: c.Header, IdempotencyKey: c.IdempotencyKey, Timeout: c.HandlerTimeout.d, TTL: c.TTL.d,
		Delay: c.Delay.d, DeliverAt: c.At.t, Unique: c.unique(),
	}}
	if c.MaxAttempts != nil {
		m.MaxAttempts = *c.MaxAttempts
	}
	if c.KeySeparator != "" {
		key, rest, found := strings.Cut(payload, c.KeySeparator)
		if !found {
			return m, fmt.Errorf("%s: has no key separator %q", from, c.KeySeparator)
		}
		if err := checkMessage(key, "", nil); err != nil {
			return m, fmt.Errorf("%s: %w", from, err)
		}
		m.Key, payload = key, rest
	}
	if len(payload) > maxQueuePayload {
		return m, fmt.Errorf("%s: the payload is longer than %d bytes", from, maxQueuePayload)
	}
	m.Payload = []byte(payload)
	return m, nil
}

// lines produces the lines of standard input as they arrive. Lines that arrive while a batch is in
// flight form the next batch.
func (p *produceRun) lines() error {
	ctx, cancel := context.WithCancel(p.s.ctx)
	defer cancel()
	read := make(chan outgoing, produceBatch)
	failed := make(chan error, 1)
	go func() {
		defer close(read)
		failed <- p.readLines(ctx, read)
	}()
	for {
		var batch []outgoing
		select {
		case m, ok := <-read:
			if !ok {
				return <-failed
			}
			batch = collectBatch(m, read)
		case <-ctx.Done():
			return interrupted(ctx)
		}
		if err := p.send(batch); err != nil {
			return err
		}
	}
}

// interrupted returns the error of a command that was interrupted.
func interrupted(ctx context.Context) error { return fmt.Errorf("interrupted: %w", context.Cause(ctx)) }

// collectBatch returns first and the messages that are already waiting, as many as fit into one
// batch. It does not block.
func collectBatch(first outgoing, waiting <-chan outgoing) []outgoing {
	batch, size := []outgoing{first}, len(first.Payload)
	for len(batch) < produceBatch && size < produceBatchBytes {
		select {
		case m, ok := <-waiting:
			if !ok {
				return batch
			}
			batch, size = append(batch, m), size+len(m.Payload)
		default:
			return batch
		}
	}
	return batch
}

// readLines sends a message to the channel read for each line of standard input that is not empty.
func (p *produceRun) readLines(ctx context.Context, read chan<- outgoing) error {
	scanner := bufio.NewScanner(p.s.stdin)
	// The buffer is a little larger than the limits, so that message returns the error for a line
	// that is too long.
	scanner.Buffer(nil, maxQueueKey+len(p.KeySeparator)+maxQueuePayload+16)
	number := 0
	for scanner.Scan() {
		number++
		if scanner.Text() == "" {
			continue
		}
		m, err := p.message(scanner.Text(), fmt.Sprintf("line %d", number))
		if err != nil {
			return err
		}
		select {
		case read <- m:
		case <-ctx.Done():
			return interrupted(ctx)
		}
	}
	if errors.Is(scanner.Err(), bufio.ErrTooLong) {
		return fmt.Errorf("line %d: the payload is longer than %d bytes", number+1, maxQueuePayload)
	}
	if err := scanner.Err(); err != nil {
		return fmt.Errorf("read standard input: %w", err)
	}
	return nil
}

// send produces a batch and writes the results.
func (p *produceRun) send(batch []outgoing) error {
	messages := make([]queue.Message, len(batch))
	for i := range batch {
		messages[i] = batch[i].Message
	}
	results, callErr := p.producer.Produce(p.s.ctx, messages...)
	out := bufio.NewWriter(p.s.stdout)
	to := printer{w: out, stderr: p.s.stderr, json: p.s.flags.JSON}
	var refused []error
	for i, m := range batch {
		result := results[i]
		if result.Receipt == nil {
			if result.Err != nil && callErr == nil {
				refused = append(refused, fmt.Errorf("%s: %w", m.from, result.Err))
			}
			continue
		}
		p.count.Produced++
		if result.Receipt.Duplicate {
			p.count.Duplicates++
		}
		if p.Quiet {
			continue
		}
		if err := p.receipt(to, m.Key, result.Receipt); err != nil {
			return fmt.Errorf("write: %w", err)
		}
	}
	if err := out.Flush(); err != nil {
		return fmt.Errorf("write: %w", err)
	}
	if callErr != nil {
		return explainQueue("produce", callErr)
	}
	if len(refused) > maxReportedErrors {
		refused = append(refused[:maxReportedErrors], fmt.Errorf("and %d more", len(refused)-maxReportedErrors))
	}
	if len(refused) > 0 {
		return fmt.Errorf("produce: refused: %w", errors.Join(refused...))
	}
	return nil
}

func (p *produceRun) receipt(to printer, key string, r *queue.Receipt) error {
	value := producedJSON{
		Topic: p.Topic, MessageID: r.MessageID, Partition: r.Partition, Key: key, Duplicate: r.Duplicate,
	}
	text := fmt.Sprintf("%s: %s in partition %d", p.Topic, r.MessageID, r.Partition)
	if !r.DueTime.IsZero() {
		value.DueTime = r.DueTime.UTC().Format(timeFormat)
		text += ", due " + r.DueTime.Local().Format(time.DateTime)
	}
	if r.Duplicate {
		text += " (duplicate)"
	}
	return to.print(value, text)
}
