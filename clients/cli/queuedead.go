package cli

import (
	"context"
	"fmt"
	"iter"
	"slices"
	"time"

	parley "github.com/parleyhq/parley/sdk/go"
	"github.com/parleyhq/parley/sdk/go/queue"
)

type queueDLQCommand struct {
	List  dlqListCommand  `cmd:"" default:"withargs" help:"List dead letters, the newest first."`
	Purge dlqPurgeCommand `cmd:"" help:"Remove dead letters for good."`
}

type dlqListCommand struct {
	patience
	topicArg

	Group string `help:"Of this group. Default: of all." placeholder:"GROUP"`
	Limit int64  `help:"How many at most, 1 to 1000000000." default:"50" placeholder:"N"`
}

// deadLetterJSON is a dead letter for programs.
type deadLetterJSON struct {
	Topic        string `json:"topic"`
	DeadLetterID string `json:"dead_letter_id"`
	MessageID    string `json:"message_id"`
	Partition    int32  `json:"partition"`
	Group        string `json:"group"`
	Key          string `json:"key"`
	payloadJSON
	Headers    map[string]string `json:"headers,omitempty"`
	Attempts   int32             `json:"attempts"`
	Reason     string            `json:"reason"`
	Code       string            `json:"code,omitempty"`
	ProducedAt string            `json:"produced_at"`
	DeadAt     string            `json:"dead_at"`
}

// Run lists dead letters.
func (c *dlqListCommand) Run(s *session) error {
	if err := firstOf(c.check(), checkOptionalName("--group", c.Group), checkRange("--limit", c.Limit, 1, maxMessages)); err != nil {
		return err
	}
	letters := func(ctx context.Context, client *parley.Client) iter.Seq2[*queue.DeadMessage, error] {
		return first(c.Limit, queue.NewAdmin(client).DeadLetters(ctx, c.Topic, c.Group))
	}
	return list(s, c.Timeout, "dlq list", letters, func(p printer, d *queue.DeadMessage) error {
		value := deadLetterJSON{
			Topic: c.Topic, DeadLetterID: d.GetDeadLetterId(), MessageID: d.GetMessageId(), Partition: d.GetPartition(),
			Group: d.GetGroup(), Key: d.GetKey(), payloadJSON: payloadToJSON(d.GetPayload()), Headers: d.GetHeaders(),
			Attempts: d.GetAttempts(), Reason: d.GetReason(), Code: d.GetCode(),
			ProducedAt: d.GetProducedAt().AsTime().Format(timeFormat), DeadAt: d.GetDeadAt().AsTime().Format(timeFormat),
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
			d.GetDeadAt().AsTime().Local().Format(time.DateTime), d.GetGroup(), count(int64(d.GetAttempts()), "attempt", "attempts"),
			code, clip(oneLine(d.GetReason()), 80), key, clip(oneLine(string(d.GetPayload())), 80)))
	})
}

// first bounds what an iterator gives.
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

// deadIDs are the arguments that choose dead letters.
type deadIDs struct {
	IDs   []string `arg:"" optional:"" name:"dead-letter-ids" help:"The dead letters' ids, as dlq list tells them."`
	Group string   `help:"Only those of this group." placeholder:"GROUP"`
}

func (a *deadIDs) check() error {
	return firstOf(checkOptionalName("--group", a.Group), checkIDs("<dead-letter-ids>", a.IDs, deadLetterIDForm, "3-1767225600000-0"))
}

// parts gives the ids, in as many parts as there must be calls; one part without ids if there are none.
func (a *deadIDs) parts() iter.Seq[[]string] {
	if len(a.IDs) == 0 {
		return slices.Values([][]string{nil})
	}
	return slices.Chunk(a.IDs, maxDeadIDs)
}

type dlqPurgeCommand struct {
	patience
	topicArg
	deadIDs

	All     bool   `help:"All of them."`
	Confirm string `help:"The topic's name again: purged dead letters are lost." placeholder:"TOPIC"`
}

// purgedJSON is what a purge did, for programs.
type purgedJSON struct {
	Event  string `json:"event"`
	Topic  string `json:"topic"`
	Purged int64  `json:"purged"`
}

