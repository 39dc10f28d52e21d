package redisqueue

import (
	"errors"
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"time"

	"google.golang.org/protobuf/proto"

	clusterv1 "github.com/parleyhq/parley/internal/gen/parley/cluster/v1"
	"github.com/parleyhq/parley/server/internal/queue"
)

// deterministic makes equal messages equal bytes, whatever the order of a map.
var deterministic = proto.MarshalOptions{Deterministic: true}

// encodeRecord gives what field d holds.
func encodeRecord(m *queue.Message) ([]byte, error) {
	record := &clusterv1.QueueRecord{Key: m.Key, Payload: m.Payload, Headers: m.Headers, Traceparent: m.Traceparent}
	b, err := deterministic.Marshal(record)
	if err != nil {
		return nil, fmt.Errorf("encode a message: %w", err)
	}
	return b, nil
}

// decodeRecord reads what encodeRecord wrote.
func decodeRecord(d string) (queue.Message, error) {
	record := &clusterv1.QueueRecord{}
	if err := proto.Unmarshal([]byte(d), record); err != nil {
		return queue.Message{}, fmt.Errorf("decode a message: %w", err)
	}
	m := queue.Message{Key: record.GetKey(), Payload: record.GetPayload(), Headers: record.GetHeaders()}
	if parent := record.GetTraceparent(); parent != "" && m.Headers == nil {
		m.Headers = map[string]string{"traceparent": parent}
	}
	return m, nil
}

// fields are what an entry of a stream holds, names and values in turn: so few that a map would cost more than it spares.
type fields []any

// decodeFields reads an entry's fields as Redis answers them.
func decodeFields(reply any) (fields, error) {
	flat, ok := reply.([]any)
	if !ok || len(flat)%2 != 0 {
		return nil, fmt.Errorf("fields of an entry are a %T", reply)
	}
	for i := range flat {
		if _, ok := flat[i].(string); !ok {
			return nil, fmt.Errorf("field %d of an entry holds a %T", i/2, flat[i])
		}
	}
	return flat, nil
}

// get gives a field, and whether it is there.
func (f fields) get(name string) (string, bool) {
	for i := 0; i < len(f); i += 2 {
		if f[i] == name {
			text, _ := f[i+1].(string) // decodeFields has looked
			return text, true
		}
	}
	return "", false
}

// text gives a field; empty if it is absent.
func (f fields) text(name string) string {
	text, _ := f.get(name)
	return text
}

// number reads a field that is a whole number; 0 if it is absent.
func (f fields) number(name string) (int64, error) {
	text, ok := f.get(name)
	if !ok {
		return 0, nil
	}
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil {
		return 0, fmt.Errorf("field %s is %q", name, text)
	}
	return n, nil
}

// decodeEntry reads an entry of a partition's stream, or of a group's retries there, as XRANGE answers it: an id and fields.
// Its Attempt is one more than the attempts that it carries, as the first time it is delivered from there. One whose fields
// hold no message is no error but Unreadable, lest it hold up all that lie behind it.
func decodeEntry(partition int, place queue.Place, reply any) (queue.Entry, error) {
	pair, ok := reply.([]any)
	if !ok || len(pair) != 2 {
		return queue.Entry{}, fmt.Errorf("an entry is a %T", reply)
	}
	text, _ := pair[0].(string)
	id, err := queue.ParseEntryID(text)
	if err != nil {
		return queue.Entry{}, fmt.Errorf("decode an entry: %w", err)
	}
	all, err := decodeFields(pair[1])
	if err != nil {
		return queue.Entry{}, fmt.Errorf("entry %s: %w", id, err)
	}
	return all.entry(partition, place, id), nil
}

// messageID is what ids for good look like; lib_queue.lua has the same.
var messageID = regexp.MustCompile(`^[0-9]+-[0-9]{1,15}-[0-9]+d?$`)

func (f fields) entry(partition int, place queue.Place, id queue.EntryID) queue.Entry {
	e := queue.Entry{
		Message: queue.Message{Key: f.text("k")}, Place: place, ID: id, MessageID: queue.MessageID(partition, id), Attempt: 1,
	}
	e.Unreadable = f.readEntry(&e)
	return e
}

func (f fields) readEntry(e *queue.Entry) error {
	if i, ok := f.get("i"); ok {
		if !messageID.MatchString(i) {
			return fmt.Errorf("field i is %q", i)
		}
		e.MessageID = i
	}
	attempts, err := f.number("a")
	if err != nil {
		return err
	}
	e.Attempt = int(attempts) + 1
	message, err := f.record()
	if err != nil {
		return err
	}
	e.Message = message
	e.ProducedAt, err = f.producedAt(e.MessageID)
	return err
}

// record reads the message itself.
func (f fields) record() (queue.Message, error) {
	d, ok := f.get("d")
	if !ok {
		return queue.Message{}, errors.New("there is no field d")
	}
	return decodeRecord(d)
}

