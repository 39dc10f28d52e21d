package presence

import (
	"context"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/parleyhq/parley/chaos"
)

// Stall is a time at which the machine had too little left for the fleet. It explains what faults
// explain.
type Stall struct {
	// Who is what was late: Machine or Redis.
	Who  string `json:"who"`
	From int64  `json:"from"`
	To   int64  `json:"to"`
}

// The values of Stall.Who.
const (
	// Machine: a timer of this process fired late, so the nodes may have stood still, too.
	Machine = "machine"
	// Redis: a PING took long.
	Redis = "redis"
)

const (
	// stallEvery is the interval between two looks.
	stallEvery = 50 * time.Millisecond
	// stalled is how long a timer or a PING may take longer than it should.
	stalled = 300 * time.Millisecond
)

// stalls records stalls until ctx ends.
func (w *world) stalls(ctx context.Context) {
	for {
		from := w.rec.Now()
		if !chaos.Sleep(ctx, stallEvery) {
			return
		}
		w.stall(Machine, from, stallEvery)
	}
}

// pings records the times at which Redis is slow until ctx ends.
func (w *world) pings(ctx context.Context, c *redis.Client) {
	for chaos.Sleep(ctx, stallEvery) {
		from := w.rec.Now()
		_ = c.Ping(ctx).Err() // a failure is a fault of Redis
		w.stall(Redis, from, 0)
	}
}

// stall records a stall if the time since from is longer than expected.
func (w *world) stall(who string, from int64, expected time.Duration) {
	if to := w.rec.Now(); to-from > int64(expected+stalled) {
		w.rec.Write(line{Stall: &Stall{Who: who, From: from, To: to}})
	}
}
