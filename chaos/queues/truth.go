package queues

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/redis/go-redis/v9"
	"google.golang.org/protobuf/proto"

	parleyv1 "github.com/parleyhq/parley/gen/go/parley/v1"
)

// Truth is the final contents of Redis for queues. They are read by the layout that package
// redislog documents, without its code, because a check must not trust what it checks.
type Truth struct {
	Partitions []Partition `json:"partitions"`
	// Letters are the dead letters as AdminService lists them.
	Letters []Stored `json:"letters"`
	// Counts are the counters as AdminService reports them.
	Counts []Count `json:"counts"`
}

// Partition is the contents of one partition.
type Partition struct {
	Topic     string `json:"topic"`
	Partition int    `json:"partition"`
	// Last and Ord are the µs and the ordinal of the last entry.
	Last        int64 `json:"last"`
	Ord         int64 `json:"ord"`
	Unscheduled int64 `json:"unscheduled"`
	// Entries are those of the Redis stream, Delayed the scheduled messages that are not in it yet,
	// and Dead the dead letters of all groups.
	Entries []Stored `json:"entries"`
	Delayed []Stored `json:"delayed"`
	Dead    []Stored `json:"dead"`
	Groups  []Group  `json:"groups"`
}

// Group is the state of a group in a partition.
type Group struct {
	Group string `json:"group"`
	// Stats are the numbers of the group's state.
	Stats  map[string]int64 `json:"stats"`
	Holder string           `json:"holder,omitempty"`
	// Sent is the ID in the stream of the last entry that was looked at.
	Sent string `json:"sent"`
	// Open are the ordinals of entries that were looked at and are not settled.
	Open []int64 `json:"open"`
	// Rows are the rows of open entries by µs, and Due the number of those that are due later.
	Rows map[string]string `json:"rows"`
	Due  int64             `json:"due"`
}

// Stored is a stored message.
type Stored struct {
	// ID is the entry's id in its stream, or "" outside of one.
	ID        string `json:"id,omitempty"`
	MessageID string `json:"message_id"`
	Mark      string `json:"mark"`
	Key       string `json:"key,omitempty"`
	Attempts  int    `json:"attempts,omitempty"`
	DueMS     int64  `json:"due_ms,omitempty"`
	// Topic and Partition are set for a dead letter only. Group, Reason and Code are those of a dead
	// letter.
	Topic     string `json:"topic,omitempty"`
	Partition int    `json:"partition,omitempty"`
	Group     string `json:"group,omitempty"`
	Reason    string `json:"reason,omitempty"`
	Code      string `json:"code,omitempty"`
}

// readTruth reads the partitions of all topics.
func readTruth(ctx context.Context, c *redis.Client, topics []Topic) (*Truth, error) {
	t := new(Truth)
	for _, l := range topics {
		for p := range l.Partitions {
			part, err := readPartition(ctx, c, &l, p)
			if err != nil {
				return nil, fmt.Errorf("truth: %s partition %d: %w", l.Name, p, err)
			}
			t.Partitions = append(t.Partitions, *part)
		}
	}
	return t, nil
}

// keyPrefix stands in front of all keys of queues.
const keyPrefix = ""

// mainKey returns the key of a partition's stream, which is the prefix of all its other keys.
func mainKey(topic string, partition int) string {
	return keyPrefix + "stream:topic:{" + topic + ":" + strconv.Itoa(partition) + "}"
}

func groupKey(topic string, partition int, group string) string {
	return mainKey(topic, partition) + ":g:" + group
}

// topicKey is the key of a topic's settings.
func topicKey(topic string) string { return keyPrefix + "streaming:mq:topic:" + topic + ":meta" }

func readPartition(ctx context.Context, c *redis.Client, l *Topic, partition int) (*Partition, error) {
	key := mainKey(l.Name, partition)
	p := &Partition{Topic: l.Name, Partition: partition}
	meta, err := c.HGetAll(ctx, key+":meta").Result()
	if err != nil {
		return nil, err
	}
	p.Last, p.Ord, p.Unscheduled = number(meta["last"]), number(meta["ord"]), number(meta["cancelled"])
	if p.Entries, err = readStream(ctx, c, key, partition); err != nil {
		return nil, err
	}
	if p.Dead, err = readLetters(ctx, c, l.Name, partition); err != nil {
		return nil, err
	}
	if p.Delayed, err = readDelayed(ctx, c, key+":delayed"); err != nil {
		return nil, err
	}
	for _, g := range l.Groups {
		group, err := readGroup(ctx, c, l.Name, partition, g)
		if err != nil {
			return nil, fmt.Errorf("group %s: %w", g, err)
		}
		p.Groups = append(p.Groups, *group)
	}
	return p, nil
}

