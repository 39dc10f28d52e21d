package redisstore

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/redis/go-redis/v9"
)

// Mode is what a server does with its data.
type Mode struct {
	// Version is the server's.
	Version string
	// EvictionPolicy is what it does when its memory is full: noeviction is the only safe one.
	EvictionPolicy string
	// AppendOnly says that it keeps an append-only file; AppendFsync when that is written to disk, empty if not known.
	AppendOnly  bool
	AppendFsync string
	// Snapshots says that it saves snapshots by itself.
	Snapshots bool
}

// Persistent reports whether a restart keeps anything.
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

// Inspect asks the server, or each master of a cluster, for its mode.
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
	// INFO does not tell these two, and managed servers may forbid CONFIG: then the less safe answer is taken.
	if save, err := c.ConfigGet(ctx, "save").Result(); err == nil {
		mode.Snapshots = save["save"] != ""
	}
	if fsync, err := c.ConfigGet(ctx, "appendfsync").Result(); err == nil && mode.AppendOnly {
		mode.AppendFsync = fsync["appendfsync"]
	}
	return mode, nil
}

// CheckSafe returns an error, which tells the operator what to do, if a server may evict keys, or if it keeps nothing
// over a restart and allowVolatile is false.
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
