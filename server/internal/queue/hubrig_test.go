package queue_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/parleyhq/parley/server/internal/fault"
	"github.com/parleyhq/parley/server/internal/lifecycle/lifecycletest"
	"github.com/parleyhq/parley/server/internal/queue"
	"github.com/parleyhq/parley/server/internal/store/redisqueue"
	"github.com/parleyhq/parley/server/internal/testkit"
)

// leaseTTL is the hubs' in tests; soon is how long anything may take that should happen, on a machine that is busy.
const (
	leaseTTL = time.Second
	soon     = 20 * time.Second
	group    = "workers"
)

// hubRig is one topic in a Redis of its own, or below TestOnACluster in the shared cluster.
type hubRig struct {
	t *testing.T
	// server is nil on a cluster.
	server  *testkit.RedisServer
	store   *redisqueue.Store
	catalog *queue.Catalog
	topic   *queue.Topic
	hubs    int
}

func newHubRig(t *testing.T, partitions int, change func(*queue.Topic)) *hubRig {
	t.Helper()
	r := &hubRig{t: t}
	r.store, r.server = testStore(t)
	r.catalog = queue.NewCatalog(r.store)
	r.topic = &queue.Topic{
		Name: "jobs", UID: "ABCDEFGHIJKLM", State: queue.Making, Partitions: partitions, Partitioner: queue.Hash,
		Retry:     queue.RetryPolicy{MaxAttempts: 5, MinBackoff: time.Millisecond, MaxBackoff: time.Millisecond},
		CreatedAt: time.Now(), IdempotencyWindow: time.Minute,
		Groups: []queue.Group{{Name: group}},
	}
	if change != nil {
		change(r.topic)
	}
	_, err := r.store.InsertTopic(t.Context(), r.topic)
	r.must(err)
	for p := range partitions {
		r.must(r.store.MakePartition(t.Context(), r.topic, p))
	}
	r.update(func(topic *queue.Topic) { topic.State = queue.Live })
	return r
}

func (r *hubRig) must(err error) {
	r.t.Helper()
	if err != nil {
		r.t.Fatal(err)
	}
}

// update changes the topic's settings.
func (r *hubRig) update(change func(*queue.Topic)) {
	r.t.Helper()
	stored, err := r.store.Topic(r.t.Context(), r.topic.Name)
	r.must(err)
	next := *stored
	change(&next)
	r.must(r.store.UpdateTopic(r.t.Context(), &next))
	r.topic, err = r.store.Topic(r.t.Context(), r.topic.Name)
	r.must(err)
}

// hub starts a node of its own. Its store goes through the faults, which may be nil.
func (r *hubRig) hub(f *faults, change ...func(*queue.HubConfig)) *queue.Hub {
	r.t.Helper()
	c := r.hubConfig()
	if f != nil {
		f.GroupStore = r.store
		c.Store = f
	}
	for _, fn := range change {
		fn(&c)
	}
	h := queue.NewHub(c)
	lifecycletest.Start(r.t, h)
	return h
}

// hubConfig gives the configuration of another node.
func (r *hubRig) hubConfig() queue.HubConfig {
	r.hubs++
	return queue.HubConfig{
		Store: r.store, Catalog: r.catalog, Node: fmt.Sprintf("NODE%09d", r.hubs), Secret: []byte("secret"), LeaseTTL: leaseTTL,
	}
}

// produce appends messages of a key to a partition; their payloads are numbered.
func (r *hubRig) produce(partition int, key string, from, n int) {
	r.t.Helper()
	var drafts []queue.Draft
	for i := range n {
		drafts = append(drafts, queue.Draft{Message: queue.Message{Key: key, Payload: []byte(strconv.Itoa(from + i))}})
	}
	_, err := r.store.Produce(r.t.Context(), r.topic, partition, drafts)
	r.must(err)
}

// groupStats gives the group's counters of a partition.
func (r *hubRig) groupStats(partition int) queue.GroupStats {
	r.t.Helper()
	s, err := r.store.Stats(r.t.Context(), r.topic, partition)
	r.must(err)
	return s.Groups[0]
}

