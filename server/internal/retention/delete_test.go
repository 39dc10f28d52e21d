package retention_test

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/parleyhq/parley/server/internal/channel"
	"github.com/parleyhq/parley/server/internal/lifecycle/lifecycletest"
	"github.com/parleyhq/parley/server/internal/message"
	"github.com/parleyhq/parley/server/internal/testkit"
)

// endLogs makes the Trimmers end logs by a real writer, and counts the calls.
func (r *rig) endLogs() (calls *atomic.Int64) {
	r.t.Helper()
	w := message.NewWriter(r.store, shards, message.WriterConfig{})
	lifecycletest.Start(r.t, w)
	calls = new(atomic.Int64)
	r.cfg.EndLog = func(ctx context.Context, row *channel.Row) (channel.LogEnd, error) {
		calls.Add(1)
		return channel.EndLog(ctx, r.channels, w, row, time.Now())
	}
	return calls
}

// A Trimmer completes a deletion whose node died after its first step. It clears entries only after
// they are published.
func TestDeletedChannel(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	calls := r.endLogs()
	r.append(room, 2500, 0)
	r.append(room, 1, 7)
	r.append("other", 3, 0)
	r.advance("other")
	r.cache.seqs[room], r.cache.seqs["other"] = 1, 1
	if _, err := r.channels.Ensure(t.Context(), room, r.now); err != nil {
		t.Fatal(err)
	}
	for _, id := range []string{room, "other"} {
		if err := r.channels.AddMembers(t.Context(), id, []string{"ann", "bob"}, r.now); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := r.channels.Delete(t.Context(), room, 0, r.now); err != nil {
		t.Fatal(err)
	}
	r.start()
	r.eventually(room, func(row *channel.Row) bool { return row.Oldest == 2503 && row.Expired == 2500 })
	waited := calls.Load() + 10
	testkit.Eventually(t, patience, func() error {
		if calls.Load() < waited {
			return errors.New("the channel was not looked at often enough")
		}
		return nil
	})
	r.wantStripped(room, 1)
	if row := r.row(room); row.State != channel.Deleting {
		t.Fatalf("row %+v before its entries are published", row)
	}
	r.last[room] = message.Entry{Message: message.Message{Seq: 2502, Count: 2500}}
	r.advance(room)
	r.eventually(room, func(row *channel.Row) bool { return row.State == channel.Deleted })
	entries := r.log(room)
	if len(entries) != 2502 {
		t.Fatalf("%d entries", len(entries))
	}
	for i := range entries {
		e := &entries[i]
		if e.Kind != message.KindExpired || e.Content != "" || e.FromID != message.ErasedUser || e.ClientMsgID != message.ErasedKey(e.Seq) {
			t.Fatalf("entry %+v", e)
		}
	}
	if r.cache.holds(room) || !r.cache.holds("other") {
		t.Error("the cache holds the deleted channel, or lost another one")
	}
	for id, want := range map[string]int{room: 0, "other": 2} {
		members, err := r.channels.Members(t.Context(), id, "", 10)
		if err != nil || len(members) != want {
			t.Errorf("%d members of %s, %v", len(members), id, err)
		}
	}
	r.wantStripped("other", 1)
}

// One look at a channel removes at most 10,000 members. The others wait for the next one.
func TestDeletedChannelWithManyMembers(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.endLogs()
	if _, err := r.channels.Ensure(t.Context(), room, r.now); err != nil {
		t.Fatal(err)
	}
	users := make([]string, 500)
	for step := range 21 {
		for i := range users {
			users[i] = fmt.Sprintf("user-%d-%d", step, i)
		}
		if err := r.channels.AddMembers(t.Context(), room, users, r.now); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := r.channels.Delete(t.Context(), room, 0, r.now); err != nil {
		t.Fatal(err)
	}
	look := r.looks()
	for _, want := range []int{500, 0} {
		if err := look(r.row(room)); err != nil {
			t.Fatal(err)
		}
		members, err := r.channels.Members(t.Context(), room, "", 1000)
		if err != nil || len(members) != want {
			t.Fatalf("%d members are left, %v, want %d", len(members), err, want)
		}
	}
}

// A channel that was trimmed before it was deleted is cleared as a whole, also stubs from before.
func TestDeletedChannelWithStubs(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.endLogs()
	r.cfg.Default = channel.Retention{MaxMessages: 10}
	r.append(room, 200, 0)
	r.advance(room)
	r.start()
	r.eventually(room, func(row *channel.Row) bool { return row.Trim.Stripped == 190 })
	row := r.row(room)
	if _, err := r.channels.Delete(t.Context(), room, row.SettingsRev, r.now); err != nil {
		t.Fatal(err)
	}
	r.eventually(room, func(row *channel.Row) bool { return row.Oldest == 202 })
	r.last[room] = message.Entry{Message: message.Message{Seq: 201, Count: 200}}
	r.advance(room)
	r.eventually(room, func(row *channel.Row) bool { return row.State == channel.Deleted })
	for _, e := range r.log(room) {
		if e.FromID != message.ErasedUser || e.Content != "" {
			t.Fatalf("entry %+v", e)
		}
	}
}

// The event stream can lose the events of a deleted channel. Once it has forgotten all of before,
// the deletion is completed without them.
func TestDeletedChannelWhoseEventsAreLost(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.endLogs()
	var ahead atomic.Int64
	r.cfg.EventsMaxAge = 24 * time.Hour
	r.cfg.Clock = func(context.Context) (time.Time, error) { return time.Now().Add(time.Duration(ahead.Load())), nil }
	r.append(room, 3, 0)
	if _, err := r.channels.Ensure(t.Context(), room, r.now); err != nil {
		t.Fatal(err)
	}
	if _, err := r.channels.Delete(t.Context(), room, 0, r.now); err != nil {
		t.Fatal(err)
	}
	r.start()
	r.eventually(room, func(row *channel.Row) bool { return row.Oldest == 5 })
	ahead.Store(int64(24 * time.Hour))
	r.eventually(room, func(row *channel.Row) bool { return row.Trim.Due.After(time.Now().Add(23 * time.Hour)) })
	if row := r.row(room); row.State != channel.Deleting {
		t.Fatalf("row %+v while the event stream may still have the events", row)
	}
	ahead.Store(int64(26 * time.Hour))
	r.eventually(room, func(row *channel.Row) bool { return row.State == channel.Deleted })
	for _, e := range r.log(room) {
		if e.Content != "" {
			t.Fatalf("entry %+v", e)
		}
	}
}
