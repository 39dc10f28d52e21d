package redislog

import (
	"context"
	"fmt"
	"hash/fnv"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/parleyhq/parley/server/internal/queue/qlog"
)

var (
	cancelScript = newScript("cancel", 4, "lib_input")
	dueScript    = newScript("due", 6, "lib_input")
)

const (
	// scheduledBuckets is how many sets hold the partitions that may have scheduled messages.
	scheduledBuckets = 16
	// registeredFor is how long a partition counts as registered after this node registered it. It is
	// less than ForgetScheduled waits for.
	registeredFor = time.Minute
	// maxDue bounds the messages that one Due moves.
	maxDue = 500
)

// The codes that cancel.lua answers for a message.
const (
	codeChanged = iota
	codeMoved
	codeNotScheduled
	codeChangeTooFar
)

// input is what a Store remembers for producers.
type input struct {
	memory memoryGuard

	mu sync.Mutex
	// registered is when this node registered partitions that have scheduled messages, by member.
	registered map[string]time.Time
}

// register makes sure that the keepers look at the partition, before a message is scheduled there.
func (s *Store) register(ctx context.Context, ref qlog.Ref) error {
	member, now := wakes(ref), time.Now()
	s.input.mu.Lock()
	at, known := s.input.registered[member]
	s.input.mu.Unlock()
	if known && now.Sub(at) < registeredFor {
		return nil
	}
	// A full Redis refuses the put itself. So this refusal is told as such too.
	if err := s.client.SAdd(ctx, s.keys.scheduled(bucketOf(member)), member).Err(); err != nil {
		return fmt.Errorf("register a partition with scheduled messages: %w", readError(err))
	}
	s.input.mu.Lock()
	defer s.input.mu.Unlock()
	if s.input.registered == nil || len(s.input.registered) > 100_000 {
		s.input.registered = map[string]time.Time{}
	}
	s.input.registered[member] = now
	return nil
}

// bucketOf returns the set of a partition, by its member there.
func bucketOf(member string) int {
	h := fnv.New32a()
	_, _ = h.Write([]byte(member))
	return int(h.Sum32() % scheduledBuckets)
}

// Scheduled implements qlog.InputStore, in one round trip.
func (s *Store) Scheduled(ctx context.Context) ([]qlog.Ref, error) {
	replies := make([]*redis.StringSliceCmd, scheduledBuckets)
	if _, err := s.client.Pipelined(ctx, func(p redis.Pipeliner) error {
		for b := range replies {
			replies[b] = p.SMembers(ctx, s.keys.scheduled(b))
		}
		return nil
	}); err != nil {
		return nil, fmt.Errorf("partitions with scheduled messages: %w", readError(err))
	}
	var refs []qlog.Ref
	for _, r := range replies {
		for _, member := range r.Val() {
			if topic, partition, ok := parseWakeup(member); ok {
				refs = append(refs, qlog.Ref{Topic: topic, Partition: partition})
			}
		}
	}
	return refs, nil
}

// ForgetScheduled implements qlog.InputStore. It looks again after the removal: a message that was
// put before that, by a node that relied on the registration, is seen.
func (s *Store) ForgetScheduled(ctx context.Context, ref qlog.Ref) error {
	member := wakes(ref)
	set := s.keys.scheduled(bucketOf(member))
	if err := s.client.SRem(ctx, set, member).Err(); err != nil {
		return fmt.Errorf("forget partition %s: %w", member, writeError(err))
	}
	n, err := s.client.ZCard(ctx, s.keys.delayed(ref)).Result()
	if err == nil && n > 0 {
		err = s.client.SAdd(ctx, set, member).Err()
	}
	if err != nil {
		return fmt.Errorf("look whether partition %s can be forgotten: %w", member, writeError(err))
	}
	return nil
}

// Cancel implements qlog.InputStore.
func (s *Store) Cancel(ctx context.Context, ref qlog.Ref, messageIDs []string) ([]qlog.Cancelled, error) {
	args := make([]any, 0, 2*len(messageIDs))
	for _, id := range messageIDs {
		args = append(args, id, "")
	}
	return s.change(ctx, "cancel", ref, args)
}