// consumer is a session and what it was sent.
type consumer struct {
	r    *hubRig
	hub  *queue.Hub
	s    *queue.Session
	stop context.CancelFunc
	done chan struct{}

	mu         sync.Mutex
	deliveries []queue.Delivery
	partitions []int
	told       int
	beats      int
	err        error
}

func (r *hubRig) request() queue.OpenRequest {
	return queue.OpenRequest{Subject: "anna", Topic: r.topic.Name, Group: group, Consumer: "test", MaxMessages: 1000, AckTimeout: time.Minute}
}

func (r *hubRig) open(h *queue.Hub, change ...func(*queue.OpenRequest)) *consumer {
	r.t.Helper()
	req := r.request()
	for _, fn := range change {
		fn(&req)
	}
	s, err := h.Open(r.t.Context(), req)
	r.must(err)
	ctx, stop := context.WithCancel(context.Background())
	c := &consumer{r: r, hub: h, s: s, stop: stop, done: make(chan struct{})}
	go c.read(ctx)
	r.t.Cleanup(func() {
		s.Close()
		stop()
		<-c.done
	})
	return c
}

func (c *consumer) read(ctx context.Context) {
	defer close(c.done)
	for {
		f, err := c.s.Next(ctx)
		c.mu.Lock()
		if err != nil {
			c.err = err
			c.mu.Unlock()
			return
		}
		c.deliveries = append(c.deliveries, f.Deliveries...)
		if f.Assignment != nil {
			c.partitions = f.Assignment
			c.told++
		}
		if f.Heartbeat {
			c.beats++
		}
		c.mu.Unlock()
	}
}

// got gives all that was sent so far.
func (c *consumer) got() []queue.Delivery {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Clone(c.deliveries)
}

func (c *consumer) has() []int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.partitions
}

// wait waits until n messages were sent in all.
func (c *consumer) wait(n int) []queue.Delivery {
	c.r.t.Helper()
	testkit.Eventually(c.r.t, soon, func() error {
		if got := len(c.got()); got < n {
			return fmt.Errorf("%d of %d messages came", got, n)
		}
		return nil
	})
	return c.got()
}

// owns waits until the consumer has just n partitions.
func (c *consumer) owns(n int) {
	c.r.t.Helper()
	testkit.Eventually(c.r.t, soon, func() error {
		if has := c.has(); len(has) != n || has == nil {
			return fmt.Errorf("it has %v, not %d", has, n)
		}
		return nil
	})
}

// ends waits for the session's end, and gives its reason.
func (c *consumer) ends() fault.Reason {
	c.r.t.Helper()
	select {
	case <-c.done:
	case <-time.After(soon):
		c.r.t.Fatal("the session does not end")
	}
	e, ok := fault.As(c.err)
	if !ok {
		c.r.t.Fatalf("it ended with %v", c.err)
	}
	return e.Reason
}

// call makes a call about deliveries.
// ref names the consumer's stream.
func (c *consumer) ref() queue.StreamRef {
	return queue.StreamRef{StreamID: c.s.ID(), Subject: "anna", Topic: c.r.topic.Name, Group: group}
}

func tokensOf(deliveries []queue.Delivery) []string {
	tokens := make([]string, len(deliveries))
	for i := range deliveries {
		tokens[i] = deliveries[i].Token
	}
	return tokens
}

// tryAck acks deliveries and returns the items' errors, as tryNack and tryExtend do.
func (c *consumer) tryAck(deliveries ...queue.Delivery) []error {
	c.r.t.Helper()
	errs, err := c.hub.Ack(c.r.t.Context(), c.ref(), tokensOf(deliveries))
	c.r.must(err)
	return errs
}

func (c *consumer) tryNack(change func(*queue.Nack), deliveries ...queue.Delivery) []error {
	c.r.t.Helper()
	items := make([]queue.Nack, len(deliveries))
	for i := range deliveries {
		items[i].Token = deliveries[i].Token
		if change != nil {
			change(&items[i])
		}
	}
	errs, err := c.hub.Nack(c.r.t.Context(), c.ref(), items)
	c.r.must(err)
	return errs
}

