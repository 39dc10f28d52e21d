package message

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/parleyhq/parley/server/internal/fault"
	"github.com/parleyhq/parley/server/internal/ident"
)

const testEpoch = "e1"

// fakeCache has the entries that a test puts into it. The real cache is tested with a real Redis.
type fakeCache struct {
	mu    sync.Mutex
	epoch string
	log   []Entry
	err   error
}

// set makes the cache hold the messages among consecutive entries of a log.
func (f *fakeCache) set(epoch string, entries []Entry) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.epoch, f.log = epoch, slices.Clone(entries)
}

func (f *fakeCache) Page(_ context.Context, _ string, r Range) (CachedPage, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.err != nil || len(f.log) == 0 {
		return CachedPage{}, f.err
	}
	first, last := f.log[0], f.log[len(f.log)-1]
	p := CachedPage{Epoch: f.epoch, Oldest: first.Seq, Newest: last.Seq, Count: last.Count}
	var events []Event
	for i := range f.log {
		e := &f.log[i]
		if e.Kind != KindSend {
			if e.TargetSeq < first.Seq {
				p.Unknown = e.Seq
			}
			continue
		}
		events = append(events, Event{Epoch: f.epoch, Seq: e.Seq, Message: e.Message})
		if e.ChangedSeq != e.Seq && !r.MessagesOnly {
			kind := KindEdit
			if e.Status == StatusRecalled {
				kind = KindRecall
			}
			events = append(events, Event{Epoch: f.epoch, Kind: kind, Seq: e.ChangedSeq, Message: e.Message})
		}
	}
	slices.SortFunc(events, func(a, b Event) int {
		if r.Desc {
			a, b = b, a
		}
		return int(a.Seq - b.Seq)
	})
	size := 0
	for i := range events {
		if seq := events[i].Seq; seq <= r.After || r.Before > 0 && seq >= r.Before {
			continue
		}
		p.Events = append(p.Events, events[i])
		size += 20 + events[i].Message.Size() // the cache stores more than the text
		if p.Cut = len(p.Events) == r.Limit || r.MaxBytes > 0 && size > r.MaxBytes; p.Cut {
			break
		}
	}
	return p, nil
}

type readBundle struct {
	store  *fakeStore
	cache  *fakeCache
	writer *Writer
	reader *Reader
	svc    *Service
	ctx    context.Context
}

func setupRead(t *testing.T) *readBundle {
	t.Helper()
	b := &readBundle{store: newFakeStore(), cache: &fakeCache{}}
	b.writer = startWriter(t, b.store, WriterConfig{})
	b.reader = NewReader(b.store, b.cache, testEpoch, ReaderConfig{StoreTimeout: 200 * time.Millisecond})
	b.svc = NewService(b.writer, b.reader, Identity{Secret: []byte("secret")}, openAccess{})
	b.ctx = as(t, "alice")
	return b
}

func as(t *testing.T, subject string) context.Context {
	t.Helper()
	return ident.NewContext(t.Context(), &ident.Principal{Subject: subject, Channels: []ident.Capability{{
		Pattern: "*", Actions: []ident.Action{ident.Send, ident.History, ident.Subscribe},
	}}})
}

func (b *readBundle) sends(t *testing.T, n int) []Receipt {
	t.Helper()
	var rs []Receipt
	for i := range n {
		r, err := b.svc.Send(b.ctx, SendRequest{ChannelID: "c", Content: fmt.Sprint("m", i)})
		if err != nil {
			t.Fatal(err)
		}
		rs = append(rs, r)
	}
	return rs
}

func (b *readBundle) list(t *testing.T, q ListQuery) Page {
	t.Helper()
	q.ChannelID = "c"
	p, err := b.svc.List(b.ctx, q)
	if err != nil {
		t.Fatalf("list %+v: %v", q, err)
	}
	return p
}

func seqs(p Page) []int64 {
	var out []int64
	for _, m := range p.Messages {
		out = append(out, m.Seq)
	}
	return out
}

func at(n int64) *int64 { return &n }

