package bench

import (
	"context"
	"fmt"
	"strconv"
	"time"
)

// stopAfter is how long the watchers are read after everyone who has a connection is online again.
const stopAfter = 5 * time.Second

// measureStop halts the last node until its users are offline, while every second of them leaves,
// and resumes it. It fails if one of those who have left is shown online after that.
func (f *PresenceFleet) measureStop(ctx context.Context, env *Env) ([]Figure, error) {
	n := max(env.Users/growthFactor, 2)
	var values []float64
	err := env.Each(ctx, func(ctx context.Context) error {
		took, err := f.halt(ctx, env, n)
		values = append(values, took.Seconds())
		return err
	})
	if err != nil {
		return nil, err
	}
	return []Figure{{
		ID: "presence-stop/return", Name: "SIGCONT of a halted node: until the users who are still connected are online again", Unit: "s",
		Value: Summarize(values), Setup: env.Setup(map[string]string{
			"payload": "", "users": strconv.Itoa(n) + ", half of whom left while the node was halted", "lease": f.LeaseTTL.String(),
			"watchers": fmt.Sprintf("on the other %d nodes", len(env.Addrs)-1),
		}),
		Notes: []string{fmt.Sprintf("no user who had left was shown online by a stream in the %s after that, by a read or in the list", stopAfter)},
	}}, nil
}

// halt runs one round, and returns the time from SIGCONT until the users who stayed are online.
func (f *PresenceFleet) halt(ctx context.Context, env *Env, n int) (took time.Duration, err error) {
	users := newUserSet(n, f.Token)
	others := len(env.Addrs) - 1
	online, err := bringOnline(ctx, env.Addrs[others], users)
	if err != nil {
		return 0, err
	}
	defer online.close()
	watching, err := watchAll(ctx, env.Addrs[:others], users, nil)
	if err != nil {
		return 0, err
	}
	defer watching.close()
	if err := watching.await(ctx, n*others); err != nil {
		return 0, err
	}
	watching.reset()
	if err := f.Stop(); err != nil {
		return 0, err
	}
	stayed := 0
	for i, d := range online.devices {
		if leaves(i) {
			d.leaving.Store(true)
			d.cancel()
			continue
		}
		stayed++
	}
	err = watching.await(ctx, 0)
	began := time.Now()
	if failed := f.Continue(); err == nil {
		err = failed
	}
	if err != nil {
		return 0, err
	}
	if err := watching.await(ctx, stayed*others); err != nil {
		return 0, err
	}
	took = time.Since(began)
	if err := watching.awaitReads(ctx, killLimit, stayed); err != nil {
		return 0, err
	}
	pause(ctx, stopAfter)
	ghosts, wrong := 0, 0
	watching.each(func(_, user int, s *seenUser) {
		switch {
		case leaves(user) && s.onlines > 0:
			ghosts++
		case leaves(user) == s.online:
			wrong++
		}
	})
	if ghosts+wrong > 0 {
		return 0, fmt.Errorf("of %d pairs of a watching node and a user %d were shown online after they had left; at the end %d are wrong",
			n*others, ghosts, wrong)
	}
	return took, watching.awaitReads(ctx, time.Second, stayed)
}

// leaves reports whether user i leaves while the node is halted.
func leaves(i int) bool { return i%2 == 1 }
