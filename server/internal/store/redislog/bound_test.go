package redislog

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/parleyhq/parley/server/internal/queue/qlog"
	"github.com/parleyhq/parley/server/internal/testkit"
)

// bounded makes a rig whose partitions hold up to n messages.
func bounded(t *testing.T, n int64) *inputRig {
	t.Helper()
	return newInputRig(t, func(topic *qlog.Topic) { topic.MaxMessages = n })
}

func TestFull(t *testing.T) {
	t.Parallel()
	r := bounded(t, 3)
	full := qlog.ErrFull.Error()
	// Scheduled messages count. What found no room is refused, the others are stored.
	r.wantResults(r.put(later("s", time.Hour), draft("a")), "new, new")
	r.wantResults(r.put(drafts("b", "c")...), "new, "+full)
	keyed := draft("k")
	keyed.IdempotencyKey = "k"
	r.wantResults(r.put(keyed, later("s2", time.Hour)), full+", "+full)
	if n := r.length(); n != 2 {
		t.Errorf("%d entries", n)
	}
	// A repeat of what was stored is not refused.
	r2 := bounded(t, 1)
	r2.wantResults(r2.put(keyed), "new")
	r2.wantResults(r2.put(keyed, draft("x")), "dup, "+full)
}

func TestFullRefusesASequenceAsAWhole(t *testing.T) {
	t.Parallel()
	r := bounded(t, 3)
	full := qlog.ErrFull.Error()
	r.wantResults(r.put(drafts("a", "b")...), "new, new")
	r.wantResults(r.putAs("p", 1, drafts("c", "d")...), full+", "+full)
	keyed := draft("k")
	keyed.IdempotencyKey = "k"
	r.wantResults(r.putAs("p", 2, draft("c"), keyed), full+", "+full)
	if n := r.length(); n != 2 {
		t.Fatalf("%d entries", n)
	}
	// Not recorded: once there is room it is stored.
	r.settle("work", r.entries()[0].pos)
	r.wantResults(r.putAs("p", 1, drafts("c", "d")...), "new, new")
	r.wantResults(r.putAs("p", 1, drafts("c", "d")...), "dup, dup")
	// What is known already needs no room.
	r = bounded(t, 3)
	r.wantResults(r.put(keyed, draft("a")), "new, new")
	r.wantResults(r.putAs("p", 1, draft("b"), keyed), "new, dup")
}

// Settled messages never fill a partition, regardless of the retention.
func TestSettledMessagesNeverFillATopic(t *testing.T) {
	t.Parallel()
	r := newInputRig(t, func(topic *qlog.Topic) { topic.MaxMessages, topic.RetainAge = 10, time.Hour })
	for range 5 {
		for range 10 {
			r.wantResults(r.put(draft("a")), "new")
		}
		r.wantResults(r.put(draft("b")), qlog.ErrFull.Error())
		all := r.entries()
		r.settle("work", all[len(all)-1].pos)
	}
}

// One message in flight keeps those behind it in the log, but they do not count (finding 6).
func TestAnOpenMessageDoesNotFillATopic(t *testing.T) {
	t.Parallel()
	r := newInputRig(t, func(topic *qlog.Topic) {
		topic.MaxMessages, topic.Groups = 10, []qlog.Group{{Name: "work"}, {Name: "fast"}}
	})
	for range 10 {
		r.put(draft("a"))
	}
	all := r.entries()
	// The first is open in one group, all others are settled everywhere.
	r.settle("work", all[9].pos)
	r.settle("fast", all[9].pos)
	r.check(r.c.HSet(t.Context(), r.s.keys.state(r.ref, "work"), "cursor", fmt.Sprintf("%d-0", all[0].pos.ID-1), "open", 1).Err())
	for range 9 {
		r.wantResults(r.put(draft("b")), "new")
	}
	r.wantResults(r.put(draft("c")), qlog.ErrFull.Error())
	if first := r.entries()[0].pos; first != all[0].pos {
		t.Errorf("the open message was removed: the first is %s", first)
	}
	// A group whose state is lost may need everything.
	r.check(r.c.Del(t.Context(), r.s.keys.state(r.ref, "fast")).Err())
	r.settle("work", qlog.Pos{ID: all[0].pos.ID - 1, Ord: 19})
	r.wantResults(r.put(draft("c")), qlog.ErrFull.Error())
}

