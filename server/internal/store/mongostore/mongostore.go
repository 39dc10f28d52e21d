// Package mongostore is a message store on a MongoDB replica set.
//
// A shard's entries are one collection, `messages_<n>`. Two unique indexes decide conflicts: one
// on channel and seq, one on channel, sender and client_msg_id. Every write is acknowledged by a
// majority's journals. There are no transactions, because a client that is suspended inside one
// blocks others until the server aborts it.
//
// Reads are majority reads. On their own they may be stale: a primary that was suspended and
// replaced answers them from stale data when it resumes. So the store remembers the highest
// operation time of the answers it has received (its horizon), and no read is answered from before
// it. Heads are linearizable: they first raise the horizon by a write (fence.go).
//
// Other collections: `meta` holds the store's identity and the fence, `feeds` the position of each
// shard's change feed, `channels` and `members` the data of Channels.
package mongostore

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/event"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
	"go.mongodb.org/mongo-driver/v2/mongo/readconcern"
	"go.mongodb.org/mongo-driver/v2/mongo/readpref"
	"go.mongodb.org/mongo-driver/v2/mongo/writeconcern"

	"github.com/parleyhq/parley/server/internal/message"
)

// The defaults of Config.
const (
	defaultShards  = 4
	defaultTimeout = 5 * time.Second
)

// maxShards is far above a useful number. Each shard costs a change stream on the primary.
const maxShards = 256

// errClosed is returned by a feed that was closed or whose store was closed.
var errClosed = errors.New("mongostore: closed")

// Config configures a store.
type Config struct {
	// URI names a replica set. The store overrides its settings for read and write concern, read
	// preference and retries. Unless it has maxIdleTimeMS, a connection is closed after a minute
	// without use.
	URI string
	// Database is the name of the store's database. Nothing else should use it.
	Database string
	// Shards is the number of shards, fixed when the store is created. 0 means the existing
	// store's number, or 4 for a new store.
	Shards int
	// Timeout bounds each operation, including retries and failovers, except those of Open that create
	// what is missing, which may take longer. 0 means 5 s.
	Timeout time.Duration
	// Logger receives the errors from which a feed recovers. Nil means slog.Default.
	Logger *slog.Logger
	// Monitor, if set, receives every command event, for tracing and metrics.
	Monitor *event.CommandMonitor
}

// Store implements message.Store. Safe for concurrent use.
type Store struct {
	client  *mongo.Client
	db      *mongo.Database
	timeout time.Duration
	log     *slog.Logger
	shards  []*mongo.Collection // messages_<n>
	horizon horizon
	fence   fence

	// life ends with Close. It is the context of background work.
	life context.Context //nolint:containedctx // not a call's context
	end  context.CancelFunc

	mu       sync.Mutex
	identity message.Identity   // guarded by mu
	feeds    map[*feed]struct{} // guarded by mu; nil once closed
}

var _ message.Store = (*Store)(nil)

// Open connects to the replica set and creates what is missing: collections, indexes, the store's
// identity and the feeds' positions. It returns an error if the server is not in a replica set, or
// if the existing store has another number of shards.
func Open(ctx context.Context, cfg Config) (*Store, error) {
	if cfg.Database == "" {
		return nil, errors.New("open mongo store: Config.Database is empty")
	}
	if cfg.Shards < 0 || cfg.Shards > maxShards {
		return nil, fmt.Errorf("open mongo store: %d shards: must be 1 to %d", cfg.Shards, maxShards)
	}
	if cfg.Timeout <= 0 {
		cfg.Timeout = defaultTimeout
	}
	if cfg.Logger == nil {
		cfg.Logger = slog.Default()
	}
	client, err := mongo.Connect(clientOptions(cfg))
	if err != nil {
		return nil, fmt.Errorf("open mongo store: %w", err)
	}
	s := &Store{
		client: client, db: client.Database(cfg.Database), timeout: cfg.Timeout, log: cfg.Logger,
		feeds: make(map[*feed]struct{}),
	}
	s.fence.write = s.writeFence
	s.life, s.end = context.WithCancel(context.WithoutCancel(ctx))
	err = s.checkReplicaSet(ctx)
	if err == nil {
		s.timeout = max(cfg.Timeout, prepareTimeout)
		err = s.prepare(ctx, cfg.Shards)
		s.timeout = cfg.Timeout
	}
	if err != nil {
		s.end()
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), disconnectWait)
		defer cancel()
		return nil, errors.Join(fmt.Errorf("open mongo store: %w", err), s.disconnect(ctx))
	}
	return s, nil
}

