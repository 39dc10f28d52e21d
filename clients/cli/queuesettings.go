package cli

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	parleyv1 "github.com/parleyhq/parley/gen/go/parley/v1"
	"github.com/parleyhq/parley/sdk/go/queue"
)

// topicSettings are the flags of the settings that can be changed.
type topicSettings struct {
	Partitions *int32 `help:"Number of partitions, 1 to 256. It can only grow, and not with the partitioner hash. Default: 8." placeholder:"N"`

	Retention           durationFlag `help:"How long messages are kept after every group has settled them, up to 366d. Default: 0, they are removed at once." placeholder:"DURATION"`
	RetentionMessages   *int64       `help:"Maximum number of settled messages kept per partition; 0 means unlimited." placeholder:"N"`
	DeadLetterRetention durationFlag `help:"How long dead letters are kept, up to 366d. Default: 0, forever." placeholder:"DURATION"`
	MaxLength           *int64       `help:"Maximum number of messages per partition; 0 means unlimited. Beyond it, new messages are refused." placeholder:"N"`
	DropOldest          *bool        `help:"Beyond --max-length, drop the oldest messages, settled or not, instead of refusing new ones." negatable:""`

	MaxAttempts  *int32       `help:"Number of attempts before a message becomes a dead letter, 1 to 1000. Default: 16." placeholder:"N"`
	MinBackoff   durationFlag `help:"Backoff before the second attempt, 1ms to 24h. It doubles with each attempt; the actual wait is random, up to the backoff. Default: 1s." placeholder:"DURATION"`
	MaxBackoff   durationFlag `help:"Maximum backoff, 1ms to 24h. Default: 10m." placeholder:"DURATION"`
	NonRetryable *[]string    `help:"Failure codes that make a message a dead letter at once, up to 32, comma-separated." placeholder:"CODE,..."`

	IdempotencyWindow durationFlag `help:"How long idempotency keys are kept, 1s to 7d. Default: 10m." placeholder:"DURATION"`
}