func TestListDirectionsAndTokens(t *testing.T) {
	t.Parallel()
	b := setupRead(t)
	rs := b.sends(t, 10)
	if _, _, err := b.svc.Edit(b.ctx, EditRequest{ChannelID: "c", MsgID: rs[4].MsgID, Content: "new"}); err != nil {
		t.Fatal(err) // entry 11
	}
	b.sends(t, 2) // entries 12, 13
	for _, tc := range []struct {
		q    ListQuery
		want []int64
		more bool
	}{
		{ListQuery{PageSize: 3}, []int64{13, 12, 10}, true},
		{ListQuery{Before: at(4)}, []int64{3, 2, 1}, false},
		{ListQuery{Before: at(4), PageSize: 3}, []int64{3, 2, 1}, false},
		{ListQuery{After: at(0), PageSize: 2}, []int64{1, 2}, true},
		{ListQuery{After: at(9)}, []int64{10, 12, 13}, false},
		{ListQuery{After: at(10), PageSize: 2}, []int64{12, 13}, false},
		{ListQuery{After: at(3), Before: at(6)}, []int64{4, 5}, false},
		{ListQuery{After: at(13)}, nil, false},
		{ListQuery{Before: at(1)}, nil, false},
		{ListQuery{Before: at(math.MaxInt64), PageSize: 1}, []int64{13}, true},
	} {
		for _, cached := range []bool{false, true} {
			if b.cache.set(testEpoch, nil); cached {
				b.cache.set(testEpoch, b.store.read("c"))
			}
			p := b.list(t, tc.q)
			if diff := cmp.Diff(tc.want, seqs(p)); diff != "" || (p.NextPageToken != "") != tc.more {
				t.Errorf("list %+v (cached %t): more=%q, %s", tc.q, cached, p.NextPageToken, diff)
			}
			if p.FromCache != cached && len(tc.want) > 0 {
				t.Errorf("list %+v: from cache %t, want %t", tc.q, p.FromCache, cached)
			}
		}
	}
	for name, q := range map[string]ListQuery{"descending": {PageSize: 4}, "ascending": {After: at(0), PageSize: 4}} {
		seen := map[int64]bool{}
		for pages := 0; ; pages++ {
			p := b.list(t, q)
			for _, s := range seqs(p) {
				if seen[s] {
					t.Fatalf("%s: %d came twice", name, s)
				}
				seen[s] = true
			}
			if q.PageToken = p.NextPageToken; q.PageToken == "" {
				break
			}
		}
		if len(seen) != 12 {
			t.Fatalf("%s: %d messages over all pages, want 12", name, len(seen))
		}
	}
}

func TestPageTokensAreBound(t *testing.T) {
	t.Parallel()
	b := setupRead(t)
	b.sends(t, 5)
	tok := b.list(t, ListQuery{PageSize: 2}).NextPageToken
	flipped := []byte(tok)
	flipped[len(flipped)/2] ^= 1
	for name, tc := range map[string]struct {
		ctx  context.Context
		q    ListQuery
		want fault.Reason
	}{
		"tampered":      {b.ctx, ListQuery{ChannelID: "c", PageToken: string(flipped)}, fault.PageTokenInvalid},
		"garbage":       {b.ctx, ListQuery{ChannelID: "c", PageToken: "x"}, fault.PageTokenInvalid},
		"other subject": {as(t, "bob"), ListQuery{ChannelID: "c", PageToken: tok}, fault.PageTokenForeign},
		"other channel": {b.ctx, ListQuery{ChannelID: "d", PageToken: tok}, fault.PageTokenInvalid},
		"other query":   {b.ctx, ListQuery{ChannelID: "c", After: at(0), PageToken: tok}, fault.PageTokenInvalid},
	} {
		if _, err := b.svc.List(tc.ctx, tc.q); !fault.Is(err, tc.want) {
			t.Errorf("%s: %v, want %s", name, err, tc.want)
		}
	}
	other := NewService(b.writer, NewReader(b.store, nil, "e2", ReaderConfig{}), Identity{Secret: []byte("secret")}, openAccess{})
	if _, err := other.List(b.ctx, ListQuery{ChannelID: "c", PageSize: 2, PageToken: tok}); !fault.Is(err, fault.Resync) {
		t.Errorf("a token of another epoch: %v, want %s", err, fault.Resync)
	}
}

