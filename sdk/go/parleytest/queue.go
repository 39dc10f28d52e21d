package parleytest

import (
	"bytes"
	"fmt"
	"maps"
	"slices"
	"time"

	"connectrpc.com/connect"
	"github.com/cespare/xxhash/v2"
	"google.golang.org/protobuf/types/known/timestamppb"

	parleyv1 "github.com/parleyhq/parley/gen/go/parley/v1"
)

// defaultAttempts is the number of attempts of a message if its topic sets none.
const defaultAttempts = 16

// topic is a queue topic. It is guarded by the server's lock, as are all types below.
type topic struct {
	settings *parleyv1.Topic
	groups   map[string]*group
	// log holds the messages that have appeared, in order. later holds those that are not due yet.
	log   []*item
	later []*item
	keys  map[string]*item
	seq   int
	// turn counts the produce and schedule calls. It selects the partition of messages without any
	// key.
	turn int
}

// item is a message of a topic. Each group has an item of its own for it, with the group's
// attempts.
type item struct {
	id        string
	seq       int
	partition int32
	msg       *parleyv1.QueueMessage
	at        time.Time
	// due is the time at which it can be delivered, or appears in the topic.
	due     time.Time
	attempt int32
}

// consumer is a live Consume or StreamingConsume stream of a group.
type consumer struct {
	id    string
	node  *Server
	group *group
	name  string
	token string
	// timeout is the ack timeout. messages and bytes are the credits granted so far, sent and
	// sentBytes those used.
	timeout         time.Duration
	messages, bytes int64
	sent, sentBytes int64
	flight          map[string]*held
	// settled maps the token of each settled delivery to `ack` or `nack`.
	settled map[string]string
	parts   []int32
	told    bool
	// leaving is set by Leave: the consumer gets no more deliveries.
	leaving bool
	end     *end
}

// held is a delivery in flight. Without a settlement or an extension it times out at until.
type held struct {
	*item

	until time.Time
}

// AddTopic creates a topic with the given number of partitions, and with consumer groups that start
// at its beginning. It replaces a topic of the same name, with its messages.
func (s *Server) AddTopic(name string, partitions int, groups ...string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	t := newTopic(&parleyv1.Topic{Name: name, Partitions: int32(partitions)})
	s.topics[name] = t
	for _, g := range groups {
		t.addGroup(g, nil)
	}
}

func newTopic(settings *parleyv1.Topic) *topic {
	if settings.GetPartitions() == 0 {
		settings.Partitions = 8
	}
	if settings.GetPartitioner() == parleyv1.Partitioner_PARTITIONER_UNSPECIFIED {
		settings.Partitioner = parleyv1.Partitioner_PARTITIONER_CONSISTENT_HASH
	}
	if settings.GetRetry() == nil {
		settings.Retry = &parleyv1.RetryPolicy{}
	}
	if settings.GetRetry().MaxAttempts == nil {
		settings.Retry.MaxAttempts = new(int32(defaultAttempts))
	}
	settings.CreateTime = timestamppb.Now()
	return &topic{settings: settings, groups: make(map[string]*group), keys: make(map[string]*item)}
}

// unsettled returns the groups that have not settled a message.
func (t *topic) unsettled(i *item) []*group {
	var groups []*group
	for _, g := range t.groups {
		held := slices.ContainsFunc(g.waiting, func(other *item) bool { return other.id == i.id })
		for _, c := range g.consumers {
			for _, h := range c.flight {
				held = held || h.id == i.id
			}
		}
		if held {
			groups = append(groups, g)
		}
	}
	return groups
}

func (i *item) fresh() *item {
	one := *i
	one.attempt, one.due = 0, time.Time{}
	return &one
}

// Produced returns the payloads of the messages that have appeared in a topic, in order. It returns
// nil for an unknown topic.
func (s *Server) Produced(topicName string) []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	var all []string
	if t := s.topics[topicName]; t != nil {
		for _, i := range t.log {
			all = append(all, string(i.msg.GetPayload()))
		}
	}
	return all
}

