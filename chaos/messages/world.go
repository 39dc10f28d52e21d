package messages

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"time"

	"github.com/parleyhq/parley/chaos"
	parleyv1 "github.com/parleyhq/parley/gen/go/parley/v1"
)

// world is the state that the clients of a run share.
type world struct {
	rec   *Recorder
	addrs []string
	// token returns an access token for a subject, with all capabilities.
	token func(subject string) string
	// guestToken returns an access token that lacks `manage`, so that a members-only channel
	// requires membership.
	guestToken func(subject string) string
	// aideToken returns an access token that allows what a member of a gated channel may.
	aideToken func(subject string) string
	// members is set if the server supports members-only channels.
	members bool
	// channels are the cold channels, and sessions the channels of the sessions.
	channels, sessions []string
	load               load

	told knownHeads
	open openMessages
	pool pool
}

// hot is the channel that receives half of the writes.
const hot = "hot"

// defaultLoad is the load of a long run.
var defaultLoad = load{
	Channels: 40, Sessions: 6, Generators: 1, Long: 10, Gates: 2, Logins: 2,
	Writers: 2, RawWriters: 1, Readers: 2, WriteEvery: 40 * time.Millisecond, ReadEvery: 60 * time.Millisecond,
	hostile: hostile{EditEvery: 20 * time.Millisecond, GiantEvery: time.Second, Slow: 1, Withheld: 2, Idle: 2000},
}

// load is the number of clients and their pace.
type load struct {
	// Channels is the number of cold channels, Sessions that of sessions, and Generators that of the
	// generators on each node.
	Channels, Sessions, Generators int
	// Writers and RawWriters are per node. Writers use the SDK, as a program would. Raw writers
	// never retry, so each answer can be checked on its own.
	Writers, RawWriters int
	// Readers are per node.
	Readers int
	// Long is the number of messages of a generator of which one takes longer than openTimeout.
	Long int
	// KillFor is for how long generators die without a close. 0 means as long as they run.
	KillFor time.Duration
	// Gates is the number of gated channels.
	Gates int
	// Logins is the number of clients that sign in and out.
	Logins int
	// hostile is nothing by default.
	hostile
	// WriteEvery and ReadEvery are the mean pauses of one client between two calls.
	WriteEvery, ReadEvery time.Duration
}

// sized returns the load of a run of a size.
func (l *load) sized(s chaos.Size) load {
	sized := *l
	if s == chaos.Short {
		sized.Gates = 0 // a deleted channel takes half a minute until it can be created again
	}
	switch s {
	case chaos.Short:
		sized.hostile = hostile{EditEvery: 40 * time.Millisecond, GiantEvery: 2 * time.Second, Slow: 1, Withheld: 1, Idle: 200}
		sized.KillFor = 45 * time.Second // the end of the run need not wait for those
	case chaos.Minimal:
		sized.hostile = hostile{EditEvery: 40 * time.Millisecond, GiantEvery: 2 * time.Second, Slow: 1, Idle: 100}
		sized.Long, sized.KillFor = 3, time.Nanosecond // the end of the run would wait for the dead
	case chaos.Long:
	}
	return sized
}

// pickRead returns a channel to read: one in eight times one that costs the most.
func (w *world) pickRead(rng *rand.Rand) string {
	if rng.IntN(8) == 0 {
		return hostileChannels[rng.IntN(len(hostileChannels))]
	}
	return w.pick(rng)
}

// pick returns the hot channel or a random cold one, and one in six times a session.
func (w *world) pick(rng *rand.Rand) string {
	if rng.IntN(6) == 0 {
		return w.sessions[rng.IntN(len(w.sessions))]
	}
	return w.pickPlain(rng)
}

// pickPlain returns the hot channel half of the time, and otherwise a random cold one.
func (w *world) pickPlain(rng *rand.Rand) string {
	if rng.IntN(2) == 0 {
		return hot
	}
	return w.channels[rng.IntN(len(w.channels))]
}

// note records a message that a client was shown, and returns the index of its copy.
func (w *world) note(m *parleyv1.ChannelMessage) int {
	w.told.raise(m.GetChannelId(), max(m.GetSeq(), m.GetChangedSeq()))
	return w.rec.Copy(copyOf(m))
}

func copyOf(m *parleyv1.ChannelMessage) *Copy {
	statuses := map[parleyv1.MessageStatus]Status{
		parleyv1.MessageStatus_MESSAGE_STATUS_SENT:      StatusSent,
		parleyv1.MessageStatus_MESSAGE_STATUS_EDITED:    StatusEdited,
		parleyv1.MessageStatus_MESSAGE_STATUS_RECALLED:  StatusRecalled,
		parleyv1.MessageStatus_MESSAGE_STATUS_OPEN:      StatusOpen,
		parleyv1.MessageStatus_MESSAGE_STATUS_CANCELLED: StatusCancelled,
		parleyv1.MessageStatus_MESSAGE_STATUS_FAILED:    StatusFailed,
	}
	status, ok := statuses[m.GetStatus()]
	if !ok {
		status = statusUnknown
	}
	return &Copy{
		Channel: m.GetChannelId(), MsgID: m.GetMsgId(), Seq: m.GetSeq(), Count: m.GetCount(), From: m.GetFromId(),
		Type: m.GetMsgType(), Content: m.GetContent(), Metadata: m.GetMetadata(), ClientMsgID: m.GetClientMsgId(),
		TimeMS: m.GetMsgTime().AsTime().UnixMilli(), Status: status, ChangedSeq: m.GetChangedSeq(),
	}
}

// knownHeads is the highest seq of each channel that any client knows of. Safe for concurrent use.
type knownHeads struct {
	mu  sync.Mutex // guards seq
	seq map[string]int64
}

func (t *knownHeads) raise(channel string, seq int64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.seq == nil {
		t.seq = make(map[string]int64)
	}
	t.seq[channel] = max(t.seq[channel], seq)
}

func (t *knownHeads) get(channel string) int64 {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.seq[channel]
}

// ackedMessage is a message whose send was acknowledged. from is its sender.
type ackedMessage struct{ channel, msgID, from string }

// pool has the newest acknowledged messages, for any client to edit, recall or read. Safe for
// concurrent use.
type pool struct {
	mu   sync.Mutex // guards the fields below
	ring []ackedMessage
	next int
}

// poolSize bounds the pool. A small pool concentrates changes on the same messages.
const poolSize = 300

func (p *pool) add(s ackedMessage) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.ring) < poolSize {
		p.ring = append(p.ring, s)
		return
	}
	p.ring[p.next] = s
	p.next = (p.next + 1) % poolSize
}

// pick returns a random message, half of the time one of the newest eight, whose last changes may
// still be in flight. Unless from is empty, it returns only messages of that sender. It returns
// false if the pool is empty or 20 tries found none.
func (p *pool) pick(rng *rand.Rand, from string) (ackedMessage, bool) {
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
	return ackedMessage{}, false
}

// text returns a content with the mark of name. One in 50 contents has thousands of bytes.
func text(rng *rand.Rand, name string) string {
	n := rng.IntN(60)
	if rng.IntN(50) == 0 {
		n = 2000 + rng.IntN(4000)
	}
	return fmt.Sprintf("%s %s", markOf(name), strings.Repeat("~ä\"\\", n/4))
}
