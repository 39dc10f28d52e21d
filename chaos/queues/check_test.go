package queues

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/parleyhq/parley/chaos"
)

const sec = int64(time.Second)

// began is when every story begins.
const began = 1_000_000 * sec

// story is a correct history, for tests to break.
//
// In topic jobs (one partition, group a), m1 and m2 of key k are delivered to session s1 and
// acknowledged. m3 of key k is delivered to s1, which loses contact, and then to s2. m4 fails twice
// and is acknowledged. m5 is nacked to the dead letters. late is due at 20 s. In topic steps
// (strict order), n1 fails once, then n2 follows. s3 is a session of the SDK's worker w.
type story struct {
	h *History
	t *Truth
}

func newStory() *story {
	s := &story{
		h: &History{History: chaos.History{Began: began, Healed: began + 60*sec}, Topics: []Topic{
			{Name: jobs, Partitions: 1, Groups: []string{"a"}, Keeps: true, MaxAttempts: 3},
			{Name: steps, Partitions: 1, Groups: []string{"a"}, Strict: true, MaxAttempts: 3},
		}},
		t: &Truth{},
	}
	s.h.Workers = []string{"w"}
	session := func(id, client, addr, topic string, from, until int64) {
		s.h.Streams = append(s.h.Streams, Stream{
			ID: id, Session: id, Client: client, Addr: addr, Topic: topic, Group: "a", Asked: at(from), Begin: at(from), End: at(60),
			Concurrency: 20, AckTimeout: 30 * time.Second, Grace: 4 * time.Second,
		})
		for second := from; second <= until; second++ {
			s.h.Contacts = append(s.h.Contacts, Contact{Session: id, At: at(second), Confirmed: at(second)})
		}
	}
	session("s1", "c1", "n1", jobs, 0, 5)
	session("s2", "c2", "n2", jobs, 0, 60)
	session("s3", "w-1", "n1", steps, 0, 60)
	lease := func(topic, holder string, epoch, from, to int64) {
		s.h.Leases = append(s.h.Leases, Lease{Topic: topic, Group: "a", Holder: holder, Epoch: epoch, From: at(from), To: at(to)})
	}
	lease(jobs, "n1", 10, 0, 10)
	lease(jobs, "", 10, 10, 11)
	lease(jobs, "n2", 20, 11, 60)
	lease(steps, "n1", 10, 0, 60)
	for i, mark := range []string{"m1", "m2", "m3", "m4", "m5"} {
		key := "k"
		if i > 2 {
			key = mark
		}
		s.produce(jobs, mark, key, int64(i+1))
	}
	s.deliver(2, jobs, "s1", "m1", 1)
	s.settle(3, Ack, "s1", "m1", 1)
	s.deliver(2, jobs, "s1", "m2", 1)
	s.settle(3, Ack, "s1", "m2", 1)
	s.deliver(4, jobs, "s1", "m3", 1)
	s.deliver(12, jobs, "s2", "m3", 2)
	s.settle(13, Ack, "s2", "m3", 2)
	for attempt := 1; attempt <= 3; attempt++ {
		s.deliver(12+int64(attempt), jobs, "s2", "m4", attempt)
		kind := Nack
		if attempt == 3 {
			kind = Ack
		}
		s.settle(12+int64(attempt), kind, "s2", "m4", attempt)
	}
	s.deliver(15, jobs, "s2", "m5", 1)
	s.settle(15, Nack, "s2", "m5", 1).Dead = true
	s.schedule("late", 20)
	s.deliver(20, jobs, "s2", "late", 1)
	s.settle(21, Ack, "s2", "late", 1)
	s.produce(steps, "n1", "k", 1)
	s.produce(steps, "n2", "k", 2)
	s.deliver(2, steps, "s3", "n1", 1)
	s.settle(3, Nack, "s3", "n1", 1)
	s.deliver(4, steps, "s3", "n1", 2)
	s.settle(5, Ack, "s3", "n1", 2)
	s.deliver(6, steps, "s3", "n2", 1)
	s.settle(7, Ack, "s3", "n2", 1)
	s.store()
	return s
}

// at returns the time, in nanoseconds since 1970, of a second counted from the run's begin.
func at(second int64) int64 { return began + second*sec }

func id(n int64) string { return fmt.Sprintf("0-%d", 1_000_000_000_000+n) }

func (s *story) produce(topic, mark, key string, n int64) *Op {
	s.h.Ops = append(s.h.Ops, Op{
		ID: "p/" + mark, Client: "p", Kind: Produce, Begin: at(1), End: at(1) + n, Outcome: chaos.OK, Topic: topic, Mark: mark, Key: key,
		MessageID: id(n), DelayMS: none,
	})
	return &s.h.Ops[len(s.h.Ops)-1]
}

func (s *story) schedule(mark string, second int64) {
	s.h.Ops = append(s.h.Ops, Op{
		ID: "p/" + mark, Client: "p", Kind: Schedule, Begin: at(1), End: at(1) + 1, Outcome: chaos.OK, Topic: jobs, Mark: mark,
		MessageID: id(6) + "d", DelayMS: none, AtMS: at(second) / 1e6, DueMS: at(second) / 1e6,
	})
}

func (s *story) deliver(second int64, topic, stream, mark string, attempt int) *Delivery {
	key, client := "", ""
	for i := range s.h.Ops {
		if s.h.Ops[i].Mark == mark && s.h.Ops[i].Kind.produces() {
			key = s.h.Ops[i].Key
		}
	}
	for i := range s.h.Streams {
		if s.h.Streams[i].ID == stream {
			client = s.h.Streams[i].Client
		}
	}
	s.h.Deliveries = append(s.h.Deliveries, Delivery{
		At: at(second) + int64(len(s.h.Deliveries)), Client: client, Topic: topic, Group: "a", Stream: stream, Session: stream,
		Token: fmt.Sprintf("%s/%s/%d", stream, mark, attempt), MessageID: s.asked(mark).MessageID, Key: key, Mark: mark, Attempt: attempt, Gen: attempt,
	})
	return &s.h.Deliveries[len(s.h.Deliveries)-1]
}

