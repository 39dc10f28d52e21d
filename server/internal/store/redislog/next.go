package redislog

import (
	"context"
	"fmt"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/parleyhq/parley/server/internal/queue/qlog"
)

// Next returns for each partition how long it is until its first scheduled message is due: 0 if one
// is due, qlog.Never if none waits. It makes one round trip and changes nothing. The Refs need no
// UID. On a cluster the times are as exact as the clocks of its servers.
func (s *Store) Next(ctx context.Context, refs []qlog.Ref) ([]time.Duration, error) {
	if len(refs) == 0 {
		return nil, nil
	}
	firsts := make([]*redis.ZSliceCmd, len(refs))
	var now *redis.TimeCmd
	if _, err := s.client.Pipelined(ctx, func(p redis.Pipeliner) error {
		now = p.Time(ctx)
		for i, ref := range refs {
			firsts[i] = p.ZRangeWithScores(ctx, s.keys.delayed(ref), 0, 0)
		}
		return nil
	}); err != nil {
		return nil, fmt.Errorf("first scheduled messages of %d partitions: %w", len(refs), readError(err))
	}
	next := make([]time.Duration, len(refs))
	for i := range next {
		next[i] = qlog.Never
		if first := firsts[i].Val(); len(first) > 0 {
			next[i] = max(time.UnixMilli(int64(first[0].Score)).Sub(now.Val()), 0)
		}
	}
	return next, nil
}
