package channel

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/parleyhq/parley/server/internal/ident"
	"github.com/parleyhq/parley/server/internal/lifecycle/lifecycletest"
	"github.com/parleyhq/parley/server/internal/message"
)

// fakeHub holds the subjects with streams by channel, and apart from them those whose streams
// require the membership even of an open channel. It records how long after begin each lost its
// channel.
type fakeHub struct {
	mu      sync.Mutex
	streams map[string][]string
	members map[string][]string
	began   time.Time
	lost    map[string]time.Duration
}

func (h *fakeHub) SubscribedSubjects(channelID string, mode message.Mode) []string {
	h.mu.Lock()
	defer h.mu.Unlock()
	subjects := slices.Clone(h.members[channelID])
	if mode != message.ModeOpen {
		subjects = append(subjects, h.streams[channelID]...)
	}
	return subjects
}

func (h *fakeHub) Expel(channelID, subject string, mode message.Mode) {
	h.mu.Lock()
	defer h.mu.Unlock()
	is := func(s string) bool { return s == subject }
	if mode == message.ModeOpen && !slices.ContainsFunc(h.members[channelID], is) {
		return
	}
	h.lost[channelID+" "+subject] = time.Since(h.began)
	h.members[channelID] = slices.DeleteFunc(h.members[channelID], is)
	if mode != message.ModeOpen {
		h.streams[channelID] = slices.DeleteFunc(h.streams[channelID], is)
	}
}

func (h *fakeHub) open(channelID, subject string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.streams[channelID] = append(h.streams[channelID], subject)
}

// begin sets the time from which the recorded times count.
func (h *fakeHub) begin() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.began = time.Now()
}

type watchBundle struct {
	*accessBundle
	hub     *fakeHub
	watcher *Watcher
}

// watch runs test with a started watcher, in a synctest bubble. At the start ada and bob are
// members of `closed` and `open`, and have streams with both and with `none`.
func watch(t *testing.T, test func(b *watchBundle)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		b := &watchBundle{accessBundle: setupAccess(t)}
		b.access = NewAccess(AccessConfig{Store: b.store})
		for _, id := range []string{"open", "closed"} {
			b.add(t, id, "bob")
		}
		b.hub = &fakeHub{streams: map[string][]string{}, members: map[string][]string{}, lost: map[string]time.Duration{}}
		for _, id := range []string{"open", "closed", "none"} {
			b.hub.open(id, "ada")
			b.hub.open(id, "bob")
		}
		b.watcher = NewWatcher(WatcherConfig{Store: b.store, Access: b.access, Subscriptions: b.hub})
		lifecycletest.Start(t, b.watcher)
		pass(b.watcher.cfg.RecheckFor + 3*b.watcher.cfg.Interval)
		b.hub.begin()
		test(b)
	})
}

// pass advances the bubble's time.
func pass(d time.Duration) {
	<-time.After(d)
	synctest.Wait()
}

func (b *watchBundle) add(t *testing.T, channelID, userID string) {
	t.Helper()
	if err := b.store.AddMembers(t.Context(), channelID, []string{userID}, time.Now()); err != nil {
		t.Fatal(err)
	}
}

func (b *watchBundle) remove(t *testing.T, channelID, userID string) Change {
	t.Helper()
	if err := b.store.RemoveMembers(t.Context(), channelID, []string{userID}, 0); err != nil {
		t.Fatal(err)
	}
	return Change{channelID, []string{userID}}
}

// wantLost fails the test unless exactly the wanted streams, each given as "channel subject", have
// lost their channel, each within that time after begin.
func (b *watchBundle) wantLost(t *testing.T, within time.Duration, want ...string) {
	t.Helper()
	b.hub.mu.Lock()
	defer b.hub.mu.Unlock()
	var got []string
	for k, d := range b.hub.lost {
		if got = append(got, k); d > within {
			t.Errorf("%s was lost after %s, want %s", k, d, within)
		}
	}
	slices.Sort(got)
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("lost: %s", diff)
	}
}

