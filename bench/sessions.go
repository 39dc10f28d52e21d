package bench

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"strconv"
	"syscall"
	"time"

	"google.golang.org/protobuf/proto"

	parleyv1 "github.com/parleyhq/parley/gen/go/parley/v1"
	"github.com/parleyhq/parley/gen/go/parley/v1/parleyv1connect"
)

const (
	// redisHalt is how long a slow Redis processes nothing, and redisGo how long it works then.
	redisHalt = 500 * time.Millisecond
	redisGo   = 10 * time.Millisecond
)

// appendRuns are the rounds of appends under one state of Redis.
type appendRuns struct{ rates, p50, p99, costs []float64 }

// measureSessions measures acknowledged appends to sessions while Redis is healthy, slow and
// stopped.
func measureSessions(ctx context.Context, env *Env) (figures []Figure, err error) {
	server, err := env.StartServer(ctx)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, server.Close()) }()
	if server.redis == "" {
		return nil, errors.New("the server has no redis-server; install one")
	}
	pid, err := redisPID(ctx, server.redis)
	if err != nil {
		return nil, err
	}
	senders := cmp.Or(env.Senders, 64)
	name := "bench-" + rand.Text()[:8] + "-"
	load := env.appendTo(senders, func(caller int) string { return name + strconv.Itoa(caller) })
	var healthy, slow, stopped appendRuns
	var floors []float64
	err = env.Each(ctx,
		healthy.take(&server.Target, load, env.Duration, func() func() { return func() {} }),
		func(ctx context.Context) error {
			rate, err := env.commitFloor(ctx, senders)
			floors = append(floors, rate)
			return err
		},
		slow.take(&server.Target, load, env.Duration, func() func() { return slowDown(pid) }),
		stopped.take(&server.Target, load, env.Duration, func() func() { return halt(pid) }))
	if err != nil {
		return nil, err
	}
	setup := env.Setup(map[string]string{
		"senders": strconv.Itoa(senders) + ", each to its own session", "connections": strconv.Itoa(senders) + " (HTTP/1.1, Connect, binary)",
		"duration": env.Duration.String(), "fsync": "every commit, on both sides",
	})
	one := Figure{ID: "sessions/append/rate", Name: "durable appends to sessions, Redis healthy", Unit: "acked/s", Setup: setup}.
		WithFloor("Pebble's own group commit, as many writers, the same bytes, nothing else", healthy.rates, floors)
	one.Notes = []string{healthy.note()}
	figures = append(figures, one)
	for _, c := range []struct {
		id, state string
		runs      *appendRuns
	}{
		{"slow", fmt.Sprintf("Redis slow (it halts for %s, then works for %s)", redisHalt, redisGo), &slow},
		{"stopped", "Redis stopped (SIGSTOP)", &stopped},
	} {
		rate := Figure{ID: "sessions/append-" + c.id + "/rate", Name: "durable appends to sessions, " + c.state, Unit: "acked/s", Setup: setup}.
			WithFloor("with a healthy Redis", c.runs.rates, healthy.rates)
		rate.Notes = []string{c.runs.note()}
		p99 := Figure{ID: "sessions/append-" + c.id + "/p99", Name: "an append to a session, p99, " + c.state, Unit: "ms", Setup: setup}.
			WithFloor("with a healthy Redis", c.runs.p99, healthy.p99)
		figures = append(figures, rate.WithRatioBar("at least 0.9 of the floor", atLeast(0.9)), p99)
	}
	return figures, nil
}

// appendTo returns a load of callers that append one message at a time, each to its own session.
func (e *Env) appendTo(callers int, session func(caller int) string) *work {
	content := e.text()
	return &work{
		callers: callers, procedure: parleyv1connect.MessageServiceAppendSessionMessageProcedure, times: &stopwatch{},
		request: func(caller, _ int) proto.Message {
			return &parleyv1.AppendSessionMessageRequest{SessionId: session(caller), Content: content}
		},
	}
}

// take returns a step for Env.Each that runs the load once and adds its results. disturb changes
// Redis, and the function that it returns puts it right.
func (r *appendRuns) take(t *Target, load *work, duration time.Duration, disturb func() func()) func(context.Context) error {
	return func(ctx context.Context) error {
		if err := settle(ctx, t); err != nil { // while Redis is well
			return err
		}
		restore := disturb()
		defer restore()
		got, err := load.run(ctx, t, duration)
		if err != nil {
			return err
		}
		took, err := load.times.delays()
		r.rates, r.costs = append(r.rates, got.rate), append(r.costs, got.cpu)
		r.p50, r.p99 = append(r.p50, took.P50), append(r.p99, took.P99)
		return err
	}
}

func (r *appendRuns) note() string {
	return fmt.Sprintf("an append: p50 %s, p99 %s; server CPU time %s",
		Summarize(r.p50).text("ms"), Summarize(r.p99).text("ms"), Summarize(r.costs).microseconds())
}

// redisPID returns the process id of the redis-server at a socket.
func redisPID(ctx context.Context, socket string) (int, error) {
	client := redisAt(socket)
	defer client.Close()
	info, err := redisInfo(ctx, client, "server", "process_id")
	if err != nil {
		return 0, err
	}
	return int(info[0]), nil
}

// halt stops a process until the function that it returns is called.
func halt(pid int) func() {
	_ = syscall.Kill(pid, syscall.SIGSTOP) // fails if it is gone: the load shows it
	return func() { _ = syscall.Kill(pid, syscall.SIGCONT) }
}

// sleptOr waits for d or until done is closed, which it reports.
func sleptOr(d time.Duration, done <-chan struct{}) (closed bool) {
	select {
	case <-time.After(d):
		return false
	case <-done:
		return true
	}
}

// slowDown stops a process again and again until the function that it returns is called.
func slowDown(pid int) func() {
	done, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		for {
			goOn := halt(pid)
			stop := sleptOr(redisHalt, done)
			goOn()
			if stop || sleptOr(redisGo, done) {
				return
			}
		}
	}()
	return func() {
		close(done)
		<-ended
	}
}
