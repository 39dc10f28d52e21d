package message

import (
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/parleyhq/parley/server/internal/fault"
)

// An open message is closed once, in one of three ways, and is edited only afterwards.
func TestOpenAndClose(t *testing.T) {
	t.Parallel()
	store := newFakeStore()
	w := startWriter(t, store, WriterConfig{})
	open := send("c", "bot", "1", "")
	open.Open = true
	m := mustAppend(t, w, open)
	if log := store.read("c"); log[0].Status != StatusOpen || log[0].ChangedSeq != 1 {
		t.Fatalf("opened: %+v", log[0])
	}
	open.MsgID = newID()
	if again := mustAppend(t, w, open); !again.Duplicate || again.MsgID != m.MsgID {
		t.Errorf("opened again: %+v", again)
	}
	open.Open = false
	if out := appendOne(t, w, open); !fault.Is(out.Err, fault.ClientMsgIDReused) {
		t.Errorf("the same message, not open: %+v", out)
	}
	refused := func(what string, want fault.Reason, d Draft) {
		t.Helper()
		if out := appendOne(t, w, d); !fault.Is(out.Err, want) || out.Seq != 0 {
			t.Errorf("%s: %+v, want %s", what, out, want)
		}
	}
	refused("an edit", fault.MessageOpen, change(KindEdit, "c", "bot", m.MsgID, "2", "x"))
	refused("another's close", fault.NotSender, change(KindComplete, "c", "ann", m.MsgID, "2", "x"))
	end := change(KindCancel, "c", "ann", m.MsgID, "3", "half of")
	end.AnySender = true
	closed := mustAppend(t, w, end)
	if log := store.read("c"); closed.Seq != 2 || log[0].Status != StatusCancelled || log[0].Content != "half of" || log[0].ChangedSeq != 2 {
		t.Fatalf("closed: %+v, %+v", closed, log[0])
	}
	if again := mustAppend(t, w, end); !again.Duplicate || again.Seq != 2 {
		t.Errorf("closed again: %+v", again)
	}
	end.Content = "half of it"
	if again := mustAppend(t, w, end); !again.Duplicate || again.Seq != 2 {
		t.Errorf("cancelled again, when more of the text was known: %+v", again)
	}
	end.Kind = KindFail
	refused("the id of another close", fault.ClientMsgIDReused, end)
	refused("a second close", fault.MessageClosed, change(KindComplete, "c", "bot", m.MsgID, "4", "all of it"))
	if edit := mustAppend(t, w, change(KindEdit, "c", "bot", m.MsgID, "5", "better")); edit.Seq != 3 {
		t.Errorf("an edit afterwards: %+v", edit)
	}
	typed := change(KindEdit, "c", "bot", m.MsgID, "5b", "x")
	typed.TargetType = "user"
	refused("an edit of another type", fault.CapabilityMissing, typed)
	plain := mustAppend(t, w, send("c", "bot", "6", "x"))
	refused("a close of what never was open", fault.MessageClosed, change(KindFail, "c", "bot", plain.MsgID, "7", ""))
	second := send("c", "bot", "8", "begin")
	second.Open = true
	gone := mustAppend(t, w, second)
	mustAppend(t, w, change(KindRecall, "c", "bot", gone.MsgID, "9", ""))
	refused("a close of what was recalled", fault.MessageRecalled, change(KindComplete, "c", "bot", gone.MsgID, "10", "x"))
	if log := store.read("c"); log[4].Status != StatusRecalled || log[4].Content != "" {
		t.Errorf("recalled: %+v", log[4])
	}
	checkDense(t, store, "c", 6)
}

// A close is repeated while the first attempt still waits for the store: the repeat is a duplicate,
// although the message is closed by then.
func TestCloseRepeatedInTheQueue(t *testing.T) {
	t.Parallel()
	for _, kind := range []Kind{KindComplete, KindCancel, KindFail} {
		store := newFakeStore()
		w := startWriter(t, store, WriterConfig{})
		open := send("c", "bot", "1", "")
		open.Open = true
		m := mustAppend(t, w, open)
		end := change(kind, "c", "bot", m.MsgID, "2", "all")
		outs := w.Append(t.Context(), []Draft{end, end})
		if outs[0].Err != nil || outs[1].Err != nil || outs[0].Seq != 2 || outs[1].Seq != 2 || outs[0].Duplicate || !outs[1].Duplicate {
			t.Errorf("kind %d: %+v", kind, outs)
		}
		checkDense(t, store, "c", 2)
	}
}

