package message

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
)

// All reads show the edits and recalls in the log, even those that were never applied to their
// targets because the writer died.
func TestReadsIncludeUnappliedChanges(t *testing.T) {
	t.Parallel()
	b := setupRead(t)
	rs := b.sends(t, 2)
	change := func(seq, target int64, kind Kind, content string) Entry {
		return Entry{Kind: kind, TargetSeq: target, Message: Message{
			MsgID: rs[target-1].MsgID, ChannelID: "c", Seq: seq, Count: 2, FromID: "alice", Content: content,
			ClientMsgID: fmt.Sprint("change", seq), MsgTime: rs[1].MsgTime, ChangedSeq: seq,
		}}
	}
	changes := []Entry{change(3, 1, KindEdit, "new"), change(4, 2, KindRecall, "")}
	if n, err := b.store.Insert(t.Context(), 0, changes); n != 2 || err != nil {
		t.Fatal(n, err)
	}
	b.reader.ObserveSeq("c", 4)
	texts := func(ms ...Message) string {
		var s []string
		for i := range ms {
			s = append(s, fmt.Sprintf("%d:%s@%d", ms[i].Seq, ms[i].Content, ms[i].ChangedSeq))
		}
		return fmt.Sprint(s)
	}
	const want = "[1:new@3 2:@4]"
	// A page that ends before the changes, and each message on its own, by id and by seq.
	page := b.list(t, ListQuery{After: at(0), PageSize: 2, MinSeq: 4})
	if got := texts(page.Messages...); got != want {
		t.Errorf("listed %s, want %s", got, want)
	}
	var single, placed []Message
	for i := range rs {
		m, err := b.svc.Get(b.ctx, "c", rs[i].MsgID)
		if err != nil {
			t.Fatal(err)
		}
		single = append(single, m)
		found, err := b.reader.MessagesAt(b.ctx, []Place{{"c", rs[i].Seq}})
		if err != nil || len(found) != 1 {
			t.Fatal(found, err)
		}
		placed = append(placed, found[Place{"c", rs[i].Seq}])
	}
	if got := texts(single...); got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	if got := texts(placed...); got != want {
		t.Errorf("by seq %s, want %s", got, want)
	}
	// Replays that end before the changes, and of the changes alone.
	for _, after := range []int64{0, 2} {
		events, err := b.reader.Replay(b.ctx, "c", after, 4, 2, 1<<20, true)
		if err != nil || len(events) != 2 {
			t.Fatal(len(events), err)
		}
		if got := texts(events[0].Message, events[1].Message); got != want {
			t.Errorf("replayed after %d: %s, want %s", after, got, want)
		}
	}
}

// applyingLog applies all pending changes right after the first read of Entries: what the read
// returns is without them, and they are pending no more.
type applyingLog struct {
	*fakeStore

	once sync.Once
}

func (l *applyingLog) Entries(ctx context.Context, channelID string, r Range) ([]Entry, error) {
	entries, err := l.fakeStore.Entries(ctx, channelID, r)
	if err == nil && r.MessagesOnly {
		l.once.Do(func() {
			var pending []Entry
			if pending, err = l.Pending(ctx, channelID); err == nil && len(pending) > 0 {
				err = l.Apply(ctx, &pending[0])
			}
		})
	}
	return entries, err
}

// TestPendingChangesAreReadFirst checks that a change that is applied between the reads of a page
// or of a replay is shown.
func TestPendingChangesAreReadFirst(t *testing.T) {
	t.Parallel()
	for name, read := range map[string]func(b *readBundle) (Message, error){
		"list": func(b *readBundle) (Message, error) {
			page, err := b.svc.List(b.ctx, ListQuery{ChannelID: "c", MinSeq: 2})
			if err != nil {
				return Message{}, err
			}
			return page.Messages[0], nil
		},
		"replay": func(b *readBundle) (Message, error) {
			events, err := b.reader.Replay(b.ctx, "c", 0, 2, 10, 0, false)
			if err != nil {
				return Message{}, err
			}
			return events[0].Message, nil
		},
	} {
		b := setupRead(t)
		sent := b.sends(t, 1)[0]
		edit := Entry{Kind: KindEdit, TargetSeq: 1, Message: Message{
			MsgID: sent.MsgID, ChannelID: "c", Seq: 2, Count: 1, FromID: "alice", Content: "new", ClientMsgID: "edit", MsgTime: sent.MsgTime, ChangedSeq: 2,
		}}
		if n, err := b.store.Insert(t.Context(), 0, []Entry{edit}); n != 1 || err != nil {
			t.Fatal(n, err)
		}
		b.reader.ObserveSeq("c", 2)
		log := &applyingLog{fakeStore: b.store}
		b.reader.log, b.reader.heads.log = log, log
		if m, err := read(b); err != nil || m.Content != "new" {
			t.Errorf("%s: %q, %v", name, m.Content, err)
		}
	}
}

// TestPendingRecallEndsNoListing checks that a page that the store has ended at its limit of bytes
// has a next one, although a recall that is not applied yet makes the page smaller than the limit.
func TestPendingRecallEndsNoListing(t *testing.T) {
	t.Parallel()
	b := setupRead(t)
	var last Receipt
	for range 20 {
		var err error
		if last, err = b.svc.Send(b.ctx, SendRequest{ChannelID: "c", Content: strings.Repeat("x", 64<<10)}); err != nil {
			t.Fatal(err)
		}
	}
	recall := Entry{Kind: KindRecall, TargetSeq: last.Seq, Message: Message{
		MsgID: last.MsgID, ChannelID: "c", Seq: 21, Count: 20, FromID: "alice", ClientMsgID: "recall", MsgTime: last.MsgTime, ChangedSeq: 21,
	}}
	if n, err := b.store.Insert(t.Context(), 0, []Entry{recall}); n != 1 || err != nil {
		t.Fatal(n, err)
	}
	b.reader.ObserveSeq("c", 21)
	for name, q := range map[string]ListQuery{"newest": {}, "oldest": {After: at(0)}} {
		q.PageSize, q.MinSeq = 100, 21
		n := 0
		for first := true; first || q.PageToken != ""; first = false {
			page := b.list(t, q)
			n, q.PageToken = n+len(page.Messages), page.NextPageToken
		}
		if n != 20 {
			t.Errorf("%s: listed %d messages of 20", name, n)
		}
	}
}