// Acked returns the number of messages that a group has acknowledged. It returns 0 for an unknown
// topic or group.
func (s *Server) Acked(topicName, groupName string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	g, err := s.groupLocked(topicName, groupName)
	if err != nil {
		return 0
	}
	return int(g.acked)
}

// Unsettled returns the number of messages that a group has not settled. Dead letters are settled.
// It returns 0 for an unknown topic or group.
func (s *Server) Unsettled(topicName, groupName string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	g, err := s.groupLocked(topicName, groupName)
	if err != nil {
		return 0
	}
	n := len(g.waiting)
	for _, c := range g.consumers {
		n += len(c.flight)
	}
	return n
}

// DeadLetters returns a group's dead letters, oldest first. It returns nil for an unknown topic or
// group.
func (s *Server) DeadLetters(topicName, groupName string) []*parleyv1.DeadLetter {
	s.mu.Lock()
	defer s.mu.Unlock()
	g, err := s.groupLocked(topicName, groupName)
	if err != nil {
		return nil
	}
	letters := make([]*parleyv1.DeadLetter, len(g.dead))
	for i, d := range g.dead {
		letters[i] = d.DeadLetter
	}
	return letters
}

// LoseLeases takes all deliveries in flight from the consumers of a group, as if their leases had
// expired. The consumers are not notified: their settlements fail with LEASE_LOST. The messages are
// delivered again, or become dead letters if they have no attempts left.
func (s *Server) LoseLeases(topicName, groupName string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	g, err := s.groupLocked(topicName, groupName)
	if err != nil {
		return
	}
	for _, c := range g.consumers {
		c.releaseAll()
	}
	s.wakeLocked()
}

// EndConsumers ends a group's live Consume and StreamingConsume streams on this server with err, or
// resets them if err is nil.
func (s *Server) EndConsumers(topicName, groupName string, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	g, gerr := s.groupLocked(topicName, groupName)
	if gerr != nil {
		return
	}
	for _, c := range g.consumers {
		if c.node == s {
			c.end = &end{err: err, drop: err == nil}
		}
	}
	s.wakeLocked()
}

func (s *shared) topicLocked(name string) (*topic, error) {
	if t := s.topics[name]; t != nil {
		return t, nil
	}
	return nil, errorAt(connect.CodeNotFound, parleyv1.ErrorReason_ERROR_REASON_TOPIC_NOT_FOUND, "topic", 0)
}

func noGroup(field string) error {
	return errorAt(connect.CodeNotFound, parleyv1.ErrorReason_ERROR_REASON_GROUP_NOT_FOUND, field, 0)
}

func (s *shared) groupLocked(topicName, groupName string) (*group, error) {
	t, err := s.topicLocked(topicName)
	if err != nil {
		return nil, err
	}
	if g := t.groups[groupName]; g != nil {
		return g, nil
	}
	return nil, noGroup("group")
}

// store stores a message that appears when it is due, or returns the one with the same idempotency
// key.
func (t *topic) store(msg *parleyv1.QueueMessage, due time.Time) (i *item, duplicate bool, err error) {
	if key := msg.GetIdempotencyKey(); key != "" {
		if known := t.keys[key]; known != nil {
			if !bytes.Equal(known.msg.GetPayload(), msg.GetPayload()) {
				return nil, false, errorAt(connect.CodeAlreadyExists, parleyv1.ErrorReason_ERROR_REASON_IDEMPOTENCY_KEY_REUSED, "idempotency_key", 0)
			}
			return known, true, nil
		}
	}
	now := time.Now()
	t.seq++
	i = &item{seq: t.seq, partition: t.partition(msg), msg: msg, at: now, due: due}
	i.id = fmt.Sprintf("%d-%013d-%d", i.partition, now.UnixMilli(), t.seq)
	if msg.GetIdempotencyKey() != "" {
		t.keys[msg.GetIdempotencyKey()] = i
	}
	if due.After(now) {
		i.id += "d"
		t.later = append(t.later, i)
	} else {
		t.appear(i)
	}
	return i, false, nil
}

