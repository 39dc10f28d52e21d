package fanout

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/parleyhq/parley/server/internal/message"
)

const (
	// recentFor is how long a topic uses recent events after it began to read them, and parked events
	// after they arrived. A bus that is away does not deliver the recall that changed one of them, and
	// no read may return the text for longer. recentSweep is the interval at which older recent events
	// are dropped.
	recentFor   = time.Second
	recentSweep = time.Second
	// eventBytes is the memory of an encoded event besides its bytes.
	eventBytes = 40
)

// recent holds the latest events of a topic's log, encoded and without a gap: those that one
// subscriber's replay read, and those delivered since. When a node dies, the subscribers of its
// channels come back all at once, from about the same positions. The first subscriber of a channel
// reads the log, and the others are served from here. It is guarded by topic.mu.
//
// Each event has its message in its state as of the last event or later: an edit or a recall that
// follows empties recent. Each topic keeps about Config.ReplayFrameBytes at most, and all topics of
// a hub Config.RecentBytes.
type recent struct {
	epoch string
	// after is the seq after which events begins. bytes is the memory of events. read is when the
	// topic began to read the log for them.
	after  int64
	events []encodedEvent
	bytes  int
	read   time.Time
}

// encodedEvent is an event for the wire. seq is the last entry that it covers, and changed the
// ChangedSeq of its message.
type encodedEvent struct {
	seq, changed int64
	data         []byte
}

// recents accounts for the recent events of all topics of a hub.
type recents struct {
	bytes atomic.Int64

	// mu guards holders, the topics that keep events. It is taken under topic.mu.
	mu      sync.Mutex
	holders map[*topic]struct{}
}

func (r *recent) expired(now time.Time) bool { return now.Sub(r.read) > recentFor }

func (r *recent) last() int64 {
	if len(r.events) == 0 {
		return r.after
	}
	return r.events[len(r.events)-1].seq
}

func sizeOf(e encodedEvent) int { return cap(e.data) + eventBytes }

// grow reserves size more bytes for a topic. It returns false if the hub has no room for them.
func (rs *recents) grow(t *topic, size int) bool {
	if rs.bytes.Add(int64(size)) > int64(t.hub.cfg.RecentBytes) {
		rs.bytes.Add(-int64(size))
		return false
	}
	if t.recent.bytes == 0 {
		rs.mu.Lock()
		if rs.holders == nil {
			rs.holders = map[*topic]struct{}{}
		}
		rs.holders[t] = struct{}{}
		rs.mu.Unlock()
	}
	t.recent.bytes += size
	return true
}

// sweep drops the expired events of all topics, periodically until ctx ends.
func (rs *recents) sweep(ctx context.Context) {
	tick := time.NewTicker(recentSweep)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		rs.mu.Lock()
		holders := slices.Collect(maps.Keys(rs.holders))
		rs.mu.Unlock()
		for _, t := range holders {
			t.mu.Lock()
			if t.closed || t.recent.expired(time.Now()) {
				t.dropRecent()
			}
			t.mu.Unlock()
		}
	}
}

// putRecent replaces the topic's recent events by the end of a replay's encoded events, unless the
// kept ones reach further and have not expired, or Config.RecentBytes is used up. after is the seq
// after which they begin, and read is when the replay began to read them.
func (t *topic) putRecent(epoch string, after int64, events []encodedEvent, read time.Time) {
	r := &t.recent
	if len(events) == 0 || r.epoch == epoch && events[len(events)-1].seq < r.last() && !r.expired(time.Now()) {
		return
	}
	t.dropRecent()
	from, size := len(events), 0
	for from > 0 && (from == len(events) || size+sizeOf(events[from-1]) <= t.hub.cfg.ReplayFrameBytes) {
		from--
		size += sizeOf(events[from])
	}
	if !t.hub.recents.grow(t, size) {
		return
	}
	if from > 0 {
		after = events[from-1].seq
	}
	r.epoch, r.after, r.read = epoch, after, read
	r.events = slices.Clone(events[from:]) // releases the memory of the rest
}

// noteRecent appends a delivered event to the recent events, if there are any. It drops them all if
// the event is an edit or a recall or does not follow them, or if Config.RecentBytes is used up.
// data returns the encoded event.
func (t *topic) noteRecent(e *message.Event, data func() []byte) {
	r := &t.recent
	switch {
	case len(r.events) == 0 || e.Epoch == r.epoch && e.Seq <= r.last():
		return
	case e.Epoch != r.epoch || e.From() > r.last()+1 || e.Kind != message.KindSend || e.Passed || r.expired(time.Now()):
		t.dropRecent()
		return
	}
	encoded := encodedEvent{e.Seq, e.Message.ChangedSeq, data()}
	if !t.hub.recents.grow(t, sizeOf(encoded)) {
		t.dropRecent()
		return
	}
	r.events = append(r.events, encoded)
	for len(r.events) > 1 && (r.bytes > t.hub.cfg.ReplayFrameBytes || len(r.events) > replayEvents) {
		size := sizeOf(r.events[0])
		r.bytes -= size
		t.hub.recents.bytes.Add(-int64(size))
		r.after = r.events[0].seq
		r.events[0] = encodedEvent{}
		r.events = r.events[1:]
	}
}

// since returns the kept events after the seq after. It returns nil if there are none, if they have
// expired, or if it does not have all of them up to goal.
func (r *recent) since(after, goal int64, epoch string, now time.Time) []encodedEvent {
	if len(r.events) == 0 || r.epoch != epoch || after < r.after || after >= r.last() || goal > r.last() || r.expired(now) {
		return nil
	}
	first, _ := slices.BinarySearchFunc(r.events, after+1, func(e encodedEvent, seq int64) int { return cmp.Compare(e.seq, seq) })
	return r.events[first:]
}

// dropRecent frees the topic's recent events.
func (t *topic) dropRecent() {
	if t.recent.bytes == 0 {
		return
	}
	rs := &t.hub.recents
	rs.bytes.Add(-int64(t.recent.bytes))
	rs.mu.Lock()
	delete(rs.holders, t)
	rs.mu.Unlock()
	t.recent = recent{}
}
