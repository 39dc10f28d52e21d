package cli

import (
	"context"
	"errors"
	"fmt"

	parley "github.com/parleyhq/parley/sdk/go"
	queue "github.com/parleyhq/parley/sdk/go/queue"
)

type queueCommand struct {
	Create queueCreateCommand `cmd:"" help:"Create a topic, optionally with consumer groups. Requires the capability admin, as do all queue commands except produce, cancel, reschedule and consume."`
	Update queueUpdateCommand `cmd:"" help:"Change a topic's settings. Settings without a flag do not change."`
	Get    queueGetCommand    `cmd:"" help:"Show a topic's settings."`
	List   queueListCommand   `cmd:"" help:"List the topics."`
	Delete queueDeleteCommand `cmd:"" help:"Delete a topic and everything in it."`
	Pause  queuePauseCommand  `cmd:"" help:"Refuse new messages of a topic. 'queue group pause' stops deliveries."`
	Resume queueResumeCommand `cmd:"" help:"Accept new messages of a topic again."`
	Repair queueRepairCommand `cmd:"" help:"Create again what the queue store lost of a topic's settings, partitions and groups."`
	Group  queueGroupCommand  `cmd:"" help:"Create, change, list, pause, move and delete consumer groups."`

	Stats      queueStatsCommand      `cmd:"" help:"Show how many messages topics hold (depth) and how far groups are behind."`
	Jobs       queueJobsCommand       `cmd:"" help:"List the messages that are scheduled, wait, run or are retried."`
	Job        queueJobCommand        `cmd:"" help:"Show one message and what each group did with it."`
	Consumers  queueConsumersCommand  `cmd:"" help:"Show who consumes, and what each consumer works on since when."`
	Partitions queuePartitionsCommand `cmd:"" help:"Show the node that dispatches each partition."`

	Produce    queueProduceCommand    `cmd:"" help:"Produce messages, now or for later."`
	Cancel     queueCancelCommand     `cmd:"" help:"Cancel messages that no handler has begun."`
	Reschedule queueRescheduleCommand `cmd:"" help:"Change the due time of scheduled messages."`
	Consume    queueConsumeCommand    `cmd:"" help:"Consume messages: print each, or run a command for it, and acknowledge it."`

	Retry queueRetryCommand `cmd:"" help:"Retry failed messages now instead of after their backoff."`
	DLQ   queueDLQCommand   `cmd:"" name:"dlq" help:"List, replay or purge dead letters."`
	Trim  queueTrimCommand  `cmd:"" help:"Remove a topic's oldest messages."`
	Bench queueBenchCommand `cmd:"" passthrough:"" help:"Benchmark queues: short for 'parley bench queue'."`
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
	maxQueueID      = 128
	maxBatchIDs     = 1000
	maxReplayed     = 10_000
	maxNackReason   = 1024
	maxTopics       = 16
	maxConcurrency  = 10_000
)

// topicArg is the argument of a command for one topic.
type topicArg struct {
	Topic string `arg:"" help:"The topic."`
}

func (a topicArg) check() error { return checkName("<topic>", a.Topic) }

// withAdmin calls work with an Admin. Each of its calls has the deadline of --timeout.
func (s *session) withAdmin(work func(ctx context.Context, admin *queue.Admin) error) error {
	return s.with(func(ctx context.Context, client *parley.Client) error {
		return work(ctx, queue.NewAdmin(client))
	})
}

// groupsOf returns group, or all groups of the topic if group is empty.
func groupsOf(ctx context.Context, admin *queue.Admin, topic, group string) ([]string, error) {
	if group != "" {
		return []string{group}, nil
	}
	t, err := admin.Topic(ctx, topic)
	return t.GetGroups(), err
}

// explainQueue is like explain, and also has hints for the common failures of queues.
func explainQueue(what string, err error) error {
	var hint string
	switch {
	case errors.Is(err, parley.ErrTopicNotFound):
		hint = "'parley queue create' creates topics"
	case errors.Is(err, parley.ErrGroupNotFound):
		hint = "'parley queue group create' creates groups"
	case errors.Is(err, parley.ErrMessageNotFound):
		hint = "it is settled or cancelled, or there was none"
	case errors.Is(err, parley.ErrTopicPaused):
		hint = "'parley queue resume' resumes it"
	default:
		return explain(what, err)
	}
	return fmt.Errorf("%s: %w (%s)", what, err, hint)
}
