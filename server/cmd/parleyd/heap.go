package main

import (
	"context"
	"os"
	"runtime/debug"
	"runtime/metrics"
	"time"
)

const (
	// roomyHeap is the heap size in bytes up to which garbage is not collected, unless the heap has
	// grown by mostGrowth percent. A node without streams holds 20 MB. Under load it would otherwise
	// collect fifty times a second, which costs a fifth of its work.
	roomyHeap = 96 << 20
	// The bounds of the heap growth, in percent of the memory in use, at which a collection begins:
	// Go's default, and the value above which little is gained.
	leastGrowth, mostGrowth = 100, 400
	// heapLook is the time between two checks of the growth.
	heapLook = time.Second
)

// keepHeapRoomy makes collections of a small heap less frequent, until ctx ends. A large heap keeps
// Go's default. It does nothing if GOGC or GOMEMLIMIT is set: the operator has chosen then.
func keepHeapRoomy(ctx context.Context) {
	if os.Getenv("GOGC") != "" || os.Getenv("GOMEMLIMIT") != "" {
		return
	}
	live := []metrics.Sample{{Name: "/gc/heap/live:bytes"}}
	set := leastGrowth
	ticker := time.NewTicker(heapLook)
	defer ticker.Stop()
	for {
		metrics.Read(live)
		if want := growth(live[0].Value.Uint64()); want != set { // setting it stops the world briefly
			debug.SetGCPercent(want)
			set = want
		}
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return
		}
	}
}

// growth returns the GC percentage for a heap with live bytes in use, in steps of fifty.
func growth(live uint64) int {
	if live == 0 || live*(100+mostGrowth)/100 <= roomyHeap {
		return mostGrowth
	}
	percent := int(roomyHeap*100/live) - 100 //nolint:gosec // live is at least a fifth of roomyHeap
	return max(percent/50*50, leastGrowth)
}
