package retention_test

import (
	"context"
	"slices"
	"sync"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/parleyhq/parley/server/internal/channel"
	"github.com/parleyhq/parley/server/internal/lifecycle/lifecycletest"
	"github.com/parleyhq/parley/server/internal/message"
	"github.com/parleyhq/parley/server/internal/retention"
	"github.com/parleyhq/parley/server/internal/store/embedded"
)

func TestStress(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.append(room, 10, 0)
	r.advance(room)
	lifecycletest.Stress[*retention.Trimmer](t, func(t *testing.T) *retention.Trimmer {
		trimmer, err := retention.New(r.cfg)
		if err != nil {
			t.Fatal(err)
		}
		return trimmer
	})
}

// The newest messages stay, the others expire, lose their content after the grace time, and are
// deleted once they are old enough. Only then can their client_msg_id be used again.
func TestCount(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.cfg.Default = channel.Retention{MaxMessages: 300}
	r.now = r.now.Add(-2 * time.Hour)
	r.append(room, 250, 0)
	r.now = r.now.Add(2 * time.Hour)
	r.append(room, 350, 0)
	r.cache.seqs[room] = 200
	trimmer := r.start()
	trimmer.Advanced(r.advance(room))
	row := r.eventually(room, func(row *channel.Row) bool { return row.Trim.Stripped == 300 && row.Trim.Deleted == 250 })
	if row.Boundary != (message.Boundary{Oldest: 301, Expired: 300}) {
		t.Errorf("boundary %+v", row.Boundary)
	}
	if due := r.now.Add(time.Hour); row.Trim.Due.Before(due) || row.Trim.Due.After(due.Add(time.Minute)) {
		t.Errorf("due at %v, want %v", row.Trim.Due, due)
	}
	r.wantStripped(room, 301)
	if log := r.log(room); len(log) != 350 || log[0].Seq != 251 {
		t.Errorf("%d entries from %d on", len(log), log[0].Seq)
	}
	if r.cache.holds(room) {
		t.Error("the cache holds expired messages")
	}
	// Up to the slack more messages expire nothing.
	r.append(room, 100, 0)
	trimmer.Advanced(r.advance(room))
	r.append("other", 401, 0)
	trimmer.Advanced(r.advance("other"))
	r.eventually("other", func(row *channel.Row) bool { return row.Oldest == 102 })
	if oldest := r.row(room).Oldest; oldest != 301 {
		t.Errorf("oldest %d within the slack", oldest)
	}
	r.append(room, 1, 0)
	trimmer.Advanced(r.advance(room))
	r.eventually(room, func(row *channel.Row) bool { return row.Oldest == 402 && row.Trim.Stripped == 401 })
	r.wantStripped(room, 402)
}

// The expiry of a log's last entry does not end the log: it stays without its content.
func TestLastEntryStays(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.cfg.Default = channel.Retention{MaxAge: time.Minute}
	r.now = r.now.Add(-3 * time.Hour)
	r.append(room, 20, 0)
	r.append(room, 3, 20)
	trimmer := r.start()
	trimmer.Advanced(r.advance(room))
	row := r.eventually(room, func(row *channel.Row) bool { return row.Trim.Deleted == 22 && row.Trim.Stripped == 23 })
	if row.Boundary != (message.Boundary{Oldest: 24, Expired: 20}) || !row.Trim.Due.IsZero() {
		t.Errorf("row %+v", row)
	}
	if log := r.log(room); len(log) != 1 || log[0].Seq != 23 || log[0].Kind != message.KindExpired {
		t.Errorf("log %+v", log)
	}
	r.now = r.now.Add(3 * time.Hour)
	r.append(room, 1, 0)
	trimmer.Advanced(r.advance(room))
	row = r.eventually(room, func(row *channel.Row) bool { return !row.Trim.Due.IsZero() })
	if row.Oldest != 24 || row.Trim.Due.Before(r.now.Add(time.Minute)) {
		t.Errorf("row %+v after a new message at %v", row, r.now)
	}
}

