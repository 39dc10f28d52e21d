package main

import (
	"sync"
	"time"

	"github.com/parleyhq/parley/hack/internal/verdict"
)

// entry is an entry of a log: the line and the version that it made. The line is absent (noLine) if
// no acknowledgement named the entry.
type entry struct {
	line    int32
	version version
}

const noLine = -1

// state is what was acknowledged of a line.
type state struct {
	msgID string
	// seq is the message's place, and changed that of its last version. They are 0 before the send.
	seq, changed int32
	version      version
	at           time.Time // when version was acknowledged
	// expired is set once a change was refused because the message had expired.
	expired bool
}

// journal is what the server has acknowledged, and what was found wrong.
type journal struct {
	verdict.Findings

	days *days

	mu     sync.Mutex // guards the fields below
	logs   [][]entry  // of each channel, by seq; the first element is unused
	states []state    // by line
}

func newJournal(d *days) *journal {
	return &journal{days: d, logs: make([][]entry, len(d.channels)), states: make([]state, len(d.lines))}
}

// acked records that the server has acknowledged a version of a line as the entry seq.
func (j *journal) acked(i int32, v version, msgID string, seq int64) {
	j.mu.Lock()
	l, s := &j.days.lines[i], &j.states[i]
	was := j.place(l.channel, seq, entry{i, v})
	if v == 0 {
		s.msgID, s.seq = msgID, int32(seq) //nolint:gosec // far fewer entries
	}
	s.changed, s.version, s.at = int32(seq), v, time.Now() //nolint:gosec // far fewer entries
	mismatch := msgID != s.msgID
	j.mu.Unlock()
	if was.line != noLine {
		j.Wrongf("entry %d of %s is acknowledged as version %d of %s and as version %d of %s",
			seq, j.days.channels[l.channel], was.version, j.days.lines[was.line].id, v, l.id)
	}
	if mismatch {
		j.Wrongf("version %d of %s is acknowledged for the message %s", v, l.id, msgID)
	}
}

// place stores an entry at its seq and returns the entry that was there. The caller holds the lock.
func (j *journal) place(channel int, seq int64, e entry) (was entry) {
	log := j.logs[channel]
	for int64(len(log)) <= seq {
		log = append(log, entry{line: noLine})
	}
	was, log[seq] = log[seq], e
	j.logs[channel] = log
	return was
}

// state returns what was acknowledged of a line.
func (j *journal) state(i int32) state {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.states[i]
}

// setExpired records that a change of a line was refused because the message had expired.
func (j *journal) setExpired(i int32) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.states[i].expired = true
}

// newLine adds a line.
func (j *journal) newLine(l line) int32 {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.states = append(j.states, state{})
	return j.days.addLine(l)
}

// find returns the index of the line with an id.
func (j *journal) find(id string) (int32, bool) {
	j.mu.Lock()
	defer j.mu.Unlock()
	i, ok := j.days.byID[id]
	return i, ok
}
