package redislog

import (
	"cmp"
	"log/slog"

	"github.com/redis/go-redis/v9"

	"github.com/parleyhq/parley/server/internal/queue/qlog"
)

var (
	_ qlog.Store     = (*Store)(nil)
	_ qlog.LookStore = (*Store)(nil)
)

// StoreConfig says how a Store keeps logs.
type StoreConfig struct {
	// Prefix stands in front of every key; it must contain no brace. Empty by default.
	Prefix string
	// InProcess must be set for the Redis of redisproc.InProcess. It cannot parse the line that says
	// under which conditions a script may run, and needs none, because its memory has no limit.
	InProcess bool
	// Logger is slog.Default if nil.
	Logger *slog.Logger
}

// Store keeps logs in Redis. Safe for concurrent use. What it remembers between calls only saves
// calls (see input).
type Store struct {
	client    redis.UniversalClient
	keys      keys
	log       *slog.Logger
	inProcess bool
	input     input
}

// NewStore creates a store. The caller closes the client, which must repeat no command on its own
// (redisstore.NewClient).
func NewStore(client redis.UniversalClient, config StoreConfig) *Store {
	return &Store{
		client: client, keys: keys{config.Prefix}, log: cmp.Or(config.Logger, slog.Default()), inProcess: config.InProcess,
	}
}
