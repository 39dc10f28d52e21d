package redislog

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/redis/go-redis/v9"

	"github.com/parleyhq/parley/server/internal/queue/qlog"
	"github.com/parleyhq/parley/server/internal/testkit"
)

// eachEngine runs test on a single server, on a cluster, and on the Redis within this process.
func eachEngine(t *testing.T, test func(t *testing.T, r *inputRig)) {
	t.Helper()
	t.Run("one", func(t *testing.T) {
		t.Parallel()
		test(t, newInputRig(t, nil))
	})
	t.Run("cluster", func(t *testing.T) {
		t.Parallel()
		test(t, inputRigOn(t, testkit.RedisClusterClient(t), nil))
	})
	t.Run("in process", func(t *testing.T) {
		t.Parallel()
		test(t, inProcessRig(t))
	})
}

// inProcessRig is inputRigOn for the Redis within this process.
func inProcessRig(t *testing.T) *inputRig {
	t.Helper()
	r := &inputRig{tb: t, c: testkit.InProcessRedisClient(t), topic: &qlog.Topic{
		Name: "jobs", UID: "AAAAAAAAAAAAA", Version: 1, Partitions: 1, Bounds: qlog.Bounds{Window: time.Minute},
		Groups: []qlog.Group{{Name: "work"}},
	}}
	r.ref, r.bounds = r.topic.Ref(0), r.topic.Bounds
	r.s = NewStore(r.c, StoreConfig{InProcess: true})
	r.check(r.s.MakePartition(t.Context(), r.topic, 0))
	return r
}

// acquire takes the lease of the group work.
func (r *inputRig) acquire(node string) qlog.State {
	r.tb.Helper()
	_, epoch, err := r.s.Lease(r.tb.Context(), r.group("work"))
	r.check(err)
	state, err := r.s.Acquire(r.tb.Context(), r.group("work"), node, epoch)
	r.check(err)
	return state
}

// read returns the positions of all entries.
func (r *inputRig) read() (at []qlog.Pos) {
	r.tb.Helper()
	for _, e := range r.entries() {
		at = append(at, e.pos)
	}
	return at
}

// after returns the next commit after a state, which changes no marks.
func after(state qlog.State) *qlog.Commit {
	return &qlog.Commit{
		Epoch: state.Epoch, Acked: state.Ver, Ver: state.Ver + 1, Cursor: state.Cursor, Sent: state.Sent, GroupsVersion: state.GroupsVersion,
	}
}

func (r *inputRig) commit(c *qlog.Commit) qlog.Committed {
	r.tb.Helper()
	answer, err := r.s.Commit(r.tb.Context(), r.group("work"), c)
	r.check(err)
	return answer
}

// wantCommit commits and fails the test if the error is not want, or if anything was changed then.
func (r *inputRig) wantCommit(c *qlog.Commit, want error) {
	r.tb.Helper()
	before := r.stored()
	if _, err := r.s.Commit(r.tb.Context(), r.group("work"), c); !errors.Is(err, want) {
		r.tb.Errorf("commit %d of epoch %d: %v, want %v", c.Ver, c.Epoch, err, want)
	}
	if diff := cmp.Diff(before, r.stored()); diff != "" {
		r.tb.Errorf("the refused commit changed\n%s", diff)
	}
}

// stored returns everything that the partition and the group have.
func (r *inputRig) stored() map[string]string {
	r.tb.Helper()
	ctx, k, all := r.tb.Context(), r.s.keys, map[string]string{}
	hashes := []string{
		k.state(r.ref, "work"), k.open(r.ref, "work"), k.rows(r.ref, "work"), k.meta(r.ref), k.sizes(r.ref), k.deadData(r.ref),
	}
	for _, key := range hashes {
		fields, err := r.c.HGetAll(ctx, key).Result()
		r.check(err)
		for name, value := range fields {
			all[key+" "+name] = value
		}
	}
	due, err := r.c.ZRangeWithScores(ctx, k.due(r.ref, "work"), 0, -1).Result()
	r.check(err)
	all["due"] = fmt.Sprint(due)
	for _, stream := range []string{k.main(r.ref), k.deadLetters(r.ref)} {
		entries, err := r.c.XRange(ctx, stream, "-", "+").Result()
		r.check(err)
		all[stream] = fmt.Sprint(entries)
	}
	return all
}

