package chaos

import (
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"
)

// Recorder writes a history while it happens, to memory and as JSON lines to a file. Safe for concurrent use.
type Recorder struct {
	began time.Time

	mu    sync.Mutex // guards what follows
	h     History
	known map[string][]int // copies by message and changed_seq
	next  int64
	open  [2]int // reads and writes under way
	out   *Journal
}

// line is one line of the file; exactly one field is set.
type line struct {
	Op       *Op              `json:"op,omitempty"`
	Copy     *Copy            `json:"copy,omitempty"`
	Life     *Life            `json:"life,omitempty"`
	Delivery *Delivery        `json:"delivery,omitempty"`
	Fault    *Fault           `json:"fault,omitempty"`
	Exit     *Exit            `json:"exit,omitempty"`
	Late     *Late            `json:"late,omitempty"`
	Mine     *mine            `json:"mine,omitempty"`
	Marks    map[string]int64 `json:"marks,omitempty"`
}

// NewRecorder begins a history in the file at path, which is made anew. An empty path keeps it in memory only.
func NewRecorder(path string) (*Recorder, error) {
	out, err := NewJournal(path)
	if err != nil {
		return nil, err
	}
	r := &Recorder{began: time.Now(), known: make(map[string][]int), out: out}
	r.mark("began", r.began.UnixNano())
	return r, nil
}

// Now is the time since the run began.
func (r *Recorder) Now() int64 { return int64(time.Since(r.began)) }

// ID gives a number that was not given before.
func (r *Recorder) ID() int64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.next++
	return r.next
}

// Start begins an op: it gets its id and its begin, and counts as open until Done.
func (r *Recorder) Start(op *Op) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.next++
	op.ID, op.Begin = r.next, r.Now()
	r.open[class(op.Kind)]++
}

func class(k Kind) int {
	if k.write() {
		return 1
	}
	return 0
}

// Done ends an op and records it.
func (r *Recorder) Done(op *Op) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.open[class(op.Kind)]--
	if op.End == 0 {
		op.End = r.Now()
	}
	r.h.Ops = append(r.h.Ops, *op)
	r.write(line{Op: op})
}

// Copy records what a message looked like, and gives its index. The same look has the same index.
func (r *Recorder) Copy(c *Copy) int {
	r.mu.Lock()
	defer r.mu.Unlock()
	key := fmt.Sprintf("%s/%d/%d", c.Channel, c.Seq, c.ChangedSeq)
	for _, i := range r.known[key] {
		if same(&r.h.Copies[i], c) {
			return i
		}
	}
	i := len(r.h.Copies)
	r.known[key] = append(r.known[key], i)
	r.h.Copies = append(r.h.Copies, *c)
	r.write(line{Copy: c})
	return i
}

// same compares every field of two copies.
func same(a, b *Copy) bool {
	x, y := *a, *b
	x.Metadata, y.Metadata = nil, nil
	return x.plain() == y.plain() && maps.Equal(a.Metadata, b.Metadata)
}

// plainCopy is a copy without its map, which can be compared.
type plainCopy struct {
	channel, msgID, from, msgType, content, clientMsgID string
	seq, count, timeMS, changedSeq                      int64
	status                                              Status
}

func (c *Copy) plain() plainCopy {
	return plainCopy{
		channel: c.Channel, msgID: c.MsgID, from: c.From, msgType: c.Type, content: c.Content, clientMsgID: c.ClientMsgID,
		seq: c.Seq, count: c.Count, timeMS: c.TimeMS, changedSeq: c.ChangedSeq, status: c.Status,
	}
}

// Life records that a channel begins on a stream, and gives it its id.
func (r *Recorder) Life(l Life) int64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.next++
	l.ID = r.next
	r.h.Lives = append(r.h.Lives, l)
	r.write(line{Life: &l})
	return l.ID
}

// EndLife records that the subscriber gave a channel up.
func (r *Recorder) EndLife(id int64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	// Lives are few at a time and end soon after they began.
	for i := len(r.h.Lives) - 1; i >= 0; i-- {
		if l := &r.h.Lives[i]; l.ID == id {
			l.End = r.Now()
			r.write(line{Life: l})
			return
		}
	}
}

