package redislog

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/redis/go-redis/v9"

	"github.com/parleyhq/parley/server/internal/queue/qlog"
)

var trimScript = newScript("trim", -1, "lib_replayed", "lib_trim")

// trimAtLeast is the least number of messages that Trim works with: those of one node of a stream.
const trimAtLeast = 200

// Trim implements qlog.Store. ErrNoTopic. n counts as 200 if it is less. Of settled messages that
// are kept by their number, some may stay until the next call.
func (s *Store) Trim(ctx context.Context, ref qlog.Ref, bounds qlog.Bounds, n int) (int, error) {
	removed, err := s.trim(ctx, ref, bounds, max(n, trimAtLeast))
	if err != nil {
		return 0, fmt.Errorf("trim partition %d of %s: %w", ref.Partition, ref.Topic, err)
	}
	return removed, nil
}

func (s *Store) trim(ctx context.Context, ref qlog.Ref, bounds qlog.Bounds, n int) (int, error) {
	for attempt := 0; ; attempt++ {
		version, groups, err := s.groups(ctx, ref)
		if err != nil || len(groups) == 0 {
			return 0, err
		}
		keys := []string{s.keys.main(ref), s.keys.meta(ref), s.keys.sizes(ref), s.keys.moved(ref), s.keys.replayed(ref)}
		for _, g := range groups {
			keys = append(keys, s.keys.state(ref, g))
		}
		reply, err := s.write(ctx, trimScript, keys, ref.UID, version, n, bounds.RetainAge.Milliseconds(), bounds.RetainMessages)
		if errors.Is(err, qlog.ErrStale) && attempt < 3 {
			continue // a group came or went in between
		}
		if err != nil {
			return 0, err
		}
		removed, ok := reply.(int64)
		if !ok {
			return 0, fmt.Errorf("a script answered %T", reply)
		}
		return int(removed), nil
	}
}

// groups returns the names of the groups that the partition has, and the version of their set.
func (s *Store) groups(ctx context.Context, ref qlog.Ref) (version string, names []string, err error) {
	fields, err := s.client.HMGet(ctx, s.keys.meta(ref), "uid", "gv", "groups").Result()
	if err != nil && !errors.Is(err, redis.Nil) {
		return "", nil, readError(err)
	}
	if len(fields) != 3 || fields[0] != ref.UID {
		return "", nil, qlog.ErrNoTopic
	}
	version, _ = fields[1].(string)
	list, _ := fields[2].(string)
	return version, strings.Fields(list), nil
}