func (c *topicSettings) check() error {
	var codes []string
	if c.NonRetryable != nil {
		codes = *c.NonRetryable
	}
	err := firstError(
		checkOptional("--partitions", c.Partitions, 1, maxPartitions),
		checkDurationFlag("--retention", c.Retention, 0, maxDelay),
		checkOptional("--retention-messages", c.RetentionMessages, 0, maxMessages),
		checkDurationFlag("--dead-letter-retention", c.DeadLetterRetention, 0, maxDelay),
		checkOptional("--max-length", c.MaxLength, 0, maxMessages),
		checkOptional("--max-attempts", c.MaxAttempts, 1, maxAttempts),
		checkDurationFlag("--min-backoff", c.MinBackoff, time.Millisecond, day),
		checkDurationFlag("--max-backoff", c.MaxBackoff, time.Millisecond, day),
		checkCodes("--non-retryable", codes),
		checkDurationFlag("--idempotency-window", c.IdempotencyWindow, time.Second, 7*day),
	)
	if err == nil && c.MinBackoff.set && c.MaxBackoff.set && c.MaxBackoff.d < c.MinBackoff.d {
		err = usagef("--max-backoff %s: must be at least --min-backoff, %s", formatDuration(c.MaxBackoff.d), formatDuration(c.MinBackoff.d))
	}
	return err
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
	if c.changesRetry() {
		c.applyRetry(t)
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
}

func (c *topicSettings) applyRetry(t *queue.Topic) {
	if t.GetRetry() == nil {
		t.Retry = &queue.RetryPolicy{}
	}
	if c.MaxAttempts != nil {
		t.Retry.MaxAttempts = c.MaxAttempts
	}
	if c.MinBackoff.set {
		t.Retry.MinBackoff = durationpb.New(c.MinBackoff.d)
	}
	if c.MaxBackoff.set {
		t.Retry.MaxBackoff = durationpb.New(c.MaxBackoff.d)
	}
	if c.NonRetryable != nil {
		t.Retry.NonRetryableCodes = *c.NonRetryable
	}
}

func (c *topicSettings) changesRetention() bool {
	return c.Retention.set || c.RetentionMessages != nil || c.DeadLetterRetention.set
}

func (c *topicSettings) changesRetry() bool {
	return c.MaxAttempts != nil || c.MinBackoff.set || c.MaxBackoff.set || c.NonRetryable != nil
}

// fields returns the names of the settings that apply sets, for UpdateTopic.
func (c *topicSettings) fields() []string {
	var fields []string
	for _, one := range []struct {
		name  string
		given bool
	}{
		{"partitions", c.Partitions != nil},
		{"retry", c.changesRetry()},
		{"retention", c.changesRetention()},
		{"max_messages_per_partition", c.MaxLength != nil},
		{"drop_oldest", c.DropOldest != nil},
		{"idempotency_window", c.IdempotencyWindow.set},
	} {
		if one.given {
			fields = append(fields, one.name)
		}
	}
	return fields
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
	StrictOrder           bool     `json:"strict_order"`
	Groups                []string `json:"groups"`
	RetentionMS           int64    `json:"retention_ms"`
	RetentionMessages     int64    `json:"retention_messages"`
	DeadLetterRetentionMS int64    `json:"dead_letter_retention_ms"`
	MaxLength             int64    `json:"max_length"`
	DropOldest            bool     `json:"drop_oldest"`
	MaxAttempts           int32    `json:"max_attempts"`
	MinBackoffMS          int64    `json:"min_backoff_ms"`
	MaxBackoffMS          int64    `json:"max_backoff_ms"`
	NonRetryable          []string `json:"non_retryable"`
	IdempotencyWindowMS   int64    `json:"idempotency_window_ms"`
	ProducePaused         bool     `json:"produce_paused"`
	ConsumePaused         bool     `json:"consume_paused"`
	CreateTime            string   `json:"create_time"`
}

func topicToJSON(t *queue.Topic) topicJSON {
	millis := func(d *durationpb.Duration) int64 { return d.AsDuration().Milliseconds() }
	return topicJSON{
		Topic: t.GetName(), Partitions: t.GetPartitions(), Partitioner: partitionerName(t), StrictOrder: t.GetStrictOrder(),
		Groups:      append([]string{}, t.GetGroups()...), // a list, not null
		RetentionMS: millis(t.GetRetention().GetMaxAge()), RetentionMessages: t.GetRetention().GetMaxMessages(),
		DeadLetterRetentionMS: millis(t.GetRetention().GetDeadLetterMaxAge()),
		MaxLength:             t.GetMaxMessagesPerPartition(), DropOldest: t.GetDropOldest(),
		MaxAttempts: t.GetRetry().GetMaxAttempts(), MinBackoffMS: millis(t.GetRetry().GetMinBackoff()),
		MaxBackoffMS: millis(t.GetRetry().GetMaxBackoff()), NonRetryable: append([]string{}, t.GetRetry().GetNonRetryableCodes()...),
		IdempotencyWindowMS: millis(t.GetIdempotencyWindow()), ProducePaused: t.GetProducePaused(), ConsumePaused: t.GetConsumePaused(),
		CreateTime: t.GetCreateTime().AsTime().Format(timeFormat),
	}
}

// pausedText returns the paused operations of a topic for humans. It is empty if none is paused.
func pausedText(t *queue.Topic) string {
	switch {
	case t.GetProducePaused() && t.GetConsumePaused():
		return "producing and consuming"
	case t.GetProducePaused():
		return "producing"
	case t.GetConsumePaused():
		return "consuming"
	default:
		return ""
	}
}

// showTopic writes a topic's settings as JSON, or for humans one per line, named like their flags.
func showTopic(s *session, t *queue.Topic) error {
	var b strings.Builder
	orNone := func(texts []string) string {
		if len(texts) == 0 {
			return "none"
		}
		return strings.Join(texts, ", ")
	}
	unless := func(zero bool, instead, text string) string {
		if zero {
			return instead
		}
		return text
	}
	number := func(n int64) string { return unless(n == 0, "unlimited", strconv.FormatInt(n, 10)) }
	dead := t.GetRetention().GetDeadLetterMaxAge().AsDuration()
	rows := newTable(&b, "  ", "groups", orNone(t.GetGroups()))
	rows.row("partitions", t.GetPartitions())
	rows.row("partitioner", partitionerName(t))
	rows.row("strict-order", t.GetStrictOrder())
	rows.row("retention", formatDuration(t.GetRetention().GetMaxAge().AsDuration()))
	rows.row("retention-messages", number(t.GetRetention().GetMaxMessages()))
	rows.row("dead-letter-retention", unless(dead == 0, "forever", formatDuration(dead)))
	rows.row("max-length", number(t.GetMaxMessagesPerPartition()))
	rows.row("drop-oldest", t.GetDropOldest())
	rows.row("max-attempts", t.GetRetry().GetMaxAttempts())
	rows.row("min-backoff", formatDuration(t.GetRetry().GetMinBackoff().AsDuration()))
	rows.row("max-backoff", formatDuration(t.GetRetry().GetMaxBackoff().AsDuration()))
	rows.row("non-retryable", orNone(t.GetRetry().GetNonRetryableCodes()))
	rows.row("idempotency-window", formatDuration(t.GetIdempotencyWindow().AsDuration()))
	rows.row("paused", unless(pausedText(t) == "", "no", pausedText(t)))
	rows.row("created", t.GetCreateTime().AsTime().Local().Format(time.DateTime))
	if err := rows.flush(); err != nil {
		return fmt.Errorf("write: %w", err)
	}
	return s.printer().print(topicToJSON(t), t.GetName()+"\n"+strings.TrimSuffix(b.String(), "\n"))
}
