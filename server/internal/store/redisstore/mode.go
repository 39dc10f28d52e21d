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
	// sentinel is true for a Sentinel, which has no data.
	sentinel bool
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
	info, err := c.Info(ctx).Result()
	if err != nil {
		return mode{}, err
	}
	m := mode{
		sentinel:       field(info, "redis_mode") == "sentinel",
		evictionPolicy: field(info, "maxmemory_policy"), persistent: field(info, "aof_enabled") == "1",
	}
	if m.persistent || m.sentinel {
		return m, nil
	}
	if save, err := c.ConfigGet(ctx, "save").Result(); err == nil && save["save"] != "" {
		m.persistent = true
	}
	return m, nil
}

// CheckSafe returns an error that is ErrUnsafe if a server may evict keys, or if its data does
// not survive a restart and allowVolatile is false. The error tells the operator what to do.
func CheckSafe(ctx context.Context, client redis.UniversalClient, allowVolatile bool) error {
	modes, err := inspect(ctx, client)
	if err != nil {
		return err
	}
	var errs []error
	for _, m := range modes {
		errs = append(errs, m.check(allowVolatile))
	}
	return errors.Join(errs...)
}

// ErrUnsafe is what errors about a Redis that may lose data are, for errors.Is.
var ErrUnsafe = errors.New("this Redis may lose data")

// unsafeError says why a Redis is unsafe. It wraps nothing: go-redis unwraps the errors of a new
// connection, and the reason would be lost.
type unsafeError string

func (e unsafeError) Error() string { return "this Redis may lose data: " + string(e) }

// Is implements the interface of errors.Is.
func (e unsafeError) Is(target error) bool { return target == ErrUnsafe }

// check returns an error that is ErrUnsafe if the server may evict keys, or keeps nothing over a
// restart and may not be volatile.
func (m *mode) check(allowVolatile bool) error {
	switch {
	case m.sentinel:
		return nil
	case m.evictionPolicy != "noeviction":
		return unsafeError(fmt.Sprintf("it has maxmemory-policy %q and may evict any key: set it to noeviction", m.evictionPolicy))
	case !m.persistent && !allowVolatile:
		return unsafeError("it keeps nothing over a restart (appendonly is no and save is empty, or CONFIG GET save is forbidden): " +
			"set appendonly to yes, or allow_volatile in Parley's configuration")
	}
	return nil
}
