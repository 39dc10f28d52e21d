package redisqueue

import (
	"cmp"
	"log/slog"

	"github.com/redis/go-redis/v9"

	"github.com/parleyhq/parley/server/internal/queue"
)

var (
	_ queue.TopicStore = (*Store)(nil)
	_ queue.InputStore = (*Store)(nil)
	_ queue.DelayStore = (*Store)(nil)
)

// StoreConfig says how a Store keeps queues.
type StoreConfig struct {
	// Prefix stands in front of every key; it must hold no brace. Empty by default.
	Prefix string
	// Logger is slog.Default if nil.
	Logger *slog.Logger
}

// Store keeps queues in Redis 7.0 or later, one server or a cluster. Safe for concurrent use. It holds no state but its
// client.
type Store struct {
	client redis.UniversalClient
	keys   keys
	log    *slog.Logger
}

// NewStore makes a store over a client, which the caller closes, and which must be one that repeats no command by itself
// (redisstore.NewClient).
func NewStore(client redis.UniversalClient, config StoreConfig) *Store {
	return &Store{client: client, keys: keys{config.Prefix}, log: cmp.Or(config.Logger, slog.Default())}
}
