package dispatch

import (
	"slices"
	"time"

	"github.com/parleyhq/parley/server/internal/queue/qlog"
)

// Read is a page of the log to be read; N is 0 for none.
type Read struct {
	After qlog.ID
	N     int
}

// Loading reports whether the entries up to the mark Sent as it was loaded, which may be in doubt, are
// not all read.
func (d *Dispatcher) Loading() bool { return d.read.ID < d.loaded.ID }

// Seen notes the newest entry of the log, from a hint or a look.
func (d *Dispatcher) Seen(last qlog.Pos) {
	if last.ID > d.last.ID {
		d.last = last
	}
}

// Hint notes that the log may have entries behind the newest that is known: they are read, which costs
// no more than to ask for the newest.
func (d *Dispatcher) Hint() { d.hinted = true }

// planRead returns the next page to read, unless one is being read or there is no room.
func (d *Dispatcher) planRead() Read {
	switch {
	case d.reading, d.rebased, d.mode != serving && len(d.survivors) == 0 && !d.Loading():
		return Read{}
	case d.Loading(), len(d.survivors) > 0:
	case d.read.ID >= max(d.last.ID, d.wish) && !d.hinted, d.bytes >= d.cfg.MaxBytes, d.open.n >= d.cfg.MaxOpen,
		d.read.Ord-d.state.Sent.Ord > maxAhead:
		return Read{}
	}
	d.reading, d.hinted, d.readTo = true, false, d.last
	d.readMax = min(d.page, d.pageBySize())
	return Read{After: d.read.ID, N: d.readMax}
}

// pageBySize returns how many entries fit one call, according to the sizes that the log told.
func (d *Dispatcher) pageBySize() int {
	largest, first := 0, (d.read.Ord+1-d.largestFrom)/256
	for run := first; run < first+2; run++ {
		if run >= 0 && run < int64(len(d.largest)) {
			largest = max(largest, d.largest[run])
		}
	}
	return max(1, min(qlog.MaxReadEntries, qlog.MaxCallBytes/max(largest, 1)))
}

// Entries reports the entries that the latest Read returned. None means that there are no more. It
// fails with qlog.ErrRolledBack if the log has lost entries that were read: the holder must then
// acquire the lease again and start a new Dispatcher.
func (d *Dispatcher) Entries(now time.Time, entries []qlog.Entry) error {
	d.reading = false
	if bytes := d.resize(entries); len(entries) >= d.readMax || bytes > qlog.MaxCallBytes/2 {
		d.hinted = true // the page may have been cut
	}
	for i := range entries {
		e := &entries[i]
		switch {
		case e.ID <= d.read.ID:
			continue
		case e.ID <= d.loaded.ID:
			d.missing(d.read.Ord, e.Ord-1)
			d.read = e.Pos
			d.recover(now, e)
			continue
		case d.Loading():
			d.finishLoading()
		}
		if e.Ord <= d.read.Ord {
			if d.read.ID != d.loaded.ID {
				return qlog.ErrRolledBack
			}
			d.rebased, d.rebase = true, e.Ord-1
			break
		}
		d.read = e.Pos
		d.admit(now, e)
	}
	if len(entries) == 0 {
		d.atEnd(now)
	}
	d.known = d.read.ID
	d.bury()
	d.resolve(now)
	return nil
}

// ReadFailed reports that the latest Read was not executed, so that the next Step plans it again.
func (d *Dispatcher) ReadFailed() { d.reading, d.hinted = false, true }

// resize adapts the number of entries of a page to their sizes, and returns the bytes of the page.
func (d *Dispatcher) resize(entries []qlog.Entry) (bytes int) {
	for i := range entries {
		bytes += len(entries[i].Body)
	}
	switch {
	case bytes > qlog.MaxCallBytes/2:
		d.page = max(1, d.page/2)
	case len(entries) >= d.page && bytes < qlog.MaxCallBytes/4:
		d.page = min(2*d.page, qlog.MaxReadEntries)
	}
	return bytes
}

// atEnd notes that nothing follows what was read: what should have followed was trimmed.
func (d *Dispatcher) atEnd(now time.Time) {
	if d.Loading() {
		d.finishLoading()
		return
	}
	if d.readTo.ID > d.read.ID {
		d.read = d.readTo
		if d.read.ID > d.cover.ID {
			d.cover = d.read
		}
	}
	for id := range d.survivors {
		d.wish = max(d.wish, id)
	}
	if d.wish > 0 {
		d.known, d.wish = d.wish, 0
		d.bury()
		d.resolve(now)
	}
}

