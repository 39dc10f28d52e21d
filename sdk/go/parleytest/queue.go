package parleytest

import (
	"bytes"
	"fmt"
	"hash/fnv"
	"maps"
	"slices"
	"strconv"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/types/known/timestamppb"

	parleyv1 "github.com/parleyhq/parley/gen/go/parley/v1"
)

// defaultAttempts is how often a message is tried where its topic does not say.
const defaultAttempts = 16

// topic is a queue topic. It is guarded by the server's lock, as all that follows.
type topic struct {
	settings *parleyv1.Topic
	groups   map[string]*group
	// log is all that has appeared, in order; later is what has not yet.
	log   []*item
	later []*item
	keys  map[string]*item
	seq   int
}

// item is a message of a topic, or its way through one group.
type item struct {
	id        string
	seq       int
	partition int32
	msg       *parleyv1.QueueMessage
	at        time.Time
	// due is when it may be delivered, or appears.
	due     time.Time
	attempt int32
}

// group is a consumer group.
type group struct {
	name     string
	topic    *topic
	waiting  []*item
	dead     []*parleyv1.DeadLetter
	sessions []*consumer
	acked    int64
}

// consumer is a stream of a group.
type consumer struct {
	id    string
	node  *Server
	group *group
	name  string
	token string
	// timeout is how long it may hold a message.
	timeout         time.Duration
	messages, bytes int64
	sent, sentBytes int64
	flight          map[string]*held
	// settled is what was settled, and how.
	settled map[string]string
	parts   []int32
	told    bool
	// leaving is set once it takes nothing more.
	leaving bool
	end     *end
}

// held is a delivery in flight.
type held struct {
	*item

	until time.Time
}

// AddTopic makes a topic of so many partitions, with consumer groups that begin at its beginning.
func (s *Server) AddTopic(name string, partitions int, groups ...string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	t := newTopic(&parleyv1.Topic{Name: name, Partitions: int32(partitions)})
	s.topics[name] = t
	for _, g := range groups {
		t.addGroup(g)
	}
}

func newTopic(settings *parleyv1.Topic) *topic {
	if settings.GetPartitions() == 0 {
		settings.Partitions = 8
	}
	settings.CreatedAt = timestamppb.Now()
	return &topic{settings: settings, groups: make(map[string]*group), keys: make(map[string]*item)}
}

func (t *topic) addGroup(name string) {
	g := &group{name: name, topic: t}
	for _, i := range t.log {
		g.waiting = append(g.waiting, i.fresh())
	}
	t.groups[name] = g
	t.settings.Groups = slices.Sorted(maps.Keys(t.groups))
}

func (i *item) fresh() *item {
	one := *i
	one.attempt, one.due = 0, time.Time{}
	return &one
}

// Produced gives the payloads that have appeared in a topic, in order.
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

// Acked is how many messages a group has acknowledged, and Unsettled how many it has not: dead letters count as neither.
func (s *Server) Acked(topicName, groupName string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	g, err := s.groupLocked(topicName, groupName)
	if err != nil {
		return 0
	}
	return int(g.acked)
}

// Unsettled is how many messages a group has not acknowledged, dead letters aside.
func (s *Server) Unsettled(topicName, groupName string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	g, err := s.groupLocked(topicName, groupName)
	if err != nil {
		return 0
	}
	n := len(g.waiting)
	for _, c := range g.sessions {
		n += len(c.flight)
	}
	return n
}

// DeadLetters gives a group's dead letters, the oldest first.
func (s *Server) DeadLetters(topicName, groupName string) []*parleyv1.DeadLetter {
	s.mu.Lock()
	defer s.mu.Unlock()
	g, err := s.groupLocked(topicName, groupName)
	if err != nil {
		return nil
	}
	return slices.Clone(g.dead)
}

// LoseLeases takes from the consumers of a group what they hold, as if their leases had ended. They are not told: settling it
// fails. It is delivered again.
func (s *Server) LoseLeases(topicName, groupName string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	g, err := s.groupLocked(topicName, groupName)
	if err != nil {
		return
	}
	for _, c := range g.sessions {
		c.giveBack()
	}
	s.wakeLocked()
}

