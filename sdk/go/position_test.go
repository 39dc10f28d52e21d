package parley

import (
	"strconv"
	"testing"
)

// TestHeadsDropTheOldestChannel observes more channels than the client records. The one that was
// not observed for the longest time must be dropped, and no other.
func TestHeadsDropTheOldestChannel(t *testing.T) {
	t.Parallel()
	var h heads
	for i := range maxHeads {
		h.observe(strconv.Itoa(i), "e", 7)
	}
	h.observe("0", "e", 3) // lower, but observed
	h.reset(Position{ChannelID: "1", Seq: 2, Epoch: "e"})
	h.observe("another", "e", 1)
	h.reset(Position{ChannelID: "one more", Seq: 1, Epoch: "e"})
	for id, want := range map[string]int64{"0": 7, "1": 2, "2": 0, "3": 0, "4": 7, "another": 1, "one more": 1} {
		if got := h.get(id).Seq; got != want {
			t.Errorf("channel %s has seq %d, want %d", id, got, want)
		}
	}
	if len(h.m) != maxHeads || h.order.Len() != maxHeads {
		t.Errorf("%d channels in the map and %d in order, want %d", len(h.m), h.order.Len(), maxHeads)
	}
}
