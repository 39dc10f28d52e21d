package consume

import (
	"cmp"
	"context"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/parleyhq/parley/server/internal/fault"
	"github.com/parleyhq/parley/server/internal/lifecycle"
	"github.com/parleyhq/parley/server/internal/queue/dispatch"
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
	// Known returns a topic as it was last read, however long ago; nil if it is not known.
	Known(name string) *qlog.Topic
	// Heal creates again what the store lost of a partition of the topic.
	Heal(ctx context.Context, t *qlog.Topic, partition int) error
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
	// Peers carries messages to the Services of the other nodes; nil if there is no other node.
	Peers Peers
	// Hints may be nil: holders then look for messages four times a second.
	Hints Hints
	// Entries finds messages for Cancel; nil if Cancel is not called.
	Entries Entries
	// Dirty is called after messages of a partition were settled, so that they are removed soon. It must
	// not block. Nil does nothing.
	Dirty func(ref qlog.Ref, settled int)
	// Heartbeat is the longest time without a frame. Default 15 s.
	Heartbeat time.Duration
	// MaxStreams and MaxPerSubject bound the streams of this node; 0 means no bound.
	MaxStreams, MaxPerSubject int
	// Metrics may be nil.
	Metrics *Metrics
	// Logger defaults to none.
	Logger *slog.Logger
}

// Service delivers messages to consumers on one node. Safe for concurrent use.
type Service struct {
	cfg     Config
	ids     SessionIDs
	streams *stream.Registry[*Stream]
	life    lifecycle.Base
	unsent  unsent

	mu      sync.Mutex     // guards the fields below
	run     *lifecycle.Run // nil before Start and once the streams have ended
	engines map[string]*engine
	// draining: Stop has begun, so that there are no new engines.
	draining bool
	// local counts the sessions by topic, without those of Receive.
	local map[string]int
}

// New creates a Service, which refuses streams until Start.
func New(cfg Config) *Service {
	cfg.Heartbeat = cmp.Or(cfg.Heartbeat, 15*time.Second)
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	s := &Service{
		cfg: cfg, ids: NewSessionIDs(cfg.Secret), engines: map[string]*engine{}, local: map[string]int{},
		streams: stream.NewRegistry[*Stream](stream.Config{MaxStreams: cfg.MaxStreams, MaxPerSubject: cfg.MaxPerSubject, Plural: "consumers"}),
	}
	s.unsent.room = func() { go s.stepAll() } // streams call it while they are locked
	return s
}

// stepAll has all engines hand out what they can.
func (s *Service) stepAll() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, e := range s.engines {
		e.post(func(time.Time) {})
	}
}

// Start begins to accept streams. See lifecycle.Service.
func (s *Service) Start(ctx context.Context) error {
	return s.life.Start(ctx, func(_ context.Context, run *lifecycle.Run) error {
		s.mu.Lock()
		s.run = run
		s.mu.Unlock()
		s.streams.Open()
		run.OnStop(s.drain)
		return nil
	})
}

// Stop releases the leases of the node, so that others serve the partitions at once, and ends all
// streams: their consumers resume their sessions on other nodes. Fleet must be stopped after.
func (s *Service) Stop(ctx context.Context) error { return s.life.Stop(ctx) }

// engine returns the engine of a group name, which it creates. It is nil before Start and after Stop.
func (s *Service) engine(group string) *engine {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.run == nil {
		return nil
	}
	e := s.engines[group]
	if e == nil && !s.draining {
		e = newEngine(s, group, s.run)
		s.engines[group] = e
		s.run.Go(e.work)
	}
	if e != nil {
		e.asked = time.Now()
	}
	return e
}

// existing returns the engine of a group name if there is one.
func (s *Service) existing(group string) *engine {
	s.mu.Lock()
	defer s.mu.Unlock()
	e := s.engines[group]
	if s.run == nil {
		return nil
	}
	if e != nil {
		e.asked = time.Now()
	}
	return e
}

// retire removes an engine that has nothing to do and that nobody asked for within lingerFor, so that
// nobody is about to post something. It reports whether it did.
func (s *Service) retire(e *engine) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	e.mu.Lock()
	defer e.mu.Unlock()
	if len(e.mail) > 0 || time.Since(e.asked) < lingerFor {
		return false
	}
	delete(s.engines, e.group)
	return true
}

// counted notes that a session with the topic was added (by is 1) or removed (-1).
func (s *Service) counted(topic string, by int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.local[topic] += by; s.local[topic] <= 0 {
		delete(s.local, topic)
	}
}

// LocalTopics returns the topics that sessions of this node have, in no order.
func (s *Service) LocalTopics() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Collect(maps.Keys(s.local))
}

