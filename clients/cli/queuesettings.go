package cli

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	parleyv1 "github.com/parleyhq/parley/gen/go/parley/v1"
	queue "github.com/parleyhq/parley/sdk/go/queue"
)

// topicSettings are the flags of the settings of a topic that can be changed.
type topicSettings struct {
	Partitions *int32 `help:"Number of partitions, 1 to 256. It can only grow, and not with the partitioner hash. Default: 8." placeholder:"N"`

	Retention           durationFlag `help:"How long messages are kept after every group has settled them, up to 366d. Default: 0, they are removed at once." placeholder:"DURATION"`
	RetentionMessages   *int64       `help:"Number of messages per partition above which settled ones are removed before --retention; 0 means unlimited." placeholder:"N"`
	DeadLetterRetention durationFlag `help:"How long dead letters are kept, up to 366d. Default: 0, forever." placeholder:"DURATION"`
	MaxDeadLetters      *int64       `help:"Maximum number of dead letters per partition; beyond it, the oldest are removed. Default: 0, which means 100000." placeholder:"N"`
	MaxLength           *int64       `help:"Maximum number of unsettled and scheduled messages per partition; 0 means unlimited. Beyond it, new messages are refused." placeholder:"N"`
	DropOldest          *bool        `help:"Beyond --max-length, drop the oldest messages, settled or not, instead of refusing new ones." negatable:""`
	IdempotencyWindow   durationFlag `help:"How long repeats of a message are recognised, 1s to 7d. Default: 10m." placeholder:"DURATION"`
}

func (c *topicSettings) check() error {
	return firstError(
		checkOptional("--partitions", c.Partitions, 1, maxPartitions),
		checkDurationFlag("--retention", c.Retention, 0, maxDelay),
		checkOptional("--retention-messages", c.RetentionMessages, 0, maxMessages),
		checkDurationFlag("--dead-letter-retention", c.DeadLetterRetention, 0, maxDelay),
		checkOptional("--max-dead-letters", c.MaxDeadLetters, 0, maxMessages),
		checkOptional("--max-length", c.MaxLength, 0, maxMessages),
		checkDurationFlag("--idempotency-window", c.IdempotencyWindow, time.Second, week),
	)
}

// apply sets the settings whose flags are given.
func (c *topicSettings) apply(t *queue.Topic) {
	if c.Partitions != nil {
		t.Partitions = *c.Partitions
	}
	if c.MaxLength != nil {
		t.MaxMessagesPerPartition = *c.MaxLength
	}
	if c.DropOldest != nil {
		t.DropOldest = *c.DropOldest
	}
	if c.IdempotencyWindow.set {
		t.IdempotencyWindow = durationpb.New(c.IdempotencyWindow.d)
	}
	if c.changesRetention() {
		c.applyRetention(t)
	}
}

func (c *topicSettings) applyRetention(t *queue.Topic) {
	if t.GetRetention() == nil {
		t.Retention = &queue.Retention{}
	}
	if c.Retention.set {
		t.Retention.MaxAge = durationpb.New(c.Retention.d)
	}
	if c.RetentionMessages != nil {
		t.Retention.MaxMessages = *c.RetentionMessages
	}
	if c.DeadLetterRetention.set {
		t.Retention.DeadLetterMaxAge = durationpb.New(c.DeadLetterRetention.d)
	}
	if c.MaxDeadLetters != nil {
		t.Retention.MaxDeadLetters = *c.MaxDeadLetters
	}
}

func (c *topicSettings) changesRetention() bool {
	return c.Retention.set || c.RetentionMessages != nil || c.DeadLetterRetention.set || c.MaxDeadLetters != nil
}

// givenField is a name, and whether its flag is given.
type givenField struct {
	name  string
	given bool
}

// givenFields returns the names whose flags are given.
func givenFields(fields ...givenField) []string {
	var names []string
	for _, one := range fields {
		if one.given {
			names = append(names, one.name)
		}
	}
	return names
}

// fields returns the names of the settings that apply sets, for UpdateTopic.
func (c *topicSettings) fields() []string {
	return givenFields(
		givenField{"partitions", c.Partitions != nil},
		givenField{"retention", c.changesRetention()},
		givenField{"max_messages_per_partition", c.MaxLength != nil},
		givenField{"drop_oldest", c.DropOldest != nil},
		givenField{"idempotency_window", c.IdempotencyWindow.set},
	)
}