// An unpublished entry does not expire: its event would have no content.
func TestUnpublishedEntriesStay(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.cfg.Default = channel.Retention{MaxAge: time.Minute}
	r.now = r.now.Add(-3 * time.Hour)
	r.append(room, 20, 0)
	r.advance(room)
	r.append(room, 5, 0)
	r.start()
	r.eventually(room, func(row *channel.Row) bool { return row.Oldest == 21 && row.Trim.Stripped == 20 })
	r.wantStripped(room, 21)
}

// A node that starts, and one that gets a shard, looks at all of its channels, and at no others.
func TestPass(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.cfg.Default = channel.Retention{MaxMessages: 10}
	mine, theirs := "a", "b"
	for i := 0; message.Shard(mine, shards) == message.Shard(theirs, shards); i++ {
		theirs += "b"
	}
	owner := &fakeOwner{owned: map[int]bool{message.Shard(mine, shards): true}, changed: make(chan struct{})}
	r.cfg.Owner = owner
	for _, id := range []string{mine, theirs} {
		r.append(id, 200, 0)
		r.advance(id)
	}
	r.start()
	r.eventually(mine, func(row *channel.Row) bool { return row.Oldest == 191 })
	if row := r.row(theirs); row.Oldest != 0 {
		t.Errorf("another node's channel: %+v", row)
	}
	owner.set(message.Shard(theirs, shards))
	r.eventually(theirs, func(row *channel.Row) bool { return row.Oldest == 191 })
}

type fakeOwner struct {
	mu      sync.Mutex
	owned   map[int]bool
	changed chan struct{}
}

func (o *fakeOwner) Owns(shard int) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.owned[shard]
}

func (o *fakeOwner) Changed() <-chan struct{} {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.changed
}

func (o *fakeOwner) set(shard int) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.owned[shard] = true
	close(o.changed)
	o.changed = make(chan struct{})
}

// A policy of a channel's own replaces the default, and takes effect without new messages.
func TestOwnPolicy(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.cfg.Default = channel.Retention{MaxMessages: 100}
	r.append(room, 400, 0)
	r.append("default", 400, 0)
	r.advance(room)
	r.advance("default")
	set := func(rev int64, own *channel.Retention) {
		t.Helper()
		if _, err := r.channels.SetSettings(t.Context(), room, rev, channel.Settings{Retention: own}, r.now); err != nil {
			t.Fatal(err)
		}
	}
	set(0, &channel.Retention{})
	r.start()
	r.eventually("default", func(row *channel.Row) bool { return row.Oldest == 301 })
	r.eventually(room, func(row *channel.Row) bool { return row.Oldest == 0 && row.Trim.Due.IsZero() })
	set(1, &channel.Retention{MaxBytes: 50 * 356})
	r.eventually(room, func(row *channel.Row) bool { return row.Oldest == 351 })
	set(2, nil)
	r.eventually(room, func(row *channel.Row) bool { return row.Oldest == 351 && row.Trim.Stripped == 350 })
}

// lateRows calls before ahead of each MoveBoundary.
type lateRows struct {
	*embedded.Channels

	before func()
}

func (l lateRows) MoveBoundary(ctx context.Context, id string, rev int64, to message.Boundary, due time.Time) (bool, error) {
	l.before()
	return l.Channels.MoveBoundary(ctx, id, rev, to, due)
}

// A Trimmer that was suspended does not apply a policy that has been relaxed meanwhile.
func TestRelaxedPolicy(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	if _, err := r.channels.Ensure(t.Context(), room, r.now); err != nil {
		t.Fatal(err)
	}
	if _, err := r.channels.SetSettings(t.Context(), room, 0, channel.Settings{Retention: &channel.Retention{MaxMessages: 1}}, r.now); err != nil {
		t.Fatal(err)
	}
	r.append(room, 200, 0)
	r.advance(room)
	relaxed := sync.OnceFunc(func() {
		if _, err := r.channels.SetSettings(t.Context(), room, 1, channel.Settings{Retention: &channel.Retention{MaxMessages: 150}}, r.now); err != nil {
			t.Error(err)
		}
	})
	r.cfg.Rows = lateRows{r.channels, relaxed}
	r.start()
	r.append("after", 200, 0)
	row := r.eventually(room, func(row *channel.Row) bool { return row.SettingsRev == 2 && row.Trim.Due.IsZero() })
	if row.Oldest != 0 {
		t.Errorf("the boundary was moved to %d", row.Oldest)
	}
}

