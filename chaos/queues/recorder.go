package queues

import (
	"cmp"
	"slices"

	"github.com/parleyhq/parley/chaos"
)

// sink receives the records of a client: a Recorder, or a pipe to the process that has one.
type sink interface {
	// write records a line. Safe for concurrent use.
	write(l line)
}

// line is one line of a history's file. Exactly one field is set.
type line struct {
	chaos.Line

	Topic     *Topic    `json:"topic,omitempty"`
	Op        *Op       `json:"op,omitempty"`
	Delivery  *Delivery `json:"delivery,omitempty"`
	Stream    *Stream   `json:"stream,omitempty"`
	Contact   *Contact  `json:"contact,omitempty"`
	Lease     *Lease    `json:"lease,omitempty"`
	Count     *Count    `json:"count,omitempty"`
	Worker    string    `json:"worker,omitempty"`
	Handled   *Handled  `json:"handled,omitempty"`
	Failure   *Failure  `json:"failure,omitempty"`
	Lost      *LostKeys `json:"lost,omitempty"`
	Past      *Window   `json:"past,omitempty"`
	Undrained string    `json:"undrained,omitempty"`
}

// now returns the time by the machine's clock, which Redis uses, too.
func now() int64 { return chaos.WallClock() }

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
	r.Recorder, err = chaos.NewRecorder(path, chaos.WallClock, r.b.add, func(l chaos.Line) line { return line{Line: l} })
	if err != nil {
		return nil, err
	}
	return r, nil
}

func (r *Recorder) write(l line) {
	if op := l.Op; op != nil && op.End == 0 {
		r.Begin(op.Kind.produces())
	} else if op != nil {
		r.End(op.Kind.produces())
	}
	r.Write(l)
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
	h       History
	ops     map[string]int // indexes in h.Ops by id, of ops that have not ended
	streams map[string]int // indexes in h.Streams by id
	leases  map[Lease]int  // indexes in h.Leases by all fields but To
}

func (b *builder) add(l *line) {
	h := &b.h
	h.Add(&l.Line)
	switch {
	case l.Topic != nil:
		h.Topics = append(h.Topics, *l.Topic)
	case l.Op != nil:
		b.addOp(l.Op)
	case l.Delivery != nil:
		h.Deliveries = append(h.Deliveries, *l.Delivery)
	case l.Stream != nil:
		b.streams = put(b.streams, &h.Streams, l.Stream.ID, *l.Stream)
	case l.Contact != nil:
		h.Contacts = append(h.Contacts, *l.Contact)
	case l.Lease != nil:
		key := *l.Lease
		key.To = 0
		b.leases = put(b.leases, &h.Leases, key, *l.Lease)
	case l.Count != nil:
		h.Counts = append(h.Counts, *l.Count)
	case l.Worker != "":
		h.Workers = append(h.Workers, l.Worker)
	case l.Handled != nil:
		h.Handled = append(h.Handled, *l.Handled)
	case l.Failure != nil:
		h.Failures = append(h.Failures, *l.Failure)
	case l.Lost != nil:
		h.Lost = append(h.Lost, *l.Lost)
	case l.Past != nil:
		h.Past = append(h.Past, *l.Past)
	case l.Undrained != "":
		h.Undrained = l.Undrained
	}
}

// put adds a value to list or replaces the value with the same key. index has the indexes in list
// by key; put returns it because it creates it if it is nil.
func put[K comparable, V any](index map[K]int, list *[]V, key K, v V) map[K]int {
	if at, ok := index[key]; ok {
		(*list)[at] = v
		return index
	}
	if index == nil {
		index = make(map[K]int)
	}
	index[key] = len(*list)
	*list = append(*list, v)
	return index
}

func (b *builder) addOp(op *Op) {
	b.ops = put(b.ops, &b.h.Ops, op.ID, *op)
	if op.End != 0 {
		delete(b.ops, op.ID)
	}
}

// done returns the history, sorted by time. Ops without an end get the end forever and an unknown
// outcome.
func (b *builder) done() *History {
	h := b.h
	h.Sort()
	for _, at := range b.ops {
		h.Ops[at].End, h.Ops[at].Outcome = forever, chaos.Unknown
	}
	slices.SortStableFunc(h.Ops, func(x, y Op) int { return cmp.Compare(x.Begin, y.Begin) })
	slices.SortStableFunc(h.Deliveries, func(x, y Delivery) int { return cmp.Compare(x.At, y.At) })
	slices.SortStableFunc(h.Leases, func(x, y Lease) int { return cmp.Compare(x.From, y.From) })
	return &h
}