func TestDropOldest(t *testing.T) {
	t.Parallel()
	r := newInputRig(t, func(topic *qlog.Topic) { topic.MaxMessages, topic.DropOldest = 5, true })
	full := qlog.ErrFull.Error()
	r.wantResults(r.put(drafts("a", "b", "c", "d", "e", "f", "g")...), "new, new, new, new, new, new, new")
	bodies := func() string {
		var all []string
		for _, e := range r.entries() {
			all = append(all, fmt.Sprint(e.fields["d"]))
		}
		return strings.Join(all, "")
	}
	if got := bodies(); got != "cdefg" {
		t.Errorf("the log has %s", got)
	}
	// Scheduled messages make room among those of the log, but are never dropped.
	r.wantResults(r.put(later("1", time.Hour), later("2", time.Hour), draft("h")), "new, new, new")
	if got := bodies(); got != "fgh" {
		t.Errorf("the log has %s", got)
	}
	r.wantResults(r.put(later("3", time.Hour), later("4", time.Hour), later("5", time.Hour), later("6", time.Hour)), "new, new, new, "+full)
	r.wantResults(r.put(draft("i")), full)
	if got := bodies(); got != "" {
		t.Errorf("the log has %s", got)
	}
	if n := r.c.ZCard(t.Context(), r.s.keys.delayed(r.ref)).Val(); n != 5 {
		t.Errorf("%d scheduled", n)
	}
}

func TestTrim(t *testing.T) {
	t.Parallel()
	r := newInputRig(t, func(topic *qlog.Topic) { topic.Groups = []qlog.Group{{Name: "a"}, {Name: "b"}} })
	trim := func(b qlog.Bounds, want int) {
		t.Helper()
		if n, err := r.s.Trim(t.Context(), r.ref, b, 1000); err != nil || n != want {
			t.Errorf("%d removed, want %d: %v", n, want, err)
		}
	}
	for range 10 {
		r.put(draft("x"))
	}
	all := r.entries()
	trim(qlog.Bounds{}, 0)
	r.settle("a", all[5].pos)
	trim(qlog.Bounds{}, 0)
	r.settle("b", all[3].pos)
	trim(qlog.Bounds{RetainAge: time.Hour}, 0)
	trim(qlog.Bounds{RetainAge: time.Hour, RetainMessages: 9}, 1)
	trim(qlog.Bounds{RetainAge: time.Hour, RetainMessages: 2}, 3)
	trim(qlog.Bounds{}, 0)
	r.settle("b", all[9].pos)
	r.eventually(func() bool { return time.Since(all[4].pos.ID.Time()) > 2*time.Millisecond })
	trim(qlog.Bounds{RetainAge: time.Millisecond}, 2)
	if first := r.entries()[0].pos; first != all[6].pos {
		t.Errorf("the first is %s, want %s", first, all[6].pos)
	}
	// A group whose state was lost may need everything.
	r.settle("a", all[9].pos)
	r.check(r.c.Del(t.Context(), r.s.keys.state(r.ref, "a")).Err())
	trim(qlog.Bounds{}, 0)
	r.check(r.s.RemoveGroup(t.Context(), r.group("a")))
	trim(qlog.Bounds{}, 4)
}

// A topic without groups keeps everything.
func TestTrimWithoutGroups(t *testing.T) {
	t.Parallel()
	r := newInputRig(t, func(topic *qlog.Topic) { topic.Groups, topic.MaxMessages = nil, 2 })
	r.wantResults(r.put(drafts("a", "b", "c")...), "new, new, "+qlog.ErrFull.Error())
	if n, err := r.s.Trim(t.Context(), r.ref, qlog.Bounds{}, 1000); err != nil || n != 0 {
		t.Errorf("%d removed: %v", n, err)
	}
}

func TestTrimIsBounded(t *testing.T) {
	t.Parallel()
	r := newInputRig(t, nil)
	for range 25 {
		var all []qlog.Draft
		for range 100 {
			all = append(all, draft("x"))
		}
		r.put(all...)
	}
	all := r.entries()
	r.settle("work", all[len(all)-1].pos)
	total := 0
	for total < 2500 {
		n, err := r.s.Trim(t.Context(), r.ref, qlog.Bounds{}, 500)
		r.check(err)
		if n == 0 || n > 500 {
			t.Fatalf("%d removed after %d", n, total)
		}
		total += n
	}
	if n := r.length(); n != 0 {
		t.Errorf("%d are left", n)
	}
}

// What is known about messages leaves with them.
func TestTrimForgetsSizesAndMoves(t *testing.T) {
	t.Parallel()
	r := newInputRig(t, nil)
	r.put(later("a", time.Millisecond))
	r.eventually(func() bool { n, _ := r.due(); return n == 1 })
	id := fmt.Sprint(r.entries()[0].fields["i"])
	r.put(draft("b"))
	r.put(later("c", time.Millisecond))
	r.eventually(func() bool { n, _ := r.due(); return n == 1 })
	all := r.entries()
	r.settle("work", all[1].pos)
	if n, err := r.s.Trim(t.Context(), r.ref, qlog.Bounds{}, 1000); err != nil || n != 2 {
		t.Fatal(n, err)
	}
	got, err := r.s.Cancel(t.Context(), r.ref, []string{id, fmt.Sprint(all[2].fields["i"])})
	r.check(err)
	if !errors.Is(got[0].Err, qlog.ErrNotScheduled) || got[1].Moved != all[2].pos.ID {
		t.Errorf("%+v", got)
	}
	r.settle("work", all[2].pos)
	big := draft(strings.Repeat("x", 5000))
	r.put(big)
	for i := range 40 {
		r.check(r.c.HSet(t.Context(), r.s.keys.sizes(r.ref), fmt.Sprint("n", i-40), 9000).Err())
	}
	if n, err := r.s.Trim(t.Context(), r.ref, qlog.Bounds{}, 1000); err != nil || n != 1 {
		t.Fatal(n, err)
	}
	if n := r.c.Exists(t.Context(), r.s.keys.moved(r.ref)).Val(); n != 0 {
		t.Error("moves are left")
	}
}

