package message

import (
	"context"
	"errors"
	"maps"
	"slices"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/parleyhq/parley/server/internal/fault"
)

// pastLog answers some plain reads (Message, Pending and Entries) with an older state of the log,
// or with an error. Reads of the head are always up to date.
type pastLog struct {
	*fakeStore

	mu     sync.Mutex
	past   *fakeStore
	behind int // number of plain reads that return the older state
	err    error
}

// lag makes the next n plain reads return the log as of this call.
func (l *pastLog) lag(n int) {
	past := newFakeStore()
	l.fakeStore.mu.Lock()
	for id, log := range l.logs {
		past.logs[id] = slices.Clone(log)
		for i := range log {
			past.logs[id][i].Metadata = maps.Clone(log[i].Metadata)
		}
	}
	l.fakeStore.mu.Unlock()
	l.mu.Lock()
	defer l.mu.Unlock()
	l.past, l.behind = past, n
}

func (l *pastLog) fail(err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.err = err
}

func (l *pastLog) plain() (*fakeStore, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.behind > 0 {
		l.behind--
		return l.past, l.err
	}
	return l.fakeStore, l.err
}

func (l *pastLog) Message(ctx context.Context, channelID, msgID string) (Entry, bool, error) {
	f, err := l.plain()
	if err != nil {
		return Entry{}, false, err
	}
	return f.Message(ctx, channelID, msgID)
}

func (l *pastLog) Pending(ctx context.Context, channelIDs ...string) ([]Entry, error) {
	f, err := l.plain()
	if err != nil {
		return nil, err
	}
	return f.Pending(ctx, channelIDs...)
}

func (l *pastLog) Entries(ctx context.Context, channelID string, r Range) ([]Entry, error) {
	f, err := l.plain()
	if err != nil {
		return nil, err
	}
	return f.Entries(ctx, channelID, r)
}

// setupChange is setupRead over a pastLog. It sends one message, with metadata and a type.
func setupChange(t *testing.T) (b *readBundle, log *pastLog, sent Receipt) {
	t.Helper()
	b = setupRead(t)
	log = &pastLog{fakeStore: b.store}
	b.reader.log, b.reader.heads.log = log, log
	sent, err := b.svc.Send(b.ctx, SendRequest{
		ChannelID: "c", Content: "old", MsgType: "note", Metadata: map[string]string{"k": "v"}, ClientMsgID: "sent",
	})
	if err != nil {
		t.Fatal(err)
	}
	return b, log, sent
}

// message returns the message that setupChange sent, as it is after a change.
func (b *readBundle) message(r Receipt, status Status, content string, changed int64) Message {
	m := Message{
		MsgID: r.MsgID, ChannelID: "c", Seq: 1, Count: 1, FromID: "alice", MsgType: "note", Content: content,
		Metadata: map[string]string{"k": "v"}, ClientMsgID: "sent", MsgTime: r.MsgTime, Status: status, ChangedSeq: changed,
	}
	if status == StatusRecalled {
		m.Metadata = nil
	}
	return m
}

// Edit and Recall return the message as it is after the change, even if plain reads do not show the
// change yet.
func TestEditAndRecallReturnMessage(t *testing.T) {
	t.Parallel()
	for _, behind := range []int{0, 1, 2} { // reads: one finds the message, the other its changes
		b, log, sent := setupChange(t)
		log.lag(behind)
		r, m, err := b.svc.Edit(b.ctx, EditRequest{ChannelID: "c", MsgID: sent.MsgID, Content: "new", ClientMsgID: "e"})
		if err != nil || r.Seq != 2 || r.Duplicate || r.Epoch != testEpoch || r.MsgTime.IsZero() {
			t.Fatalf("%d reads behind: edit: %+v, %v", behind, r, err)
		}
		if diff := cmp.Diff(b.message(sent, StatusEdited, "new", 2), m); diff != "" {
			t.Errorf("%d reads behind: edited: %s", behind, diff)
		}
		log.lag(behind)
		r, m, err = b.svc.Recall(b.ctx, RecallRequest{ChannelID: "c", MsgID: sent.MsgID, ClientMsgID: "r"})
		if err != nil || r.Seq != 3 || r.Duplicate || r.Epoch != testEpoch || r.MsgTime.IsZero() {
			t.Fatalf("%d reads behind: recall: %+v, %v", behind, r, err)
		}
		if diff := cmp.Diff(b.message(sent, StatusRecalled, "", 3), m); diff != "" {
			t.Errorf("%d reads behind: recalled: %s", behind, diff)
		}
	}
}

// Edit returns the edited message even if the first read after the edit does not find the message.
func TestEditBeforeMessageIsVisible(t *testing.T) {
	t.Parallel()
	b, log, sent := setupChange(t)
	log.lag(1)
	log.past.logs = map[string][]Entry{}
	_, m, err := b.svc.Edit(b.ctx, EditRequest{ChannelID: "c", MsgID: sent.MsgID, Content: "new"})
	if diff := cmp.Diff(b.message(sent, StatusEdited, "new", 2), m); err != nil || diff != "" {
		t.Errorf("%v %s", err, diff)
	}
}

