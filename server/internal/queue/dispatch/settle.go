package dispatch

import (
	"cmp"
	"errors"
	"time"

	"github.com/parleyhq/parley/server/internal/queue/qlog"
)

// The answers to a settlement or cancellation that does not count.
var (
	// ErrLost: the delivery is not the session's, is not the current one, or was settled otherwise.
	ErrLost = errors.New("the delivery was lost")
	// ErrGone: the message was settled, by whom is not known any more.
	ErrGone = errors.New("the message was settled before")
	// ErrBegun: a handler has begun the message, so it was not cancelled.
	ErrBegun = errors.New("a handler has begun the message")
	// ErrMoved: the dispatcher gave up the lease; ask the next holder.
	ErrMoved = errors.New("the lease was given back")
)

// Verdict is what a worker says about a delivery.
type Verdict uint8

// The verdicts.
const (
	// Ack: the message is done.
	Ack Verdict = iota + 1
	// Retry: the attempt failed.
	Retry
	// DeadLetter: no attempt can succeed.
	DeadLetter
	// Release: give it to another worker; not an attempt.
	Release
)

// Settlement is the end of a delivery by its worker.
type Settlement struct {
	ID      qlog.ID
	Gen     int
	Session string
	Verdict Verdict
	// Delay is the time until the next attempt, for Retry; 0 means the group's backoff.
	Delay        time.Duration
	Code, Reason string
	// Token is given back in Output.Settled when the settlement is durable, or does not count.
	Token any
}

// Answer is the answer to a Settlement, a Cancellation or a RetryNow.
type Answer struct {
	Token any
	// Err is nil, ErrLost, ErrGone, ErrBegun or ErrMoved.
	Err error
	// Verdict is what became of the delivery, 0 in the answer to anything but its first settlement: a
	// Retry without attempts left is a DeadLetter, a Release too many a Retry. Took is the time since a
	// handler began it, or since it was sent if that is not known.
	Verdict Verdict
	Took    time.Duration
}

// record is a settlement that was accepted: its repeat is accepted too.
type record struct {
	gen     int
	session string
	verdict Verdict
}

// Settle ends a delivery. The answer comes with a later Output.
func (d *Dispatcher) Settle(now time.Time, s Settlement) {
	if d.closed() {
		d.answer(s.Token, ErrMoved)
		return
	}
	if d.postpone(s.ID, claim{settlement: &s}) {
		return
	}
	j := d.jobs[s.ID]
	if j != nil && j.state == doubt && d.mayClaim(j, s.Session, s.Gen) {
		d.adopt(now, j, d.session(s.Session), true)
	}
	if j != nil && j.held() && j.gen == s.Gen && j.session.ID == s.Session {
		d.remember(now, s)
		a := Answer{Token: s.Token, Took: d.took(now, j)}
		a.Verdict = d.conclude(now, j, &s)
		j.answers = append(j.answers, a)
		return
	}
	r, known := d.recall(s.ID)
	switch {
	case known && r == record{s.Gen, s.Session, s.Verdict}:
		d.repeat(j, s.Token)
	case known, j != nil && j.state != settled: // another delivery, or another verdict, was the one that counted
		d.answer(s.Token, ErrLost)
	default:
		d.answer(s.Token, d.gone(s.ID))
	}
}

// closed reports whether the last commit is built.
func (d *Dispatcher) closed() bool {
	return d.mode == released || d.commit != nil && d.commit.Release
}

// took returns how long a handler has had a delivery, as far as is known.
func (d *Dispatcher) took(now time.Time, j *job) time.Duration {
	if j.state == begun {
		return max(d.clock(now).Sub(j.began), 0)
	}
	return max(now.Sub(j.since), 0)
}

// conclude applies a verdict to a delivery that its session holds, and returns what became of it.
func (d *Dispatcher) conclude(now time.Time, j *job, s *Settlement) Verdict {
	if j.state == begun {
		took := max(d.clock(now).Sub(j.began), 1)
		if mean := &j.session.Budget.mean; *mean == 0 {
			*mean = took
		} else {
			*mean = max((7**mean+took)/8, 1)
		}
	}
	d.end(j, 0)
	switch s.Verdict {
	case Ack:
		d.settle(j, acked)
	case Retry:
		d.fail(now, j, s.Code, s.Reason, s.Delay)
	case DeadLetter:
		j.attempts++
		j.code, j.reason = s.Code, s.Reason
		d.settle(j, dead)
	default:
		d.redeliver(now, j, CodeReleased, "given back too often")
	}
	switch {
	case s.Verdict == Ack:
		return Ack
	case j.state == settled:
		return DeadLetter
	case j.state == retrying:
		return Retry
	default:
		return Release
	}
}

