package dispatch

import (
	"cmp"
	"slices"
	"time"

	"github.com/parleyhq/parley/server/internal/queue/qlog"
)

// Survivor is what a dispatcher knows of an entry although the log may have forgotten it: a delivery
// that a session has, or a message that was acked.
type Survivor struct {
	id       qlog.ID
	key      uint64
	session  string
	gen      int
	attempts int
	code     string
	begun    bool
	acked    bool
}

// Survivors returns what the next dispatcher of the same process must know after the log lost writes:
// see Restore.
// Until all that a dispatcher was told by Restore is durable, it must hand it on in the same way.
func (d *Dispatcher) Survivors() (all []Survivor) {
	for _, recent := range d.recent {
		for id, r := range recent {
			if r.verdict == Ack {
				all = append(all, Survivor{id: id, gen: r.gen, session: r.session, acked: true})
			}
		}
	}
	for _, v := range d.survivors {
		all = append(all, v)
	}
	for _, s := range d.roster {
		for _, j := range s.held {
			if j.held() {
				all = append(all, Survivor{
					id: j.ID, key: j.key, session: s.ID, gen: j.gen, attempts: j.attempts, code: j.code, begun: j.state == begun,
				})
			}
		}
	}
	slices.SortStableFunc(all, func(a, b Survivor) int { return cmp.Compare(a.id, b.id) })
	return all
}

// Restore notes what an earlier dispatcher knew. Messages that were acked are settled again; what
// sessions have they keep. It is called before the first Step.
func (d *Dispatcher) Restore(all []Survivor) {
	for _, v := range all {
		if v.id <= d.known {
			continue
		}
		if _, known := d.survivors[v.id]; known {
			continue
		}
		d.survivors[v.id] = v
		if v.acked {
			d.recent[0][v.id] = record{v.gen, v.session, Ack}
			continue
		}
		d.session(v.session).early++
		if v.key != 0 {
			d.lane(v.key).holds++
		}
	}
}

// survive makes the entry what it was for the earlier dispatcher, and reports whether it was known.
func (d *Dispatcher) survive(now time.Time, j *job, e *qlog.Entry) bool {
	v, known := d.survivors[j.ID]
	if !known {
		return false
	}
	j.describe(e)
	d.jobs[j.ID] = j
	if v.acked {
		delete(d.survivors, j.ID)
		d.settle(j, acked)
		return true
	}
	d.unrestore(v)
	j.gen, j.attempts, j.code, j.since = max(v.gen, j.gen), v.attempts, v.code, now
	d.adopt(now, j, d.session(v.session), v.begun)
	d.touch(j)
	return true
}

// unrestore takes back what Restore noted about a delivery.
func (d *Dispatcher) unrestore(v Survivor) {
	delete(d.survivors, v.id)
	if s := d.sessions[v.session]; s != nil {
		s.early--
	}
	if v.key != 0 {
		l := d.lanes[v.key]
		l.holds--
		d.place(l)
	}
}

// bury drops survivors that the log does not have any more, up to where all is known.
func (d *Dispatcher) bury() {
	var gone []Survivor
	for id, v := range d.survivors {
		if id <= d.known {
			gone = append(gone, v)
		}
	}
	slices.SortFunc(gone, func(a, b Survivor) int { return cmp.Compare(a.id, b.id) })
	for _, v := range gone {
		if v.acked {
			delete(d.survivors, v.id)
			continue
		}
		d.unrestore(v)
		d.out.Ended = append(d.out.Ended, Ended{Session: v.session, ID: v.id, Gen: v.gen, Why: EndedLost})
	}
}

// disown drops what is known of deliveries of a lost session whose entries are not read yet.
func (d *Dispatcher) disown(s *session) {
	for id, claims := range d.early {
		left := slices.DeleteFunc(claims, func(c claim) bool { return c.held != nil && c.held.Session == s.ID })
		s.early -= len(claims) - len(left)
		if d.early[id] = left; len(left) == 0 {
			delete(d.early, id)
		}
	}
	var disowned []Survivor
	for _, v := range d.survivors {
		if !v.acked && v.session == s.ID {
			disowned = append(disowned, v)
		}
	}
	slices.SortFunc(disowned, func(a, b Survivor) int { return cmp.Compare(a.id, b.id) })
	for _, v := range disowned {
		d.unrestore(v)
	}
}
