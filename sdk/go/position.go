package parley

import (
	"container/list"
	"sync"
)

// Position is a position in a channel's log: all entries up to and including Seq have been
// received. Store it, and resume a subscription from it with After.
type Position struct {
	ChannelID string `json:"channel_id"`
	Seq       int64  `json:"seq"`
	// Epoch is the epoch of the log. Only positions of the same epoch can be compared. It is empty
	// if unknown.
	Epoch string `json:"epoch,omitempty"`
}

// maxHeads is the maximum number of channels of which a client records the highest seq.
const maxHeads = 10_000

// heads holds, for each of the up to 10,000 channels that were observed last, the highest seq that
// the client has received. It is sent as min_seq, so that a list is at least as new. For a channel
// that was dropped no min_seq is sent. It is safe for concurrent use.
type heads struct {
	mu sync.Mutex // guards the fields below
	m  map[string]*list.Element
	// order holds the Positions, the channel that was observed last at the end.
	order list.List
}

// observe records a received seq if it is higher than the recorded one or of another epoch. An
// empty epoch means the recorded one.
func (h *heads) observe(channelID, epoch string, seq int64) {
	h.mu.Lock()
	defer h.mu.Unlock()
	known := h.known(channelID)
	if epoch == "" {
		epoch = known.Epoch
	}
	if known.Epoch == epoch {
		seq = max(seq, known.Seq)
	}
	h.put(Position{ChannelID: channelID, Seq: seq, Epoch: epoch})
}

// reset replaces the recorded position of a channel whose log has lost entries, even by a lower
// one.
func (h *heads) reset(p Position) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.put(p)
}

func (h *heads) get(channelID string) Position {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.known(channelID)
}

func (h *heads) known(channelID string) Position {
	if e := h.m[channelID]; e != nil {
		return e.Value.(Position) //nolint:forcetypeassert // order holds Positions
	}
	return Position{}
}

// put records a position and makes its channel the last one. The caller holds the lock.
func (h *heads) put(p Position) {
	if e := h.m[p.ChannelID]; e != nil {
		e.Value = p
		h.order.MoveToBack(e)
		return
	}
	if h.m == nil {
		h.m = make(map[string]*list.Element)
	}
	h.m[p.ChannelID] = h.order.PushBack(p)
	if h.order.Len() > maxHeads {
		oldest := h.order.Remove(h.order.Front()).(Position) //nolint:forcetypeassert // order holds Positions
		delete(h.m, oldest.ChannelID)
	}
}
