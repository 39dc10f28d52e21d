package cli

import (
	"context"
	"errors"
	"fmt"

	parley "github.com/parleyhq/parley/sdk/go"
	"github.com/parleyhq/parley/sdk/go/queue"
)

type queueCommand struct {
	Create queueCreateCommand `cmd:"" help:"Make a topic, with consumer groups. Wants the capability admin, as all of these but produce, cancel, reschedule and consume."`
	Update queueUpdateCommand `cmd:"" help:"Change a topic's settings; what no flag names stays."`
	Get    queueGetCommand    `cmd:"" help:"Show a topic's settings."`
	List   queueListCommand   `cmd:"" help:"List the topics."`
	Delete queueDeleteCommand `cmd:"" help:"Delete a topic with everything in it."`
	Pause  queuePauseCommand  `cmd:"" help:"Refuse new messages, or deliver nothing more, or both."`
	Resume queueResumeCommand `cmd:"" help:"Undo pause."`
	Group  queueGroupCommand  `cmd:"" help:"Make, delete and move consumer groups."`

	Stats      queueStatsCommand      `cmd:"" help:"Show how much topics hold (depth) and how far groups are behind (lag)."`
	Pending    queuePendingCommand    `cmd:"" help:"Show what was delivered and is not settled."`
	Partitions queuePartitionsCommand `cmd:"" help:"Show who has which partition."`

	Produce    queueProduceCommand    `cmd:"" help:"Put messages into a topic, now or later."`
	Cancel     queueCancelCommand     `cmd:"" help:"Take scheduled messages back."`
	Reschedule queueRescheduleCommand `cmd:"" help:"Give scheduled messages another time."`
	Consume    queueConsumeCommand    `cmd:"" help:"Take messages, print them or run a command for each, and acknowledge them."`

	DLQ    queueDLQCommand    `cmd:"" name:"dlq" help:"List or purge dead letters."`
	Replay queueReplayCommand `cmd:"" help:"Give dead letters back to their groups."`
	Trim   queueTrimCommand   `cmd:"" help:"Remove a topic's oldest messages."`
	Bench  queueBenchCommand  `cmd:"" help:"Measure queues: short for 'parley bench queue'."`
}

// The server's limits of queues, checked here so that an error can name the flag.
const (
	maxPartitions   = 256
	maxMessages     = 1_000_000_000
	maxAttempts     = 1000
	maxCodes        = 32
	maxQueueKey     = 256
	maxQueuePayload = 256 << 10
	maxQueueHeaders = 32
	maxHeaderValue  = 1024
	maxDeadIDs      = 1000
	maxReplayed     = 10_000
	maxNackReason   = 1024
)

// topicArg is the argument of whatever is about one topic.
type topicArg struct {
	Topic string `arg:"" help:"The topic."`
}

func (a topicArg) check() error { return checkName("<topic>", a.Topic) }

// administer does work with an admin of queues, within the time.
func (p patience) administer(s *session, work func(ctx context.Context, admin *queue.Admin) error) error {
	return p.with(s, func(ctx context.Context, client *parley.Client) error {
		return work(ctx, queue.NewAdmin(client))
	})
}

// groupsOf gives the one group, or where that is empty all groups of a topic.
func groupsOf(ctx context.Context, admin *queue.Admin, topic, group string) ([]string, error) {
	if group != "" {
		return []string{group}, nil
	}
	t, err := admin.Topic(ctx, topic)
	return t.GetGroups(), err
}

// explainQueue is explain, with what to do about the common failures of queues.
func explainQueue(what string, err error) error {
	var hint string
	switch {
	case errors.Is(err, parley.ErrTopicNotFound):
		hint = "'parley queue create' makes topics"
	case errors.Is(err, parley.ErrGroupNotFound):
		hint = "'parley queue group create' makes groups"
	case errors.Is(err, parley.ErrGroupInUse):
		hint = "stop its consumers first"
	case errors.Is(err, parley.ErrTopicPaused):
		hint = "'parley queue resume' ends the pause"
	default:
		return explain(what, err)
	}
	return fmt.Errorf("%s: %w (%s)", what, err, hint)
}
