// Package redisrevoked keeps a copy of the revocations in Redis, for nodes to which the store of
// record does not answer.
package redisrevoked

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/parleyhq/parley/server/internal/ident"
	"github.com/parleyhq/parley/server/internal/revocation"
)

// Copy is the copy of the revocations. It is safe for concurrent use.
type Copy struct {
	client redis.UniversalClient
	prefix string
	store  string
}

var _ revocation.Second = (*Copy)(nil)

// New returns the copy of the revocations of the store with this name. Every key begins with the
// prefix. The caller closes the client.
func New(client redis.UniversalClient, prefix, store string) *Copy {
	return &Copy{client: client, prefix: prefix, store: store}
}

// marker returns the key of the declaration that the copy has all revocations.
//
// STRING the name of the store; expires after the time of the declaration. No ssid has a dot, so
// this is no key of one.
func (c *Copy) marker() string { return c.prefix + "users:ssid:.complete" }

// key returns the key of an entry.
//
//	users:ssid:<ssid>     STRING empty                          a revoked ssid
//	users:ssid:.<digest>  STRING empty                          a revoked token without ssid
//	users:api-key:<id>    STRING empty                          a revoked API key
//	users:before:<user>   STRING Unix milliseconds              a user's tokens issued up to then
//
// Each expires with Entry.Until.
func (c *Copy) key(entryKey string) (key string, user bool) {
	ssid, isSSID := strings.CutPrefix(entryKey, ident.SSIDKey(""))
	if isSSID {
		return c.prefix + "users:ssid:" + ssid, false
	}
	userID, isUser := strings.CutPrefix(entryKey, revocation.UserKey(""))
	if isUser {
		return c.prefix + "users:before:" + userID, true
	}
	apiKey, isAPIKey := strings.CutPrefix(entryKey, ident.APIKeyKey(""))
	if isAPIKey {
		return c.prefix + "users:api-key:" + apiKey, false
	}
	return c.prefix + "users:ssid:." + entryKey[min(2, len(entryKey)):], false
}

// Put implements revocation.Second.
func (c *Copy) Put(ctx context.Context, entries []revocation.Entry) error {
	now := time.Now()
	_, err := c.client.Pipelined(ctx, func(p redis.Pipeliner) error {
		for i := range entries {
			e := &entries[i]
			left := e.Until.Sub(now)
			if left <= 0 {
				continue
			}
			key, user := c.key(e.Key)
			value := ""
			if user {
				value = strconv.FormatInt(e.Before.UnixMilli(), 10)
			}
			p.Set(ctx, key, value, left)
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("copy revocations: %w", err)
	}
	return nil
}

// Complete implements revocation.Second.
func (c *Copy) Complete(ctx context.Context, life time.Duration) error {
	if err := c.client.Set(ctx, c.marker(), c.store, life).Err(); err != nil {
		return fmt.Errorf("declare the revocations complete: %w", err)
	}
	return nil
}

// Whole implements revocation.Second.
func (c *Copy) Whole(ctx context.Context) (bool, error) {
	store, err := c.client.Get(ctx, c.marker()).Result()
	if err != nil && !errors.Is(err, redis.Nil) {
		return false, fmt.Errorf("read the marker of revocations: %w", err)
	}
	return store == c.store, nil
}

// Find implements revocation.Second. It asks about the streams of a whole node at once, so it costs
// few commands: one that reads everything, and one more for each entry that is there.
func (c *Copy) Find(ctx context.Context, keys ...string) (found map[string]revocation.Entry, whole bool, err error) {
	names := make([]string, len(keys)+1)
	names[0] = c.marker()
	for i := range keys {
		names[i+1], _ = c.key(keys[i])
	}
	values, err := c.get(ctx, names)
	if err != nil {
		return nil, false, fmt.Errorf("look for revocations: %w", err)
	}
	found = make(map[string]revocation.Entry)
	lives := make(map[string]*redis.DurationCmd)
	_, err = c.client.Pipelined(ctx, func(p redis.Pipeliner) error {
		for i, key := range keys {
			if values[i+1] != nil {
				lives[key] = p.PTTL(ctx, names[i+1])
			}
		}
		return nil
	})
	if err != nil {
		return nil, false, fmt.Errorf("look for revocations: %w", err)
	}
	for i, key := range keys {
		life, ok := lives[key]
		if !ok {
			continue
		}
		e := revocation.Entry{Key: key, Until: time.Now().Add(life.Val())}
		if life.Val() < 0 {
			e.Until = time.Now().Add(time.Hour) // somebody made the key persistent, or it is gone now
		}
		if _, user := c.key(key); user {
			before, err := strconv.ParseInt(*values[i+1], 10, 64)
			if err != nil {
				return nil, false, fmt.Errorf("the revocation of a user in Redis is %q, not a number", *values[i+1])
			}
			e.Before = time.UnixMilli(before).UTC()
		}
		found[key] = e
	}
	return found, values[0] != nil && *values[0] == c.store, nil
}

// get returns the values of keys, nil for those that do not exist. A Redis that is no cluster reads
// them at one moment.
func (c *Copy) get(ctx context.Context, keys []string) ([]*string, error) {
	values := make([]*string, len(keys))
	if _, cluster := c.client.(*redis.ClusterClient); !cluster {
		all, err := c.client.MGet(ctx, keys...).Result()
		if err != nil {
			return nil, err
		}
		for i := range all {
			if text, ok := all[i].(string); ok {
				values[i] = &text
			}
		}
		return values, nil
	}
	commands := make([]*redis.StringCmd, len(keys))
	_, err := c.client.Pipelined(ctx, func(p redis.Pipeliner) error {
		for i, key := range keys {
			commands[i] = p.Get(ctx, key)
		}
		return nil
	})
	if err != nil && !errors.Is(err, redis.Nil) {
		return nil, err
	}
	for i, command := range commands {
		text, err := command.Result()
		if err == nil {
			values[i] = &text
		} else if !errors.Is(err, redis.Nil) {
			return nil, err
		}
	}
	return values, nil
}