// The cache serves a page only if the page is dense, of this epoch, and reaches the known head.
func TestInvalidCacheIsNotServed(t *testing.T) {
	t.Parallel()
	b := setupRead(t)
	b.sends(t, 6)
	all := b.store.read("c")
	for name, tc := range map[string]struct {
		epoch   string
		entries []Entry
		err     error
	}{
		"behind the head":  {testEpoch, all[:5], nil},
		"another epoch":    {"e0", all, nil},
		"a hole":           {testEpoch, append(append([]Entry{}, all[:2]...), all[3:]...), nil},
		"does not go back": {testEpoch, all[3:], nil},
		"down":             {testEpoch, all, errors.New("connection refused")},
	} {
		b.cache.set(tc.epoch, tc.entries)
		b.cache.err = tc.err
		p := b.list(t, ListQuery{PageSize: 6})
		if p.FromCache || len(p.Messages) != 6 || p.Messages[0].Seq != 6 {
			t.Errorf("%s: from cache %t with %v", name, p.FromCache, seqs(p))
		}
	}
}

// A page of all that the cache has is served from it: the counts show whether messages follow.
func TestPageOfTheWholeCache(t *testing.T) {
	t.Parallel()
	b := setupRead(t)
	b.sends(t, 6)
	all := b.store.read("c")
	for _, cached := range []int{3, 6} {
		b.cache.set(testEpoch, all[6-cached:])
		p := b.list(t, ListQuery{PageSize: cached})
		if !p.FromCache || len(p.Messages) != cached || (p.NextPageToken != "") != (cached < 6) {
			t.Errorf("%d cached: from cache %t, %v, next page %q", cached, p.FromCache, seqs(p), p.NextPageToken)
		}
	}
}

// A page from the middle of the log is not served from a cache that lags: its messages may have
// been edited since.
func TestCacheBehindAnEditIsNotServed(t *testing.T) {
	t.Parallel()
	b := setupRead(t)
	rs := b.sends(t, 6)
	b.cache.set(testEpoch, b.store.read("c"))
	if _, _, err := b.svc.Recall(b.ctx, RecallRequest{ChannelID: "c", MsgID: rs[1].MsgID}); err != nil {
		t.Fatal(err)
	}
	p := b.list(t, ListQuery{Before: at(4), PageSize: 2})
	if p.FromCache || p.Messages[1].Content != "" {
		t.Fatalf("from cache %t: %+v", p.FromCache, p.Messages[1])
	}
}

// A replay that ends before a recall is not served from a cache that the recall has not reached:
// nothing else would remove the text while the bus is away.
func TestReplayFromCacheBehindARecall(t *testing.T) {
	t.Parallel()
	b := setupRead(t)
	b.reader.cfg.MaxAge = 1 // each replay reads the head again
	rs := b.sends(t, 6)
	b.cache.set(testEpoch, b.store.read("c"))
	if _, _, err := b.svc.Recall(b.ctx, RecallRequest{ChannelID: "c", MsgID: rs[1].MsgID}); err != nil {
		t.Fatal(err)
	}
	for _, patient := range []bool{false, true} {
		events, err := b.reader.Replay(b.ctx, "c", 0, 4, 100, 1<<20, patient)
		if err != nil || len(events) != 4 || events[1].Message.Content != "" {
			t.Errorf("patient %t: %+v, %v", patient, events, err)
		}
	}
}

