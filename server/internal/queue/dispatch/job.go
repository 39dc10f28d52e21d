package dispatch

import (
	"cmp"
	"time"

	"github.com/parleyhq/parley/server/internal/queue/qlog"
)

// state is where an entry stands.
//
//	parked    waits in its lane, without payload      ready when it is read again; settled
//	ready     waits in its lane, with its payload     staged; parked if memory is short; settled.
//	staged    chosen, its commit is not answered      sent; ready; settled (sent by the answer)
//	sent      a session has it                        begun; parked; retrying; settled
//	begun     a handler works on it                   parked; retrying; settled
//	retrying  waits for its due time                  parked; settled
//	doubt     an earlier holder may have sent it      sent or begun (Held); parked; retrying; settled.
//	settled   ended; its commit is not built          (forgotten when the commit is built)
//
// An entry that is parked and was not delivered by this dispatcher needs no job.
type state uint8

const (
	parked state = iota
	ready
	staged
	sent
	begun
	retrying
	doubt
	settled
)

// outcome is how an entry ended.
type outcome uint8

const (
	acked outcome = iota
	dead
	cancelled
	expired
	trimmed
	elsewhere
	// stale: the entry was settled before; only its row is left.
	stale
)

// job is an entry that is more than a place in a lane.
type job struct {
	qlog.Pos

	state   state
	outcome outcome
	// stored is the state of the row in the log, 0 for none.
	stored qlog.RowState
	// queued: the job is in Dispatcher.changed. covered is the Ver of the commit that covers it.
	queued  bool
	covered int64

	key   uint64
	entry *qlog.Entry // nil while parked or retrying; without Body
	body  []byte
	size  int

	// gen is the number of the current or latest delivery, attempts how many were charged.
	gen, attempts int
	code, reason  string
	// lane is set while the job is in flight in it or holds it, and of a job without key also while it
	// waits in it.
	lane *lane
	// session has the delivery, and seat is the job's place in its list. In state doubt, claimant is
	// the session that had it according to the row, if there was one.
	session  *session
	seat     int
	claimant string
	// follows: the session has an earlier delivery of the lane, so this one waits for no handler.
	follows bool

	// since is when the state began. began and deadline are on the clock that stands still.
	since, due      time.Time
	began, deadline time.Time
	when            int64
	index           int
	// answers are those to the settlements that the next commit makes durable.
	answers []Answer
}

func (j *job) rank() int64 { return j.when }
func (j *job) slot() *int  { return &j.index }

// held reports whether a session has the delivery.
func (j *job) held() bool { return j.state == sent || j.state == begun }

// suspect reports whether the entry may have caused the loss of a session, as far as is known.
func (j *job) suspect() bool { return j.code == CodeLost }

// row returns the row that the log must have for the job. When the lease is released, each delivery
// that a session may have needs one.
func (j *job) row(releasing bool) (r qlog.Row, needed bool) {
	r = qlog.Row{Gen: j.gen, Attempts: j.attempts, Since: j.since, Code: j.code, Reason: j.reason}
	switch j.state {
	case parked, ready:
		r.State = qlog.RowWaiting
		return r, j.gen > 0
	case staged, sent, begun:
		r.State, r.Session = qlog.RowSent, j.session.ID
		if j.state == begun {
			r.State = qlog.RowBegun
		}
		if j.session.Loose {
			r.State, r.Due = qlog.RowLoose, j.due
		}
		return r, releasing || j.gen > 1 || j.session.Loose || j.state == begun || j.stored != 0
	case retrying:
		r.State, r.Due = qlog.RowRetrying, j.due
		if j.suspect() {
			r.State = qlog.RowSuspect
		}
		return r, true
	case doubt, settled:
	}
	return r, false
}

// touch notes that the next commit must carry the job's state.
func (d *Dispatcher) touch(j *job) {
	if !j.queued {
		j.queued = true
		d.changed = append(d.changed, j)
	}
	if j.ID > d.cover.ID {
		d.cover = j.Pos
	}
}

// settle ends an entry that is in no lane and with no session. It may be called for an entry that has
// no job yet.
func (d *Dispatcher) settle(j *job, how outcome) {
	d.timers.remove(j)
	j.state, j.outcome, j.body = settled, how, nil
	d.touch(j)
}

// fail charges the delivery that has just ended, and either ends the message or lets it come again.
// A delay of 0 means the group's backoff.
func (d *Dispatcher) fail(now time.Time, j *job, code, reason string, delay time.Duration) {
	j.attempts++
	j.code, j.reason = code, reason
	most := d.cfg.MaxAttempts
	if j.entry != nil && j.entry.MaxAttempts > 0 {
		most = j.entry.MaxAttempts
	}
	if j.attempts >= most || code != "" && d.final[code] {
		d.settle(j, dead)
		return
	}
	d.add.Retried++
	j.since = now
	d.touch(j)
	d.retryAt(j, now.Add(cmp.Or(delay, d.backoff(j.attempts))))
}

// retryAt has a job wait for its due time.
func (d *Dispatcher) retryAt(j *job, due time.Time) {
	j.state, j.due, j.entry, j.body = retrying, due, nil, nil
	if d.cfg.Order == OrderStrict && j.key != 0 {
		j.lane = d.lane(j.key)
		j.lane.holds++
		d.shed(j.lane)
		d.place(j.lane)
	}
	j.when = due.UnixNano()
	d.timers.fix(j)
}

// redeliver lets a message come again whose delivery ended without a charge.
func (d *Dispatcher) redeliver(now time.Time, j *job, code, reason string) {
	if j.gen-j.attempts > MaxUncharged {
		d.fail(now, j, code, reason, 0)
		return
	}
	d.add.Redelivered++
	j.since = now
	d.touch(j)
	d.wait(j)
}

// wait puts a job into its lane, without payload.
func (d *Dispatcher) wait(j *job) {
	d.timers.remove(j)
	j.state, j.entry, j.body = parked, nil, nil
	d.line(j)
}

// backoff returns a random time up to min(MaxBackoff, MinBackoff · 2^(attempts-1)), in whole
// milliseconds and at least one.
func (d *Dispatcher) backoff(attempts int) time.Duration {
	bound := max(d.cfg.MinBackoff, time.Millisecond)
	limit := max(d.cfg.MaxBackoff, bound)
	for i := 1; i < attempts && bound < limit; i++ {
		bound *= 2
	}
	return time.Duration(1+d.cfg.Random(min(bound, limit).Milliseconds())) * time.Millisecond
}
