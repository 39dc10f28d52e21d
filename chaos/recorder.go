package chaos

import (
	"cmp"
	"slices"
	"sync"
	"time"
)

// Fault is a fault that was injected at Begin and mended at End, by the history's clock.
type Fault struct {
	Name string `json:"name"`
	// Target is the name of what the fault hit, such as a node's address or a server's name.
	Target string `json:"target"`
	Begin  int64  `json:"begin"`
	End    int64  `json:"end"`
	// OpenWrites and OpenReads are the numbers of calls in flight at Begin. A fault without any
	// tested little.
	OpenWrites int `json:"open_writes"`
	OpenReads  int `json:"open_reads"`
	// Holds is set if the target may have held data back and delivered it afterwards, such as a
	// stopped process or a stalled link.
	Holds bool   `json:"holds,omitempty"`
	Err   string `json:"err,omitempty"`
}

// Exit is an unexpected exit of a node, or a graceful end that failed.
type Exit struct {
	Node string `json:"node"`
	At   int64  `json:"at"`
	Log  string `json:"log"`
}

// Line is the part of a history file's line that all harnesses share. At most one field is set.
type Line struct {
	Fault *Fault           `json:"fault,omitempty"`
	Exit  *Exit            `json:"exit,omitempty"`
	Marks map[string]int64 `json:"marks,omitempty"`
}

// The names of the times that every history records with Recorder.Mark or MarkAt.
const (
	markBegan  = "began"
	markHealed = "healed"
)

// History is the part of a history that all harnesses share. Times are by the recorder's clock,
// except Began.
type History struct {
	Faults []Fault
	Exits  []Exit
	// Began is when the run began, in nanoseconds since 1970. Healed is when the last fault was
	// mended, or 0 if the run ended before.
	Began, Healed int64
}

// Add adds the fault, the exit or the marks of a line.
func (h *History) Add(l *Line) {
	switch {
	case l.Fault != nil:
		h.Faults = append(h.Faults, *l.Fault)
	case l.Exit != nil:
		h.Exits = append(h.Exits, *l.Exit)
	}
	if at, ok := l.Marks[markBegan]; ok {
		h.Began = at
	}
	if at, ok := l.Marks[markHealed]; ok {
		h.Healed = at
	}
}

// Sort sorts the faults by Begin.
func (h *History) Sort() {
	slices.SortStableFunc(h.Faults, func(a, b Fault) int { return cmp.Compare(a.Begin, b.Begin) })
}

// WallClock returns nanoseconds since 1970. It is the clock of a history that several processes
// write.
func WallClock() int64 { return time.Now().UnixNano() }

// RunClock returns the clock of a history that one process writes. It counts nanoseconds since the
// call of RunClock, by the monotonic clock.
func RunClock() func() int64 {
	began := time.Now()
	return func() int64 { return int64(time.Since(began)) }
}

// Recorder records a history during the run, in memory and as lines of JSON in a file. L is the
// harness's line type. Safe for concurrent use.
type Recorder[L any] struct {
	now  func() int64
	wrap func(Line) L
	add  func(*L)

	mu       sync.Mutex // guards the fields below and calls of add
	inFlight [2]int     // the numbers of reads and of writes
	out      *Journal
}

// NewRecorder creates the file at path, or truncates it, and records the beginning of the run. If
// path is empty, it writes no file. now is WallClock or a RunClock. add adds a line to the history
// in memory; its calls do not overlap. wrap returns a line with only the common part.
func NewRecorder[L any](path string, now func() int64, add func(*L), wrap func(Line) L) (*Recorder[L], error) {
	out, err := NewJournal(path)
	if err != nil {
		return nil, err
	}
	r := &Recorder[L]{now: now, wrap: wrap, add: add, out: out}
	r.MarkAt(markBegan, time.Now().UnixNano())
	return r, nil
}

// Now returns the current time by the history's clock.
func (r *Recorder[L]) Now() int64 { return r.now() }

// Write adds a line to the history in memory and to the file.
func (r *Recorder[L]) Write(l L) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.add(&l)
	r.out.Write(l)
}

// Begin counts a call, a write or a read, as in flight until End is called with the same argument.
func (r *Recorder[L]) Begin(write bool) { r.count(write, 1) }

// End counts a write, or a read, as no longer in flight.
func (r *Recorder[L]) End(write bool) { r.count(write, -1) }

func (r *Recorder[L]) count(write bool, by int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if write {
		r.inFlight[1] += by
	} else {
		r.inFlight[0] += by
	}
}

// BeginFault sets the fault's begin to now, and its numbers of calls in flight. It records nothing.
func (r *Recorder[L]) BeginFault(f *Fault) {
	r.mu.Lock()
	defer r.mu.Unlock()
	f.Begin, f.OpenReads, f.OpenWrites = r.now(), r.inFlight[0], r.inFlight[1]
}

// EndFault sets the end of a fault to now, and records the fault.
func (r *Recorder[L]) EndFault(f *Fault) {
	f.End = r.now()
	r.Write(r.wrap(Line{Fault: f}))
}

// Exit records that a node exited unexpectedly or failed to end gracefully. log is the end of the
// node's log.
func (r *Recorder[L]) Exit(node, log string) {
	r.Write(r.wrap(Line{Exit: &Exit{Node: node, At: r.now(), Log: log}}))
}

// Mark records the current time under a name, such as that of a phase of the run.
func (r *Recorder[L]) Mark(name string) { r.MarkAt(name, r.now()) }

// MarkAt records a time under a name.
func (r *Recorder[L]) MarkAt(name string, at int64) {
	r.Write(r.wrap(Line{Marks: map[string]int64{name: at}}))
}

// Close flushes and closes the file. Its error includes the first error of writing. Nothing may be
// recorded afterwards.
func (r *Recorder[L]) Close() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.out.Close()
}