// gone returns the error for an entry of which no delivery is known.
func (d *Dispatcher) gone(id qlog.ID) error {
	if _, open := d.open.find(id); open || id > d.known {
		return ErrLost
	}
	return ErrGone
}

// repeat answers a token once what the dispatcher decided about the job is durable.
func (d *Dispatcher) repeat(j *job, token any) {
	switch {
	case j != nil && j.queued:
		j.answers = append(j.answers, Answer{Token: token})
	case d.commit != nil:
		d.owed = append(d.owed, Answer{Token: token})
	default:
		d.answer(token, nil)
	}
}

func (d *Dispatcher) answer(token any, err error) { d.reply(Answer{Token: token, Err: err}) }

// reply gives an answer, unless nobody wants one.
func (d *Dispatcher) reply(a Answer) {
	if a.Token != nil {
		d.out.Settled = append(d.out.Settled, a)
	}
}

// remember keeps an accepted settlement for its repeats: for 5 minutes, or 50,000 later ones.
func (d *Dispatcher) remember(now time.Time, s Settlement) {
	if len(d.recent[0]) >= 50_000 || now.Sub(d.recentSince) >= 5*time.Minute {
		d.recent[0], d.recent[1] = map[qlog.ID]record{}, d.recent[0]
		d.recentSince = now
	}
	d.recent[0][s.ID] = record{s.Gen, s.Session, s.Verdict}
}

func (d *Dispatcher) recall(id qlog.ID) (record, bool) {
	r, known := d.recent[0][id]
	if !known {
		r, known = d.recent[1][id]
	}
	return r, known
}

// Mark names a delivery of a session.
type Mark struct {
	ID  qlog.ID
	Gen int
}

// Begun notes that a handler of the session began a delivery. It reports false if the session does
// not have it.
func (d *Dispatcher) Begun(now time.Time, session string, m Mark) bool {
	j := d.delivery(now, session, m)
	if j == nil {
		return d.mayFollow(m.ID)
	}
	if j.state == sent {
		d.begin(now, j)
	}
	return true
}

// Extend moves the deadline of a delivery to timeout from now; 0 means the session's ack timeout. It
// reports false if the session does not have it.
func (d *Dispatcher) Extend(now time.Time, session string, m Mark, timeout time.Duration) bool {
	j := d.delivery(now, session, m)
	if j == nil {
		return d.mayFollow(m.ID)
	}
	j.deadline = d.clock(now).Add(cmp.Or(timeout, d.ackTimeout(j.session)))
	d.watch(j)
	return true
}

// mayFollow reports whether the entry was delivered by an earlier holder, as far as is known, and is
// still to be read.
func (d *Dispatcher) mayFollow(id qlog.ID) bool {
	_, survives := d.survivors[id]
	return id > d.known && (id <= d.loaded.ID || survives)
}

// delivery returns a delivery that the session has.
func (d *Dispatcher) delivery(now time.Time, session string, m Mark) *job {
	j := d.jobs[m.ID]
	if j != nil && j.state == doubt && d.mayClaim(j, session, m.Gen) {
		d.adopt(now, j, d.session(session), j.stored == qlog.RowBegun)
	}
	if j == nil || !j.held() || j.gen != m.Gen || j.session.ID != session {
		return nil
	}
	return j
}

func (d *Dispatcher) begin(now time.Time, j *job) {
	j.state, j.since, j.began = begun, now, d.clock(now)
	d.watch(j)
}

// watch sets when the delivery is looked at next: at its deadline, at the end of its longest run, or
// when it is begun for so long that it gets a row.
func (d *Dispatcher) watch(j *job) {
	when := j.deadline
	if j.state == begun {
		if end := j.began.Add(d.cfg.MaxRunTime); end.Before(when) {
			when = end
		}
		if row := j.began.Add(rowAfter); !j.recorded() && row.Before(when) {
			when = row
		}
	}
	j.when = when.UnixNano()
	d.deadlines.fix(j)
}

