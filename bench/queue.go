package bench

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"strconv"
	"time"
)

// rawName is the name of the floor of queues.
const rawName = "raw go-redis, XADD in pipelines of 100, XREADGROUP COUNT 100, one XACK for each"

// throughput holds the rounds of the area queue with one kind of persistence.
type throughput struct {
	keep                 persistence
	plain, keyed, floors []queueRun
	rivals               []*rival
	// keyedRival is the rival that detects duplicates, as Parley does with idempotency keys.
	keyedRival *rival
}

// measureQueue measures messages that are produced, consumed and acknowledged concurrently, with
// each kind of persistence of Redis.
func measureQueue(ctx context.Context, env *Env) ([]Figure, error) {
	var figures []Figure
	for _, keep := range []persistence{appendOnly, nothingKept} {
		rivals, err := env.rivals()
		if err != nil {
			return nil, err
		}
		t := &throughput{keep: keep, rivals: rivals, keyedRival: jetStreamRival(keyedMessages)}
		if err := t.take(ctx, env); err != nil {
			return nil, err
		}
		figures = append(figures, t.figures(env)...)
	}
	return figures, nil
}

// take starts a server and runs all rounds on it, in turn with the floor and the rivals.
func (t *throughput) take(ctx context.Context, env *Env) (err error) {
	s, err := env.startQueues(ctx, t.keep)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.Close()) }()
	steps := []func(context.Context) error{
		func(ctx context.Context) error { return s.takeRun(ctx, env.queueLoad(), &t.plain) },
		func(ctx context.Context) error {
			run, err := floorOf[queueRun](ctx, env, "queue", t.keep, env.Duration)
			t.floors = append(t.floors, run)
			return err
		},
	}
	for _, r := range t.rivals {
		steps = append(steps, r.step(env, t.keep))
	}
	if t.keep == appendOnly {
		keyed := env.queueLoad()
		keyed.idempotent = true
		steps = append(steps, func(ctx context.Context) error { return s.takeRun(ctx, keyed, &t.keyed) }, t.keyedRival.step(env, t.keep))
	}
	return env.Each(ctx, steps...)
}

// queueLoad returns the load of the area queue.
func (e *Env) queueLoad() queueLoad {
	return queueLoad{topics: 1, payload: e.QueuePayload, duration: e.Duration}
}

// takeRun runs a load once and appends the result.
func (s *queueServer) takeRun(ctx context.Context, load queueLoad, into *[]queueRun) error {
	run, err := s.run(ctx, load)
	*into = append(*into, run)
	return err
}

// floorOf runs a floor of queues once. The floor writes one T and ends.
func floorOf[T any](
	ctx context.Context, e *Env, kind string, keep persistence, duration time.Duration, more ...string,
) (result T, err error) {
	args := append([]string{e.Dir, string(keep), strconv.Itoa(e.QueuePayload), duration.String()}, more...)
	floor, err := e.StartFloor(kind, args...)
	if err != nil {
		return result, err
	}
	if err := floor.Read(ctx, &result); err != nil {
		_ = floor.Close() // the error above has more details
		return result, err
	}
	return result, floor.Close()
}

// id returns the id of a figure with this kind of persistence.
func (t *throughput) id(measured string) string { return "queue/" + string(t.keep) + "/" + measured }

func (t *throughput) figures(env *Env) []Figure {
	setup := env.queueSetup(map[string]string{
		"redis": t.keep.text(), "rate": fmt.Sprintf("what is consumed, %d messages ahead at most", queueBacklog), "server": "parleyd dev",
	})
	plain := Figure{ID: t.id("rate"), Name: "queue: produced, consumed and acked, no idempotency keys", Unit: "1/s", Setup: setup}.
		WithFloor(rawName, each(t.plain, queueRun.speed), each(t.floors, queueRun.speed))
	plain.Notes = t.notes(t.plain)
	// On a shared machine this varies less than messages per second.
	cost := Figure{ID: t.id("cpu"), Name: "queue: CPU per message of all processes, no idempotency keys", Unit: "us", Setup: setup}.
		WithFloor(rawName, each(t.plain, queueRun.total), each(t.floors, queueRun.total))
	figures := append(t.keyedFigures(setup), plain.WithRatioBar("at least 0.5 of the floor", atLeast(0.5)), cost)
	for _, r := range t.rivals {
		figures = append(figures, r.figures(t.keep, plain, cost, t.plain)...)
	}
	if env.Rivals == "" {
		figures[0].Notes = append(figures[0].Notes,
			"asynq and BullMQ were left out: --rivals hack/rivals runs them, once `make rivals` has built them")
	}
	return figures
}

// notes returns the notes on a rate of Parley's, with its rounds.
func (t *throughput) notes(ours []queueRun) []string {
	return []string{
		"Parley and the floor keep " + redisKept[t.keep],
		"CPU time per message: " + parts(ours),
		"the floor's CPU time per message: " + rawProcesses.costs(t.floors),
	}
}

// keyedFigures returns the figures of what users get by default: the rate and the CPU time per
// message with idempotency keys. It returns none if no rounds were run with keys.
func (t *throughput) keyedFigures(setup map[string]string) []Figure {
	if t.keyed == nil {
		return nil
	}
	rate := Figure{
		ID: t.id("keyed/rate"), Name: "queue: produced, consumed and acked, an idempotency key for each, as Producer does by default",
		Unit: "1/s", Setup: setup,
	}.WithFloor(rawName, each(t.keyed, queueRun.speed), each(t.floors, queueRun.speed))
	rate.Notes = t.notes(t.keyed)
	cost := Figure{ID: t.id("keyed/cpu"), Name: "queue: CPU per message of all processes, an idempotency key for each", Unit: "us", Setup: setup}.
		WithFloor(rawName, each(t.keyed, queueRun.total), each(t.floors, queueRun.total))
	return append([]Figure{rate.WithRatioBar("at least 0.35 of the floor", atLeast(0.35)), cost},
		t.keyedRival.figures(t.keep, rate, cost, t.keyed)...)
}

// queueSetup returns the conditions that the figures on queues share, with more as Setup takes it.
func (e *Env) queueSetup(more map[string]string) map[string]string {
	setup := map[string]string{
		"payload": strconv.Itoa(e.QueuePayload) + " bytes", "partitions": strconv.Itoa(queuePartitions) + " a topic",
		"batches": strconv.Itoa(queueBatch), "duration": e.Duration.String(),
	}
	maps.Copy(setup, more)
	return e.Setup(setup)
}