func TestWatcherAppliesHint(t *testing.T) {
	t.Parallel()
	watch(t, func(b *watchBundle) {
		b.store.script(func(_ context.Context, call string) error {
			if call == "Changes" {
				return errors.New("no poll tells of it")
			}
			return nil
		}, nil)
		b.watcher.Hint(b.remove(t, "closed", "bob"))
		b.watcher.Hint(b.remove(t, "open", "bob"))
		b.watcher.Hint(Change{"closed", []string{"ada"}}) // who is still a member
		b.watcher.Hint(Change{"none", []string{"ada"}})
		pass(10 * time.Millisecond)
		b.wantLost(t, 0, "closed bob")
		pass(10 * time.Second)
		b.wantLost(t, 0, "closed bob")
	})
}

// Without hints, polls of the store alone expel a removed member within a second, whenever the
// removal happens.
func TestWatcherPolls(t *testing.T) {
	t.Parallel()
	for at := range 10 {
		watch(t, func(b *watchBundle) {
			pass(time.Duration(at) * 50 * time.Millisecond)
			b.hub.begin()
			b.store.script(func(context.Context, string) error { <-time.After(100 * time.Millisecond); return nil }, nil)
			b.remove(t, "closed", "bob")
			b.remove(t, "open", "bob")
			pass(8 * time.Second)
			b.wantLost(t, time.Second, "closed bob")
			lifecycletest.Stop(t, b.watcher)
			if d, r := len(b.watcher.pending), len(b.watcher.recent); d+r != 0 {
				t.Errorf("%d pending checks and %d recent changes are left", d, r)
			}
		})
	}
}

// If a channel is created as members-only, everyone who subscribed to it before and is not a member
// loses it.
func TestWatcherChecksNewMembersOnlyChannel(t *testing.T) {
	t.Parallel()
	for _, hint := range []bool{false, true} {
		watch(t, func(b *watchBundle) {
			row := Row{ChannelID: "none", MembersOnly: true}
			if _, err := b.store.Create(t.Context(), row, []string{"ada"}); err != nil {
				t.Fatal(err)
			}
			if hint {
				b.watcher.Hint(Change{ChannelID: "none"})
			}
			pass(3 * time.Second)
			b.wantLost(t, 600*time.Millisecond, "none bob")
		})
	}
}

// away makes every call of the store fail from now on: at once, or only when its context ends if
// hang is set.
func (b *watchBundle) away(hang bool) {
	b.store.script(func(ctx context.Context, _ string) error {
		if hang {
			<-ctx.Done()
		}
		return errors.New("away")
	}, nil)
}

// If the store does not answer, users named by a hint are expelled within a second, and nobody
// else.
func TestWatcherFailsClosed(t *testing.T) {
	t.Parallel()
	for _, hang := range []bool{false, true} {
		watch(t, func(b *watchBundle) {
			if _, err := b.access.ForRead(t.Context(), bob, ident.History, "open", 0); err != nil { // caches that it is open
				t.Fatal(err)
			}
			change := b.remove(t, "closed", "bob")
			open := b.remove(t, "open", "bob")
			b.away(hang)
			b.watcher.Hint(change)
			b.watcher.Hint(open)
			b.watcher.Hint(Change{ChannelID: "none"}) // names no user
			pass(799 * time.Millisecond)
			b.wantLost(t, 0)
			pass(time.Millisecond)
			b.wantLost(t, 800*time.Millisecond, "closed bob")
			pass(10 * time.Second)
			b.wantLost(t, 800*time.Millisecond, "closed bob")
			// Once the store answers again, nobody else is expelled.
			b.store.script(nil, nil)
			pass(time.Second)
			b.wantLost(t, 800*time.Millisecond, "closed bob")
		})
	}
}

