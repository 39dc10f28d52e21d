package parleytest

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"time"

	"connectrpc.com/connect"
	"github.com/cespare/xxhash/v2"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	parleyv1 "github.com/parleyhq/parley/gen/go/parley/v1"
)

// topic is a queue topic. It is guarded by the server's lock, as are all types of the queues.
type topic struct {
	settings *parleyv1.Topic
	groups   map[string]*group
	// log holds the messages that have appeared, in order. later holds those that are not due yet.
	log   []*message
	later []*message
	// keys and uniques are the messages that have an idempotency key or a unique key, and sequences
	// what the requests of producers stored, by their ids and numbers.
	keys      map[string]*message
	uniques   map[string]*message
	sequences map[string]map[int64]*sequence
	dead      []*deadLetter
	// seq is the position of the last message.
	seq int
	// turn counts the calls of Produce. It selects the partition of messages without any key.
	turn    int
	counted map[int32]*partitionCounts
}

// partitionCounts counts what was produced into a partition and cancelled.
type partitionCounts struct{ produced, cancelled int64 }

// message is a message of a topic.
type message struct {
	id        string
	seq       int
	partition int32
	wire      *parleyv1.QueueMessage
	// at is when it was accepted, or when it was due if it was scheduled.
	at time.Time
	// due is when a scheduled message appears. It is zero for other messages.
	due time.Time
}

// AddTopic creates a topic with the given number of partitions, and with consumer groups that start
// at its beginning. It replaces a topic of the same name, with its messages.
func (s *Server) AddTopic(name string, partitions int, groups ...string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.dropTopicLocked(name)
	t := newTopic(&parleyv1.Topic{Name: name, Partitions: int32(partitions)})
	s.topics[name] = t
	for _, g := range groups {
		t.addGroup(&parleyv1.Group{Name: g})
	}
}

// newTopic returns a topic with the settings, completed with the defaults.
func newTopic(settings *parleyv1.Topic) *topic {
	completeTopic(settings)
	settings.CreateTime, settings.Paused, settings.Groups = timestamppb.Now(), false, nil
	return &topic{
		settings: settings, groups: make(map[string]*group), keys: make(map[string]*message), uniques: make(map[string]*message),
		sequences: make(map[string]map[int64]*sequence), counted: make(map[int32]*partitionCounts),
	}
}

func completeTopic(t *parleyv1.Topic) {
	t.Partitions = cmp.Or(t.GetPartitions(), 8)
	t.Partitioner = cmp.Or(t.GetPartitioner(), parleyv1.Partitioner_PARTITIONER_CONSISTENT_HASH)
	if t.GetRetention() == nil {
		t.Retention = &parleyv1.TopicRetention{}
	}
	t.Retention.MaxDeadLetters = cmp.Or(t.GetRetention().GetMaxDeadLetters(), 100_000)
	orDuration(&t.Retention.MaxAge, 0)
	orDuration(&t.Retention.DeadLetterMaxAge, 0)
	orDuration(&t.IdempotencyWindow, 10*time.Minute)
}

// orDuration sets a duration that is not set.
func orDuration(d **durationpb.Duration, preset time.Duration) {
	if *d == nil {
		*d = durationpb.New(preset)
	}
}

