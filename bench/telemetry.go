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

// withTelemetry calls take with two servers: on sends traces of every call to a collector, off
// traces nothing. Both count metrics. It returns an error if the collector received nothing.
func (e *Env) withTelemetry(ctx context.Context, take func(on, off *Server) error) (err error) {
	var received atomic.Int64
	url, collector, err := listen(ctx, http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		n, _ := io.Copy(io.Discard, r.Body)
		received.Add(n)
	}))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, collector.Close()) }()
	on, err := e.StartServer(ctx, "PARLEY_TELEMETRY_TRACE_RATIO=1", "PARLEY_TELEMETRY_OTLP_ENDPOINT="+url)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, on.Close()) }()
	off, err := e.StartServer(ctx, "PARLEY_TELEMETRY_TRACE_RATIO=0")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, off.Close()) }()
	if err := take(on, off); err != nil {
		return err
	}
	if err := on.Close(); err != nil { // flushes the remaining spans
		return err
	}
	if received.Load() == 0 {
		return errors.New("the collector got no spans: telemetry was not on")
	}
	return nil
}

// telemetrySetup returns the conditions of the figures on telemetry. It adds some of them to more.
func (e *Env) telemetrySetup(more map[string]string) map[string]string {
	more["duration"] = e.Duration.String()
	more["on"] = "every call traced to a collector over OTLP, metrics read each second"
	more["off"] = "no traces, metrics counted and not read"
	return e.Setup(more)
}

// measureTelemetry measures the same fan-out on two servers: one that traces every call to a
// collector and has its metrics scraped each second, and one without either.
func measureTelemetry(ctx context.Context, env *Env) ([]Figure, error) {
	load := fanoutLoad{subscribers: env.Subscribers, channels: 1, payload: env.Payload, duration: env.Duration}
	var values, floors []fanoutRun
	err := env.withTelemetry(ctx, func(on, off *Server) error {
		return env.Each(ctx, func(ctx context.Context) error {
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
	})
	if err != nil {
		return nil, err
	}
	f := Figure{
		ID: "telemetry/cpu", Name: "fan-out, saturated, telemetry on: server CPU per delivery", Unit: "us",
		Setup: env.telemetrySetup(map[string]string{"connections": strconv.Itoa(env.Subscribers)}),
	}.WithFloor("telemetry off", each(values, fanoutRun.cost), each(floors, fanoutRun.cost))
	return []Figure{f.WithRatioBar("1.05 times at most", atMost(1.05))}, nil
}

// scrapeEach scrapes the metrics at intervals until ctx ends, as a monitoring system would.
func scrapeEach(ctx context.Context, t *Target, every time.Duration) {
	for ctx.Err() == nil {
		_, _ = t.Metrics(ctx) // a server under load may not answer in time
		pause(ctx, every)
	}
}
