package message

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/parleyhq/parley/server/internal/fault"
)

// expired returns a bundle with ten messages, of which the first three were edited (entries 11 to
// 13) and whose log begins at seq 5. The expired entries are as they were if strip is 0.
func expired(t *testing.T, strip, keep int64) (*readBundle, []Receipt) {
	t.Helper()
	b := setupRead(t)
	rs := b.sends(t, 10)
	for i := range 3 {
		if _, _, err := b.svc.Edit(b.ctx, EditRequest{ChannelID: "c", MsgID: rs[i].MsgID, Content: "new", ClientMsgID: fmt.Sprint("e", i)}); err != nil {
			t.Fatal(err)
		}
	}
	b.expire(t, 5, strip, keep)
	return b, rs
}

// expire moves the boundary of the log, and makes the reader notice.
func (b *readBundle) expire(t *testing.T, oldest, strip, keep int64) {
	t.Helper()
	b.store.expire("c", oldest, strip, keep)
	if _, err := b.reader.State(b.ctx, "c"); err != nil {
		t.Fatal(err)
	}
}

// stages are the stages of trimming: the boundary was moved, and the entries before were stripped,
// and deleted.
var stages = map[string][2]int64{"moved": {0, 0}, "stripped": {5, 0}, "deleted": {5, 4}}

func TestListsBeginAtTheBoundary(t *testing.T) {
	t.Parallel()
	for name, stage := range stages {
		for _, cached := range []bool{false, true} {
			b, _ := expired(t, stage[0], stage[1])
			if cached {
				b.cache.set(testEpoch, slices.DeleteFunc(b.store.read("c"), func(e Entry) bool { return e.Kind == KindExpired }))
			}
			for _, tc := range []struct {
				q    ListQuery
				want []int64
			}{
				{ListQuery{After: at(0)}, []int64{5, 6, 7, 8, 9, 10}},
				{ListQuery{After: at(4)}, []int64{5, 6, 7, 8, 9, 10}},
				{ListQuery{After: at(6)}, []int64{7, 8, 9, 10}},
				{ListQuery{}, []int64{10, 9, 8, 7, 6, 5}},
				{ListQuery{PageSize: 6}, []int64{10, 9, 8, 7, 6, 5}},
				{ListQuery{Before: at(7)}, []int64{6, 5}},
				{ListQuery{Before: at(5)}, nil},
				{ListQuery{Before: at(3)}, nil},
			} {
				page := b.list(t, tc.q)
				if !slices.Equal(seqs(page), tc.want) || page.NextPageToken != "" || page.Oldest != 5 || page.Head != 13 {
					t.Errorf("%s, %v: list %+v: %v, %+v", name, cached, tc.q, seqs(page), page)
				}
			}
			for _, after := range []int64{1, 3} {
				_, err := b.svc.List(b.ctx, ListQuery{ChannelID: "c", After: at(after)})
				if f, ok := fault.As(err); !ok || f.Kind != fault.OutOfRange || f.Reason != fault.HistoryGone || f.Field != "after_seq" || f.Limit != 5 {
					t.Errorf("%s, %v: after %d: %v", name, cached, after, err)
				}
			}
		}
	}
}

// A page that ends before the boundary moved over its end is continued with HISTORY_GONE upwards,
// and ends downwards.
func TestPageTokensBelowTheBoundary(t *testing.T) {
	t.Parallel()
	b := setupRead(t)
	b.sends(t, 10)
	up, down := ListQuery{After: at(0), PageSize: 2}, ListQuery{PageSize: 2}
	up.PageToken, down.PageToken = b.list(t, up).NextPageToken, b.list(t, down).NextPageToken
	b.expire(t, 10, 10, 9)
	_, err := b.svc.List(b.ctx, ListQuery{ChannelID: "c", After: up.After, PageSize: 2, PageToken: up.PageToken})
	if f, ok := fault.As(err); !ok || f.Reason != fault.HistoryGone || f.Field != "page_token" || f.Limit != 10 {
		t.Errorf("upwards: %v", err)
	}
	if page := b.list(t, down); len(page.Messages) > 0 || page.NextPageToken != "" {
		t.Errorf("downwards: %+v", page)
	}
}

func TestWholeLogExpired(t *testing.T) {
	t.Parallel()
	b := setupRead(t)
	b.sends(t, 4)
	b.expire(t, 5, 5, 4)
	st, err := b.reader.State(b.ctx, "c")
	if want := (State{Epoch: testEpoch, Oldest: 5, Head: 4, Count: 4, Expired: 4}); err != nil || st != want {
		t.Errorf("state %+v, %v", st, err)
	}
	for _, q := range []ListQuery{{}, {After: at(0)}, {After: at(4)}} {
		if page := b.list(t, q); len(page.Messages) > 0 || page.Oldest != 5 || page.Head != 4 {
			t.Errorf("list %+v: %+v", q, page)
		}
	}
	r, err := b.svc.Send(b.ctx, SendRequest{ChannelID: "c", Content: "next"})
	if err != nil || r.Seq != 5 || r.Count != 5 {
		t.Errorf("the next message: %+v, %v", r, err)
	}
	if page := b.list(t, ListQuery{}); !slices.Equal(seqs(page), []int64{5}) {
		t.Errorf("list: %+v", page)
	}
}

