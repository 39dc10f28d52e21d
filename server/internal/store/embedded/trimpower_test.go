package embedded

import (
	"context"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/parleyhq/parley/server/internal/message"
)

// trimmed is how far a log was written and trimmed. Strip and Delete had stripped and deleted as
// their exclusive upper bounds.
type trimmed struct {
	head, oldest, stripped, deleted int64
}

// trimLoop appends to a channel's log and trims it.
type trimLoop struct {
	store   *Store
	channel string
	mu      sync.Mutex
	// acked is what was acknowledged, issued what was begun; guarded by mu.
	acked, issued trimmed
}

func (l *trimLoop) note(state *trimmed, raise func(*trimmed)) {
	l.mu.Lock()
	defer l.mu.Unlock()
	raise(state)
}

func (l *trimLoop) states() (acked, issued trimmed) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.acked, l.issued
}

// step does one round: six messages and an edit, and then a boundary, a Strip and a Delete. It
// reports each acknowledged call to acked.
func (l *trimLoop) step(ctx context.Context, acked chan<- struct{}) error {
	head, err := l.store.Head(ctx, l.channel)
	if err != nil {
		return err
	}
	var batch []message.Entry
	for i := range int64(6) {
		batch = append(batch, sendEntry(l.channel, head.Seq+1+i))
	}
	edit := editEntry(&batch[2], head.Seq+7, "edited")
	end, oldest := head.Seq+7, head.Seq+4
	deleted := max(1, head.Seq-2)
	for _, call := range []struct {
		do    func() error
		raise func(*trimmed)
	}{
		{func() error {
			_, err := l.store.Insert(ctx, message.Shard(l.channel, defaultShards), append(batch, edit))
			return err
		}, func(s *trimmed) { s.head = end }},
		{func() error { return l.store.Apply(ctx, &edit) }, func(*trimmed) {}},
		{func() error {
			_, err := l.store.Channels().MoveBoundary(ctx, l.channel, 0, message.Boundary{Oldest: oldest, Expired: oldest - 1}, time.Now())
			return err
		}, func(s *trimmed) { s.oldest = oldest }},
		{func() error { return l.store.Strip(ctx, l.channel, 0, oldest) }, func(s *trimmed) { s.stripped = oldest }},
		{func() error { return l.store.Delete(ctx, l.channel, 0, deleted) }, func(s *trimmed) { s.deleted = deleted }},
	} {
		l.note(&l.issued, call.raise)
		if err := call.do(); err != nil {
			return err
		}
		l.note(&l.acked, call.raise)
		acked <- struct{}{}
	}
	return nil
}

// check checks a log after a power loss, and returns how far it was written and trimmed.
func (l *trimLoop) check(t *testing.T, s *Store) trimmed {
	t.Helper()
	ctx, acked, issued := t.Context(), l.acked, l.issued
	head, err := s.Head(ctx, l.channel)
	if err != nil || head.Seq < acked.head || head.Seq > issued.head || head.Oldest < acked.oldest || head.Oldest > issued.oldest {
		t.Fatalf("head %+v, %v, want between %+v and %+v", head, err, acked, issued)
	}
	log, err := s.Entries(ctx, l.channel, message.Range{Limit: 1 << 20})
	if err != nil {
		t.Fatal(err)
	}
	if len(log) == 0 {
		if head.Seq > 0 {
			t.Fatalf("no entries, and the head is %+v", head)
		}
		return trimmed{}
	}
	if first := log[0].Seq; first < acked.deleted || first > max(1, issued.deleted) || log[len(log)-1].Seq != head.Seq {
		t.Fatalf("entries %d to %d, head %d, want deletions between %+v and %+v", first, log[len(log)-1].Seq, head.Seq, acked, issued)
	}
	pending, err := s.Pending(ctx, l.channel)
	if err != nil || len(pending) > 1 {
		t.Fatalf("pending %+v, %v", pending, err)
	}
	for i := range pending { // as the feeder does once it is there again
		if err := s.Apply(ctx, &pending[i]); err != nil {
			t.Fatal(err)
		}
	}
	// Each Strip is one batch: all of it is there, or nothing.
	stripped := acked.stripped
	for i := range log {
		e := &log[i]
		if e.Seq != log[0].Seq+int64(i) {
			t.Fatalf("entry %d is at place %d of a log that begins at %d", e.Seq, i, log[0].Seq)
		}
		if e.Kind == message.KindExpired && e.Seq >= stripped {
			stripped = issued.stripped
		}
		if gone := e.Seq < stripped; gone != (e.Kind == message.KindExpired) || gone && (e.Content != "" || e.Seq >= head.Oldest) {
			t.Fatalf("entry %+v with oldest %d, stripped between %d and %d", e, head.Oldest, acked.stripped, issued.stripped)
		}
		if _, ok, err := s.Message(ctx, l.channel, e.MsgID); err != nil || e.Kind == message.KindSend && !ok || e.Kind == message.KindExpired && e.TargetSeq == 0 && ok {
			t.Fatalf("message row of entry %d: %t, %v", e.Seq, ok, err)
		}
	}
	l.checkKeys(t, s, log)
	return trimmed{head: head.Seq, oldest: head.Oldest, stripped: stripped, deleted: log[0].Seq}
}

