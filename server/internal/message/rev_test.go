package message

import (
	"context"
	"fmt"
	"sync"
	"testing"

	"github.com/parleyhq/parley/server/internal/fault"
	"github.com/parleyhq/parley/server/internal/ident"
)

func access(channel string, rev int64) Draft {
	return Draft{Kind: KindAccess, ChannelID: channel, ClientMsgID: fmt.Sprint("access-", rev), Rev: rev}
}

func sendAt(channel, clientID string, rev int64) Draft {
	d := send(channel, "alice", clientID, "x")
	d.Rev = rev
	return d
}

// An entry has the access revision of its draft, and never a lower one than the entry before it. A
// draft with a lower one is handed back, by a writer that has read the head too, and stores
// nothing.
func TestWriterHandsBackDraftsOfEarlierRevisions(t *testing.T) {
	t.Parallel()
	store := newFakeStore()
	first, second := startWriter(t, store, WriterConfig{}), startWriter(t, store, WriterConfig{})
	mustAppend(t, first, sendAt("c", "1", 0))
	mustAppend(t, second, sendAt("c", "2", 0))
	marked := mustAppend(t, first, access("c", 2))
	if marked.Seq != 3 || marked.Count != 2 || marked.Duplicate {
		t.Fatalf("access entry: %+v", marked)
	}
	for i, w := range []*Writer{first, second} { // the second one remembers the head from before
		stale := sendAt("c", fmt.Sprint("stale", i), 1)
		if out := appendOne(t, w, stale); out.StaleRev != 2 || !fault.Is(out.Err, fault.StoreUnavailable) {
			t.Fatalf("writer %d: %+v", i, out)
		}
		stale.Rev = 2
		mustAppend(t, w, stale)
		// A draft whose sender was checked later raises the revision.
		if out := mustAppend(t, w, access("c", 2)); out.Seq != int64(4+i) || !out.Duplicate {
			t.Fatalf("access entry of a revision that the log has: %+v", out)
		}
	}
	mustAppend(t, first, sendAt("c", "raises", 5))
	if out := appendOne(t, second, sendAt("c", "late", 4)); out.StaleRev != 5 {
		t.Fatalf("after a raise: %+v", out)
	}
	var revs []int64
	for _, e := range checkDense(t, store, "c", 6) {
		revs = append(revs, e.Rev)
	}
	if got := fmt.Sprint(revs); got != "[0 0 2 2 2 5]" {
		t.Fatalf("revisions %v", got)
	}
}

// All drafts of a batch after one that is handed back are handed back too, so what is stored stays
// a prefix.
func TestWriterHandsBackWholeBatches(t *testing.T) {
	t.Parallel()
	store := newFakeStore()
	w := startWriter(t, store, WriterConfig{})
	mustAppend(t, w, access("c", 1))
	for _, out := range w.Append(t.Context(), []Draft{sendAt("c", "1", 0), sendAt("c", "2", 0), sendAt("c", "3", 0)}) {
		if out.StaleRev != 1 {
			t.Fatalf("%+v", out)
		}
	}
	checkDense(t, store, "c", 1)
}

// An entry whose insert lost its reply is found, although its draft would be handed back by now.
func TestWriterFindsStoredEntriesOfEarlierRevisions(t *testing.T) {
	t.Parallel()
	store := newFakeStore()
	w, other := startWriter(t, store, WriterConfig{}), startWriter(t, store, WriterConfig{})
	mustAppend(t, w, sendAt("c", "first", 0))
	var once sync.Once
	store.afterInsert = func(entries []Entry) (err error) {
		if entries[0].ClientMsgID == "mine" {
			once.Do(func() { err = context.DeadlineExceeded })
			if err != nil {
				mustAppend(t, other, access("c", 1))
			}
		}
		return err
	}
	if out := mustAppend(t, w, sendAt("c", "mine", 0)); out.Seq != 2 || out.Duplicate {
		t.Fatalf("%+v", out)
	}
	checkDense(t, store, "c", 3)
}

// revAccess is an Access with the mode of a channel at a revision, of which this node remembers an
// earlier one until it is asked for a later one.
type revAccess struct {
	mu               sync.Mutex
	known, rev       int64
	closed           bool
	moderated        bool // everybody is a moderator at revision 0
	asked, askedLate int
}

func (a *revAccess) ForSend(_ context.Context, p *ident.Principal, channelID string, atLeast int64) (int64, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.asked++
	if atLeast <= a.known && a.known < a.rev {
		return a.known, nil
	}
	a.known = a.rev
	if a.closed && p.Subject != "member" {
		a.askedLate++
		return a.rev, fault.NotMemberOf(channelID)
	}
	return a.rev, nil
}

