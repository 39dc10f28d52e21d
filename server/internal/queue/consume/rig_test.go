package consume_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"google.golang.org/protobuf/encoding/protowire"

	"github.com/parleyhq/parley/internal/rig"
	"github.com/parleyhq/parley/server/internal/fault"
	"github.com/parleyhq/parley/server/internal/queue/consume"
	"github.com/parleyhq/parley/server/internal/queue/dispatch"
	"github.com/parleyhq/parley/server/internal/queue/qlog"
	"github.com/parleyhq/parley/server/internal/store/redislog"
)

// sharedRedis is a server that the tests share, each of which has keys of its own. It ends with the
// process.
var sharedRedis = rig.SharedRedis("consume")

var prefixes atomic.Int64

// topics is a source of topics that reads the store, and remembers what it read.
type topics struct {
	store *flakyStore
	known sync.Map
}

func (s *topics) Topic(ctx context.Context, name string) (*qlog.Topic, error) {
	if s.store.away.Load() {
		return nil, errAway
	}
	t, err := s.store.Topic(ctx, name)
	if errors.Is(err, qlog.ErrNoTopic) {
		return nil, fault.New(fault.NotFound, fault.TopicNotFound, "there is no topic %s", name)
	}
	if err == nil {
		s.known.Store(name, t)
	}
	return t, err
}

func (s *topics) Known(name string) *qlog.Topic {
	t, _ := s.known.Load(name)
	known, _ := t.(*qlog.Topic)
	return known
}

func (s *topics) Heal(ctx context.Context, t *qlog.Topic, partition int) error {
	return s.store.MakePartition(ctx, t, partition)
}

// bench is a topic with a group on a real Redis, and the nodes that work on it.
type bench struct {
	t     *testing.T
	store *redislog.Store
	redis *redis.Client
	// prefix is that of the keys.
	prefix string
	topic  *qlog.Topic
	nodes  []*node
	net    network
	// metrics are those of the nodes that are started next; nil for none.
	metrics *consume.Metrics
}

// node is one node of the fleet, without a transport.
type node struct {
	*consume.Service

	name  string
	fleet *consume.Fleet
	store *flakyStore
}

// flakyStore is a store that can be away for one node.
type flakyStore struct {
	*redislog.Store

	away atomic.Bool
	// reads counts those that failed.
	reads atomic.Int64
}

var errAway = fault.New(fault.Unavailable, fault.StoreUnavailable, "the store is away")

func (s *flakyStore) Commit(ctx context.Context, ref qlog.GroupRef, c *qlog.Commit) (qlog.Committed, error) {
	if s.away.Load() {
		return qlog.Committed{}, errAway
	}
	return s.Store.Commit(ctx, ref, c)
}

func (s *flakyStore) Read(ctx context.Context, ref qlog.Ref, after qlog.ID, n int) ([]qlog.Entry, error) {
	if s.away.Load() {
		s.reads.Add(1)
		return nil, errAway
	}
	return s.Store.Read(ctx, ref, after, n)
}

func (s *flakyStore) Lease(ctx context.Context, ref qlog.GroupRef) (string, int64, error) {
	if s.away.Load() {
		return "", 0, errAway
	}
	return s.Store.Lease(ctx, ref)
}

func (s *flakyStore) Beat(ctx context.Context, node string, ttl time.Duration) (time.Time, []consume.Beat, error) {
	if s.away.Load() {
		return time.Time{}, nil, errAway
	}
	return s.Store.Beat(ctx, node, ttl)
}