func TestReplayBegins(t *testing.T) {
	t.Parallel()
	for name, stage := range stages {
		b, _ := expired(t, stage[0], stage[1])
		for _, after := range []int64{0, 3} {
			if events, err := b.reader.Replay(b.ctx, "c", after, 13, 100, 0, false); len(events) > 0 || err != nil {
				t.Errorf("%s: after %d: %+v, %v", name, after, events, err)
			}
		}
		events, err := b.reader.Replay(b.ctx, "c", 4, 13, 100, 0, false)
		if err != nil || len(events) != 7 {
			t.Fatalf("%s: %+v, %v", name, events, err)
		}
		for i, e := range events[:6] {
			if want := int64(5 + i); e.Seq != want || e.From() != want || e.Kind != KindSend || e.Passed {
				t.Errorf("%s: %+v", name, e)
			}
		}
		// The edits of the expired messages are passed over.
		if e := events[6]; !e.Passed || e.From() != 11 || e.Seq != 13 || e.Message.Content != "" {
			t.Errorf("%s: %+v", name, e)
		}
	}
}

// A pending edit of an expired message is passed over as well.
func TestReplayOfAPendingEdit(t *testing.T) {
	t.Parallel()
	b, rs := expired(t, 5, 4)
	b.store.mu.Lock()
	last := &b.store.logs["c"][len(b.store.logs["c"])-1]
	last.Pending, last.Content = true, "secret"
	b.store.mu.Unlock()
	events, err := b.reader.Replay(b.ctx, "c", 9, 13, 100, 0, false)
	if err != nil || len(events) != 2 || events[0].Message.MsgID != rs[9].MsgID || !events[1].Passed || events[1].Seq != 13 {
		t.Errorf("%+v, %v", events, err)
	}
}

// The answer to an edit does not read what is pending in the channel, which may be much. The answer
// to its repeat does: a reader may have been shown a later change that is pending.
func TestAnswerOfAnEditReadsNoPendingChanges(t *testing.T) {
	t.Parallel()
	b := setupRead(t)
	sent := b.sends(t, 1)[0]
	edit := EditRequest{ChannelID: "c", MsgID: sent.MsgID, Content: "new", ClientMsgID: "e"}
	for _, want := range []int{0, 1} {
		before := b.store.pendings
		_, m, err := b.svc.Edit(b.ctx, edit)
		if err != nil || m.Content != "new" || m.ChangedSeq != 2 {
			t.Fatalf("edit: %+v, %v", m, err)
		}
		if n := b.store.pendings - before; n != want {
			t.Errorf("it read pending changes %d times, want %d", n, want)
		}
	}
}

func TestExpiredMessagesAreNotFound(t *testing.T) {
	t.Parallel()
	for name, stage := range stages {
		b, rs := expired(t, stage[0], stage[1])
		notFound := func(what string, err error) {
			t.Helper()
			if f, ok := fault.As(err); !ok || f.Kind != fault.NotFound || f.Reason != fault.MessageNotFound {
				t.Errorf("%s: %s: %v", name, what, err)
			}
		}
		_, err := b.svc.Get(b.ctx, "c", rs[1].MsgID)
		notFound("get", err)
		_, _, err = b.svc.Edit(b.ctx, EditRequest{ChannelID: "c", MsgID: rs[1].MsgID, Content: "more"})
		notFound("edit", err)
		_, _, err = b.svc.Recall(b.ctx, RecallRequest{ChannelID: "c", MsgID: rs[1].MsgID})
		notFound("recall", err)
		// A repeat of a change that was stored has its result, without the message.
		r, m, err := b.svc.Edit(b.ctx, EditRequest{ChannelID: "c", MsgID: rs[0].MsgID, Content: "new", ClientMsgID: "e0"})
		if err != nil || !r.Duplicate || r.Seq != 11 || m.MsgID != "" {
			t.Errorf("%s: repeated edit: %+v, %+v, %v", name, r, m, err)
		}
		if m, err := b.svc.Get(b.ctx, "c", rs[4].MsgID); err != nil || m.Seq != 5 {
			t.Errorf("%s: the oldest message: %+v, %v", name, m, err)
		}
		if n := len(b.store.read("c")); n != 13-int(max(0, stage[1]-1)) {
			t.Errorf("%s: %d entries", name, n)
		}
	}
}

