package produce_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/parleyhq/parley/internal/rig"
	"github.com/parleyhq/parley/server/internal/fault"
	"github.com/parleyhq/parley/server/internal/queue/produce"
	"github.com/parleyhq/parley/server/internal/queue/qlog"
	"github.com/parleyhq/parley/server/internal/store/redislog"
)

// sharedRedis is a server that the tests share, each of which has keys of its own. It ends with the
// process.
var sharedRedis = rig.SharedRedis("produce")

var prefixes atomic.Int64

// bench is a topic on a real Redis with a service for producers.
type bench struct {
	*produce.Service

	t      testing.TB
	client *redis.Client
	prefix string
	store  *redislog.Store
	topics *topics
	hints  *hints
	fate   *canceller
}

// topics is a cache of topics that is only as new as the last Forget.
type topics struct {
	store *redislog.Store

	mu     sync.Mutex
	known  map[string]*qlog.Topic
	healed int
	err    error
}

func (s *topics) Topic(ctx context.Context, name string) (*qlog.Topic, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.err != nil {
		return nil, s.err
	}
	if t := s.known[name]; t != nil {
		return t, nil
	}
	t, err := s.store.Topic(ctx, name)
	if errors.Is(err, qlog.ErrNoTopic) {
		return nil, fault.New(fault.NotFound, fault.TopicNotFound, "no topic %s", name)
	}
	if err == nil {
		s.known[name] = t
	}
	return t, err
}

func (s *topics) Heal(ctx context.Context, t *qlog.Topic, partition int) error {
	s.mu.Lock()
	s.healed++
	s.mu.Unlock()
	return s.store.MakePartition(ctx, t, partition)
}

func (s *topics) Forget(name string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.known, name)
}

// hints counts the hints of each partition.
type hints struct {
	mu    sync.Mutex
	ready map[int]int
}

func (h *hints) Ready(topic string, partition int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if topic != "orders" {
		panic("a hint of topic " + topic)
	}
	h.ready[partition]++
}

func (h *hints) take() map[int]int {
	h.mu.Lock()
	defer h.mu.Unlock()
	ready := h.ready
	h.ready = map[int]int{}
	return ready
}

// canceller notes what it is to cancel in the log, as package consume would.
type canceller struct {
	mu        sync.Mutex
	cancelled map[string]bool
	errs      map[string]error
}

func (c *canceller) Cancel(_ context.Context, _ *qlog.Topic, partition int, ids []qlog.ID) ([]error, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	errs := make([]error, len(ids))
	for i, id := range ids {
		name := qlog.MessageID(partition, id, false)
		c.cancelled[name] = true
		errs[i] = c.errs[name]
	}
	return errs, nil
}

func newBench(tb testing.TB, partitions int, change func(*qlog.Topic)) *bench {
	tb.Helper()
	server, err := sharedRedis()
	if err != nil {
		tb.Fatal(err)
	}
	client := redis.NewClient(&redis.Options{
		Network: "unix", Addr: server.Addr(), MaxRetries: -1, ContextTimeoutEnabled: true, DialerRetries: 1,
	})
	tb.Cleanup(func() { _ = client.Close() })
	b := &bench{t: tb, client: client, prefix: fmt.Sprintf("produce%d:", prefixes.Add(1))}
	b.store = redislog.NewStore(client, redislog.StoreConfig{Prefix: b.prefix})
	b.topics = &topics{store: b.store, known: map[string]*qlog.Topic{}}
	b.hints = &hints{ready: map[int]int{}}
	b.fate = &canceller{cancelled: map[string]bool{}, errs: map[string]error{}}
	b.Service = b.service(b.store)
	b.create("AAAAAAAAAAAAA", partitions, change)
	return b
}

// service creates another service, as another node has one.
func (b *bench) service(store produce.Store) *produce.Service {
	return produce.New(produce.Config{Store: store, Topics: b.topics, Hints: b.hints, Canceller: b.fate})
}