// prepareTimeout bounds each operation of Open once the server has answered, unless Config.Timeout
// is longer. On a busy machine with several nodes, the creation of collections and indexes, and
// what waits for it, takes longer than any other operation.
const prepareTimeout = time.Minute

// disconnectWait bounds the wait for the connections' end after a failed Open.
const disconnectWait = time.Second

// maxConnIdle is how long a connection may be idle before it is closed, unless the URI says
// otherwise. The driver opens a connection whenever all are busy, and by default keeps it: the
// server would have as many as were ever busy at once, and each costs it 2 MiB.
const maxConnIdle = time.Minute

func clientOptions(cfg Config) *options.ClientOptions {
	journaled := true
	return options.Client().
		SetMaxConnIdleTime(maxConnIdle).
		ApplyURI(cfg.URI).
		SetWriteConcern(&writeconcern.WriteConcern{W: writeconcern.WCMajority, Journal: &journaled}).
		SetReadConcern(readconcern.Majority()).
		SetReadPreference(readpref.Primary()).
		SetRetryWrites(true).
		SetRetryReads(true).
		SetServerSelectionTimeout(cfg.Timeout).
		SetConnectTimeout(cfg.Timeout).
		SetHeartbeatInterval(2 * time.Second).
		SetMonitor(watchSends(cfg.Monitor))
}

// prepare creates or loads the store's identity and creates its indexes.
func (s *Store) prepare(ctx context.Context, shards int) error {
	identity, err := s.loadIdentity(ctx, shards)
	if err != nil {
		return err
	}
	s.identity = identity
	s.shards = make([]*mongo.Collection, identity.Shards)
	for i := range s.shards {
		s.shards[i] = s.db.Collection(fmt.Sprintf("messages_%d", i))
	}
	return s.prepareShards(ctx)
}

func (s *Store) checkReplicaSet(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, s.timeout)
	defer cancel()
	var hello struct {
		SetName string `bson:"setName"`
	}
	err := s.client.Database("admin").RunCommand(ctx, bson.D{{Key: "hello", Value: 1}}).Decode(&hello)
	if err != nil {
		return fmt.Errorf("reach the server: %w", err)
	}
	if hello.SetName == "" {
		return errors.New("the server is not a member of a replica set: majority writes and change streams need one")
	}
	return nil
}

// Identity returns the number of shards, the current epoch and the secret of the store.
func (s *Store) Identity() message.Identity {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.identity
}

// Ping returns an error unless the primary answers.
func (s *Store) Ping(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, s.timeout)
	defer cancel()
	if err := s.client.Ping(ctx, readpref.Primary()); err != nil {
		return fmt.Errorf("ping: %w", err)
	}
	return nil
}

// Time returns the primary's time, in milliseconds.
func (s *Store) Time(ctx context.Context) (time.Time, error) {
	ctx, cancel := context.WithTimeout(ctx, s.timeout)
	defer cancel()
	var hello struct {
		LocalTime time.Time `bson:"localTime"`
	}
	err := s.client.Database("admin").RunCommand(ctx, bson.D{{Key: "hello", Value: 1}},
		options.RunCmd().SetReadPreference(readpref.Primary())).Decode(&hello)
	if err != nil {
		return time.Time{}, fmt.Errorf("read the clock: %w", err)
	}
	return hello.LocalTime, nil
}

// Close ends every feed, after saving what was confirmed to it, and disconnects. Further calls do
// nothing.
func (s *Store) Close(ctx context.Context) error {
	s.mu.Lock()
	feeds := s.feeds
	s.feeds = nil
	s.mu.Unlock()
	if feeds == nil {
		return nil
	}
	var errs []error
	for f := range feeds {
		errs = append(errs, f.Close(ctx))
	}
	s.end()
	errs = append(errs, s.disconnect(ctx))
	return errors.Join(errs...)
}

// disconnect closes the connections, and waits for that until ctx ends. The driver's Disconnect may
// outlive its context: it waits up to the connect timeout for a heartbeat to a server that does not
// answer.
func (s *Store) disconnect(ctx context.Context) error {
	done := make(chan error, 1)
	go func() { done <- s.client.Disconnect(ctx) }()
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
		return fmt.Errorf("disconnect: %w", context.Cause(ctx))
	}
}

// of returns the collection that holds a channel's entries.
func (s *Store) of(channelID string) *mongo.Collection {
	return s.shards[message.Shard(channelID, len(s.shards))]
}
