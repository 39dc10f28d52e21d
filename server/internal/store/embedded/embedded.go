// Package embedded is the message store of a single node: one Pebble database in a folder, nothing else to install.
//
// # Durability
//
// What Insert, Apply and NewEpoch answered is fsync'd. Concurrent calls are joined into one batch by one committer, so
// they share an fsync. Pebble shows a batch to readers before its log is synced; therefore no method reads the database
// as it is, but a view of it that was taken after the last sync and before the next commit. So nothing is ever shown,
// fed or answered as a conflict that a power loss could take back.
//
// # When the disk fails
//
// Pebble has no way back from a failed write of its log or manifest (a full disk, an I/O error) and expects the process
// to end. The store then has failed for good: writes under way answer message.ErrUnknownOutcome and later ones
// message.ErrNotStored, none is acknowledged; reads go on with what was synced before; Ping tells why; Failed is
// closed, and whoever opened the store is to end the process. The next Open finds everything that was acknowledged.
// A full disk that only keeps Pebble from flushing makes writes wait until there is room.
package embedded

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"sync"
	"sync/atomic"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/bloom"
	"github.com/cockroachdb/pebble/v2/vfs"
	"google.golang.org/protobuf/proto"

	clusterv1 "github.com/parleyhq/parley/internal/gen/parley/cluster/v1"
	"github.com/parleyhq/parley/server/internal/message"
)

// ErrClosed says that the store was closed.
var ErrClosed = errors.New("store is closed")

const (
	defaultBuckets = 4
	maxBuckets     = 1 << 16
	cacheBytes     = 64 << 20
	memTableBytes  = 16 << 20
)

// Config is what a store is opened with.
type Config struct {
	// Buckets is how many buckets the store is made with. 0 takes what the store has, or 4 for a new one; any other
	// number than the store was made with is refused.
	Buckets int
	// Logger takes Pebble's own messages; slog.Default if nil.
	Logger *slog.Logger
	// FS is the file system; nil is the operating system's. For tests.
	FS vfs.FS
}

// Store is a message store in a folder, which one process at a time can open. It is safe for concurrent use.
type Store struct {
	db       *pebble.DB
	buckets  []*bucket
	identity atomic.Pointer[message.Identity]
	commits  committer
	views    views
	changing stripes
	rosters  rosterLocks
	changes  changes

	// open is held for reading by every call under way, and guards closed.
	open   sync.RWMutex
	closed bool
	// done is closed when Close begins.
	done     chan struct{}
	closing  sync.Once
	closeErr error
	failure  failure
	// epochs lets one NewEpoch run at a time.
	epochs sync.Mutex
}

var _ message.Store = (*Store)(nil)

// Open opens the store in dir, or makes it there.
func Open(dir string, cfg Config) (*Store, error) {
	if cfg.Buckets < 0 || cfg.Buckets > maxBuckets {
		return nil, fmt.Errorf("open store: buckets is %d, want 1 to %d", cfg.Buckets, maxBuckets)
	}
	s := &Store{done: make(chan struct{}), failure: failure{failed: make(chan struct{})}}
	fs := cfg.FS
	if fs == nil {
		fs = vfs.Default
	}
	db, err := pebble.Open(dir, options(privateFS{fs}, newLogger(cfg.Logger, &s.failure)))
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

// privateFS makes folders for their owner alone: what people wrote is nobody else's to read, and Pebble would make them
// readable for all.
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
	// Most look-ups by client key find nothing; the filter spares them the disk.
	for i := range opts.Levels {
		opts.Levels[i].FilterPolicy = bloom.FilterPolicy(10)
	}
	return opts
}

// load reads the identity, or makes it in a new store, and finds where every outbox ends. It runs before any view is
// taken: Open has flushed what it replayed, so all that is there is durable.
func (s *Store) load(cfg Config) error {
	var meta clusterv1.Meta
	value, closer, err := s.db.Get([]byte{metaRow})
	switch {
	case errors.Is(err, pebble.ErrNotFound):
		meta.Buckets = int32(cfg.Buckets) //nolint:gosec // at most maxBuckets
		if cfg.Buckets == 0 {
			meta.Buckets = defaultBuckets
		}
		meta.Epoch, meta.Secret = rand.Text(), make([]byte, 32)
		if _, err := rand.Read(meta.GetSecret()); err != nil {
			return fmt.Errorf("make secret: %w", err)
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
	if cfg.Buckets != 0 && cfg.Buckets != int(meta.GetBuckets()) {
		return fmt.Errorf("the store was made with %d buckets and %d are configured; their number can't be changed: "+
			"set buckets: %[1]d, or PARLEY_BUCKETS=%[1]d", meta.GetBuckets(), cfg.Buckets)
	}
	s.identity.Store(&message.Identity{Buckets: int(meta.GetBuckets()), Epoch: meta.GetEpoch(), Secret: meta.GetSecret()})
	for i := range int(meta.GetBuckets()) {
		b, err := newBucket(s.db, i)
		if err != nil {
			return err
		}
		s.buckets = append(s.buckets, b)
	}
	return nil
}

// saveMeta writes a new store's identity, before there is a committer.
func (s *Store) saveMeta(meta *clusterv1.Meta) error {
	value, err := proto.Marshal(meta)
	if err != nil {
		return fmt.Errorf("write meta: %w", err)
	}
	if err := s.db.Set([]byte{metaRow}, value, pebble.Sync); err != nil {
		return fmt.Errorf("write meta: %w", err)
	}
	return s.failure.err()
}

// Identity is what the store was made with.
func (s *Store) Identity() message.Identity { return *s.identity.Load() }

// StoredEpoch is Identity's: nobody else can open the folder.
func (s *Store) StoredEpoch(context.Context) (string, error) {
	if err := s.begin(); err != nil {
		return "", fmt.Errorf("stored epoch: %w", err)
	}
	defer s.end()
	return s.Identity().Epoch, nil
}

// NewEpoch replaces the epoch of every log and returns the new one.
func (s *Store) NewEpoch(context.Context) (string, error) {
	if err := s.begin(); err != nil {
		return "", fmt.Errorf("new epoch: %w", err)
	}
	defer s.end()
	s.epochs.Lock()
	defer s.epochs.Unlock()
	id := s.Identity()
	id.Epoch = rand.Text()
	buckets := int32(id.Buckets) //nolint:gosec // at most maxBuckets
	value, err := proto.Marshal(&clusterv1.Meta{Buckets: buckets, Epoch: id.Epoch, Secret: id.Secret})
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

// Ping tells whether the store still takes writes.
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

// Failed is closed when the disk has failed the store; Ping then tells how. The process has to end: Close frees
// nothing any more.
func (s *Store) Failed() <-chan struct{} { return s.failure.failed }

// begin starts a call, which end must end.
func (s *Store) begin() error {
	s.open.RLock()
	if s.closed {
		s.open.RUnlock()
		return ErrClosed
	}
	return nil
}

func (s *Store) end() { s.open.RUnlock() }

// Close ends every Feed, waits for the calls under way and frees the store. What Published confirmed is saved. Later
// calls answer ErrClosed, a second Close what the first one did.
func (s *Store) Close(context.Context) error {
	s.closing.Do(func() {
		close(s.done)
		s.open.Lock()
		s.closed = true
		s.open.Unlock()
		if err := s.commits.stop(); err != nil {
			// Pebble's own goroutines may stand still with its locks held, so there is nothing to call any more.
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
