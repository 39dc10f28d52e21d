package messages

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"time"

	parleyv1 "github.com/parleyhq/parley/gen/go/parley/v1"
)

// world is what the clients of a run share.
type world struct {
	rec   *Recorder
	addrs []string
	// token gives a token for a subject, which may do everything.
	token func(subject string) string
	// guestToken gives one that does not let him into a channel that takes members only.
	guestToken func(subject string) string
	// members is set if the server has channels that take members only.
	members  bool
	channels []string
	load     load

	told told
	pool pool
}

// hot is the channel that half of the writes go to.
const hot = "hot"

// defaultLoad is the load of every run.
var defaultLoad = load{
	Channels: 40, Writers: 2, RawWriters: 1, Readers: 2, WriteEvery: 40 * time.Millisecond, ReadEvery: 60 * time.Millisecond,
}

// load says how many clients there are and how fast they go.
type load struct {
	// Channels is the number of cold channels.
	Channels int
	// Writers and RawWriters are per node. Writers use the SDK, as a program would; raw ones make each call once, so
	// that what one answer says can be judged by itself.
	Writers, RawWriters int
	// Readers are per node.
	Readers int
	// WriteEvery and ReadEvery are the mean pauses of one client between two calls.
	WriteEvery, ReadEvery time.Duration
}

// pick chooses a channel: the hot one every other time.
func (w *world) pick(rng *rand.Rand) string {
	if rng.IntN(2) == 0 {
		return hot
	}
	return w.channels[rng.IntN(len(w.channels))]
}

// note records what a message that was shown tells, and gives its copy's index.
func (w *world) note(m *parleyv1.ChannelMessage) int {
	w.told.raise(m.GetChannelId(), max(m.GetSeq(), m.GetChangedSeq()))
	return w.rec.Copy(copyOf(m))
}

func copyOf(m *parleyv1.ChannelMessage) *Copy {
	statuses := map[parleyv1.MessageStatus]Status{
		parleyv1.MessageStatus_MESSAGE_STATUS_SENT:     StatusSent,
		parleyv1.MessageStatus_MESSAGE_STATUS_EDITED:   StatusEdited,
		parleyv1.MessageStatus_MESSAGE_STATUS_RECALLED: StatusRecalled,
	}
	status, ok := statuses[m.GetStatus()]
	if !ok {
		status = -1
	}
	return &Copy{
		Channel: m.GetChannelId(), MsgID: m.GetMsgId(), Seq: m.GetSeq(), Count: m.GetCount(), From: m.GetFromId(),
		Type: m.GetMsgType(), Content: m.GetContent(), Metadata: m.GetMetadata(), ClientMsgID: m.GetClientMsgId(),
		TimeMS: m.GetMsgTime().AsTime().UnixMilli(), Status: status, ChangedSeq: m.GetChangedSeq(),
	}
}

// told is the highest seq of each channel that any client was told of.
type told struct {
	mu  sync.Mutex // guards seq
	seq map[string]int64
}

func (t *told) raise(channel string, seq int64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.seq == nil {
		t.seq = make(map[string]int64)
	}
	t.seq[channel] = max(t.seq[channel], seq)
}

func (t *told) get(channel string) int64 {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.seq[channel]
}

// sent is a message that was acknowledged.
type sent struct{ channel, msgID, from string }

// pool has the newest acknowledged messages, to be edited, recalled and read by whoever comes by.
type pool struct {
	mu   sync.Mutex // guards what follows
	ring []sent
	next int
}

// poolSize bounds the pool: the newer a message, the more happens to it at once.
const poolSize = 300

func (p *pool) add(s sent) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.ring) < poolSize {
		p.ring = append(p.ring, s)
		return
	}
	p.ring[p.next] = s
	p.next = (p.next + 1) % poolSize
}

// pick gives one, half of the time one of the very newest, of which the last entries are still on their way; from chooses
// the sender unless it is empty.
func (p *pool) pick(rng *rand.Rand, from string) (sent, bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for range 20 {
		if len(p.ring) == 0 {
			break
		}
		at := rng.IntN(len(p.ring))
		if rng.IntN(2) == 0 {
			at = (p.next + len(p.ring) - 1 - rng.IntN(min(8, len(p.ring)))) % len(p.ring)
		}
		if s := p.ring[at]; from == "" || s.from == from {
			return s, true
		}
	}
	return sent{}, false
}

// text makes a content with a mark of its own, long enough now and then to matter.
func text(rng *rand.Rand, name string) string {
	n := rng.IntN(60)
	if rng.IntN(50) == 0 {
		n = 2000 + rng.IntN(4000)
	}
	return fmt.Sprintf("%s %s", markOf(name), strings.Repeat("~ä\"\\", n/4))
}
