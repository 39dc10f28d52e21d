package dispatch

import (
	"cmp"
	"slices"
	"time"

	"github.com/parleyhq/parley/server/internal/queue/qlog"
)

// Held is a delivery that a worker has, from before the dispatcher or from before its stream broke.
type Held struct {
	ID      qlog.ID
	Gen     int
	Session string
	Begun   bool
}

// HeldAnswer says whether the session keeps the delivery. Otherwise the worker must drop it, unless
// the session settled it.
type HeldAnswer struct {
	Held

	Kept, Settled bool
}

// claim is a statement about an entry that was not read yet. One field is set.
type claim struct {
	settlement *Settlement
	cancel     *Cancellation
	retry      *RetryNow
	held       *Held
}

// Held notes that a session has a delivery. The answer comes with a later Output.
func (d *Dispatcher) Held(now time.Time, h Held) {
	if d.postpone(h.ID, claim{held: &h}) {
		d.session(h.Session).early++
		return
	}
	j := d.delivery(now, h.Session, Mark{h.ID, h.Gen})
	if j != nil && h.Begun && j.state == sent {
		d.begin(now, j)
	}
	r, known := d.recall(h.ID)
	settled := j == nil && known && r.gen == h.Gen && r.session == h.Session
	d.out.Held = append(d.out.Held, HeldAnswer{h, j != nil, settled})
}

// doubts returns the jobs in doubt, by ID: all, or those of ids.
func (d *Dispatcher) doubts(ids []qlog.ID) (found []*job) {
	if ids == nil {
		for _, j := range d.jobs {
			if j.state == doubt {
				found = append(found, j)
			}
		}
	}
	for _, id := range ids {
		if j := d.jobs[id]; j != nil && j.state == doubt {
			found = append(found, j)
		}
	}
	slices.SortFunc(found, func(a, b *job) int { return cmp.Compare(a.ID, b.ID) })
	return found
}

// NobodyHolds ends the doubt about entries that no session has, those of ids or, without any, all and
// those that are still to be read. A delivery that was begun according to its row was lost with its
// worker.
func (d *Dispatcher) NobodyHolds(now time.Time, ids ...qlog.ID) {
	d.abandoned = d.abandoned || len(ids) == 0
	var plain []*job
	for _, j := range d.doubts(ids) {
		if j.stored == 0 && j.key != 0 {
			plain = append(plain, j)
		} else {
			d.abandon(now, j)
		}
	}
	// Most entries were only passed over. They may be very many, of few lanes, so that each lane is
	// sorted once.
	lanes := map[*lane]bool{}
	for _, j := range plain {
		j.lane.holds--
		j.lane.queue = append(j.lane.queue, j.ID)
		lanes[j.lane] = true
		delete(d.jobs, j.ID)
	}
	for l := range lanes {
		slices.Sort(l.queue)
		d.place(l)
	}
}

// abandon ends the doubt about an entry that no session has.
func (d *Dispatcher) abandon(now time.Time, j *job) {
	d.unhold(j)
	switch j.stored {
	case qlog.RowBegun:
		d.fail(now, j, CodeLost, reasonLost, 0)
	case 0:
		d.wait(j)
	default:
		d.redeliver(now, j, CodeLost, reasonLost)
	}
}

// mayClaim reports whether an entry in doubt may be that delivery of the session.
func (d *Dispatcher) mayClaim(j *job, session string, gen int) bool {
	return j.gen == gen && (j.claimant == "" || j.claimant == session)
}

// adopt makes an entry in doubt a delivery of the session, in its present state since j.since.
func (d *Dispatcher) adopt(now time.Time, j *job, s *session, isBegun bool) {
	l := j.lane
	if l == nil {
		l = d.lane(j.key)
	} else {
		l.holds--
	}
	l.inFlight++
	l.session, j.lane = s, l
	s.take(j)
	j.state = sent
	j.deadline = d.clock(now).Add(d.ackTimeout(s))
	if j.since.IsZero() || j.since.After(now) {
		j.since = now
	}
	if isBegun || !s.ReportsBegun {
		j.state, j.began = begun, d.clock(now).Add(j.since.Sub(now))
	}
	if d.mode == releasing && j.stored == 0 {
		d.touch(j)
	}
	d.watch(j)
	d.place(l)
}

// recover adds an entry up to the mark Sent, if it is open.
func (d *Dispatcher) recover(now time.Time, e *qlog.Entry) {
	row, known := d.rows[e.ID]
	if !d.open.has(e.Ord) {
		return
	}
	delete(d.rows, e.ID)
	d.open.order = append(d.open.order, e.Pos)
	j := &job{
		Pos: e.Pos, key: d.hash(e.Key), gen: 1, stored: row.State,
		attempts: row.Attempts, code: row.Code, reason: row.Reason, since: row.Since, claimant: row.Session,
	}
	j.describe(e)
	if known {
		j.gen = row.Gen
	}
	if d.unfit(j, e) || d.survive(now, j, e) {
		return
	}
	if row.State == 0 && d.state.Released {
		j.gen = 0 // it was only passed over
		d.wait(j)
		if j.key == 0 {
			d.jobs[j.ID] = j
		}
		return
	}
	d.jobs[j.ID] = j
	switch row.State {
	case qlog.RowWaiting:
		d.wait(j)
	case qlog.RowRetrying, qlog.RowSuspect:
		d.retryAt(j, row.Due)
	case qlog.RowLoose:
		s := d.session(row.Session)
		s.Loose, s.ReportsBegun, s.state = true, false, leaving
		d.adopt(now, j, s, true)
		j.due, j.deadline = row.Due, d.clock(now).Add(row.Due.Sub(now))
		d.watch(j)
	default:
		d.doubt(now, j)
	}
}

// doubt has an entry wait until it is known who has it.
func (d *Dispatcher) doubt(now time.Time, j *job) {
	j.state = doubt
	if j.key != 0 {
		j.lane = d.lane(j.key)
		j.lane.holds++
		d.place(j.lane)
	}
	if d.abandoned {
		d.NobodyHolds(now, j.ID)
	}
}

// finishLoading notes that all entries up to the mark Sent as it was loaded are read: those that were
// open and not found were trimmed, and rows that are left belong to nothing.
func (d *Dispatcher) finishLoading() {
	d.missing(d.read.Ord, d.loaded.Ord)
	d.read = d.loaded
	for id, row := range d.rows {
		d.settle(&job{Pos: qlog.Pos{ID: id}, stored: row.State}, stale)
	}
	d.rows = nil
}

// postpone keeps a statement about an entry that is still to be read, and reports whether it did.
func (d *Dispatcher) postpone(id qlog.ID, c claim) bool {
	if id <= d.known || c.cancel == nil && !d.mayFollow(id) {
		return false
	}
	d.early[id] = append(d.early[id], c)
	if c.cancel != nil {
		d.wish = max(d.wish, id)
	}
	return true
}

// resolve takes up the statements about entries that are read now.
func (d *Dispatcher) resolve(now time.Time) {
	var ids []qlog.ID
	for id := range d.early {
		if id <= d.known {
			ids = append(ids, id)
		}
	}
	slices.Sort(ids)
	for _, id := range ids {
		claims := d.early[id]
		delete(d.early, id)
		for _, c := range claims {
			switch {
			case c.settlement != nil:
				d.Settle(now, *c.settlement)
			case c.cancel != nil:
				d.Cancel(now, *c.cancel)
			case c.retry != nil:
				d.Retry(now, *c.retry)
			default:
				if s := d.sessions[c.held.Session]; s != nil {
					s.early--
				}
				d.Held(now, *c.held)
			}
		}
	}
}