func (s *story) settle(second int64, kind Kind, stream, mark string, attempt int) *Op {
	asked := *s.asked(mark)
	client, topic := stream, asked.Topic
	if stream == "s3" {
		client = "w-1"
		s.h.Handled = append(s.h.Handled, Handled{
			Begin: at(second) + 50, End: at(second) + 90, Client: client, Topic: topic, Group: "a", MessageID: asked.MessageID, Key: asked.Key,
			Mark: mark, Attempt: attempt, Kind: kind, DelayMS: none,
		})
	}
	s.h.Ops = append(s.h.Ops, Op{
		ID: fmt.Sprintf("%s/%s/%d", kind, mark, attempt), Client: client, Kind: kind, Begin: at(second) + 100, End: at(second) + 200,
		Outcome: chaos.OK, Topic: topic, Mark: mark, Group: "a", Session: stream, Token: fmt.Sprintf("%s/%s/%d", stream, mark, attempt),
		MessageID: asked.MessageID, Attempt: attempt, Gen: attempt, DelayMS: none,
	})
	return &s.h.Ops[len(s.h.Ops)-1]
}

// store sets the final contents of Redis to those of the unbroken story.
func (s *story) store() {
	entry := func(mark string, ord int64) Stored {
		op := s.asked(mark)
		return Stored{ID: fmt.Sprintf("%s-%d", op.MessageID[2:15], ord), MessageID: op.MessageID, Mark: mark, Key: op.Key}
	}
	var entries []Stored
	for i, mark := range []string{"m1", "m2", "m3", "m4", "m5", "late"} {
		entries = append(entries, entry(mark, int64(i+1)))
	}
	dead := entries[4]
	dead.Group, dead.Attempts, dead.Topic, dead.Reason = "a", 1, jobs, "requested by the test"
	s.t.Partitions = []Partition{
		{
			Topic: jobs, Ord: 6, Entries: entries, Dead: []Stored{dead},
			Groups: []Group{{Group: "a", Sent: "1000000000006-6", Stats: map[string]int64{"acked": 5, "dead": 1}}},
		},
		{Topic: steps, Ord: 2, Groups: []Group{{Group: "a", Sent: "1000000000002-2", Stats: map[string]int64{"acked": 2}}}},
	}
	s.t.Letters = []Stored{dead}
	for _, n := range s.t.spots() {
		s.t.Counts = append(s.t.Counts, n)
	}
	s.h.Counts = slices.Clone(s.t.Counts)
}

// unsettle makes the entry with an ordinal one that the group has not settled.
func (s *story) unsettle(ord int64) { s.group(jobs).Open = append(s.group(jobs).Open, ord) }

func (s *story) asked(mark string) *Op {
	for i := range s.h.Ops {
		if s.h.Ops[i].Mark == mark && s.h.Ops[i].Kind.produces() {
			return &s.h.Ops[i]
		}
	}
	panic("nobody asked for " + mark)
}

func (s *story) ended(mark string, attempt int) *Op {
	for i := range s.h.Ops {
		if op := &s.h.Ops[i]; op.Mark == mark && op.Attempt == attempt && op.Kind.settles() {
			return op
		}
	}
	panic("nobody ended " + mark)
}

func (s *story) given(mark string, attempt int) *Delivery {
	for i := range s.h.Deliveries {
		if d := &s.h.Deliveries[i]; d.Mark == mark && d.Attempt == attempt {
			return d
		}
	}
	panic("nobody was given " + mark)
}

// part returns a topic's only partition in its final state.
func (s *story) part(topic string) *Partition {
	for i := range s.t.Partitions {
		if s.t.Partitions[i].Topic == topic {
			return &s.t.Partitions[i]
		}
	}
	panic("no topic " + topic)
}

func (s *story) group(topic string) *Group { return &s.part(topic).Groups[0] }

// forget removes a message's acks from the history, and their count from Redis.
func (s *story) forget(mark string) {
	s.h.Ops = slices.DeleteFunc(s.h.Ops, func(op Op) bool { return op.Mark == mark && op.Kind == Ack })
	s.group(s.asked(mark).Topic).Stats["acked"]--
}

func (s *story) check() []chaos.Violation {
	slices.SortStableFunc(s.h.Deliveries, func(a, b Delivery) int { return int(a.At - b.At) })
	return Check(s.h, s.t)
}

func TestCheckFindsNothingInARightHistory(t *testing.T) {
	t.Parallel()
	for _, v := range newStory().check() {
		t.Error(v)
	}
}

func TestCheckFindsWhatIsWrong(t *testing.T) {
	t.Parallel()
	for _, w := range slices.Concat(wrongTaken, wrongGroups, wrongSessions, wrongCounts, wrongHandlers, wrongLooks) {
		t.Run(string(w.want)+"/"+w.name, func(t *testing.T) {
			t.Parallel()
			s := newStory()
			w.change(s)
			found := s.check()
			if !slices.ContainsFunc(found, func(v chaos.Violation) bool { return v.Name == w.want }) {
				t.Errorf("want %s, found %v", w.want, found)
			}
		})
	}
}

func TestCheckPassesOverWhatIsRight(t *testing.T) {
	t.Parallel()
	for _, r := range right {
		t.Run(r.name, func(t *testing.T) {
			t.Parallel()
			s := newStory()
			r.change(s)
			for _, v := range s.check() {
				t.Error(v)
			}
		})
	}
}
