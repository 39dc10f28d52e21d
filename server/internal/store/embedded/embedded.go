// Package embedded is the message store of a single node: one Pebble database in a directory, with
// nothing else to install.
//
// # Durability
//
// What Insert, Apply, NewEpoch and the methods of Channels have acknowledged is synced to disk. A
// single committer joins concurrent calls into one batch, so that they share an fsync. Pebble shows
// a batch to readers before its log is synced. Therefore methods never read the database directly,
// but a view taken after the last sync and before the next commit. So no read, feed or conflict
// shows anything that a power loss could undo.
//
// # Disk failures
//
// Pebble can't recover from a failed write of its log or manifest (a full disk, an I/O error) and
// expects the process to end. The store then has failed permanently. An Insert in flight has
// an unknown outcome, later ones return message.ErrNotStored, and none is acknowledged.
// Reads continue with what was synced before. Ping returns the cause. Failed is closed, and the
// process that opened the store must end. The next Open finds everything that was acknowledged. A
// full disk that only keeps Pebble from flushing blocks writes until there is space.
package embedded

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"strconv"
	"sync"
	"sync/atomic"
	"syscall"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/bloom"
	"github.com/cockroachdb/pebble/v2/vfs"
	"google.golang.org/protobuf/proto"

	clusterv1 "github.com/parleyhq/parley/internal/gen/parley/cluster/v1"
	"github.com/parleyhq/parley/server/internal/message"
)

// ErrClosed reports that the store is closed.
var ErrClosed = errors.New("store is closed")

// storeFormat is the version of the rows that this package reads and writes. It changes when a
// server that does not know the change would read them wrongly. Open converts a store of
// olderFormat, which has no expired entries.
const (
	storeFormat = 3
	olderFormat = 2
)

const (
	defaultShards = 4
	maxShards     = 1 << 16
	cacheBytes    = 64 << 20
	memTableBytes = 16 << 20
)

// Config configures a store.
type Config struct {
	// Shards is the number of shards. 0 means the existing store's number, or 4 for a new store.
	// Open fails if an existing store has another number.
	Shards int
	// Logger receives Pebble's messages. Nil means slog.Default.
	Logger *slog.Logger
	// FS is the file system. Nil means that of the operating system. For tests.
	FS vfs.FS
}

// Store is a message store in a directory. Only one process at a time can open it. Safe for
// concurrent use.
type Store struct {
	db       *pebble.DB
	shards   []*shard
	identity atomic.Pointer[message.Identity]
	commits  committer
	views    views
	changing stripes
	rosters  rosterLocks
	// erasing serializes the changes of erasures.
	erasing sync.Mutex
	// revoking serializes the changes of revocations, and guards swept.
	revoking sync.Mutex
	// keying serializes the changes of API keys.
	keying sync.Mutex
	// swept is the key up to which expired revocations were removed.
	swept   string
	changes changes

	// open is held for reading by every call in flight, and guards closed.
	open   sync.RWMutex
	closed bool
	// done is closed when Close begins.
	done     chan struct{}
	closing  sync.Once
	closeErr error
	failure  failure
	// epochs serializes NewEpoch.
	epochs sync.Mutex
}

var _ message.Store = (*Store)(nil)

// Open opens the store in dir, and creates it if there is none.
func Open(dir string, cfg Config) (*Store, error) {
	if cfg.Shards < 0 || cfg.Shards > maxShards {
		return nil, fmt.Errorf("open store: shards is %d, want 1 to %d", cfg.Shards, maxShards)
	}
	s := &Store{done: make(chan struct{}), failure: failure{failed: make(chan struct{})}}
	fs := cfg.FS
	if fs == nil {
		fs = vfs.Default
	}
	db, err := pebble.Open(dir, options(privateFS{fs}, newLogger(cfg.Logger, &s.failure)))
	if errors.Is(err, syscall.EAGAIN) {
		return nil, fmt.Errorf("open store: another process uses %s: %w", dir, err)
	}
	if err != nil {
		return nil, fmt.Errorf("open store: %w", err)
	}
	s.db = db
	if err := s.load(cfg); err != nil {
		return nil, fmt.Errorf("open store: %w", errors.Join(err, db.Close()))
	}
	s.views.current = &view{Snapshot: db.NewSnapshot(), refs: 1}
	s.commits.start(s)
	return s, nil
}

