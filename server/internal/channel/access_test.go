package channel

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/parleyhq/parley/server/internal/fault"
	"github.com/parleyhq/parley/server/internal/ident"
)

// clock is a clock that stands still until a test moves it.
type clock struct {
	mu sync.Mutex
	t  time.Time
}

func newClock() *clock { return &clock{t: time.UnixMilli(1_700_000_000_123)} }

func (c *clock) now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.t
}

func (c *clock) pass(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.t = c.t.Add(d)
}

type accessBundle struct {
	store  *fakeStore
	clock  *clock
	access *Access
}

// setupAccess creates the members-only channel `closed` and the open channel `open`, both with the
// member ada. The channel `none` does not exist.
func setupAccess(t *testing.T) *accessBundle {
	t.Helper()
	b := &accessBundle{store: newFakeStore(), clock: newClock()}
	for _, row := range []Row{{ChannelID: "closed", MembersOnly: true}, {ChannelID: "open"}} {
		if _, err := b.store.Create(t.Context(), row, []string{"ada"}); err != nil {
			t.Fatal(err)
		}
	}
	b.access = NewAccess(AccessConfig{Store: b.store, Now: b.clock.now})
	return b
}

var (
	ada  = can("ada", "*", ident.Send, ident.History, ident.Subscribe)
	bob  = can("bob", "*", ident.Send, ident.History, ident.Subscribe)
	boss = can("boss", "*", ident.Send, ident.History, ident.Subscribe, ident.Manage)
)

func TestAccess(t *testing.T) {
	t.Parallel()
	b := setupAccess(t)
	for _, tc := range []struct {
		p       *ident.Principal
		channel string
		refused bool
	}{
		{ada, "open", false},
		{bob, "open", false},
		{boss, "open", false},
		{ada, "closed", false},
		{bob, "closed", true},
		{boss, "closed", false},
		{ada, "none", false},
		{bob, "none", false},
		{can("x", "closed", ident.Send), "closed", true},
		{can("x", "other", ident.Manage), "closed", true}, // manages another channel
	} {
		for range 2 { // once from the store, once from the cache
			for name, ask := range map[string]func(context.Context, *ident.Principal, string, int64) (int64, error){
				"read": func(ctx context.Context, p *ident.Principal, id string, atLeast int64) (int64, error) {
					return b.access.ForRead(ctx, p, ident.History, id, atLeast)
				},
				"send": b.access.ForSend,
			} {
				if tc.channel == "none" && name == "send" {
					continue
				}
				_, err := ask(t.Context(), tc.p, tc.channel, 0)
				if tc.refused != fault.Is(err, fault.NotMember) || !tc.refused && err != nil {
					t.Errorf("%s may %s %s: %v", tc.p.Subject, name, tc.channel, err)
				}
				if e, ok := fault.As(err); ok && (e.Kind != fault.PermissionDenied || len(e.Positions) != 1 || e.Positions[0].ChannelID != tc.channel) {
					t.Errorf("%s: %+v does not name the channel", name, e)
				}
			}
		}
	}
	if _, ok := b.store.rows["none"]; ok {
		t.Error("reading made a channel")
	}
}

// Access does not cache that a channel does not exist: another node may create it as members-only.
func TestMissingMembershipIsNotCached(t *testing.T) {
	t.Parallel()
	b := setupAccess(t)
	if _, err := b.access.ForRead(t.Context(), bob, ident.History, "new", 0); err != nil {
		t.Fatal(err)
	}
	if _, err := b.store.Create(t.Context(), Row{ChannelID: "new", MembersOnly: true}, []string{"ada"}); err != nil {
		t.Fatal(err)
	}
	if _, err := b.access.ForRead(t.Context(), bob, ident.History, "new", 0); !fault.Is(err, fault.NotMember) {
		t.Errorf("after it was made: %v", err)
	}
	if _, err := b.access.ForSend(t.Context(), bob, "new", 0); !fault.Is(err, fault.NotMember) {
		t.Errorf("a send after it was made: %v", err)
	}
}

