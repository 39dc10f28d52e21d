package redisstore

import (
	"context"
	"errors"
	"net"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"
)

// infoTimeout bounds the calls that observe the memory of Redis.
const infoTimeout = 250 * time.Millisecond

func option(key, value string) metric.MeasurementOption {
	return metric.WithAttributeSet(attribute.NewSet(attribute.String(key, value)))
}

var (
	callOK      = option("result", "ok")
	callTimeout = option("result", "timeout")
	callError   = option("result", "error")
)

// Observe measures a client's calls, its pool of connections, and the memory of its servers. Call
// it before the client is used.
func Observe(client redis.UniversalClient, meter metric.Meter) error {
	calls, err := meter.Float64Histogram("parley.redis.call.duration", metric.WithUnit("s"),
		metric.WithDescription("Time of a command or a pipeline of Redis, by result: ok also if Redis answered with an error, "+
			"timeout also if there was no free connection in time, and error if the connection failed."),
		metric.WithExplicitBucketBoundaries(.0001, .00025, .0005, .001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5))
	if err != nil {
		return err
	}
	client.AddHook(hook{calls})
	return errors.Join(observePool(client, meter), observeMemory(client, meter))
}

// observePool creates the metrics of a client's connections.
func observePool(client redis.UniversalClient, meter metric.Meter) error {
	connections, err := meter.Int64ObservableGauge("parley.redis.pool.connections", metric.WithUnit("{connection}"),
		metric.WithDescription("Connections to Redis, by state: used or idle."))
	if err != nil {
		return err
	}
	gets, err := meter.Int64ObservableCounter("parley.redis.pool.gets", metric.WithUnit("{get}"),
		metric.WithDescription("Connections that calls took from the pool, by result: hit if one was free, miss if a new one was made, "+
			"timeout if neither was possible in time."))
	if err != nil {
		return err
	}
	used, idle := option("state", "used"), option("state", "idle")
	hit, miss, timeout := option("result", "hit"), option("result", "miss"), option("result", "timeout")
	_, err = meter.RegisterCallback(func(_ context.Context, o metric.Observer) error {
		s := client.PoolStats()
		o.ObserveInt64(connections, int64(s.TotalConns)-int64(s.IdleConns), used)
		o.ObserveInt64(connections, int64(s.IdleConns), idle)
		o.ObserveInt64(gets, int64(s.Hits), hit)
		o.ObserveInt64(gets, int64(s.Misses), miss)
		o.ObserveInt64(gets, int64(s.Timeouts), timeout)
		return nil
	}, connections, gets)
	return err
}

// observeMemory creates the gauges of what the servers hold. They are absent while a server does
// not answer.
func observeMemory(client redis.UniversalClient, meter metric.Meter) error {
	memory, err := meter.Int64ObservableGauge("parley.redis.memory", metric.WithUnit("By"),
		metric.WithDescription("Memory that Redis uses (used_memory), of all masters."))
	if err != nil {
		return err
	}
	keys, err := meter.Int64ObservableGauge("parley.redis.keys", metric.WithUnit("{key}"),
		metric.WithDescription("Keys in the database of Redis, of all masters."))
	if err != nil {
		return err
	}
	_, err = meter.RegisterCallback(func(ctx context.Context, o metric.Observer) error {
		ctx, cancel := context.WithTimeout(ctx, infoTimeout)
		defer cancel()
		var bytes, count atomic.Int64
		if err := eachServer(ctx, client, func(ctx context.Context, c redis.Cmdable) error {
			info, err := c.Info(ctx, "memory").Result()
			if err != nil {
				return err
			}
			used, err := strconv.ParseInt(field(info, "used_memory"), 10, 64)
			if err != nil {
				return err
			}
			size, err := c.DBSize(ctx).Result()
			bytes.Add(used)
			count.Add(size)
			return err
		}); err != nil {
			return nil // Redis is away, which the other metrics show
		}
		o.ObserveInt64(memory, bytes.Load())
		o.ObserveInt64(keys, count.Load())
		return nil
	}, memory, keys)
	return err
}

// hook measures calls.
type hook struct{ calls metric.Float64Histogram }

var _ redis.Hook = hook{}

// DialHook implements redis.Hook.
func (hook) DialHook(next redis.DialHook) redis.DialHook { return next }

// ProcessHook implements redis.Hook.
func (h hook) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		began := time.Now()
		err := next(ctx, cmd)
		h.record(ctx, began, err)
		return err
	}
}

// ProcessPipelineHook implements redis.Hook.
func (h hook) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		began := time.Now()
		err := next(ctx, cmds)
		h.record(ctx, began, err)
		return err
	}
}

func (h hook) record(ctx context.Context, began time.Time, err error) {
	var reply redis.Error
	var timeout net.Error
	result := callError
	switch {
	case err == nil, errors.As(err, &reply):
		result = callOK
	case errors.Is(err, redis.ErrPoolTimeout), errors.Is(err, context.DeadlineExceeded), errors.As(err, &timeout) && timeout.Timeout():
		result = callTimeout
	}
	h.calls.Record(ctx, time.Since(began).Seconds(), result)
}
