package message

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/parleyhq/parley/server/internal/fault"
	"github.com/parleyhq/parley/server/internal/lifecycle/lifecycletest"
	"github.com/parleyhq/parley/server/internal/testkit"
)

func startWriter(t *testing.T, store LogWriter, cfg WriterConfig) *Writer {
	t.Helper()
	w := NewWriter(store, 4, cfg)
	if err := w.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), 5*time.Second)
		defer cancel()
		_ = w.Stop(ctx)
	})
	return w
}

func TestWriterStartsAndStops(t *testing.T) {
	t.Parallel()
	lifecycletest.Stress[*Writer](t, func(*testing.T) *Writer { return NewWriter(newFakeStore(), 4, WriterConfig{}) })
}

func send(channel, from, clientID, content string) Draft {
	return Draft{
		Kind: KindSend, ChannelID: channel, MsgID: newID(), FromID: from, MsgType: "text", Content: content,
		ClientMsgID: clientID,
	}
}

func change(kind Kind, channel, from, msgID, clientID, content string) Draft {
	return Draft{Kind: kind, ChannelID: channel, MsgID: msgID, FromID: from, ClientMsgID: clientID, Content: content}
}

func appendOne(t *testing.T, w *Writer, d Draft) Outcome {
	t.Helper()
	return w.Append(t.Context(), []Draft{d})[0]
}

func mustAppend(t *testing.T, w *Writer, d Draft) Outcome {
	t.Helper()
	out := appendOne(t, w, d)
	if out.Err != nil {
		t.Fatalf("append: %v", out.Err)
	}
	return out
}

// checkDense fails the test unless the log is 1..n with correct counts and times that never go
// back.
func checkDense(t *testing.T, store *fakeStore, channel string, n int) []Entry {
	t.Helper()
	log := store.read(channel)
	if len(log) != n {
		t.Fatalf("channel %s holds %d entries, want %d", channel, len(log), n)
	}
	var count int64
	for i, e := range log {
		if e.Kind == KindSend {
			count++
		}
		if e.Seq != int64(i+1) || e.Count != count {
			t.Fatalf("entry %d has seq %d and count %d, want %d and %d", i, e.Seq, e.Count, i+1, count)
		}
		if i > 0 && e.MsgTime.Before(log[i-1].MsgTime) {
			t.Fatalf("entry %d is dated before the one in front of it", i)
		}
	}
	return log
}

func TestWriterAssignsDenseSeqs(t *testing.T) {
	t.Parallel()
	store := newFakeStore()
	var inserts sync.Map
	w := startWriter(t, store, WriterConfig{OnInsert: func(n int, _ time.Duration, _ error) { inserts.Store(newID(), n) }})
	var wg sync.WaitGroup
	seen := make([]sync.Map, 3)
	for i := range 300 {
		wg.Go(func() {
			c := i % 3
			out := appendOne(t, w, send(fmt.Sprintf("c%d", c), "alice", fmt.Sprint(i), "x"))
			if out.Err != nil {
				t.Errorf("append %d: %v", i, out.Err)
			} else if _, dup := seen[c].LoadOrStore(out.Seq, true); dup {
				t.Errorf("seq %d was given out twice", out.Seq)
			}
		})
	}
	wg.Wait()
	for c := range 3 {
		checkDense(t, store, fmt.Sprintf("c%d", c), 100)
	}
}

func TestWriterJoinsConcurrentSendsIntoOneInsert(t *testing.T) {
	t.Parallel()
	store := newFakeStore()
	gate := make(chan struct{})
	store.beforeInsert = func([]Entry) error { <-gate; return nil }
	var mu sync.Mutex
	var sizes []int
	w := startWriter(t, store, WriterConfig{OnInsert: func(n int, _ time.Duration, _ error) {
		mu.Lock()
		defer mu.Unlock()
		sizes = append(sizes, n)
	}})
	appendBehind(t, w, gate, 101, func(i int) Draft { return send("hot", "a", fmt.Sprint(i), "x") })
	checkDense(t, store, "hot", 101)
	if len(sizes) > 3 {
		t.Fatalf("%d inserts of %v for 101 concurrent sends, want them joined", len(sizes), sizes)
	}
}

