package message

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/parleyhq/parley/server/internal/fault"
	"github.com/parleyhq/parley/server/internal/ident"
)

// openAccess is an Access for channels that are all open and have no rows.
type openAccess struct{}

func (openAccess) ForSend(context.Context, *ident.Principal, string, int64) (int64, error) {
	return 0, nil
}

func (openAccess) ForRead(context.Context, *ident.Principal, ident.Action, string, int64) (int64, error) {
	return 0, nil
}

func (openAccess) ForRecall(_ context.Context, p *ident.Principal, channelID string, _ int64) (bool, int64, error) {
	return p.Can(ident.Moderate, channelID), 0, nil
}

// fakeAccess refuses the channels whose id begins with refused, and records the calls.
type fakeAccess struct {
	refused string

	mu    sync.Mutex
	asked []string
}

func (a *fakeAccess) ask(call string, p *ident.Principal, channelID string) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.asked = append(a.asked, call+" "+p.Subject+" "+channelID)
	if strings.HasPrefix(channelID, a.refused) {
		return fault.New(fault.PermissionDenied, fault.NotMember, "members only")
	}
	return nil
}

func (a *fakeAccess) ForSend(_ context.Context, p *ident.Principal, channelID string, _ int64) (int64, error) {
	return 0, a.ask("send", p, channelID)
}

func (a *fakeAccess) ForRead(_ context.Context, p *ident.Principal, _ ident.Action, channelID string, _ int64) (int64, error) {
	return 0, a.ask("read", p, channelID)
}

func (a *fakeAccess) ForRecall(_ context.Context, p *ident.Principal, channelID string, _ int64) (bool, int64, error) {
	return p.Can(ident.Moderate, channelID), 0, a.ask("read", p, channelID)
}

func (a *fakeAccess) take() []string {
	a.mu.Lock()
	defer a.mu.Unlock()
	asked := a.asked
	a.asked = nil
	slices.Sort(asked)
	return asked
}

// Every call checks access to the channel before it does anything.
func TestEveryCallChecksAccess(t *testing.T) {
	t.Parallel()
	b := setupRead(t)
	access := &fakeAccess{refused: "c"}
	b.svc.access = openAccess{}
	m := b.sends(t, 1)[0]
	b.svc.access = access
	mod := ident.NewContext(t.Context(), &ident.Principal{Subject: "alice", Channels: []ident.Capability{
		{Pattern: "*", Actions: []ident.Action{ident.Moderate, ident.Send, ident.SendAs}},
	}})
	for name, tc := range map[string]struct {
		call func(ctx context.Context) error
		ctx  context.Context
		want string
	}{
		"send": {func(ctx context.Context) error {
			_, err := b.svc.Send(ctx, SendRequest{ChannelID: "c", Content: "x"})
			return err
		}, b.ctx, "send alice c"},
		"send as": {func(ctx context.Context) error {
			_, err := b.svc.Send(ctx, SendRequest{ChannelID: "c", Content: "x", FromID: "bob"})
			return err
		}, mod, "send alice c"},
		"batch": {func(ctx context.Context) error {
			return b.svc.SendBatch(ctx, []SendRequest{{ChannelID: "c", Content: "x"}})[0].Err
		}, b.ctx, "send alice c"},
		"edit": {func(ctx context.Context) error {
			_, _, err := b.svc.Edit(ctx, EditRequest{ChannelID: "c", MsgID: m.MsgID, Content: "y"})
			return err
		}, b.ctx, "read alice c"},
		"recall": {func(ctx context.Context) error {
			_, _, err := b.svc.Recall(ctx, RecallRequest{ChannelID: "c", MsgID: m.MsgID})
			return err
		}, b.ctx, "read alice c"},
		"moderate": {func(ctx context.Context) error {
			_, _, err := b.svc.Recall(ctx, RecallRequest{ChannelID: "c", MsgID: m.MsgID})
			return err
		}, mod, "read alice c"},
		"list": {func(ctx context.Context) error {
			_, err := b.svc.List(ctx, ListQuery{ChannelID: "c"})
			return err
		}, b.ctx, "read alice c"},
		"get": {func(ctx context.Context) error {
			_, err := b.svc.Get(ctx, "c", m.MsgID)
			return err
		}, b.ctx, "read alice c"},
	} {
		if err := tc.call(tc.ctx); !fault.Is(err, fault.NotMember) {
			t.Errorf("%s: %v", name, err)
		}
		if asked := access.take(); !slices.Equal(asked, []string{tc.want}) {
			t.Errorf("%s asked %v, want %s", name, asked, tc.want)
		}
		if err := tc.call(t.Context()); !fault.Is(err, fault.TokenInvalid) {
			t.Errorf("%s without a caller: %v", name, err)
		}
		if asked := access.take(); len(asked) != 0 {
			t.Errorf("%s without a caller asked %v", name, asked)
		}
	}
	if log := b.store.read("c"); len(log) != 1 || log[0].Content == "" {
		t.Errorf("what was refused was done: %+v", log)
	}
}

