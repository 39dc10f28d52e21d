package message

import (
	"testing"

	"github.com/parleyhq/parley/server/internal/fault"
)

// A replay never returns a cached recall with the message's old text from a store that is behind.
// It fails until the store has the recall.
func TestReplayWaitsForLaggingStore(t *testing.T) {
	t.Parallel()
	b := setupRead(t)
	rs := b.sends(t, 2)
	if _, _, err := b.svc.Recall(b.ctx, RecallRequest{ChannelID: "c", MsgID: rs[0].MsgID}); err != nil {
		t.Fatal(err)
	}
	log := b.store.read("c")
	b.cache.set(testEpoch, log[1:])
	b.store.mu.Lock()
	before := log[0]
	before.Content, before.Status, before.ChangedSeq = "secret", StatusSent, before.Seq
	b.store.logs["c"][0] = before
	b.store.visible = func(e *Entry) bool { return e.Seq < 3 }
	b.store.mu.Unlock()
	b.reader.heads.mu.Lock()
	b.reader.heads.known = nil // as on another node
	b.reader.heads.mu.Unlock()
	if events, err := b.reader.Replay(b.ctx, "c", 2, 3, 10, 1<<20, true); !fault.Is(err, fault.StoreUnavailable) {
		t.Fatalf("a store that is behind: %+v, %v", events, err)
	}
	b.store.mu.Lock()
	b.store.visible, b.store.logs["c"][0] = nil, log[0]
	b.store.mu.Unlock()
	events, err := b.reader.Replay(b.ctx, "c", 2, 3, 10, 1<<20, true)
	if err != nil || len(events) != 1 || events[0].Message.Content != "" || events[0].Message.ChangedSeq != 3 {
		t.Fatalf("one that is level: %+v, %v", events, err)
	}
}