func TestWriterAppliesTheChangesOfAnInsertTogether(t *testing.T) {
	t.Parallel()
	store := newFakeStore()
	w := startWriter(t, store, WriterConfig{})
	sent := mustAppend(t, w, send("hot", "a", "sent", "x"))
	gate := make(chan struct{})
	store.beforeInsert = func([]Entry) error { <-gate; return nil }
	appendBehind(t, w, gate, 601, func(i int) Draft { return change(KindEdit, "hot", "a", sent.MsgID, fmt.Sprint(i), fmt.Sprint(i)) })
	checkDense(t, store, "hot", 602)
	if len(store.applies) > 6 || slices.Max(store.applies) > 250 {
		t.Fatalf("calls of Apply with %v changes for 601 concurrent edits, want at most 250 in each, and few", store.applies)
	}
	for _, e := range store.read("hot") {
		if e.Pending {
			t.Fatalf("edit %d was acknowledged before it was applied", e.Seq)
		}
	}
}

// appendBehind appends n drafts to the channel hot concurrently, and opens the gate, which holds
// the inserts, when all are queued. It returns when all are acknowledged.
func appendBehind(t *testing.T, w *Writer, gate chan struct{}, n int, draft func(i int) Draft) {
	t.Helper()
	var appends sync.WaitGroup
	for i := range n {
		appends.Go(func() { mustAppendAll(t, w, []Draft{draft(i)}) })
	}
	l := w.lanes[Shard("hot", 4)]
	for queued := 0; queued < n; {
		l.mu.Lock()
		queued = l.queued
		l.mu.Unlock()
	}
	close(gate)
	appends.Wait()
}

func mustAppendAll(t *testing.T, w *Writer, ds []Draft) {
	t.Helper()
	for _, out := range w.Append(t.Context(), ds) {
		if out.Err != nil {
			t.Errorf("append: %v", out.Err)
		}
	}
}

func TestWriterDetectsDuplicates(t *testing.T) {
	t.Parallel()
	store := newFakeStore()
	w := startWriter(t, store, WriterConfig{})
	first := mustAppend(t, w, send("c", "alice", "k1", "hello"))
	again := mustAppend(t, w, send("c", "alice", "k1", "hello"))
	if again.MsgID != first.MsgID || again.Seq != first.Seq || !again.MsgTime.Equal(first.MsgTime) || !again.Duplicate {
		t.Fatalf("repeat answered %+v, want the first's %+v as a duplicate", again, first)
	}
	if first.Duplicate {
		t.Fatal("the first send is called a duplicate")
	}
	if out := appendOne(t, w, send("c", "alice", "k1", "other")); !fault.Is(out.Err, fault.ClientMsgIDReused) {
		t.Fatalf("another payload answered %v, want %s", out.Err, fault.ClientMsgIDReused)
	}
	if out := mustAppend(t, w, send("c", "bob", "k1", "other")); out.Seq != 2 {
		t.Fatalf("another sender's same id got seq %d, want 2", out.Seq)
	}
	checkDense(t, store, "c", 2)
}

func TestWriterDetectsDuplicatesInBatch(t *testing.T) {
	t.Parallel()
	store := newFakeStore()
	w := startWriter(t, store, WriterConfig{})
	outs := w.Append(t.Context(), []Draft{
		send("c", "a", "1", "x"), send("c", "a", "2", "y"), send("c", "a", "1", "x"), send("c", "a", "2", "z"), send("c", "a", "3", "w"),
	})
	if outs[2].Err != nil || outs[2].Seq != outs[0].Seq || !outs[2].Duplicate {
		t.Fatalf("the repeat answered %+v, want a duplicate of %+v", outs[2], outs[0])
	}
	if !fault.Is(outs[3].Err, fault.ClientMsgIDReused) {
		t.Fatalf("the conflicting item got %v", outs[3].Err)
	}
	if outs[4].Err != nil || outs[4].Seq != 3 {
		t.Fatalf("the item after a final refusal answered %+v, want seq 3", outs[4])
	}
	checkDense(t, store, "c", 3)
}

