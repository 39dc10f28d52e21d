// Package redislog is a stub until the shared files are there.
package redislog

import (
	"cmp"
	"context"
	"embed"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"slices"
	"strconv"
	"strings"

	"github.com/redis/go-redis/v9"

	"github.com/parleyhq/parley/server/internal/fault"
	"github.com/parleyhq/parley/server/internal/queue/qlog"
	"github.com/parleyhq/parley/server/internal/store/redisscript"
)

//go:embed lua/*.lua
var sources embed.FS

var scripts []*redisscript.Script

func newScript(name string, numKeys int, libs ...string) *redisscript.Script {
	var parts []string
	for _, file := range append(append([]string{"lib_log"}, libs...), name) {
		source, err := sources.ReadFile("lua/" + file + ".lua")
		if err != nil {
			source = fmt.Appendf(nil, "error('there is no %s.lua')", file)
		}
		parts = append(parts, string(source))
	}
	parts[0] = "#!lua" + flags(name) + "\n" + parts[0]
	s := redisscript.New(name, numKeys, parts...)
	scripts = append(scripts, s)
	return s
}

func flags(name string) string {
	if name == "put" {
		return ""
	}
	return " flags=allow-oom"
}

// StoreConfig says how a Store keeps logs.
type StoreConfig struct {
	Prefix string
	Logger *slog.Logger
}

// Store keeps logs in Redis.
type Store struct {
	client redis.UniversalClient
	keys   keys
	log    *slog.Logger
	input  input
}

// NewStore makes a store.
func NewStore(client redis.UniversalClient, config StoreConfig) *Store {
	return &Store{client: client, keys: keys{config.Prefix}, log: cmp.Or(config.Logger, slog.Default())}
}

func (s *Store) write(ctx context.Context, script *redisscript.Script, keys []string, args ...any) (any, error) {
	reply, err := script.Run(ctx, s.client, []redisscript.Call{{Keys: keys, Args: args}})[0].Result()
	if err != nil && !errors.Is(err, redis.Nil) {
		return nil, writeError(err)
	}
	return reply, nil
}

var refusals = map[string]error{
	"NOTOPIC":  qlog.ErrNoTopic,
	"CONFLICT": qlog.ErrConflict,
	"EXISTS":   qlog.ErrTopicExists,
	"NOGROUP":  qlog.ErrNoGroup,
	"FENCED":   qlog.ErrFenced,
	"HELD":     qlog.ErrHeld,
	"PAUSED":   qlog.ErrPaused,
	"STALE":    qlog.ErrStale,
	"OOM":      qlog.ErrNoMemory,
}

var away = []string{
	"LOADING", "BUSY", "CLUSTERDOWN", "MASTERDOWN", "READONLY", "TRYAGAIN", "NOREPLICAS", "MISCONF", "MOVED", "ASK", "NOSCRIPT",
	"NOAUTH", "WRONGPASS", "NOPERM",
}

func writeError(err error) error {
	if sure, known := answered(err); sure {
		return known
	}
	return fault.Wrap(fmt.Errorf("%w: %w", qlog.ErrUnknownOutcome, err), fault.Unavailable, fault.OutcomeUnknown,
		"the store did not answer; it is not known whether the call was done")
}

func readError(err error) error {
	if sure, known := answered(err); sure {
		return known
	}
	return unavailable(err)
}

func unavailable(err error) error {
	return fault.Wrap(err, fault.Unavailable, fault.StoreUnavailable, "the store is not available")
}

func answered(err error) (sure bool, known error) {
	var dial *net.OpError
	var reply redis.Error
	switch {
	case err == nil:
		return true, nil
	case errors.Is(err, redis.ErrPoolTimeout), errors.Is(err, redis.ErrPoolExhausted), errors.Is(err, redis.ErrClosed),
		errors.As(err, &dial) && dial.Op == "dial":
		return true, unavailable(err)
	case errors.As(err, &reply):
		word, _, _ := strings.Cut(strings.TrimPrefix(reply.Error(), "ERR "), " ")
		if known, ok := refusals[word]; ok {
			return true, known
		}
		if slices.Contains(away, word) {
			return true, unavailable(err)
		}
		return true, err
	default:
		return false, nil
	}
}

type keys struct{ prefix string }

func (k keys) registry() string         { return k.prefix + "streaming:mq:topics:registry" }
func (k keys) topic(name string) string { return k.prefix + "streaming:mq:topic:" + name + ":meta" }
func (k keys) wakeups() string          { return k.prefix + "streaming:mq:wakeups" }
func (k keys) scheduled(bucket int) string {
	return k.prefix + "streaming:mq:delayed:{" + strconv.Itoa(bucket) + "}"
}

func (k keys) main(r qlog.Ref) string {
	return k.prefix + "stream:topic:{" + r.Topic + ":" + strconv.Itoa(r.Partition) + "}"
}

func (k keys) meta(r qlog.Ref) string        { return k.main(r) + ":meta" }
func (k keys) sizes(r qlog.Ref) string       { return k.main(r) + ":sizes" }
func (k keys) delayed(r qlog.Ref) string     { return k.main(r) + ":delayed" }
func (k keys) delayedData(r qlog.Ref) string { return k.main(r) + ":delayed:data" }
func (k keys) moved(r qlog.Ref) string       { return k.main(r) + ":moved" }
func (k keys) deadLetters(r qlog.Ref) string { return k.main(r) + ":dlq" }
func (k keys) deadData(r qlog.Ref) string    { return k.main(r) + ":dlq:data" }

func (k keys) idempotency(r qlog.Ref, key string) string {
	return k.main(r) + ":idem:" + r.UID + ":" + key
}
func (k keys) unique(r qlog.Ref, key string) string  { return k.main(r) + ":uniq:" + key }
func (k keys) producer(r qlog.Ref, id string) string { return k.main(r) + ":prod:" + r.UID + ":" + id }

func (k keys) state(r qlog.Ref, g string) string { return k.main(r) + ":g:" + g }
func (k keys) open(r qlog.Ref, g string) string  { return k.state(r, g) + ":open" }
func (k keys) rows(r qlog.Ref, g string) string  { return k.state(r, g) + ":rows" }
func (k keys) due(r qlog.Ref, g string) string   { return k.state(r, g) + ":due" }

func encodeRecord(d *qlog.Draft) ([]byte, error) { return d.Body, nil }