func readGroup(ctx context.Context, c *redis.Client, topic string, partition int, group string) (*Group, error) {
	key := groupKey(topic, partition, group)
	g := &Group{Group: group, Stats: make(map[string]int64)}
	// One transaction: a commit between two reads would show a state that never was.
	tx := c.TxPipeline()
	state, open, rows, due := tx.HGetAll(ctx, key), tx.HGetAll(ctx, key+":open"), tx.HGetAll(ctx, key+":rows"), tx.ZCard(ctx, key+":due")
	if _, err := tx.Exec(ctx); err != nil {
		return nil, err
	}
	for name, v := range state.Val() {
		g.Stats[name] = number(v)
	}
	g.Holder, g.Sent, g.Rows, g.Due = state.Val()["holder"], state.Val()["sent"], rows.Val(), due.Val()
	for field, ranges := range open.Val() {
		ordinals, err := readRanges(ranges)
		if err != nil {
			return nil, fmt.Errorf("open entries %s: %w", field, err)
		}
		g.Open = append(g.Open, ordinals...)
	}
	slices.Sort(g.Open)
	return g, nil
}

// readRanges returns the numbers of a list such as "17,30-44".
func readRanges(text string) ([]int64, error) {
	var all []int64
	for part := range strings.SplitSeq(text, ",") {
		first, last, isRange := strings.Cut(part, "-")
		if !isRange {
			last = first
		}
		from, err1 := strconv.ParseInt(first, 10, 64)
		to, err2 := strconv.ParseInt(last, 10, 64)
		if err := errors.Join(err1, err2); err != nil || to < from || to-from > 1<<20 {
			return nil, fmt.Errorf("%q is no list of ranges", text)
		}
		for n := from; n <= to; n++ {
			all = append(all, n)
		}
	}
	return all, nil
}

// ordinal returns the ordinal in the ID of an entry, "<µs>-<ordinal>".
func ordinal(id string) int64 {
	_, ord, _ := strings.Cut(id, "-")
	return number(ord)
}

func readStream(ctx context.Context, c *redis.Client, key string, partition int) ([]Stored, error) {
	entries, err := c.XRange(ctx, key, "-", "+").Result()
	if err != nil {
		return nil, err
	}
	stored := make([]Stored, 0, len(entries))
	for _, e := range entries {
		field := func(name string) string { text, _ := e.Values[name].(string); return text }
		us, _, _ := strings.Cut(e.ID, "-")
		s := Stored{ID: e.ID, MessageID: cmp.Or(field("i"), strconv.Itoa(partition)+"-"+us), Group: field("g")}
		if err := s.decode(field("d")); err != nil {
			return nil, fmt.Errorf("%s at %s: %w", key, e.ID, err)
		}
		stored = append(stored, s)
	}
	return stored, nil
}

// readLetters reads the headers of a partition's dead letters, and their records.
func readLetters(ctx context.Context, c *redis.Client, topic string, partition int) ([]Stored, error) {
	key := mainKey(topic, partition) + ":dlq"
	tx := c.TxPipeline()
	headers, records := tx.XRange(ctx, key, "-", "+"), tx.HGetAll(ctx, key+":data")
	if _, err := tx.Exec(ctx); err != nil {
		return nil, err
	}
	var letters []Stored
	for _, e := range headers.Val() {
		field := func(name string) string { text, _ := e.Values[name].(string); return text }
		s := Stored{
			ID: e.ID, MessageID: field("i"), Attempts: int(number(field("a"))), Group: field("g"), Reason: field("r"), Code: field("c"),
			Topic: topic, Partition: partition,
		}
		if err := s.decode(records.Val()[e.ID]); err != nil {
			return nil, fmt.Errorf("%s at %s: %w", key, e.ID, err)
		}
		letters = append(letters, s)
	}
	return letters, nil
}

// readDelayed reads the sorted set of due times at key and the records in the hash at key:data.
func readDelayed(ctx context.Context, c *redis.Client, key string) ([]Stored, error) {
	tx := c.TxPipeline()
	members, data := tx.ZRangeWithScores(ctx, key, 0, -1), tx.HGetAll(ctx, key+":data")
	if _, err := tx.Exec(ctx); err != nil {
		return nil, err
	}
	if len(members.Val()) != len(data.Val()) {
		return nil, fmt.Errorf("%s has %d members and %d records", key, len(members.Val()), len(data.Val()))
	}
	stored := make([]Stored, 0, len(members.Val()))
	for _, z := range members.Val() {
		id, _ := z.Member.(string)
		s := Stored{DueMS: int64(z.Score), MessageID: id}
		if err := s.decode(data.Val()[id]); err != nil {
			return nil, fmt.Errorf("%s: %q: %w", key, id, err)
		}
		stored = append(stored, s)
	}
	return stored, nil
}

// decode sets the key and the mark from data, a serialized record.
func (s *Stored) decode(data string) error {
	var d parleyv1.Delivery // a record has more fields, which are unknown here
	if err := proto.Unmarshal([]byte(data), &d); err != nil {
		return err
	}
	s.Key, s.Mark = d.GetKey(), markOf(d.GetPayload())
	return nil
}

func number(text string) int64 {
	n, _ := strconv.ParseInt(text, 10, 64) // an absent counter is 0
	return n
}