func (c *consumer) tryExtend(deliveries ...queue.Delivery) []error {
	c.r.t.Helper()
	errs, err := c.hub.Extend(c.r.t.Context(), c.ref(), tokensOf(deliveries), 0)
	c.r.must(err)
	return errs
}

func (c *consumer) grant(messages, bytes int64) error {
	return c.hub.Grant(c.r.t.Context(), c.ref(), messages, bytes)
}

func (c *consumer) leave() {
	c.r.t.Helper()
	c.r.must(c.hub.Leave(c.r.t.Context(), c.ref()))
}

func (c *consumer) ack(deliveries ...queue.Delivery) {
	c.r.t.Helper()
	c.r.must(errors.Join(c.tryAck(deliveries...)...))
}

func (c *consumer) release(deliveries ...queue.Delivery) {
	c.r.t.Helper()
	c.r.must(errors.Join(c.tryNack(func(i *queue.Nack) { i.Release = true }, deliveries...)...))
}

// reasons gives the reasons of the errors, "" for none.
func reasons(errs []error) []fault.Reason {
	all := make([]fault.Reason, len(errs))
	for i, err := range errs {
		if e, ok := fault.As(err); ok {
			all[i] = e.Reason
		} else if err != nil {
			all[i] = fault.Reason(err.Error())
		}
	}
	return all
}

// want fails the test unless each of errs has the reason.
func (r *hubRig) want(reason fault.Reason, errs []error) {
	r.t.Helper()
	for _, got := range reasons(errs) {
		if got != reason {
			r.t.Fatalf("got %q, want %q", got, reason)
		}
	}
}

// texts gives what the messages say, with their attempts.
func texts(deliveries []queue.Delivery) string {
	var b strings.Builder
	for i := range deliveries {
		fmt.Fprintf(&b, "%s/%d ", deliveries[i].Payload, deliveries[i].Attempt)
	}
	return strings.TrimSpace(b.String())
}

// numbered gives what texts gives for messages from first on, all of one attempt.
func numbered(first, n, attempt int) string {
	var b strings.Builder
	for i := range n {
		fmt.Fprintf(&b, "%d/%d ", first+i, attempt)
	}
	return strings.TrimSpace(b.String())
}

func (r *hubRig) same(got, want string) {
	r.t.Helper()
	if got != want {
		r.t.Fatalf("got  %s\nwant %s", got, want)
	}
}

// faults stands between a hub and its store.
type faults struct {
	queue.GroupStore

	mu sync.Mutex
	// frozen is closed when a node that was stopped goes on; nil while it is not stopped.
	frozen chan struct{}
	// lose has the answers of the next n calls of a method lost; calls counts them all.
	lose  map[string]int
	calls map[string]int
	// claimed counts the entries that claims gave.
	claimed int
	// takeLate has the next Fetch not go out, but be taken as one whose outcome is not known; late sends it.
	// held is a method whose answers wait until release is closed; answered counts those that wait.
	late     func(context.Context) ([]queue.Entry, int, error)
	takeLate bool
	held     string
	release  chan struct{}
	answered int
}

// hold keeps back the answers of a method until the function that it gives is called.
func (f *faults) hold(method string) (release func()) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.held, f.release = method, make(chan struct{})
	return sync.OnceFunc(func() {
		f.mu.Lock()
		defer f.mu.Unlock()
		f.held = ""
		close(f.release)
	})
}

func (f *faults) waiting() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.answered
}

// answer waits while answers of the method are kept back.
func (f *faults) answer(method string) {
	f.mu.Lock()
	release := f.release
	held := f.held == method
	if held {
		f.answered++
	}
	f.mu.Unlock()
	if held {
		<-release
	}
}

// stop freezes the node: none of its calls goes out.
func (f *faults) stop() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.frozen = make(chan struct{})
}

func (f *faults) cont() {
	f.mu.Lock()
	defer f.mu.Unlock()
	close(f.frozen)
	f.frozen = nil
}

func (f *faults) losing(method string, n int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.lose = map[string]int{method: n}
}

func (f *faults) left(method string) int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.lose[method]
}

func (f *faults) count(method string) int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.calls[method]
}