// Concurrent first sends to a channel create its row with one call of the store. After an error of
// the store the next send tries again.
func TestFirstSendCreatesRowOnce(t *testing.T) {
	t.Parallel()
	b := setupAccess(t)
	gate := make(chan struct{})
	b.store.script(func(context.Context, string) error { <-gate; return errors.New("connection reset") }, nil)
	var wg sync.WaitGroup
	for range 50 {
		wg.Go(func() {
			if _, err := b.access.ForSend(t.Context(), bob, "new", 0); !fault.Is(err, fault.StoreUnavailable) {
				t.Errorf("with the store away: %v", err)
			}
		})
	}
	close(gate)
	wg.Wait()
	b.store.script(nil, nil)
	before := b.store.called("Ensure")
	for range 50 {
		wg.Go(func() {
			if _, err := b.access.ForSend(t.Context(), bob, "new", 0); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	if n := b.store.called("Ensure") - before; n < 1 || n > 3 {
		t.Errorf("%d calls of Ensure for 50 sends at once", n)
	}
	before = b.store.called("Ensure")
	if _, err := b.access.ForSend(t.Context(), ada, "new", 0); err != nil || b.store.called("Ensure") != before {
		t.Errorf("a later send asks again: %v", err)
	}
	if row := b.store.rows["new"]; row.MembersOnly || row.CreatedBy != "" {
		t.Errorf("the first send made %+v", row)
	}
}

// If several callers wait for the creation of one row, the end of one's context ends only its own
// wait.
func TestEnsureSurvivesCallerCancellation(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := setupAccess(t)
		gate := make(chan struct{})
		b.store.script(func(ctx context.Context, _ string) error {
			<-gate
			return ctx.Err()
		}, nil)
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		first, second := make(chan error, 1), make(chan error, 1)
		go func() { _, err := b.access.ForSend(ctx, ada, "new", 0); first <- err }()
		synctest.Wait()
		go func() { _, err := b.access.ForSend(t.Context(), bob, "new", 0); second <- err }()
		synctest.Wait()
		cancel()
		if err := <-first; !fault.Is(err, fault.DeadlinePassed) {
			t.Errorf("the one that left: %v", err)
		}
		close(gate)
		if err := <-second; err != nil {
			t.Errorf("the one that stayed: %v", err)
		}
		if n := b.store.called("Ensure"); n != 1 {
			t.Errorf("%d calls of the store", n)
		}
	})
}

func TestMembershipIsCachedForMaxAge(t *testing.T) {
	t.Parallel()
	b := setupAccess(t)
	ask := func(p *ident.Principal) error {
		_, err := b.access.ForSend(t.Context(), p, "closed", 0)
		return err
	}
	if err := ask(ada); err != nil {
		t.Fatal(err)
	}
	// Another node removes ada, and its announcement does not arrive here.
	if err := b.store.RemoveMembers(t.Context(), "closed", []string{"ada"}, 0); err != nil {
		t.Fatal(err)
	}
	b.clock.pass(500 * time.Millisecond)
	reads := b.store.called("MembersOf")
	if err := ask(ada); err != nil || b.store.called("MembersOf") != reads {
		t.Errorf("within 500 ms: %v", err)
	}
	b.clock.pass(time.Millisecond)
	if err := ask(ada); !fault.Is(err, fault.NotMember) {
		t.Errorf("after 501 ms: %v", err)
	}
	// The absence of a membership is not cached.
	if err := b.store.AddMembers(t.Context(), "closed", []string{"ada"}, b.clock.now()); err != nil {
		t.Fatal(err)
	}
	if err := ask(ada); err != nil {
		t.Errorf("added again: %v", err)
	}
	for _, c := range []Change{{"closed", []string{"ada"}}, {ChannelID: "closed"}} {
		if err := ask(ada); err != nil {
			t.Fatal(err)
		}
		reads = b.store.called("MembersOf")
		b.access.Forget(Change{"open", []string{"ada"}})
		b.access.Forget(Change{"closed", []string{"bob"}})
		if err := ask(ada); err != nil || b.store.called("MembersOf") != reads {
			t.Errorf("after others' changes: %v", err)
		}
		b.access.Forget(c)
		if err := ask(ada); err != nil || b.store.called("MembersOf") != reads+1 {
			t.Errorf("after %+v the store was not asked: %v", c, err)
		}
	}
}

// The result of a read that began before a change was announced is not cached.
func TestForgetDuringRead(t *testing.T) {
	t.Parallel()
	b := setupAccess(t)
	b.store.script(nil, func(ctx context.Context, call string) error {
		if call == "MembersOf" { // the read returned her membership; now she is removed, and the change is announced
			b.store.script(nil, nil)
			if err := b.store.RemoveMembers(ctx, "closed", []string{"ada"}, 0); err != nil {
				return err
			}
			b.access.Forget(Change{"closed", []string{"ada"}})
		}
		return nil
	})
	if _, err := b.access.ForRead(t.Context(), ada, ident.History, "closed", 0); err != nil {
		t.Fatal(err)
	}
	if _, err := b.access.ForRead(t.Context(), ada, ident.History, "closed", 0); !fault.Is(err, fault.NotMember) {
		t.Errorf("a read of before the change is believed after it: %v", err)
	}
}

func TestForSubscribe(t *testing.T) {
	t.Parallel()
	b := setupAccess(t)
	ids := []string{"none", "closed", "open"}
	var want []string
	for i := range 1200 {
		id := fmt.Sprintf("c%04d", i)
		row := Row{ChannelID: id, MembersOnly: i%3 > 0}
		users := []string{"ada"}
		if i%3 == 1 {
			users = []string{"bob"}
		}
		if _, err := b.store.Create(t.Context(), row, users); err != nil {
			t.Fatal(err)
		}
		ids = append(ids, id)
		if i%3 == 2 {
			want = append(want, id)
		}
	}
	want = append([]string{"closed"}, want...)
	rows, members := b.store.called("Rows"), b.store.called("MembersOf")
	refused, ok := fault.As(b.access.ForSubscribe(t.Context(), bob, ids))
	if !ok || refused.Reason != fault.NotMember || !slices.Equal(positions(refused), want) {
		t.Errorf("refused %+v, want %d channels", refused, len(want))
	}
	if r, m := b.store.called("Rows")-rows, b.store.called("MembersOf")-members; r != 3 || m != 2 {
		t.Errorf("%d and %d calls of the store, want 3 and 2", r, m)
	}
	if err := b.access.ForSubscribe(t.Context(), boss, ids); err != nil {
		t.Errorf("who manages them is refused: %v", err)
	}
	b.store.script(func(context.Context, string) error { return errors.New("mongo://secret:27017 is away") }, nil)
	err := b.access.ForSubscribe(t.Context(), bob, ids)
	if e, ok := fault.As(err); !ok || e.Kind != fault.Unavailable || e.Reason != fault.StoreUnavailable || strings.Contains(e.Msg, "mongo") {
		t.Errorf("with the store away: %v", err)
	}
}

// positions returns the channels that a fault names.
func positions(f *fault.Error) []string {
	ids := make([]string, len(f.Positions))
	for i, at := range f.Positions {
		ids[i] = at.ChannelID
	}
	return ids
}

// If one node creates a channel as members-only while a first send on another node creates it as
// open, the store keeps one row, and both nodes use it.
func TestCreationRace(t *testing.T) {
	t.Parallel()
	for range 50 {
		b := setupAccess(t)
		svc := NewService(ServiceConfig{Store: b.store, Access: b.access, Log: &fakeLog{}, Secret: []byte("s")})
		other := NewAccess(AccessConfig{Store: b.store})
		var created, sent error
		var wg sync.WaitGroup
		wg.Go(func() {
			_, _, created = svc.Create(ident.NewContext(t.Context(), boss), CreateRequest{ChannelID: "race", MembersOnly: true})
		})
		wg.Go(func() { _, sent = other.ForSend(t.Context(), bob, "race", 0) })
		wg.Wait()
		if created == nil != fault.Is(sent, fault.NotMember) || (created != nil) != (sent == nil) {
			t.Fatalf("create: %v, send: %v", created, sent)
		}
	}
}

func TestCachesAreBounded(t *testing.T) {
	t.Parallel()
	a := NewAccess(AccessConfig{Store: newFakeStore()})
	for i := range maxKnown + 10 {
		a.cacheRow(Row{ChannelID: fmt.Sprint(i)}, 0)
	}
	if n := len(a.modes); n > maxKnown || n < maxKnown/2 {
		t.Errorf("%d channels remembered", n)
	}
	for i := 0; len(a.modes) < maxKnown; i++ {
		a.cacheRow(Row{ChannelID: fmt.Sprint("more", i)}, 0)
	}
	for id := range a.modes {
		a.cacheRow(Row{ChannelID: id}, 0) // a known one needs no room
	}
	if n := len(a.modes); n != maxKnown {
		t.Errorf("%d channels remembered after all were cached again, want %d", n, maxKnown)
	}
}
