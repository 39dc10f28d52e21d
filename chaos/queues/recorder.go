package queues

import (
	"cmp"
	"slices"
	"sync"
	"time"

	"github.com/parleyhq/parley/chaos"
)

// sink is where a client tells what it does: a Recorder, or a pipe to the process that has one.
type sink interface {
	// write records a line.
	write(l line)
}

// line is one line of a history's file; exactly one field is set.
type line struct {
	Topic     *Topic           `json:"topic,omitempty"`
	Op        *Op              `json:"op,omitempty"`
	Delivery  *Delivery        `json:"delivery,omitempty"`
	Stream    *Stream          `json:"stream,omitempty"`
	Lease     *Lease           `json:"lease,omitempty"`
	Count     *Count           `json:"count,omitempty"`
	Worker    string           `json:"worker,omitempty"`
	Handled   *Handled         `json:"handled,omitempty"`
	Failure   *Failure         `json:"failure,omitempty"`
	Fault     *chaos.Fault     `json:"fault,omitempty"`
	Exit      *chaos.Exit      `json:"exit,omitempty"`
	Marks     map[string]int64 `json:"marks,omitempty"`
	Past      *Window          `json:"past,omitempty"`
	Undrained string           `json:"undrained,omitempty"`
}

// now is the machine's clock, which Redis goes by as well.
func now() int64 { return time.Now().UnixNano() }

// Recorder writes a history while it happens, to memory and as JSON lines to a file. Safe for concurrent use.
type Recorder struct {
	mu   sync.Mutex // guards what follows
	h    builder
	open [2]int // settlements and produces under way
	out  *chaos.Journal
}

// NewRecorder begins a history in the file at path, which is made anew. An empty path keeps it in memory only.
func NewRecorder(path string) (*Recorder, error) {
	out, err := chaos.NewJournal(path)
	if err != nil {
		return nil, err
	}
	r := &Recorder{out: out}
	r.mark("began")
	return r, nil
}

func (r *Recorder) write(l line) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if l.Op != nil {
		r.count(l.Op)
	}
	r.h.add(&l)
	r.out.Write(l)
}

// count keeps count of what is under way; the lock is held.
func (r *Recorder) count(op *Op) {
	class, by := 0, 1
	if op.Kind.takes() {
		class = 1
	}
	if op.End != 0 {
		by = -1
	}
	r.open[class] += by
}

// BeginFault notes how much was under way as a fault began.
func (r *Recorder) BeginFault(f *chaos.Fault) {
	r.mu.Lock()
	defer r.mu.Unlock()
	f.Begin, f.OpenReads, f.OpenWrites = now(), r.open[0], r.open[1]
}

// EndFault records a fault that is mended.
func (r *Recorder) EndFault(f *chaos.Fault) {
	f.End = now()
	r.write(line{Fault: f})
}

// Exit records that a node ended by itself.
func (r *Recorder) Exit(node, log string) {
	r.write(line{Exit: &chaos.Exit{Node: node, At: now(), Log: log}})
}

// mark notes the time of one of the run's turns: began, healed.
func (r *Recorder) mark(name string) { r.write(line{Marks: map[string]int64{name: now()}}) }

// Close writes out the file and gives the history, to which nothing may be added any more.
func (r *Recorder) Close() (*History, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.h.done(), r.out.Close()
}

// ReadHistory reads a history that a Recorder wrote.
func ReadHistory(path string) (*History, error) {
	var b builder
	if err := chaos.ReadJournal(path, b.add); err != nil {
		return nil, err
	}
	return b.done(), nil
}

// builder makes a history of lines.
type builder struct {
	h       History
	ops     map[string]int // by id, those without an end
	streams map[string]int // by id
	leases  map[Lease]int  // by all but the end
}

func (b *builder) add(l *line) {
	h := &b.h
	switch {
	case l.Topic != nil:
		h.Topics = append(h.Topics, *l.Topic)
	case l.Op != nil:
		b.addOp(l.Op)
	case l.Delivery != nil:
		h.Deliveries = append(h.Deliveries, *l.Delivery)
	case l.Stream != nil:
		b.streams = put(b.streams, &h.Streams, l.Stream.ID, *l.Stream)
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
	case l.Fault != nil:
		h.Faults = append(h.Faults, *l.Fault)
	case l.Exit != nil:
		h.Exits = append(h.Exits, *l.Exit)
	case l.Past != nil:
		h.Past = append(h.Past, *l.Past)
	case l.Undrained != "":
		h.Undrained = l.Undrained
	}
	if at, ok := l.Marks["began"]; ok {
		h.Began = at
	}
	if at, ok := l.Marks["healed"]; ok {
		h.Healed = at
	}
}

// put adds a value, or replaces that of the same key.
func put[K comparable, V any](places map[K]int, list *[]V, key K, v V) map[K]int {
	if at, ok := places[key]; ok {
		(*list)[at] = v
		return places
	}
	if places == nil {
		places = make(map[K]int)
	}
	places[key] = len(*list)
	*list = append(*list, v)
	return places
}

func (b *builder) addOp(op *Op) {
	b.ops = put(b.ops, &b.h.Ops, op.ID, *op)
	if op.End != 0 {
		delete(b.ops, op.ID)
	}
}

// done gives the history. What has no end is of unknown outcome.
func (b *builder) done() *History {
	h := b.h
	for _, at := range b.ops {
		h.Ops[at].End, h.Ops[at].Outcome = forever, chaos.Unknown
	}
	slices.SortStableFunc(h.Ops, func(x, y Op) int { return cmp.Compare(x.Begin, y.Begin) })
	slices.SortStableFunc(h.Deliveries, func(x, y Delivery) int { return cmp.Compare(x.At, y.At) })
	slices.SortStableFunc(h.Leases, func(x, y Lease) int { return cmp.Compare(x.From, y.From) })
	slices.SortStableFunc(h.Faults, func(x, y chaos.Fault) int { return cmp.Compare(x.Begin, y.Begin) })
	return &h
}
