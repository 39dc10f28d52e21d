package queue_test

import (
	"context"
	"errors"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/types/known/durationpb"

	parleyv1 "github.com/parleyhq/parley/gen/go/parley/v1"
	"github.com/parleyhq/parley/gen/go/parley/v1/parleyv1connect"
	parley "github.com/parleyhq/parley/sdk/go"
	queue "github.com/parleyhq/parley/sdk/go/queue"
)

// rig is a fake of the consumer's side of QueueService, on one or several nodes. It is no queue: a
// test scripts each stream, frame by frame. Only verdicts, extensions and Leave are answered on
// their own, unless script says otherwise. It works in a synctest bubble: connections are pipes.
type rig struct {
	parleyv1connect.UnimplementedQueueServiceHandler

	t     *testing.T
	conns chan *conn
	// script answers a request. nil answers success for each delivery; no answer at all if it
	// returns false. It is called under a lock.
	script func(c *conn, req *parleyv1.StreamingConsumeRequest) (*parleyv1.RequestResults, bool)

	scripting sync.Mutex // held to call script
	// slow is how long the answers to unary calls are under way.
	slow time.Duration

	mu     sync.Mutex // guards the fields below
	all    []*conn
	nodes  map[string]chan net.Conn
	unary  bool
	called []*parleyv1.StreamingConsumeRequest // requests of unary calls
}

// conn is one stream at a rig.
type conn struct {
	rig   *rig
	node  string
	token string
	// opened is when the stream was requested.
	opened time.Time
	start  *parleyv1.ConsumeRequest
	send   func(*parleyv1.StreamingConsumeResponse) error
	over   chan error
	// gone is closed when the stream is over on the server.
	gone chan struct{}

	mu       sync.Mutex // guards the fields below and sending
	requests []*parleyv1.StreamingConsumeRequest
	silent   bool
	isLive   bool
}

const (
	sessionID = "session-1"
	grace     = 10 * time.Second
)

// inBubble runs a test in a synctest bubble, with a StreamingConsume stream and with unary calls.
func inBubble(t *testing.T, test func(t *testing.T, g *rig)) {
	t.Helper()
	for _, unary := range []bool{false, true} {
		name := map[bool]string{false: "bidi", true: "unary"}[unary]
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) { test(t, newRig(t, unary, "a.test:80")) })
		})
	}
}

func newRig(t *testing.T, unary bool, nodes ...string) *rig {
	hang := time.AfterFunc(time.Hour, func() { panic(t.Name() + " hangs") }) // a bubble's time never ends
	t.Cleanup(func() { hang.Stop() })
	g := &rig{t: t, conns: make(chan *conn, 100), nodes: make(map[string]chan net.Conn), unary: unary}
	for _, node := range nodes {
		l := &pipes{conns: make(chan net.Conn), done: make(chan struct{})}
		g.nodes[node] = l.conns
		mux := http.NewServeMux()
		path, handler := parleyv1connect.NewQueueServiceHandler(g)
		mux.Handle(path, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			handler.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), nodeKey{}, node)))
		}))
		s := &http.Server{Handler: mux, Protocols: new(http.Protocols), ReadHeaderTimeout: time.Hour}
		s.Protocols.SetUnencryptedHTTP2(true)
		served := make(chan struct{})
		go func() { defer close(served); _ = s.Serve(l) }()
		t.Cleanup(func() { _ = s.Close(); <-served })
	}
	return g
}

type nodeKey struct{}

// pipes is a listener of in-memory connections.
type pipes struct {
	conns chan net.Conn
	done  chan struct{}
	once  sync.Once
}

func (p *pipes) Accept() (net.Conn, error) {
	select {
	case c := <-p.conns:
		return c, nil
	case <-p.done:
		return nil, net.ErrClosed
	}
}

func (p *pipes) Close() error   { p.once.Do(func() { close(p.done) }); return nil }
func (p *pipes) Addr() net.Addr { return &net.TCPAddr{} }

// client returns a client of all nodes.
func (g *rig) client(opts ...parley.Option) *parley.Client {
	g.t.Helper()
	transport := &http.Transport{
		Protocols: new(http.Protocols),
		DialContext: func(ctx context.Context, _, addr string) (net.Conn, error) {
			mine, its := net.Pipe()
			select {
			case g.nodes[addr] <- its:
				return mine, nil
			case <-ctx.Done():
				return nil, ctx.Err()
			}
		},
	}
	transport.Protocols.SetUnencryptedHTTP2(true)
	var addrs []string
	for node := range g.nodes {
		addrs = append(addrs, node)
	}
	slices.Sort(addrs)
	all := append([]parley.Option{
		parley.WithHTTPClient(&http.Client{Transport: transport}), parley.WithToken("tester"),
		parley.WithBackoff(parley.Backoff{Base: 10 * time.Millisecond, Max: 50 * time.Millisecond}),
	}, opts...)
	c, err := parley.New(strings.Join(addrs, ","), all...)
	if err != nil {
		g.t.Fatalf("new client: %v", err)
	}
	g.t.Cleanup(transport.CloseIdleConnections)
	return c
}

// running is a worker whose Run was called.
type running struct {
	*queue.Worker

	stop context.CancelFunc
	done chan struct{}
	err  error
}

// run runs a worker of the topic `jobs` until the test ends or stop is called.
func (g *rig) run(h queue.Handler, opts ...queue.WorkerOption) *running {
	return g.runWith(g.client(), h, opts...)
}

func (g *rig) runWith(c *parley.Client, h queue.Handler, opts ...queue.WorkerOption) *running {
	if g.unary {
		opts = append(opts, queue.WithUnaryCalls())
	}
	return g.start(queue.NewWorker(c, "g", opts...).Handle("jobs", h))
}

