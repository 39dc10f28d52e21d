package main

import (
	"context"
	"os"
	"runtime/debug"
	"runtime/metrics"
	"time"
)

const (
	// roomyHeap is what the heap may grow to before garbage is collected, however little of it is in use. A node without
	// streams holds 20 MB and would collect fifty times a second under load, a fifth of its work.
	roomyHeap = 96 << 20
	// The bounds of the growth in percent, at which a collection begins: Go's own default, and where little more is gained.
	leastGrowth, mostGrowth = 100, 400
	// heapLook is how often the growth is judged anew.
	heapLook = time.Second
)

// keepHeapRoomy has a small heap collected less often, until ctx ends. A large one is left to Go's default. It does
// nothing where the environment says how to collect: GOGC and GOMEMLIMIT are the operator's.
func keepHeapRoomy(ctx context.Context) {
	if os.Getenv("GOGC") != "" || os.Getenv("GOMEMLIMIT") != "" {
		return
	}
	live := []metrics.Sample{{Name: "/gc/heap/live:bytes"}}
	set := leastGrowth
	look := time.NewTicker(heapLook)
	defer look.Stop()
	for {
		metrics.Read(live)
		if want := growth(live[0].Value.Uint64()); want != set { // to set it stops the world for a moment
			debug.SetGCPercent(want)
			set = want
		}
		select {
		case <-look.C:
		case <-ctx.Done():
			return
		}
	}
}

// growth gives the percentage for a heap of which so much is in use, in steps of fifty.
func growth(live uint64) int {
	if live == 0 || live*(100+mostGrowth)/100 <= roomyHeap {
		return mostGrowth
	}
	percent := int(roomyHeap*100/live) - 100 //nolint:gosec // live is a fifth of roomyHeap at least
	return max(percent/50*50, leastGrowth)
}
