package messages

import (
	"fmt"
	"maps"
	"sync"

	"github.com/parleyhq/parley/chaos"
)

// The names of recorded times (see chaos.Recorder.Mark), besides those in all histories.
const (
	markTouched = "touched"
	markEnded   = "ended"
	markWaited  = "waited"
)

// Recorder records a history during the run. Safe for concurrent use.
type Recorder struct {
	*chaos.Recorder[line]

	mu    sync.Mutex       // guards the fields below; locked before the embedded recorder's lock
	b     *builder         // Copies and Lives are changed with mu held
	known map[string][]int // indexes of copies, by message and changed_seq
	next  int64
}

// NewRecorder creates a history in the file at path. If path is empty, the history is in memory
// only.
func NewRecorder(path string) (*Recorder, error) {
	r := &Recorder{b: newBuilder(), known: make(map[string][]int)}
	var err error
	r.Recorder, err = chaos.NewRecorder(path, chaos.RunClock(), r.b.add, func(l chaos.Line) line { return line{Line: l} })
	if err != nil {
		return nil, err
	}
	return r, nil
}

// ID returns a new unique number.
func (r *Recorder) ID() int64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.next++
	return r.next
}

// Start sets the op's id and begin. The op counts as in flight until Done.
func (r *Recorder) Start(op *Op) {
	r.mu.Lock() // orders the ids by time
	r.next++
	op.ID, op.Begin = r.next, r.Now()
	r.mu.Unlock()
	r.Begin(op.Kind.write())
}

// Done records an op. It sets End to the current time unless End is set.
func (r *Recorder) Done(op *Op) {
	r.End(op.Kind.write())
	if op.End == 0 {
		op.End = r.Now()
	}
	r.Write(line{Op: op})
}

// Copy records a copy of a message and returns its index. Equal copies share an index.
func (r *Recorder) Copy(c *Copy) int {
	r.mu.Lock()
	defer r.mu.Unlock()
	key := fmt.Sprintf("%s/%d/%d", c.Channel, c.Seq, c.ChangedSeq)
	for _, i := range r.known[key] {
		if same(&r.b.h.Copies[i], c) {
			return i
		}
	}
	i := len(r.b.h.Copies)
	r.known[key] = append(r.known[key], i)
	r.Write(line{Copy: c})
	return i
}

// same reports whether all fields of two copies are equal.
func same(a, b *Copy) bool {
	x, y := *a, *b
	x.Metadata, y.Metadata = nil, nil
	return x.plain() == y.plain() && maps.Equal(a.Metadata, b.Metadata)
}

// plainCopy is a copy without its map, so that it is comparable.
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

// Life records that a subscriber begins to follow a channel, and returns the life's id.
func (r *Recorder) Life(l Life) int64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.next++
	l.ID = r.next
	r.Write(line{Life: &l})
	return l.ID
}

// EndLife records that a subscriber stopped following a channel. id is the life's, as Life returned
// it. EndLife ignores an unknown id.
func (r *Recorder) EndLife(id int64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	at, ok := r.b.lives[id]
	if !ok {
		return
	}
	l := r.b.h.Lives[at]
	l.End = r.Now()
	r.Write(line{Life: &l})
}

// Deliver records an event. It sets At to the current time unless At is set.
func (r *Recorder) Deliver(d Delivery) {
	if d.At == 0 {
		d.At = r.Now()
	}
	r.Write(line{Delivery: &d})
}

// Late records a subscriber that did not catch up in time.
func (r *Recorder) Late(l Late) {
	l.At = r.Now()
	r.Write(line{Late: &l})
}

// Close flushes and closes the file and returns the history. Nothing may be recorded afterwards.
func (r *Recorder) Close() (*History, error) {
	err := r.Recorder.Close()
	return r.b.done(), err
}
