package parleytest

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/types/known/durationpb"

	parleyv1 "github.com/parleyhq/parley/gen/go/parley/v1"
)

// session is one consumer of a group. It outlives its streams.
type session struct {
	id       string
	s        *shared
	user     string
	name     string
	topics   []string
	group    string
	limits   limits
	timeout  time.Duration // 0 is the group's
	grace    time.Duration
	joined   int
	since    time.Time
	resumes  int64
	detached time.Time
	// reportsBegun is true if the consumer reports when a handler begins a delivery. loose is true for
	// the session of a Receive, which has no stream.
	reportsBegun, loose bool
	// leaving is set by Leave: the session gets no more deliveries.
	leaving bool
	held    map[string]*job
	// assigned are the session's partitions by topic, of exclusive groups.
	assigned map[string][]int32
	stream   *queueStream
	told     []*parleyv1.ConsumeResponse
}

// limits bound what a session holds.
type limits struct{ concurrency, inFlight, bytes int64 }

// queueStream is one live Consume or StreamingConsume stream.
type queueStream struct {
	node   *Server
	token  string
	opened time.Time
	end    *end
}

func errSessionLost() error {
	return Error(connect.CodeFailedPrecondition, parleyv1.ErrorReason_ERROR_REASON_SESSION_LOST)
}

// sessionsLocked returns the sessions of a group of a topic, in the order in which they joined.
func (s *shared) sessionsLocked(topicName, groupName string) []*session {
	var all []*session
	for _, one := range s.sessions {
		if one.group == groupName && slices.Contains(one.topics, topicName) {
			all = append(all, one)
		}
	}
	slices.SortFunc(all, func(a, b *session) int { return cmp.Compare(a.joined, b.joined) })
	return all
}

// groupsLocked returns the groups that a session consumes.
func (one *session) groupsLocked() []*group {
	var groups []*group
	for _, name := range one.topics {
		if g, err := one.s.groupLocked(name, one.group); err == nil {
			groups = append(groups, g)
		}
	}
	return groups
}

// timeoutOf returns the session's ack timeout for a group.
func (one *session) timeoutOf(g *group) time.Duration {
	return cmp.Or(one.timeout, g.settings.GetAckTimeout().AsDuration())
}

func (one *session) tellLost(cause parleyv1.LostDeliveries_Cause, tokens ...string) {
	if len(tokens) > 0 && !one.loose {
		one.told = append(one.told, &parleyv1.ConsumeResponse{Frame: &parleyv1.ConsumeResponse_Lost{
			Lost: &parleyv1.LostDeliveries{Tokens: tokens, Cause: cause},
		}})
	}
}

func (one *session) tellAssigned(g *group) {
	name := g.topic.settings.GetName()
	one.told = append(one.told, &parleyv1.ConsumeResponse{Frame: &parleyv1.ConsumeResponse_Assignment{
		Assignment: &parleyv1.PartitionAssignment{Topic: name, Partitions: one.assigned[name], Total: g.topic.settings.GetPartitions()},
	}})
}

func (one *session) loseAll(cause parleyv1.LostDeliveries_Cause) {
	for _, token := range slices.Sorted(maps.Keys(one.held)) {
		if j := one.held[token]; j != nil {
			j.lose(cause)
		}
	}
}

// release returns what no handler has begun. It does not count as an attempt.
func (one *session) release(which func(token string, j *job) bool) {
	for _, token := range slices.Sorted(maps.Keys(one.held)) {
		if j := one.held[token]; which(token, j) {
			j.drop()
			j.group.count(j.message).Redelivered++
		}
	}
}

// addSessionLocked adds a session, or one again that has ended.
func (s *shared) addSessionLocked(one *session) {
	s.minted++
	one.joined = s.minted
	s.sessions[one.id] = one
	delete(s.ended, one.id)
	for _, g := range one.groupsLocked() {
		s.shareLocked(g)
	}
	s.wakeLocked()
}

