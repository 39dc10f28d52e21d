package redislog

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/parleyhq/parley/server/internal/queue/qlog"
)

// state reads the state of a group.
func (r *inputRig) state(group string) map[string]string {
	r.tb.Helper()
	all, err := r.c.HGetAll(r.tb.Context(), r.s.keys.state(r.ref, group)).Result()
	r.check(err)
	return all
}

// lose removes keys, as a Redis that loses writes does.
func (r *inputRig) lose(keys ...string) {
	r.tb.Helper()
	r.check(r.c.Del(r.tb.Context(), keys...).Err())
}

// IDs increase also if the clock goes back, or if another node's Redis was ahead.
func TestIDsIncreaseWhenTheClockGoesBack(t *testing.T) {
	t.Parallel()
	r := newInputRig(t, nil)
	r.put(draft("a"))
	ahead := time.Now().Add(time.Hour).UnixMicro()
	r.check(r.c.HSet(t.Context(), r.s.keys.meta(r.ref), "last", ahead).Err())
	r.put(drafts("b", "c")...)
	r.put(later("d", time.Millisecond))
	r.eventually(func() bool { n, _ := r.due(); return n == 1 })
	r.put(draft("e"))
	all := r.entries()
	for i := 1; i < len(all); i++ {
		if want := qlog.ID(ahead + int64(i)); i < 3 && all[i].pos.ID != want {
			t.Errorf("entry %d: %d, want %d", i, all[i].pos.ID, want)
		}
		if all[i].pos.ID <= all[i-1].pos.ID || all[i].pos.Ord != all[i-1].pos.Ord+1 {
			t.Errorf("%s after %s", all[i].pos, all[i-1].pos)
		}
	}
	if len(all) != 5 {
		t.Errorf("%d entries", len(all))
	}
}

func TestAPartitionHealsFromItsStream(t *testing.T) {
	t.Parallel()
	r := newInputRig(t, nil)
	r.put(drafts("a", "b", "c")...)
	r.put(later("s", time.Hour))
	before := r.entries()
	version := r.c.HGet(t.Context(), r.s.keys.meta(r.ref), "gv").Val()
	r.settle("work", before[1].pos)
	r.lose(r.s.keys.meta(r.ref), r.s.keys.scheduled(bucketOf(wakes(r.ref))))
	r.s.input.registered = nil
	_, err := r.s.Put(t.Context(), r.ref, r.bounds, qlog.Put{Drafts: drafts("d")})
	if !errors.Is(err, qlog.ErrNoTopic) {
		t.Fatal(err)
	}
	r.check(r.s.MakePartition(t.Context(), r.topic, 0))
	r.put(draft("d"))
	after := r.entries()
	if got := after[3].pos; got.Ord != 4 || got.ID <= before[2].pos.ID {
		t.Errorf("after healing %s follows %s", got, before[2].pos)
	}
	if got := r.state("work")["cursor"]; got != before[1].pos.String() {
		t.Errorf("the group's cursor is %s, it was %s", got, before[1].pos)
	}
	if got := r.c.HGet(t.Context(), r.s.keys.meta(r.ref), "gv").Val(); got <= version {
		t.Errorf("the version of the groups was %s and is %s", version, got)
	}
	if refs, err := r.s.Scheduled(t.Context()); err != nil || len(refs) != 1 {
		t.Errorf("partitions with scheduled messages: %v, %v", refs, err)
	}
}

// The log is lost, or everything: IDs go on at Redis' time.
func TestAPartitionHealsWithoutItsStream(t *testing.T) {
	t.Parallel()
	r := newInputRig(t, nil)
	r.put(drafts("a", "b")...)
	last := r.entries()[1].pos
	r.lose(r.s.keys.main(r.ref))
	r.put(draft("c"))
	if got := r.entries()[0].pos; got.ID <= last.ID || got.Ord != 3 {
		t.Errorf("%s after %s", got, last)
	}
	last = r.entries()[0].pos
	r.lose(r.s.keys.main(r.ref), r.s.keys.meta(r.ref), r.s.keys.state(r.ref, "work"))
	r.check(r.s.MakePartition(t.Context(), r.topic, 0))
	r.put(draft("d"))
	got := r.entries()[0].pos
	if got.ID <= last.ID || got.Ord != 1 {
		t.Errorf("%s after %s", got, last)
	}
	if cursor, err := qlog.ParsePos(r.state("work")["cursor"]); err != nil || cursor.ID >= got.ID || cursor.Ord != 0 {
		t.Errorf("the cursor is %s: %v", cursor, err)
	}
}