// Run removes dead letters.
func (c *dlqPurgeCommand) Run(s *session) error {
	err := firstOf(c.topicArg.check(), c.deadIDs.check(), checkAll("dlq purge", c.All, c.IDs),
		checkConfirm(c.Confirm, c.Topic, "what is purged from "+c.Topic))
	if err != nil {
		return err
	}
	return c.administer(s, func(ctx context.Context, admin *queue.Admin) error {
		done := purgedJSON{Event: "purged", Topic: c.Topic}
		for ids := range c.parts() {
			purge := func() (int64, error) { return admin.PurgeDeadLetters(ctx, c.Topic, c.Group, c.Confirm, ids...) }
			if c.All {
				purge = func() (int64, error) { return admin.PurgeAllDeadLetters(ctx, c.Topic, c.Group, c.Confirm) }
			}
			n, err := purge()
			if err != nil {
				return explainQueue("dlq purge", err)
			}
			done.Purged += n
		}
		return s.printer().print(done, fmt.Sprintf("%s: %s purged", c.Topic, count(done.Purged, "dead letter", "dead letters")))
	})
}

// checkAll wants ids, or that the user says that he means all.
func checkAll(what string, all bool, ids []string) error {
	switch {
	case all && len(ids) > 0:
		return usagef("--all: give no ids")
	case !all && len(ids) == 0:
		return usagef("%s: want ids, or --all", what)
	default:
		return nil
	}
}

type queueReplayCommand struct {
	patience
	topicArg
	deadIDs

	All   bool   `help:"All that there are now, the oldest of each partition first."`
	Limit *int64 `help:"With --all: how many at most, 1 to 1000000000." placeholder:"N"`
	To    *int   `help:"The partition that they go to, 0 to 255. Default: their own." placeholder:"PARTITION"`
}

// replayedJSON is what a replay did, for programs.
type replayedJSON struct {
	Event    string `json:"event"`
	Topic    string `json:"topic"`
	Replayed int64  `json:"replayed"`
}

// Run gives dead letters back.
func (c *queueReplayCommand) Run(s *session) error {
	err := firstOf(c.topicArg.check(), c.deadIDs.check(), checkAll("replay", c.All, c.IDs),
		checkOptional("--limit", c.Limit, 1, maxMessages), checkOptional("--to", c.To, 0, maxPartitions-1))
	if err == nil && c.Limit != nil && !c.All {
		err = usagef("--limit goes with --all")
	}
	if err != nil {
		return err
	}
	client, err := s.client()
	if err != nil {
		return err
	}
	defer client.Close()
	// The time that a command keeps trying counts anew with each call, so that many dead letters are no failure.
	ctx, progress, cancel := withIdleTimeout(s.ctx, c.Timeout)
	defer cancel()
	done := replayedJSON{Event: "replayed", Topic: c.Topic}
	if err := c.replay(ctx, queue.NewAdmin(client), &done, progress); err != nil {
		err = explainQueue("replay", err)
		if done.Replayed > 0 {
			err = fmt.Errorf("%w\n%s given back before that", err, count(done.Replayed, "dead letter was", "dead letters were"))
		}
		return err
	}
	return s.printer().print(done, fmt.Sprintf("%s: %s given back", c.Topic, count(done.Replayed, "dead letter", "dead letters")))
}

func (c *queueReplayCommand) replay(ctx context.Context, admin *queue.Admin, done *replayedJSON, progress func()) error {
	for ids := range c.parts() {
		if len(ids) == 0 {
			break
		}
		n, _, err := admin.ReplayDeadLetters(ctx, c.Topic, queue.Replay{Group: c.Group, IDs: ids, Partition: c.To})
		if err != nil {
			return err
		}
		done.Replayed += n
		progress()
	}
	if !c.All {
		return nil
	}
	// What fails again at once must not be given back without end: no more than there are now.
	stats, err := admin.Stats(ctx, c.Topic)
	if err != nil {
		return err
	}
	left := stats.GetTotal().GetDeadLetters()
	if c.Limit != nil {
		left = min(left, *c.Limit)
	}
	// One call at least, also for none: the server judges the group.
	for more := true; more; more = more && left > 0 {
		var n int64
		n, more, err = admin.ReplayDeadLetters(ctx, c.Topic, queue.Replay{
			Group: c.Group, Limit: int(min(max(left, 1), maxReplayed)), Partition: c.To,
		})
		if err != nil {
			return err
		}
		done.Replayed += n
		left -= n
		progress()
	}
	return nil
}
