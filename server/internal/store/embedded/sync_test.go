package embedded

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"

	"github.com/parleyhq/parley/server/internal/message"
	"github.com/parleyhq/parley/server/internal/testkit"
)

func TestEntriesAreVisibleAfterSync(t *testing.T) {
	t.Parallel()
	g, mem := &gate{}, vfs.NewCrashableMem()
	s := openOn(t, errorfs.Wrap(mem, g))
	defer closeStore(t, s)
	defer g.unshut()
	channel := channelIn(1, 0)
	mustInsert(t, s, sendEntry(channel, 1), sendEntry(channel, 2))
	f, err := s.OpenFeed(t.Context(), 1)
	if err != nil {
		t.Fatal(err)
	}
	if got, err := f.Next(t.Context(), 10); err != nil || len(got) != 2 {
		t.Fatalf("feed: %d, %v", len(got), err)
	}

	g.shut()
	inserted, repeated := make(chan error, 1), make(chan error, 1)
	insert := func(done chan<- error) {
		_, err := s.Insert(t.Context(), 1, []message.Entry{sendEntry(channel, 3), sendEntry(channel, 4)})
		done <- err
	}
	go insert(inserted)
	eventuallyInDB(t, s, seqKey(sendRow, channel, 4), anyValue)
	wantNone(t, s, channel, 3)
	// The same entries again must wait too: a conflict would reveal that the first Insert has
	// stored them.
	go insert(repeated)
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	if got, err := f.Next(ctx, 10); err == nil {
		t.Fatalf("the feed shows %d entries before their sync", len(got))
	}
	cancel()
	late, err := s.OpenFeed(t.Context(), 1)
	if err != nil {
		t.Fatal(err)
	}
	if got, err := late.Next(t.Context(), 10); err != nil || len(got) != 2 {
		t.Fatalf("a new feed shows %d entries, 2 are synced (%v)", len(got), err)
	}
	select {
	case err := <-inserted:
		t.Fatalf("insert answered before its sync: %v", err)
	case err := <-repeated:
		t.Fatalf("the repeat answered before the sync: %v", err)
	default:
	}
	crashed := openOn(t, mem.CrashClone(vfs.CrashCloneCfg{}))
	wantLog(t, crashed, channel, 2, false)
	closeStore(t, crashed)

	g.unshut()
	if err := <-inserted; err != nil {
		t.Fatal(err)
	}
	var conflict *message.ConflictError
	if err := <-repeated; !errors.As(err, &conflict) {
		t.Fatalf("the repeat answered %v, want a conflict", err)
	}
	wantLog(t, s, channel, 4, false)
	if got, err := f.Next(t.Context(), 10); err != nil || len(got) != 2 || got[0].Seq != 3 {
		t.Fatalf("feed: %d, %v", len(got), err)
	}
}

func TestChangesAreVisibleAfterSync(t *testing.T) {
	t.Parallel()
	g, mem := &gate{}, vfs.NewCrashableMem()
	s := openOn(t, errorfs.Wrap(mem, g))
	defer closeStore(t, s)
	defer g.unshut()
	sent := sendEntry(channelIn(2, 0), 1)
	edit := editEntry(&sent, 2, "edited")
	mustInsert(t, s, sent, edit)

	content := func(s *Store) string {
		t.Helper()
		got, ok, err := s.Message(t.Context(), sent.ChannelID, sent.MsgID)
		if err != nil || !ok {
			t.Fatalf("message: %v, %v", ok, err)
		}
		return got.Content
	}
	g.shut()
	applied, again := make(chan error, 1), make(chan error, 1)
	go func() { applied <- s.Apply(t.Context(), &edit) }()
	eventuallyInDB(t, s, seqKey(sendRow, sent.ChannelID, 1), func(value []byte) bool { return strings.Contains(string(value), "edited") })
	if got := content(s); got != sent.Content {
		t.Fatalf("message shows %q before its sync", got)
	}
	// The same Apply again must wait too: success would mean that the first one is durable.
	go func() { again <- s.Apply(t.Context(), &edit) }()
	select {
	case err := <-applied:
		t.Fatalf("apply answered before its sync: %v", err)
	case err := <-again:
		t.Fatalf("apply answered again before the sync: %v", err)
	case <-time.After(20 * time.Millisecond):
	}
	g.unshut()
	if err := errors.Join(<-applied, <-again); err != nil {
		t.Fatal(err)
	}
	crashed := openOn(t, mem.CrashClone(vfs.CrashCloneCfg{}))
	defer closeStore(t, crashed)
	if got := content(crashed); got != "edited" {
		t.Fatalf("after the power loss the message is %q; its edit was acknowledged", got)
	}
}

// TestApplyOrder checks that no text is left after a recall and an earlier edit of one message are
// applied at once, the recall first. An edit computed before the recall's sync would restore it.
func TestApplyOrder(t *testing.T) {
	t.Parallel()
	g := &gate{}
	s := openOn(t, errorfs.Wrap(vfs.NewCrashableMem(), g))
	defer closeStore(t, s)
	defer g.unshut()
	sent := sendEntry(channelIn(2, 0), 1)
	edit := editEntry(&sent, 2, "edited")
	recall := editEntry(&sent, 3, "")
	recall.Kind = message.KindRecall
	mustInsert(t, s, sent, edit, recall)

	g.shut()
	busy, done := make(chan error, 1), make(chan error, 2)
	other := channelIn(1, 0)
	go func() {
		_, err := s.Insert(t.Context(), 1, []message.Entry{sendEntry(other, 1)})
		busy <- err
	}()
	eventuallyInDB(t, s, seqKey(sendRow, other, 1), anyValue)
	go func() { done <- s.Apply(t.Context(), &recall) }()
	testkit.Eventually(t, patience, func() error {
		s.commits.mu.Lock()
		defer s.commits.mu.Unlock()
		if len(s.commits.queue) != 1 {
			return errors.New("the recall is not queued")
		}
		return nil
	})
	go func() { done <- s.Apply(t.Context(), &edit) }()
	// The edit must not reach the queue. No event shows that it never will, so wait a moment.
	<-time.After(20 * time.Millisecond)
	g.unshut()
	if err := errors.Join(<-busy, <-done, <-done); err != nil {
		t.Fatal(err)
	}
	got, err := s.Entries(t.Context(), sent.ChannelID, message.Range{Limit: 10})
	if err != nil || len(got) != 3 {
		t.Fatalf("entries: %d, %v", len(got), err)
	}
	for i := range got {
		if got[i].Content != "" {
			t.Errorf("entry %d has the recalled text %q", got[i].Seq, got[i].Content)
		}
	}
}
