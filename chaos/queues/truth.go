package queues

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/redis/go-redis/v9"
	"google.golang.org/protobuf/proto"

	clusterv1 "github.com/parleyhq/parley/internal/gen/parley/cluster/v1"
)

// Truth is the final contents of Redis for queues. They are read by the layout that package
// redisqueue documents, without its code, because a check must not trust what it checks.
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
	Produced  int64  `json:"produced"`
	Cancelled int64  `json:"cancelled"`
	// Entries are those of the Redis stream, Delayed the scheduled messages that are not in it yet,
	// and Dead the dead letters of all groups.
	Entries []Stored `json:"entries"`
	Delayed []Stored `json:"delayed"`
	Dead    []Stored `json:"dead"`
	Groups  []Group  `json:"groups"`
}

// Group is the state of a group in a partition.
type Group struct {
	Group string           `json:"group"`
	Stats map[string]int64 `json:"stats"`
	Epoch int64            `json:"epoch"`
	// Last is the id of the last entry read from the stream.
	Last string `json:"last"`
	// Pending are the ids of the stream's entries that were delivered and not settled.
	Pending []string `json:"pending"`
	// Retries are the unread and pending entries of the retry stream. Retrying are messages that
	// wait for the time of their retry, Parked those that wait for an earlier one of their key.
	Retries  []Stored `json:"retries"`
	Retrying []Stored `json:"retrying"`
	Parked   []Stored `json:"parked"`
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

// mainKey returns the key of a partition's stream, which is the prefix of all its other keys.
func mainKey(topic string, partition int) string {
	return "stream:topic:{" + topic + ":" + strconv.Itoa(partition) + "}"
}

func groupKey(topic string, partition int, group string) string {
	return mainKey(topic, partition) + ":g:" + group
}

func readPartition(ctx context.Context, c *redis.Client, l *Topic, partition int) (*Partition, error) {
	key := mainKey(l.Name, partition)
	p := &Partition{Topic: l.Name, Partition: partition}
	meta, err := c.HGetAll(ctx, key+":meta").Result()
	if err != nil {
		return nil, err
	}
	p.Produced, p.Cancelled = number(meta["produced"]), number(meta["cancelled"])
	if p.Entries, err = readStream(ctx, c, key, partition); err != nil {
		return nil, err
	}
	if p.Dead, err = readStream(ctx, c, key+":dlq", partition); err != nil {
		return nil, err
	}
	for i := range p.Dead {
		p.Dead[i].Topic, p.Dead[i].Partition = l.Name, partition
	}
	if p.Delayed, err = readItems(ctx, c, key+":delayed"); err != nil {
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
	stats, err := c.HGetAll(ctx, key+":stats").Result()
	if err != nil {
		return nil, err
	}
	for name, v := range stats {
		g.Stats[name] = number(v)
	}
	epoch, err := c.Get(ctx, key+":epoch").Result()
	if err != nil && !errors.Is(err, redis.Nil) {
		return nil, err
	}
	g.Epoch = number(epoch)
	if g.Last, g.Pending, err = readReading(ctx, c, mainKey(topic, partition), group); err != nil {
		return nil, err
	}
	retries, err := readStream(ctx, c, key+":retry", partition)
	if err != nil {
		return nil, err
	}
	last, pending, err := readReading(ctx, c, key+":retry", group)
	if err != nil {
		return nil, err
	}
	for _, s := range retries {
		if after(s.ID, last) || slices.Contains(pending, s.ID) {
			g.Retries = append(g.Retries, s)
		}
	}
	if g.Retrying, err = readItems(ctx, c, key+":retrying"); err != nil {
		return nil, err
	}
	g.Parked, err = readItems(ctx, c, key+":parked")
	return g, err
}

// readReading returns the ids of the last entry that a group has read of a stream, and of its
// pending entries. For a missing or unread stream last is "0-0".
func readReading(ctx context.Context, c *redis.Client, key, group string) (last string, pending []string, err error) {
	n, err := c.Exists(ctx, key).Result()
	if err != nil || n == 0 {
		return "0-0", nil, err
	}
	groups, err := c.XInfoGroups(ctx, key).Result()
	if err != nil {
		return "", nil, err
	}
	last = "0-0"
	for _, g := range groups {
		if g.Name == group {
			last = g.LastDeliveredID
		}
	}
	if last == "0-0" {
		return last, nil, nil
	}
	entries, err := c.XPendingExt(ctx, &redis.XPendingExtArgs{Stream: key, Group: group, Start: "-", End: "+", Count: 1 << 20}).Result()
	if err != nil {
		return "", nil, err
	}
	for _, e := range entries {
		pending = append(pending, e.ID)
	}
	return last, pending, nil
}

func readStream(ctx context.Context, c *redis.Client, key string, partition int) ([]Stored, error) {
	entries, err := c.XRange(ctx, key, "-", "+").Result()
	if err != nil {
		return nil, err
	}
	stored := make([]Stored, 0, len(entries))
	for _, e := range entries {
		field := func(name string) string { text, _ := e.Values[name].(string); return text }
		s := Stored{
			ID: e.ID, MessageID: field("i"), Attempts: int(number(field("a"))), Group: field("g"), Reason: field("r"), Code: field("c"),
		}
		if s.MessageID == "" {
			s.MessageID = strconv.Itoa(partition) + "-" + e.ID
		}
		if err := s.decode(field("d")); err != nil {
			return nil, fmt.Errorf("%s at %s: %w", key, e.ID, err)
		}
		stored = append(stored, s)
	}
	return stored, nil
}

// readItems reads the sorted set of times at key and its items in the hash at key:data. An item is
// "<attempts> <message id> <due ms or 0> <length of key> <key><record>".
func readItems(ctx context.Context, c *redis.Client, key string) ([]Stored, error) {
	members, err := c.ZRangeWithScores(ctx, key, 0, -1).Result()
	if err != nil {
		return nil, err
	}
	data, err := c.HGetAll(ctx, key+":data").Result()
	if err != nil {
		return nil, err
	}
	if len(members) != len(data) {
		return nil, fmt.Errorf("%s has %d members and %d items", key, len(members), len(data))
	}
	stored := make([]Stored, 0, len(members))
	for _, z := range members {
		member, _ := z.Member.(string)
		s := Stored{DueMS: int64(z.Score)}
		attempts, rest, ok1 := strings.Cut(data[member], " ")
		id, rest, ok2 := strings.Cut(rest, " ")
		_, rest, ok3 := strings.Cut(rest, " ")
		length, rest, ok4 := strings.Cut(rest, " ")
		n := int(number(length))
		if !ok1 || !ok2 || !ok3 || !ok4 || n > len(rest) {
			return nil, fmt.Errorf("%s: %q has the item %q", key, member, data[member])
		}
		s.Attempts, s.MessageID = int(number(attempts)), id
		if err := s.decode(rest[n:]); err != nil {
			return nil, fmt.Errorf("%s: %q: %w", key, member, err)
		}
		stored = append(stored, s)
	}
	return stored, nil
}

// decode sets the key and the mark from data, a serialized QueueRecord.
func (s *Stored) decode(data string) error {
	var r clusterv1.QueueRecord
	if err := proto.Unmarshal([]byte(data), &r); err != nil {
		return err
	}
	s.Key, s.Mark = r.GetKey(), markOf(r.GetPayload())
	return nil
}

func number(text string) int64 {
	n, _ := strconv.ParseInt(text, 10, 64) // an absent counter is 0
	return n
}

// after reports whether the stream entry id a is after b. It also compares message ids of one
// partition, if they are passed without the partition.
func after(a, b string) bool {
	ams, aseq, _ := strings.Cut(a, "-")
	bms, bseq, _ := strings.Cut(b, "-")
	if x, y := number(ams), number(bms); x != y {
		return x > y
	}
	return number(aseq) > number(bseq)
}
