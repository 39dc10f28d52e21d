package bench

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"path/filepath"
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

// text describes the persistence for people.
func (p persistence) text() string {
	if p == appendOnly {
		return "append-only file, synced each second, on both sides"
	}
	return "no persistence, on both sides"
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
	info, err := client.Info(ctx, "cpu").Result()
	if err != nil {
		return 0, fmt.Errorf("redis-server: %w", err)
	}
	var used float64
	found := 0
	for line := range strings.Lines(info) {
		name, value, _ := strings.Cut(strings.TrimSpace(line), ":")
		if name != "used_cpu_sys" && name != "used_cpu_user" {
			continue
		}
		seconds, err := strconv.ParseFloat(value, 64)
		if err != nil {
			return 0, fmt.Errorf("redis-server reports %s:%s", name, value)
		}
		used, found = used+seconds, found+1
	}
	if found != 2 {
		return 0, errors.New("redis-server does not report its CPU time")
	}
	return time.Duration(used * float64(time.Second)), nil
}