// Reschedule implements qlog.InputStore.
func (s *Store) Reschedule(ctx context.Context, ref qlog.Ref, changes []qlog.Reschedule) ([]qlog.Cancelled, error) {
	args := make([]any, 0, 2*len(changes))
	for _, c := range changes {
		args = append(args, c.MessageID, when(c.Delay, c.At))
	}
	return s.change(ctx, "reschedule", ref, args)
}

func (s *Store) change(ctx context.Context, what string, ref qlog.Ref, items []any) ([]qlog.Cancelled, error) {
	if len(items) == 0 {
		return nil, nil
	}
	if len(items)/2 > qlog.MaxBatch {
		return nil, fmt.Errorf("%s %d messages: more than %d", what, len(items)/2, qlog.MaxBatch)
	}
	keys := []string{s.keys.meta(ref), s.keys.delayed(ref), s.keys.delayedData(ref), s.keys.moved(ref)}
	args := append([]any{ref.UID, s.keys.wakeups(), wakes(ref), qlog.MaxDelay.Milliseconds()}, items...)
	reply, err := s.write(ctx, cancelScript, keys, args...)
	if err != nil {
		return nil, fmt.Errorf("%s messages of partition %d of %s: %w", what, ref.Partition, ref.Topic, err)
	}
	list, ok := reply.([]any)
	if !ok || len(list) != len(items)/2 {
		return nil, fmt.Errorf("%s: a script answered %T for %d messages", what, reply, len(items)/2)
	}
	results := make([]qlog.Cancelled, len(list))
	for i, item := range list {
		if results[i], err = decodeChange(item); err != nil {
			return nil, fmt.Errorf("%s: %w", what, err)
		}
	}
	return results, nil
}

func decodeChange(item any) (qlog.Cancelled, error) {
	pair, ok := item.([]any)
	if !ok || len(pair) != 2 {
		return qlog.Cancelled{}, fmt.Errorf("a script answered %T for a message", item)
	}
	numbers, err := numbersOf(pair[1:])
	if err != nil {
		return qlog.Cancelled{}, err
	}
	switch pair[0] {
	case int64(codeChanged):
		return qlog.Cancelled{Due: due(numbers[0])}, nil
	case int64(codeMoved):
		return qlog.Cancelled{Moved: qlog.ID(numbers[0])}, nil
	case int64(codeNotScheduled):
		return qlog.Cancelled{Err: qlog.ErrNotScheduled}, nil
	case int64(codeChangeTooFar):
		return qlog.Cancelled{Err: qlog.ErrTooFar}, nil
	default:
		return qlog.Cancelled{}, fmt.Errorf("a script answered %v for a message", item)
	}
}

// Due implements qlog.Store. A pause and a full partition do not matter.
func (s *Store) Due(ctx context.Context, ref qlog.Ref) (moved int, next time.Duration, err error) {
	keys := []string{
		s.keys.main(ref), s.keys.meta(ref), s.keys.sizes(ref), s.keys.delayed(ref), s.keys.delayedData(ref), s.keys.moved(ref),
	}
	reply, err := s.write(ctx, dueScript, keys, ref.UID, qlog.MaxCallBytes, maxDue)
	if err != nil {
		return 0, 0, fmt.Errorf("move due messages of partition %d of %s: %w", ref.Partition, ref.Topic, err)
	}
	pair, ok := reply.([]any)
	if !ok || len(pair) != 2 {
		return 0, 0, fmt.Errorf("due: a script answered %T", reply)
	}
	n, ok1 := pair[0].(int64)
	ms, ok2 := pair[1].(int64)
	if !ok1 || !ok2 {
		return 0, 0, fmt.Errorf("due: a script answered %v", pair)
	}
	if ms < 0 {
		return int(n), qlog.Never, nil
	}
	return int(n), time.Duration(ms) * time.Millisecond, nil
}

// parseWakeup parses what wakes returns.
func parseWakeup(payload string) (topic string, partition int, ok bool) {
	topic, number, ok := strings.Cut(payload, ":")
	partition, err := strconv.Atoi(number)
	return topic, partition, ok && err == nil && topic != ""
}