func (a *revAccess) ForRead(ctx context.Context, p *ident.Principal, _ ident.Action, channelID string, atLeast int64) (int64, error) {
	return a.ForSend(ctx, p, channelID, atLeast)
}

func (a *revAccess) ForRecall(ctx context.Context, p *ident.Principal, channelID string, atLeast int64) (bool, int64, error) {
	rev, err := a.ForSend(ctx, p, channelID, atLeast)
	return a.moderated && rev == 0, rev, err
}

// The right to recall the messages of others is checked again too.
func TestModeratorsAreCheckedAgainAfterASwitch(t *testing.T) {
	t.Parallel()
	b := setupRead(t)
	acc := &revAccess{moderated: true}
	b.svc.access = acc
	theirs, err := b.svc.Send(as(t, "eve"), SendRequest{ChannelID: "c", Content: "x"})
	if err != nil {
		t.Fatal(err)
	}
	acc.mu.Lock()
	acc.rev, acc.closed = 1, true
	acc.mu.Unlock()
	mustAppend(t, b.writer, access("c", 1))
	if _, _, err := b.svc.Recall(as(t, "member"), RecallRequest{ChannelID: "c", MsgID: theirs.MsgID}); !fault.Is(err, fault.NotSender) {
		t.Fatal(err)
	}
	checkDense(t, b.store, "c", 2)
}

// A node that does not know of a switch yet checks the caller again: a member's calls succeed, and
// those of others store and return nothing.
func TestServiceChecksAgainAfterASwitch(t *testing.T) {
	t.Parallel()
	for subject, want := range map[string]fault.Reason{"member": "", "eve": fault.NotMember} {
		for name, call := range map[string]func(ctx context.Context, s *Service, mine string) error{
			"send": func(ctx context.Context, s *Service, _ string) error {
				_, err := s.Send(ctx, SendRequest{ChannelID: "c", Content: "x"})
				return err
			},
			"batch": func(ctx context.Context, s *Service, _ string) error {
				outs := s.SendBatch(ctx, []SendRequest{{ChannelID: "c", Content: "x"}, {ChannelID: "c", Content: "y"}})
				if (outs[0].Err == nil) != (outs[1].Err == nil) || outs[0].Err == nil && outs[1].Receipt.Seq != outs[0].Receipt.Seq+1 {
					return fmt.Errorf("%+v", outs)
				}
				return outs[1].Err
			},
			"edit": func(ctx context.Context, s *Service, mine string) error {
				_, _, err := s.Edit(ctx, EditRequest{ChannelID: "c", MsgID: mine, Content: "y"})
				return err
			},
			"recall": func(ctx context.Context, s *Service, mine string) error {
				_, _, err := s.Recall(ctx, RecallRequest{ChannelID: "c", MsgID: mine})
				return err
			},
			"list": func(ctx context.Context, s *Service, _ string) error {
				page, err := s.List(ctx, ListQuery{ChannelID: "c"})
				if err == nil && len(page.Messages) != 2 {
					return fmt.Errorf("%d messages", len(page.Messages))
				}
				return err
			},
			"get": func(ctx context.Context, s *Service, mine string) error {
				_, err := s.Get(ctx, "c", mine)
				return err
			},
		} {
			t.Run(name+" by "+subject, func(t *testing.T) {
				t.Parallel()
				b := setupRead(t)
				acc := &revAccess{}
				b.svc.access = acc
				mine, err := b.svc.Send(as(t, subject), SendRequest{ChannelID: "c", Content: "mine"})
				if err != nil {
					t.Fatal(err)
				}
				acc.mu.Lock()
				acc.rev, acc.closed = 1, true
				acc.mu.Unlock()
				mustAppend(t, b.writer, access("c", 1))
				later, err := b.svc.Send(as(t, "member"), SendRequest{ChannelID: "c", Content: "later", ClientMsgID: "later"})
				if err != nil {
					t.Fatal(err)
				}
				acc.mu.Lock()
				acc.known = 0
				acc.mu.Unlock()
				target := mine.MsgID
				if name == "get" {
					target = later.MsgID
				}
				err = call(as(t, subject), b.svc, target)
				if want == "" && err != nil || want != "" && !fault.Is(err, want) {
					t.Fatalf("%v, want %q", err, want)
				}
				if want != "" {
					checkDense(t, b.store, "c", 3)
				}
			})
		}
	}
}