// A list shows another node's send within MaxAge, even if the cache has not got it.
func TestListIsNeverFurtherBehindThanMaxAge(t *testing.T) {
	t.Parallel()
	b := setupRead(t)
	b.reader.cfg.MaxAge = 20 * time.Millisecond
	b.sends(t, 3)
	b.cache.set(testEpoch, b.store.read("c"))
	other := startWriter(t, b.store, WriterConfig{})
	mustAppend(t, other, send("c", "bob", "1", "from another node"))
	acked := time.Now()
	for {
		p := b.list(t, ListQuery{})
		if p.Messages[0].Seq == 4 {
			return
		}
		if time.Since(acked) > 10*b.reader.cfg.MaxAge {
			t.Fatalf("still ends at %d after %s", p.Messages[0].Seq, time.Since(acked))
		}
	}
}

func TestMinSeq(t *testing.T) {
	t.Parallel()
	b := setupRead(t)
	b.sends(t, 3)
	b.list(t, ListQuery{})
	b.cache.set(testEpoch, b.store.read("c"))
	other := startWriter(t, b.store, WriterConfig{})
	mustAppend(t, other, send("c", "bob", "1", "x"))
	if p := b.list(t, ListQuery{MinSeq: 4}); p.Messages[0].Seq != 4 {
		t.Fatalf("with min_seq 4 the list ends at %d", p.Messages[0].Seq)
	}
	for _, q := range []ListQuery{{ChannelID: "c", MinSeq: 5}, {ChannelID: "c", After: at(5)}, {ChannelID: "c", After: at(math.MaxInt64)}} {
		if _, err := b.svc.List(b.ctx, q); !fault.Is(err, fault.PositionOutOfRange) {
			t.Errorf("list %+v: %v, want %s", q, err, fault.PositionOutOfRange)
		}
	}
}

// A store that lags behind the acknowledged entries is read again. A list never takes its short
// answer for the end of the log.
func TestLaggingStoreIsRetried(t *testing.T) {
	t.Parallel()
	b := setupRead(t)
	b.sends(t, 4)
	b.cache = nil
	lag := &laggingLog{fakeStore: b.store, until: 3}
	r := NewReader(lag, nil, testEpoch, ReaderConfig{StoreTimeout: time.Second})
	svc := NewService(b.writer, r, Identity{}, openAccess{})
	p, err := svc.List(b.ctx, ListQuery{ChannelID: "c"})
	if err != nil || len(p.Messages) != 4 {
		t.Fatalf("list: %v, %v", seqs(p), err)
	}
	lag = &laggingLog{fakeStore: b.store, until: math.MaxInt}
	svc = NewService(b.writer, NewReader(lag, nil, testEpoch, ReaderConfig{StoreTimeout: 50 * time.Millisecond}), Identity{}, openAccess{})
	if _, err := svc.List(b.ctx, ListQuery{ChannelID: "c"}); !fault.Is(err, fault.StoreUnavailable) {
		t.Fatalf("a store that stays behind: %v, want %s", err, fault.StoreUnavailable)
	}
}

// laggingLog omits the log's last entry from the first descending reads.
type laggingLog struct {
	*fakeStore
	mu    sync.Mutex
	until int
}

func (l *laggingLog) Entries(ctx context.Context, channelID string, r Range) ([]Entry, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	es, err := l.fakeStore.Entries(ctx, channelID, r)
	if l.until--; l.until > 0 && len(es) > 0 && r.Desc {
		return es[1:], err
	}
	return es, err
}

func TestReplayReturnsCurrentState(t *testing.T) {
	t.Parallel()
	b := setupRead(t)
	rs := b.sends(t, 3)
	if _, _, err := b.svc.Edit(b.ctx, EditRequest{ChannelID: "c", MsgID: rs[0].MsgID, Content: "new"}); err != nil {
		t.Fatal(err)
	}
	if _, _, err := b.svc.Recall(b.ctx, RecallRequest{ChannelID: "c", MsgID: rs[1].MsgID}); err != nil {
		t.Fatal(err)
	}
	for _, cached := range []bool{false, true} {
		if b.cache.set(testEpoch, nil); cached {
			b.cache.set(testEpoch, b.store.read("c"))
		}
		events, err := b.reader.Replay(b.ctx, "c", 0, 5, 100, 1<<20, true)
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, e := range events {
			got = append(got, fmt.Sprintf("%d %s of %d: %q", e.Seq, e.Kind.Name(), e.Message.Seq, e.Message.Content))
		}
		want := []string{
			`1 insert of 1: "new"`, `2 insert of 2: ""`, `3 insert of 3: "m2"`, `4 edit of 1: "new"`, `5 recall of 2: ""`,
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("cached %t: %s", cached, diff)
		}
	}
	events, err := b.reader.Replay(b.ctx, "c", 3, 5, 100, 1<<20, true)
	if err != nil || len(events) != 2 || events[0].Message.Content != "new" {
		t.Fatalf("replay of a change without its target: %+v, %v", events, err)
	}
}

