package bench

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
)

// persistence is what a redis-server writes to its disk.
type persistence string

const (
	// appendOnly is the setting of `parleyd dev`: an append-only file, synced each second, and no
	// snapshots.
	appendOnly persistence = "aof"
	// nothingKept is the setting of the rivals' published figures: no append-only file and no
	// snapshots.
	nothingKept persistence = "none"
)

// redisKept says for people what a redis-server keeps with each persistence.
var redisKept = map[persistence]string{
	appendOnly:  "messages in an append-only file, synced each second: a power cut loses about a second",
	nothingKept: "messages in the memory of redis-server only",
}

// text describes the persistence of Parley's Redis and of those that it is compared with.
func (p persistence) text() string {
	if p == appendOnly {
		return "append-only file, synced each second, for Parley, the floor and rivals on Redis"
	}
	return "no persistence, for Parley, the floor and rivals on Redis"
}

// startRedis starts a redis-server on a socket in dir, whose path must be short enough for a
// socket.
func startRedis(ctx context.Context, dir string, keep persistence) (client *redis.Client, stop func(), err error) {
	socket := filepath.Join(dir, "s")
	file := "no"
	if keep == appendOnly {
		file = "yes"
	}
	server := exec.CommandContext(context.WithoutCancel(ctx), "redis-server", //nolint:gosec // our own directory
		"--port", "0", "--unixsocket", socket, "--dir", dir, "--save", "", "--appendonly", file, "--appendfsync", "everysec",
		"--maxmemory-policy", "noeviction")
	if err := server.Start(); err != nil {
		return nil, nil, err
	}
	client = redisAt(socket)
	stop = func() {
		_ = client.Close()
		_ = server.Process.Kill() // it has no data to save
		_ = server.Wait()
	}
	for deadline := time.Now().Add(startTimeout); ; {
		err := client.Ping(ctx).Err()
		if err == nil {
			return client, stop, nil
		}
		if ctx.Err() != nil || time.Now().After(deadline) {
			stop()
			return nil, nil, fmt.Errorf("redis-server does not respond: %w", err)
		}
		pause(ctx, 20*time.Millisecond)
	}
}

func redisAt(socket string) *redis.Client {
	return redis.NewClient(&redis.Options{Network: "unix", Addr: socket, ReadTimeout: 10 * time.Second})
}

// redisCPU returns the CPU time that a redis-server has used so far, without child processes that
// rewrite its file.
func redisCPU(ctx context.Context, client *redis.Client) (time.Duration, error) {
	used, err := redisInfo(ctx, client, "cpu", "used_cpu_sys", "used_cpu_user")
	if err != nil {
		return 0, err
	}
	return time.Duration((used[0] + used[1]) * float64(time.Second)), nil
}

// redisInfo returns numbers of a section of a redis-server's INFO, by name.
func redisInfo(ctx context.Context, client *redis.Client, section string, names ...string) ([]float64, error) {
	info, err := client.Info(ctx, section).Result()
	if err != nil {
		return nil, fmt.Errorf("redis-server: %w", err)
	}
	values := make(map[string]float64)
	for line := range strings.Lines(info) {
		name, text, _ := strings.Cut(strings.TrimSpace(line), ":")
		if !slices.Contains(names, name) {
			continue
		}
		if values[name], err = strconv.ParseFloat(text, 64); err != nil {
			return nil, fmt.Errorf("redis-server reports %s:%s", name, text)
		}
	}
	numbers := make([]float64, len(names))
	for i, name := range names {
		value, ok := values[name]
		if !ok {
			return nil, fmt.Errorf("redis-server does not report %s", name)
		}
		numbers[i] = value
	}
	return numbers, nil
}

// ownRedis starts a redis-server with the settings of `parleyd dev`, in a directory that stop
// removes.
func (e *Env) ownRedis(ctx context.Context) (client *redis.Client, stop func(), err error) {
	dir, err := os.MkdirTemp(e.Dir, "parley-bench-redis-")
	if err != nil {
		return nil, nil, err
	}
	client, end, err := startRedis(ctx, dir, appendOnly)
	if err != nil {
		return nil, nil, errors.Join(err, os.RemoveAll(dir))
	}
	return client, func() {
		end()
		_ = os.RemoveAll(dir) // only temporary data would be left
	}, nil
}
