package presence

import (
	"cmp"
	"slices"
	"time"

	"github.com/parleyhq/parley/chaos"
)

// line is one line of a history's file. Exactly one field is set.
type line struct {
	chaos.Line

	Fleet     *fleetLine `json:"fleet,omitempty"`
	Conn      *Conn      `json:"conn,omitempty"`
	Watch     *Watch     `json:"watch,omitempty"`
	Frame     *Frame     `json:"frame,omitempty"`
	Op        *Op        `json:"op,omitempty"`
	Stall     *Stall     `json:"stall,omitempty"`
	Unsettled string     `json:"unsettled,omitempty"`
}

// fleetLine describes the fleet.
type fleetLine struct {
	Policy string   `json:"policy"`
	Addrs  []string `json:"addrs"`
}

// Recorder records a history during the run. Safe for concurrent use.
type Recorder struct {
	*chaos.Recorder[line]

	b *builder
}

// NewRecorder creates a history in the file at path. If path is empty, the history is in memory
// only.
func NewRecorder(path string) (*Recorder, error) {
	r := &Recorder{b: new(builder)}
	var err error
	r.Recorder, err = chaos.NewRecorder(path, chaos.RunClock(), r.b.add, func(l chaos.Line) line { return line{Line: l} })
	if err != nil {
		return nil, err
	}
	r.MarkAt(markWall, r.wall())
	return r, nil
}

// wall returns when the history's clock was 0, in nanoseconds since 1970. Both clocks are read
// several times, because the process may stand still between two reads.
func (r *Recorder) wall() int64 {
	var wall int64
	for best, try := int64(forever), 0; try < 10; try++ {
		before := r.Now()
		at := time.Now().UnixNano()
		if took := r.Now() - before; took < best {
			best, wall = took, at-before
		}
	}
	return wall
}

// conn records the present state of a device's stream. A later record of the same stream replaces
// it.
func (r *Recorder) conn(c *Conn) {
	copied := *c
	r.Write(line{Conn: &copied})
}

// watch records the present state of a watcher's stream, as conn does.
func (r *Recorder) watch(w *Watch) {
	copied := *w
	r.Write(line{Watch: &copied})
}

// Close flushes and closes the file and returns the history. Nothing may be recorded afterwards.
func (r *Recorder) Close() (*History, error) {
	err := r.Recorder.Close()
	return r.b.done(), err
}

// ReadHistory reads a history that a Recorder wrote. It ignores a truncated last line.
func ReadHistory(path string) (*History, error) {
	var b builder
	if err := chaos.ReadJournal(path, b.add); err != nil {
		return nil, err
	}
	return b.done(), nil
}

// builder builds a history from lines.
type builder struct {
	h              History
	conns, watches map[string]int // indexes by id
}

func (b *builder) add(l *line) {
	h := &b.h
	h.Add(&l.Line)
	switch {
	case l.Fleet != nil:
		h.Policy, h.Addrs = l.Fleet.Policy, l.Fleet.Addrs
	case l.Conn != nil:
		b.conns = put(b.conns, &h.Conns, l.Conn.ID, *l.Conn)
	case l.Watch != nil:
		b.watches = put(b.watches, &h.Watches, l.Watch.ID, *l.Watch)
	case l.Frame != nil:
		h.Frames = append(h.Frames, *l.Frame)
	case l.Op != nil:
		h.Ops = append(h.Ops, *l.Op)
	case l.Stall != nil:
		h.Stalls = append(h.Stalls, *l.Stall)
	case l.Unsettled != "":
		h.Unsettled = l.Unsettled
	}
	if at, ok := l.Marks[markWall]; ok {
		h.Wall = at
	}
	if at, ok := l.Marks[markSettled]; ok {
		h.Settled = at
	}
	if at, ok := l.Marks[markLeaving]; ok {
		h.Leaving = at
	}
}

// put adds a value to list or replaces the value with the same key. index has the indexes in list
// by key; put returns it because it creates it if it is nil.
func put[V any](index map[string]int, list *[]V, key string, v V) map[string]int {
	if at, ok := index[key]; ok {
		(*list)[at] = v
		return index
	}
	if index == nil {
		index = make(map[string]int)
	}
	index[key] = len(*list)
	*list = append(*list, v)
	return index
}

// done returns the history, sorted by time.
func (b *builder) done() *History {
	h := b.h
	h.Sort()
	slices.SortStableFunc(h.Conns, func(x, y Conn) int { return cmp.Compare(x.Begin, y.Begin) })
	slices.SortStableFunc(h.Watches, func(x, y Watch) int { return cmp.Compare(x.Begin, y.Begin) })
	slices.SortStableFunc(h.Frames, func(x, y Frame) int { return cmp.Compare(x.At, y.At) })
	slices.SortStableFunc(h.Ops, func(x, y Op) int { return cmp.Compare(x.Begin, y.Begin) })
	return &h
}
