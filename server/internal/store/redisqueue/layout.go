package redisqueue

import (
	"context"
	"errors"
	"fmt"

	"github.com/redis/go-redis/v9"
)

// layoutVersion is the version of the keys and values that the package comment describes. It changes when a server that
// does not know the change would read them wrongly.
const layoutVersion = "1"

// ErrOtherLayout is wrapped by CheckLayout's error about queues in another layout.
var ErrOtherLayout = errors.New("the queues in this Redis have layout")

// CheckLayout returns ErrOtherLayout if queues in this Redis have another layout than this package's. It records the layout in
// a Redis that has none recorded: an empty one, or one with queues of layout 1, from before it was recorded.
func (s *Store) CheckLayout(ctx context.Context) error {
	version, err := s.client.Get(ctx, s.keys.layout()).Result()
	if errors.Is(err, redis.Nil) {
		// A full Redis refuses to write. The next start tries again.
		if err := s.client.SetNX(ctx, s.keys.layout(), layoutVersion, 0).Err(); err != nil {
			s.log.WarnContext(ctx, "the layout of queues cannot be recorded", "error", err)
		}
		return nil
	}
	if err != nil {
		return fmt.Errorf("read the layout of queues: %w", err)
	}
	if version != layoutVersion {
		return fmt.Errorf("%w %s and this parleyd reads layout %s: run the version of parleyd that made them, "+
			"or set redis.key_prefix to start without them", ErrOtherLayout, version, layoutVersion)
	}
	return nil
}
