package bench

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"
)

const (
	// growthTopics is the smaller number of topics.
	growthTopics = 4
	// growthRate is the total messages per second, with few topics and with many.
	growthRate = 10_000
)

// measureQueueGrowth measures the CPU time of a message through many topics, against the same
// through growthTopics, a tenth of them.
func measureQueueGrowth(ctx context.Context, env *Env) (figures []Figure, err error) {
	s, err := env.startQueues(ctx, appendOnly)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, s.Close()) }()
	few := env.queueLoad()
	few.topics, few.rate = growthTopics, growthRate
	many := few
	many.topics *= growthFactor
	var values, floors []queueRun
	err = env.Each(ctx,
		func(ctx context.Context) error { return s.takeRun(ctx, few, &floors) },
		func(ctx context.Context) error { return s.takeRun(ctx, many, &values) })
	if err != nil {
		return nil, err
	}
	f := Figure{
		ID: "queue-growth/cpu", Name: fmt.Sprintf("a message through one of %d topics, each with a worker: CPU of server and Redis", many.topics),
		Unit: "us", Setup: env.queueSetup(map[string]string{
			"redis": appendOnly.text(), "rate": strconv.Itoa(growthRate) + " messages/s in all",
		}),
	}.WithFloor(fmt.Sprintf("through one of %d", few.topics), each(values, queueRun.cost), each(floors, queueRun.cost))
	f.Notes = []string{
		fmt.Sprintf("%d topics: %s, %s", many.topics, Summarize(each(values, queueRun.speed)).text("1/s"), parts(values)),
		fmt.Sprintf("%d topics: %s, %s", few.topics, Summarize(each(floors, queueRun.speed)).text("1/s"), parts(floors)),
	}
	return []Figure{f.WithRatioBar("at most 1.2 times as much as with a tenth of the topics", atMost(1.2))}, nil
}

// measureQueueTelemetry measures the load of the area queue with every call traced and metrics
// scraped, and without either.
func measureQueueTelemetry(ctx context.Context, env *Env) ([]Figure, error) {
	var values, floors []queueRun
	load := env.queueLoad()
	err := env.withTelemetry(ctx, func(on, off *Server) error {
		traced, err1 := queuesOf(on)
		silent, err2 := queuesOf(off)
		if err := errors.Join(err1, err2); err != nil {
			return err
		}
		return errors.Join(env.Each(ctx, func(ctx context.Context) error {
			scraping, stop := context.WithCancel(ctx)
			defer stop()
			go scrapeEach(scraping, &on.Target, time.Second)
			return traced.takeRun(ctx, load, &values)
		}, func(ctx context.Context) error {
			return silent.takeRun(ctx, load, &floors)
		}), traced.redis.Close(), silent.redis.Close())
	})
	if err != nil {
		return nil, err
	}
	f := Figure{
		ID: "queue-telemetry/cpu", Name: "queue, telemetry on: CPU of server and Redis per message", Unit: "us",
		Setup: env.queueSetup(env.telemetrySetup(map[string]string{"redis": appendOnly.text()})),
	}.WithFloor("telemetry off", each(values, queueRun.cost), each(floors, queueRun.cost))
	f.Notes = []string{"on: " + parts(values), "off: " + parts(floors)}
	return []Figure{f.WithRatioBar("1.05 times at most", atMost(1.05))}, nil
}