// recorded reports whether the log knows, or will by the next commit, that the job is begun.
func (j *job) recorded() bool {
	return j.queued || j.stored == qlog.RowBegun || j.session.Loose
}

// look ends deliveries whose deadline has passed, and records those that run for long.
func (d *Dispatcher) look(now time.Time) {
	clock := d.clock(now)
	for {
		j := d.deadlines.top()
		if j == nil || j.when > clock.UnixNano() {
			return
		}
		switch {
		case j.state == begun && !clock.Before(j.began.Add(d.cfg.MaxRunTime)):
			d.end(j, EndedMaxRunTime)
			d.fail(now, j, CodeMaxRunTime, "it ran for longer than max_run_time", 0)
		case !clock.Before(j.deadline) && j.state == begun:
			d.end(j, EndedTimeout)
			d.fail(now, j, CodeAckTimeout, "it was neither settled nor extended in time", 0)
		case !clock.Before(j.deadline):
			d.end(j, EndedTimeout)
			d.redeliver(now, j, CodeAckTimeout, "no handler began it in time")
		default:
			d.touch(j)
			d.watch(j)
		}
	}
}

// Cancellation ends a message in whatever state it is.
type Cancellation struct {
	ID qlog.ID
	// Key and UniqueKey are the message's.
	Key, UniqueKey string
	// UnlessBegun does nothing to a message that a handler has begun.
	UnlessBegun bool
	// Token is given back in Output.Settled; with ErrGone if the message is settled already.
	Token any
}

// Cancel ends a message. The answer comes with a later Output.
func (d *Dispatcher) Cancel(_ time.Time, c Cancellation) {
	if d.closed() {
		d.answer(c.Token, ErrMoved)
		return
	}
	if d.postpone(c.ID, claim{cancel: &c}) {
		return
	}
	pos, open := d.open.find(c.ID)
	j := d.jobs[c.ID]
	if !open || j != nil && j.state == settled {
		d.answer(c.Token, ErrGone)
		return
	}
	if c.UnlessBegun && j != nil && (j.state == begun || j.state == doubt && j.stored == qlog.RowBegun) {
		d.answer(c.Token, ErrBegun)
		return
	}
	if j == nil {
		j = &job{Pos: pos, key: d.hash(c.Key), gen: d.earlier(c.ID)}
		if l := d.lanes[j.key]; l == nil || !d.dequeue(l, c.ID) {
			d.answer(c.Token, ErrGone) // the key is not the message's
			return
		}
		d.jobs[c.ID] = j
		d.place(d.lanes[j.key])
	} else {
		d.takeOut(j)
	}
	if c.UniqueKey != "" {
		j.entry = &qlog.Entry{Pos: pos, Options: qlog.Options{UniqueKey: c.UniqueKey}}
	}
	j.answers = append(j.answers, Answer{Token: c.Token})
	d.settle(j, cancelled)
}

// RetryNow makes a message due now that waits for a retry.
type RetryNow struct {
	ID qlog.ID
	// Token is given back in Output.Settled; with ErrGone if the message does not wait for a retry.
	Token any
}

// Retry makes a message due now. The answer comes with a later Output.
func (d *Dispatcher) Retry(now time.Time, r RetryNow) {
	if d.mode != serving {
		d.answer(r.Token, ErrMoved)
		return
	}
	if d.postpone(r.ID, claim{retry: &r}) {
		return
	}
	j := d.jobs[r.ID]
	if j == nil || j.state != retrying {
		d.answer(r.Token, ErrGone)
		return
	}
	d.takeOut(j)
	j.since = now
	d.touch(j)
	d.wait(j)
	d.answer(r.Token, nil)
}

// takeOut takes a job out of its lane or away from its session.
func (d *Dispatcher) takeOut(j *job) {
	switch l := j.lane; j.state {
	case parked, ready:
		if l == nil {
			l = d.lanes[j.key]
		}
		if j.state == ready {
			d.unready(l, j)
		} else {
			d.dequeue(l, j.ID)
		}
		d.place(l)
	case staged:
		d.leave(j)
		j.gen--
	case sent, begun:
		d.end(j, EndedCancelled)
	case retrying, doubt:
		d.unhold(j)
	case settled:
	}
}

// unhold lets a lane give again that the job held.
func (d *Dispatcher) unhold(j *job) {
	if l := j.lane; l != nil {
		j.lane = nil
		l.holds--
		d.place(l)
	}
}
