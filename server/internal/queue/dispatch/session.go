package dispatch

import (
	"cmp"
	"slices"
	"time"

	"github.com/parleyhq/parley/server/internal/queue/qlog"
)

// Session is one worker's registration, as the dispatcher sees it.
type Session struct {
	ID string
	// Remote: the session is on another node. It gets what it asks for with Take; Concurrency,
	// MaxInFlight and MaxBytes are that node's to keep.
	Remote bool
	// Concurrency is how many messages it handles at a time, MaxInFlight how many it may hold,
	// MaxBytes how many bytes of payload. A message that is larger than MaxBytes is sent alone.
	Concurrency, MaxInFlight int
	MaxBytes                 int64
	// AckTimeout is how long its deliveries last unless they are extended; 0 means the group's.
	AckTimeout time.Duration
	// ReportsBegun: it reports when a handler begins. Otherwise a delivery begins when it is sent.
	ReportsBegun bool
	// Loose: it is one call of Receive. ID is a nonce, and each of its deliveries has a row. It is to
	// be detached by Leave once it has enough.
	Loose bool
	// Budget is what the session holds in all dispatchers that it is attached to. Nil means that it has
	// only this one.
	Budget *Budget
}

// Budget counts what one session holds. The dispatchers that share it must be driven by the same
// goroutine, which calls Step of the others when one of them has ended a delivery.
type Budget struct {
	// Room returns how many bytes of payload may wait to be sent to the session at present, apart from
	// what is chosen for it and not sent yet. Nil means any number.
	Room func() int64

	held, suspects int
	// followers are those of held that wait for an earlier delivery of their lane, so for no handler.
	followers int
	bytes     int64
	// staged are the bytes that are chosen for the session and not sent yet.
	staged int64
	// mean is the moving average of the time from begun to settled, 0 while it is not known.
	mean time.Duration
}

// Held returns how many deliveries the session holds.
func (b *Budget) Held() int { return b.held }

// Busy returns how many handlers the deliveries need that the session holds. Those of a key need one.
func (b *Budget) Busy() int { return b.held - b.followers }

// Bytes returns how many bytes of payload the session holds.
func (b *Budget) Bytes() int64 { return b.bytes }

// Add counts n more deliveries of other nodes, of so many bytes and suspects together.
func (b *Budget) Add(n int, bytes int64, suspects int) {
	b.held += n
	b.bytes += bytes
	b.suspects += suspects
}

// Suspects returns how many suspects the session holds.
func (b *Budget) Suspects() int { return b.suspects }

// sessionState is the state of a session.
//
//	attached  gets messages                                   detached (Detach); leaving (Leave)
//	detached  keeps what it holds, until the holder says more attached (Attach); leaving (Leave)
//	leaving   keeps what is begun; gets nothing               forgotten when it holds nothing
//
// Lost ends a session in any state.
type sessionState uint8

const (
	attached sessionState = iota
	detached
	leaving
)

type session struct {
	Session

	state sessionState
	// held are the session's deliveries in this dispatcher.
	held []*job
	// early counts the reports of deliveries that it has of entries that are not read yet.
	early int
	// own are the lanes that only this session may take from.
	own choice
	// credit is what is left of the latest Take of a remote session, of creditOf bytes.
	credit                int
	creditBytes, creditOf int64
}

// Attach adds a session, or changes the limits of one; a session that was detached gets messages
// again.
func (d *Dispatcher) Attach(cfg Session) {
	s := d.session(cfg.ID)
	if cfg.Budget == nil {
		cfg.Budget = s.Budget
	}
	if cfg.Budget != s.Budget {
		for _, j := range s.held {
			s.Budget.count(j, -1)
			cfg.Budget.count(j, 1)
		}
	}
	moved := cmp.Or(cfg.AckTimeout, d.cfg.AckTimeout) - d.ackTimeout(s)
	s.Session, s.state = cfg, attached
	if moved != 0 {
		for _, j := range s.held {
			j.deadline = j.deadline.Add(moved)
			d.watch(j)
		}
	}
}

// ackTimeout returns how long a delivery to the session lasts.
func (d *Dispatcher) ackTimeout(s *session) time.Duration {
	return cmp.Or(s.AckTimeout, d.cfg.AckTimeout)
}

