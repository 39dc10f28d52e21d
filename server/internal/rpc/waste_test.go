package rpc

import (
	"testing"
	"time"
)

func TestWaste(t *testing.T) {
	t.Parallel()
	start := time.Now()
	for _, tc := range []struct {
		name   string
		do     func(w *waste) bool
		within bool
	}{
		{"as much as is allowed", func(w *waste) bool { return w.received(wasteBytes, start) }, true},
		{"more", func(w *waste) bool { return w.received(wasteBytes+1, start) }, false},
		{"more after a while", func(w *waste) bool {
			w.received(wasteBytes, start)
			return w.received(10*wastePerSecond, start.Add(10*time.Second))
		}, true},
		{"more than that", func(w *waste) bool {
			w.received(wasteBytes, start)
			return w.received(10*wastePerSecond+1, start.Add(10*time.Second))
		}, false},
		{"a pause does not raise the limit", func(w *waste) bool {
			w.received(1, start)
			return w.received(wasteBytes+1, start.Add(time.Hour))
		}, false},
		{"after a call", func(w *waste) bool {
			w.received(wasteBytes, start)
			w.called()
			return w.received(wasteBytes, start)
		}, true},
		{"answers to what was sent", func(w *waste) bool {
			w.used(100 * wasteBytes)
			w.called() // keeps the credit
			return w.received(2*wasteBytes, start)
		}, true},
		{"the credit has a limit", func(w *waste) bool {
			w.used(100 * wasteBytes)
			return w.received(2*wasteBytes+1, start)
		}, false},
	} {
		if got := tc.do(&waste{}); got != tc.within {
			t.Errorf("%s: within the bounds: %t", tc.name, got)
		}
	}
}