func newBench(t *testing.T, partitions, nodes int, change func(*qlog.Group)) *bench {
	t.Helper()
	server, err := sharedRedis()
	if err != nil {
		t.Fatal(err)
	}
	client := redis.NewClient(&redis.Options{
		Network: "unix", Addr: server.Addr(), MaxRetries: -1, ContextTimeoutEnabled: true, DialerRetries: 1,
	})
	t.Cleanup(func() { _ = client.Close() })
	b := &bench{t: t, redis: client, prefix: fmt.Sprintf("consume%d:", prefixes.Add(1))}
	b.store = redislog.NewStore(client, redislog.StoreConfig{Prefix: b.prefix})
	group := qlog.Group{
		Name: "work", Retry: qlog.RetryPolicy{MaxAttempts: 3, MinBackoff: 10 * time.Millisecond, MaxBackoff: 100 * time.Millisecond},
		AckTimeout: 30 * time.Second, Timeout: time.Minute, MaxRunTime: time.Hour, ResumeGrace: time.Second,
	}
	if change != nil {
		change(&group)
	}
	b.topic = &qlog.Topic{
		Name: "orders", UID: "AAAAAAAAAAAAA", Version: 1, Partitions: partitions, Partitioner: qlog.ConsistentHash,
		Bounds: qlog.Bounds{Window: time.Minute}, CreatedAt: time.Now(), Groups: []qlog.Group{group},
	}
	b.topic.State = qlog.Making
	if _, err := b.store.InsertTopic(t.Context(), b.topic); err != nil {
		t.Fatal(err)
	}
	for p := range partitions {
		if err := b.store.MakePartition(t.Context(), b.topic, p); err != nil {
			t.Fatal(err)
		}
	}
	b.topic.State = qlog.Live
	if err := b.store.UpdateTopic(t.Context(), b.topic); err != nil {
		t.Fatal(err)
	}
	for i := range nodes {
		b.nodes = append(b.nodes, b.start(fmt.Sprintf("node%d", i)))
	}
	return b
}

func (b *bench) start(name string) *node {
	b.t.Helper()
	store := &flakyStore{Store: b.store}
	fleet := consume.NewFleet(consume.FleetConfig{Store: store, Node: name})
	n := &node{name: name, fleet: fleet, store: store, Service: consume.New(consume.Config{
		Metrics: b.metrics, Peers: &peers{&b.net, name}, Entries: b.store, Store: store, Topics: &topics{store: store}, Nodes: b.store, Fleet: fleet, Node: name, Secret: []byte("secret"), Logger: slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelDebug})),
	})}
	for _, s := range []interface{ Start(context.Context) error }{fleet, n.Service} {
		if err := s.Start(b.t.Context()); err != nil {
			b.t.Fatal(err)
		}
	}
	<-fleet.Ready()
	b.net.add(n)
	b.t.Cleanup(func() {
		for _, s := range []interface{ Stop(context.Context) error }{n.Service, fleet} {
			if err := s.Stop(context.WithoutCancel(b.t.Context())); err != nil {
				b.t.Error(err)
			}
		}
	})
	return n
}

// put appends n messages to a partition, whose keys repeat after keys; 0 is without keys.
func (b *bench) put(partition, n, keys int) {
	b.t.Helper()
	drafts := make([]qlog.Draft, n)
	for i := range drafts {
		if keys > 0 {
			drafts[i].Key = fmt.Sprintf("k%d", i%keys)
		}
		drafts[i].Body = body(drafts[i].Key, fmt.Sprint(i))
	}
	for len(drafts) > 0 {
		some := drafts[:min(len(drafts), 500)]
		results, err := b.store.Put(b.t.Context(), b.topic.Ref(partition), b.topic.Bounds, qlog.Put{Drafts: some})
		if err != nil {
			b.t.Fatal(err)
		}
		for _, r := range results {
			if r.Err != nil {
				b.t.Fatal(r.Err)
			}
		}
		drafts = drafts[len(some):]
	}
}

// body encodes a message as fields of Delivery.
func body(key, payload string) []byte {
	var b []byte
	if key != "" {
		b = protowire.AppendString(protowire.AppendTag(b, 4, protowire.BytesType), key)
	}
	return protowire.AppendString(protowire.AppendTag(b, 5, protowire.BytesType), payload)
}

func (b *bench) open(n *node, concurrency int) *consume.Stream {
	b.t.Helper()
	s, _, err := n.Open(b.t.Context(), consume.OpenRequest{
		Subject: "alice", Topics: []string{"orders"}, Group: "work", Consumer: "c", Concurrency: concurrency,
		MaxInFlight: concurrency, MaxBytes: 1 << 20,
	})
	if err != nil {
		b.t.Fatal(err)
	}
	return s
}

func verdicts(ds []consume.Delivery, v dispatch.Verdict) []consume.Settlement {
	items := make([]consume.Settlement, len(ds))
	for i := range ds {
		items[i] = consume.Settlement{Token: ds[i].Token, Verdict: v}
	}
	return items
}

// settle ends deliveries and fails the test unless all were settled.
func (b *bench) settle(n *node, s *consume.Stream, items []consume.Settlement) {
	b.t.Helper()
	errs, err := n.Settle(b.t.Context(), "alice", s.ID(), items)
	if err != nil {
		b.t.Error(err)
	}
	for _, err := range errs {
		if err != nil {
			b.t.Error(err)
		}
	}
}