// A stream that is ahead of its meta, as after a merge of two backups, is found by the first
// append.
func TestAMetaBehindItsStreamHeals(t *testing.T) {
	t.Parallel()
	r := newInputRig(t, nil)
	r.put(drafts("a")...)
	ahead := fmt.Sprintf("%d-%d", time.Now().Add(time.Hour).UnixMicro(), 7)
	r.check(r.c.Do(t.Context(), "XADD", r.s.keys.main(r.ref), ahead, "d", "x").Err())
	for _, all := range [][]qlog.Draft{drafts("b"), {later("c", 0), unique("c", qlog.ConflictReject)}} {
		if _, err := r.s.Put(t.Context(), r.ref, r.bounds, qlog.Put{Drafts: all}); !errors.Is(err, qlog.ErrNoTopic) {
			t.Fatal(err)
		}
	}
	r.check(r.s.MakePartition(t.Context(), r.topic, 0))
	r.put(draft("b"))
	all := r.entries()
	if got := all[2].pos; got.Ord != 8 || got.ID <= all[1].pos.ID {
		t.Errorf("%s after %s", got, all[1].pos)
	}
}

// A lost state begins at the start of the log: everything is redelivered, nothing is lost.
func TestALostStateBeginsAtTheStartOfTheLog(t *testing.T) {
	t.Parallel()
	r := newInputRig(t, func(topic *qlog.Topic) { topic.Groups = []qlog.Group{{Name: "work", Start: qlog.Start{End: true}}} })
	r.put(drafts("a", "b", "c")...)
	r.check(r.c.XTrimMaxLen(t.Context(), r.s.keys.main(r.ref), 2).Err())
	r.lose(r.s.keys.state(r.ref, "work"))
	r.check(r.s.MakePartition(t.Context(), r.topic, 0))
	first := r.entries()[0].pos
	want := qlog.Pos{ID: first.ID - 1, Ord: first.Ord - 1}.String()
	if got := r.state("work"); got["cursor"] != want || got["sent"] != want || got["base"] != "1" || got["ver"] != "0" {
		t.Errorf("%v, want the position %s", got, want)
	}
}

func TestAPartitionOfAnotherTopic(t *testing.T) {
	t.Parallel()
	r := newInputRig(t, nil)
	r.put(draft("a"))
	other := *r.topic
	other.UID, other.Version = "BBBBBBBBBBBBB", 9
	if err := r.s.MakePartition(t.Context(), &other, 0); !errors.Is(err, qlog.ErrNoTopic) {
		t.Error(err)
	}
	r.check(r.s.RemovePartition(t.Context(), &other, 0))
	if r.length() != 1 {
		t.Error("the other topic's removal removed it")
	}
	ref := r.group("work")
	ref.UID = other.UID
	if err := r.s.MakeGroup(t.Context(), ref, qlog.Start{}); !errors.Is(err, qlog.ErrNoTopic) {
		t.Error(err)
	}
	r.check(r.s.RemoveGroup(t.Context(), ref))
	if r.state("work")["uid"] == "" {
		t.Error("the other topic's removal removed the group")
	}
}

func TestRemovePartition(t *testing.T) {
	t.Parallel()
	r := newInputRig(t, nil)
	keyed := unique("k", qlog.ConflictReject)
	keyed.IdempotencyKey = "k"
	r.putAs("p", 1, draft("a"), later("s", time.Hour), keyed, draft(strings.Repeat("x", 5000)))
	r.check(r.s.MakeGroup(t.Context(), r.group("orphan"), qlog.Start{}))
	for _, g := range []string{"work", "orphan"} {
		r.check(r.c.HSet(t.Context(), r.s.keys.rows(r.ref, g), "1", "x").Err())
		r.check(r.c.HSet(t.Context(), r.s.keys.open(r.ref, g), "1", "x").Err())
		r.check(r.c.ZAdd(t.Context(), r.s.keys.due(r.ref, g), redis.Z{Member: "1"}).Err())
	}
	r.check(r.s.RemovePartition(t.Context(), r.topic, 0))
	r.check(r.s.RemovePartition(t.Context(), r.topic, 0))
	for _, key := range r.c.Keys(t.Context(), r.s.keys.main(r.ref)+"*").Val() {
		if r.c.TTL(t.Context(), key).Val() <= 0 {
			t.Errorf("%s is left for ever", key)
		}
	}
	// A later topic of the name knows nothing of it.
	next := *r.topic
	next.UID = "BBBBBBBBBBBBB"
	r.check(r.s.MakePartition(t.Context(), &next, 0))
	r.ref = next.Ref(0)
	r.wantResults(r.putAs("p", 1, draft("a"), later("s", time.Hour), keyed, draft(strings.Repeat("x", 5000))), "new, new, new, new")
}

