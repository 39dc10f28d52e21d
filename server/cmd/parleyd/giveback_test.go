package main

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

func TestWasteful(t *testing.T) {
	t.Parallel()
	const mib = 1 << 20
	for name, tt := range map[string]struct {
		usage usage
		want  bool
	}{
		"nothing":              {usage{}, false},
		"all in use":           {usage{live: 200 * mib, objects: 200 * mib}, false},
		"little garbage":       {usage{live: 20 * mib, objects: 30 * mib}, false},
		"much garbage":         {usage{live: 200 * mib, objects: 230 * mib}, true},
		"much that is free":    {usage{live: 20 * mib, objects: 20 * mib, free: 40 * mib}, true},
		"little beside a lot":  {usage{live: 1000 * mib, objects: 1020 * mib, free: 20 * mib}, false},
		"less than was in use": {usage{live: 50 * mib, objects: 20 * mib}, false},
	} {
		if got := tt.usage.wasteful(); got != tt.want {
			t.Errorf("%s: %v, want %v", name, got, tt.want)
		}
	}
}

// TestGiveBackMemory checks that unused memory is returned once there is little load, and not
// sooner.
func TestGiveBackMemory(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const mib = 1 << 20
		var mu sync.Mutex // guards now and given
		now := usage{live: 20 * mib, objects: 20 * mib, free: 60 * mib}
		given := 0
		read := func() usage {
			mu.Lock()
			defer mu.Unlock()
			return now
		}
		giveBack := func() {
			mu.Lock()
			defer mu.Unlock()
			given++
			now.free = 0
		}
		ctx, stop := context.WithCancel(t.Context())
		defer stop()
		go giveBackMemory(ctx, read, giveBack)
		look := func(free, allocated uint64, want int) {
			synctest.Wait()
			mu.Lock()
			now.free, now.allocated = now.free+free, now.allocated+allocated
			mu.Unlock()
			<-time.After(wasteLook)
			synctest.Wait()
			mu.Lock()
			defer mu.Unlock()
			if given != want {
				t.Errorf("%d MiB later it was given back %d times, want %d", now.allocated/mib, given, want)
			}
		}
		look(0, 0, 1)
		look(0, 0, 1) // nothing is left to return
		look(60*mib, 100*mib, 1)
		look(0, 100*mib, 1)
		look(0, mib, 2)
	})
}

func TestReadUsage(t *testing.T) {
	t.Parallel()
	if u := readUsage(); u.objects == 0 || u.allocated < u.objects {
		t.Errorf("%+v", u)
	}
}