// A repeat returns the seq of its own entry and the message in its current state, with all later
// changes.
func TestRepeatedChangeReturnsCurrentState(t *testing.T) {
	t.Parallel()
	b, log, sent := setupChange(t)
	edit := func(id, content string) (Receipt, Message) {
		t.Helper()
		r, m, err := b.svc.Edit(b.ctx, EditRequest{ChannelID: "c", MsgID: sent.MsgID, Content: content, ClientMsgID: id})
		if err != nil {
			t.Fatalf("edit %s: %v", id, err)
		}
		return r, m
	}
	first, _ := edit("one", "first")
	edit("two", "second")
	again := first
	again.Duplicate = true
	for _, behind := range []int{0, 2} {
		log.lag(behind) // the current state: a repeat appends nothing
		r, m := edit("one", "first")
		if diff := cmp.Diff(again, r) + cmp.Diff(b.message(sent, StatusEdited, "second", 3), m); diff != "" {
			t.Errorf("an edit again after another: %s", diff)
		}
	}

	recall := func(id string) (Receipt, Message) {
		t.Helper()
		r, m, err := b.svc.Recall(b.ctx, RecallRequest{ChannelID: "c", MsgID: sent.MsgID, ClientMsgID: id})
		if err != nil {
			t.Fatalf("recall %s: %v", id, err)
		}
		return r, m
	}
	log.lag(0)
	taken, tombstone := recall("three")
	if diff := cmp.Diff(b.message(sent, StatusRecalled, "", 4), tombstone); diff != "" || taken.Duplicate || taken.Seq != 4 {
		t.Fatalf("recall: %+v %s", taken, diff)
	}
	if r, m := edit("one", "first"); !cmp.Equal(again, r) || !cmp.Equal(tombstone, m) {
		t.Errorf("an edit again after the recall: %+v, %+v", r, m)
	}
	for _, id := range []string{"three", "another"} {
		want := taken
		want.ClientMsgID, want.Duplicate = id, true
		if r, m := recall(id); !cmp.Equal(want, r) || !cmp.Equal(tombstone, m) {
			t.Errorf("recall %s again: %s %s", id, cmp.Diff(want, r), cmp.Diff(tombstone, m))
		}
	}
	if log := b.store.read("c"); len(log) != 4 {
		t.Errorf("%d entries: a repeat appended one", len(log))
	}
}

// A recall of a message that another call recalled a moment ago returns the time of that recall,
// even if a plain read does not show it yet.
func TestRecallOfRecalledMessage(t *testing.T) {
	t.Parallel()
	b, log, sent := setupChange(t)
	log.lag(0)
	past := log.past
	first, tombstone, err := b.svc.Recall(b.ctx, RecallRequest{ChannelID: "c", MsgID: sent.MsgID})
	if err != nil {
		t.Fatal(err)
	}
	log.mu.Lock()
	log.past, log.behind = past, 2
	log.mu.Unlock()
	r, m, err := b.svc.Recall(b.ctx, RecallRequest{ChannelID: "c", MsgID: sent.MsgID})
	if err != nil || !r.Duplicate || r.Seq != first.Seq || !r.MsgTime.Equal(first.MsgTime) || r.MsgTime.IsZero() || !cmp.Equal(tombstone, m) {
		t.Errorf("%+v, %+v, %v; the first was %+v", r, m, err, first)
	}
}

// If the store fails after it stored an edit or a recall, the call fails with OUTCOME_UNKNOWN. A
// repeat of the call returns the result.
func TestReadFailureAfterChange(t *testing.T) {
	t.Parallel()
	for name, outage := range map[string]func(l *pastLog){
		"the store does not answer": func(l *pastLog) { l.fail(errors.New("down")) },
		"the store stays behind":    func(l *pastLog) { l.lag(1 << 30) },
		"the caller's deadline":     func(l *pastLog) { l.fail(context.DeadlineExceeded) },
		"the message is not shown":  func(l *pastLog) { l.lag(1 << 30); l.past.logs = map[string][]Entry{} },
	} {
		b, log, sent := setupChange(t)
		edit := func() (Receipt, Message, error) {
			return b.svc.Edit(b.ctx, EditRequest{ChannelID: "c", MsgID: sent.MsgID, Content: "new", ClientMsgID: "e"})
		}
		recall := func() (Receipt, Message, error) {
			return b.svc.Recall(b.ctx, RecallRequest{ChannelID: "c", MsgID: sent.MsgID, ClientMsgID: "r"})
		}
		for i, call := range []func() (Receipt, Message, error){edit, recall} {
			outage(log)
			seq := int64(2 + i)
			_, m, err := call()
			f, ok := fault.As(err)
			if !ok || f.Kind != fault.Unavailable || f.Reason != fault.OutcomeUnknown || !f.Retryable() || !cmp.Equal(m, Message{}) {
				t.Fatalf("%s: %+v, %v", name, m, err)
			}
			log.fail(nil)
			log.lag(0)
			r, m, err := call()
			if err != nil || !r.Duplicate || r.Seq != seq || m.ChangedSeq != seq {
				t.Errorf("%s, repeated: %+v, %+v, %v", name, r, m, err)
			}
		}
		if n := len(b.store.read("c")); n != 3 {
			t.Errorf("%s: %d entries", name, n)
		}
	}
}