func TestMakeGroupAtAPlace(t *testing.T) {
	t.Parallel()
	r := newInputRig(t, nil)
	r.put(drafts("a", "b", "c")...)
	all := r.entries()
	for name, c := range map[string]struct {
		start qlog.Start
		last  int64 // the ordinal that it begins after
	}{
		"beginning": {qlog.Start{}, 0},
		"end":       {qlog.Start{End: true}, 3},
		"at":        {qlog.Start{Time: all[1].pos.ID.Time()}, 1},
		"after":     {qlog.Start{Time: all[1].pos.ID.Time().Add(time.Nanosecond)}, 2},
		"before":    {qlog.Start{Time: time.Unix(1, 0)}, 0},
		"future":    {qlog.Start{Time: time.Now().Add(time.Hour)}, 3},
	} {
		r.check(r.s.MakeGroup(t.Context(), r.group(name), c.start))
		cursor, err := qlog.ParsePos(r.state(name)["cursor"])
		r.check(err)
		if cursor.Ord != c.last {
			t.Errorf("%s: begins after %s, want ordinal %d", name, cursor, c.last)
		}
		if c.last < 3 && cursor.ID >= all[c.last].pos.ID || c.last > 0 && cursor.ID < all[c.last-1].pos.ID {
			t.Errorf("%s: begins after %s", name, cursor)
		}
		// What is there is not moved.
		r.check(r.s.MakeGroup(t.Context(), r.group(name), qlog.Start{End: c.last != 3}))
		if again := r.state(name)["cursor"]; again != cursor.String() {
			t.Errorf("%s: made again it begins after %s, not %s", name, again, cursor)
		}
	}
}

func TestSeekGroup(t *testing.T) {
	t.Parallel()
	r := newInputRig(t, nil)
	r.put(drafts("a", "b", "c")...)
	all := r.entries()
	ctx, ref := t.Context(), r.group("work")
	r.check(r.c.HSet(ctx, r.s.keys.state(r.ref, "work"), "holder", "n1", "epoch", 7, "ver", 9, "acked", 2,
		"cursor", all[1].pos.String(), "sent", all[2].pos.String(), "open", 1).Err())
	r.check(r.c.HSet(ctx, r.s.keys.rows(r.ref, "work"), "1", "x").Err())
	r.check(r.c.HSet(ctx, r.s.keys.open(r.ref, "work"), "n0", "3").Err())
	version := r.c.HGet(ctx, r.s.keys.meta(r.ref), "gv").Val()
	if err := r.s.SeekGroup(ctx, ref, 6, qlog.Start{}); !errors.Is(err, qlog.ErrFenced) {
		t.Fatal(err)
	}
	r.check(r.s.SeekGroup(ctx, ref, 7, qlog.Start{Time: all[1].pos.ID.Time()}))
	got := r.state("work")
	if cursor, err := qlog.ParsePos(got["cursor"]); err != nil || cursor.Ord != 1 || got["sent"] != got["cursor"] || got["open"] != "0" ||
		got["holder"] != "" || len(got["epoch"]) < 16 || got["acked"] != "" {
		t.Errorf("%v, %v", got, err)
	}
	if n := r.c.Exists(ctx, r.s.keys.rows(r.ref, "work"), r.s.keys.open(r.ref, "work"), r.s.keys.due(r.ref, "work")).Val(); n != 0 {
		t.Errorf("%d keys are left", n)
	}
	if now := r.c.HGet(ctx, r.s.keys.meta(r.ref), "gv").Val(); now <= version {
		t.Errorf("the version of the groups was %s and is %s", version, now)
	}
	if err := r.s.SeekGroup(ctx, ref, 7, qlog.Start{}); !errors.Is(err, qlog.ErrFenced) {
		t.Errorf("again: %v", err)
	}
	if err := r.s.SeekGroup(ctx, r.group("none"), 7, qlog.Start{}); !errors.Is(err, qlog.ErrNoGroup) {
		t.Error(err)
	}
	r.check(r.s.RemoveGroup(ctx, ref))
	r.check(r.s.RemoveGroup(ctx, ref))
	if n := r.c.Exists(ctx, r.s.groupKeys(ref)...).Val(); n != 0 {
		t.Errorf("%d keys are left", n)
	}
	if _, names, err := r.s.groups(ctx, r.ref); err != nil || len(names) != 0 {
		t.Error(names, err)
	}
}