// removeSessionLocked ends a session that holds nothing.
func (s *shared) removeSessionLocked(one *session) {
	delete(s.sessions, one.id)
	one.told, one.assigned = nil, make(map[string][]int32)
	s.ended[one.id] = one
	for _, g := range one.groupsLocked() {
		s.shareLocked(g)
	}
	s.wakeLocked()
}

// openSession starts or resumes a session, and returns it with its stream and the first frame.
func (s *Server) openSession(
	ctx context.Context, req *parleyv1.ConsumeRequest, prefix string,
) (*session, *queueStream, *parleyv1.SessionStarted, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := time.Now()
	s.tickLocked(now)
	one := &session{
		s: s.shared, user: s.userLocked(ctx), name: req.GetConsumer(), topics: req.GetTopics(), group: req.GetGroup(),
		timeout: req.GetAckTimeout().AsDuration(), since: now, reportsBegun: req.GetReportsBegun(),
		held: make(map[string]*job), assigned: make(map[string][]int32),
	}
	one.limits = limits{concurrency: max(1, int64(req.GetConcurrency())), inFlight: int64(req.GetMaxInFlight()), bytes: req.GetMaxInFlightBytes()}
	switch {
	case one.limits.inFlight == 0:
		one.limits.inFlight = min(2*one.limits.concurrency, 10_000)
	case one.limits.inFlight < one.limits.concurrency:
		return nil, nil, nil, invalidField(prefix+"max_in_flight", one.limits.concurrency)
	default:
	}
	one.limits.bytes = cmp.Or(one.limits.bytes, 8<<20)
	for _, name := range one.topics {
		g, err := s.groupLocked(name, one.group)
		switch {
		case err != nil && s.topics[name] == nil:
			return nil, nil, nil, noTopic(prefix + "topics")
		case err != nil:
			return nil, nil, nil, noGroup("group")
		default:
			one.grace = max(one.grace, g.settings.GetResumeGrace().AsDuration())
		}
	}
	// Heartbeats confirm the contact, so they must come more often than it is needed.
	first := &parleyv1.SessionStarted{HeartbeatInterval: durationpb.New(min(s.heartbeat, one.grace/4)), ResumeGrace: durationpb.New(one.grace)}
	if req.GetResume() == nil {
		s.minted++
		one.id = fmt.Sprintf("session-%d.%s", s.minted, one.group)
		s.addSessionLocked(one)
	} else {
		var err error
		if one, err = s.resumeLocked(one, req.GetResume(), first, prefix+"resume."); err != nil {
			return nil, nil, nil, err
		}
	}
	first.SessionId = one.id
	one.stream = &queueStream{node: s, token: tokenOf(ctx), opened: now}
	s.wakeLocked()
	return one, one.stream, first, nil
}

