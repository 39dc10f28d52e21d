package cli

import (
	"context"
	"fmt"
	"iter"
	"slices"
	"time"

	parley "github.com/parleyhq/parley/sdk/go"
	queue "github.com/parleyhq/parley/sdk/go/queue"
)

type queueDLQCommand struct {
	List   dlqListCommand   `cmd:"" default:"withargs" help:"List dead letters, newest first."`
	Replay dlqReplayCommand `cmd:"" help:"Replay dead letters, to their groups or to another topic: by id, all of a group, or all of the topic."`
	Purge  dlqPurgeCommand  `cmd:"" help:"Delete dead letters: by id, all of a group, or all of the topic."`
}

type dlqListCommand struct {
	topicArg

	Group string `help:"Only dead letters of this group. Default: of all groups." placeholder:"GROUP"`
	Code  string `help:"Only dead letters with this failure code." placeholder:"CODE"`
	Limit int64  `help:"Maximum number, 1 to 1000000000." default:"50" placeholder:"N"`
}

// deadLetterJSON is the JSON form of a dead letter.
type deadLetterJSON struct {
	Topic        string `json:"topic"`
	DeadLetterID string `json:"dead_letter_id"`
	MessageID    string `json:"message_id"`
	Partition    int32  `json:"partition"`
	Group        string `json:"group"`
	Key          string `json:"key"`
	payloadJSON
	Headers        map[string]string `json:"headers,omitempty"`
	Attempts       int32             `json:"attempts"`
	Reason         string            `json:"reason"`
	Code           string            `json:"code,omitempty"`
	ProduceTime    string            `json:"produce_time"`
	DeadLetterTime string            `json:"dead_letter_time"`
}

// Run lists dead letters.
func (c *dlqListCommand) Run(s *session) error {
	err := firstError(c.check(), checkOptionalName("--group", c.Group), checkRange("--limit", c.Limit, 1, maxMessages))
	if err == nil && c.Code != "" {
		err = checkCodes("--code", []string{c.Code})
	}
	if err != nil {
		return err
	}
	letters := func(ctx context.Context, client *parley.Client) iter.Seq2[*queue.DeadMessage, error] {
		return first(c.Limit, queue.NewAdmin(client).DeadLetters(ctx, c.Topic, c.Group, queue.WithCode(c.Code)))
	}
	return list(s, "dlq list", letters, func(p printer, d *queue.DeadMessage) error {
		value := deadLetterJSON{
			Topic: c.Topic, DeadLetterID: d.GetDeadLetterId(), MessageID: d.GetMessageId(), Partition: d.GetPartition(),
			Group: d.GetGroup(), Key: d.GetKey(), payloadJSON: payloadToJSON(d.GetPayload()), Headers: d.GetHeaders(),
			Attempts: d.GetAttempts(), Reason: d.GetReason(), Code: d.GetCode(),
			ProduceTime: d.GetProduceTime().AsTime().Format(timeFormat), DeadLetterTime: d.GetDeadLetterTime().AsTime().Format(timeFormat),
		}
		code := ""
		if d.GetCode() != "" {
			code = "[" + d.GetCode() + "] "
		}
		key := ""
		if d.GetKey() != "" {
			key = clip(oneLine(d.GetKey()), 40) + ": "
		}
		return p.print(value, fmt.Sprintf("%s  %s %s after %s: %s%s  %s%s", d.GetDeadLetterId(),
			d.GetDeadLetterTime().AsTime().Local().Format(time.DateTime), d.GetGroup(), count(int64(d.GetAttempts()), "attempt", "attempts"),
			code, clip(oneLine(d.GetReason()), 80), key, clip(oneLine(string(d.GetPayload())), 80)))
	})
}

// first ends an iterator after limit items.
func first[T any](limit int64, items iter.Seq2[T, error]) iter.Seq2[T, error] {
	return func(yield func(T, error) bool) {
		n := int64(0)
		for item, err := range items {
			if !yield(item, err) {
				return
			}
			if n++; n == limit {
				return
			}
		}
	}
}

// letterFlags select dead letters: by id, of one group, or all of the topic. Without flags, nothing
// is selected.
type letterFlags struct {
	IDs   []string `arg:"" optional:"" name:"dead-letter-ids" help:"The dead letters' ids, from 'dlq list'."`
	Group string   `help:"All dead letters of this group." placeholder:"GROUP" xor:"letters"`
	All   bool     `help:"All dead letters of the topic." xor:"letters"`
}

func (f *letterFlags) check(what string) error {
	switch {
	case len(f.IDs) > 0 && f.Group != "":
		return usagef("--group and ids exclude each other: --group selects all dead letters of a group")
	case len(f.IDs) > 0 && f.All:
		return usagef("--all and ids exclude each other: --all selects all dead letters of the topic")
	case len(f.IDs) == 0 && f.Group == "" && !f.All:
		return usagef("%s: requires ids, --group or --all", what)
	}
	return firstError(checkOptionalName("--group", f.Group), checkIDs("<dead-letter-ids>", f.IDs))
}

