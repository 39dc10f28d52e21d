package bench

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"

	"github.com/parleyhq/parley/internal/program"
)

// rivalRun is a rival's report of a run.
type rivalRun struct {
	PerSecond float64 `json:"per_second"`
	Tasks     int64   `json:"tasks"`
	// PickupMS are the times in milliseconds until an idle worker picked up a task, sorted.
	PickupMS []float64 `json:"pickup_ms"`
}

func (r rivalRun) speed() float64  { return r.PerSecond }
func (r rivalRun) pickup() float64 { return Quantile(r.PickupMS, 0.5) }

// rival is another queue on Redis that is measured alongside.
type rival struct {
	name string
	// least is the minimum ratio of Parley's rate to the rival's.
	least float64
	argv  []string
	runs  []rivalRun
}

// rivals returns the rivals that `make rivals` has built, or none if Options.Rivals is empty.
func (e *Env) rivals() ([]*rival, error) {
	if e.Rivals == "" {
		return nil, nil
	}
	asynq, err := program.Find("rival-asynq")
	if err != nil {
		return nil, fmt.Errorf("%w; `make rivals` builds it", err)
	}
	script := filepath.Join(e.Rivals, "bullmq", "bullmq.js")
	if _, err := os.Stat(filepath.Join(e.Rivals, "bullmq", "node_modules")); err != nil {
		return nil, fmt.Errorf("BullMQ is not installed: %w; `make rivals` does it", err)
	}
	node, err := exec.LookPath("node")
	if err != nil {
		return nil, err
	}
	return []*rival{
		{name: "asynq", least: 8, argv: []string{asynq}},
		{name: "BullMQ", least: 4, argv: []string{node, script}},
	}, nil
}

// take runs the rival once, on a redis-server of its own.
func (r *rival) take(ctx context.Context, env *Env, keep persistence) (err error) {
	server, err := env.StartFloor("redis", env.Dir, string(keep))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, server.Close()) }()
	var socket string
	if err := server.Read(ctx, &socket); err != nil {
		return err
	}
	argv := append(slices.Clone(r.argv), "--redis", socket, "--seconds", strconv.FormatFloat(env.Duration.Seconds(), 'f', -1, 64),
		"--payload", strconv.Itoa(env.QueuePayload))
	p, err := start(r.name, argv, nil)
	if err != nil {
		return err
	}
	var run rivalRun
	if err := p.within(ctx, func() error { return json.NewDecoder(p.stdout).Decode(&run) }); err != nil {
		p.kill()
		return err
	}
	if len(run.PickupMS) == 0 || run.PerSecond <= 0 {
		return errors.Join(fmt.Errorf("%s reported no result: %+v", r.name, run), p.stop(func() {}))
	}
	r.runs = append(r.runs, run)
	return p.stop(func() {})
}

// figure returns f with Parley's rounds (ours) as its value and the rival's rounds as its floor.
func (r *rival) figure(f Figure, ours []queueRun) Figure {
	f = f.WithFloor(r.name+", as its documentation shows", each(ours, queueRun.speed), each(r.runs, rivalRun.speed))
	f.Notes = []string{fmt.Sprintf("an idle worker of %s picks a task up after %s at the median", r.name,
		Summarize(each(r.runs, rivalRun.pickup)).text("ms"))}
	return f.WithRatioBar(fmt.Sprintf("at least %v times %s", r.least, r.name), atLeast(r.least))
}

// floorRedis runs a redis-server for a rival until ctx ends, which it does with the bench. Its
// arguments are a directory and the persistence. It outputs the path of the server's socket.
func floorRedis(ctx context.Context, args []string, out *json.Encoder) (err error) {
	if len(args) != 2 {
		return errors.New("requires the arguments directory, persistence")
	}
	dir, err := os.MkdirTemp(args[0], "parley-bench-floor-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	client, stop, err := startRedis(ctx, dir, persistence(args[1]))
	if err != nil {
		return err
	}
	defer stop()
	if err := out.Encode(client.Options().Addr); err != nil {
		return err
	}
	<-ctx.Done()
	return nil
}
