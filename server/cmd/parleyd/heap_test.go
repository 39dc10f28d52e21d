package main

import "testing"

func TestGrowth(t *testing.T) {
	t.Parallel()
	for live, want := range map[uint64]int{
		0: 400, 1 << 20: 400, 19 << 20: 400, 24 << 20: 300, 32 << 20: 200, 40 << 20: 100, 48 << 20: 100, 1 << 30: 100, 1 << 45: 100,
	} {
		if got := growth(live); got != want {
			t.Errorf("%d MiB in use: %d percent, want %d", live>>20, got, want)
		}
	}
	// The heap size at which a collection begins never exceeds roomyHeap or Go's own, whichever is
	// larger.
	for live := uint64(1 << 20); live < 200<<20; live += 1 << 20 {
		if goal := live * uint64(100+growth(live)) / 100; goal > max(roomyHeap, 2*live) {
			t.Errorf("%d MiB in use: collected at %d MiB", live>>20, goal>>20)
		}
	}
}
