package redisqueue

import (
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/parleyhq/parley/server/internal/fault"
	"github.com/parleyhq/parley/server/internal/queue"
)

var (
	inputProduce    = newScript("input_produce", -1, "lib_group", "lib_input")
	inputSchedule   = newScript("input_schedule", -1, "lib_group", "lib_input")
	inputCancel     = newScript("input_cancel", 3)
	inputReschedule = newScript("input_reschedule", 2)
)

// Produce implements queue.InputStore.
func (s *Store) Produce(ctx context.Context, t *queue.Topic, partition int, drafts []queue.Draft) ([]queue.Taken, error) {
	taken, err := s.take(ctx, t, partition, drafts, func(t *queue.Topic, orphans bool) (any, error) {
		ref := t.Ref(partition)
		keys := []string{s.keys.main(ref), s.keys.meta(ref), s.keys.delayed(ref)}
		plain := !t.StrictOrder && !slices.ContainsFunc(drafts, func(d queue.Draft) bool { return d.IdempotencyKey != "" })
		args := append(make([]any, 0, 10+len(t.Groups)+3*len(drafts)), s.bound(t, partition, orphans)...)
		keys, args = s.groupArgs(ref, t, keys, args, flag(plain))
		for i := range drafts {
			d := &drafts[i]
			record, digest, err := s.encode(ref, d, &keys)
			if err != nil {
				return nil, err
			}
			if !plain {
				args = append(args, digest, orderKey(t, d))
			}
			args = append(args, record)
		}
		return s.write(ctx, inputProduce, keys, args...)
	})
	if err != nil {
		return nil, fmt.Errorf("produce to partition %d of %s: %w", partition, t.Name, err)
	}
	return taken, nil
}

// Schedule implements queue.InputStore.
func (s *Store) Schedule(ctx context.Context, t *queue.Topic, partition int, drafts []queue.Draft) ([]queue.Taken, error) {
	taken, err := s.take(ctx, t, partition, drafts, func(t *queue.Topic, orphans bool) (any, error) {
		ref := t.Ref(partition)
		keys := []string{s.keys.main(ref), s.keys.meta(ref), s.keys.delayed(ref), s.keys.delayedData(ref)}
		args := append(make([]any, 0, 12+len(t.Groups)+5*len(drafts)), s.bound(t, partition, orphans)...)
		args = append(args, s.keys.wakeups(), wakes(ref), queue.MaxDelay.Milliseconds())
		keys, args = s.groupArgs(ref, t, keys, args)
		for i := range drafts {
			d := &drafts[i]
			record, digest, err := s.encode(ref, d, &keys)
			if err != nil {
				return nil, err
			}
			delay, at := when(d.Delay, d.At)
			args = append(args, digest, delay, at, orderKey(t, d), record)
		}
		return s.write(ctx, inputSchedule, keys, args...)
	})
	if err != nil {
		return nil, fmt.Errorf("schedule in partition %d of %s: %w", partition, t.Name, err)
	}
	return taken, nil
}

// take calls a script that takes drafts. One that met a group that t does not know is called again with the topic as it is
// now: messages that are removed for new ones must be counted for every group.
func (s *Store) take(
	ctx context.Context, t *queue.Topic, partition int, drafts []queue.Draft, call func(t *queue.Topic, orphans bool) (any, error),
) ([]queue.Taken, error) {
	if len(drafts) == 0 {
		return nil, nil
	}
	reply, err := call(t, false)
	if redis.HasErrorPrefix(err, "GROUPS") {
		now, topicErr := s.Topic(ctx, t.Name)
		if topicErr != nil {
			return nil, topicErr
		}
		if now.UID != t.UID {
			return nil, queue.ErrNoTopic
		}
		reply, err = call(now, true)
	}
	if err != nil {
		return nil, err
	}
	return decodeTaken(reply, partition, len(drafts))
}

// bound gives the arguments that produce and schedule have in common.
func (s *Store) bound(t *queue.Topic, partition int, orphans bool) []any {
	return []any{
		t.UID, partition, t.IdempotencyWindow.Milliseconds(), t.MaxMessages, flag(t.DropOldest),
		t.Retention.MaxAge.Milliseconds(), t.Retention.MaxMessages, flag(orphans),
	}
}

// groupArgs adds the topic's groups to a call: their number and names, with what goes between the two, and the keys that change when
// they lose messages.
func (s *Store) groupArgs(ref queue.Ref, t *queue.Topic, keys []string, args []any, between ...any) ([]string, []any) {
	args = append(append(args, len(t.Groups)), between...)
	for _, g := range t.Groups {
		keys = append(keys, s.keys.retry(ref, g.Name), s.keys.unsettled(ref, g.Name), s.keys.parked(ref, g.Name),
			s.keys.parkedData(ref, g.Name), s.keys.stats(ref, g.Name))
		args = append(args, g.Name)
	}
	return keys, args
}

// encode gives what scripts take of a draft, and adds the key of its idempotency key; without one the digest is empty.
func (s *Store) encode(ref queue.Ref, d *queue.Draft, keys *[]string) (record []byte, digest string, err error) {
	if record, err = encodeRecord(&d.Message); err != nil {
		return nil, "", err
	}
	if d.IdempotencyKey != "" {
		*keys, digest = append(*keys, s.keys.idempotency(ref, d.IdempotencyKey)), digestOf(&d.Message)
	}
	return record, digest, nil
}