// resumeLocked continues a session with the limits of asked. It completes the first frame.
func (s *shared) resumeLocked(asked *session, r *parleyv1.Resume, first *parleyv1.SessionStarted, prefix string) (*session, error) {
	one := s.sessions[r.GetSessionId()]
	if one == nil {
		if one = s.ended[r.GetSessionId()]; one != nil {
			one.leaving = false
		}
	}
	if one == nil || one.user != asked.user || one.group != asked.group || one.loose || r.GetResumes() <= one.resumes {
		return nil, errSessionLost()
	}
	if one.stream != nil {
		one.stream.end = &end{err: errSessionLost()}
	}
	one.resumes, one.timeout, one.limits, one.grace = r.GetResumes(), asked.timeout, asked.limits, asked.grace
	one.detached, one.told = time.Time{}, nil
	if s.sessions[one.id] == nil {
		s.addSessionLocked(one)
	}
	has := make(map[string]bool)
	lost := &parleyv1.LostDeliveries{Cause: parleyv1.LostDeliveries_CAUSE_NO_CONTACT}
	for _, h := range r.GetHeld() {
		has[h.GetToken()] = true
		switch j := one.held[h.GetToken()]; {
		case j == nil:
			lost.Tokens = append(lost.Tokens, h.GetToken())
		case h.GetBegun():
			j.begin(time.Now())
		default:
		}
	}
	for i, v := range r.GetUnanswered() {
		token, item := v.GetAck(), v.GetNack()
		if item != nil {
			token = item.GetToken()
		}
		has[token] = true
		if one.held[token] == nil {
			lost.Tokens = append(lost.Tokens, token)
		}
		err := one.settleLocked(token, item)
		first.Unanswered = append(first.Unanswered, settleResult(err, fmt.Sprintf("%sunanswered[%d]", prefix, i), item == nil))
	}
	// What else it held never reached it.
	one.release(func(token string, _ *job) bool { return !has[token] })
	if len(lost.GetTokens()) > 0 {
		first.Lost = lost
	}
	one.assigned = make(map[string][]int32) // its consumer is told again
	for _, g := range one.groupsLocked() {
		s.shareLocked(g)
	}
	return one, nil
}

// detach records that a stream of a session has ended. The session keeps its deliveries for its
// grace time.
func (s *Server) detach(one *session, stream *queueStream) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if one.stream != stream {
		return
	}
	one.stream, one.detached = nil, time.Now()
	if !one.leaving {
		one.since = one.detached
	}
	if one.leaving && len(one.held) == 0 && s.sessions[one.id] == one {
		s.removeSessionLocked(one)
	}
	s.wakeLocked()
}

// tickLocked does all that is due: it makes scheduled messages appear, ends deliveries whose time
// has passed and sessions without contact. It returns when to call it again, or the zero time.
func (s *shared) tickLocked(now time.Time) (next time.Time) {
	for _, t := range s.topics {
		next = sooner(next, t.advance(now))
		for _, g := range t.groups {
			next = sooner(next, g.expire(now))
		}
	}
	for _, one := range s.sessions {
		for _, token := range slices.Sorted(maps.Keys(one.held)) {
			j := one.held[token]
			if j == nil {
				continue
			}
			switch {
			case !j.until.After(now):
				j.lose(parleyv1.LostDeliveries_CAUSE_ACK_TIMEOUT)
			case !j.limit.IsZero() && !j.limit.After(now):
				j.lose(parleyv1.LostDeliveries_CAUSE_MAX_RUN_TIME)
			default:
				next = sooner(sooner(next, j.until), j.limit)
			}
		}
		switch {
		case len(one.held) == 0 && (one.loose || one.leaving && one.stream == nil):
			s.removeSessionLocked(one)
		case one.loose || one.stream != nil:
		case now.Sub(one.detached) >= one.grace:
			one.loseAll(parleyv1.LostDeliveries_CAUSE_NO_CONTACT)
			s.removeSessionLocked(one)
		default:
			next = sooner(next, one.detached.Add(one.grace))
		}
	}
	return next
}

// takeLocked returns the next deliveries of a session. While another session of the group has a
// handler without work, a session gets no more than its handlers can begin.
func (one *session) takeLocked(now time.Time) (batch []*parleyv1.Delivery) {
	bytes := one.limits.bytes
	for _, j := range one.held {
		bytes -= j.size()
	}
	for _, g := range one.groupsLocked() {
		room := one.limits.inFlight - int64(len(one.held))
		for _, other := range one.s.sessionsLocked(g.topic.settings.GetName(), one.group) {
			if other != one && other.stream != nil && !other.leaving && int64(len(other.held)) < other.limits.concurrency {
				room = min(room, one.limits.concurrency-int64(len(one.held)))
			}
		}
		for _, j := range g.ready(one, now, room, bytes) {
			bytes -= j.size()
			batch = append(batch, j.deliver(one, now))
		}
	}
	return batch
}