func partitionerOf(name string) parleyv1.Partitioner {
	enum := "PARTITIONER_" + strings.ToUpper(strings.ReplaceAll(name, "-", "_"))
	return parleyv1.Partitioner(parleyv1.Partitioner_value[enum])
}

func partitionerName(t *queue.Topic) string {
	return strings.ReplaceAll(lowerName(t.GetPartitioner().String(), "PARTITIONER_"), "_", "-")
}

// topicJSON is the JSON form of a topic. Durations are in milliseconds.
type topicJSON struct {
	Topic                 string   `json:"topic"`
	Partitions            int32    `json:"partitions"`
	Partitioner           string   `json:"partitioner"`
	Groups                []string `json:"groups"`
	RetentionMS           int64    `json:"retention_ms"`
	RetentionMessages     int64    `json:"retention_messages"`
	DeadLetterRetentionMS int64    `json:"dead_letter_retention_ms"`
	MaxDeadLetters        int64    `json:"max_dead_letters"`
	MaxLength             int64    `json:"max_length"`
	DropOldest            bool     `json:"drop_oldest"`
	IdempotencyWindowMS   int64    `json:"idempotency_window_ms"`
	Paused                bool     `json:"paused"`
	CreateTime            string   `json:"create_time"`
}

func millis(d *durationpb.Duration) int64 { return d.AsDuration().Milliseconds() }

func topicToJSON(t *queue.Topic) topicJSON {
	return topicJSON{
		Topic: t.GetName(), Partitions: t.GetPartitions(), Partitioner: partitionerName(t),
		Groups:      append([]string{}, t.GetGroups()...), // a list, not null
		RetentionMS: millis(t.GetRetention().GetMaxAge()), RetentionMessages: t.GetRetention().GetMaxMessages(),
		DeadLetterRetentionMS: millis(t.GetRetention().GetDeadLetterMaxAge()), MaxDeadLetters: t.GetRetention().GetMaxDeadLetters(),
		MaxLength: t.GetMaxMessagesPerPartition(), DropOldest: t.GetDropOldest(),
		IdempotencyWindowMS: millis(t.GetIdempotencyWindow()), Paused: t.GetPaused(),
		CreateTime: t.GetCreateTime().AsTime().Format(timeFormat),
	}
}

// orNone joins texts, or returns `none` if there are none.
func orNone(texts []string) string {
	if len(texts) == 0 {
		return "none"
	}
	return strings.Join(texts, ", ")
}

// unless returns text, or instead if zero is true.
func unless(zero bool, instead, text string) string {
	if zero {
		return instead
	}
	return text
}

// showTopic writes a topic's settings as JSON, or for humans one per line, named like their flags.
func showTopic(s *session, t *queue.Topic) error {
	var b strings.Builder
	number := func(n int64) string { return unless(n == 0, "unlimited", strconv.FormatInt(n, 10)) }
	dead := t.GetRetention().GetDeadLetterMaxAge().AsDuration()
	rows := newTable(&b, "  ", "groups", orNone(t.GetGroups()))
	rows.row("partitions", t.GetPartitions())
	rows.row("partitioner", partitionerName(t))
	rows.row("retention", formatDuration(t.GetRetention().GetMaxAge().AsDuration()))
	rows.row("retention-messages", number(t.GetRetention().GetMaxMessages()))
	rows.row("dead-letter-retention", unless(dead == 0, "forever", formatDuration(dead)))
	rows.row("max-dead-letters", t.GetRetention().GetMaxDeadLetters())
	rows.row("max-length", number(t.GetMaxMessagesPerPartition()))
	rows.row("drop-oldest", t.GetDropOldest())
	rows.row("idempotency-window", formatDuration(t.GetIdempotencyWindow().AsDuration()))
	rows.row("paused", unless(t.GetPaused(), "yes", "no"))
	rows.row("created", t.GetCreateTime().AsTime().Local().Format(time.DateTime))
	if err := rows.flush(); err != nil {
		return fmt.Errorf("write: %w", err)
	}
	return s.printer().print(topicToJSON(t), t.GetName()+"\n"+strings.TrimSuffix(b.String(), "\n"))
}
