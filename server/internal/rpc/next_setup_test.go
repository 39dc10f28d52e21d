package rpc

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"connectrpc.com/connect"

	nextv1 "github.com/parleyhq/parley/gen/go/parley/next/v1"
	"github.com/parleyhq/parley/gen/go/parley/next/v1/nextv1connect"
	"github.com/parleyhq/parley/server/internal/fault"
	"github.com/parleyhq/parley/server/internal/lifecycle/lifecycletest"
	"github.com/parleyhq/parley/server/internal/queue/consume"
	"github.com/parleyhq/parley/server/internal/queue/qlog"
	"github.com/parleyhq/parley/server/internal/store/redislog"
	"github.com/parleyhq/parley/server/internal/testkit"
)

// storeTopics finds topics in a store.
type storeTopics struct{ store *redislog.Store }

func (s storeTopics) Topic(ctx context.Context, name string) (*qlog.Topic, error) {
	t, err := s.store.Topic(ctx, name)
	if err != nil {
		return nil, fault.Wrap(err, fault.NotFound, fault.TopicNotFound, "topic %s does not exist", name)
	}
	return t, nil
}

func (s storeTopics) Heal(ctx context.Context, t *qlog.Topic, partition int) error {
	return s.store.MakePartition(ctx, t, partition)
}

// nodeHints passes hints on within one node.
type nodeHints struct {
	mu        sync.Mutex
	listeners map[string][]func(partition int)
}

func (h *nodeHints) Listen(topic string, fn func(partition int)) (cancel func(), err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.listeners == nil {
		h.listeners = map[string][]func(int){}
	}
	h.listeners[topic] = append(h.listeners[topic], fn)
	return func() {}, nil
}

func (h *nodeHints) Connected() bool { return true }

// Ready calls the listeners of a topic.
func (h *nodeHints) Ready(topic string, partition int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, fn := range h.listeners[topic] {
		fn(partition)
	}
}

// nextBundle is a server of parley.next.v1 with a real store and consumers.
type nextBundle struct {
	*bundle

	store  *redislog.Store
	hints  *nodeHints
	topics map[string]*qlog.Topic
}

// nextSetup starts a server with these topics, each of which has 2 partitions and the group "work".
func nextSetup(t *testing.T, change func(*settings), names ...string) *nextBundle {
	t.Helper()
	store := redislog.NewStore(testkit.Redis(t).Client(t), redislog.StoreConfig{Prefix: "next:"})
	b := &nextBundle{store: store, hints: &nodeHints{}, topics: map[string]*qlog.Topic{}}
	for _, name := range names {
		b.create(t, name)
	}
	fleet := consume.NewFleet(consume.FleetConfig{Store: store, Node: "node"})
	service := consume.New(consume.Config{
		Store: store, Topics: storeTopics{store}, Nodes: store, Fleet: fleet, Node: "node", Secret: secret, Hints: b.hints, MaxPerSubject: 100,
	})
	lifecycletest.Start(t, fleet)
	lifecycletest.Start(t, service)
	b.bundle = setup(t, func(s *settings) {
		s.next = service
		if change != nil {
			change(s)
		}
	})
	return b
}

// create creates a topic in the store.
func (b *nextBundle) create(t *testing.T, name string) {
	t.Helper()
	topic := &qlog.Topic{
		Name: name, UID: "AAAAAAAAAAAAA", Version: 1, State: qlog.Making, Partitions: 2, Partitioner: qlog.ConsistentHash,
		Bounds: qlog.Bounds{Window: time.Minute}, CreatedAt: time.Now(), Groups: []qlog.Group{{
			Name: "work", AckTimeout: 30 * time.Second, Timeout: time.Minute, MaxRunTime: time.Hour, ResumeGrace: time.Minute,
			Retry: qlog.RetryPolicy{MaxAttempts: 3, MinBackoff: time.Millisecond, MaxBackoff: time.Millisecond},
		}},
	}
	_, err := b.store.InsertTopic(t.Context(), topic)
	for p := 0; p < topic.Partitions && err == nil; p++ {
		err = b.store.MakePartition(t.Context(), topic, p)
	}
	topic.State = qlog.Live
	if err == nil {
		err = b.store.UpdateTopic(t.Context(), topic)
	}
	if err != nil {
		t.Fatal(err)
	}
	b.topics[name] = topic
}

// put puts n messages with the key "k" into partition 1 of a topic.
func (b *nextBundle) put(t *testing.T, topic string, n int) {
	t.Helper()
	drafts := make([]qlog.Draft, n)
	for i := range drafts {
		drafts[i] = qlog.Draft{Key: "k", Body: bodyOf(t, "k", fmt.Sprint(topic, i), map[string]string{"h": "v"})}
	}
	results, err := b.store.Put(t.Context(), b.topics[topic].Ref(1), b.topics[topic].Bounds, qlog.Put{Drafts: drafts})
	for _, r := range results {
		if err == nil {
			err = r.Err
		}
	}
	if err != nil {
		t.Fatal(err)
	}
	b.hints.Ready(topic, 1)
}

func (b *nextBundle) client(protocol int, token string) nextv1connect.QueueServiceClient {
	hc, url, opts := b.over(protocol, token)
	return nextv1connect.NewQueueServiceClient(hc, url, opts...)
}

// each runs a subtest for every protocol, with a client that may do everything with queues, and
// with a topic of its own.
func (b *nextBundle) each(f func(t *testing.T, protocol int, topic string, c nextv1connect.QueueServiceClient)) {
	for i, p := range protocols {
		b.t.Run(p.name, func(t *testing.T) {
			topic := "of-" + p.name
			b.create(t, topic)
			f(t, i, topic, b.client(i, b.mintAs(operator("ada"))))
		})
	}
}

func consumes(topics ...string) *nextv1.ConsumeRequest {
	return &nextv1.ConsumeRequest{Topics: topics, Group: "work", Consumer: "c", Concurrency: 10}
}

// nextStream is a Consume stream whose first frame was received.
type nextStream struct {
	*connect.ServerStreamForClient[nextv1.ConsumeResponse]

	t       *testing.T
	started *nextv1.SessionStarted
	waiting []*nextv1.Delivery
}

func openNext(t *testing.T, c nextv1connect.QueueServiceClient, r *nextv1.ConsumeRequest) *nextStream {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	t.Cleanup(cancel)
	s, err := c.Consume(ctx, r)
	if err != nil {
		t.Fatal(err)
	}
	if !s.Receive() || s.Msg().GetStarted().GetSessionId() == "" {
		t.Fatalf("first frame %v, %v", s.Msg(), s.Err())
	}
	return &nextStream{ServerStreamForClient: s, t: t, started: s.Msg().GetStarted()}
}

// next returns the next delivery.
func (s *nextStream) next() *nextv1.Delivery {
	s.t.Helper()
	for len(s.waiting) == 0 {
		if !s.Receive() {
			s.t.Fatal(s.Err())
		}
		s.waiting = s.Msg().GetDeliveries().GetDeliveries()
	}
	d := s.waiting[0]
	s.waiting = s.waiting[1:]
	return d
}

// toldOf returns the results of a call, as told does.
func toldOf(results []*nextv1.SettleResult) []string {
	out := make([]string, len(results))
	for i, r := range results {
		out[i] = told(r.GetError())
	}
	return out
}