// producedAt is when Redis took the message, which its id says, or when it was due.
func (f fields) producedAt(messageID string) (time.Time, error) {
	due, err := f.number("t")
	if err != nil {
		return time.Time{}, err
	}
	if due > 0 {
		return time.UnixMilli(due), nil
	}
	_, rest, _ := strings.Cut(messageID, "-")
	text, _, _ := strings.Cut(rest, "-")
	ms, err := strconv.ParseInt(text, 10, 64)
	if err != nil {
		return time.Time{}, fmt.Errorf("%q is no message id", messageID)
	}
	return time.UnixMilli(ms), nil
}

// encodeItem gives what stands for an entry outside of streams; lib_queue.lua has the same. due is 0 if it was not scheduled.
func encodeItem(attempts int, messageID string, due int64, key string, record []byte) string {
	return fmt.Sprintf("%d %s %d %d %s%s", attempts, messageID, due, len(key), key, record)
}

// Starts of groups as a topic's document numbers them.
const (
	startBeginning = 0
	startEnd       = 1
	startTime      = 2
)

func encodeTopic(t *queue.Topic) ([]byte, error) {
	doc := &clusterv1.QueueTopic{
		Name: t.Name, Uid: t.UID, Version: t.Version, Partitions: int32(t.Partitions), //nolint:gosec // at most 256
		Partitioner: int32(t.Partitioner), StrictOrder: t.StrictOrder,
		MaxAttempts:  int32(t.Retry.MaxAttempts), //nolint:gosec // at most 1,000
		MinBackoffMs: t.Retry.MinBackoff.Milliseconds(), MaxBackoffMs: t.Retry.MaxBackoff.Milliseconds(),
		NonRetryableCodes: t.Retry.NonRetryable,
		RetainAgeMs:       t.Retention.MaxAge.Milliseconds(), RetainMessages: t.Retention.MaxMessages,
		DeadLetterAgeMs: t.Retention.DeadLetterAge.Milliseconds(),
		MaxMessages:     t.MaxMessages, DropOldest: t.DropOldest, IdempotencyWindowMs: t.IdempotencyWindow.Milliseconds(),
		CreatedAtMs: t.CreatedAt.UnixMilli(), ProducePaused: t.ProducePaused, ConsumePaused: t.ConsumePaused, State: int32(t.State),
	}
	for _, g := range t.Groups {
		group := &clusterv1.QueueGroup{Name: g.Name}
		switch {
		case g.Start.End:
			group.Start = startEnd
		case !g.Start.Time.IsZero():
			group.Start, group.StartMs = startTime, g.Start.Time.UnixMilli()
		default:
			group.Start = startBeginning
		}
		doc.Groups = append(doc.Groups, group)
	}
	b, err := deterministic.Marshal(doc)
	if err != nil {
		return nil, fmt.Errorf("encode topic %s: %w", t.Name, err)
	}
	return b, nil
}

func decodeTopic(b string) (*queue.Topic, error) {
	doc := &clusterv1.QueueTopic{}
	if err := proto.Unmarshal([]byte(b), doc); err != nil {
		return nil, fmt.Errorf("decode a topic: %w", err)
	}
	ms := func(n int64) time.Duration { return time.Duration(n) * time.Millisecond }
	t := &queue.Topic{
		Name: doc.GetName(), UID: doc.GetUid(), Version: doc.GetVersion(), State: queue.State(doc.GetState()), //nolint:gosec // 0 to 2
		Partitions: int(doc.GetPartitions()), Partitioner: queue.Partitioner(doc.GetPartitioner()), //nolint:gosec // 1 to 3
		StrictOrder: doc.GetStrictOrder(),
		Retry: queue.RetryPolicy{
			MaxAttempts: int(doc.GetMaxAttempts()), MinBackoff: ms(doc.GetMinBackoffMs()), MaxBackoff: ms(doc.GetMaxBackoffMs()),
			NonRetryable: doc.GetNonRetryableCodes(),
		},
		Retention: queue.Retention{
			MaxAge: ms(doc.GetRetainAgeMs()), MaxMessages: doc.GetRetainMessages(), DeadLetterAge: ms(doc.GetDeadLetterAgeMs()),
		},
		MaxMessages: doc.GetMaxMessages(), DropOldest: doc.GetDropOldest(), IdempotencyWindow: ms(doc.GetIdempotencyWindowMs()),
		CreatedAt: time.UnixMilli(doc.GetCreatedAtMs()), ProducePaused: doc.GetProducePaused(), ConsumePaused: doc.GetConsumePaused(),
	}
	for _, g := range doc.GetGroups() {
		group := queue.Group{Name: g.GetName()}
		switch g.GetStart() {
		case startEnd:
			group.Start.End = true
		case startTime:
			group.Start.Time = time.UnixMilli(g.GetStartMs())
		default:
		}
		t.Groups = append(t.Groups, group)
	}
	return t, nil
}