func TestMemoryFull(t *testing.T) {
	t.Parallel()
	for info, want := range map[string]bool{
		"used_memory:94\r\nmaxmemory:100\r\n":     false,
		"used_memory:95\r\nmaxmemory:100\r\n":     true,
		"used_memory:950000\r\nmaxmemory:0\r\n":   false,
		"used_memory_rss:99\r\nmaxmemory:100\r\n": false,
		"": false,
	} {
		if got := memoryFull(info); got != want {
			t.Errorf("%q: %t", info, got)
		}
	}
}

// Put is refused before memory is full, so that everything else goes on; at maxmemory Redis refuses
// it, and everything else still goes on.
func TestPutAtMaxmemory(t *testing.T) {
	t.Parallel()
	server := testkit.Redis(t)
	c := server.Client(t)
	r := inputRigOn(t, c, nil)
	id := r.put(draft("a"), later("later", time.Hour), later("soon", time.Millisecond))[1].MessageID
	limit := func(share int64) {
		t.Helper()
		var used int64
		for line := range strings.Lines(c.Info(t.Context(), "memory").Val()) {
			if value, ok := strings.CutPrefix(strings.TrimSpace(line), "used_memory:"); ok {
				_, err := fmt.Sscan(value, &used)
				r.check(err)
			}
		}
		r.check(c.ConfigSet(t.Context(), "maxmemory", fmt.Sprint(used*100/share)).Err())
	}
	put := func() error {
		_, err := r.s.Put(t.Context(), r.ref, r.bounds, qlog.Put{Drafts: drafts("b")})
		return err
	}
	limit(97)
	r.eventually(func() bool { return errors.Is(put(), qlog.ErrNoMemory) })
	// Only the guard refused it.
	if err := c.Set(t.Context(), "x", "y", 0).Err(); err != nil {
		t.Fatal(err)
	}
	limit(120)
	r.s.input.memory = memoryGuard{servers: map[string]*memoryReading{"": {at: time.Now().Add(time.Hour)}}}
	n := r.length()
	if err := put(); !errors.Is(err, qlog.ErrNoMemory) || r.length() != n {
		t.Fatalf("%v, %d entries", err, r.length()-n)
	}
	r.eventually(func() bool { n, _ := r.due(); return n == 1 })
	if got, err := r.s.Reschedule(t.Context(), r.ref, []qlog.Reschedule{{MessageID: id, Delay: time.Minute}}); err != nil || got[0].Err != nil {
		t.Fatal(got, err)
	}
	if got, err := r.s.Cancel(t.Context(), r.ref, []string{id}); err != nil || got[0].Err != nil {
		t.Fatal(got, err)
	}
	r.check(r.s.MakeGroup(t.Context(), r.group("new"), qlog.Start{}))
	r.check(r.s.RemoveGroup(t.Context(), r.group("new")))
	r.settle2(r.entries()[0].pos)
	if n, err := r.s.Trim(t.Context(), r.ref, qlog.Bounds{}, 1000); err != nil || n == 0 {
		t.Fatal(n, err)
	}
	topic := *r.topic
	topic.ProducePaused = true
	r.check(r.s.UpdateTopic(t.Context(), &topic))
	r.check(r.s.RemovePartition(t.Context(), r.topic, 0))
}

// The memory of a server is asked for at most once a second.
func TestMemoryIsNotAskedForWithEachPut(t *testing.T) {
	t.Parallel()
	c := testkit.Redis(t).Client(t)
	r := inputRigOn(t, c, nil)
	begun := time.Now()
	for range 300 {
		r.put(draft("a"))
	}
	var calls int64
	for line := range strings.Lines(c.Info(t.Context(), "commandstats").Val()) {
		if value, ok := strings.CutPrefix(line, "cmdstat_info:calls="); ok {
			_, err := fmt.Sscanf(value, "%d", &calls)
			r.check(err)
		}
	}
	if most := int64(time.Since(begun)/time.Second) + 1; calls < 1 || calls > most+1 {
		t.Errorf("%d calls of INFO, at most %d are allowed", calls, most)
	}
}
