package message

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

// countingLog counts the entries that reads return and their bytes.
type countingLog struct {
	*fakeStore
	calls, entries, bytes int
}

func (l *countingLog) count(entries []Entry) []Entry {
	l.calls++
	l.entries += len(entries)
	for i := range entries {
		l.bytes += entries[i].Size()
	}
	return entries
}

func (l *countingLog) Entries(ctx context.Context, channelID string, r Range) ([]Entry, error) {
	entries, err := l.fakeStore.Entries(ctx, channelID, r)
	return l.count(entries), err
}

func (l *countingLog) Changed(ctx context.Context, channelID string, after, before int64, limit, maxBytes int) ([]Entry, error) {
	entries, err := l.fakeStore.Changed(ctx, channelID, after, before, limit, maxBytes)
	return l.count(entries), err
}

func (l *countingLog) Pending(ctx context.Context, channelIDs ...string) ([]Entry, error) {
	entries, err := l.fakeStore.Pending(ctx, channelIDs...)
	return l.count(entries), err
}

func (l *countingLog) Messages(ctx context.Context, places []Place) ([]Entry, error) {
	entries, err := l.fakeStore.Messages(ctx, places)
	return l.count(entries), err
}

// TestCostOfManyEdits checks that reads of a message cost the same after one and after a thousand
// edits of it, applied or not: no read returns an edit that a later one replaced.
func TestCostOfManyEdits(t *testing.T) {
	t.Parallel()
	b := setupRead(t)
	sent := b.sends(t, 2)
	text := strings.Repeat("x", 1000)
	for i := range 1000 {
		edit := EditRequest{ChannelID: "c", MsgID: sent[0].MsgID, Content: fmt.Sprint(i, text)}
		if _, _, err := b.svc.Edit(b.ctx, edit); err != nil {
			t.Fatal(err)
		}
	}
	log := &countingLog{fakeStore: b.store}
	reader := NewReader(log, nil, testEpoch, ReaderConfig{})
	svc := NewService(b.writer, reader, Identity{}, openAccess{})
	const head = 1002
	for name, read := range map[string]func() error{
		"a page": func() error {
			p, err := svc.List(b.ctx, ListQuery{ChannelID: "c", PageSize: 1, After: at(0)})
			if err == nil && (len(p.Messages) != 1 || p.Messages[0].Content != "999"+text || p.NextPageToken == "") {
				err = fmt.Errorf("listed %d messages, next %q", len(p.Messages), p.NextPageToken)
			}
			return err
		},
		"the newest page": func() error {
			p, err := svc.List(b.ctx, ListQuery{ChannelID: "c"})
			if err == nil && (len(p.Messages) != 2 || p.NextPageToken != "") {
				err = fmt.Errorf("listed %d messages, next %q", len(p.Messages), p.NextPageToken)
			}
			return err
		},
		"a message": func() error { _, err := svc.Get(b.ctx, "c", sent[0].MsgID); return err },
		"a replay": func() error {
			events, err := reader.Replay(b.ctx, "c", 0, head, 100, 1<<20, false)
			if got := story(events); err == nil && got != "send 1..1 of 1@1002, send 2..2 of 2@2, edit 3..1002 of 1@1002" {
				err = fmt.Errorf("replayed %s", got)
			}
			return err
		},
		"a replay that ends before the last edit": func() error {
			events, err := reader.Replay(b.ctx, "c", 2, head-1, 100, 1<<20, false)
			if got := story(events); err == nil && got != "passed 3..1001" {
				err = fmt.Errorf("replayed %s", got)
			}
			return err
		},
	} {
		log.calls, log.entries, log.bytes = 0, 0, 0
		if err := read(); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if log.calls > 4 || log.entries > 4 || log.bytes > 4*len(text) {
			t.Errorf("%s: %d reads returned %d entries of %d bytes", name, log.calls, log.entries, log.bytes)
		}
	}
}

// story describes events: kind, covered entries, and message with its last change.
func story(events []Event) string {
	var s []string
	for i := range events {
		e := &events[i]
		if e.Passed {
			s = append(s, fmt.Sprintf("passed %d..%d", e.From(), e.Seq))
			continue
		}
		kind := [...]string{"send", "edit", "recall"}[e.Kind]
		s = append(s, fmt.Sprintf("%s %d..%d of %d@%d", kind, e.From(), e.Seq, e.Message.Seq, e.Message.ChangedSeq))
	}
	return strings.Join(s, ", ")
}