// A member who is named by a hint stays subscribed if the store answers again before
// ConfirmTimeout.
func TestWatcherWaitsForConfirmation(t *testing.T) {
	t.Parallel()
	watch(t, func(b *watchBundle) {
		b.away(false)
		b.watcher.Hint(Change{"closed", []string{"ada"}})
		pass(700 * time.Millisecond)
		b.store.script(func(context.Context, string) error { <-time.After(20 * time.Millisecond); return nil }, nil)
		pass(10 * time.Second)
		b.wantLost(t, 0)
	})
}

// If the store hangs, many users named by one hint are all expelled within ConfirmTimeout.
func TestWatcherFailsClosedForMany(t *testing.T) {
	t.Parallel()
	watch(t, func(b *watchBundle) {
		b.away(true)
		var want, users []string
		for i := range 500 {
			u := fmt.Sprintf("u%03d", i)
			b.hub.open("closed", u)
			want, users = append(want, "closed "+u), append(users, u)
		}
		b.watcher.Hint(Change{"closed", users})
		pass(3 * time.Second)
		b.wantLost(t, 800*time.Millisecond, want...)
	})
}

// A stream that was admitted by a check before the removal, and subscribed after the change was
// processed, loses the channel.
func TestWatcherRechecks(t *testing.T) {
	t.Parallel()
	watch(t, func(b *watchBundle) {
		b.watcher.Hint(b.remove(t, "closed", "bob"))
		pass(10 * time.Millisecond)
		b.wantLost(t, 0, "closed bob")
		pass(3 * time.Second)
		b.hub.open("closed", "bob")
		b.hub.begin()
		pass(time.Second)
		b.wantLost(t, 600*time.Millisecond, "closed bob")
		if w := b.hub.SubscribedSubjects("closed", message.ModeMembersOnly); !slices.Equal(w, []string{"ada"}) {
			t.Errorf("still there: %v", w)
		}
	})
}

// A check that began before a removal does not confirm the membership, even if its answer comes
// after the removal.
func TestWatcherIgnoresOlderChecks(t *testing.T) {
	t.Parallel()
	watch(t, func(b *watchBundle) {
		b.watcher.cfg.RecheckFor = 0
		b.store.script(func(_ context.Context, call string) error {
			if call == "Changes" {
				return errors.New("no poll tells of it")
			}
			return nil
		}, func(_ context.Context, call string) error {
			if call == "MembersOf" {
				<-time.After(100 * time.Millisecond) // the answer is in flight
			}
			return nil
		})
		b.watcher.Hint(Change{"closed", []string{"bob"}}) // who is still a member
		pass(50 * time.Millisecond)
		b.watcher.Hint(b.remove(t, "closed", "bob"))
		pass(time.Second)
		b.wantLost(t, 300*time.Millisecond, "closed bob")
	})
}

// A store whose every answer takes longer than Timeout is still heard.
func TestWatcherWaitsForAStoreThatIsSlow(t *testing.T) {
	t.Parallel()
	watch(t, func(b *watchBundle) {
		b.remove(t, "closed", "bob") // without a hint
		b.store.script(func(ctx context.Context, _ string) error {
			select {
			case <-time.After(900 * time.Millisecond):
				return nil
			case <-ctx.Done():
				return ctx.Err()
			}
		}, nil)
		pass(20 * time.Second)
		b.wantLost(t, 12*time.Second, "closed bob")
	})
}