// A close is stored by another node while its repeat looks it up: the repeat is a duplicate.
func TestCloseStoredDuringTheLookup(t *testing.T) {
	t.Parallel()
	store := newFakeStore()
	w := startWriter(t, store, WriterConfig{})
	open := send("c", "bot", "1", "")
	open.Open = true
	m := mustAppend(t, w, open)
	end := change(KindComplete, "c", "bot", m.MsgID, "2", "all")
	other := startWriter(t, store, WriterConfig{})
	store.betweenReads = func() { mustAppend(t, other, end) }
	if out := appendOne(t, w, end); out.Err != nil || out.Seq != 2 || !out.Duplicate {
		t.Errorf("repeated: %+v", out)
	}
}

// An edit in the batch of the close that allows it is stored only together with the close.
func TestEditAfterCloseInOneBatch(t *testing.T) {
	t.Parallel()
	store := newFakeStore()
	w := startWriter(t, store, WriterConfig{})
	open := send("c", "bot", "1", "")
	open.Open = true
	m := mustAppend(t, w, open)
	outs := w.Append(t.Context(), []Draft{
		change(KindComplete, "c", "bot", m.MsgID, "2", "all"), change(KindEdit, "c", "bot", m.MsgID, "3", "better"),
		change(KindCancel, "c", "bot", m.MsgID, "4", "x"),
	})
	if outs[0].Err != nil || outs[1].Err != nil || outs[1].Seq != 3 || !fault.Is(outs[2].Err, fault.MessageClosed) {
		t.Errorf("close, edit and close: %+v", outs)
	}
	if log := store.read("c"); log[0].Content != "better" || log[0].Status != StatusEdited {
		t.Errorf("the message is %+v", log[0])
	}
}

// A close is not refused because of another one in its batch that is not stored.
func TestRefusedCloseWaitsForTheStoredOne(t *testing.T) {
	t.Parallel()
	store := newFakeStore()
	w := startWriter(t, store, WriterConfig{AppendTimeout: 50 * time.Millisecond})
	open := send("c", "bot", "1", "")
	open.Open = true
	m := mustAppend(t, w, open)
	store.beforeInsert = func([]Entry) error { return ErrNotStored }
	outs := w.Append(t.Context(), []Draft{
		change(KindComplete, "c", "bot", m.MsgID, "2", "all"), change(KindCancel, "c", "bot", m.MsgID, "3", "half"),
	})
	if !fault.Is(outs[0].Err, fault.StoreUnavailable) || !fault.Is(outs[1].Err, fault.BatchAborted) {
		t.Errorf("two closes, of which none is stored: %v, %v", outs[0].Err, outs[1].Err)
	}
}

// However closes of one message race, in one batch or on two writers, the log has one of them, and
// all others are told that the message is closed.
func TestClosesRace(t *testing.T) {
	t.Parallel()
	store := newFakeStore()
	ws := []*Writer{startWriter(t, store, WriterConfig{}), startWriter(t, store, WriterConfig{})}
	open := send("c", "bot", "m", "")
	open.Open = true
	m := mustAppend(t, ws[0], open)
	var wg sync.WaitGroup
	var done atomic.Int64
	for i := range 40 {
		wg.Go(func() {
			var drafts []Draft
			for k, kind := range []Kind{KindComplete, KindCancel, KindFail} {
				drafts = append(drafts, change(kind, "c", "bot", m.MsgID, fmt.Sprint(i, "-", k), fmt.Sprint(i)))
			}
			for _, out := range ws[i%2].Append(t.Context(), drafts) {
				switch {
				case out.Err == nil:
					done.Add(1)
				case !fault.Is(out.Err, fault.MessageClosed):
					t.Errorf("close: %v", out.Err)
				}
			}
		})
	}
	wg.Wait()
	if log := store.read("c"); done.Load() != 1 || len(log) != 2 || log[0].LastChange() != log[1].Kind {
		t.Errorf("%d closes are done, the log is %+v", done.Load(), log)
	}
}