// Two writers that append to the same channels at once lose nothing and keep the logs without gaps:
// the store's unique indexes decide.
func TestTwoWritersStayDense(t *testing.T) {
	t.Parallel()
	store := newFakeStore()
	ws := []*Writer{startWriter(t, store, WriterConfig{}), startWriter(t, store, WriterConfig{})}
	var wg sync.WaitGroup
	for i := range 200 {
		wg.Go(func() {
			ch := fmt.Sprintf("c%d", i%2)
			mustAppendAll(t, ws[i/2%2], []Draft{send(ch, "a", fmt.Sprintf("%d-1", i), "x"), send(ch, "a", fmt.Sprintf("%d-2", i), "y")})
		})
	}
	wg.Wait()
	checkDense(t, store, "c0", 200)
	checkDense(t, store, "c1", 200)
}

// The writer finds the entries of an insert whose reply was lost: every message is stored once, and
// no send is answered as a duplicate.
func TestWriterFindsEntryAfterLostReply(t *testing.T) {
	t.Parallel()
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	rnd := rand.New(rand.NewPCG(seed, 0))
	var mu sync.Mutex
	chance := func(n int) bool { mu.Lock(); defer mu.Unlock(); return rnd.IntN(n) == 0 }
	store := newFakeStore()
	store.beforeInsert = func(entries []Entry) error {
		switch {
		case chance(5):
			return fmt.Errorf("refused: %w", ErrNotStored)
		case chance(5): // a part is stored, the reply is lost
			_, _ = store.insert(entries[:len(entries)/2])
			return errors.New("connection lost")
		}
		return nil
	}
	store.afterInsert = func([]Entry) error {
		if chance(3) {
			return errors.New("reply lost")
		}
		return nil
	}
	w := startWriter(t, store, WriterConfig{})
	var wg sync.WaitGroup
	for i := range 100 {
		wg.Go(func() {
			d := send(fmt.Sprintf("c%d", i%2), "a", fmt.Sprint(i), "x")
			out := appendOne(t, w, d)
			if out.Err != nil || out.Duplicate || out.MsgID != d.MsgID {
				t.Errorf("append %d: %+v", i, out)
			}
		})
	}
	wg.Wait()
	checkDense(t, store, "c0", 50)
	checkDense(t, store, "c1", 50)
}

// If an insert conflicts with an entry that cannot be read yet, the writer waits for that entry. It
// never assigns a seq beyond it.
func TestWriterWaitsForInvisibleConflict(t *testing.T) {
	t.Parallel()
	store := newFakeStore()
	w := startWriter(t, store, WriterConfig{})
	mustAppend(t, w, send("c", "a", "1", "x"))
	var hidden sync.Map
	hidden.Store("on", true)
	reads := make(chan struct{}, 1000)
	store.visible = func(e *Entry) bool {
		_, on := hidden.Load("on")
		if on && e.Seq == 2 {
			select {
			case reads <- struct{}{}:
			default:
			}
		}
		return !on || e.Seq != 2
	}
	_, _ = store.insert([]Entry{{Message: Message{ChannelID: "c", Seq: 2, Count: 2, MsgTime: time.Now(), MsgID: "other", FromID: "b", ClientMsgID: "1"}}})
	done := make(chan Outcome)
	go func() { done <- appendOne(t, w, send("c", "a", "2", "y")) }()
	for range 3 {
		<-reads
	}
	select {
	case out := <-done:
		t.Fatalf("answered %+v while the entry in the way could not be read", out)
	default:
	}
	hidden.Delete("on")
	if out := <-done; out.Err != nil || out.Seq != 3 {
		t.Fatalf("answered %+v, want seq 3", out)
	}
	checkDense(t, store, "c", 3)
}