// A batch checks access once per channel. A refused channel fails only its own items.
func TestBatchChecksAccessOncePerChannel(t *testing.T) {
	t.Parallel()
	b := setupRead(t)
	access := &fakeAccess{refused: "no"}
	b.svc.access = access
	var rs []SendRequest
	var want []string
	for i := range 100 {
		for _, id := range []string{"no", "yes"} {
			rs = append(rs, SendRequest{ChannelID: fmt.Sprint(id, i%25), Content: fmt.Sprint(i)})
			if i < 25 {
				want = append(want, fmt.Sprint("send alice ", id, i))
			}
		}
	}
	rs = append(rs, SendRequest{ChannelID: "yes0", Content: "x", FromID: "bob"}) // without send_as
	for i, out := range b.svc.SendBatch(b.ctx, rs) {
		switch {
		case i == 200 && fault.Is(out.Err, fault.SenderMismatch):
		case i%2 == 0 && fault.Is(out.Err, fault.NotMember):
		case i%2 == 1 && out.Err == nil && b.store.read(rs[i].ChannelID)[out.Receipt.Seq-1].Content == rs[i].Content:
		default:
			t.Errorf("item %d: %+v", i, out)
		}
	}
	slices.Sort(want)
	if asked := access.take(); !slices.Equal(asked, want) {
		t.Errorf("asked %v", asked)
	}
	for i := range 25 {
		checkDense(t, b.store, fmt.Sprint("yes", i), 4)
		checkDense(t, b.store, fmt.Sprint("no", i), 0)
	}
}

func TestCountAtAndMessagesAt(t *testing.T) {
	t.Parallel()
	b := setupRead(t)
	rs := b.sends(t, 3)
	if _, _, err := b.svc.Edit(b.ctx, EditRequest{ChannelID: "c", MsgID: rs[0].MsgID, Content: "new"}); err != nil {
		t.Fatal(err)
	}
	b.sends(t, 1) // entry 5
	for _, cached := range []bool{false, true} {
		if b.cache.set(testEpoch, nil); cached {
			b.cache.set(testEpoch, b.store.read("c"))
		}
		for seq, want := range map[int64]int64{1: 1, 3: 3, 4: 3, 5: 4} {
			if got, err := b.reader.CountAt(t.Context(), "c", seq); err != nil || got != want {
				t.Errorf("cached %t: the count at %d is %d, want %d: %v", cached, seq, got, want, err)
			}
		}
		if _, err := b.reader.CountAt(t.Context(), "c", 6); !fault.Is(err, fault.StoreUnavailable) {
			t.Errorf("the count beyond the end: %v", err)
		}
	}
	mustAppend(t, b.writer, send("d", "bob", "1", "of another channel"))
	one, five, other := Place{"c", 1}, Place{"c", 5}, Place{"d", 1}
	found, err := b.reader.MessagesAt(t.Context(), []Place{{"c", 4}, one, other, {"c", 6}})
	if err != nil || len(found) != 2 || found[one].Content != "new" || found[other].Content != "of another channel" {
		t.Errorf("messages: %+v, %v", found, err)
	}
	// If a lagging read of the store misses a message, MessagesAt reads again.
	hidden := true
	b.store.visible = func(e *Entry) bool {
		hide := hidden && e.Seq == 5
		hidden = hidden && !hide
		return !hide
	}
	if found, err := b.reader.MessagesAt(t.Context(), []Place{one, five}); err != nil || found[five].Seq != 5 || found[one].Seq != 1 {
		t.Errorf("behind a lagging read: %+v, %v", found, err)
	}
}

// hangingLog blocks reads of entries until their context ends.
type hangingLog struct{ *fakeStore }

func (hangingLog) Entries(ctx context.Context, _ string, _ Range) ([]Entry, error) {
	<-ctx.Done()
	return nil, fmt.Errorf("find: %w", ctx.Err())
}

// A read fails as StoreUnavailable if the reader's StoreTimeout ends, and as DeadlinePassed if the
// caller's context ends.
func TestReadTimeoutFaults(t *testing.T) {
	t.Parallel()
	r := NewReader(hangingLog{newFakeStore()}, nil, testEpoch, ReaderConfig{StoreTimeout: 10 * time.Millisecond})
	if _, err := r.CountAt(t.Context(), "c", 1); !fault.Is(err, fault.StoreUnavailable) {
		t.Errorf("the reader's: %v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := r.CountAt(ctx, "c", 1); !fault.Is(err, fault.DeadlinePassed) {
		t.Errorf("the caller's: %v", err)
	}
}
