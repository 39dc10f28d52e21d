package queues

import (
	"cmp"
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/parleyhq/parley/chaos"
	parleyv1 "github.com/parleyhq/parley/gen/go/parley/v1"
	"github.com/parleyhq/parley/internal/rig"
)

// Consumer configures a consumer. A consumer process reads it as a line of JSON from its input.
type Consumer struct {
	Name string `json:"name,omitempty"`
	// Addrs are the nodes that it connects to, one after another as streams end.
	Addrs []string `json:"addrs,omitempty"`
	Token string   `json:"token,omitempty"`
	// Secret, unless it is empty, signs tokens that are valid for TokenTTL each, instead of Token.
	Secret   []byte        `json:"secret,omitempty"`
	TokenTTL time.Duration `json:"token_ttl,omitempty"`
	Seed     uint64        `json:"seed,omitempty"`
	Topic    string        `json:"topic,omitempty"`
	Group    string        `json:"group,omitempty"`
	// Bidi settles deliveries on the stream. Otherwise they are settled by calls to any node.
	Bidi bool `json:"bidi,omitempty"`
	// SDK consumes through the SDK's Worker.
	SDK bool `json:"sdk,omitempty"`
	// Concurrency is how many messages the consumer handles at the same time. 0 means 20.
	Concurrency int `json:"concurrency,omitempty"`
	// InFlight is how many messages it holds at most. 0 means 100.
	InFlight int `json:"in_flight,omitempty"`
	// Forgets makes it start a new session with each stream, instead of resuming the last one.
	Forgets bool `json:"forgets,omitempty"`
	// Reports makes it report what it begins.
	Reports bool `json:"reports,omitempty"`
	// AckTimeout is the ack timeout of its deliveries. 0 means 5 s.
	AckTimeout time.Duration `json:"ack_timeout,omitempty"`
	// Work is the maximum time that the consumer spends on a batch of messages. 0 means none.
	Work time.Duration `json:"work,omitempty"`
	// Pause is how long it stops reading after a frame, one time in 20. 0 means never.
	Pause time.Duration `json:"pause,omitempty"`
	// Mortal makes the process end when it handles a lethal message.
	Mortal bool `json:"mortal,omitempty"`
	// Mended makes the consumer acknowledge every message at once, regardless of its mark.
	Mended bool `json:"mended,omitempty"`
}

// consumer is a running Consumer.
type consumer struct {
	Consumer

	out     sink
	clients []*client
	n       atomic.Int64
}

// workers is the number of goroutines of a consumer that settle deliveries.
const workers = 3

func (c *Consumer) setDefaults() {
	c.Concurrency, c.InFlight = cmp.Or(c.Concurrency, 20), cmp.Or(c.InFlight, 100)
	c.AckTimeout = cmp.Or(c.AckTimeout, 5*time.Second)
}

func newConsumer(c Consumer, out sink) *consumer {
	c.setDefaults()
	w := &consumer{Consumer: c, out: out}
	for _, addr := range c.Addrs {
		w.clients = append(w.clients, newClient(addr, c.Token))
	}
	return w
}

// run consumes on one stream after another until ctx ends. Streams that resume a session belong to
// one member.
func (w *consumer) run(ctx context.Context) {
	rng := chaos.Source(w.Seed, w.Name)
	var m *member
	for at := 0; ctx.Err() == nil; at++ {
		if m == nil {
			m = w.join(ctx, rng.Uint64())
		}
		if !m.consume(ctx, w.client(at)) || w.Forgets {
			m.end()
			m = nil
		}
		chaos.Sleep(ctx, 100*time.Millisecond+rand.N(200*time.Millisecond))
	}
	if m != nil {
		m.end()
	}
	for _, c := range w.clients {
		c.Close()
	}
}

// client returns the client for a node, by number, with a token that is valid.
func (w *consumer) client(n int) *client {
	c := w.clients[n%len(w.clients)]
	if len(w.Secret) == 0 {
		return c
	}
	token, err := rig.Token(w.Secret, "chaos", w.TokenTTL, nil)
	if err != nil {
		return c // impossible: the secret is the fleet's own
	}
	return c.with(token)
}

// member is a session of a consumer, with the deliveries that it has.
type member struct {
	*consumer

	todo chan *parleyv1.Delivery
	stop context.CancelFunc
	work sync.WaitGroup

	mu sync.Mutex // guards the fields below
	// id is "" before the first stream has begun.
	id      string
	resumes int64
	held    map[string]*parleyv1.Delivery // by token
	link    link                          // of the latest stream
	// contact is when contact was confirmed last, as far as is known, and grace how long the session
	// lives without.
	contact int64
	grace   time.Duration
}

// join starts the goroutines of a new member. It has no session yet.
func (w *consumer) join(ctx context.Context, seed uint64) *member {
	ctx, stop := context.WithCancel(ctx)
	m := &member{consumer: w, todo: make(chan *parleyv1.Delivery, 10_000), stop: stop, held: make(map[string]*parleyv1.Delivery)}
	for i := range workers {
		rng := rand.New(rand.NewPCG(seed, uint64(i)))
		m.work.Go(func() { m.settleAll(ctx, rng) })
	}
	return m
}

// end stops the member's goroutines. Its session ends on its own.
func (m *member) end() {
	m.stop()
	m.work.Wait()
}

// streaming is one stream of a member.
type streaming struct {
	*member

	info Stream
	// heard is when the stream last received a frame.
	heard atomic.Int64
}

// maxBytes bounds what each session holds, in bytes.
const maxBytes = 4 << 20