// TestReplayOfRandomLogs compares replays of random logs, in pages of random size, from the store
// and from the cache, with the log. The events cover all entries in order, each entry that no later
// one replaced has its event, and each message is in its current state.
func TestReplayOfRandomLogs(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		store := newFakeStore()
		log := randomLog(t)
		if n, err := store.Insert(t.Context(), 0, log); err != nil || n != len(log) {
			t.Fatal(n, err)
		}
		for i := range log {
			if log[i].Kind != KindSend && rapid.Bool().Draw(t, "apply") {
				if err := store.Apply(t.Context(), &log[i]); err != nil {
					t.Fatal(err)
				}
			}
		}
		now := slices.Clone(log)
		Fold(now, log)
		var cache Cache
		if rapid.Bool().Draw(t, "cached") {
			c := &fakeCache{}
			first := rapid.IntRange(0, len(log)-1).Draw(t, "oldest cached")
			c.set(testEpoch, now[first:])
			cache = c
		}
		r := NewReader(store, cache, testEpoch, ReaderConfig{})
		goal := rapid.Int64Range(1, int64(len(log))).Draw(t, "goal")
		at := rapid.Int64Range(0, goal).Draw(t, "after")
		for at < goal {
			limit, maxBytes := rapid.IntRange(1, 10).Draw(t, "limit"), rapid.IntRange(0, 60).Draw(t, "max bytes")
			events, err := r.Replay(t.Context(), "c", at, goal, limit, maxBytes, false)
			if err != nil {
				t.Fatal(err)
			}
			if len(events) == 0 || len(events) > limit+1 {
				t.Fatalf("%d events after %d", len(events), at)
			}
			for i := range events {
				at = checkEvent(t, now, &events[i], at)
			}
			if at > goal {
				t.Fatalf("replayed up to %d, want %d", at, goal)
			}
		}
	})
}

// checkEvent checks one event of a replay at position at and returns the next position. log is the
// whole log with all changes applied.
func checkEvent(t *rapid.T, log []Entry, e *Event, at int64) int64 {
	t.Helper()
	if e.From() != at+1 || e.Seq < e.From() {
		t.Fatalf("%s after %d", story([]Event{*e}), at)
	}
	replaced := func(seq int64) bool {
		return log[seq-1].Kind != KindSend && log[log[seq-1].TargetSeq-1].ChangedSeq > seq
	}
	for seq := e.From(); seq < e.Seq || seq == e.Seq && e.Passed; seq++ {
		if !replaced(seq) {
			t.Fatalf("%s covers %d, which is not replaced", story([]Event{*e}), seq)
		}
	}
	if e.Passed {
		return e.Seq
	}
	want := &log[e.Seq-1]
	message := want
	if want.Kind != KindSend {
		message = &log[want.TargetSeq-1]
	}
	if e.Kind != want.Kind || e.Message.Seq != message.Seq || e.Message.ChangedSeq != message.ChangedSeq ||
		e.Message.Content != message.Content || e.Kind != KindSend && message.ChangedSeq != e.Seq {
		t.Fatalf("%s; the log has %+v", story([]Event{*e}), *want)
	}
	return e.Seq
}

// randomLog draws a log of the channel "c".
func randomLog(t *rapid.T) []Entry {
	var log []Entry
	var count int64
	length := rapid.Int64Range(1, 40).Draw(t, "length")
	for seq := int64(1); seq <= length; seq++ {
		e := Entry{Message: Message{
			ChannelID: "c", Seq: seq, ChangedSeq: seq, FromID: "alice", ClientMsgID: fmt.Sprint(seq),
			Content: strings.Repeat("x", rapid.IntRange(0, 30).Draw(t, "size")) + fmt.Sprint(seq),
		}}
		var open []int64
		for i := range log {
			recalled := slices.ContainsFunc(log, func(c Entry) bool { return c.Kind == KindRecall && c.TargetSeq == log[i].Seq })
			if log[i].Kind == KindSend && !recalled {
				open = append(open, log[i].Seq)
			}
		}
		e.Kind = rapid.SampledFrom([]Kind{KindSend, KindEdit, KindEdit, KindRecall, KindComplete, KindCancel, KindFail}).Draw(t, "kind")
		if len(open) == 0 || e.Kind == KindSend {
			e.Kind = KindSend
			count++
			e.MsgID = fmt.Sprint("m", seq)
			if rapid.Bool().Draw(t, "open") {
				e.Status = StatusOpen
			}
		} else {
			e.TargetSeq, e.Pending = rapid.SampledFrom(open).Draw(t, "target"), true
			e.MsgID = fmt.Sprint("m", e.TargetSeq)
			if e.Kind == KindRecall {
				e.Content = ""
			}
		}
		e.Count = count
		log = append(log, e)
	}
	return log
}
