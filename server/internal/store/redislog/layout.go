package redislog

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/redis/go-redis/v9"

	"github.com/parleyhq/parley/server/internal/queue/qlog"
)

// layoutVersion is the version of the keys and values that the package comment describes. It
// changes when a server that does not know the change would read them wrongly. Version 1 is that of
// package redisqueue.
const layoutVersion = "2"

// ErrOtherLayout is wrapped by CheckLayout's error about queues in another layout.
var ErrOtherLayout = errors.New("the queues in this Redis have layout")

// CheckLayout returns ErrOtherLayout if queues in this Redis have another layout than this
// package's. It records the layout in a Redis that has none recorded and no queues of layout 1,
// which an old server did not record. It must be called before anything else.
func (s *Store) CheckLayout(ctx context.Context) error {
	version, err := s.client.Get(ctx, s.keys.layout()).Result()
	if errors.Is(err, redis.Nil) {
		version, err = s.recordLayout(ctx)
	}
	switch {
	case err != nil:
		return fmt.Errorf("read the layout of queues: %w", readError(err))
	case version == layoutVersion:
		return nil
	default:
		return fmt.Errorf("%w %s and this parleyd needs layout %s. Nothing was changed. Either let the version of parleyd that made them "+
			"deliver what they hold, and then remove its topics and the key %s; or set redis.key_prefix to start without them",
			ErrOtherLayout, version, layoutVersion, s.keys.layout())
	}
}

// recordLayout records the layout unless the store has queues of layout 1, and returns what is
// stored.
func (s *Store) recordLayout(ctx context.Context) (version string, err error) {
	old, err := s.hasFirstLayout(ctx)
	if err != nil {
		return "", err
	}
	if old {
		return "1", nil
	}
	set, err := s.client.SetNX(ctx, s.keys.layout(), layoutVersion, 0).Result()
	switch {
	case err != nil && errors.Is(writeError(err), qlog.ErrNoMemory):
		// A full Redis refuses to write. The next start tries again.
		s.log.WarnContext(ctx, "the layout of queues cannot be recorded", "error", err)
		return layoutVersion, nil
	case err != nil:
		return "", err
	case set:
		return layoutVersion, nil
	default: // another node was faster, perhaps one of another version
		return s.client.Get(ctx, s.keys.layout()).Result()
	}
}

// hasFirstLayout reports whether a registered topic has settings of layout 1, which are not JSON,
// or a partition of layout 1, which has no version of its groups.
func (s *Store) hasFirstLayout(ctx context.Context) (bool, error) {
	names, err := s.client.SMembers(ctx, s.keys.registry()).Result()
	if err != nil {
		return false, err
	}
	for some := range slices.Chunk(names, 100) {
		docs, parts := make([]*redis.SliceCmd, len(some)), make([]*redis.SliceCmd, len(some))
		if _, err := s.client.Pipelined(ctx, func(p redis.Pipeliner) error {
			for i, name := range some {
				docs[i] = p.HMGet(ctx, s.keys.topic(name), "doc")
				parts[i] = p.HMGet(ctx, s.keys.meta(qlog.Ref{Topic: name}), "uid", "gv")
			}
			return nil
		}); err != nil {
			return false, err
		}
		for i := range some {
			doc, _ := docs[i].Val()[0].(string)
			part := parts[i].Val()
			if doc != "" && !strings.HasPrefix(doc, "{") || part[0] != nil && part[1] == nil {
				return true, nil
			}
		}
	}
	return false, nil
}