// checkTopics checks that the topics exist and have the group. Calls about deliveries that exist pass
// known: what was read earlier is enough for them, so that they work while the store is away. Reviews
// end the sessions of a topic that is gone.
func (s *Service) checkTopics(
	ctx context.Context, known bool, group string, names ...string,
) (shortest time.Duration, exclusive bool, err error) {
	for _, name := range names {
		var g *qlog.Group
		if t := s.cfg.Topics.Known(name); known && t != nil {
			g = t.Group(group)
		}
		if g == nil {
			t, err := s.cfg.Topics.Topic(ctx, name)
			if err != nil {
				return 0, false, err
			}
			if g = t.Group(group); g == nil {
				return 0, false, groupGone(name, group)
			}
		}
		exclusive = exclusive || g.Mode == qlog.Exclusive
		if shortest == 0 || g.ResumeGrace < shortest {
			shortest = g.ResumeGrace
		}
	}
	return shortest, exclusive, nil
}

// Open starts or resumes a session. It fails with TOPIC_NOT_FOUND, GROUP_NOT_FOUND, SESSION_LOST,
// NODE_FULL and SHUTTING_DOWN. The caller must Close the stream.
func (s *Service) Open(ctx context.Context, r OpenRequest) (*Stream, Started, error) {
	grace, _, err := s.checkTopics(ctx, r.Resume != nil, r.Group, r.Topics...)
	if err != nil {
		return nil, Started{}, err
	}
	started := Started{Heartbeat: min(s.cfg.Heartbeat, grace/4), Grace: grace}
	if r.Resume != nil {
		if group, ok := s.ids.Group(r.Resume.SessionID, r.Subject); !ok || group != r.Group {
			return nil, Started{}, sessionGone()
		}
		if err := r.checkResume(); err != nil {
			return nil, Started{}, err
		}
		started.SessionID = r.Resume.SessionID
	} else {
		started.SessionID = s.ids.New(r.Subject, r.Group)
	}
	st, err := s.streams.Admit(r.Subject, r.Expires, func(id stream.Identity) *Stream {
		st := newStream(id, started.SessionID, started.Heartbeat, &s.unsent)
		st.onRenewal = r.OnRenewal
		return st
	})
	if err != nil {
		return nil, Started{}, err
	}
	if err := s.begin(ctx, &r, st, &started); err != nil {
		s.Close(st)
		return nil, Started{}, err
	}
	return st, started, nil
}

// maxResumed bounds the deliveries that a consumer can have, and so those that a Resume names.
const maxResumed = 10_000

// checkResume checks that the deliveries of a Resume are of the request's topics, and how many they
// are.
func (r *OpenRequest) checkResume() error {
	if n := len(r.Resume.Held) + len(r.Resume.Unanswered); n > maxResumed {
		return fault.Invalid("resume", maxResumed, "resume: held and unanswered must have at most %d deliveries together", maxResumed)
	}
	for _, held := range r.Resume.Held {
		if !slices.Contains(r.Topics, held.Token.Topic) {
			return fault.Invalid("resume.held", 0, "resume.held: a delivery must be of one of the session's topics")
		}
	}
	for i := range r.Resume.Unanswered {
		if !slices.Contains(r.Topics, r.Resume.Unanswered[i].Token.Topic) {
			return fault.Invalid("resume.unanswered", 0, "resume.unanswered: a delivery must be of one of the session's topics")
		}
	}
	return nil
}

// begin adds the session of a stream, or continues one.
func (s *Service) begin(ctx context.Context, r *OpenRequest, st *Stream, started *Started) error {
	e := s.engine(r.Group)
	if e == nil {
		return stream.ShuttingDown()
	}
	ses := &session{
		SessionProfile: SessionProfile{
			ID: started.SessionID, Consumer: r.Consumer, ReportsBegun: r.ReportsBegun, AckTimeout: r.AckTimeout, Grace: started.Grace,
		},
		subject: r.Subject, topics: r.Topics, state: Attached, stream: st, held: map[Token]*heldDelivery{},
		concurrency: r.Concurrency, maxInFlight: max(r.MaxInFlight, r.Concurrency), maxBytes: r.MaxBytes,
	}
	if r.Resume == nil {
		e.post(func(now time.Time) { e.add(now, ses) })
		return nil
	}
	c := newCall(len(r.Resume.Unanswered))
	refused, err := ask(ctx, e, func(now time.Time) *fault.Error {
		if f := e.resume(now, ses, r.Resume); f != nil {
			return f
		}
		e.settle(now, ses.ID, s.cfg.Node, r.Resume.Unanswered, c)
		return nil
	})
	switch {
	case err != nil:
		return err
	case refused != nil:
		return refused
	}
	started.Unanswered = c.within(ctx, resumeWait)
	return nil
}

