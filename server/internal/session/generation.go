package session

import (
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/parleyhq/parley/server/internal/fault"
	"github.com/parleyhq/parley/server/internal/message"
)

// target is an open message, or one that was.
type target struct{ channelID, msgID string }

// phase is how far a generation is.
type phase uint8

const (
	growing phase = iota
	// frozen is while somebody cancels the message: no more text is taken. It lasts freezeFor at most:
	// the cancellation may have failed.
	frozen
	// over is once the message is no longer open. It has no text any more.
	over
)

// phases holds the transitions of a phase.
var phases = map[phase][]phase{growing: {frozen, over}, frozen: {growing, over}} //nolint:gochecknoglobals // a constant

// freezeFor is how long a generation stays frozen.
const freezeFor = 5 * time.Second

// generation is the text of an open message on the node that its generator sends it to.
type generation struct {
	target

	// subject is who sent its first delta here.
	subject string

	mu sync.Mutex // guards the fields below
	// removed is set once it is no longer in the table.
	removed bool
	// seq and attempt are those of message.Delta. loaded is set once the text of the attempt and the
	// status are known that other nodes may have left.
	seq, attempt int64
	loaded       bool
	text         []byte
	phase        phase
	// status is the message's status, and length that of its text, once the phase is over. frozenAt is
	// when the phase became frozen.
	status   message.Status
	length   int
	frozenAt time.Time
	// mirrored is how much of the text the mirror has. stale is set while it lacks text or has an old
	// time of the last delta, and once the phase is over until it was told to drop the text.
	mirrored int
	stale    bool
	// last is when the last delta arrived, checked when the status was read, and loadedAt when loaded
	// was set.
	last, checked, loadedAt time.Time
}

// superseded is the fault of a generator whose message another one has opened again.
func superseded() error {
	return fault.New(fault.FailedPrecondition, fault.AppendSuperseded, "a later call has opened the message again")
}

// append appends the piece to the text. It returns the number of bytes that the text has then, and
// the new part of it. The caller holds mu.
func (g *generation) append(d *message.Delta, limit int) (length int, rest string, err error) {
	switch {
	case d.Attempt < g.attempt:
		return 0, "", superseded()
	case d.Attempt > g.attempt:
		g.restart(d.Attempt)
	}
	known := len(g.text)
	if d.Offset > known {
		f := fault.New(fault.OutOfRange, fault.PositionOutOfRange,
			"offset: %d bytes are known of the text; send again from there", known)
		f.Field, f.Limit = "offset", int64(known)
		return 0, "", f
	}
	again := min(known-d.Offset, len(d.Text))
	if !strings.HasPrefix(string(g.text[d.Offset:]), d.Text[:again]) {
		return 0, "", fault.Invalid("text", 0, "text: differs from the bytes after offset that were appended before")
	}
	if d.Offset+len(d.Text) > limit {
		f := fault.OverLimit(int64(limit), "text: a message has at most %d bytes")
		f.Field = "text"
		return 0, "", f
	}
	rest = d.Text[again:]
	g.text = append(g.text, rest...)
	return len(g.text), rest, nil
}

// move moves the generation to a phase, if that is a transition. The caller holds mu.
func (g *generation) move(to phase) bool {
	if !slices.Contains(phases[g.phase], to) {
		return false
	}
	if g.phase = to; to == frozen {
		g.frozenAt = time.Now()
	}
	return true
}

// thaw lets the text grow again if it was frozen for freezeFor. What other nodes know is read again
// first. The caller holds mu.
func (g *generation) thaw() {
	if g.phase == frozen && time.Since(g.frozenAt) > freezeFor {
		g.move(growing)
		g.loaded = false
	}
}

// restart begins the text of an attempt. The caller holds mu.
func (g *generation) restart(attempt int64) {
	g.attempt, g.text, g.mirrored, g.stale = attempt, nil, 0, true
}

// adopt takes over what the mirror has, if it is of a higher attempt or a longer text. The caller
// holds mu.
func (g *generation) adopt(known *message.OpenText) {
	if known.Attempt > g.attempt || known.Attempt == g.attempt && len(known.Text) > len(g.text) {
		g.attempt, g.text, g.mirrored = known.Attempt, []byte(known.Text), len(known.Text)
	}
}

// snapshot returns the text so far.
func (g *generation) snapshot() message.OpenText {
	return message.OpenText{MsgID: g.msgID, Seq: g.seq, Attempt: g.attempt, Text: string(g.text), Age: time.Since(g.last)}
}
