package redislog

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/parleyhq/parley/server/internal/queue/qlog"
)

func TestRepeatOfASequence(t *testing.T) {
	t.Parallel()
	r := newInputRig(t, nil)
	first := r.putAs("p", 1, drafts("a", "b", "c")...)
	r.wantResults(first, "new, new, new")
	again := r.putAs("p", 1, drafts("a", "b", "c")...)
	r.wantResults(again, "dup, dup, dup")
	for i := range first {
		if first[i].MessageID != again[i].MessageID {
			t.Errorf("message %d: %s, then %s", i, first[i].MessageID, again[i].MessageID)
		}
	}
	r.wantResults(r.putAs("p", 2, drafts("a")...), "new")
	r.wantResults(r.putAs("other", 1, drafts("a", "b", "c")...), "new, new, new")
	if n := r.length(); n != 7 {
		t.Errorf("%d entries", n)
	}
	// Other messages under the same sequence.
	reused := qlog.ErrKeyReused.Error()
	r.wantResults(r.putAs("p", 1, drafts("a", "b", "x")...), strings.Join([]string{reused, reused, reused}, ", "))
	r.wantResults(r.putAs("p", 1, drafts("a", "b")...), reused+", "+reused)
}

func TestASequenceWhoseSlotIsLaters(t *testing.T) {
	t.Parallel()
	r := newInputRig(t, nil)
	r.putAs("p", 5, draft("five"))
	r.putAs("p", 5+qlog.Slots, draft("later"))
	old := qlog.ErrSequenceOld.Error()
	r.wantResults(r.putAs("p", 5, draft("five")), old)
	withKey := draft("keyed")
	withKey.IdempotencyKey = "k"
	r.wantResults(r.putAs("p", 5, draft("five"), withKey), old+", new")
	// The other 63 slots are not touched.
	r.wantResults(r.putAs("p", 6, draft("six")), "new")
	r.wantResults(r.putAs("p", 6, draft("six")), "dup")
}

func TestRepeatOfARequestOfWhichHalfThePartitionsFailed(t *testing.T) {
	t.Parallel()
	r := newInputRig(t, func(topic *qlog.Topic) { topic.Partitions = 4 })
	put := func(p int) []qlog.PutResult {
		t.Helper()
		results, err := r.s.Put(t.Context(), r.topic.Ref(p), r.bounds,
			qlog.Put{Drafts: drafts(fmt.Sprint("a", p), fmt.Sprint("b", p)), ProducerID: "p", Sequence: 9})
		r.check(err)
		return results
	}
	for _, p := range []int{0, 2} {
		r.wantResults(put(p), "new, new")
	}
	for p, want := range []string{"dup, dup", "new, new", "dup, dup", "new, new"} {
		r.wantResults(put(p), want)
	}
}

func TestASlotLastsForTheWindow(t *testing.T) {
	t.Parallel()
	r := newInputRig(t, func(topic *qlog.Topic) { topic.Window = 300 * time.Millisecond })
	r.putAs("p", 1, draft("a"))
	keyed := draft("k")
	keyed.IdempotencyKey = "k"
	r.wantResults(r.put(keyed), "new")
	r.wantResults(r.put(keyed), "dup")
	slots, key := r.s.keys.producer(r.ref, "p"), r.s.keys.idempotency(r.ref, "k")
	r.eventually(func() bool { return r.c.Exists(t.Context(), slots, key).Val() == 0 })
	r.wantResults(r.putAs("p", 1, draft("a")), "new")
	r.wantResults(r.put(keyed), "new")
}

// A slot must outlive the due time of what its request scheduled, and a request without must not
// shorten that.
func TestASlotLastsUntilDueAndTheWindow(t *testing.T) {
	t.Parallel()
	r := newInputRig(t, func(topic *qlog.Topic) { topic.Window = time.Minute })
	later := draft("later")
	later.Delay = time.Hour
	first := r.putAs("p", 1, draft("now"), later)
	r.wantResults(first, "new, new")
	r.putAs("p", 2, draft("x"))
	if left := r.c.PTTL(t.Context(), r.s.keys.producer(r.ref, "p")).Val(); left < time.Hour+50*time.Second {
		t.Errorf("the slots last %s", left)
	}
	again := r.putAs("p", 1, draft("now"), later)
	r.wantResults(again, "dup, dup")
	if again[1].MessageID != first[1].MessageID || !again[1].Due.Equal(first[1].Due) || !strings.HasSuffix(again[1].MessageID, "d") {
		t.Errorf("%+v, then %+v", first[1], again[1])
	}
	if again[0].MessageID != first[0].MessageID || !again[0].Due.IsZero() {
		t.Errorf("%+v, then %+v", first[0], again[0])
	}
}

func TestIdempotencyKeys(t *testing.T) {
	t.Parallel()
	r := newInputRig(t, nil)
	keyed := draft("a")
	keyed.IdempotencyKey = "k"
	other := draft("b")
	other.IdempotencyKey = "k"
	later := draft("later")
	later.IdempotencyKey, later.Delay = "later", time.Hour
	first := r.put(keyed, draft("plain"), keyed, other, later)
	r.wantResults(first, "new, new, dup, "+qlog.ErrKeyReused.Error()+", new")
	if first[2].MessageID != first[0].MessageID {
		t.Errorf("in one request: %s and %s", first[0].MessageID, first[2].MessageID)
	}
	again := r.put(keyed, later)
	r.wantResults(again, "dup, dup")
	if again[0].MessageID != first[0].MessageID || again[1].MessageID != first[4].MessageID || !again[1].Due.Equal(first[4].Due) {
		t.Errorf("%+v, then %+v", first, again)
	}
	if left := r.c.PTTL(t.Context(), r.s.keys.idempotency(r.ref, "later")).Val(); left < time.Hour+9*time.Minute {
		t.Errorf("the key of a scheduled message lasts %s", left)
	}
	if n := r.length(); n != 2 {
		t.Errorf("%d entries", n)
	}
	if n := r.c.ZCard(t.Context(), r.s.keys.delayed(r.ref)).Val(); n != 1 {
		t.Errorf("%d scheduled", n)
	}
}

// A message with a key of its own is judged on its own, also in a request with a sequence.
func TestKeysBesideASequence(t *testing.T) {
	t.Parallel()
	r := newInputRig(t, nil)
	keyed := draft("k")
	keyed.IdempotencyKey = "k"
	first := r.putAs("p", 1, draft("a"), keyed)
	r.wantResults(first, "new, new")
	again := r.putAs("p", 1, draft("a"), keyed)
	r.wantResults(again, "dup, dup")
	for i := range first {
		if first[i].MessageID != again[i].MessageID {
			t.Errorf("%d: %s, then %s", i, first[i].MessageID, again[i].MessageID)
		}
	}
}