func TestWriterPrefixOnFailure(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		err         error
		first, rest fault.Reason
		kind        fault.Kind
	}{
		"nothing stored": {ErrNotStored, fault.StoreUnavailable, fault.BatchAborted, fault.Aborted},
		"unknown":        {errors.New("lost"), fault.OutcomeUnknown, fault.OutcomeUnknown, fault.Unavailable},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			store := newFakeStore()
			store.beforeInsert = func([]Entry) error { return tc.err }
			w := startWriter(t, store, WriterConfig{AppendTimeout: 50 * time.Millisecond})
			outs := w.Append(t.Context(), []Draft{send("c", "a", "1", "x"), send("c", "a", "2", "y")})
			if !fault.Is(outs[0].Err, tc.first) || !fault.Is(outs[1].Err, tc.rest) {
				t.Fatalf("answered %v and %v, want %s and %s", outs[0].Err, outs[1].Err, tc.first, tc.rest)
			}
			if f, _ := fault.As(outs[1].Err); f.Kind != tc.kind {
				t.Fatalf("the later item is of kind %d, want %d", f.Kind, tc.kind)
			}
		})
	}
}

// A channel whose conflict cannot be resolved does not delay the others of its shard.
func TestConflictBlocksOnlyItsChannel(t *testing.T) {
	t.Parallel()
	store := newFakeStore()
	w := startWriter(t, store, WriterConfig{AppendTimeout: 5 * time.Second})
	// Two channels of one shard.
	stuck := "stuck"
	other := ""
	for i := 0; other == ""; i++ {
		if c := fmt.Sprintf("o%d", i); Shard(c, 4) == Shard(stuck, 4) {
			other = c
		}
	}
	mustAppend(t, w, send(stuck, "a", "1", "x"))
	store.visible = func(e *Entry) bool { return e.ChannelID != stuck || e.Seq != 2 }
	_, _ = store.insert([]Entry{{Message: Message{ChannelID: stuck, Seq: 2, Count: 2, MsgID: "other", FromID: "b", ClientMsgID: "1"}}})
	ctx, cancel := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	wg.Go(func() { w.Append(ctx, []Draft{send(stuck, "a", "2", "y")}) })
	for i := range 20 {
		mustAppend(t, w, send(other, "a", fmt.Sprint(i), "x"))
	}
	cancel()
	wg.Wait()
}

func TestEditAndRecall(t *testing.T) {
	t.Parallel()
	store := newFakeStore()
	w := startWriter(t, store, WriterConfig{})
	m := mustAppend(t, w, send("c", "alice", "1", "draft"))
	edit := mustAppend(t, w, change(KindEdit, "c", "alice", m.MsgID, "2", "final"))
	if edit.Seq != 2 || edit.Count != 1 {
		t.Fatalf("the edit is at %d with count %d, want 2 and 1", edit.Seq, edit.Count)
	}
	if log := store.read("c"); log[0].Content != "final" || log[0].Status != StatusEdited || log[0].ChangedSeq != 2 {
		t.Fatalf("the target was not changed before the answer: %+v", log[0])
	}
	if again := mustAppend(t, w, change(KindEdit, "c", "alice", m.MsgID, "2", "final")); again.Seq != 2 || !again.Duplicate {
		t.Fatalf("the repeated edit answered %+v", again)
	}
	if out := appendOne(t, w, change(KindEdit, "c", "bob", m.MsgID, "1", "mine")); !fault.Is(out.Err, fault.NotSender) {
		t.Fatalf("another's edit answered %v", out.Err)
	}
	if out := appendOne(t, w, change(KindEdit, "c", "alice", "nope", "9", "x")); !fault.Is(out.Err, fault.MessageNotFound) {
		t.Fatalf("an edit of nothing answered %v", out.Err)
	}
	recall := mustAppend(t, w, change(KindRecall, "c", "alice", m.MsgID, "3", ""))
	if recall.Seq != 3 {
		t.Fatalf("the recall is at %d, want 3", recall.Seq)
	}
	if out := mustAppend(t, w, change(KindRecall, "c", "alice", m.MsgID, "4", "")); out.Seq != 3 || !out.Duplicate {
		t.Fatalf("recalling what is recalled answered %+v, want seq 3", out)
	}
	if out := appendOne(t, w, change(KindEdit, "c", "alice", m.MsgID, "5", "x")); !fault.Is(out.Err, fault.MessageRecalled) {
		t.Fatalf("editing what is recalled answered %v", out.Err)
	}
	checkDense(t, store, "c", 3)
}

