package main

import (
	"context"
	"runtime/metrics"
	"time"
)

const (
	// Unused memory is returned if it exceeds wasteMin bytes and 1/wasteShare of the memory in use.
	wasteMin, wasteShare = 16 << 20, 16
	// quietBytes is the most that may be allocated between two checks of a server with little load.
	quietBytes = 4 << 20
	// wasteLook is the time between two checks.
	wasteLook = 5 * time.Second
)

// usage is the runtime's view of the heap, in bytes.
type usage struct {
	// live was in use at the last collection. objects is in use now or garbage. free is unused and
	// was not returned to the system. allocated counts all allocations so far.
	live, objects, free, allocated uint64
}

// giveBackMemory returns memory left over from a burst to the system, checking every wasteLook
// until ctx ends. On its own, Go keeps as much as its next collection may need: after ten thousand
// subscribers have connected, a fifth of their memory. Returning it requires a collection, so it
// waits until there is little load.
func giveBackMemory(ctx context.Context, read func() usage, giveBack func()) {
	look := time.NewTicker(wasteLook)
	defer look.Stop()
	for last := read().allocated; ; {
		select {
		case <-look.C:
		case <-ctx.Done():
			return
		}
		now := read()
		if now.allocated-last < quietBytes && now.wasteful() {
			giveBack()
		}
		last = now.allocated
	}
}

func (u *usage) wasteful() bool {
	waste := u.free + max(u.objects, u.live) - u.live
	return waste > wasteMin && waste > u.live/wasteShare
}

func readUsage() usage {
	samples := []metrics.Sample{
		{Name: "/gc/heap/live:bytes"},
		{Name: "/memory/classes/heap/objects:bytes"},
		{Name: "/memory/classes/heap/free:bytes"},
		{Name: "/gc/heap/allocs:bytes"},
	}
	metrics.Read(samples)
	return usage{samples[0].Value.Uint64(), samples[1].Value.Uint64(), samples[2].Value.Uint64(), samples[3].Value.Uint64()}
}
