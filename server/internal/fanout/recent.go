package fanout

import (
	"time"

	"github.com/parleyhq/parley/server/internal/message"
)

// recentFor is how long a topic keeps its log's end after somebody had it.
const recentFor = 5 * time.Second

// recent is a dense piece of a topic's log that reaches the tail, encoded: what one subscriber's replay read, and what was
// passed on since. When a node dies, the subscribers of its channels come back all at once and from about the same places:
// the first of a channel reads, the others are served from here. It is guarded by topic.mu.
//
// Each of its events has its message as it was at an entry no older than the last one: an edit or a recall that follows
// on empties it.
type recent struct {
	epoch string
	// first is the place of the first of events; bytes is their size, used when somebody last had them.
	first  int64
	events [][]byte
	bytes  int
	used   time.Time
}

func (r *recent) last() int64 { return r.first + int64(len(r.events)) - 1 }

// put keeps what a replay read and encoded, if that reaches as far as what is there.
func (r *recent) put(epoch string, first int64, events [][]byte, now time.Time) {
	if len(events) == 0 || r.epoch == epoch && first+int64(len(events))-1 < r.last() {
		return
	}
	*r = recent{epoch: epoch, first: first, events: events, used: now}
	for _, e := range events {
		r.bytes += len(e)
	}
}

// deliver takes note of an event that is passed on, within bounds.
func (r *recent) deliver(e *message.Event, data func() []byte, cfg *Config) {
	switch {
	case len(r.events) == 0 || e.Epoch == r.epoch && e.Seq <= r.last():
		return
	case e.Epoch != r.epoch || e.Seq != r.last()+1 || e.Kind != message.KindSend || time.Since(r.used) > recentFor:
		r.drop()
		return
	}
	encoded := data()
	r.events = append(r.events, encoded)
	r.bytes += len(encoded)
	for len(r.events) > 1 && (r.bytes > cfg.ReplayFrameBytes || len(r.events) > replayEvents) {
		r.bytes -= len(r.events[0])
		r.events[0] = nil
		r.events = r.events[1:]
		r.first++
	}
}

// since gives the events after a place; none if it does not hold all of them up to goal.
func (r *recent) since(after, goal int64, epoch string, now time.Time) [][]byte {
	if len(r.events) == 0 || r.epoch != epoch || after < r.first-1 || after >= r.last() || goal > r.last() {
		return nil
	}
	r.used = now
	return r.events[after+1-r.first:]
}

// drop frees it.
func (r *recent) drop() { *r = recent{} }

// expire frees it if nobody had it for a while.
func (r *recent) expire(now time.Time) {
	if now.Sub(r.used) > recentFor {
		r.drop()
	}
}