// When a channel is closed, its subscribers are checked together, not one by one.
func TestWatcherChecksTheSubscribersOfAChannelTogether(t *testing.T) {
	t.Parallel()
	watch(t, func(b *watchBundle) {
		const subscribers = 1200
		b.hub.mu.Lock()
		var want []string
		for i := range subscribers {
			id := fmt.Sprintf("user-%04d", i)
			b.hub.streams["open"] = append(b.hub.streams["open"], id)
			if i%2 == 0 {
				b.store.members[membership{"open", id}] = Member{ChannelID: "open", UserID: id, Role: RoleMember}
			} else {
				want = append(want, "open "+id)
			}
		}
		b.hub.mu.Unlock()
		if _, err := b.store.SetSettings(t.Context(), "open", 0, Settings{MembersOnly: true}, time.Now()); err != nil {
			t.Fatal(err)
		}
		together, single := b.store.called("MembersIn"), b.store.called("MembersOf")
		b.hub.begin()
		b.watcher.Hint(Change{ChannelID: "open"})
		pass(400 * time.Millisecond) // before the next poll
		b.wantLost(t, 400*time.Millisecond, want...)
		if n, m := b.store.called("MembersIn")-together, b.store.called("MembersOf")-single; n > 12 || m > 0 {
			t.Errorf("%d calls for users of a channel and %d for channels of a user", n, m)
		}
	})
}

// A user who is removed and added again before the check stays subscribed.
func TestWatcherChecksCurrentMembership(t *testing.T) {
	t.Parallel()
	watch(t, func(b *watchBundle) {
		change := b.remove(t, "closed", "bob")
		b.add(t, "closed", "bob")
		b.watcher.Hint(change)
		pass(10 * time.Second)
		b.wantLost(t, 0)
	})
}

// A member stays subscribed while the store is slow and one hint after another names them.
func TestWatcherWithSlowStore(t *testing.T) {
	t.Parallel()
	for at := range 10 {
		watch(t, func(b *watchBundle) {
			pass(time.Duration(at) * 50 * time.Millisecond)
			b.store.script(func(_ context.Context, call string) error {
				if call == "MembersOf" {
					<-time.After(350 * time.Millisecond)
				}
				return nil
			}, nil)
			for range 5 {
				b.watcher.Hint(Change{"closed", []string{"ada"}})
				pass(777 * time.Millisecond)
			}
			b.wantLost(t, 0)
		})
	}
}

// A hint that a user was removed drops their cached membership at once, and so does a poll.
func TestWatcherDropsOldChanges(t *testing.T) {
	t.Parallel()
	watch(t, func(b *watchBundle) {
		b.access.cfg.MaxAge = time.Hour
		for _, tell := range []func(Change){b.watcher.Hint, func(Change) { pass(510 * time.Millisecond) }} {
			b.add(t, "closed", "bob")
			if _, err := b.access.ForRead(t.Context(), bob, ident.History, "closed", 0); err != nil {
				t.Fatal(err)
			}
			tell(b.remove(t, "closed", "bob"))
			if _, err := b.access.ForRead(t.Context(), bob, ident.History, "closed", 0); err == nil {
				t.Error("he may still read")
			}
		}
	})
}

// One poll of the store runs at a time, even if it is slow. Start fails if the store does not
// answer.
func TestWatcherPollsOneAtATime(t *testing.T) {
	t.Parallel()
	watch(t, func(b *watchBundle) {
		var mu sync.Mutex
		under, most, polls := 0, 0, 0
		b.store.script(func(ctx context.Context, call string) error {
			if call != "Changes" {
				return nil
			}
			mu.Lock()
			under++
			polls++
			most = max(most, under)
			mu.Unlock()
			<-ctx.Done()
			mu.Lock()
			under--
			mu.Unlock()
			return ctx.Err()
		}, nil)
		pass(10 * time.Second)
		mu.Lock()
		defer mu.Unlock()
		if most != 1 || polls < 6 || polls > 9 {
			t.Errorf("%d polls in 10 s, %d at a time", polls, most)
		}
	})
	synctest.Test(t, func(t *testing.T) {
		store := newFakeStore()
		store.script(func(ctx context.Context, _ string) error { <-ctx.Done(); return ctx.Err() }, nil)
		w := NewWatcher(WatcherConfig{Store: store, Access: NewAccess(AccessConfig{Store: store}), Subscriptions: &fakeHub{}})
		if err := w.Start(t.Context()); err == nil {
			t.Error("it starts without a place")
		}
		lifecycletest.Stop(t, w)
	})
}