func (r *inputRig) field(name string) string {
	r.tb.Helper()
	value, err := r.c.HGet(r.tb.Context(), r.s.keys.state(r.ref, "work"), name).Result()
	if err != nil && !errors.Is(err, redis.Nil) {
		r.tb.Fatal(err)
	}
	return value
}

// allRows returns all rows and open chunks.
func (r *inputRig) allRows() (map[qlog.ID]qlog.Row, map[int64]string) {
	r.tb.Helper()
	rows, chunks := map[qlog.ID]qlog.Row{}, map[int64]string{}
	for cursor, more := uint64(0), true; more; more = cursor != 0 {
		page, next, err := r.s.Rows(r.tb.Context(), r.group("work"), cursor)
		r.check(err)
		maps.Copy(rows, page)
		cursor = next
	}
	for cursor, more := uint64(0), true; more; more = cursor != 0 {
		page, next, err := r.s.Open(r.tb.Context(), r.group("work"), cursor)
		r.check(err)
		maps.Copy(chunks, page)
		cursor = next
	}
	return rows, chunks
}

// TestCommitApplies commits one of each change and reads it back.
func TestCommitApplies(t *testing.T) {
	t.Parallel()
	eachEngine(t, func(t *testing.T, r *inputRig) {
		r.put(drafts("a", "b", "c", "d")...)
		at := r.read()
		state := r.acquire("n1")
		now := time.UnixMilli(1_800_000_000_123)
		c := after(state)
		c.Cursor, c.Sent = at[0], at[3]
		c.Open = map[int64]string{0: "2-4"}
		c.Rows = map[qlog.ID]qlog.Row{
			at[1].ID: {State: qlog.RowBegun, Gen: 2, Attempts: 1, Session: "a session", Since: now, Code: "-", Reason: "it failed  so"},
			at[2].ID: {State: qlog.RowRetrying, Gen: 1, Attempts: 1, Due: now.Add(time.Second)},
		}
		c.Add = qlog.Counters{Acked: 1, Retried: 1}
		answer := r.commit(c)
		if answer.Last != at[3] || answer.GroupsVersion != state.GroupsVersion || answer.Largest != nil {
			t.Errorf("the answer is %+v", answer)
		}
		rows, chunks := r.allRows()
		if diff := cmp.Diff(c.Rows, rows); diff != "" {
			t.Errorf("rows:\n%s", diff)
		}
		if diff := cmp.Diff(c.Open, chunks); diff != "" {
			t.Errorf("chunks:\n%s", diff)
		}
		if r.field("open") != "3" || r.c.ZCard(t.Context(), r.s.keys.due(r.ref, "work")).Val() != 1 {
			t.Errorf("open %s", r.field("open"))
		}

		c = &qlog.Commit{
			Epoch: c.Epoch, Acked: c.Ver, Ver: c.Ver + 1, Cursor: at[2], Sent: at[3], Open: map[int64]string{0: "4"},
			DeleteRows: []qlog.ID{at[1].ID, at[2].ID}, Add: qlog.Counters{Acked: 1, Dead: 1}, GroupsVersion: state.GroupsVersion,
			Dead: []qlog.DeadLetter{{Pos: at[2], MessageID: "m", Attempts: 3, Reason: "why", Code: "C"}}, Delete: at[1:3], Release: true,
		}
		r.commit(c)
		if rows, chunks = r.allRows(); len(rows) != 0 || chunks[0] != "4" || r.field("open") != "1" {
			t.Errorf("rows %v, chunks %v, %s open", rows, chunks, r.field("open"))
		}
		if got := r.read(); !slices.Equal(got, []qlog.Pos{at[0], at[3]}) {
			t.Errorf("the log has %v", got)
		}
		letters := r.c.XRange(t.Context(), r.s.keys.deadLetters(r.ref), "-", "+").Val()
		if len(letters) != 1 || letters[0].Values["r"] != "why" || letters[0].Values["e"] != at[2].String() ||
			r.c.HGet(t.Context(), r.s.keys.deadData(r.ref), letters[0].ID).Val() != "c" {
			t.Errorf("dead letters %v", letters)
		}
		if holder, epoch, err := r.s.Lease(t.Context(), r.group("work")); holder != "" || epoch != state.Epoch || err != nil {
			t.Errorf("after the release: %q, %d, %v", holder, epoch, err)
		}
		again := r.acquire("n2")
		want := qlog.Counters{Acked: 2, Dead: 1, Retried: 1}
		if again.Ver != c.Ver || again.Cursor != at[2] || again.Sent != at[3] || again.Counters != want || again.Epoch <= state.Epoch ||
			again.Holder != "n2" || again.Last != at[3] || !again.Released {
			t.Errorf("acquired %+v", again)
		}
		for _, unsure := range []bool{true, false} {
			c = after(again)
			c.Release, c.Unsure = true, unsure
			r.commit(c)
			if again = r.acquire("n2"); again.Released == unsure {
				t.Errorf("acquired after a release, unsure %t: %+v", unsure, again)
			}
		}
	})
}