// Close ends a stream. Its session is kept for the grace time of its group, and what was not sent yet
// is given back.
func (s *Service) Close(st *Stream) {
	st.end(fault.New(fault.FailedPrecondition, fault.SessionLost, "the stream has ended"))
	if !s.streams.Remove(st.core.ID) {
		return
	}
	group, _ := s.ids.Group(st.ID(), st.core.Subject)
	if e := s.existing(group); e != nil {
		e.post(func(now time.Time) {
			e.detach(now, st)
			st.takeBack() // what of a session that has ended, or has another stream
		})
	}
}

// Settle ends deliveries of a session. It returns a result for each: nil, or a fault. It returns after
// the results are durable. The error of the call is OUTCOME_UNKNOWN if ctx ends before.
func (s *Service) Settle(ctx context.Context, subject, sessionID string, items []Settlement) ([]error, error) {
	group, ok := s.ids.Group(sessionID, subject)
	if !ok {
		return nil, sessionGone()
	}
	t := &settleTask{session: sessionID, from: s.cfg.Node, items: items}
	return s.call(ctx, group, t, len(items), func(i int) partition { return items[i].Token.partition() })
}

// settle begins to settle deliveries of a session.
func (e *engine) settle(now time.Time, sessionID, from string, items []Settlement, c *call) {
	t := &settleTask{session: sessionID, from: from, items: items}
	e.do(now, c, t, len(items), func(i int) partition { return items[i].Token.partition() })
}

// call executes a task for n items at the holders of their partitions, wherever those are.
func (s *Service) call(ctx context.Context, group string, t task, n int, at func(i int) partition) ([]error, error) {
	e := s.engine(group)
	if e == nil {
		return nil, stream.ShuttingDown()
	}
	// A token can name any topic. Engines keep something of each topic that a call is about.
	known := map[string]error{}
	for i := range n {
		name := at(i).topic
		if _, checked := known[name]; !checked {
			_, _, known[name] = s.checkTopics(ctx, true, group, name)
		}
	}
	c := newCall(n)
	e.post(func(now time.Time) {
		for _, x := range errands(now, c, t, n, at) {
			err := known[x.at.topic]
			switch {
			case err == nil:
				e.route(now, x)
			case unsettled(err):
				e.fail(x, err)
			default:
				e.fail(x, settleError(dispatch.ErrLost))
			}
		}
	})
	return c.wait(ctx, e)
}

// Extend restarts the ack timeouts of deliveries. It returns a result for each token: nil or a fault;
// none for all deliveries.
func (s *Service) Extend(ctx context.Context, subject, sessionID string, x Extension) ([]error, error) {
	if x.All {
		_, err := s.session(ctx, subject, SessionRequest{Session: sessionID, Call: ExtendAll, AckTimeout: x.AckTimeout})
		return nil, err
	}
	group, ok := s.ids.Group(sessionID, subject)
	if !ok {
		return nil, sessionGone()
	}
	t := &extendTask{session: sessionID, tokens: x.Tokens, timeout: x.AckTimeout, begun: x.Begun}
	return s.call(ctx, group, t, len(x.Tokens), func(i int) partition { return x.Tokens[i].partition() })
}

// Update changes the limits of a session, and when its stream ends. It returns when that is now: zero
// for never, or if there is none. SESSION_LOST.
func (s *Service) Update(ctx context.Context, subject, sessionID string, u Update) (expires time.Time, err error) {
	a, err := s.session(ctx, subject, SessionRequest{Session: sessionID, Call: UpdateLimits, Update: u})
	return a.Expires, err
}

// Leave ends a session gracefully: what no handler began goes to others at once, and the stream ends
// when the rest is settled. SESSION_LOST.
func (s *Service) Leave(ctx context.Context, subject, sessionID string) error {
	_, err := s.session(ctx, subject, SessionRequest{Session: sessionID, Call: LeaveGroup})
	return err
}

// session has the front node of a session execute a call.
func (s *Service) session(ctx context.Context, subject string, r SessionRequest) (a SessionAnswer, err error) {
	group, ok := s.ids.Group(r.Session, subject)
	if !ok {
		return a, sessionGone()
	}
	r.Group = group
	a, found := s.HandleSession(ctx, r)
	if !found && s.cfg.Peers != nil {
		if a, found, err = s.cfg.Peers.Session(ctx, r); err != nil {
			return a, err
		}
	}
	if !found {
		return a, sessionGone()
	}
	return a, a.Err
}

// Sessions returns the sessions of a group on all nodes, and the nodes that did not answer.
func (s *Service) Sessions(ctx context.Context, topic, group string) (list []qlog.SessionInfo, missing []string, err error) {
	if s.cfg.Peers != nil {
		if list, missing, err = s.cfg.Peers.Sessions(ctx, topic, group); err != nil && len(missing) == 0 {
			return nil, nil, err
		}
	}
	return append(list, s.HandleSessions(ctx, topic, group)...), missing, nil
}