// EndConsumers ends the live streams of a group on this server: with err, or broken off where that is nil.
func (s *Server) EndConsumers(topicName, groupName string, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	g, gerr := s.groupLocked(topicName, groupName)
	if gerr != nil {
		return
	}
	for _, c := range g.sessions {
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
	return nil, Error(connect.CodeNotFound, parleyv1.ErrorReason_ERROR_REASON_TOPIC_NOT_FOUND)
}

func (s *shared) groupLocked(topicName, groupName string) (*group, error) {
	t, err := s.topicLocked(topicName)
	if err != nil {
		return nil, err
	}
	if g := t.groups[groupName]; g != nil {
		return g, nil
	}
	return nil, Error(connect.CodeNotFound, parleyv1.ErrorReason_ERROR_REASON_GROUP_NOT_FOUND)
}

// store takes a message, to appear when it is due; a known idempotency key gives what is there.
func (t *topic) store(msg *parleyv1.QueueMessage, due time.Time) (i *item, duplicate bool, err error) {
	if key := msg.GetIdempotencyKey(); key != "" {
		if known := t.keys[key]; known != nil {
			if !bytes.Equal(known.msg.GetPayload(), msg.GetPayload()) {
				return nil, false, Error(connect.CodeAlreadyExists, parleyv1.ErrorReason_ERROR_REASON_IDEMPOTENCY_KEY_REUSED)
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

func (t *topic) partition(msg *parleyv1.QueueMessage) int32 {
	by := msg.GetKey()
	if by == "" {
		by = strconv.Itoa(t.seq)
	}
	h := fnv.New32a()
	_, _ = h.Write([]byte(by))
	return int32(h.Sum32() % uint32(t.settings.GetPartitions()))
}

func (t *topic) appear(i *item) {
	t.log = append(t.log, i)
	for _, g := range t.groups {
		g.waiting = append(g.waiting, i.fresh())
	}
}

// advance has what is due appear, and gives when the next is; zero if none is.
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

// giveBack returns what the consumer holds to its group.
func (c *consumer) giveBack() {
	for _, token := range slices.Sorted(maps.Keys(c.flight)) {
		i := c.flight[token].item
		delete(c.flight, token)
		c.group.again(i, time.Time{}, "the consumer was lost", "")
	}
}

// again has a message tried again, or makes it a dead letter if it was tried often enough.
func (g *group) again(i *item, due time.Time, reason, code string) {
	attempts := int32(defaultAttempts)
	if policy := g.topic.settings.GetRetry(); policy.GetMaxAttempts() > 0 {
		attempts = policy.GetMaxAttempts()
	}
	if i.attempt >= attempts {
		g.bury(i, reason, code)
		return
	}
	i.due = due
	g.putBack(i)
}

// putBack puts a message in its place.
func (g *group) putBack(i *item) {
	g.waiting = append(g.waiting, i)
	slices.SortStableFunc(g.waiting, func(a, b *item) int { return a.seq - b.seq })
}

func (g *group) bury(i *item, reason, code string) {
	g.dead = append(g.dead, &parleyv1.DeadLetter{
		DeadLetterId: fmt.Sprintf("%d-%d-%d", i.partition, time.Now().UnixMilli(), i.seq), MessageId: i.id,
		Partition: i.partition, Group: g.name, Key: i.msg.GetKey(), Payload: i.msg.GetPayload(), Headers: i.msg.GetHeaders(),
		Attempts: i.attempt, Reason: reason, Code: code, ProducedAt: timestamppb.New(i.at), DeadAt: timestamppb.Now(),
	})
}

// share gives each consumer its partitions.
func (g *group) share() {
	for n, c := range g.sessions {
		var parts []int32
		for p := range g.topic.settings.GetPartitions() {
			if int(p)%len(g.sessions) == n {
				parts = append(parts, p)
			}
		}
		if !slices.Equal(parts, c.parts) {
			c.parts, c.told = parts, false
		}
	}
}

// take gives what the consumer may be sent, and when there may be more; zero if that is not known.
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
			Headers: i.msg.GetHeaders(), Attempt: i.attempt, ProducedAt: timestamppb.New(i.at),
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