// Entries stay as they are for the grace time after the boundary has passed them, because reads
// that know an earlier boundary may expect them.
func TestGrace(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.cfg.Grace = time.Hour
	r.cfg.Default = channel.Retention{MaxMessages: 1}
	r.append(room, 200, 0)
	trimmer := r.start()
	trimmer.Advanced(r.advance(room))
	row := r.eventually(room, func(row *channel.Row) bool {
		return row.Oldest == 200 && !row.Trim.Due.IsZero() && row.Trim.Due.After(r.now.Add(time.Minute))
	})
	if row.Trim.Stripped != 0 || slices.ContainsFunc(r.log(room), func(e message.Entry) bool { return e.Kind == message.KindExpired }) {
		t.Errorf("stripped at once: %+v", row.Trim)
	}
}

// TestBoundaryAgreesWithTheModel compares boundaries with those of a plain list.
func TestBoundaryAgreesWithTheModel(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	start := r.now
	run := 0
	rapid.Check(t, func(rt *rapid.T) {
		run++
		id := "room" + string(rune('a'+run%26)) + time.Duration(run).String()
		r.now = start.Add(-10 * time.Hour)
		for range rapid.IntRange(1, 12).Draw(rt, "runs") {
			r.now = r.now.Add(time.Duration(rapid.IntRange(0, 45).Draw(rt, "minutes")) * time.Minute)
			if r.last[id].Seq > 0 && rapid.Bool().Draw(rt, "edits") {
				r.append(id, rapid.IntRange(1, 4).Draw(rt, "n"), 1)
				continue
			}
			r.append(id, rapid.IntRange(1, 60).Draw(rt, "n"), 0)
		}
		policy := channel.Retention{
			MaxAge:      time.Duration(rapid.IntRange(0, 600).Draw(rt, "age")) * time.Minute,
			MaxMessages: int64(rapid.IntRange(0, 250).Draw(rt, "messages")),
			MaxBytes:    int64(rapid.IntRange(0, 100_000).Draw(rt, "bytes")),
		}
		var want message.Boundary
		log, last := r.log(id), r.last[id]
		held := last.Bytes - log[0].Bytes
		if policy.MaxAge > 0 && !log[0].MsgTime.After(start.Add(-policy.MaxAge)) ||
			policy.MaxMessages > 0 && last.Count > policy.MaxMessages+max(policy.MaxMessages/10, 100) ||
			policy.MaxBytes > 0 && held > policy.MaxBytes+policy.MaxBytes/10 {
			for i := range log {
				if e := &log[i]; policy.MaxAge > 0 && !e.MsgTime.After(start.Add(-policy.MaxAge)) ||
					policy.MaxMessages > 0 && last.Count-e.Count >= policy.MaxMessages ||
					policy.MaxBytes > 0 && last.Bytes-e.Bytes >= policy.MaxBytes {
					want.Expired = e.Count
				}
			}
			if at := slices.IndexFunc(log, func(e message.Entry) bool { return e.Count > want.Expired }); at >= 0 {
				want.Oldest = log[at].Seq
			} else {
				want.Oldest = last.Seq + 1
			}
		}
		cfg := r.cfg
		cfg.Default, cfg.Clock = policy, func(context.Context) (time.Time, error) { return start, nil }
		trimmer, err := retention.New(cfg)
		if err != nil {
			rt.Fatal(err)
		}
		r.advance(id)
		if err := trimmer.Look(t.Context(), r.row(id), start); err != nil {
			rt.Fatal(err)
		}
		if got := r.row(id).Boundary; got != want && (want.Oldest != 1 || got != (message.Boundary{})) {
			rt.Fatalf("boundary %+v, want %+v with %+v", got, want, policy)
		}
	})
}