// Produced returns the payloads of the messages that have appeared in a topic, in order. It returns
// nil for an unknown topic.
func (s *Server) Produced(topicName string) []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.tickLocked(time.Now())
	var all []string
	if t := s.topics[topicName]; t != nil {
		for _, m := range t.log {
			all = append(all, string(m.wire.GetPayload()))
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
	return int(g.total().GetAcked())
}

// Unsettled returns the number of messages that a group has not settled. Dead letters are settled,
// and so are messages that are not due yet. It returns 0 for an unknown topic or group.
func (s *Server) Unsettled(topicName, groupName string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.tickLocked(time.Now())
	g, err := s.groupLocked(topicName, groupName)
	if err != nil {
		return 0
	}
	return len(g.jobs)
}

// DeadLetters returns a group's dead letters, oldest first. It returns nil for an unknown topic or
// group.
func (s *Server) DeadLetters(topicName, groupName string) []*parleyv1.DeadLetter {
	s.mu.Lock()
	defer s.mu.Unlock()
	t := s.topics[topicName]
	if t == nil {
		return nil
	}
	var letters []*parleyv1.DeadLetter
	for _, d := range t.dead {
		if d.GetGroup() == groupName {
			letters = append(letters, d.DeadLetter)
		}
	}
	return letters
}

// LoseDeliveries takes all deliveries in flight from the sessions of a group, as if their ack
// timeouts had passed. The consumers are told. The messages are delivered again, or become dead
// letters if they have no attempts left.
func (s *Server) LoseDeliveries(topicName, groupName string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	g, err := s.groupLocked(topicName, groupName)
	if err != nil {
		return
	}
	for _, j := range slices.Clone(g.jobs) {
		if j.holder != nil {
			j.lose(parleyv1.LostDeliveries_CAUSE_ACK_TIMEOUT)
		}
	}
	s.wakeLocked()
}

// EndConsumers ends the live Consume and StreamingConsume streams of a group's sessions on this
// server with err, or resets them if err is nil. The sessions can be resumed.
func (s *Server) EndConsumers(topicName, groupName string, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, one := range s.sessionsLocked(topicName, groupName) {
		if one.stream != nil && one.stream.node == s {
			one.stream.end = &end{err: err, drop: err == nil}
		}
	}
	s.wakeLocked()
}

// EndSessions ends a group's sessions on all servers, as if they had been without contact for
// longer than their grace time. Their streams end with SESSION_LOST, and what they held is
// delivered to other sessions.
func (s *Server) EndSessions(topicName, groupName string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, one := range s.sessionsLocked(topicName, groupName) {
		if one.stream != nil {
			one.stream.end = &end{err: errSessionLost()}
		}
		one.loseAll(parleyv1.LostDeliveries_CAUSE_NO_CONTACT)
		s.removeSessionLocked(one)
		delete(s.ended, one.id)
	}
	s.wakeLocked()
}

func (s *shared) topicLocked(name string) (*topic, error) {
	if t := s.topics[name]; t != nil {
		return t, nil
	}
	return nil, noTopic("topic")
}

func noTopic(field string) error {
	return errorAt(connect.CodeNotFound, parleyv1.ErrorReason_ERROR_REASON_TOPIC_NOT_FOUND, field, 0)
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

// dropTopicLocked deletes a topic. The streams of its sessions end.
func (s *shared) dropTopicLocked(name string) {
	if t := s.topics[name]; t != nil {
		for _, g := range t.groups {
			s.dropGroupLocked(g, noTopic("topic"))
		}
		delete(s.topics, name)
	}
}

// dropGroupLocked deletes a group. The streams of its sessions end with err.
func (s *shared) dropGroupLocked(g *group, err error) {
	for _, one := range s.sessionsLocked(g.topic.settings.GetName(), g.settings.GetName()) {
		if one.stream != nil {
			one.stream.end = &end{err: err}
		}
		one.held = make(map[string]*job)
		s.removeSessionLocked(one)
	}
	delete(g.topic.groups, g.settings.GetName())
	g.topic.settings.Groups = slices.Sorted(maps.Keys(g.topic.groups))
	s.wakeLocked()
}

// count returns the counts of a partition.
func (t *topic) count(partition int32) *partitionCounts {
	if t.counted[partition] == nil {
		t.counted[partition] = &partitionCounts{}
	}
	return t.counted[partition]
}

// partition returns the partition of a message, which is the one that the real server would choose.
func (t *topic) partition(m *parleyv1.QueueMessage) int32 {
	n := t.settings.GetPartitions()
	by := m.GetKey()
	if by == "" || t.settings.GetPartitioner() == parleyv1.Partitioner_PARTITIONER_ROUND_ROBIN {
		by = cmp.Or(m.GetIdempotencyKey(), m.GetUnique().GetKey())
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

// appear appends a message that is due to the log, and to what each group has to do.
func (t *topic) appear(m *message) {
	if !m.due.IsZero() {
		m.at = m.due
		// Its position is the one at which it appears.
		t.seq++
		m.seq = t.seq
	}
	t.log = append(t.log, m)
	for _, g := range t.groups {
		g.jobs = append(g.jobs, g.newJob(m))
	}
}

// advance makes scheduled messages appear that are due at now. It returns when the next one is due,
// or the zero time if there is none.
func (t *topic) advance(now time.Time) time.Time {
	slices.SortStableFunc(t.later, func(a, b *message) int { return a.due.Compare(b.due) })
	for len(t.later) > 0 && !t.later[0].due.After(now) {
		m := t.later[0]
		t.later = t.later[1:]
		t.appear(m)
	}
	if len(t.later) > 0 {
		return t.later[0].due
	}
	return time.Time{}
}

// unsettled returns the jobs of the groups that have not settled a message.
func (t *topic) unsettled(m *message) []*job {
	var jobs []*job
	for _, name := range slices.Sorted(maps.Keys(t.groups)) {
		for _, j := range t.groups[name].jobs {
			if j.message.id == m.id {
				jobs = append(jobs, j)
			}
		}
	}
	return jobs
}

// newID returns the id of a new message, which begins with its partition.
func (t *topic) newID(partition int32, now time.Time) string {
	return fmt.Sprintf("%d-%013d-%d", partition, now.UnixMilli(), t.seq)
}
