package dispatch

import (
	"slices"
	"time"

	"github.com/parleyhq/parley/server/internal/queue/qlog"
)

// fill assigns messages to sessions until no session has room or nothing is ready. In each pass the sessions
// take turns; they are in the roster in the order in which they came, from another one each time.
func (d *Dispatcher) fill(now time.Time) {
	if d.cfg.Paused || d.mode != serving {
		return
	}
	if d.Loading() && d.cfg.Order != OrderNone {
		// A session may have a later message of a key, which is not read yet.
		return
	}
	d.bind()
	if d.turn++; d.turn >= len(d.roster) {
		d.turn = 0
	}
	for p := range passes {
		if p == prefetch && now.Before(d.prefetchFrom) {
			break
		}
		asking := d.asking[:0]
		asking = append(append(asking, d.roster[d.turn:]...), d.roster[:d.turn]...)
		for len(asking) > 0 {
			asking = slices.DeleteFunc(asking, func(s *session) bool {
				return d.cfg.Exclusive && s != d.bound || s.room(p) <= 0 || !d.give(now, s, p)
			})
		}
		d.asking = asking
		if p == idleHandlers {
			d.out.Spare = d.spare()
		}
	}
}

// bind decides which session an exclusive partition is bound to. It changes only when the bound
// session has nothing in flight.
func (d *Dispatcher) bind() {
	if !d.cfg.Exclusive || d.bound != nil && len(d.bound.held) > 0 {
		return
	}
	if d.next != nil && d.next.state == attached {
		d.bound, d.next = d.next, nil
	}
	if d.bound == nil || d.bound.state == leaving {
		d.bound = nil
		for _, s := range d.roster {
			if s.state == attached && !s.Remote && !s.Loose && (d.bound == nil || len(s.held) < len(d.bound.held)) {
				d.bound = s
			}
		}
	}
}

// spare returns how many messages are ready that any session may have.
func (d *Dispatcher) spare() int {
	if d.cfg.Exclusive {
		return 0
	}
	return len(d.free[0].items) + len(d.free[1].items)
}

// give hands the session its next message in a pass. It reports whether it did.
func (d *Dispatcher) give(now time.Time, s *session, p pass) bool {
	if s == d.bound && d.next != nil && d.next != s && d.next.state == attached {
		return false // the partition is about to be bound to another one
	}
	for {
		l := d.first(s, p)
		if l == nil {
			return false
		}
		j := d.jobs[l.queue[0]]
		switch {
		case j == nil || j.state != ready:
			if !d.ask(l) {
				return false
			}
		case j.expired(now):
			d.unready(l, j)
			d.settle(j, expired)
			d.place(l)
		case !s.fits(j.size):
			return false
		default:
			d.stage(now, s, l, j)
			return true
		}
	}
}

// first returns the lane with the lowest ID of those that the session may take from in a pass.
func (d *Dispatcher) first(s *session, p pass) (best *lane) {
	kinds := 2
	if s.Budget.suspects > 0 {
		kinds = 1
	}
	follow := s.canFollow(p)
	for kind := range kinds {
		if l := d.free[kind].top(); l != nil && (best == nil || l.rank() < best.rank()) {
			best = l
		}
		if l := s.own[kind].top(); follow && l != nil && (best == nil || l.rank() < best.rank()) {
			best = l
		}
	}
	return best
}

// unready takes the first entry, which is ready, out of its lane. The caller places the lane.
func (d *Dispatcher) unready(l *lane, j *job) {
	d.dequeue(l, j.ID)
	d.timers.remove(j)
	d.bytes -= int64(j.size)
}

// stage chooses a message for a session.
func (d *Dispatcher) stage(now time.Time, s *session, l *lane, j *job) {
	d.unready(l, j)
	j.state, j.since, j.covered, j.lane = staged, now, 0, l
	j.gen++
	j.follows = l.inFlight > 0
	l.inFlight++
	l.session = s
	s.take(j)
	if s.Remote {
		s.credit--
		if s.creditBytes -= int64(j.size); s.creditBytes <= 0 {
			s.credit = 0
		}
	}
	if s.Loose {
		j.due = now.Add(d.ackTimeout(s))
	}
	if j.queued { // by an earlier change: messages of a key are sent in the order in which they are staged
		at := slices.Index(d.changed, j)
		d.changed, j.queued = slices.Delete(d.changed, at, at+1), false
	}
	d.touch(j)
	if len(l.queue) > 0 {
		d.shed(l)
	}
	d.place(l)
}

// expired reports whether the message's time to live is over. It ends when a handler begins, which is
// known of charged attempts.
func (j *job) expired(now time.Time) bool {
	if j.attempts > 0 {
		return false
	}
	expires := j.entry.Expires()
	return !expires.IsZero() && !now.Before(expires)
}

// ask has the payloads of a lane's first entries read again. The lane waits for them. It reports
// false if enough is asked for already.
func (d *Dispatcher) ask(l *lane) bool {
	if len(d.asked) >= qlog.MaxReadEntries {
		return false
	}
	n := 1
	if d.cfg.Order == OrderKey {
		n = min(len(l.queue), maxFollowers, qlog.MaxReadEntries-len(d.asked))
	}
	d.lift(l)
	for _, id := range l.queue[:n] {
		if j := d.jobs[id]; j != nil && j.state == ready || d.asked[id] != nil {
			continue
		}
		d.asked[id] = l
		d.wanted = append(d.wanted, id)
	}
	d.place(l)
	return true
}