// wakes is what is published of a partition whose first message has become an earlier one.
func wakes(ref queue.Ref) string { return ref.Topic + ":" + strconv.Itoa(ref.Partition) }

// orderKey is what an entry's field k holds.
func orderKey(t *queue.Topic, d *queue.Draft) string {
	if t.StrictOrder {
		return d.Key
	}
	return ""
}

// when gives a delay, or a time, as scripts take it: what is not given is empty.
func when(delay time.Duration, at time.Time) (delayMS, atMS string) {
	if at.IsZero() {
		return strconv.FormatInt(ceilMS(delay), 10), ""
	}
	return "", strconv.FormatInt(ceilMilli(at), 10)
}

// ceilMS rounds up to milliseconds; what is negative is 0.
func ceilMS(d time.Duration) int64 {
	if d <= 0 {
		return 0
	}
	ms := d.Milliseconds()
	if d > time.Duration(ms)*time.Millisecond {
		ms++
	}
	return ms
}

// ceilMilli rounds up to milliseconds since 1970.
func ceilMilli(at time.Time) int64 {
	ms := at.UnixMilli()
	if at.After(time.UnixMilli(ms)) {
		ms++
	}
	return ms
}

// digestOf tells payloads apart under one idempotency key: half of a SHA-256 over key, payload and headers, with their lengths.
// Trace context does not count: a repeated call has a trace of its own.
func digestOf(m *queue.Message) string {
	h := sha256.New()
	add := func(b []byte) {
		_, _ = h.Write(binary.BigEndian.AppendUint32(nil, uint32(len(b)))) //nolint:gosec // far below 4 GiB
		_, _ = h.Write(b)
	}
	add([]byte(m.Key))
	add(m.Payload)
	for _, name := range slices.Sorted(maps.Keys(m.Headers)) {
		if name == "traceparent" || name == "tracestate" {
			continue
		}
		add([]byte(name))
		add([]byte(m.Headers[name]))
	}
	return base64.RawURLEncoding.EncodeToString(h.Sum(nil)[:16])
}

// errTooFar is of a time that lies further ahead than it may, by Redis' clock.
var errTooFar = fault.Invalid("due_time", int64(queue.MaxDelay/time.Second), "a message can be due up to 366 days ahead")

func decodeTaken(reply any, partition, n int) ([]queue.Taken, error) {
	results, ok := reply.([]any)
	if !ok || len(results) != n {
		return nil, fmt.Errorf("a script answered %T for %d messages", reply, n)
	}
	taken := make([]queue.Taken, n)
	prefix := strconv.Itoa(partition) + "-"
	for i, r := range results {
		if id, ok := r.(string); ok {
			taken[i].MessageID = prefix + id
			continue
		}
		if err := decodeTakenOne(r, &taken[i]); err != nil {
			return nil, err
		}
	}
	return taken, nil
}

func decodeTakenOne(reply any, taken *queue.Taken) error {
	parts, ok := reply.([]any)
	if !ok || len(parts) == 0 {
		return fmt.Errorf("a script answered %T for a message", reply)
	}
	word, _ := parts[0].(string)
	switch word {
	case "FULL":
		taken.Err = queue.ErrFull
	case "KEYREUSED":
		taken.Err = queue.ErrKeyReused
	case "TOOFAR":
		taken.Err = errTooFar
	default:
		taken.MessageID = word
		taken.Duplicate = len(parts) > 1 && parts[1] == int64(1)
		if len(parts) > 2 {
			text, _ := parts[2].(string)
			due, err := strconv.ParseInt(text, 10, 64)
			if err != nil {
				return fmt.Errorf("a script answered %q for a time", text)
			}
			if due > 0 {
				taken.Due = time.UnixMilli(due)
			}
		}
	}
	return nil
}

// Cancel implements queue.InputStore. ErrNoTopic.
func (s *Store) Cancel(ctx context.Context, ref queue.Ref, messageID string) error {
	keys := []string{s.keys.meta(ref), s.keys.delayed(ref), s.keys.delayedData(ref)}
	if _, err := s.write(ctx, inputCancel, keys, ref.UID, messageID); err != nil {
		return fmt.Errorf("cancel %s of %s: %w", messageID, ref.Topic, err)
	}
	return nil
}

// Reschedule implements queue.InputStore. ErrNoTopic, or a fault of Kind InvalidArgument if the time is too far ahead.
func (s *Store) Reschedule(
	ctx context.Context, ref queue.Ref, messageID string, delay time.Duration, at time.Time,
) (time.Time, error) {
	delayMS, atMS := when(delay, at)
	reply, err := s.write(ctx, inputReschedule, []string{s.keys.meta(ref), s.keys.delayed(ref)},
		ref.UID, messageID, delayMS, atMS, queue.MaxDelay.Milliseconds(), s.keys.wakeups(), wakes(ref))
	if redis.HasErrorPrefix(err, "TOOFAR") {
		err = errTooFar
	}
	if err != nil {
		return time.Time{}, fmt.Errorf("reschedule %s of %s: %w", messageID, ref.Topic, err)
	}
	text, _ := reply.(string)
	due, err := strconv.ParseInt(text, 10, 64)
	if err != nil {
		return time.Time{}, errors.New("reschedule: a script answered no time")
	}
	return time.UnixMilli(due), nil
}