// Deliver records an event.
func (r *Recorder) Deliver(d Delivery) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if d.At == 0 {
		d.At = r.Now()
	}
	r.h.Deliveries = append(r.h.Deliveries, d)
	r.write(line{Delivery: &d})
}

// BeginFault notes how much was under way as a fault began. EndFault records it.
func (r *Recorder) BeginFault(f *Fault) {
	r.mu.Lock()
	defer r.mu.Unlock()
	f.Begin, f.OpenReads, f.OpenWrites = r.Now(), r.open[0], r.open[1]
}

// EndFault records a fault that is mended.
func (r *Recorder) EndFault(f *Fault) {
	r.mu.Lock()
	defer r.mu.Unlock()
	f.End = r.Now()
	r.h.Faults = append(r.h.Faults, *f)
	r.write(line{Fault: f})
}

// Exit records that a node ended by itself.
func (r *Recorder) Exit(node, log string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	e := Exit{Node: node, At: r.Now(), Log: log}
	r.h.Exits = append(r.h.Exits, e)
	r.write(line{Exit: &e})
}

// Mark notes the time of one of the run's turns: healed, touched, ended.
func (r *Recorder) Mark(name string) { r.mark(name, r.Now()) }

func (r *Recorder) mark(name string, at int64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	marks := map[string]int64{name: at}
	r.h.mark(marks)
	r.write(line{Marks: marks})
}

// at gives when a mark was set; 0 if it was not.
func (r *Recorder) at(name string) int64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	return map[string]int64{"healed": r.h.Healed, "touched": r.h.Touched, "ended": r.h.Ended}[name]
}

// Late records a subscriber that is not level in time.
func (r *Recorder) Late(l Late) {
	r.mu.Lock()
	defer r.mu.Unlock()
	l.At = r.Now()
	r.h.Lates = append(r.h.Lates, l)
	r.write(line{Late: &l})
}

func (h *History) mark(marks map[string]int64) {
	for name, at := range marks {
		switch name {
		case "began":
			h.Began = at
		case "healed":
			h.Healed = at
		case "touched":
			h.Touched = at
		case "ended":
			h.Ended = at
		}
	}
}

// mine records what a user was told of his channels in the end.
func (r *Recorder) mine(m mine) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.h.Mines = append(r.h.Mines, m)
	r.write(line{Mine: &m})
}

// Close writes out the file and gives the history, to which nothing may be added any more.
func (r *Recorder) Close() (*History, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	h := r.h
	h.sort()
	return &h, r.out.Close()
}

func (h *History) sort() {
	slices.SortStableFunc(h.Ops, func(a, b Op) int { return int(a.ID - b.ID) })
	slices.SortStableFunc(h.Faults, func(a, b Fault) int { return int(a.Begin - b.Begin) })
}

// write appends to the file; the lock is held.
func (r *Recorder) write(l line) { r.out.Write(l) }

// ReadHistory reads a history that a Recorder wrote, as far as it goes: a last line that is cut off is passed over.
func ReadHistory(path string) (*History, error) {
	h := new(History)
	lives := make(map[int64]int)
	if err := ReadJournal(path, func(l *line) { h.add(l, lives) }); err != nil {
		return nil, err
	}
	h.sort()
	return h, nil
}

func (h *History) add(l *line, lives map[int64]int) {
	switch {
	case l.Op != nil:
		h.Ops = append(h.Ops, *l.Op)
	case l.Copy != nil:
		h.Copies = append(h.Copies, *l.Copy)
	case l.Life != nil:
		if i, ok := lives[l.Life.ID]; ok {
			h.Lives[i] = *l.Life
			return
		}
		lives[l.Life.ID] = len(h.Lives)
		h.Lives = append(h.Lives, *l.Life)
	case l.Delivery != nil:
		h.Deliveries = append(h.Deliveries, *l.Delivery)
	case l.Fault != nil:
		h.Faults = append(h.Faults, *l.Fault)
	case l.Exit != nil:
		h.Exits = append(h.Exits, *l.Exit)
	case l.Late != nil:
		h.Lates = append(h.Lates, *l.Late)
	case l.Mine != nil:
		h.Mines = append(h.Mines, *l.Mine)
	}
	h.mark(l.Marks)
}