// Knows reports whether the session was attached, or something is known of it.
func (d *Dispatcher) Knows(id string) bool { return d.sessions[id] != nil }

// Holds returns what a session holds, as far as the entries are read.
func (d *Dispatcher) Holds(id string) (marks []Mark) {
	s := d.sessions[id]
	if s == nil {
		return nil
	}
	for _, j := range s.held {
		marks = append(marks, Mark{j.ID, j.gen})
	}
	return marks
}

// session returns a session. One that is not known is added as if it were about to leave.
func (d *Dispatcher) session(id string) *session {
	s := d.sessions[id]
	if s == nil {
		s = &session{Session: Session{ID: id, ReportsBegun: true, Budget: &Budget{}}, state: leaving}
		d.sessions[id] = s
		d.roster = append(d.roster, s)
	}
	return s
}

// Take asks for up to n messages of up to bytes together, or one that is larger, for a remote
// session. It replaces what is left of an earlier Take.
func (d *Dispatcher) Take(id string, n int, bytes int64) {
	if s := d.sessions[id]; s != nil && s.Remote {
		s.credit, s.creditBytes, s.creditOf = n, bytes, bytes
	}
}

// Detach notes that a session's stream ended. It keeps what was sent to it, and gets nothing.
func (d *Dispatcher) Detach(id string) {
	if s := d.sessions[id]; s != nil && s.state == attached {
		s.state = detached
		d.withdraw(s)
	}
}

// Leave ends a session in good order: what it has not begun is given back at once, and it is
// forgotten when it holds nothing.
func (d *Dispatcher) Leave(now time.Time, id string) {
	s := d.sessions[id]
	if s == nil {
		return
	}
	s.state = leaving
	d.withdraw(s)
	for _, j := range s.inOrder() {
		if j.state == sent && !s.Loose {
			d.end(j, EndedReleased)
			d.redeliver(now, j, CodeReleased, "given back too often")
		}
	}
	d.forget(s)
}

// Lost ends a session whose worker is gone. What was begun is charged and suspect; but if it had a
// suspect in flight, only that.
func (d *Dispatcher) Lost(now time.Time, id string) {
	s := d.sessions[id]
	if s == nil {
		return
	}
	s.state = leaving
	d.withdraw(s)
	d.disown(s)
	begunSuspect := slices.ContainsFunc(s.held, func(j *job) bool { return j.state == begun && j.suspect() })
	for _, j := range s.inOrder() {
		charged := j.state == begun && (j.suspect() || !begunSuspect)
		d.end(j, EndedLost)
		if charged {
			d.fail(now, j, CodeLost, reasonLost, 0)
		} else {
			d.redeliver(now, j, CodeLost, reasonLost)
		}
	}
	d.forget(s)
}

// forget removes a session that leaves and holds nothing.
func (d *Dispatcher) forget(s *session) {
	if s.state != leaving || len(s.held) > 0 || s.early > 0 {
		return
	}
	delete(d.sessions, s.ID)
	d.roster = slices.DeleteFunc(d.roster, func(other *session) bool { return other == s })
	if d.bound == s {
		d.bound = nil
	}
	if d.next == s {
		d.next = nil
	}
}

// inOrder returns what the session holds, by ID.
func (s *session) inOrder() []*job {
	held := slices.Clone(s.held)
	slices.SortFunc(held, func(a, b *job) int { return cmp.Compare(a.ID, b.ID) })
	return held
}

// withdraw takes back what was chosen for a session and not sent.
func (d *Dispatcher) withdraw(s *session) {
	for _, j := range s.inOrder() {
		if j.state == staged {
			d.leave(j)
			j.gen--
			j.state = ready
			d.bytes += int64(j.size)
			d.touch(j)
			d.line(j)
		}
	}
}

// take gives a job to the session.
func (s *session) take(j *job) {
	j.session, j.seat = s, len(s.held)
	s.held = append(s.held, j)
	s.Budget.count(j, 1)
}