// describe notes what the job must know of its entry, without the payload.
func (j *job) describe(e *qlog.Entry) {
	kept := *e
	kept.Body = nil
	j.entry, j.size = &kept, len(e.Body)
}

// fresh makes the entry's job, with its payload.
func (d *Dispatcher) fresh(j *job, e *qlog.Entry) {
	j.describe(e)
	j.body, j.state = e.Body, ready
	d.bytes += int64(j.size)
	if expires := e.Expires(); !expires.IsZero() && j.attempts == 0 {
		j.when = expires.UnixNano()
		d.timers.fix(j)
	}
	d.jobs[j.ID] = j
}

// unfit settles an entry that nobody can get, and reports whether it did.
func (d *Dispatcher) unfit(j *job, e *qlog.Entry) bool {
	switch {
	case e.Only != "" && e.Only != d.cfg.Group:
		d.settle(j, elsewhere)
	case e.Unreadable != nil:
		j.code, j.reason = CodeUnreadable, e.Unreadable.Error()
		j.entry, j.size = &qlog.Entry{Pos: e.Pos, MessageID: e.MessageID}, len(e.Body)
		d.settle(j, dead)
	default:
		return false
	}
	d.jobs[j.ID] = j
	return true
}

// admit adds an entry after the mark Sent. It keeps the payload if the entry can be sent at once, or
// soon and there is room.
func (d *Dispatcher) admit(now time.Time, e *qlog.Entry) {
	d.open.add(e.Ord)
	d.open.order = append(d.open.order, e.Pos)
	j := &job{Pos: e.Pos, key: d.hash(e.Key)}
	if d.unfit(j, e) || d.survive(now, j, e) {
		return
	}
	l := d.lane(j.key)
	free := len(l.queue) == 0 && l.inFlight == 0 && l.holds == 0
	if free || len(l.queue) < maxFollowers && d.bytes < d.cfg.MaxBytes/4 {
		d.fresh(j, e)
	}
	if j.key == 0 {
		j.lane = l
	}
	d.enqueue(l, e.ID)
}

// missing settles open entries, by ordinal, that are not in the log any more.
func (d *Dispatcher) missing(after, to int64) {
	for _, ord := range d.open.between(after, to) {
		d.settle(&job{Pos: qlog.Pos{Ord: ord}}, trimmed)
	}
}

// planReread returns the positions of entries whose payloads are to be read again.
func (d *Dispatcher) planReread() []qlog.Pos {
	if len(d.rereading) > 0 || len(d.wanted) == 0 || d.mode != serving {
		return nil
	}
	n := min(len(d.wanted), d.page)
	d.rereading = slices.Clone(d.wanted[:n])
	d.wanted = append(d.wanted[:0], d.wanted[n:]...)
	slices.Sort(d.rereading)
	at := make([]qlog.Pos, 0, n)
	for _, id := range d.rereading {
		if p, open := d.open.find(id); open {
			at = append(at, p)
		}
	}
	return at
}

// Reread reports the entries of the latest Output.Reread that are still in the log.
func (d *Dispatcher) Reread(entries []qlog.Entry) {
	d.resize(entries)
	byID := make(map[qlog.ID]*qlog.Entry, len(entries))
	for i := range entries {
		byID[entries[i].ID] = &entries[i]
	}
	lanes := map[*lane]bool{}
	for _, id := range d.rereading {
		l := d.asked[id]
		delete(d.asked, id)
		if _, waits := slices.BinarySearch(l.queue, id); waits {
			lanes[l] = true
			d.refresh(l, id, byID[id])
		}
	}
	d.rereading = nil
	for l := range lanes {
		if l.inFlight > 0 || l.holds > 0 {
			d.shed(l)
		}
		d.place(l)
	}
}

// RereadFailed reports that the latest Output.Reread was not read.
func (d *Dispatcher) RereadFailed() {
	d.wanted = append(d.rereading, d.wanted...)
	d.rereading = nil
}

// refresh gives a waiting entry its payload, or settles it if it is gone.
func (d *Dispatcher) refresh(l *lane, id qlog.ID, e *qlog.Entry) {
	j := d.jobs[id]
	if j == nil {
		pos, _ := d.open.find(id)
		j = &job{Pos: pos, key: l.key, gen: d.earlier(id)}
	}
	switch {
	case j.state == ready:
	case e == nil:
		d.dequeue(l, id)
		d.jobs[id] = j
		d.settle(j, trimmed)
	case d.unfit(j, e):
		d.dequeue(l, id)
	default:
		d.fresh(j, e)
	}
}
