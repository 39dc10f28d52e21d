package dispatch

import (
	"slices"
	"time"

	"github.com/parleyhq/parley/server/internal/queue/qlog"
)

// build returns the next commit, nil if there is nothing to write or one is under way. It carries
// the changes in the order in which they happened, as many as fit.
func (d *Dispatcher) build() *qlog.Commit {
	if d.commit != nil || d.mode == released || !d.needsCommit() {
		return nil
	}
	c := &qlog.Commit{
		Epoch: d.state.Epoch, Acked: d.state.Ver, Ver: d.state.Ver + 1, GroupsVersion: d.state.GroupsVersion,
		Open: map[int64]string{}, Rows: map[qlog.ID]qlog.Row{}, FreeUnique: map[string]qlog.ID{},
	}
	b := builder{d: d, c: c}
	b.advance()
	b.sweep()
	n := 0
	for n < len(d.changed) && b.hasRoom() {
		b.apply(d.changed[n])
		n++
	}
	d.changed = slices.Delete(d.changed, 0, n)
	if len(d.changed) == 0 && d.rebased {
		// Nothing is left of the ordinals that the log uses again.
		d.add.Trimmed += d.rebase - d.state.Sent.Ord
		d.state.Sent.Ord, d.read.Ord, d.rebased = d.rebase, d.rebase, false
	}
	d.state.Cursor = d.cursor()
	c.Cursor, c.Sent = d.state.Cursor, d.state.Sent
	for number := range c.Open {
		c.Open[number] = d.open.text(number, c.Sent.Ord)
	}
	c.Add, d.add = d.add, qlog.Counters{}
	c.Release = d.mayRelease()
	c.Unsure = c.Release && d.unsure()
	d.commit = c
	return c
}

func (d *Dispatcher) needsCommit() bool {
	return len(d.changed) > 0 || d.rebased || d.cover.ID > d.state.Sent.ID || d.lagging() ||
		d.mayRelease()
}

// lagging reports whether the mark Sent is far behind what was read, so that it must follow although
// nothing is sent. That bounds what lies between them.
func (d *Dispatcher) lagging() bool { return d.read.Ord-d.state.Sent.Ord > maxAhead }

// cursor returns the position before the first open entry.
func (d *Dispatcher) cursor() qlog.Pos {
	at := d.state.Sent
	if d.read.ID < at.ID {
		at = d.read
	}
	if low, ok := d.open.lowest(); ok && low.ID <= at.ID {
		at = qlog.Pos{ID: low.ID - 1, Ord: low.Ord - 1}
	}
	if at.ID < d.state.Cursor.ID {
		return d.state.Cursor
	}
	return at
}

// builder fills a commit.
type builder struct {
	d *Dispatcher
	c *qlog.Commit
	// bytes are those of the records that the commit moves.
	bytes int
}

// hasRoom reports whether any one change more is within the limits of a commit.
func (b *builder) hasRoom() bool {
	n := len(b.c.Rows) + len(b.c.DeleteRows) + len(b.c.Open) + len(b.c.Dead) + len(b.c.Delete)
	return n+3 <= qlog.MaxChanges && len(b.c.Open) < maxChunks && b.bytes+qlog.MaxRecordBytes <= qlog.MaxCallBytes
}

// advance moves the mark Sent over what is to be sent or was settled, and over what was read long
// ago. Ordinals that it passes and that were not in the log were trimmed.
func (b *builder) advance() {
	d := b.d
	from, to := d.state.Sent, d.cover
	if d.lagging() {
		to = d.read
	}
	if to.ID <= from.ID {
		return
	}
	passed := d.open.between(from.Ord, to.Ord)
	for _, ord := range passed {
		b.c.Open[ord/qlog.ChunkOrdinals] = ""
	}
	d.add.Trimmed += to.Ord - from.Ord - int64(len(passed))
	d.state.Sent = to
}

// apply writes the job's present state into the commit.
func (b *builder) apply(j *job) {
	j.queued = false
	j.covered = b.c.Ver
	b.d.owed = append(b.d.owed, j.answers...)
	j.answers = nil
	if j.state == settled {
		b.settle(j)
		return
	}
	switch r, needed := j.row(b.d.mode == releasing); {
	case needed:
		b.c.Rows[j.ID] = r
		j.stored = r.State
	case j.stored != 0:
		b.deleteRow(j)
	}
	switch j.state {
	case staged:
		b.d.leaving = append(b.d.leaving, j)
	case sent, begun:
		b.d.watch(j)
	default:
	}
}

