package embedded

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"

	"github.com/parleyhq/parley/server/internal/message"
)

func TestShardsAreFixed(t *testing.T) {
	t.Parallel()
	fs := vfs.NewMem()
	for _, step := range []struct {
		configured, want int
		refused          bool
	}{{configured: 8, want: 8}, {configured: 8, want: 8}, {configured: 4, refused: true}, {configured: 0, want: 8}, {configured: -1, refused: true}} {
		s, err := Open("store", Config{Shards: step.configured, FS: fs})
		if step.refused {
			if err == nil || !strings.Contains(err.Error(), "shards") {
				t.Fatalf("open with %d shards: %v, want a refusal that names them", step.configured, err)
			}
			if step.configured > 0 && !strings.Contains(err.Error(), "set shards: 8, or PARLEY_SHARDS=8") {
				t.Errorf("open with %d shards: %v, want what to set", step.configured, err)
			}
			continue
		}
		if err != nil {
			t.Fatal(err)
		}
		if got := s.Identity().Shards; got != step.want {
			t.Fatalf("%d shards, want %d", got, step.want)
		}
		closeStore(t, s)
	}
}

func TestFolderIsPrivateAndLocked(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "a", "store")
	s, err := Open(dir, Config{})
	if err != nil {
		t.Fatal(err)
	}
	defer closeStore(t, s)
	info, err := os.Stat(dir)
	if err != nil {
		t.Fatal(err)
	}
	if perm := info.Mode().Perm(); perm != 0o700 {
		t.Fatalf("folder has mode %o, want 700", perm)
	}
	if _, err := Open(dir, Config{}); err == nil {
		t.Fatal("the folder was opened twice")
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	other := exec.CommandContext(t.Context(), self)
	other.Env = append(os.Environ(), childDir+"="+dir)
	if out, err := other.CombinedOutput(); err == nil || !strings.Contains(string(out), "another process uses "+dir) {
		t.Fatalf("opened by another process: %v, %s", err, out)
	}
}

func TestInsertRefusesInvalidEntries(t *testing.T) {
	t.Parallel()
	s := openOn(t, vfs.NewMem())
	defer closeStore(t, s)
	channel := channelIn(1, 0)
	mustInsert(t, s, sendEntry(channel, 1))
	var conflict *message.ConflictError
	// A gap is a conflict here, although the seq is free.
	if n, err := s.Insert(t.Context(), 1, []message.Entry{sendEntry(channel, 2), sendEntry(channel, 4)}); n != 1 || !errors.As(err, &conflict) {
		t.Fatalf("insert with a hole: %d, %v", n, err)
	}
	zero := sendEntry(channel, 3)
	zero.FromID = "a\x00b"
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	for _, c := range []struct {
		name    string
		ctx     context.Context
		shard   int
		entries []message.Entry
	}{
		{"another shard", t.Context(), 0, []message.Entry{sendEntry(channel, 3)}},
		{"no such shard", t.Context(), 4, []message.Entry{sendEntry(channel, 3)}},
		{"zero byte", t.Context(), 1, []message.Entry{zero}},
		{"ended context", ended, 1, []message.Entry{sendEntry(channel, 3)}},
	} {
		if n, err := s.Insert(c.ctx, c.shard, c.entries); n != 0 || !errors.Is(err, message.ErrNotStored) {
			t.Errorf("%s: %d, %v, want ErrNotStored", c.name, n, err)
		}
	}
	if n, err := s.Insert(t.Context(), 1, nil); n != 0 || err != nil {
		t.Errorf("nothing: %d, %v", n, err)
	}
	wantLog(t, s, channel, 2, false)
}

func TestHeadCacheIsBounded(t *testing.T) {
	t.Parallel()
	s := openOn(t, vfs.NewMem())
	defer closeStore(t, s)
	var channels []string
	for i := range maxHeads + 10 {
		channels = append(channels, channelIn(0, i))
	}
	for seq := range int64(2) {
		batch := make([]message.Entry, 0, len(channels))
		for _, c := range channels {
			batch = append(batch, sendEntry(c, seq+1))
		}
		mustInsert(t, s, batch[:maxHeads/2]...)
		mustInsert(t, s, batch[maxHeads/2:]...)
		if n := len(s.shards[0].heads); n > maxHeads {
			t.Fatalf("%d heads are remembered, want at most %d", n, maxHeads)
		}
	}
}