// drop takes a job from its session.
func (s *session) drop(j *job) {
	last := s.held[len(s.held)-1]
	s.held[j.seat], last.seat = last, j.seat
	s.held[len(s.held)-1] = nil
	s.held = s.held[:len(s.held)-1]
	s.Budget.count(j, -1)
	j.session = nil
}

// count adds a delivery n times.
func (b *Budget) count(j *job, n int) {
	b.held += n
	b.bytes += int64(n * j.size)
	if j.suspect() {
		b.suspects += n
	}
	if j.follows {
		b.followers += n
	}
	if j.state == staged {
		b.staged += int64(n * j.size)
	}
}

// pass is a round of handing out messages.
type pass uint8

const (
	idleHandlers pass = iota
	otherNodes
	prefetch
	passes
)

// room returns how many more messages the session may get in a pass.
func (s *session) room(p pass) int {
	switch {
	case s.state != attached, s.early > 0:
		return 0
	case s.Remote:
		if p != otherNodes {
			return 0
		}
		return s.credit
	case p == idleHandlers:
		return min(s.Concurrency-s.Budget.Busy(), s.MaxInFlight-s.Budget.held)
	case p == prefetch && s.Budget.mean > 0 && s.Budget.mean < prefetchBelow:
		return s.MaxInFlight - s.Budget.held
	}
	return 0
}

// canFollow reports whether the session may get a message of a key of which it has one already. Such
// messages take only what MaxInFlight allows beyond Concurrency, so that a slow key holds no handler
// but its own. A call of Receive has no handlers.
func (s *session) canFollow(p pass) bool {
	switch p {
	case idleHandlers, prefetch:
		return s.Loose || s.Budget.followers < s.MaxInFlight-s.Concurrency
	default:
		return false
	}
}

// fits reports whether a message of the size may be sent now: it is within the limit of bytes, or
// alone.
func (s *session) fits(size int) bool {
	if s.Remote {
		return int64(size) <= s.creditBytes || s.creditBytes == s.creditOf
	}
	if room := s.Budget.Room; room != nil && s.Budget.staged+int64(size) > room() {
		return false
	}
	return s.Budget.bytes+int64(size) <= s.MaxBytes || s.Budget.held == 0
}

// leave takes a job from its session and out of flight in its lane.
func (d *Dispatcher) leave(j *job) {
	s, l := j.session, j.lane
	s.drop(j)
	j.lane = nil
	switch l.inFlight--; {
	case l.inFlight == 0:
		d.lift(l)
		l.session = nil
	case !j.follows:
		s.promote(l)
	}
	j.follows = false
	d.place(l)
}

// promote gives the handler of a lane's earlier delivery to the next one.
func (s *session) promote(l *lane) {
	var next *job
	for _, j := range s.held {
		if j.lane == l && j.follows && (next == nil || j.ID < next.ID) {
			next = j
		}
	}
	if next != nil {
		next.follows = false
		s.Budget.followers--
	}
}

// end ends a delivery and, unless why is 0, tells its session.
func (d *Dispatcher) end(j *job, why Why) {
	s := j.session
	d.deadlines.remove(j)
	if why != 0 {
		d.out.Ended = append(d.out.Ended, Ended{Session: s.ID, ID: j.ID, Gen: j.gen, Why: why})
	}
	d.leave(j)
	d.forget(s)
}

// Delivery is a message that is to be sent to a session now.
type Delivery struct {
	Session string
	// Entry has no Body: it is in Body. Both must not be changed.
	Entry *qlog.Entry
	Body  []byte
	// Gen is the number of the delivery, which a settlement must repeat. Attempt is what the worker
	// is told: the charged attempts and this one.
	Gen, Attempt int
	// Deadline is when the delivery ends unless it is settled or extended. Timeout is the time that
	// the handler may take.
	Deadline time.Time
	Timeout  time.Duration
	// Suspect: its worker was lost while it had the message.
	Suspect bool
}

// Why says why a delivery ended without its worker's settlement.
type Why uint8

// The reasons.
const (
	EndedLost Why = iota + 1
	EndedReleased
	EndedTimeout
	EndedMaxRunTime
	EndedCancelled
)

// Ended is a delivery that its session must drop: a later settlement does not count.
type Ended struct {
	Session string
	ID      qlog.ID
	Gen     int
	Why     Why
}
