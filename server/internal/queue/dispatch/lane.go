package dispatch

import (
	"hash/maphash"
	"slices"

	"github.com/parleyhq/parley/server/internal/queue/qlog"
)

// Order says what is kept in order within a group.
type Order uint8

// The orders.
const (
	// OrderKey: messages of a key are sent in order, and while one is in flight later ones go only to
	// the same session. A retry does not hold its key.
	OrderKey Order = iota
	// OrderStrict: at most one message of a key is unsettled after its first delivery, retries
	// included.
	OrderStrict
	// OrderNone: any message at any time.
	OrderNone
)

// lane is the queue of the waiting entries of one key. It exists while it has any, or deliveries or
// holds.
type lane struct {
	// key is the hash of the messages' key; 0 for the lane of a single message without order.
	key uint64
	// queue are the waiting entries, in order.
	queue []qlog.ID
	// inFlight counts the deliveries, all of them session's. holds counts the entries that keep the
	// lane from giving anything: those in doubt and, in OrderStrict, those that wait for a retry.
	inFlight, holds int
	session         *session
	// heap is where the lane waits to be taken from; nil if it has nothing to give.
	heap  *heap[*lane]
	index int
}

func (l *lane) rank() int64 { return int64(l.queue[0]) }
func (l *lane) slot() *int  { return &l.index }

// choice is a pair of heaps of lanes: those whose first entry is plain, and those where it is a suspect.
type choice [2]heap[*lane]

// seed is that of the lanes' hashes, the same for all dispatchers of the process.
var seed = maphash.MakeSeed()

// hash returns the key of an entry's lane, 0 for an entry without order.
func (d *Dispatcher) hash(key string) uint64 {
	if key == "" || d.cfg.Order == OrderNone {
		return 0
	}
	return max(maphash.String(seed, key), 1)
}

// lane returns the lane of a key, or a new one if the key is 0.
func (d *Dispatcher) lane(key uint64) *lane {
	if key == 0 {
		return &lane{}
	}
	l := d.lanes[key]
	if l == nil {
		l = &lane{key: key}
		d.lanes[key] = l
	}
	return l
}

// enqueue adds an entry to a lane, at its ID's place.
func (d *Dispatcher) enqueue(l *lane, id qlog.ID) {
	i := len(l.queue)
	if i > 0 && l.queue[i-1] > id {
		i, _ = slices.BinarySearch(l.queue, id)
	}
	if i == 0 {
		d.lift(l)
	}
	l.queue = slices.Insert(l.queue, i, id)
	d.place(l)
}

// line puts a job into its lane.
func (d *Dispatcher) line(j *job) {
	l := d.lane(j.key)
	if j.key == 0 {
		j.lane = l
	}
	d.enqueue(l, j.ID)
}

// dequeue removes an entry from a lane, and reports whether it was there. The caller places the lane.
func (d *Dispatcher) dequeue(l *lane, id qlog.ID) bool {
	i, found := slices.BinarySearch(l.queue, id)
	if !found {
		return false
	}
	if i == 0 {
		d.lift(l)
		l.queue = l.queue[1:]
	} else {
		l.queue = slices.Delete(l.queue, i, i+1)
	}
	return true
}

// lift takes a lane out of its heap, before its rank changes.
func (d *Dispatcher) lift(l *lane) {
	if l.heap != nil {
		l.heap.remove(l)
		l.heap = nil
	}
}

// place puts a lane into the heap in which it belongs, and forgets a lane that has nothing. It is
// called after every change of a lane.
func (d *Dispatcher) place(l *lane) {
	belongs := d.belongs(l)
	if l.heap != belongs {
		d.lift(l)
		l.heap = belongs
	}
	if belongs != nil {
		belongs.fix(l)
	}
	if l.key != 0 && len(l.queue) == 0 && l.inFlight == 0 && l.holds == 0 {
		delete(d.lanes, l.key)
	}
}

// belongs returns the heap in which a lane belongs, nil for none.
func (d *Dispatcher) belongs(l *lane) *heap[*lane] {
	if len(l.queue) == 0 || l.holds > 0 || d.asked[l.queue[0]] != nil {
		return nil
	}
	kind := 0
	if j := d.jobs[l.queue[0]]; j != nil && j.suspect() {
		kind = 1
	}
	switch {
	case l.inFlight == 0:
		return &d.free[kind]
	case d.cfg.Order == OrderKey:
		return &l.session.own[kind]
	default:
		return nil
	}
}

// shed drops the payloads of the entries of a lane that must wait, unless there is room for them.
func (d *Dispatcher) shed(l *lane) {
	for _, id := range l.queue[:min(len(l.queue), 2*maxFollowers)] {
		if j := d.jobs[id]; j != nil && j.state == ready && d.bytes >= d.cfg.MaxBytes/4 {
			d.park(j)
		}
	}
}

// park drops the payload of an entry that waits in its lane.
func (d *Dispatcher) park(j *job) {
	d.bytes -= int64(j.size)
	d.timers.remove(j)
	j.state, j.entry, j.body = parked, nil, nil
	if j.key != 0 && j.gen == d.earlier(j.ID) && j.stored == 0 && !j.queued {
		delete(d.jobs, j.ID) // all that is to be known about it is its place
	}
}

// earlier returns how many deliveries an entry without a row may have had.
func (d *Dispatcher) earlier(id qlog.ID) int {
	if id <= d.loaded.ID && !d.state.Released {
		return 1
	}
	return 0
}