// A repeat of a send whose entry was stripped has the first result; once it is deleted, it is a new
// message.
func TestRepeatOfAnExpiredSend(t *testing.T) {
	t.Parallel()
	b := setupRead(t)
	send := func(content string) (Receipt, error) {
		return b.svc.Send(b.ctx, SendRequest{ChannelID: "c", Content: content, ClientMsgID: "key"})
	}
	first, err := send("hello")
	if err != nil {
		t.Fatal(err)
	}
	b.sends(t, 5)
	b.expire(t, 4, 4, 0)
	first.Duplicate = true
	if r, err := send("hello"); err != nil || r != first {
		t.Errorf("a repeat: %+v, %v, want %+v", r, err, first)
	}
	b.expire(t, 4, 4, 3)
	if r, err := send("hello"); err != nil || r.Duplicate || r.Seq != 7 {
		t.Errorf("after the window: %+v, %v", r, err)
	}
}

// A node that has not written to a channel for long does not rely on the end of the log that it
// remembers: what another node has appended since may be deleted, and its seqs may be free.
func TestOldHeadsAreReadAgain(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := setupRead(t)
		b.sends(t, 2)
		other := startWriter(t, b.store, WriterConfig{})
		for i := range 10 {
			out := other.Append(b.ctx, []Draft{{Kind: KindSend, ChannelID: "c", MsgID: fmt.Sprint("o", i), FromID: "bob", ClientMsgID: fmt.Sprint("o", i)}})
			if out[0].Err != nil {
				t.Fatal(out[0].Err)
			}
		}
		<-time.After(MinIdempotencyWindow) // of the bubble's clock
		b.store.expire("c", 13, 13, 12)
		if r := b.sends(t, 1)[0]; r.Seq != 13 || r.Count != 13 {
			t.Errorf("the next message has seq %d", r.Seq)
		}
	})
}

// slowLog is a store whose reads of entries take longer than a read of messages may, as if the
// process had been suspended.
type slowLog struct{ *fakeStore }

func (l slowLog) Entries(ctx context.Context, channelID string, r Range) ([]Entry, error) {
	<-time.After(readWithin + time.Second)
	return l.fakeStore.Entries(ctx, channelID, r)
}

// TestSlowReadsFail checks that a read fails if it took so long that entries may have been removed
// under it.
func TestSlowReadsFail(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := setupRead(t)
		b.sends(t, 3)
		b.reader.cfg.StoreTimeout = time.Minute
		b.reader.log = slowLog{b.store}
		if _, err := b.svc.List(b.ctx, ListQuery{ChannelID: "c"}); !errors.Is(err, errTooSlow) {
			t.Errorf("list: %v", err)
		}
		if events, err := b.reader.Replay(b.ctx, "c", 0, 3, 10, 0, false); !errors.Is(err, errTooSlow) {
			t.Errorf("replay: %d events, %v", len(events), err)
		}
	})
}

// A repeat whose insert conflicts with an expired entry, which is deleted before it can be read, is
// a new message. It holds up no other one.
func TestConflictWithADeletedEntry(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := setupRead(t)
		send := func(key string) Outcome {
			return b.writer.Append(b.ctx, []Draft{{Kind: KindSend, ChannelID: "c", MsgID: newID(), FromID: "ann", ClientMsgID: key}})[0]
		}
		for i := range 5 {
			if out := send(fmt.Sprint("k", i)); out.Err != nil {
				t.Fatal(out.Err)
			}
		}
		b.store.expire("c", 4, 4, 0)
		first := true
		b.store.beforeInsert = func(entries []Entry) error {
			if !first {
				return nil
			}
			first = false
			_, err := b.store.insert(entries) // conflicts with entry 1
			b.store.expire("c", 4, 4, 3)
			return err
		}
		if out := send("k0"); out.Err != nil || out.Seq != 6 || out.Duplicate {
			t.Errorf("the repeat: %+v", out)
		}
		if out := send("new"); out.Err != nil || out.Seq != 7 {
			t.Errorf("the next message: %+v", out)
		}
	})
}

// An entry's Bytes add up what every entry had when it was appended.
func TestEntryBytes(t *testing.T) {
	t.Parallel()
	b, _ := expired(t, 0, 0)
	sum := int64(0)
	for _, e := range b.store.read("c") {
		size := len("m0")
		if e.Kind == KindEdit {
			size = len("new")
		}
		if sum += int64(size) + entryOverhead; e.Bytes != sum {
			t.Fatalf("entry %d: %d bytes, want %d", e.Seq, e.Bytes, sum)
		}
	}
}

// The event of a change of an expired message has its place in the log and no content.
func TestExpiredEventSurvivesJSON(t *testing.T) {
	t.Parallel()
	want := Event{
		Kind: KindExpired, Passed: true, Epoch: "e", Seq: 7, Count: 3, Time: time.UnixMilli(5).UTC(), Message: Message{ChannelID: "c"},
	}
	data, err := json.Marshal(want)
	if err != nil {
		t.Fatal(err)
	}
	var got Event
	if err := json.Unmarshal(data, &got); err != nil {
		t.Fatal(err)
	}
	if fmt.Sprintf("%+v", got) != fmt.Sprintf("%+v", want) {
		t.Errorf("got %+v, want %+v, from %s", got, want, data)
	}
}
