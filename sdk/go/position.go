package parley

import "sync"

// Position is a position in a channel's log: everything up to and including Seq has been seen.
// Store it, and resume a subscription from it with After.
type Position struct {
	ChannelID string `json:"channel_id"`
	Seq       int64  `json:"seq"`
	// Epoch is the epoch of the log. Positions can be compared only within one epoch. Empty if it
	// is not known.
	Epoch string `json:"epoch,omitempty"`
}

// heads remembers, for each channel, the highest seq that the client was told: what min_seq asks to
// be at least as new as. It is safe for concurrent use.
type heads struct {
	mu sync.Mutex // guards m
	m  map[string]Position
}

// note records that the client was told seq. Another epoch than the one known starts anew.
func (h *heads) note(channelID, epoch string, seq int64) {
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

// reset forgets what was known of the channel, which has lost entries.
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