// TestCommitRules has a case for each rule of the commit.
func TestCommitRules(t *testing.T) {
	t.Parallel()
	eachEngine(t, func(t *testing.T, r *inputRig) {
		r.put(drafts("a", "b", "c")...)
		at := r.read()
		first := r.acquire("n1")
		c1 := after(first)
		c1.Sent, c1.Open, c1.Add.Retried = at[1], map[int64]string{0: "1-2"}, 1
		r.commit(c1)
		r.wantCommit(c1, nil) // repeated byte for byte

		c2 := after(first)
		c2.Acked, c2.Ver, c2.Sent, c2.Open, c2.Add.Acked = 1, 2, at[1], map[int64]string{0: "2"}, 1
		r.commit(c2)
		r.wantCommit(c1, nil) // a copy of an earlier one
		r.wantCommit(&qlog.Commit{Epoch: first.Epoch, Acked: 3, Ver: 4}, qlog.ErrRolledBack)
		r.wantCommit(&qlog.Commit{Epoch: first.Epoch + 1, Acked: 2, Ver: 3}, qlog.ErrRolledBack)

		second := r.acquire("n2")
		r.wantCommit(c2, qlog.ErrFenced) // a copy after a takeover
		c3 := after(first)
		c3.Acked, c3.Ver = 2, 3
		r.wantCommit(c3, qlog.ErrFenced)
		c3.Epoch = second.Epoch
		r.commit(c3)

		wrong := r.group("work")
		wrong.UID = "BBBBBBBBBBBBB"
		if _, err := r.s.Commit(t.Context(), wrong, c3); !errors.Is(err, qlog.ErrNoTopic) {
			t.Errorf("another topic of the name: %v", err)
		}
		if _, err := r.s.Commit(t.Context(), r.group("other"), c3); !errors.Is(err, qlog.ErrNoGroup) {
			t.Errorf("no group: %v", err)
		}
		r.check(r.s.RemoveGroup(t.Context(), r.group("work")))
		r.wantCommit(c3, qlog.ErrNoGroup)
		r.check(r.c.Del(t.Context(), r.s.keys.meta(r.ref)).Err())
		r.wantCommit(c3, qlog.ErrNoTopic)
	})
}

// TestCommitAfterALoss restores an older state, as a server with an older file has it.
func TestCommitAfterALoss(t *testing.T) {
	t.Parallel()
	r := newInputRig(t, nil)
	ctx, key := t.Context(), r.s.keys.state(r.ref, "work")
	state := r.acquire("n1")
	restore := func(dump string) { r.check(r.c.RestoreReplace(ctx, key, 0, dump).Err()) }
	acquired := r.c.Dump(ctx, key).Val()
	c1 := after(state)
	c1.Add.Acked = 1
	r.commit(c1)
	c2 := *c1
	c2.Acked, c2.Ver = 1, 2
	r.commit(&c2)
	c3 := c2
	c3.Acked, c3.Ver = 2, 3

	restore(acquired)
	r.wantCommit(&c3, qlog.ErrRolledBack)
	// A late copy of an acknowledged commit that was lost is applied: it was one.
	r.commit(c1)
	r.wantCommit(c1, nil)
	r.wantCommit(&c3, qlog.ErrRolledBack)
	again := r.acquire("n1")
	if again.Ver != 1 || again.Counters.Acked != 1 {
		t.Errorf("reloaded %+v", again)
	}
	r.wantCommit(c1, qlog.ErrFenced)
	// The acquisition itself is lost.
	restore(acquired)
	c := after(again)
	r.wantCommit(c, qlog.ErrRolledBack)
}

