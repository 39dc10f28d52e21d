// Command asynq runs the load of `parley bench queue` through asynq, for comparison. It enqueues
// and processes tasks concurrently, on the Redis of --redis, which it empties first. It prints one
// JSON object.
package main

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"log/slog"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"
	"golang.org/x/sync/errgroup"
)

type options struct {
	redis                           string
	seconds                         float64
	payload, producers, concurrency int
	pickups                         int
}

// result is the result of one run.
type result struct {
	// Rate is tasks processed per second, over the time until all enqueued tasks are processed.
	Rate float64 `json:"rate"`
	// Redis and Load are CPU time per task in that time, in microseconds: of the redis-server, and of
	// this process.
	Redis float64 `json:"redis"`
	Load  float64 `json:"load"`
	// PickupMS are the times in milliseconds from enqueuing to processing on an idle server,
	// sorted.
	PickupMS []float64 `json:"pickup_ms"`
}

func main() {
	var o options
	flag.StringVar(&o.redis, "redis", "127.0.0.1:6379", "Redis: host:port, or the path of a unix socket. Everything in it is removed.")
	flag.Float64Var(&o.seconds, "seconds", 4, "how long tasks are enqueued")
	flag.IntVar(&o.payload, "payload", 1024, "bytes of a task")
	flag.IntVar(&o.producers, "producers", 16, "goroutines that enqueue")
	flag.IntVar(&o.concurrency, "concurrency", 64, "workers")
	flag.IntVar(&o.pickups, "pickups", 5, "tasks given to an idle server, one after another")
	flag.Parse()
	res, err := run(context.Background(), o)
	if err == nil {
		err = json.NewEncoder(os.Stdout).Encode(res)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "asynq:", err)
		os.Exit(1)
	}
}

func (o options) connection() asynq.RedisClientOpt {
	network := "tcp"
	if o.redis[0] == '/' {
		network = "unix"
	}
	return asynq.RedisClientOpt{Network: network, Addr: o.redis}
}

func run(ctx context.Context, o options) (result, error) {
	conn := o.connection()
	admin := redis.NewClient(&redis.Options{Network: conn.Network, Addr: conn.Addr})
	defer admin.Close()
	if err := admin.FlushAll(ctx).Err(); err != nil {
		return result{}, err
	}
	client := asynq.NewClient(conn)
	defer client.Close()

	var processed atomic.Int64
	picked := make(chan time.Time, 1)
	mux := asynq.NewServeMux()
	mux.HandleFunc("load", func(context.Context, *asynq.Task) error { processed.Add(1); return nil })
	mux.HandleFunc("pickup", func(context.Context, *asynq.Task) error { picked <- time.Now(); return nil })
	server := asynq.NewServer(conn, asynq.Config{Concurrency: o.concurrency, LogLevel: asynq.FatalLevel})
	if err := server.Start(mux); err != nil {
		return result{}, err
	}
	defer server.Shutdown()

	res := result{}
	for range o.pickups {
		began := time.Now()
		if _, err := client.EnqueueContext(ctx, asynq.NewTask("pickup", nil)); err != nil {
			return res, err
		}
		res.PickupMS = append(res.PickupMS, float64((<-picked).Sub(began))/float64(time.Millisecond))
	}
	slices.Sort(res.PickupMS)

	redisBefore, loadBefore, err := used(ctx, admin)
	if err != nil {
		return res, err
	}
	began := time.Now()
	enqueued, err := enqueue(ctx, client, o)
	if err != nil {
		return res, err
	}
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for processed.Load() < enqueued {
		<-tick.C
	}
	res.Rate = float64(enqueued) / time.Since(began).Seconds()
	redisAfter, loadAfter, err := used(ctx, admin)
	res.Redis = (redisAfter - redisBefore) * 1e6 / float64(enqueued)
	res.Load = (loadAfter - loadBefore) * 1e6 / float64(enqueued)
	return res, err
}

// used returns the CPU time in seconds that the redis-server and this process have used so far.
func used(ctx context.Context, admin *redis.Client) (server, own float64, err error) {
	info, err := admin.Info(ctx, "cpu").Result()
	if err != nil {
		return 0, 0, err
	}
	for line := range strings.Lines(info) {
		name, text, _ := strings.Cut(strings.TrimSpace(line), ":")
		if name != "used_cpu_sys" && name != "used_cpu_user" {
			continue
		}
		seconds, err := strconv.ParseFloat(text, 64)
		if err != nil {
			return 0, 0, err
		}
		server += seconds
	}
	var usage syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &usage); err != nil {
		return 0, 0, err
	}
	return server, float64(usage.Utime.Nano()+usage.Stime.Nano()) / 1e9, nil
}

// enqueue enqueues tasks as fast as possible for the configured time, and returns their number.
func enqueue(ctx context.Context, client *asynq.Client, o options) (int64, error) {
	var n atomic.Int64
	group, ctx := errgroup.WithContext(ctx)
	end := time.Now().Add(time.Duration(o.seconds * float64(time.Second)))
	payload := make([]byte, o.payload)
	var once sync.Once
	for range o.producers {
		group.Go(func() error {
			for time.Now().Before(end) {
				if _, err := client.EnqueueContext(ctx, asynq.NewTask("load", payload)); err != nil {
					once.Do(func() { slog.Error("enqueue", "error", err) })
					return err
				}
				n.Add(1)
			}
			return nil
		})
	}
	err := group.Wait()
	return n.Load(), err
}
