package redisstore

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/redis/go-redis/v9"
)

// Mode describes whether a Redis server may lose data.
type Mode struct {
	// Version is the server's version.
	Version string
	// EvictionPolicy is the server's maxmemory-policy. With any but noeviction it may remove keys.
	EvictionPolicy string
	// AppendOnly is true if the server keeps an append-only file. AppendFsync is then its
	// appendfsync setting, empty if unknown.
	AppendOnly  bool
	AppendFsync string
	// Snapshots is true if the server saves snapshots on its own. It is false if unknown.
	Snapshots bool
}

// Persistent reports whether data survives a restart.
func (m Mode) Persistent() bool { return m.AppendOnly || m.Snapshots }

// String describes the mode to an operator.
func (m Mode) String() string {
	switch {
	case m.AppendOnly && m.AppendFsync != "":
		return fmt.Sprintf("Redis %s with an append-only file (fsync %s)", m.Version, m.AppendFsync)
	case m.AppendOnly:
		return fmt.Sprintf("Redis %s with an append-only file", m.Version)
	case m.Snapshots:
		return fmt.Sprintf("Redis %s with snapshots: a crash loses what came after the last one", m.Version)
	default:
		return fmt.Sprintf("Redis %s in memory only: a restart loses everything in it", m.Version)
	}
}

// Inspect returns the mode of the server, or of each master of a cluster.
func Inspect(ctx context.Context, client redis.UniversalClient) ([]Mode, error) {
	var mu sync.Mutex
	var modes []Mode
	err := eachServer(ctx, client, func(ctx context.Context, c redis.Cmdable) error {
		mode, err := inspect(ctx, c)
		if err != nil {
			return err
		}
		mu.Lock()
		defer mu.Unlock()
		modes = append(modes, mode)
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("inspect redis: %w", err)
	}
	return modes, nil
}

func inspect(ctx context.Context, c redis.Cmdable) (Mode, error) {
	info := make(map[string]string, 3)
	for _, section := range []string{"server", "memory", "persistence"} {
		text, err := c.Info(ctx, section).Result()
		if err != nil {
			return Mode{}, err
		}
		info[section] = text
	}
	mode := Mode{
		Version:        field(info["server"], "redis_version"),
		EvictionPolicy: field(info["memory"], "maxmemory_policy"),
		AppendOnly:     field(info["persistence"], "aof_enabled") == "1",
	}
	// INFO does not contain these two, and managed servers may forbid CONFIG. Then the less safe
	// value is assumed.
	if save, err := c.ConfigGet(ctx, "save").Result(); err == nil {
		mode.Snapshots = save["save"] != ""
	}
	if fsync, err := c.ConfigGet(ctx, "appendfsync").Result(); err == nil && mode.AppendOnly {
		mode.AppendFsync = fsync["appendfsync"]
	}
	return mode, nil
}

// CheckSafe returns an error if a server may evict keys, or if its data does not survive a restart
// and allowVolatile is false. The error tells the operator what to do.
func CheckSafe(ctx context.Context, client redis.UniversalClient, allowVolatile bool) error {
	modes, err := Inspect(ctx, client)
	if err != nil {
		return err
	}
	var errs []error
	for _, m := range modes {
		if m.EvictionPolicy != "noeviction" {
			errs = append(errs, fmt.Errorf("redis has maxmemory-policy %q and may evict any key: set it to noeviction",
				m.EvictionPolicy))
		}
		if !m.Persistent() && !allowVolatile {
			errs = append(errs, errors.New("redis keeps nothing over a restart (appendonly is no and save is empty, or "+
				"CONFIG GET save is forbidden): set appendonly to yes, or allow_volatile in Parley's configuration"))
		}
	}
	return errors.Join(errs...)
}