// consume consumes on one stream, until it ends. It reports whether the session may be resumed.
func (m *member) consume(ctx context.Context, c *client) bool {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	s := &streaming{member: m}
	s.heard.Store(now())
	start := m.request()
	s.info = Stream{
		ID: fmt.Sprintf("%s/s%d", m.Name, m.n.Add(1)), Client: m.Name, Addr: c.Addr, Topic: m.Topic, Group: m.Group, Asked: now(),
		Slow: m.Pause > 0, Concurrency: m.Concurrency, AckTimeout: m.AckTimeout, Reports: m.Reports, Session: start.GetResume().GetSessionId(),
		Resumes: start.GetResume().GetResumes(),
	}
	for _, held := range start.GetResume().GetHeld() {
		s.info.Held = append(s.info.Held, held.GetToken())
	}
	var l link = &unary{s: s}
	if m.Bidi {
		l = newBidi(s)
	}
	m.mu.Lock()
	m.link = l
	m.mu.Unlock()
	var wg sync.WaitGroup
	defer wg.Wait()
	defer cancel()
	wg.Go(func() { s.listen(ctx, cancel) })
	err := l.consume(c.Authorize(ctx), c, start)
	e := chaos.EndingOf(err)
	if s.info.Begin != 0 {
		s.info.End, s.info.Reason = now(), fmt.Sprintf("%s %s", e.Reason, e)
		info := s.info
		m.out.write(line{Stream: &info})
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	over := now()-m.contact >= int64(m.grace) && len(m.held) > 0
	return m.id != "" && !over && e.Reason != parleyv1.ErrorReason_ERROR_REASON_SESSION_LOST
}

// request returns the request of the next stream, which resumes the session if there is one.
func (m *member) request() *parleyv1.ConsumeRequest {
	req := &parleyv1.ConsumeRequest{
		Topics: []string{m.Topic}, Group: m.Group, Consumer: m.Name, Concurrency: int32(m.Concurrency), //nolint:gosec // few
		MaxInFlight: int32(m.InFlight), MaxInFlightBytes: maxBytes, //nolint:gosec // few
		AckTimeout: durationpb.New(m.AckTimeout), ReportsBegun: m.Reports,
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.id == "" {
		return req
	}
	m.resumes++
	req.Resume = &parleyv1.Resume{SessionId: m.id, Resumes: m.resumes}
	for token := range m.held {
		req.Resume.Held = append(req.Resume.Held, &parleyv1.HeldDelivery{Token: token, Begun: !m.Reports})
	}
	return req
}

// listen cancels a stream that has been silent for too long.
func (s *streaming) listen(ctx context.Context, cancel context.CancelFunc) {
	for chaos.Sleep(ctx, 100*time.Millisecond) {
		if now()-s.heard.Load() > int64(streamSilence+s.Pause) {
			cancel()
			return
		}
	}
}

// streamSilence is how long a stream may be silent before it counts as dead. The nodes send
// heartbeats every second.
const streamSilence = 2500 * time.Millisecond

// frame records a frame of the stream, and passes its deliveries on to the member's goroutines.
func (s *streaming) frame(ctx context.Context, f *parleyv1.ConsumeResponse) {
	at := now()
	s.heard.Store(at)
	for _, l := range s.info.noted(f, at) {
		s.out.write(l)
		s.mu.Lock()
		if l.Stream != nil {
			s.id, s.grace = l.Stream.Session, l.Stream.Grace
		}
		if l.Contact != nil {
			s.contact = max(s.contact, l.Contact.Confirmed)
		}
		s.mu.Unlock()
	}
	s.mu.Lock()
	for _, lost := range [][]string{f.GetStarted().GetLost().GetTokens(), f.GetLost().GetTokens()} {
		for _, token := range lost {
			delete(s.held, token)
		}
	}
	for _, d := range f.GetDeliveries().GetDeliveries() {
		s.held[d.GetToken()] = d
	}
	s.mu.Unlock()
	for _, d := range f.GetDeliveries().GetDeliveries() {
		select {
		case s.todo <- d:
		case <-ctx.Done():
		}
	}
	if s.Pause > 0 && len(f.GetDeliveries().GetDeliveries()) > 0 && rand.IntN(20) == 0 {
		chaos.Sleep(ctx, s.Pause)
		s.heard.Store(now())
	}
}

// noted returns what is recorded of a frame that came at a time. The first frame completes s.
func (s *Stream) noted(f *parleyv1.ConsumeResponse, at int64) []line {
	var lines []line
	switch {
	case f.GetStarted() != nil:
		first := f.GetStarted()
		fresh := s.Session == ""
		s.Session, s.Begin, s.Grace = first.GetSessionId(), at, first.GetResumeGrace().AsDuration()
		info := *s
		lines = append(lines, line{Stream: &info})
		if fresh {
			lines = append(lines, line{Contact: &Contact{Session: s.Session, At: at, Confirmed: at}})
		}
	case f.GetHeartbeat() != nil:
		ago := f.GetHeartbeat().GetUnconfirmed().AsDuration()
		lines = append(lines, line{Contact: &Contact{Session: s.Session, At: at, Confirmed: at - int64(ago)}})
	default:
	}
	for _, d := range f.GetDeliveries().GetDeliveries() {
		lines = append(lines, line{Delivery: newDelivery(s, d, at)})
	}
	return lines
}

// newDelivery returns the record of a delivery on a stream.
func newDelivery(s *Stream, d *parleyv1.Delivery, at int64) *Delivery {
	return &Delivery{
		At: at, Client: s.Client, Topic: s.Topic, Group: s.Group, Stream: s.ID, Session: s.Session, Token: d.GetToken(),
		MessageID: d.GetMessageId(), Partition: int(d.GetPartition()), Key: d.GetKey(), Mark: markOf(d.GetPayload()),
		Attempt: int(d.GetAttempt()), Gen: int(d.GetDelivery()),
	}
}