func TestClosedStoreReturnsErrClosed(t *testing.T) {
	t.Parallel()
	s := openOn(t, vfs.NewMem())
	channel := channelIn(0, 0)
	closeStore(t, s)
	closeStore(t, s)
	ctx := t.Context()
	_, insertErr := s.Insert(ctx, 0, []message.Entry{sendEntry(channel, 1)})
	if !errors.Is(insertErr, message.ErrNotStored) {
		t.Errorf("insert: %v, want ErrNotStored", insertErr)
	}
	_, headErr := s.Head(ctx, channel)
	_, entriesErr := s.Entries(ctx, channel, message.Range{Limit: 1})
	_, feedErr := s.OpenFeed(ctx, 0)
	_, epochErr := s.NewEpoch(ctx)
	e := editEntry(&message.Entry{Message: message.Message{ChannelID: channel, Seq: 1}}, 2, "x")
	for i, err := range []error{insertErr, headErr, entriesErr, feedErr, epochErr, s.Apply(ctx, &e), s.Ping(ctx)} {
		if !errors.Is(err, ErrClosed) {
			t.Errorf("call %d: %v, want ErrClosed", i, err)
		}
	}
}

// TestCloseSavesPublishedPosition checks that entries confirmed by Published do not return in the
// next feed, even if the store is closed right after Published.
func TestCloseSavesPublishedPosition(t *testing.T) {
	t.Parallel()
	fs := vfs.NewMem()
	channel := channelIn(0, 0)
	for seq := int64(1); seq <= 20; seq++ {
		s := openOn(t, fs)
		f, err := s.OpenFeed(t.Context(), 0)
		if err != nil {
			t.Fatal(err)
		}
		mustInsert(t, s, sendEntry(channel, seq))
		got, err := f.Next(t.Context(), 10)
		if err != nil || len(got) != 1 || got[0].Seq != seq {
			t.Fatalf("feed at %d: %d entries, %v", seq, len(got), err)
		}
		if err := f.Published(t.Context()); err != nil {
			t.Fatal(err)
		}
		closeStore(t, s)
		if err := f.Close(t.Context()); err != nil {
			t.Fatalf("close of a feed after its store: %v", err)
		}
	}
}

// TestDiskFailure checks that a store acknowledges nothing after a failed write or sync of its log,
// and that everything acknowledged before exists at the next start.
func TestDiskFailure(t *testing.T) {
	t.Parallel()
	for name, breaks := range map[string]func(op errorfs.Op) bool{
		"Write": func(op errorfs.Op) bool { return op.Kind == errorfs.OpFileWrite && strings.HasSuffix(op.Path, ".log") },
		"Sync":  isLogSync,
	} {
		for _, first := range []string{"Insert", "Published"} {
			t.Run(name+first, func(t *testing.T) {
				t.Parallel()
				failDisk(t, breaks, first == "Published" && name == "Write")
			})
		}
	}
}

// unknownOutcome reports whether an error of Insert means that entries may have been stored.
func unknownOutcome(err error) bool {
	var conflict *message.ConflictError
	return err != nil && !errors.As(err, &conflict) && !errors.Is(err, message.ErrNotStored)
}

func failDisk(t *testing.T, breaks func(op errorfs.Op) bool, publish bool) {
	var full atomic.Bool
	mem := vfs.NewCrashableMem()
	s := openOn(t, errorfs.Wrap(mem, errorfs.InjectorFunc(func(op errorfs.Op) error {
		if full.Load() && breaks(op) {
			return syscall.ENOSPC
		}
		return nil
	})))
	channel := channelIn(3, 0)
	mustInsert(t, s, sendEntry(channel, 1), sendEntry(channel, 2))
	f, err := s.OpenFeed(t.Context(), 3)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.Next(t.Context(), 10); err != nil {
		t.Fatal(err)
	}
	full.Store(true)
	if publish {
		// A commit without a sync meets the error first, and nobody waits for it. The next commit
		// finds the log broken.
		if err := f.Published(t.Context()); err != nil {
			t.Fatal(err)
		}
		if err := f.Close(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	if n, err := s.Insert(t.Context(), 3, []message.Entry{sendEntry(channel, 3)}); n != 0 || !unknownOutcome(err) {
		t.Fatalf("insert on a failing disk: %d, %v, want an unknown outcome", n, err)
	}
	select {
	case <-s.Failed():
	case <-time.After(patience):
		t.Fatal("the store does not say that it has failed")
	}
	full.Store(false)
	if n, err := s.Insert(t.Context(), 2, []message.Entry{sendEntry(channelIn(2, 0), 1)}); n != 0 || !errors.Is(err, message.ErrNotStored) {
		t.Fatalf("insert into a failed store: %d, %v, want ErrNotStored", n, err)
	}
	change := editEntry(&message.Entry{Message: message.Message{ChannelID: channel, Seq: 1}}, 3, "x")
	if err := s.Apply(t.Context(), &change); err == nil {
		t.Fatal("apply was acknowledged by a failed store")
	}
	if err := s.Ping(t.Context()); err == nil || !strings.Contains(err.Error(), "no space") {
		t.Fatalf("ping: %v, want the cause", err)
	}
	wantLog(t, s, channel, 2, false)
	if err := s.Close(t.Context()); err == nil {
		t.Fatal("close of a failed store reports nothing")
	}
	// Open what is on disk when the process ends.
	again := openOn(t, mem.CrashClone(vfs.CrashCloneCfg{}))
	defer closeStore(t, again)
	wantLog(t, again, channel, 2, true)
}
