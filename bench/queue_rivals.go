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
	"strings"

	"github.com/parleyhq/parley/internal/program"
)

// rivalRun is a rival's report of a run.
type rivalRun struct {
	queueRun

	// PickupMS are the times in milliseconds until an idle worker picked up a message, sorted.
	PickupMS []float64 `json:"pickup_ms"`
}

func (r rivalRun) pickup() float64 { return Quantile(r.PickupMS, 0.5) }

// rival is another queue that is measured alongside.
type rival struct {
	// id is the rival's part of the ids of its figures.
	id, name string
	// least is the minimum ratio of Parley's rate to the rival's; 0 for none.
	least     float64
	processes processes
	// kept says for each persistence what the rival keeps.
	kept map[persistence]string
	take func(ctx context.Context, env *Env, keep persistence) (rivalRun, error)
	runs []rivalRun
}

// rivals returns JetStream and, if Options.Rivals is not empty, those that `make rivals` has built.
func (e *Env) rivals() ([]*rival, error) {
	all := []*rival{jetStreamRival(confirmedAcks), jetStreamRival(unconfirmedAcks)}
	if e.Rivals == "" {
		return all, nil
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
	return append(all, redisRival("asynq", 8, asynq), redisRival("BullMQ", 4, node, script)), nil
}

// step returns the step of Env.Each that runs the rival once.
func (r *rival) step(env *Env, keep persistence) func(context.Context) error {
	return func(ctx context.Context) error {
		run, err := r.take(ctx, env, keep)
		if err == nil && (len(run.PickupMS) == 0 || run.Rate <= 0) {
			err = fmt.Errorf("it reported no result: %+v", run)
		}
		if err != nil {
			return fmt.Errorf("%s: %w", r.name, err)
		}
		r.runs = append(r.runs, run)
		return nil
	}
}

// figures returns the rate and the CPU time per message of Parley's rounds (ours), with the rival's
// rounds as their floor. rate and cpu have the names, units and conditions of the figures.
func (r *rival) figures(keep persistence, rate, cpu Figure, ours []queueRun) []Figure {
	theirs := make([]queueRun, len(r.runs))
	for i := range r.runs {
		theirs[i] = r.runs[i].queueRun
	}
	rate.Rival, cpu.Rival = true, true
	rate.Bar, rate.BarMet = "", nil
	rate.ID, cpu.ID = rate.ID+"/"+r.id, cpu.ID+"/"+r.id
	rate = rate.WithFloor(r.name, each(ours, queueRun.speed), each(theirs, queueRun.speed))
	cpu = cpu.WithFloor(r.name, each(ours, queueRun.total), each(theirs, queueRun.total))
	if r.least > 0 {
		rate = rate.WithRatioBar(fmt.Sprintf("at least %v times %s", r.least, r.name), atLeast(r.least))
	}
	rate.Notes = []string{
		"the rival keeps " + r.kept[keep],
		"the rival's CPU time per message: " + r.processes.costs(theirs),
		"an idle worker of the rival picks a message up after " + Summarize(each(r.runs, rivalRun.pickup)).text("ms") + " at the median",
	}
	return []Figure{rate, cpu}
}

// redisRival is a rival whose program runs producers and workers, on a redis-server of its own.
func redisRival(name string, least float64, argv ...string) *rival {
	return &rival{
		id: strings.ToLower(name), name: name, least: least,
		processes: processes{redis: "its redis-server", load: "producers and workers"}, kept: redisKept,
		take: func(ctx context.Context, env *Env, keep persistence) (run rivalRun, err error) {
			server, err := env.StartFloor("redis", env.Dir, string(keep))
			if err != nil {
				return run, err
			}
			defer func() { err = errors.Join(err, server.Close()) }()
			var socket string
			if err := server.Read(ctx, &socket); err != nil {
				return run, err
			}
			argv := append(slices.Clone(argv), "--redis", socket, "--seconds", strconv.FormatFloat(env.Duration.Seconds(), 'f', -1, 64),
				"--payload", strconv.Itoa(env.QueuePayload))
			p, err := start(name, argv, nil)
			if err != nil {
				return run, err
			}
			if err := p.within(ctx, func() error { return json.NewDecoder(p.stdout).Decode(&run) }); err != nil {
				p.kill()
				return run, err
			}
			return run, p.stop(func() {})
		},
	}
}

// jetStreamRival is a work queue of JetStream, on a NATS server of its own.
func jetStreamRival(mode natsMode) *rival {
	r := &rival{
		processes: processes{server: "nats-server", load: "producers and consumers"},
		kept: map[persistence]string{
			appendOnly:  "messages in files, synced every 2 minutes (its default): a power cut loses up to 2 minutes",
			nothingKept: "messages in the server's memory only",
		},
	}
	switch mode {
	case confirmedAcks:
		r.id, r.name = "jetstream", "JetStream, a work queue, acks confirmed"
	case unconfirmedAcks:
		r.id, r.name = "jetstream-unconfirmed", "JetStream, a work queue, acks not confirmed: a lost one redelivers the message"
	case keyedMessages:
		r.id, r.name = "jetstream", "JetStream, a work queue, acks confirmed, a Nats-Msg-Id for each (detects repeats for 2 minutes)"
	}
	storage := map[persistence]string{appendOnly: "file", nothingKept: "memory"}
	r.take = func(ctx context.Context, env *Env, keep persistence) (run rivalRun, err error) {
		target, server, err := env.StartFloorServer(ctx, "nats", env.Dir)
		if err != nil {
			return run, err
		}
		defer func() { err = errors.Join(err, server.Close()) }()
		load, err := env.StartFloor("jetstream", target.Addrs[0], target.Ops[0], storage[keep], string(mode), strconv.Itoa(env.QueuePayload),
			env.Duration.String())
		if err != nil {
			return run, err
		}
		if err := load.Read(ctx, &run); err != nil {
			_ = load.Close() // the error above has more details
			return run, err
		}
		return run, load.Close()
	}
	return r
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