// selections returns a selection for each call to make. There are several if the command has more
// ids than one call accepts.
func (f *letterFlags) selections() iter.Seq[queue.Selection] {
	return func(yield func(queue.Selection) bool) {
		switch {
		case f.All:
			yield(queue.AllDeadLetters())
		case f.Group != "":
			yield(queue.DeadLettersOf(f.Group))
		default:
			for ids := range slices.Chunk(f.IDs, maxBatchIDs) {
				if !yield(queue.DeadLetterIDs(ids...)) {
					return
				}
			}
		}
	}
}

type dlqPurgeCommand struct {
	topicArg
	letterFlags

	Confirm string `help:"Confirmation: the topic's name. Purged dead letters cannot be restored." placeholder:"TOPIC"`
}

// purgedJSON is the JSON form of a purge's result.
type purgedJSON struct {
	Event  string `json:"event"`
	Topic  string `json:"topic"`
	Purged int64  `json:"purged"`
}

// Run deletes dead letters.
func (c *dlqPurgeCommand) Run(s *session) error {
	err := firstError(c.topicArg.check(), c.letterFlags.check("dlq purge"),
		checkConfirm(c.Confirm, c.Topic, "the selection of dead letters of "+c.Topic))
	if err != nil {
		return err
	}
	return s.withAdmin(func(ctx context.Context, admin *queue.Admin) error {
		done := purgedJSON{Event: "purged", Topic: c.Topic}
		for letters := range c.selections() {
			n, err := admin.PurgeDeadLetters(ctx, c.Topic, letters, c.Confirm)
			if err != nil {
				return explainQueue("dlq purge", err)
			}
			done.Purged += n
		}
		return s.printer().print(done, fmt.Sprintf("%s: %s purged", c.Topic, count(done.Purged, "dead letter", "dead letters")))
	})
}

type dlqReplayCommand struct {
	topicArg
	letterFlags

	Limit *int64 `help:"With --group or --all: maximum number, 1 to 1000000000. The oldest of each partition are replayed first." placeholder:"N"`
	To    string `help:"Produce the dead letters as new messages of this topic, for all of its groups. Default: each is delivered again to its own group." placeholder:"TOPIC"`
}

// replayedJSON is the JSON form of a replay's result.
type replayedJSON struct {
	Event    string `json:"event"`
	Topic    string `json:"topic"`
	To       string `json:"to,omitempty"`
	Replayed int64  `json:"replayed"`
}

// Run replays dead letters.
func (c *dlqReplayCommand) Run(s *session) error {
	err := firstError(c.topicArg.check(), c.letterFlags.check("dlq replay"),
		checkOptional("--limit", c.Limit, 1, maxMessages), checkOptionalName("--to", c.To))
	if err == nil && c.Limit != nil && len(c.IDs) > 0 {
		err = usagef("--limit requires --group or --all")
	}
	if err != nil {
		return err
	}
	return s.withAdmin(func(ctx context.Context, admin *queue.Admin) error {
		done := replayedJSON{Event: "replayed", Topic: c.Topic, To: c.To}
		if err := c.replay(ctx, admin, &done); err != nil {
			err = explainQueue("dlq replay", err)
			if done.Replayed > 0 {
				err = fmt.Errorf("%w\n%s replayed before that", err, count(done.Replayed, "dead letter was", "dead letters were"))
			}
			return err
		}
		return s.printer().print(done,
			fmt.Sprintf("%s: %s replayed%s", c.Topic, count(done.Replayed, "dead letter", "dead letters"), unless(c.To == "", "", " to "+c.To)))
	})
}

func (c *dlqReplayCommand) replay(ctx context.Context, admin *queue.Admin, done *replayedJSON) error {
	var opts []queue.ReplayOption
	if c.To != "" {
		opts = append(opts, queue.ToTopic(c.To))
	}
	if len(c.IDs) > 0 {
		for letters := range c.selections() {
			n, _, err := admin.ReplayDeadLetters(ctx, c.Topic, letters, opts...)
			if err != nil {
				return err
			}
			done.Replayed += n
		}
		return nil
	}
	// A replayed message that fails again at once becomes a dead letter again. The command would
	// never end if it replayed those too, so it replays at most as many as there are now.
	total, _, err := admin.Stats(ctx, c.Topic)
	if err != nil {
		return err
	}
	left := total.GetDeadLetters()
	if c.Limit != nil {
		left = min(left, *c.Limit)
	}
	letters := queue.AllDeadLetters()
	if c.Group != "" {
		letters = queue.DeadLettersOf(c.Group)
	}
	// It makes at least one call, even without dead letters: the server checks that the group
	// exists.
	for more := true; more; more = more && left > 0 {
		var n int64
		limit := queue.WithLimit(int(min(max(left, 1), maxReplayed)))
		n, more, err = admin.ReplayDeadLetters(ctx, c.Topic, letters, append(opts, limit)...)
		if err != nil {
			return err
		}
		done.Replayed += n
		left -= n
	}
	return nil
}