// TestAcquire checks who gets a lease.
func TestAcquire(t *testing.T) {
	t.Parallel()
	eachEngine(t, func(t *testing.T, r *inputRig) {
		state := r.acquire("n1")
		if _, err := r.s.Acquire(t.Context(), r.group("work"), "n2", 0); !errors.Is(err, qlog.ErrHeld) {
			t.Errorf("another node that saw no lease: %v", err)
		}
		if holder, epoch, err := r.s.Lease(t.Context(), r.group("work")); holder != "n1" || epoch != state.Epoch || err != nil {
			t.Errorf("the lease is of %s, %d, %v", holder, epoch, err)
		}
		if _, err := r.s.Acquire(t.Context(), r.group("other"), "n2", 0); !errors.Is(err, qlog.ErrNoGroup) {
			t.Errorf("no group: %v", err)
		}
		if _, _, err := r.s.Lease(t.Context(), r.group("other")); !errors.Is(err, qlog.ErrNoGroup) {
			t.Errorf("the lease of no group: %v", err)
		}
		// Also if the clock is behind the stored epoch.
		ahead := state.Epoch + int64(time.Hour/time.Microsecond)
		r.check(r.c.HSet(t.Context(), r.s.keys.state(r.ref, "work"), "epoch", ahead).Err())
		if got := r.acquire("n2"); got.Epoch != ahead+1 {
			t.Errorf("epoch %d after %d", got.Epoch, ahead)
		}
	})
}

// TestDeletionsNeedTheGroupsVersion changes the groups between the look and the removal.
func TestDeletionsNeedTheGroupsVersion(t *testing.T) {
	t.Parallel()
	eachEngine(t, func(t *testing.T, r *inputRig) {
		r.put(drafts("a", "b", "c")...)
		at := r.read()
		state := r.acquire("n1")
		r.check(r.s.MakeGroup(t.Context(), r.group("second"), qlog.Start{}))
		c := after(state)
		c.Sent, c.Add.Acked, c.Delete = at[2], 2, at[1:]
		answer := r.commit(c)
		if answer.GroupsVersion == state.GroupsVersion || len(r.read()) != 3 || r.field("acked") != "2" {
			t.Errorf("version %d after %d, log %v", answer.GroupsVersion, state.GroupsVersion, r.read())
		}
		if _, err := r.s.Sweep(t.Context(), r.ref, state.GroupsVersion, at[1:]); !errors.Is(err, qlog.ErrStale) {
			t.Errorf("a sweep by an old version: %v", err)
		}
		if n, err := r.s.Sweep(t.Context(), r.ref, answer.GroupsVersion, at[1:2]); n != 1 || err != nil {
			t.Errorf("swept %d, %v", n, err)
		}
		if n, err := r.s.Sweep(t.Context(), r.ref, answer.GroupsVersion, at[1:]); n != 1 || err != nil || len(r.read()) != 1 {
			t.Errorf("swept again %d, %v", n, err)
		}
		if n, err := r.s.Sweep(t.Context(), qlog.Ref{Topic: "jobs", UID: "B"}, 1, at); n != 0 || !errors.Is(err, qlog.ErrNoTopic) {
			t.Errorf("swept another topic: %d, %v", n, err)
		}
	})
}

// TestDeadLettersAreBounded checks that dead letters of more than 1 MiB are refused together, and
// accepted alone, and that what is gone counts as trimmed.
func TestDeadLettersAreBounded(t *testing.T) {
	t.Parallel()
	r := newInputRig(t, nil)
	large := strings.Repeat("x", qlog.MaxRecordBytes)
	for range 4 {
		r.put(draft(large))
	}
	at := r.read()
	state := r.acquire("n1")
	if !slices.Equal(state.Largest, []int{qlog.MaxRecordBytes}) {
		t.Errorf("the largest is %v", state.Largest)
	}
	c := after(state)
	c.Cursor, c.Sent, c.Add.Dead = at[3], at[3], 4
	for _, pos := range at {
		c.Dead = append(c.Dead, qlog.DeadLetter{Pos: pos, MessageID: "m"})
	}
	r.wantCommit(c, qlog.ErrTooLarge)
	r.check(r.c.XDel(t.Context(), r.s.keys.main(r.ref), at[1].String()).Err())
	r.commit(c)
	if r.field("dead") != "3" || r.field("trimmed") != "1" || r.c.XLen(t.Context(), r.s.keys.deadLetters(r.ref)).Val() != 3 {
		t.Errorf("%s dead, %s trimmed", r.field("dead"), r.field("trimmed"))
	}
}

