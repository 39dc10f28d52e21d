package rpc

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"connectrpc.com/connect"

	parleyv1 "github.com/parleyhq/parley/gen/go/parley/v1"
	"github.com/parleyhq/parley/gen/go/parley/v1/parleyv1connect"
	"github.com/parleyhq/parley/server/internal/lifecycle/lifecycletest"
	"github.com/parleyhq/parley/server/internal/queue/consume"
	"github.com/parleyhq/parley/server/internal/queue/inspect"
	"github.com/parleyhq/parley/server/internal/queue/produce"
	"github.com/parleyhq/parley/server/internal/queue/qlog"
	"github.com/parleyhq/parley/server/internal/queue/topics"
	"github.com/parleyhq/parley/server/internal/store/redislog"
	"github.com/parleyhq/parley/server/internal/testkit"
)

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

// queueBundle is a server of parley.v1 with a real store and consumers.
type queueBundle struct {
	*bundle

	store *redislog.Store
	hints *nodeHints
	admin *topics.Admin
	// producers is what the server's handlers use.
	producers *produce.Service
}

// queueSetup starts a server with these topics, each of which has 2 partitions and the group
// "work".
func queueSetup(t *testing.T, change func(*settings), names ...string) *queueBundle {
	t.Helper()
	store := redislog.NewStore(testkit.Redis(t).Client(t), redislog.StoreConfig{Prefix: "next:"})
	catalog := topics.NewCatalog(topics.CatalogConfig{Store: store})
	b := &queueBundle{
		store: store, hints: &nodeHints{}, admin: topics.NewAdmin(topics.AdminConfig{Store: store, Leases: store, Catalog: catalog}),
	}
	for _, name := range names {
		b.create(t, name)
	}
	fleet := consume.NewFleet(consume.FleetConfig{Store: store, Node: "node"})
	service := consume.New(consume.Config{
		Store: store, Topics: catalog, Nodes: store, Fleet: fleet, Node: "node", Secret: secret, Hints: b.hints, MaxPerSubject: 100,
	})
	lifecycletest.Start(t, fleet)
	lifecycletest.Start(t, service)
	b.producers = produce.New(produce.Config{Store: store, Topics: catalog, Hints: b.hints})
	inspector := inspect.New(inspect.Config{
		Store: store, Topics: catalog, Consumers: service, Digest: consume.Digest, Producer: LetterProducer{b.producers}, Hints: b.hints,
		Local: service.LocalTopics,
	})
	lifecycletest.Start(t, inspector)
	b.bundle = setup(t, func(s *settings) {
		s.consumers, s.topics, s.producers, s.inspector = service, b.admin, b.producers, inspector
		if change != nil {
			change(s)
		}
	})
	return b
}

// create creates a topic.
func (b *queueBundle) create(t *testing.T, name string) {
	t.Helper()
	_, err := b.admin.CreateTopic(t.Context(), qlog.Topic{Name: name, Partitions: 2})
	if err == nil {
		_, err = b.admin.CreateGroup(t.Context(), name, qlog.Group{
			Name: "work", AckTimeout: 30 * time.Second, Timeout: time.Minute, MaxRunTime: time.Hour, ResumeGrace: time.Minute,
			Retry: qlog.RetryPolicy{MaxAttempts: 3, MinBackoff: time.Millisecond, MaxBackoff: time.Millisecond},
		})
	}
	if err != nil {
		t.Fatal(err)
	}
}

// put puts n messages with the key "k" into partition 1 of a topic.
func (b *queueBundle) put(t *testing.T, topic string, n int) {
	t.Helper()
	drafts := make([]qlog.Draft, n)
	for i := range drafts {
		drafts[i] = qlog.Draft{Key: "k", Body: bodyOf(t, "k", fmt.Sprint(topic, i), map[string]string{"h": "v"})}
	}
	to, err := b.admin.Topic(t.Context(), topic)
	if err != nil {
		t.Fatal(err)
	}
	results, err := b.store.Put(t.Context(), to.Ref(1), to.Bounds, qlog.Put{Drafts: drafts})
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

func (b *queueBundle) client(protocol int, token string) parleyv1connect.QueueServiceClient {
	hc, url, opts := b.over(protocol, token)
	return parleyv1connect.NewQueueServiceClient(hc, url, opts...)
}

// each runs a subtest for every protocol, with a client that may do everything with queues, and
// with a topic of its own.
func (b *queueBundle) each(f func(t *testing.T, protocol int, topic string, c parleyv1connect.QueueServiceClient)) {
	for i, p := range protocols {
		b.t.Run(p.name, func(t *testing.T) {
			topic := "of-" + p.name
			b.create(t, topic)
			f(t, i, topic, b.client(i, b.mintAs(operator("ada"))))
		})
	}
}

func consumes(topics ...string) *parleyv1.ConsumeRequest {
	return &parleyv1.ConsumeRequest{Topics: topics, Group: "work", Consumer: "c", Concurrency: 10}
}

// openedSession is a Consume stream whose first frame was received.
type openedSession struct {
	*connect.ServerStreamForClient[parleyv1.ConsumeResponse]

	t       *testing.T
	started *parleyv1.SessionStarted
	waiting []*parleyv1.Delivery
}

func openSession(t *testing.T, c parleyv1connect.QueueServiceClient, r *parleyv1.ConsumeRequest) *openedSession {
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
	return &openedSession{ServerStreamForClient: s, t: t, started: s.Msg().GetStarted()}
}

// next returns the next delivery.
func (s *openedSession) next() *parleyv1.Delivery {
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
func toldOf(results []*parleyv1.SettleResult) []string {
	out := make([]string, len(results))
	for i, r := range results {
		out[i] = told(r.GetError())
	}
	return out
}
