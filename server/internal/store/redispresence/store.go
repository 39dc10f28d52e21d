package redispresence

import (
	"cmp"
	"strconv"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/parleyhq/parley/server/internal/presence"
)

var _ presence.Store = (*Store)(nil)

// The limits of arguments. A call beyond one is not sent and returns an error that names it.
const (
	// MaxSet is the maximum number of users of a SetCall.
	MaxSet = 100
	// MaxGet is the maximum number of users of a GetCall.
	MaxGet = 1000
	// MaxPage is the maximum limit of Page.
	MaxPage = 1000
	// MaxHeard is the maximum number of peers of a Beat.
	MaxHeard = 1000
)

const (
	// keepDead is how long a dead node and its fences are kept.
	keepDead = time.Hour
	// maxDead is the number of dead nodes that are kept, the newest ones.
	maxDead = 4096
	// loginTTL is how long the slots of a user are kept after a login of the user was last entered.
	// Nodes enter those of their connections again and again.
	loginTTL = 7 * 24 * time.Hour
	// scanCount is how many users Members reads at a time. It may return a few more or fewer.
	scanCount = 200
)

// Config configures a Store.
type Config struct {
	// Prefix stands in front of every key. It must not contain a brace. Empty by default.
	Prefix string
	// TTL is how long a part lasts unless it is written again. 0 means 30 minutes.
	TTL time.Duration
	// LogLength is the number of entries that the log of a shard keeps. 0 means 1,024.
	LogLength int
}

// Store keeps presence in Redis 7.0 or later, one server or a cluster. It is safe for concurrent
// use. It holds no state but its client. Errors of calls that got no reply are of the kind
// fault.Unavailable.
type Store struct {
	client  redis.UniversalClient
	keys    keys
	ttl     string // in ms
	length  string
	scripts *scripts
}

// New creates a Store over a client that never retries a command on its own (redisstore.NewClient).
// The caller closes the client.
func New(client redis.UniversalClient, config Config) *Store {
	return &Store{
		client: client, keys: keys{config.Prefix}, ttl: millis(cmp.Or(config.TTL, 30*time.Minute)),
		length: strconv.Itoa(cmp.Or(config.LogLength, 1024)), scripts: production,
	}
}

// millis returns a duration in whole ms.
func millis(d time.Duration) string { return strconv.FormatInt(d.Milliseconds(), 10) }

// deadline returns a time in ms since 1970.
func deadline(t time.Time) string { return strconv.FormatInt(t.UnixMilli(), 10) }

// shardName returns the name of a shard in errors.
func shardName(shard int) string { return "shard " + strconv.Itoa(shard) }