// TestCommitLimits checks the limits that are checked before the call.
func TestCommitLimits(t *testing.T) {
	t.Parallel()
	r := newInputRig(t, nil)
	c := after(r.acquire("n1"))
	for i := range qlog.MaxChanges + 1 {
		c.DeleteRows = append(c.DeleteRows, qlog.ID(i+1))
	}
	r.wantCommit(c, qlog.ErrTooLarge)
	c.DeleteRows = c.DeleteRows[1:]
	r.commit(c)
	c = &qlog.Commit{Epoch: c.Epoch, Acked: 1, Ver: 2, Rows: map[qlog.ID]qlog.Row{}}
	for i := range 3 {
		c.Rows[qlog.ID(i)] = qlog.Row{State: qlog.RowWaiting, Reason: strings.Repeat("x", qlog.MaxCallBytes/3)}
	}
	r.wantCommit(c, qlog.ErrTooLarge)
	c.Rows, c.Ver = nil, 3
	if _, err := r.s.Commit(t.Context(), r.group("work"), c); err == nil || errors.Is(err, qlog.ErrTooLarge) {
		t.Errorf("a version that is not the next: %v", err)
	}
}

// TestUniqueKeysAreFreed settles messages with unique keys, one of which was scheduled.
func TestUniqueKeysAreFreed(t *testing.T) {
	t.Parallel()
	r := newInputRig(t, nil)
	r.check(r.s.MakeGroup(t.Context(), r.group("second"), qlog.Start{}))
	one, two := draft("a"), draft("b")
	one.UniqueKey, two.UniqueKey, two.Delay = "k1", "k2", time.Millisecond
	r.put(one, two)
	r.eventually(func() bool {
		_, _, err := r.s.Due(t.Context(), r.ref)
		r.check(err)
		return r.length() == 2
	})
	at := r.read()
	exists := func() (n int64) {
		return r.c.Exists(t.Context(), r.s.keys.unique(r.ref, "k1"), r.s.keys.unique(r.ref, "k2")).Val()
	}
	for i, group := range []string{"work", "second"} {
		state, err := r.s.Acquire(t.Context(), r.group(group), "n1", 0)
		r.check(err)
		c := after(state)
		c.FreeUnique = map[string]qlog.ID{"k1": at[0].ID, "k2": at[1].ID, "k3": 1}
		for range 2 {
			_, err = r.s.Commit(t.Context(), r.group(group), c)
			r.check(err)
		}
		if want := int64(2 - 2*i); exists() != want {
			t.Errorf("after group %s %d unique keys are in use, want %d", group, exists(), want)
		}
	}
	// One that another message has by now stays.
	r.put(one)
	c := after(r.acquire("n2"))
	c.FreeUnique = map[string]qlog.ID{"k1": at[0].ID}
	r.commit(c)
	if exists() != 1 {
		t.Error("the key of another message was freed")
	}
}

// TestSettlingWithoutMemory fills a server and goes on.
func TestSettlingWithoutMemory(t *testing.T) {
	t.Parallel()
	server := testkit.Redis(t)
	r := inputRigOn(t, server.Client(t), nil)
	r.put(drafts("a", "b", "c")...)
	at := r.read()
	r.check(r.c.ConfigSet(t.Context(), "maxmemory", "1").Err())
	if err := r.c.Set(t.Context(), "k", "v", 0).Err(); err == nil {
		t.Fatal("the server has memory")
	}
	state := r.acquire("n1")
	c := after(state)
	c.Cursor, c.Sent, c.Open = at[0], at[2], map[int64]string{0: "2-3"}
	c.Add.Dead, c.Dead = 1, []qlog.DeadLetter{{Pos: at[0]}}
	c.Rows = map[qlog.ID]qlog.Row{at[1].ID: {State: qlog.RowRetrying, Gen: 1, Attempts: 1, Due: state.Now}}
	answer := r.commit(c)
	if n, err := r.s.Sweep(t.Context(), r.ref, answer.GroupsVersion, at[:1]); n != 1 || err != nil {
		t.Errorf("swept %d, %v", n, err)
	}
	if _, err := r.s.Put(t.Context(), r.ref, r.bounds, qlog.Put{Drafts: drafts("d")}); !errors.Is(err, qlog.ErrNoMemory) {
		t.Errorf("put: %v", err)
	}
}
