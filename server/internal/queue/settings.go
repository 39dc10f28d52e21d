package queue

import (
	"cmp"
	"slices"
	"time"

	"github.com/parleyhq/parley/server/internal/fault"
)

// The limits of settings. They are the schema's, which the domain does not import (TestLimitsAreTheSchemas).
const (
	maxAttempts      = 1000
	maxBackoff       = 24 * time.Hour
	maxNonRetryable  = 32
	minWindow        = time.Second
	maxWindow        = 7 * 24 * time.Hour
	defaultWindow    = 10 * time.Minute
	maxMessagesLimit = 1_000_000_000
)

// setDefaults replaces zero settings by their defaults.
func (t *Topic) setDefaults() {
	t.Partitions = cmp.Or(t.Partitions, DefaultPartitions)
	t.Partitioner = cmp.Or(t.Partitioner, ConsistentHash)
	t.IdempotencyWindow = cmp.Or(t.IdempotencyWindow, defaultWindow)
	d := DefaultRetry()
	r := &t.Retry
	r.MaxAttempts = cmp.Or(r.MaxAttempts, d.MaxAttempts)
	// One bound alone must not collide with the other's default.
	switch {
	case r.MinBackoff == 0 && r.MaxBackoff == 0:
		r.MinBackoff, r.MaxBackoff = d.MinBackoff, d.MaxBackoff
	case r.MinBackoff == 0:
		r.MinBackoff = min(d.MinBackoff, r.MaxBackoff)
	case r.MaxBackoff == 0:
		r.MaxBackoff = max(d.MaxBackoff, r.MinBackoff)
	}
}

// check refuses settings that break a rule. Their defaults are set.
func (t *Topic) check() error {
	if err := checkTopicName(t.Name); err != nil {
		return err
	}
	r := &t.Retry
	switch {
	case !validName(t.Name):
		return fault.Invalid("topic.name", 64, "topic.name: must be 1 to 64 of A-Z a-z 0-9 _ -")
	case t.Partitions < 1 || t.Partitions > MaxPartitions:
		return fault.Invalid("topic.partitions", MaxPartitions, "topic.partitions: must be from 1 to %d", MaxPartitions)
	case t.Partitioner > RoundRobin:
		return fault.Invalid("topic.partitioner", 0, "topic.partitioner: is none")
	case t.StrictOrder && t.Partitioner == RoundRobin:
		return fault.Invalid("topic.strict_order", 0, "topic.strict_order: messages of a key have no order where partitions take turns")
	case t.MaxMessages < 0 || t.MaxMessages > maxMessagesLimit:
		return fault.Invalid("topic.max_messages_per_partition", maxMessagesLimit,
			"topic.max_messages_per_partition: must be from 0 to %d", maxMessagesLimit)
	case t.IdempotencyWindow < minWindow || t.IdempotencyWindow > maxWindow:
		return fault.Invalid("topic.idempotency_window", int64(maxWindow/time.Second),
			"topic.idempotency_window: must be from 1 s to 7 days")
	case r.MaxAttempts < 1 || r.MaxAttempts > maxAttempts:
		return fault.Invalid("topic.retry.max_attempts", maxAttempts, "topic.retry.max_attempts: must be from 1 to %d", maxAttempts)
	case r.MinBackoff < time.Millisecond || r.MinBackoff > maxBackoff:
		return fault.Invalid("topic.retry.min_backoff", int64(maxBackoff/time.Second), "topic.retry.min_backoff: must be from 1 ms to 24 h")
	case r.MaxBackoff < time.Millisecond || r.MaxBackoff > maxBackoff:
		return fault.Invalid("topic.retry.max_backoff", int64(maxBackoff/time.Second), "topic.retry.max_backoff: must be from 1 ms to 24 h")
	case r.MaxBackoff < r.MinBackoff:
		return fault.Invalid("topic.retry.max_backoff", 0, "topic.retry.max_backoff: must not be less than min_backoff")
	case len(r.NonRetryable) > maxNonRetryable:
		return fault.Invalid("topic.retry.non_retryable_codes", maxNonRetryable,
			"topic.retry.non_retryable_codes: must be at most %d", maxNonRetryable)
	}
	return t.Retention.check()
}

func (r Retention) check() error {
	const days = int64(MaxDelay / time.Second)
	switch {
	case r.MaxAge < 0 || r.MaxAge > MaxDelay:
		return fault.Invalid("topic.retention.max_age", days, "topic.retention.max_age: must be from 0 to 366 days")
	case r.MaxMessages < 0 || r.MaxMessages > maxMessagesLimit:
		return fault.Invalid("topic.retention.max_messages", maxMessagesLimit,
			"topic.retention.max_messages: must be from 0 to %d", maxMessagesLimit)
	case r.DeadLetterAge < 0 || r.DeadLetterAge > MaxDelay:
		return fault.Invalid("topic.retention.dead_letter_max_age", days,
			"topic.retention.dead_letter_max_age: must be from 0 to 366 days")
	}
	return nil
}

// checkChange refuses settings that break a rule, or that those of before can't become.
func (t *Topic) checkChange(was *Topic) error {
	switch {
	case t.Partitioner != was.Partitioner:
		return fault.Invalid("topic.partitioner", 0, "topic.partitioner: can't be changed")
	case t.StrictOrder != was.StrictOrder:
		return fault.Invalid("topic.strict_order", 0, "topic.strict_order: can't be changed")
	case t.Partitions < was.Partitions:
		return fault.Invalid("topic.partitions", int64(was.Partitions), "topic.partitions: can't become fewer than the %d that there are", was.Partitions)
	case t.Partitions > was.Partitions && t.StrictOrder:
		return fault.Invalid("topic.partitions", int64(was.Partitions),
			"topic.partitions: can't grow in strict order, for keys would move past messages that are not settled")
	case t.Partitions > was.Partitions && t.Partitioner == Hash:
		return fault.Invalid("topic.partitions", int64(was.Partitions),
			"topic.partitions: can't grow with this partitioner, which would tear keys apart")
	}
	return t.check()
}

// sameAs reports whether the settings that a caller gives are the same.
func (t *Topic) sameAs(other *Topic) bool {
	return t.Name == other.Name && t.Partitions == other.Partitions && t.Partitioner == other.Partitioner &&
		t.StrictOrder == other.StrictOrder && t.Retention == other.Retention && t.MaxMessages == other.MaxMessages &&
		t.DropOldest == other.DropOldest && t.IdempotencyWindow == other.IdempotencyWindow &&
		t.Retry.MaxAttempts == other.Retry.MaxAttempts && t.Retry.MinBackoff == other.Retry.MinBackoff &&
		t.Retry.MaxBackoff == other.Retry.MaxBackoff && slices.Equal(t.Retry.NonRetryable, other.Retry.NonRetryable)
}
