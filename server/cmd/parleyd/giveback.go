package main

import (
	"context"
	"runtime/metrics"
	"time"
)

const (
	// wasteMin and wasteShare: memory that holds nothing is given back where it is more than wasteMin bytes and more than
	// one part in wasteShare of what is in use.
	wasteMin, wasteShare = 16 << 20, 16
	// quietBytes is what may be allocated between two looks by a server that has little to do.
	quietBytes = 4 << 20
	// wasteLook is how often that is judged.
	wasteLook = 5 * time.Second
)

// usage is what the runtime tells of the heap, in bytes.
type usage struct {
	// live was in use at the last collection; objects is in use now or garbage; free belongs to nobody and was not given
	// back; allocated counts all that ever was.
	live, objects, free, allocated uint64
}

// giveBackMemory returns what a burst left behind to the system, every so often until ctx ends. Go by itself keeps as
// much as its next collection may need: after ten thousand subscribers have come, a fifth of what they hold. To give it
// back takes a collection, so that is left until there is little to do.
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