func TestWatcherStartsAndStops(t *testing.T) {
	t.Parallel()
	b := setupAccess(t)
	hub := &fakeHub{streams: map[string][]string{"closed": {"ada", "bob"}}, members: map[string][]string{}, lost: map[string]time.Duration{}}
	lifecycletest.Stress[*Watcher](t, func(*testing.T) *Watcher {
		w := NewWatcher(WatcherConfig{Store: b.store, Access: b.access, Subscriptions: hub, Interval: time.Millisecond})
		w.Hint(Change{ChannelID: "closed"})
		return w
	})
}

// Hint may be called before, during and after Start and Stop.
func TestWatcherHintsBesideStartAndStop(t *testing.T) {
	t.Parallel()
	for i := range 50 {
		b := setupAccess(t)
		hub := &fakeHub{streams: map[string][]string{"closed": {"ada", "bob"}}, members: map[string][]string{}, lost: map[string]time.Duration{}}
		w := NewWatcher(WatcherConfig{Store: b.store, Access: b.access, Subscriptions: hub, Interval: time.Millisecond})
		var wg sync.WaitGroup
		wg.Go(func() { w.Hint(Change{ChannelID: "closed"}) })
		lifecycletest.Start(t, w)
		if i%2 == 0 {
			wg.Wait()
		}
		wg.Go(func() { w.Hint(Change{ChannelID: "closed"}) })
		lifecycletest.Stop(t, w)
		wg.Wait()
	}
}

// A subscription by membership ends with the membership, also in an open channel. Others of the
// same channel stay.
func TestWatcherEndsMembershipsOfOpenChannels(t *testing.T) {
	t.Parallel()
	watch(t, func(b *watchBundle) {
		b.hub.mu.Lock()
		b.hub.members["open"] = []string{"ada", "bob"}
		b.hub.mu.Unlock()
		if _, err := b.access.ForRead(t.Context(), ada, ident.History, "open", 0); err != nil { // the mode is in the cache now
			t.Fatal(err)
		}
		b.hub.begin()
		b.remove(t, "open", "bob")
		pass(time.Second)
		b.wantLost(t, time.Second, "open bob")
		b.hub.mu.Lock()
		defer b.hub.mu.Unlock()
		if !slices.Equal(b.hub.members["open"], []string{"ada"}) || !slices.Contains(b.hub.streams["open"], "bob") {
			t.Errorf("left: %v by membership, %v others", b.hub.members["open"], b.hub.streams["open"])
		}
	})
}

// A check that read the mode of a channel before it was closed does not stand for one of after
// that.
func TestWatcherChecksAgainIfTheChannelIsClosedMeanwhile(t *testing.T) {
	t.Parallel()
	watch(t, func(b *watchBundle) {
		b.hub.mu.Lock()
		b.hub.members["open"] = []string{"bob"}
		b.hub.mu.Unlock()
		if _, err := b.access.ForRead(t.Context(), ada, ident.History, "open", 0); err != nil { // the mode is in the cache now
			t.Fatal(err)
		}
		closed := make(chan struct{})
		var closing atomic.Bool
		b.store.script(nil, func(ctx context.Context, call string) error {
			if call != "MembersOf" || !closing.CompareAndSwap(false, true) {
				return nil
			}
			<-time.After(time.Millisecond)
			_, err := b.store.SetSettings(ctx, "open", 0, Settings{MembersOnly: true}, time.Now())
			b.watcher.Hint(Change{ChannelID: "open"})
			<-time.After(100 * time.Millisecond)
			close(closed)
			return err
		})
		b.hub.begin()
		b.remove(t, "open", "bob") // a poll finds it
		<-closed
		pass(150 * time.Millisecond) // before the next poll
		b.hub.mu.Lock()
		defer b.hub.mu.Unlock()
		if slices.Contains(b.hub.streams["open"], "bob") {
			t.Error("his stream without the membership has kept the channel")
		}
	})
}
