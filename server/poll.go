package server

import (
	"context"
	"time"
)

// poll calls fn after every interval, until fn returns true or ctx ends.
func poll(ctx context.Context, every time.Duration, fn func(ctx context.Context) (done bool)) {
	ticker := time.NewTicker(every)
	defer ticker.Stop()
	for {
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return
		}
		if fn(ctx) {
			return
		}
	}
}