func (b *builder) deleteRow(j *job) {
	b.c.DeleteRows = append(b.c.DeleteRows, j.ID)
	j.stored = 0
}

// settle writes the end of an entry into the commit, and forgets it.
func (b *builder) settle(j *job) {
	d, add := b.d, &b.d.add
	if d.jobs[j.ID] == j {
		delete(d.jobs, j.ID)
	}
	if j.stored != 0 {
		b.deleteRow(j)
	}
	if j.outcome == stale || !d.open.remove(j.Ord) {
		return
	}
	b.c.Open[j.Ord/qlog.ChunkOrdinals] = ""
	switch j.outcome {
	case acked:
		add.Acked++
	case dead:
		add.Dead++
		b.bytes += j.size
		b.c.Dead = append(b.c.Dead, qlog.DeadLetter{
			Pos: j.Pos, MessageID: j.entry.MessageID, Attempts: j.attempts, Reason: j.reason, Code: j.code,
			Key: j.entry.Key, PayloadBytes: j.entry.PayloadBytes,
		})
	case cancelled:
		add.Cancelled++
	case expired:
		add.Expired++
	case trimmed:
		add.Trimmed++
	case elsewhere:
		add.Elsewhere++
	case stale:
	}
	if j.entry != nil && j.entry.UniqueKey != "" {
		b.c.FreeUnique[j.entry.UniqueKey] = j.ID
	}
	if d.cfg.DeleteSettled && j.outcome != trimmed {
		d.pinned = append(d.pinned, j.Pos)
	}
}

// sweep deletes settled entries that the cursor cannot pass, if there are many.
func (b *builder) sweep() {
	d := b.d
	if len(d.pinned) <= maxPinned {
		return
	}
	left := d.pinned[:0]
	for _, p := range d.pinned {
		if p.ID > d.state.Cursor.ID {
			left = append(left, p)
		}
	}
	d.pinned = left
	if len(left) <= maxPinned {
		return
	}
	n := min(len(left), qlog.MaxChanges/2)
	b.c.Delete = append(b.c.Delete, left[:n]...)
	d.pinned = slices.Delete(left, 0, n)
}

// Committed reports the answer to the commit under way: it was applied.
func (d *Dispatcher) Committed(now time.Time, answer qlog.Committed) {
	if d.commit == nil {
		return
	}
	if d.commit.Release {
		d.mode = released
	}
	d.state.Ver, d.state.GroupsVersion = d.commit.Ver, answer.GroupsVersion
	ver := d.commit.Ver
	d.commit = nil
	d.largest, d.largestFrom = answer.Largest, d.state.Sent.Ord+1
	d.Seen(answer.Last)
	for _, a := range d.owed {
		d.reply(a)
	}
	clear(d.owed)
	d.owed = d.owed[:0]
	for _, j := range d.leaving {
		if j.state == staged && j.covered == ver {
			d.send(now, j)
		}
	}
	clear(d.leaving)
	d.leaving = d.leaving[:0]
}

// send sends a delivery whose commit was answered.
func (d *Dispatcher) send(now time.Time, j *job) {
	s := j.session
	d.out.Deliveries = append(d.out.Deliveries, Delivery{
		Session: s.ID, Entry: j.entry, Body: j.body, Gen: j.gen, Attempt: j.attempts + 1,
		Deadline: now.Add(d.ackTimeout(s)), Timeout: d.timeout(j), Suspect: j.suspect(),
	})
	j.body = nil
	d.handing = append(d.handing, handing{s.Budget, int64(j.size)})
	j.state, j.since = sent, now
	j.deadline = d.clock(now).Add(d.ackTimeout(s))
	if s.ReportsBegun {
		d.watch(j)
	} else {
		d.begin(now, j)
	}
}

func (d *Dispatcher) timeout(j *job) time.Duration {
	if j.entry.Timeout > 0 {
		return j.entry.Timeout
	}
	return d.cfg.Timeout
}
