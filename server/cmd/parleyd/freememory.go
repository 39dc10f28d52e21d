package main

import (
	"context"
	"runtime/metrics"
	"time"
)

const (
	// Unused memory is returned to the system if it exceeds wasteMin bytes and also 1/wasteShare of
	// the memory in use.
	wasteMin, wasteShare = 16 << 20, 16
	// quietBytes is the limit of little load: memory is returned only if fewer bytes were allocated
	// since the last check.
	quietBytes = 4 << 20
	// wasteInterval is the time between two checks.
	wasteInterval = 5 * time.Second
)

// usage is the runtime's view of the heap, in bytes.
type usage struct {
	// live was in use at the last collection. objects is in use now or garbage. free is unused and
	// was not returned to the system. allocated counts all allocations so far.
	live, objects, free, allocated uint64
}

// freeUnusedMemory returns memory left over from a burst to the system, checking every
// wasteInterval until ctx ends. On its own, Go keeps as much as its next collection may need: after
// ten thousand subscribers have connected, a fifth of their memory. Returning it requires a
// collection, so it waits until there is little load.
func freeUnusedMemory(ctx context.Context, read func() usage, free func()) {
	ticker := time.NewTicker(wasteInterval)
	defer ticker.Stop()
	for last := read().allocated; ; {
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return
		}
		now := read()
		if now.allocated-last < quietBytes && now.wasteful() {
			free()
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