func (g *rig) start(worker *queue.Worker) *running {
	ctx, stop := context.WithCancel(context.WithoutCancel(g.t.Context()))
	w := &running{Worker: worker, stop: stop, done: make(chan struct{})}
	go func() {
		defer close(w.done)
		w.err = w.Run(ctx)
	}()
	g.t.Cleanup(func() {
		stop()
		<-w.done
	})
	return w
}

// finish stops a worker and returns the error of Run.
func (w *running) finish() error {
	w.stop()
	<-w.done
	return w.err
}

// next waits for the next stream.
func (g *rig) next() *conn {
	g.t.Helper()
	return <-g.conns
}

// live waits for the next stream and sends its first frame.
func (g *rig) live() *conn {
	g.t.Helper()
	c := g.next()
	c.live(&parleyv1.SessionStarted{})
	return c
}

// live sends the first frame. From then on the stream sends heartbeats, unless it is silent.
func (c *conn) live(first *parleyv1.SessionStarted) {
	if first.GetSessionId() == "" {
		first.SessionId = sessionID
	}
	first.HeartbeatInterval, first.ResumeGrace = durationpb.New(15*time.Second), durationpb.New(grace)
	c.frame(&parleyv1.ConsumeResponse{Frame: &parleyv1.ConsumeResponse_Started{Started: first}})
	c.mu.Lock()
	c.isLive = true
	c.mu.Unlock()
}

func (c *conn) frame(f *parleyv1.ConsumeResponse) {
	c.mu.Lock()
	defer c.mu.Unlock()
	_ = c.send(&parleyv1.StreamingConsumeResponse{Frame: &parleyv1.StreamingConsumeResponse_Consume{Consume: f}})
}

func (c *conn) results(r *parleyv1.RequestResults) {
	c.mu.Lock()
	defer c.mu.Unlock()
	_ = c.send(&parleyv1.StreamingConsumeResponse{Frame: &parleyv1.StreamingConsumeResponse_Results{Results: r}})
}

// deliver sends a delivery for each token. A token `k:1` has the key k.
func (c *conn) deliver(tokens ...string) {
	batch := &parleyv1.DeliveryBatch{}
	for _, token := range tokens {
		key, _, _ := strings.Cut(token, ":")
		if key == token {
			key = ""
		}
		batch.Deliveries = append(batch.Deliveries, &parleyv1.Delivery{
			Token: token, MessageId: "id-" + token, Topic: "jobs", Key: key, Payload: []byte(token), Attempt: 1,
		})
	}
	c.deliverAll(batch.GetDeliveries()...)
}

func (c *conn) deliverAll(all ...*parleyv1.Delivery) {
	c.frame(&parleyv1.ConsumeResponse{Frame: &parleyv1.ConsumeResponse_Deliveries{Deliveries: &parleyv1.DeliveryBatch{Deliveries: all}}})
}

func (c *conn) heartbeat(unconfirmed time.Duration) { c.lateHeartbeat(unconfirmed, 0) }

// lateHeartbeat sends a heartbeat as if it had been under way for some time.
func (c *conn) lateHeartbeat(unconfirmed, late time.Duration) {
	c.frame(&parleyv1.ConsumeResponse{Frame: &parleyv1.ConsumeResponse_Heartbeat{Heartbeat: &parleyv1.SessionHeartbeat{
		Unconfirmed: durationpb.New(unconfirmed), Elapsed: durationpb.New(time.Since(c.opened) - late),
	}}})
}

func (c *conn) lost(cause parleyv1.LostDeliveries_Cause, tokens ...string) {
	c.frame(&parleyv1.ConsumeResponse{Frame: &parleyv1.ConsumeResponse_Lost{Lost: &parleyv1.LostDeliveries{Tokens: tokens, Cause: cause}}})
}

// end ends the stream on the server.
func (c *conn) end(err error) {
	select {
	case c.over <- err:
		<-c.gone
	case <-c.gone:
	}
}

// hush stops the heartbeats.
func (c *conn) hush() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.silent = true
}

// got returns the requests so far of the stream, or of unary calls, without begun marks; and those.
func (c *conn) got() (requests, marks []*parleyv1.StreamingConsumeRequest) {
	synctest.Wait()
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, r := range c.requests {
		if r.GetExtend().GetBegun() {
			marks = append(marks, r)
		} else {
			requests = append(requests, r)
		}
	}
	return requests, marks
}

// verdicts returns what the worker decided about deliveries, in order: `ack a`, `retry b`,
// `dead c code`, `release d`, and `leave`.
func (c *conn) verdicts() []string {
	requests, _ := c.got()
	var all []string
	for _, r := range requests {
		for _, token := range r.GetAck().GetTokens() {
			all = append(all, "ack "+token)
		}
		for _, n := range r.GetNack().GetItems() {
			all = append(all, nacked(n))
		}
		if r.GetLeave() != nil {
			all = append(all, "leave")
		}
	}
	return all
}

func nacked(n *parleyv1.NackItem) string {
	what := "retry "
	switch {
	case n.GetDeadLetter() != nil:
		what = "dead "
	case n.GetRelease() != nil:
		what = "release "
	}
	return strings.TrimSpace(what + n.GetToken() + " " + n.GetCode())
}

func statusError(code connect.Code, reason parleyv1.ErrorReason) error {
	err := connect.NewError(code, errors.New("scripted"))
	detail, detailErr := connect.NewErrorDetail(&parleyv1.ErrorDetail{Reason: reason})
	if detailErr == nil {
		err.AddDetail(detail)
	}
	return err
}

func refused(reason parleyv1.ErrorReason) *parleyv1.SettleResult {
	return &parleyv1.SettleResult{Error: itemError(parleyv1.StatusCode_STATUS_CODE_FAILED_PRECONDITION, reason)}
}
