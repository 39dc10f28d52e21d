package bench

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"strconv"
	"time"
)

const (
	// idleBuffer is the size of a read buffer in bytes if there are tens of thousands of streams.
	idleBuffer = 512
	// idlePerChannel is the number of idle streams of one channel.
	idlePerChannel = 10
)

// measureIdle measures the memory of idle streams. Each round has servers of its own, because a
// process does not return its memory at once.
func measureIdle(ctx context.Context, env *Env) ([]Figure, error) {
	var values, floors []float64
	heartbeat := max(env.Duration/2, 100*time.Millisecond)
	err := env.Each(ctx, func(ctx context.Context) error {
		s, err := env.StartServer(ctx, "PARLEY_LIMITS_HEARTBEAT_INTERVAL="+heartbeat.String())
		if err != nil {
			return err
		}
		perStream, err := idle(ctx, env, &s.Target)
		values = append(values, perStream)
		return errors.Join(err, s.Close())
	}, func(ctx context.Context) error {
		floor, process, err := env.StartFloorServer(ctx, "fanout")
		if err != nil {
			return err
		}
		perStream, err := idle(ctx, env, floor)
		floors = append(floors, perStream)
		return errors.Join(err, process.Close())
	})
	if err != nil {
		return nil, err
	}
	f := Figure{
		ID: "idle/memory", Name: "resident memory of the server per idle stream", Unit: "KiB",
		Setup: env.Setup(map[string]string{
			"payload": "", "connections": strconv.Itoa(env.Streams), "channels": strconv.Itoa(idleChannels(env)),
			"duration":  env.Duration.String() + " after the last stream was live",
			"heartbeat": heartbeat.String(), "GC": runtime.Version() + "'s, as parleyd sets it",
		}),
	}.WithFloor("a bare connect-go server", values, floors)
	return []Figure{f.WithBar("40 KiB at most", f.Value.Median <= 40)}, nil
}

func idleChannels(env *Env) int { return (env.Streams + idlePerChannel - 1) / idlePerChannel }

// idle opens env.Streams streams at t, waits for env.Duration, and returns the growth of the
// server's resident memory per stream in KiB.
func idle(ctx context.Context, env *Env, t *Target) (float64, error) {
	pause(ctx, env.Duration/4)
	before, err := t.Usage(ctx)
	if err != nil {
		return 0, err
	}
	channels := idleChannels(env)
	crowd, err := openCrowd(ctx, t, env.Streams, idleBuffer, func(i int) string { return fmt.Sprintf("idle-%d", i%channels) }, nil)
	if err != nil {
		return 0, err
	}
	defer crowd.close()
	pause(ctx, env.Duration) // two heartbeats, and the garbage of the start is collected
	after, err := t.Usage(ctx)
	if err := errors.Join(err, crowd.err()); err != nil {
		return 0, err
	}
	return (after.RSS - before.RSS) / 1024 / float64(env.Streams), nil
}