func TestCapabilities(t *testing.T) {
	t.Parallel()
	b := setupRead(t)
	m := b.sends(t, 1)[0]
	only := func(actions ...ident.Action) context.Context {
		return ident.NewContext(t.Context(), &ident.Principal{
			Subject: "bob", Channels: []ident.Capability{{Pattern: "c", Actions: actions}},
		})
	}
	sendAs := SendRequest{ChannelID: "c", Content: "x", FromID: "carol"}
	for name, tc := range map[string]struct {
		call func() error
		want fault.Reason
	}{
		"from another": {func() error { _, err := b.svc.Send(only(ident.Send), sendAs); return err }, fault.SenderMismatch},
		"recall another's": {func() error {
			_, _, err := b.svc.Recall(only(ident.Send), RecallRequest{ChannelID: "c", MsgID: m.MsgID})
			return err
		}, fault.NotSender},
		"no principal":            {func() error { _, err := b.svc.Get(t.Context(), "c", m.MsgID); return err }, fault.TokenInvalid},
		"unknown message":         {func() error { _, err := b.svc.Get(b.ctx, "c", "nope"); return err }, fault.MessageNotFound},
		"from another by send_as": {func() error { _, err := b.svc.Send(only(ident.Send, ident.SendAs), sendAs); return err }, ""},
		"recall by moderate": {func() error {
			_, _, err := b.svc.Recall(only(ident.Moderate), RecallRequest{ChannelID: "c", MsgID: m.MsgID})
			return err
		}, ""},
	} {
		err := tc.call()
		if tc.want == "" && err != nil || tc.want != "" && !fault.Is(err, tc.want) {
			t.Errorf("%s: %v, want %q", name, err, tc.want)
		}
	}
}

func TestEventAndCachedJSON(t *testing.T) {
	t.Parallel()
	m := Message{
		MsgID: "id", ChannelID: "AB", Seq: 12345, Count: 12000, FromID: "auth0|42", MsgType: "text",
		Content: "你好 <b>\u2028\x7f\"\\", Metadata: map[string]string{"k": "9007199254740993"}, ClientMsgID: "c-1",
		MsgTime: time.Date(2025, 3, 10, 10, 5, 30, 7_000_000, time.UTC), Status: StatusEdited, ChangedSeq: 12350,
	}
	for _, e := range []Event{
		{Kind: KindSend, Epoch: "e", Seq: m.Seq, Count: m.Count, Time: m.MsgTime, Message: m},
		{Kind: KindEdit, Epoch: "e", Seq: 12350, Count: 12004, Time: m.MsgTime.Add(time.Second), Message: m, Traceparent: "00-x"},
	} {
		data, err := json.Marshal(e)
		if err != nil {
			t.Fatal(err)
		}
		var back Event
		if err := json.Unmarshal(data, &back); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(e, back); diff != "" {
			t.Errorf("%s: %s", data, diff)
		}
	}
	cached := m
	cached.ChannelID = ""
	data, err := json.Marshal(Cached{Epoch: "e", Message: m})
	if err != nil {
		t.Fatal(err)
	}
	var back Cached
	if err := json.Unmarshal(data, &back); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(Cached{Epoch: "e", Message: cached}, back); diff != "" {
		t.Errorf("%s: %s", data, diff)
	}
	if head := CachedHead("e") + "12345,"; string(data[:len(head)]) != head {
		t.Errorf("%s does not begin with %s", data, head)
	}
}