// partition returns the partition of a message, which is the one that the real server would choose.
func (t *topic) partition(msg *parleyv1.QueueMessage) int32 {
	n := t.settings.GetPartitions()
	by := msg.GetKey()
	if by == "" || t.settings.GetPartitioner() == parleyv1.Partitioner_PARTITIONER_ROUND_ROBIN {
		by = msg.GetIdempotencyKey()
	}
	if by == "" {
		return int32(t.turn % int(n))
	}
	hash := xxhash.Sum64String(by)
	if t.settings.GetPartitioner() == parleyv1.Partitioner_PARTITIONER_HASH {
		return int32(hash % uint64(n))
	}
	// Jump consistent hash, by Lamping and Veach.
	at, next := int64(-1), int64(0)
	for next < int64(n) {
		at = next
		hash = hash*2862933555777941757 + 1
		next = int64(float64(at+1) * (float64(1<<31) / float64(hash>>33+1)))
	}
	return int32(at)
}

func (t *topic) appear(i *item) {
	t.log = append(t.log, i)
	for _, g := range t.groups {
		g.waiting = append(g.waiting, i.fresh())
	}
}

// advance makes scheduled messages appear that are due at now. It returns when the next one is due,
// or the zero time if there is none.
func (t *topic) advance(now time.Time) time.Time {
	var next time.Time
	slices.SortStableFunc(t.later, func(a, b *item) int { return a.due.Compare(b.due) })
	for len(t.later) > 0 && !t.later[0].due.After(now) {
		i := t.later[0]
		t.later = t.later[1:]
		i.at = i.due
		t.appear(i)
	}
	if len(t.later) > 0 {
		next = t.later[0].due
	}
	return next
}

// releaseAll returns the consumer's deliveries in flight to its group, for another attempt if any
// is left.
func (c *consumer) releaseAll() {
	for _, token := range slices.Sorted(maps.Keys(c.flight)) {
		i := c.flight[token].item
		delete(c.flight, token)
		c.group.again(i, time.Time{}, "the consumer was lost", "")
	}
}

// take returns the next deliveries of a consumer, and the time of the next check, or the zero time
// if it is unknown.
func (c *consumer) take(now time.Time) (batch []*parleyv1.Delivery, next time.Time) {
	g := c.group
	next = g.topic.advance(now)
	if g.topic.settings.GetConsumePaused() {
		return nil, time.Time{}
	}
	sooner := func(at time.Time) {
		if next.IsZero() || at.Before(next) {
			next = at
		}
	}
	g.waiting = slices.DeleteFunc(g.waiting, func(i *item) bool {
		switch {
		case !slices.Contains(c.parts, i.partition), c.sent >= c.messages, c.sentBytes >= c.bytes:
			return false
		case i.due.After(now):
			sooner(i.due)
			return false
		}
		i.attempt++
		c.sent++
		c.sentBytes += size(i.msg)
		token := fmt.Sprintf("%s-%06d-%d", c.id, c.sent, i.seq)
		c.flight[token] = &held{item: i, until: now.Add(c.timeout)}
		batch = append(batch, &parleyv1.Delivery{
			Token: token, MessageId: i.id, Partition: i.partition, Key: i.msg.GetKey(), Payload: i.msg.GetPayload(),
			Headers: i.msg.GetHeaders(), Attempt: i.attempt, ProduceTime: timestamppb.New(i.at),
		})
		return true
	})
	for _, h := range c.flight {
		sooner(h.until)
	}
	return batch, next
}

func size(m *parleyv1.QueueMessage) int64 {
	n := len(m.GetKey()) + len(m.GetPayload())
	for k, v := range m.GetHeaders() {
		n += len(k) + len(v)
	}
	return int64(n)
}