// However edits, recalls and sends race, no edit follows a recall of the same message in the log.
func TestChangesRace(t *testing.T) {
	t.Parallel()
	store := newFakeStore()
	ws := []*Writer{startWriter(t, store, WriterConfig{}), startWriter(t, store, WriterConfig{})}
	m := mustAppend(t, ws[0], send("c", "a", "m", "x"))
	var wg sync.WaitGroup
	var mu sync.Mutex
	recalls := make(map[int64]bool)
	for i := range 60 {
		wg.Go(func() {
			w := ws[i%2]
			switch {
			case i%3 == 0:
				mustAppendAll(t, w, []Draft{send("c", "a", fmt.Sprint(i), "x")})
			case i > 30 && i%3 == 1:
				out := mustOutcome(t, appendOne(t, w, change(KindRecall, "c", "a", m.MsgID, fmt.Sprint(i), "")))
				mu.Lock()
				recalls[out.Seq] = true
				mu.Unlock()
			default:
				out := appendOne(t, w, change(KindEdit, "c", "a", m.MsgID, fmt.Sprint(i), "edit"))
				if out.Err != nil && !fault.Is(out.Err, fault.MessageRecalled) {
					t.Errorf("edit: %v", out.Err)
				}
			}
		})
	}
	wg.Wait()
	if len(recalls) != 1 {
		t.Errorf("recalls answered the seqs %v, want one", recalls)
	}
	recalled := false
	for _, e := range store.read("c") {
		switch {
		case recalled && e.Kind != KindSend:
			t.Fatalf("entry %d changes a recalled message", e.Seq)
		case e.Kind == KindRecall:
			recalled = true
		}
	}
}

func mustOutcome(t *testing.T, out Outcome) Outcome {
	t.Helper()
	if out.Err != nil {
		t.Errorf("append: %v", out.Err)
	}
	return out
}

func TestTimeNeverGoesBackWithinAChannel(t *testing.T) {
	t.Parallel()
	store := newFakeStore()
	c := &clock{t: time.Date(2026, 1, 2, 3, 4, 5, 6_999_999, time.UTC)}
	w := startWriter(t, store, WriterConfig{Now: c.now})
	first := mustAppend(t, w, send("c", "a", "1", "x"))
	if want := time.Date(2026, 1, 2, 3, 4, 5, 6_000_000, time.UTC); !first.MsgTime.Equal(want) {
		t.Fatalf("msg_time is %s, want the stored %s", first.MsgTime, want)
	}
	c.set(c.now().Add(-time.Hour))
	if second := mustAppend(t, w, send("c", "a", "2", "x")); second.MsgTime.Before(first.MsgTime) {
		t.Fatalf("msg_time went back from %s to %s", first.MsgTime, second.MsgTime)
	}
}

// A stored edit that cannot be applied is answered when the writer stops, not when the caller's
// patience ends.
func TestStopAnswersChangesThatAreNotApplied(t *testing.T) {
	t.Parallel()
	store := newFakeStore()
	w := NewWriter(store, 4, WriterConfig{AppendTimeout: time.Hour})
	if err := w.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	sent := mustAppend(t, w, send("c", "a", "1", "x"))
	tried := make(chan struct{}, 1)
	store.beforeApply = func() error {
		select {
		case tried <- struct{}{}:
		default:
		}
		return errors.New("provoked")
	}
	done := make(chan Outcome)
	go func() { done <- appendOne(t, w, change(KindEdit, "c", "a", sent.MsgID, "2", "y")) }()
	<-tried
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_ = w.Stop(ctx)
	if out := <-done; !fault.Is(out.Err, fault.OutcomeUnknown) {
		t.Fatalf("an edit that is stored and not applied answered %v, want %s", out.Err, fault.OutcomeUnknown)
	}
}

