package redisstore

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/redis/go-redis/v9"
)

// mode describes whether a Redis server may lose data.
type mode struct {
	// evictionPolicy is the server's maxmemory-policy. With any but noeviction it may remove keys.
	evictionPolicy string
	// persistent is true if the server is known to keep an append-only file, or to save snapshots on
	// its own.
	persistent bool
}

// inspect returns the mode of the server, or of each master of a cluster.
func inspect(ctx context.Context, client redis.UniversalClient) ([]mode, error) {
	var mu sync.Mutex
	var modes []mode
	err := eachServer(ctx, client, func(ctx context.Context, c redis.Cmdable) error {
		m, err := modeOf(ctx, c)
		if err != nil {
			return err
		}
		mu.Lock()
		defer mu.Unlock()
		modes = append(modes, m)
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("inspect redis: %w", err)
	}
	return modes, nil
}

// modeOf returns the mode of one server. Managed servers may forbid CONFIG; then their snapshots do
// not count.
func modeOf(ctx context.Context, c redis.Cmdable) (mode, error) {
	memory, err := c.Info(ctx, "memory").Result()
	if err != nil {
		return mode{}, err
	}
	persistence, err := c.Info(ctx, "persistence").Result()
	if err != nil {
		return mode{}, err
	}
	m := mode{
		evictionPolicy: field(memory, "maxmemory_policy"), persistent: field(persistence, "aof_enabled") == "1",
	}
	if save, err := c.ConfigGet(ctx, "save").Result(); err == nil && save["save"] != "" {
		m.persistent = true
	}
	return m, nil
}

// CheckSafe returns an error if a server may evict keys, or if its data does not survive a restart
// and allowVolatile is false. The error tells the operator what to do.
func CheckSafe(ctx context.Context, client redis.UniversalClient, allowVolatile bool) error {
	modes, err := inspect(ctx, client)
	if err != nil {
		return err
	}
	var errs []error
	for _, m := range modes {
		if m.evictionPolicy != "noeviction" {
			errs = append(errs, fmt.Errorf("redis has maxmemory-policy %q and may evict any key: set it to noeviction",
				m.evictionPolicy))
		}
		if !m.persistent && !allowVolatile {
			errs = append(errs, errors.New("redis keeps nothing over a restart (appendonly is no and save is empty, or "+
				"CONFIG GET save is forbidden): set appendonly to yes, or allow_volatile in Parley's configuration"))
		}
	}
	return errors.Join(errs...)
}