func (f *faults) before(method string) {
	f.mu.Lock()
	if f.calls == nil {
		f.calls = map[string]int{}
	}
	f.calls[method]++
	frozen := f.frozen
	f.mu.Unlock()
	if frozen != nil {
		<-frozen
	}
}

func (f *faults) after(method string, err error) error {
	f.answer(method)
	f.mu.Lock()
	defer f.mu.Unlock()
	if err == nil && f.lose[method] > 0 {
		f.lose[method]--
		return fault.Wrap(queue.ErrUnknownOutcome, fault.Unavailable, fault.OutcomeUnknown, "lost")
	}
	return err
}

// detach gives a frozen call's context new life: a stopped process does not see time go by.
func detach(ctx context.Context) context.Context { return context.WithoutCancel(ctx) }

func (f *faults) Beat(ctx context.Context, topic, group string, mine []queue.Member, ttl time.Duration) ([]queue.Member, error) {
	f.before("Beat")
	members, err := f.GroupStore.Beat(detach(ctx), topic, group, mine, ttl)
	return members, f.after("Beat", err)
}

func (f *faults) Leave(ctx context.Context, topic, group string, sessionIDs []string) error {
	f.before("Leave")
	return f.after("Leave", f.GroupStore.Leave(detach(ctx), topic, group, sessionIDs))
}

func (f *faults) Leases(ctx context.Context, t *queue.Topic, group string) ([]queue.Lease, error) {
	f.before("Leases")
	leases, err := f.GroupStore.Leases(detach(ctx), t, group)
	return leases, f.after("Leases", err)
}

func (f *faults) Acquire(ctx context.Context, ref queue.Ref, group, holder string, ttl time.Duration) (queue.Lease, error) {
	f.before("Acquire")
	lease, err := f.GroupStore.Acquire(detach(ctx), ref, group, holder, ttl)
	return lease, f.after("Acquire", err)
}

func (f *faults) Renew(ctx context.Context, leases []queue.Lease, ttl time.Duration) []queue.Renewal {
	f.before("Renew")
	all := f.GroupStore.Renew(detach(ctx), leases, ttl)
	for i := range all {
		all[i].Err = f.after("Renew", all[i].Err)
	}
	return all
}

func (f *faults) Free(ctx context.Context, lease queue.Lease) error {
	f.before("Free")
	return f.after("Free", f.GroupStore.Free(detach(ctx), lease))
}

func (f *faults) Fetch(ctx context.Context, t *queue.Topic, lease queue.Lease, mark int64, n int) ([]queue.Entry, int, error) {
	f.before("Fetch")
	f.mu.Lock()
	if f.takeLate {
		f.takeLate = false
		f.late = func(ctx context.Context) ([]queue.Entry, int, error) {
			return f.GroupStore.Fetch(ctx, t, lease, mark, n)
		}
		f.mu.Unlock()
		return nil, 0, fault.Wrap(queue.ErrUnknownOutcome, fault.Unavailable, fault.OutcomeUnknown, "late")
	}
	f.mu.Unlock()
	entries, looked, err := f.GroupStore.Fetch(detach(ctx), t, lease, mark, n)
	if err = f.after("Fetch", err); err != nil {
		return nil, 0, err
	}
	return entries, looked, nil
}

func (f *faults) Claim(
	ctx context.Context, lease queue.Lease, place queue.Place, after queue.EntryID, n int,
) (queue.Claimed, error) {
	f.before("Claim")
	page, err := f.GroupStore.Claim(detach(ctx), lease, place, after, n)
	f.mu.Lock()
	f.claimed += len(page.Entries)
	f.mu.Unlock()
	if err = f.after("Claim", err); err != nil {
		return queue.Claimed{}, err
	}
	return page, nil
}

func (f *faults) Settle(ctx context.Context, t *queue.Topic, lease queue.Lease, settlements []queue.Settlement) error {
	f.before("Settle")
	return f.after("Settle", f.GroupStore.Settle(detach(ctx), t, lease, settlements))
}

// randomFor gives the test's own randomness, and tells its seed.
func randomFor(t *testing.T) *rand.Rand {
	t.Helper()
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	return rand.New(rand.NewPCG(seed, 0))
}
