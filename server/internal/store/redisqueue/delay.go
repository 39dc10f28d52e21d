package redisqueue

import (
	"context"
	"fmt"
	"time"

	"github.com/parleyhq/parley/server/internal/queue"
	"github.com/parleyhq/parley/server/internal/store/redisscript"
)

var (
	delayDue  = newScript("delay_due", 4)
	delayNext = newScript("delay_next", 1)
	delayTrim = newScript("delay_trim", 4, "lib_group", "lib_input")
)

// lineKeys gives the sorted set of a line, the hash of its items and the stream that they go to.
func (s *Store) lineKeys(line queue.Line) (set, data, stream string) {
	if line.Group == "" {
		return s.keys.delayed(line.Ref), s.keys.delayedData(line.Ref), s.keys.main(line.Ref)
	}
	return s.keys.retrying(line.Ref, line.Group), s.keys.retryingData(line.Ref, line.Group), s.keys.retry(line.Ref, line.Group)
}

// Due implements queue.DelayStore. ErrNoTopic, ErrNoGroup. A pause and a full partition are of no account.
func (s *Store) Due(ctx context.Context, line queue.Line, n int) (moved int, next time.Duration, err error) {
	set, data, stream := s.lineKeys(line)
	reply, err := s.write(ctx, delayDue, []string{s.keys.meta(line.Ref), set, data, stream}, line.UID, n, flag(line.Group == ""))
	if err != nil {
		return 0, 0, fmt.Errorf("move what is due in partition %d of %s: %w", line.Partition, line.Topic, err)
	}
	pair, err := integersOf(reply, 2)
	if err != nil {
		return 0, 0, fmt.Errorf("move what is due in partition %d of %s: %w", line.Partition, line.Topic, err)
	}
	return int(pair[0]), until(pair[1]), nil
}

// Next implements queue.DelayStore, in one round trip.
func (s *Store) Next(ctx context.Context, lines []queue.Line) ([]time.Duration, error) {
	if len(lines) == 0 {
		return nil, nil
	}
	calls := make([]redisscript.Call, len(lines))
	for i, line := range lines {
		set, _, _ := s.lineKeys(line)
		calls[i].Keys = []string{set}
	}
	next := make([]time.Duration, len(lines))
	for i, r := range delayNext.Run(ctx, s.client, calls) {
		ms, err := r.Int64()
		if err != nil {
			return nil, fmt.Errorf("ask what is due next: %w", readError(err))
		}
		next[i] = until(ms)
	}
	return next, nil
}

// until reads what scripts answer for a time until something: milliseconds, or -1 for never.
func until(ms int64) time.Duration {
	if ms < 0 {
		return queue.Never
	}
	return time.Duration(ms) * time.Millisecond
}

// integersOf reads a script's answer of n whole numbers.
func integersOf(reply any, n int) ([]int64, error) {
	list, ok := reply.([]any)
	if !ok || len(list) != n {
		return nil, fmt.Errorf("a script answered %T for %d numbers", reply, n)
	}
	numbers := make([]int64, n)
	for i, v := range list {
		if numbers[i], ok = v.(int64); !ok {
			return nil, fmt.Errorf("a script answered %T for a number", v)
		}
	}
	return numbers, nil
}

// Trim implements queue.DelayStore. ErrNoTopic. It removes nothing while a group of the topic is not yet in the partition, and
// nothing that a group of the partition needs which the topic does not know.
func (s *Store) Trim(ctx context.Context, t *queue.Topic, partition, n int) (removed int64, err error) {
	ref := t.Ref(partition)
	keys := []string{s.keys.main(ref), s.keys.meta(ref), s.keys.deadLetters(ref), s.keys.moving(ref)}
	args := []any{
		t.UID, n, t.Retention.MaxAge.Milliseconds(), t.Retention.MaxMessages, t.Retention.DeadLetterAge.Milliseconds(),
	}
	for _, g := range t.Groups {
		args = append(args, g.Name)
	}
	reply, err := s.write(ctx, delayTrim, keys, args...)
	if err != nil {
		return 0, fmt.Errorf("trim partition %d of %s: %w", partition, t.Name, err)
	}
	removed, ok := reply.(int64)
	if !ok {
		return 0, fmt.Errorf("trim partition %d of %s: a script answered %T", partition, t.Name, reply)
	}
	return removed, nil
}
