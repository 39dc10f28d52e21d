package keeper

import (
	"context"
	"fmt"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/parleyhq/parley/internal/rig"
	"github.com/parleyhq/parley/server/internal/queue/qlog"
	"github.com/parleyhq/parley/server/internal/store/redislog"
)

// BenchmarkIdle reports which part of a core Redis needs for the keeper of 2,000 topics of 8
// partitions in which nothing happens. Each iteration takes a minute, which is one round of looks.
// Run it with -benchtime 1x.
func BenchmarkIdle(b *testing.B) {
	for _, c := range []struct {
		name   string
		groups []string
		put    []qlog.Draft
	}{
		{"no group", nil, nil},
		{"one group", []string{"work"}, nil},
		{"two groups, messages wait", []string{"audit", "work"}, []qlog.Draft{{Body: []byte("\x2a\x00")}}},
		{"one group, scheduled messages were moved", []string{"work"}, []qlog.Draft{{Body: []byte("\x2a\x00"), Delay: time.Millisecond}}},
	} {
		b.Run(c.name, func(b *testing.B) { benchmarkIdle(b, c.groups, c.put) })
	}
}

func benchmarkIdle(b *testing.B, groups []string, put []qlog.Draft) {
	dir, err := rig.TempDir("idle")
	if err != nil {
		b.Fatal(err)
	}
	server, err := rig.StartRedis(b.Context(), rig.RedisConfig{Dir: dir, Addr: filepath.Join(dir, "redis.sock")})
	if err != nil {
		b.Fatal(err)
	}
	defer server.Close()
	client := redis.NewClient(&redis.Options{Network: "unix", Addr: server.Addr(), MaxRetries: -1, ContextTimeoutEnabled: true})
	defer func() { _ = client.Close() }()
	bench := &bench{tb: b, client: client, hints: &hints{ready: map[int]int{}}}
	bench.store = redislog.NewStore(client, redislog.StoreConfig{})
	for i := range 2000 {
		bench.create(fmt.Sprint("topic", i), 8, groups...)
		for p := range 8 {
			bench.put(p, put...)
		}
	}
	k := New(bench.config(defaultTimes))
	if err := k.Start(b.Context()); err != nil {
		b.Fatal(err)
	}
	defer func() { _ = k.Stop(context.WithoutCancel(b.Context())) }()
	if put != nil {
		time.Sleep(20 * time.Second) // until all is moved and the looks have their rhythm
	}
	for b.Loop() {
		before, began := cpu(b, client), time.Now()
		time.Sleep(time.Minute)
		b.ReportMetric(100*(cpu(b, client)-before)/time.Since(began).Seconds(), "%core")
	}
}

// cpu returns the CPU time of Redis, in seconds.
func cpu(b *testing.B, client *redis.Client) (seconds float64) {
	b.Helper()
	info, err := client.Info(b.Context(), "cpu").Result()
	if err != nil {
		b.Fatal(err)
	}
	for line := range strings.Lines(info) {
		name, value, _ := strings.Cut(strings.TrimSpace(line), ":")
		if name == "used_cpu_user" || name == "used_cpu_sys" {
			n, err := strconv.ParseFloat(value, 64)
			if err != nil {
				b.Fatal(err)
			}
			seconds += n
		}
	}
	return seconds
}