// create creates the topic.
func (b *bench) create(uid string, partitions int, change func(*qlog.Topic)) {
	b.t.Helper()
	topic := &qlog.Topic{
		Name: "orders", UID: uid, Version: 1, Partitions: partitions, Partitioner: qlog.ConsistentHash,
		Bounds: qlog.Bounds{Window: time.Minute}, CreatedAt: time.Now(),
		Groups: []qlog.Group{{Name: "work", Retry: qlog.RetryPolicy{MaxAttempts: 3}}},
	}
	if change != nil {
		change(topic)
	}
	_, err := b.store.InsertTopic(b.t.Context(), topic)
	b.check(err)
	b.make(topic, 0)
	topic.State = qlog.Live
	b.check(b.store.UpdateTopic(b.t.Context(), topic))
}

// make makes the topic's partitions from one on.
func (b *bench) make(topic *qlog.Topic, from int) {
	b.t.Helper()
	for p := from; p < topic.Partitions; p++ {
		b.check(b.store.MakePartition(b.t.Context(), topic, p))
	}
}

// topic reads the topic.
func (b *bench) topic() *qlog.Topic {
	b.t.Helper()
	t, err := b.store.Topic(b.t.Context(), "orders")
	b.check(err)
	return t
}

// update changes the topic. The service's cache knows it at once.
func (b *bench) update(change func(*qlog.Topic)) {
	b.t.Helper()
	t := b.topic()
	before := t.Partitions
	change(t)
	b.make(t, before)
	b.check(b.store.UpdateTopic(b.t.Context(), t))
	t.Version++ // UpdateTopic stores the version after t's
	for p := range t.Partitions {
		b.check(b.store.MakePartition(b.t.Context(), t, p))
	}
	b.topics.Forget("orders")
}

func (b *bench) check(err error) {
	b.t.Helper()
	if err != nil {
		b.t.Fatal(err)
	}
}

// produce produces messages and fails the test if the call as a whole fails.
func (b *bench) produce(r produce.Request) produce.Response {
	b.t.Helper()
	r.Topic = "orders"
	response, err := b.Produce(b.t.Context(), r)
	b.check(err)
	if len(response.Results) != len(r.Messages) {
		b.t.Fatalf("%d results for %d messages", len(response.Results), len(r.Messages))
	}
	return response
}

// stored is produce that fails the test if a message is not stored, or was before.
func (b *bench) stored(r produce.Request) []produce.Result {
	b.t.Helper()
	results := b.produce(r).Results
	for i, r := range results {
		if r.Err != nil || r.Duplicate {
			b.t.Fatalf("message %d: %+v", i, r)
		}
	}
	return results
}

// repeated checks that results repeat earlier ones.
func (b *bench) repeated(first, again []produce.Result) {
	b.t.Helper()
	for i := range again {
		if again[i].Err != nil || !again[i].Duplicate || again[i].MessageID != first[i].MessageID || !again[i].Due.Equal(first[i].Due) {
			b.t.Fatalf("message %d: %+v, then %+v", i, first[i], again[i])
		}
	}
}

// log reads the entries of a partition.
func (b *bench) log(partition int) []qlog.Entry {
	b.t.Helper()
	t := b.topic()
	var all []qlog.Entry
	var after qlog.ID
	for {
		page, err := b.store.Read(b.t.Context(), t.Ref(partition), after, qlog.MaxReadEntries)
		b.check(err)
		if len(page) == 0 {
			return all
		}
		all = append(all, page...)
		after = page[len(page)-1].ID
	}
}

// total counts the entries of all partitions.
func (b *bench) total() (n int) {
	b.t.Helper()
	for p := range b.topic().Partitions {
		n += len(b.log(p))
	}
	return n
}

// messages makes messages whose payloads count up, with keys that repeat after keys; 0 is without.
func messages(n, keys int) []produce.Message {
	all := make([]produce.Message, n)
	for i := range all {
		all[i].Payload = fmt.Append(nil, i)
		if keys > 0 {
			all[i].Key = fmt.Sprint("k", i%keys)
		}
	}
	return all
}

var producerID = []byte("0123456789abcdef")

// reason returns the reason of a fault; empty if it is none.
func reason(err error) fault.Reason {
	if f, ok := fault.As(err); ok {
		return f.Reason
	}
	return ""
}