// privateFS creates directories that only their owner can access. Pebble would make them readable
// for everyone, and messages are private.
type privateFS struct{ vfs.FS }

// MkdirAll implements vfs.FS.
func (fs privateFS) MkdirAll(dir string, perm os.FileMode) error {
	return fs.FS.MkdirAll(dir, perm&0o700)
}

// Unwrap implements vfs.FS.
func (fs privateFS) Unwrap() vfs.FS { return fs.FS }

func options(fs vfs.FS, logger pebble.Logger) *pebble.Options {
	opts := &pebble.Options{
		FS:                 fs,
		Logger:             logger,
		CacheSize:          cacheBytes,
		MemTableSize:       memTableBytes,
		FormatMajorVersion: pebble.FormatNewest,
	}
	// Most look-ups by client key find nothing. The filter saves their disk reads.
	for i := range opts.Levels {
		opts.Levels[i].FilterPolicy = bloom.FilterPolicy(10)
	}
	return opts
}

// load reads the store's identity, or creates it in a new store, and reads where the outbox of each
// shard (its unpublished entries) ends. It runs before any view is taken: Open has flushed what it
// replayed, so everything in the database is durable.
func (s *Store) load(cfg Config) error {
	if err := s.checkFormat(); err != nil {
		return err
	}
	var meta clusterv1.Meta
	value, closer, err := s.db.Get([]byte{metaRow})
	switch {
	case errors.Is(err, pebble.ErrNotFound):
		meta.Shards = int32(cfg.Shards) //nolint:gosec // at most maxShards
		if cfg.Shards == 0 {
			meta.Shards = defaultShards
		}
		meta.Epoch, meta.Secret = rand.Text(), make([]byte, 32)
		if _, err := rand.Read(meta.GetSecret()); err != nil {
			return fmt.Errorf("create secret: %w", err)
		}
		if err := s.saveMeta(&meta); err != nil {
			return err
		}
	case err != nil:
		return fmt.Errorf("read meta: %w", err)
	default:
		err := proto.Unmarshal(value, &meta)
		if err = errors.Join(err, closer.Close()); err != nil {
			return fmt.Errorf("read meta: %w", err)
		}
	}
	if cfg.Shards != 0 && cfg.Shards != int(meta.GetShards()) {
		return fmt.Errorf("the store was made with %d shards and %d are configured; their number can't be changed: "+
			"set shards: %[1]d, or PARLEY_SHARDS=%[1]d", meta.GetShards(), cfg.Shards)
	}
	s.identity.Store(&message.Identity{Shards: int(meta.GetShards()), Epoch: meta.GetEpoch(), Secret: meta.GetSecret()})
	for i := range int(meta.GetShards()) {
		b, err := newShard(s.db, i)
		if err != nil {
			return err
		}
		s.shards = append(s.shards, b)
	}
	return nil
}

// checkFormat returns an error if the store has a format that this package can't read. A store with
// an identity and without a format has format 1.
func (s *Store) checkFormat() error {
	format, err := s.text(formatRow)
	if err == nil && format == "" {
		var identity string
		if identity, err = s.text(metaRow); identity != "" {
			format = "1"
		}
	}
	if err != nil {
		return fmt.Errorf("read format: %w", err)
	}
	if format == strconv.Itoa(olderFormat) {
		return s.convert()
	}
	if format != "" && format != strconv.Itoa(storeFormat) {
		return fmt.Errorf("the store has format %s and this parleyd reads format %d: run the version of parleyd that created it, "+
			"or use another data directory", format, storeFormat)
	}
	return nil
}

// convert marks a store of olderFormat as one of storeFormat, so that older servers no longer open
// it.
func (s *Store) convert() error {
	if err := s.db.Set([]byte{formatRow}, []byte(strconv.Itoa(storeFormat)), pebble.Sync); err != nil {
		return fmt.Errorf("write format: %w", err)
	}
	return s.failure.err()
}

