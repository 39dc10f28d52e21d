package consume

import (
	"cmp"
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/parleyhq/parley/server/internal/fault"
	"github.com/parleyhq/parley/server/internal/lifecycle"
	"github.com/parleyhq/parley/server/internal/queue/qlog"
	"github.com/parleyhq/parley/server/internal/stream"
)

// lostAfter is how much longer than the consumer the server waits before a session without contact
// is lost, so that the consumer has cancelled its handlers by then.
const lostAfter = 2 * time.Second

// Topics finds topics; queue.Catalog does.
type Topics interface {
	// Topic returns a topic as it was at most two seconds ago. TOPIC_NOT_FOUND, STORE_UNAVAILABLE.
	Topic(ctx context.Context, name string) (*qlog.Topic, error)
}

// Hints tells nodes that a partition has new messages. A hint may be lost. Safe for concurrent use.
type Hints interface {
	// Listen calls fn for each hint of the topic until cancel. fn must not block.
	Listen(topic string, fn func(partition int)) (cancel func(), err error)
	// Connected reports whether hints arrive at present.
	Connected() bool
}

// Config configures a Service. Store, Topics, Nodes, Fleet, Node and Secret are required.
type Config struct {
	Store  qlog.Store
	Topics Topics
	Nodes  FleetStore
	Fleet  *Fleet
	Node   string
	// Secret is the fleet's; it protects the ids of sessions.
	Secret []byte
	// Hints may be nil: holders then look for messages four times a second.
	Hints Hints
	// Heartbeat is the longest time without a frame. Default 15 s.
	Heartbeat time.Duration
	// MaxStreams and MaxPerSubject bound the streams of this node; 0 means no bound.
	MaxStreams, MaxPerSubject int
	// Logger defaults to none.
	Logger *slog.Logger
}

// Service delivers messages to consumers on one node. Safe for concurrent use.
type Service struct {
	cfg     Config
	ids     SessionIDs
	streams *stream.Registry[*Stream]
	life    lifecycle.Base

	mu      sync.Mutex     // guards the fields below
	run     *lifecycle.Run // nil before Start
	engines map[string]*engine
}

// New creates a Service, which refuses streams until Start.
func New(cfg Config) *Service {
	cfg.Heartbeat = cmp.Or(cfg.Heartbeat, 15*time.Second)
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	return &Service{
		cfg: cfg, ids: NewSessionIDs(cfg.Secret), engines: map[string]*engine{},
		streams: stream.NewRegistry[*Stream](stream.Config{MaxStreams: cfg.MaxStreams, MaxPerSubject: cfg.MaxPerSubject, Plural: "consumers"}),
	}
}

// Start begins to accept streams. See lifecycle.Service.
func (s *Service) Start(ctx context.Context) error {
	return s.life.Start(ctx, func(_ context.Context, run *lifecycle.Run) error {
		s.mu.Lock()
		s.run = run
		s.mu.Unlock()
		s.streams.Open()
		run.OnStop(func(context.Context) error {
			for _, st := range s.streams.Refuse() {
				st.end(stream.ShuttingDown())
			}
			return nil
		})
		return nil
	})
}

// Stop ends all streams. Leases end when the beat of the node does.
func (s *Service) Stop(ctx context.Context) error { return s.life.Stop(ctx) }

// engine returns the engine of a group name, which it creates. It is nil before Start.
func (s *Service) engine(group string) *engine {
	s.mu.Lock()
	defer s.mu.Unlock()
	e := s.engines[group]
	if e == nil && s.run != nil {
		e = newEngine(s, group, s.run)
		s.engines[group] = e
		s.run.Go(e.work)
	}
	return e
}

// Open starts or resumes a session. It fails with TOPIC_NOT_FOUND, GROUP_NOT_FOUND, SESSION_LOST,
// NODE_FULL and SHUTTING_DOWN. The caller must Close the stream.
func (s *Service) Open(ctx context.Context, r OpenRequest) (*Stream, Started, error) {
	for _, name := range r.Topics {
		t, err := s.cfg.Topics.Topic(ctx, name)
		if err != nil {
			return nil, Started{}, err
		}
		if t.Group(r.Group) == nil {
			return nil, Started{}, fault.New(fault.NotFound, fault.GroupNotFound, "topic %s has no consumer group %s", name, r.Group)
		}
	}
	id := stream.Identity{ID: s.ids.New(r.Subject, r.Group), Subject: r.Subject, Expires: r.Expires}
	st, err := s.streams.AdmitAs(id, func(id stream.Identity) *Stream {
		return newStream(id, s.cfg.Heartbeat, func() time.Duration { return 0 })
	})
	if err != nil {
		return nil, Started{}, err
	}
	e := s.engine(r.Group)
	e.post(func(now time.Time) {
		ses := &session{
			id: id.ID, subject: r.Subject, consumer: r.Consumer, topics: r.Topics, state: Attached, since: now,
			concurrency: r.Concurrency, maxInFlight: max(r.MaxInFlight, r.Concurrency), maxBytes: r.MaxBytes,
			reportsBegun: r.ReportsBegun, stream: st, held: map[Token]*heldDelivery{},
		}
		e.sessions[ses.id] = ses
		for _, name := range r.Topics {
			e.topic(name).join(ses)
		}
	})
	return st, Started{SessionID: id.ID, Heartbeat: s.cfg.Heartbeat}, nil
}

