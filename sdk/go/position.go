package parley

import "sync"

// Position is a position in a channel's log: all entries up to and including Seq have been
// received. Store it, and resume a subscription from it with After.
type Position struct {
	ChannelID string `json:"channel_id"`
	Seq       int64  `json:"seq"`
	// Epoch is the epoch of the log. Only positions of the same epoch can be compared. It is empty
	// if unknown.
	Epoch string `json:"epoch,omitempty"`
}

// heads holds, for each channel, the highest seq that the client has received. It is sent as
// min_seq, so that a list is at least as new. It is safe for concurrent use.
type heads struct {
	mu sync.Mutex // guards m
	m  map[string]Position
}

// observe records a received seq if it is higher than the recorded one or of another epoch. An
// empty epoch means the recorded one.
func (h *heads) observe(channelID, epoch string, seq int64) {
	h.mu.Lock()
	defer h.mu.Unlock()
	known := h.m[channelID]
	if epoch == "" {
		epoch = known.Epoch
	}
	if known.Epoch == epoch && known.Seq >= seq {
		return
	}
	if h.m == nil {
		h.m = make(map[string]Position)
	}
	h.m[channelID] = Position{ChannelID: channelID, Seq: seq, Epoch: epoch}
}

// reset replaces the recorded position of a channel whose log has lost entries, even by a lower
// one.
func (h *heads) reset(p Position) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.m == nil {
		h.m = make(map[string]Position)
	}
	h.m[p.ChannelID] = p
}

func (h *heads) get(channelID string) Position {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.m[channelID]
}