// checkKeys checks that the keys of existing entries are found, and those of deleted ones are not.
func (l *trimLoop) checkKeys(t *testing.T, s *Store, log []message.Entry) {
	t.Helper()
	var keys []message.ClientKey
	for seq := range log[len(log)-1].Seq {
		keys = append(keys, message.ClientKey{FromID: "ann", ClientMsgID: sendEntry(l.channel, seq+1).ClientMsgID})
	}
	found, err := s.ByClientKeys(t.Context(), l.channel, keys)
	if err != nil || len(found) != len(log) {
		t.Fatalf("%d keys are known, %v, want %d", len(found), err, len(log))
	}
	for i := range log {
		if e, ok := found[message.ClientKey{FromID: "ann", ClientMsgID: log[i].ClientMsgID}]; !ok || e.Seq != log[i].Seq {
			t.Fatalf("key %s is of entry %d (%t), want %d", log[i].ClientMsgID, e.Seq, ok, log[i].Seq)
		}
	}
}

// TestTrimsSurvivePowerLoss cuts the power at random moments while a log is written and trimmed,
// several times over the same disk. What was acknowledged is done, what was not is done or not, and
// the log's end is never lost.
func TestTrimsSurvivePowerLoss(t *testing.T) {
	t.Parallel()
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	rng := rand.New(rand.NewPCG(seed, 0))
	mem := vfs.NewCrashableMem()
	l := &trimLoop{channel: channelIn(1, 0)}
	for round := range 12 {
		s := openOn(t, mem)
		found := l.check(t, s)
		l.acked, l.issued = found, found
		if _, err := s.Channels().Ensure(t.Context(), l.channel, time.Now()); err != nil {
			t.Fatal(err)
		}
		l.store = s
		cfg := vfs.CrashCloneCfg{}
		if round%2 == 1 {
			cfg = vfs.CrashCloneCfg{UnsyncedDataPercent: rng.IntN(100), RNG: rng}
		}
		ctx, cancel := context.WithCancel(t.Context())
		acked, ended := make(chan struct{}), make(chan error, 1)
		go func() {
			for ctx.Err() == nil {
				if err := l.step(context.WithoutCancel(ctx), acked); err != nil {
					ended <- err
					return
				}
			}
			ended <- nil
		}()
		for range 1 + rng.IntN(40) {
			<-acked
		}
		known, _ := l.states()
		mem = mem.CrashClone(cfg)
		_, begun := l.states()
		cancel()
		for done := false; !done; {
			select {
			case <-acked:
			case err := <-ended:
				if err != nil {
					t.Fatal(err)
				}
				done = true
			}
		}
		closeStore(t, s)
		l.acked, l.issued = known, begun
	}
	s := openOn(t, mem)
	defer closeStore(t, s)
	l.check(t, s)
	if l.acked.deleted < 50 {
		t.Fatalf("only %+v was acknowledged", l.acked)
	}
}
