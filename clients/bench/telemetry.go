package bench

import (
	"context"
	"errors"
	"io"
	"net/http"
	"strconv"
	"sync/atomic"
	"time"
)

// measureTelemetry gives F13: the same fan-out on two servers, one that traces every call to a collector and has its
// metrics read each second, and one that traces nothing and has them read by nobody. Metrics are counted by both.
func measureTelemetry(ctx context.Context, env *Env) (figures []Figure, err error) {
	var received atomic.Int64
	url, collector, err := listen(ctx, http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		n, _ := io.Copy(io.Discard, r.Body)
		received.Add(n)
	}))
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, collector.Close()) }()
	on, err := env.StartServer(ctx, "PARLEY_TELEMETRY_TRACE_RATIO=1", "PARLEY_TELEMETRY_OTLP_ENDPOINT="+url)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, on.Close()) }()
	off, err := env.StartServer(ctx, "PARLEY_TELEMETRY_TRACE_RATIO=0")
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, off.Close()) }()

	load := fanoutLoad{subscribers: env.Subscribers, channels: 1, payload: env.Payload, duration: env.Duration}
	var values, floors []fanoutRun
	err = env.Each(ctx, func(ctx context.Context) error {
		scraping, stop := context.WithCancel(ctx)
		defer stop()
		go scrapeEach(scraping, &on.Target, time.Second)
		run, err := fanout(ctx, &on.Target, load)
		values = append(values, run)
		return err
	}, func(ctx context.Context) error {
		run, err := fanout(ctx, &off.Target, load)
		floors = append(floors, run)
		return err
	})
	if err != nil {
		return nil, err
	}
	if err := on.Close(); err != nil { // sends what spans it has left
		return nil, err
	}
	if received.Load() == 0 {
		return nil, errors.New("the collector got no spans: telemetry was not on")
	}
	f := Figure{
		ID: "F13", Name: "fan-out, saturated, telemetry on: server CPU per delivery", Unit: "us",
		Setup: env.Setup(map[string]string{
			"connections": strconv.Itoa(env.Subscribers), "duration": env.Duration.String(),
			"on":  "every call traced to a collector over OTLP, metrics read each second",
			"off": "no traces, metrics counted and not read",
		}),
	}.WithFloor("telemetry off", each(values, fanoutRun.cost), each(floors, fanoutRun.cost))
	return []Figure{f.WithRatioBar("1.05 times at most", "1.02 times", atMost(1.05))}, nil
}

// scrapeEach reads the metrics at intervals until ctx ends, as a monitoring system would.
func scrapeEach(ctx context.Context, t *Target, every time.Duration) {
	for ctx.Err() == nil {
		_, _ = t.Metrics(ctx) // a server under load may not answer in time
		pause(ctx, every)
	}
}