func TestStopFailsPendingAppends(t *testing.T) {
	t.Parallel()
	store := newFakeStore()
	release := make(chan struct{})
	entered := make(chan struct{}, 1)
	store.beforeInsert = func([]Entry) error { entered <- struct{}{}; <-release; return nil }
	w := NewWriter(store, 4, WriterConfig{})
	if out := appendOne(t, w, send("c", "a", "0", "x")); !fault.Is(out.Err, fault.ShuttingDown) {
		t.Fatalf("an append before Start answered %v", out.Err)
	}
	if err := w.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	done := make(chan Outcome)
	go func() { done <- appendOne(t, w, send("c", "a", "1", "x")) }()
	<-entered
	closed := make(chan error)
	ctx, cancel := context.WithCancel(t.Context())
	go func() { closed <- w.Stop(ctx) }()
	cancel()
	if out := <-done; !fault.Is(out.Err, fault.OutcomeUnknown) {
		t.Fatalf("an append under way at a forced end answered %v, want %s", out.Err, fault.OutcomeUnknown)
	}
	close(release)
	<-closed
	if out := appendOne(t, w, send("c", "a", "2", "x")); !fault.Is(out.Err, fault.ShuttingDown) {
		t.Fatalf("an append after Stop answered %v", out.Err)
	}
}

// TestFullQueueInBytesRefuses checks that pending texts are bounded by their bytes, over all
// shards, and that they are free again however an append ends.
func TestFullQueueInBytesRefuses(t *testing.T) {
	t.Parallel()
	store := newFakeStore()
	var stalled atomic.Bool
	stalled.Store(true)
	release, entered := make(chan struct{}), make(chan struct{}, 1)
	store.beforeInsert = func([]Entry) error {
		if stalled.Load() {
			entered <- struct{}{}
			<-release
		}
		return nil
	}
	w := startWriter(t, store, WriterConfig{MaxQueueBytes: 10_000})
	large := strings.Repeat("x", 6000)
	first := make(chan Outcome)
	go func() { first <- appendOne(t, w, send("c", "ann", "1", large)) }()
	<-entered
	for i := range 4 { // of all shards
		out := appendOne(t, w, send(fmt.Sprint("other", i), "ann", "1", large))
		if f, ok := fault.As(out.Err); !ok || f.Reason != fault.RateLimited || f.RetryAfter == 0 {
			t.Fatalf("with a full queue: %+v", out)
		}
	}
	left, leave := context.WithCancel(t.Context())
	second := make(chan []Outcome)
	go func() { second <- w.Append(left, []Draft{send("c", "ann", "2", large[:2000])}) }()
	testkit.Eventually(t, 10*time.Second, func() error {
		if used := w.lanes[0].pending.used.Load(); used != 8000+2*draftOverhead {
			return fmt.Errorf("%d bytes are pending", used)
		}
		return nil
	})
	leave()
	if out := (<-second)[0]; out.Err == nil {
		t.Fatal("an append whose caller left succeeded")
	}
	stalled.Store(false)
	close(release)
	if out := <-first; out.Err != nil {
		t.Fatal(out.Err)
	}
	mustAppend(t, w, send("c", "ann", "3", large))
	if used := w.lanes[0].pending.used.Load(); used != 0 {
		t.Errorf("%d bytes are pending at the end", used)
	}
}

// A batch that does not fit into the shard's queue is refused as a whole: the first item with
// RATE_LIMITED, and the others with BATCH_ABORTED.
func TestFullQueueRefusesTheBatch(t *testing.T) {
	t.Parallel()
	w := startWriter(t, newFakeStore(), WriterConfig{MaxQueue: 2})
	outs := w.Append(t.Context(), []Draft{send("c", "ann", "1", "a"), send("c", "ann", "2", "b"), send("c", "ann", "3", "c")})
	want := []fault.Reason{fault.RateLimited, fault.BatchAborted, fault.BatchAborted}
	for i, out := range outs {
		if f, ok := fault.As(out.Err); !ok || f.Reason != want[i] || i == 0 && f.RetryAfter == 0 {
			t.Errorf("item %d: %v, want %s", i, out.Err, want[i])
		}
	}
	mustAppend(t, w, send("c", "ann", "4", "d"))
}