// text reads the row of a kind that has one row; empty if there is none.
func (s *Store) text(row byte) (string, error) {
	value, closer, err := s.db.Get([]byte{row})
	if errors.Is(err, pebble.ErrNotFound) {
		return "", nil
	}
	if err != nil {
		return "", err
	}
	text := string(value)
	return text, closer.Close()
}

// saveMeta writes a new store's identity and format, before the committer runs.
func (s *Store) saveMeta(meta *clusterv1.Meta) error {
	value, err := proto.Marshal(meta)
	if err != nil {
		return fmt.Errorf("write meta: %w", err)
	}
	batch := s.db.NewBatch()
	err = errors.Join(
		batch.Set([]byte{formatRow}, []byte(strconv.Itoa(storeFormat)), nil),
		batch.Set([]byte{metaRow}, value, nil),
		batch.Commit(pebble.Sync),
	)
	if err = errors.Join(err, batch.Close()); err != nil {
		return fmt.Errorf("write meta: %w", err)
	}
	return s.failure.err()
}

// Identity returns the number of shards, the current epoch and the secret of the store.
func (s *Store) Identity() message.Identity { return *s.identity.Load() }

// StoredEpoch returns the epoch that Identity has. No other process can change it, because only one
// at a time can open the directory.
func (s *Store) StoredEpoch(context.Context) (string, error) {
	if err := s.begin(); err != nil {
		return "", fmt.Errorf("stored epoch: %w", err)
	}
	defer s.end()
	return s.Identity().Epoch, nil
}

// NewEpoch replaces the epoch of every log and returns the new one, once it is durable.
func (s *Store) NewEpoch(context.Context) (string, error) {
	if err := s.begin(); err != nil {
		return "", fmt.Errorf("new epoch: %w", err)
	}
	defer s.end()
	s.epochs.Lock()
	defer s.epochs.Unlock()
	id := s.Identity()
	id.Epoch = rand.Text()
	shards := int32(id.Shards) //nolint:gosec // at most maxShards
	value, err := proto.Marshal(&clusterv1.Meta{Shards: shards, Epoch: id.Epoch, Secret: id.Secret})
	if err != nil {
		return "", fmt.Errorf("new epoch: %w", err)
	}
	batch := s.db.NewBatch()
	if err := batch.Set([]byte{metaRow}, value, nil); err != nil {
		return "", fmt.Errorf("new epoch: %w", err)
	}
	if err := s.commits.commit(batch); err != nil {
		return "", fmt.Errorf("new epoch: %w", err)
	}
	s.identity.Store(&id)
	return id.Epoch, nil
}

// Ping returns an error if the store no longer accepts writes.
func (s *Store) Ping(context.Context) error {
	if err := s.begin(); err != nil {
		return fmt.Errorf("ping: %w", err)
	}
	defer s.end()
	if err := s.failure.err(); err != nil {
		return fmt.Errorf("ping: %w", err)
	}
	return nil
}

// Failed returns a channel that is closed when the store has failed because of its disk. Ping then
// returns the cause. The process must end: Close can't free the store any more.
func (s *Store) Failed() <-chan struct{} { return s.failure.failed }

// begin marks the start of a call, for whose end Close waits. It returns ErrClosed if the store is
// closed; otherwise the caller must call end.
func (s *Store) begin() error {
	s.open.RLock()
	if s.closed {
		s.open.RUnlock()
		return ErrClosed
	}
	return nil
}

func (s *Store) end() { s.open.RUnlock() }

// Close ends every Feed, waits for the calls in flight and frees the store, even if the context
// ends. It saves what Published has confirmed. Later calls return ErrClosed. Another Close returns
// the first one's result.
func (s *Store) Close(context.Context) error {
	s.closing.Do(func() {
		close(s.done)
		s.open.Lock()
		s.closed = true
		s.open.Unlock()
		if err := s.commits.stop(); err != nil {
			// Pebble's own goroutines may be blocked holding its locks, so nothing can be called
			// any more.
			s.closeErr = fmt.Errorf("close store: %w", err)
			return
		}
		s.views.release(s.views.current)
		if err := s.db.Close(); err != nil {
			s.closeErr = fmt.Errorf("close store: %w", err)
		}
	})
	return s.closeErr
}