// topic returns what the engine knows about a topic.
func (e *engine) topic(name string) *topic {
	t := e.topics[name]
	if t == nil {
		t = &topic{e: e, name: name, sessions: map[*session]bool{}}
		e.topics[name] = t
		t.listen()
	}
	return t
}

// Close ends a stream. Its session is kept for the grace time of its group, and what was not sent yet
// is given back.
func (s *Service) Close(st *Stream) {
	st.end(fault.New(fault.FailedPrecondition, fault.SessionLost, "the stream has ended"))
	if !s.streams.Remove(st.ID()) {
		return
	}
	group, ok := s.ids.Group(st.ID(), st.core.Subject)
	if !ok {
		return
	}
	e := s.engine(group)
	e.post(func(now time.Time) { e.detach(now, st) })
}

// detach notes that the stream of a session ended.
func (e *engine) detach(now time.Time, st *Stream) {
	s := e.sessions[st.ID()]
	if s == nil || s.stream != st {
		return
	}
	for _, token := range st.unsent() {
		e.release(s, token)
	}
	s.stream = nil
	if s.state == Attached {
		s.state, s.since = Detached, now
	}
	for _, h := range e.order {
		if h.phase == serving {
			h.d.Detach(s.id)
		}
	}
	grace := e.grace(s)
	s.grace = time.AfterFunc(grace+lostAfter, func() {
		e.post(func(now time.Time) { e.lost(now, s) })
	})
}

// grace is how long the session keeps what it holds: the longest of its topics' groups.
func (e *engine) grace(s *session) (longest time.Duration) {
	for _, name := range s.topics {
		if t := e.topics[name]; t != nil && t.settings != nil {
			if g := t.settings.Group(e.group); g != nil {
				longest = max(longest, g.ResumeGrace)
			}
		}
	}
	return longest
}

// lost ends a session whose grace time has passed.
func (e *engine) lost(now time.Time, s *session) {
	if e.sessions[s.id] != s || s.stream != nil {
		return
	}
	s.state = Gone
	for _, h := range e.order {
		if h.phase == serving {
			h.d.Lost(now, s.id)
		}
	}
	e.forget(s)
}

// Settle ends deliveries of a session. It returns a result for each: nil, or a fault. It returns after
// the results are durable. The error of the call is OUTCOME_UNKNOWN if ctx ends before.
func (s *Service) Settle(ctx context.Context, subject, sessionID string, items []Settlement) ([]error, error) {
	e, err := s.of(subject, sessionID)
	if err != nil {
		return nil, err
	}
	c := newCall(len(items))
	e.post(func(now time.Time) { e.settle(now, sessionID, items, c) })
	return c.wait(ctx)
}

// Extend restarts the ack timeouts of deliveries. It returns a result for each token: nil or a fault;
// none for all deliveries.
func (s *Service) Extend(ctx context.Context, subject, sessionID string, x Extension) ([]error, error) {
	e, err := s.of(subject, sessionID)
	if err != nil {
		return nil, err
	}
	c := newCall(len(x.Tokens))
	e.post(func(now time.Time) { e.extend(now, sessionID, x.Tokens, x.Begun, c) })
	return c.wait(ctx)
}

// Update changes the limits of a session, and when its stream ends. It returns when that is now: zero
// for never, or if there is none. SESSION_LOST.
func (s *Service) Update(_ context.Context, subject, sessionID string, _ Update) (expires time.Time, err error) {
	_, err = s.of(subject, sessionID)
	return expires, err
}

// Receive returns up to r.Max messages of a topic, as soon as there is one. It fails with
// TOPIC_NOT_FOUND, GROUP_NOT_FOUND, GROUP_EXCLUSIVE and SHUTTING_DOWN. The deliveries are the
// caller's even if the answer does not reach it.
func (s *Service) Receive(_ context.Context, _ ReceiveRequest) (Received, error) {
	return Received{}, stream.ShuttingDown()
}

// Leave ends a session gracefully: what no handler began goes to others at once, and the stream ends
// when the rest is settled.
func (s *Service) Leave(ctx context.Context, subject, sessionID string) error {
	e, err := s.of(subject, sessionID)
	if err != nil {
		return err
	}
	c := newCall(1)
	e.post(func(now time.Time) { c.done(0, e.leave(now, sessionID)) })
	results, err := c.wait(ctx)
	if err != nil {
		return err
	}
	return results[0]
}

func (e *engine) leave(now time.Time, sessionID string) error {
	s := e.sessions[sessionID]
	if s == nil {
		return sessionGone()
	}
	if s.state == Leaving {
		return nil
	}
	s.state, s.since = Leaving, now
	if s.stream != nil {
		for _, token := range s.stream.unsent() {
			e.release(s, token)
		}
	}
	for _, h := range e.order {
		if h.phase == serving {
			h.d.Leave(now, s.id)
		}
	}
	e.post(func(time.Time) { e.finishLeaving(s) }) // after what is not begun was given back
	return nil
}

func sessionGone() error {
	return fault.New(fault.FailedPrecondition, fault.SessionLost, "the session has ended")
}

// of returns the engine of a session.
func (s *Service) of(subject, sessionID string) (*engine, error) {
	group, ok := s.ids.Group(sessionID, subject)
	if !ok {
		return nil, sessionGone()
	}
	e := s.engine(group)
	if e == nil {
		return nil, stream.ShuttingDown()
	}
	return e, nil
}
