package embedded

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"

	"github.com/parleyhq/parley/server/internal/message"
	"github.com/parleyhq/parley/server/internal/testkit"
)

const patience = 30 * time.Second

// gate blocks the syncs of Pebble's log while it is shut.
type gate struct {
	mu sync.Mutex
	// held is closed when the gate opens. It is nil while the gate is open.
	held chan struct{}
}

func (g *gate) shut() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.held = make(chan struct{})
}

// unshut opens the gate if it is shut.
func (g *gate) unshut() {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.held != nil {
		close(g.held)
		g.held = nil
	}
}

func isLogSync(op errorfs.Op) bool {
	switch op.Kind {
	case errorfs.OpFileSync, errorfs.OpFileSyncData, errorfs.OpFileSyncTo:
		return strings.HasSuffix(op.Path, ".log")
	default:
		return false
	}
}

// MaybeError implements errorfs.Injector.
func (g *gate) MaybeError(op errorfs.Op) error {
	if isLogSync(op) {
		g.mu.Lock()
		held := g.held
		g.mu.Unlock()
		if held != nil {
			<-held
		}
	}
	return nil
}

// String implements errorfs.Injector.
func (g *gate) String() string { return "gate" }

func openOn(t *testing.T, fs vfs.FS) *Store {
	t.Helper()
	s, err := Open("store", Config{FS: fs})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func closeStore(t *testing.T, s *Store) {
	t.Helper()
	if err := s.Close(context.WithoutCancel(t.Context())); err != nil {
		t.Errorf("close: %v", err)
	}
}

// channelIn returns the name of the i-th channel of a shard, in a store of defaultShards shards.
func channelIn(shard, i int) string {
	for n := 0; ; n++ {
		if name := fmt.Sprintf("c%d-%d", i, n); message.Shard(name, defaultShards) == shard {
			return name
		}
	}
}

func sendEntry(channel string, seq int64) message.Entry {
	return message.Entry{
		Message: message.Message{
			MsgID: fmt.Sprintf("m%d", seq), ChannelID: channel, Seq: seq, Count: seq, FromID: "ann", MsgType: "text",
			Content: fmt.Sprintf("text %d", seq), ClientMsgID: fmt.Sprintf("k%d", seq), MsgTime: time.UnixMilli(1e12 + seq).UTC(), ChangedSeq: seq,
		},
		Digest: []byte("digest"),
	}
}

func editEntry(target *message.Entry, seq int64, content string) message.Entry {
	return message.Entry{
		Message: message.Message{
			MsgID: target.MsgID, ChannelID: target.ChannelID, Seq: seq, Count: target.Count, FromID: "ann", Content: content,
			ClientMsgID: fmt.Sprintf("k%d", seq), MsgTime: target.MsgTime, ChangedSeq: seq,
		},
		Kind: message.KindEdit, TargetSeq: target.Seq, Digest: []byte("digest"),
	}
}

func mustInsert(t *testing.T, s *Store, entries ...message.Entry) {
	t.Helper()
	if n, err := s.Insert(t.Context(), message.Shard(entries[0].ChannelID, defaultShards), entries); err != nil || n != len(entries) {
		t.Fatalf("insert: %d, %v", n, err)
	}
}

// wantNone fails the test if any read returns an entry at or above seq.
func wantNone(t *testing.T, s *Store, channel string, seq int64) {
	t.Helper()
	ctx := t.Context()
	e := sendEntry(channel, seq)
	if h, err := s.Head(ctx, channel); err != nil || h.Seq >= seq {
		t.Fatalf("head shows %d before its sync (%v)", h.Seq, err)
	}
	for _, desc := range []bool{false, true} {
		if got, err := s.Entries(ctx, channel, message.Range{After: seq - 1, Desc: desc, Limit: 10}); err != nil || len(got) != 0 {
			t.Fatalf("entries show %d before their sync (%v)", len(got), err)
		}
	}
	if got, err := s.Messages(ctx, []message.Place{{ChannelID: channel, Seq: seq}}); err != nil || len(got) != 0 {
		t.Fatalf("messages show %d before their sync (%v)", len(got), err)
	}
	if _, ok, err := s.Message(ctx, channel, e.MsgID); err != nil || ok {
		t.Fatalf("message shows one before its sync (%v)", err)
	}
	if got, err := s.Targets(ctx, channel, []string{e.MsgID}); err != nil || len(got) != 0 {
		t.Fatalf("targets shows %d before their sync (%v)", len(got), err)
	}
	if got, err := s.ByClientKeys(ctx, channel, []message.ClientKey{{FromID: e.FromID, ClientMsgID: e.ClientMsgID}}); err != nil || len(got) != 0 {
		t.Fatalf("by client keys shows %d before their sync (%v)", len(got), err)
	}
}

// wantLog fails the test unless the log is contiguous and ends at seq, or above it if more is set.
func wantLog(t *testing.T, s *Store, channel string, seq int64, more bool) {
	t.Helper()
	got, err := s.Entries(t.Context(), channel, message.Range{Limit: 1 << 20})
	if err != nil {
		t.Fatal(err)
	}
	for i := range got {
		if got[i].Seq != int64(i)+1 {
			t.Fatalf("%s: entry %d is at place %d", channel, got[i].Seq, i+1)
		}
		if _, ok, err := s.Message(t.Context(), channel, got[i].MsgID); err != nil || !ok {
			t.Fatalf("%s: entry %d without its message row (%v)", channel, got[i].Seq, err)
		}
	}
	if n := int64(len(got)); n < seq || (n > seq && !more) {
		t.Fatalf("%s has %d entries, want %d", channel, n, seq)
	}
}

// eventuallyInDB waits until Pebble itself returns a value for key, synced or not, that satisfies
// want.
func eventuallyInDB(t *testing.T, s *Store, key []byte, want func(value []byte) bool) {
	t.Helper()
	testkit.Eventually(t, patience, func() error {
		value, closer, err := s.db.Get(key)
		if err != nil {
			return err
		}
		defer func() { _ = closer.Close() }()
		if !want(value) {
			return errors.New("not yet written")
		}
		return nil
	})
}

func anyValue([]byte) bool { return true }
