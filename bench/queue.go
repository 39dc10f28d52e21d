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
	keep persistence
	// ours has the rounds by how repeats are recognised.
	ours   map[recognition][]queueRun
	floors []queueRun
	rivals []*rival
	// keyedRival is the rival that recognises repeats by a key of each message.
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
		t := &throughput{
			keep: keep, ours: make(map[recognition][]queueRun), rivals: rivals, keyedRival: jetStreamRival(keyedMessages),
		}
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
	run := func(by recognition) func(context.Context) error {
		load := env.queueLoad()
		load.by = by
		return func(ctx context.Context) error {
			run, err := s.run(ctx, load)
			t.ours[by] = append(t.ours[by], run)
			return err
		}
	}
	steps := []func(context.Context) error{
		run(bySequence),
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
		steps = append(steps, run(byNothing), run(byKey), t.keyedRival.step(env, t.keep))
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

// recognised describes how repeats are recognised, for the names of figures, and has the bar.
var recognised = map[recognition]struct {
	id, text string
	least    float64
}{
	bySequence: {"", "repeated requests recognised, as Producer does by default", 0.35},
	byKey:      {"keyed/", "an idempotency key for each", 0.35},
	byNothing:  {"plain/", "no repeats recognised", 0.5},
}

func (t *throughput) figures(env *Env) []Figure {
	setup := env.queueSetup(map[string]string{
		"redis": t.keep.text(), "rate": fmt.Sprintf("what is consumed, %d messages ahead at most", queueBacklog), "server": "parleyd dev",
	})
	figures := t.pair(bySequence, setup)
	rate, cost := figures[0], figures[1]
	if env.Rivals == "" {
		figures[0].Notes = append(figures[0].Notes,
			"asynq and BullMQ were left out: --rivals hack/rivals runs them, once `make rivals` has built them")
	}
	for _, r := range t.rivals {
		figures = append(figures, r.figures(t.keep, rate, cost, t.ours[bySequence])...)
	}
	if t.keep == appendOnly {
		keyed := t.pair(byKey, setup)
		figures = append(figures, keyed...)
		figures = append(figures, t.keyedRival.figures(t.keep, keyed[0], keyed[1], t.ours[byKey])...)
		figures = append(figures, t.pair(byNothing, setup)...)
	}
	return figures
}

// pair returns the rate and the CPU time per message of Parley's rounds. On a shared machine the
// latter varies less.
func (t *throughput) pair(by recognition, setup map[string]string) []Figure {
	ours, how := t.ours[by], recognised[by]
	id := "queue/" + string(t.keep) + "/" + how.id
	rate := Figure{ID: id + "rate", Name: "queue: produced, consumed and acked, " + how.text, Unit: "1/s", Setup: setup}.
		WithFloor(rawName, each(ours, queueRun.speed), each(t.floors, queueRun.speed)).
		WithRatioBar(fmt.Sprintf("at least %v of the floor", how.least), atLeast(how.least))
	rate.Notes = []string{
		"Parley and the floor keep " + redisKept[t.keep],
		"CPU time per message: " + parts(ours),
		"the floor's CPU time per message: " + rawProcesses.costs(t.floors),
	}
	cost := Figure{ID: id + "cpu", Name: "queue: CPU per message of all processes, " + how.text, Unit: "us", Setup: setup}.
		WithFloor(rawName, each(ours, queueRun.total), each(t.floors, queueRun.total))
	return []Figure{rate, cost}
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
