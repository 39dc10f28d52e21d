package redislog

import (
	"strconv"
	"testing"
	"time"

	"github.com/parleyhq/parley/server/internal/queue/qlog"
)

// unique returns a message with the unique key u.
func unique(body string, mode qlog.Conflict) qlog.Draft {
	d := draft(body)
	d.UniqueKey, d.OnConflict = "u", mode
	return d
}

// idOf returns the number in a message's ID.
func idOf(t *testing.T, messageID string) qlog.ID {
	t.Helper()
	_, id, _, ok := qlog.ParseMessageID(messageID)
	if !ok {
		t.Fatalf("%q is no message ID", messageID)
	}
	return id
}

func TestUniqueReject(t *testing.T) {
	t.Parallel()
	r := newInputRig(t, nil)
	refused := qlog.ErrUnique.Error()
	r.wantResults(r.put(unique("a", qlog.ConflictReject), unique("b", qlog.ConflictReject)), "new, "+refused)
	r.wantResults(r.put(unique("c", qlog.ConflictReject)), refused)
	key := r.s.keys.unique(r.ref, "u")
	if left := r.c.PTTL(t.Context(), key).Val(); left < 6*24*time.Hour {
		t.Errorf("the key lasts %s", left)
	}
	// The commit that settles the message frees the key.
	r.check(r.c.Del(t.Context(), key).Err())
	short := unique("d", qlog.ConflictReject)
	short.UniqueFor = 200 * time.Millisecond
	r.wantResults(r.put(short), "new")
	r.eventually(func() bool { return r.c.Exists(t.Context(), key).Val() == 0 })
	r.wantResults(r.put(unique("e", qlog.ConflictReject)), "new")
}

func TestUniqueKeep(t *testing.T) {
	t.Parallel()
	r := newInputRig(t, nil)
	first := r.put(unique("a", qlog.ConflictKeep))[0]
	kept := r.put(unique("b", qlog.ConflictKeep))[0]
	if !kept.Duplicate || kept.MessageID != first.MessageID || r.length() != 1 {
		t.Fatalf("%+v, then %+v", first, kept)
	}
	later := unique("later", qlog.ConflictKeep)
	later.UniqueKey, later.Delay = "v", time.Hour
	first = r.put(later)[0]
	now := unique("now", qlog.ConflictKeep)
	now.UniqueKey = "v"
	kept = r.put(now)[0]
	if !kept.Duplicate || kept.MessageID != first.MessageID || !kept.Due.Equal(first.Due) {
		t.Fatalf("%+v, then %+v", first, kept)
	}
}

func TestUniqueReplace(t *testing.T) {
	t.Parallel()
	r := newInputRig(t, nil)
	first := r.put(unique("a", qlog.ConflictReplace))[0]
	second := r.put(unique("b", qlog.ConflictReplace))[0]
	if second.Err != nil || second.Duplicate || second.Replaced != idOf(t, first.MessageID) || r.length() != 2 {
		t.Fatalf("%+v, then %+v", first, second)
	}
	// A handler works on it: not replaced.
	row := r.s.keys.rows(r.ref, "work")
	_, id, _, _ := qlog.ParseMessageID(second.MessageID) //nolint:dogsled // the other parts are known
	r.check(r.c.HSet(t.Context(), row, int64(id), "begun 1 0 s 0 - -").Err())
	r.wantResults(r.put(unique("c", qlog.ConflictReplace)), qlog.ErrUnique.Error())
	r.check(r.c.HSet(t.Context(), row, int64(id), "waiting 2 0 - 0 - -").Err())
	r.wantResults(r.put(unique("c", qlog.ConflictReplace)), "new")
}

// A repeat names the message that was replaced too, as long as that of the repeat has the key: who
// stored it may not have had the other one cancelled.
func TestUniqueReplaceRepeated(t *testing.T) {
	t.Parallel()
	r := newInputRig(t, nil)
	first := r.put(unique("a", qlog.ConflictReplace))[0]
	d := unique("b", qlog.ConflictReplace)
	d.IdempotencyKey, d.Digest = "i", "d"
	second := r.put(d)[0]
	if again := r.put(d)[0]; !again.Duplicate || again.Replaced != idOf(t, first.MessageID) || again.Replaced != second.Replaced {
		t.Errorf("%+v, then %+v", second, again)
	}
	r.wantResults(r.put(unique("c", qlog.ConflictReplace)), "new")
	if again := r.put(d)[0]; !again.Duplicate || again.Replaced != 0 {
		t.Errorf("after another one took the key: %+v", again)
	}
}

// What is scheduled is replaced in place: the debounce of a job.
func TestUniqueReplaceOfWhatIsScheduled(t *testing.T) {
	t.Parallel()
	// The bound leaves no room for a second one.
	r := newInputRig(t, func(topic *qlog.Topic) { topic.MaxMessages = 1 })
	later := unique("a", qlog.ConflictReplace)
	later.Delay = time.Hour
	r.wantResults(r.put(later), "new")
	later.Body, later.Delay = []byte("b"), 2*time.Hour
	second := r.put(later)[0]
	if second.Err != nil || second.Replaced != 0 {
		t.Fatalf("%+v", second)
	}
	scheduled, err := r.c.HGetAll(t.Context(), r.s.keys.delayedData(r.ref)).Result()
	r.check(err)
	if len(scheduled) != 1 || r.c.ZCard(t.Context(), r.s.keys.delayed(r.ref)).Val() != 1 || scheduled[second.MessageID] == "" {
		t.Fatalf("scheduled: %v", scheduled)
	}
	r.wantResults(r.put(unique("now", qlog.ConflictReplace)), "new")
	if r.length() != 1 || r.c.Exists(t.Context(), r.s.keys.delayed(r.ref), r.s.keys.delayedData(r.ref)).Val() != 0 {
		t.Error("the scheduled message is still there")
	}
}

// A key whose message went without freeing it is free: trimmed, cancelled, or of a deleted group.
func TestAUniqueKeyOfAMessageThatIsGone(t *testing.T) {
	t.Parallel()
	r := newInputRig(t, nil)
	r.put(unique("a", qlog.ConflictReject))
	r.check(r.c.XTrimMaxLen(t.Context(), r.s.keys.main(r.ref), 0).Err())
	later := unique("b", qlog.ConflictReject)
	later.Delay = time.Hour
	first := r.put(later)[0]
	if first.Err != nil {
		t.Fatal(first.Err)
	}
	r.wantResults(r.put(unique("c", qlog.ConflictReject)), qlog.ErrUnique.Error())
	if _, err := r.s.Cancel(t.Context(), r.ref, []string{first.MessageID}); err != nil {
		t.Fatal(err)
	}
	r.wantResults(r.put(unique("c", qlog.ConflictReject)), "new")
}

// A scheduled message keeps its key after it moved to the log under another ID.
func TestAUniqueKeyOfAMovedMessage(t *testing.T) {
	t.Parallel()
	r := newInputRig(t, nil)
	later := unique("a", qlog.ConflictReplace)
	later.Delay = time.Millisecond
	first := r.put(later)[0]
	r.eventually(func() bool { n, _, err := r.s.Due(t.Context(), r.ref); r.check(err); return n == 1 })
	kept := r.put(unique("b", qlog.ConflictKeep))[0]
	if !kept.Duplicate || kept.MessageID != first.MessageID {
		t.Errorf("%+v, then %+v", first, kept)
	}
	replaced := r.put(unique("c", qlog.ConflictReplace))[0]
	if at := r.entries()[0].pos.ID; replaced.Replaced != at || at == idOf(t, first.MessageID) {
		t.Errorf("%+v replaced %d of %+v", replaced, at, first)
	}
}

// Each group frees the key once.
func TestAUniqueKeyCountsGroups(t *testing.T) {
	t.Parallel()
	r := newInputRig(t, func(topic *qlog.Topic) { topic.Groups = []qlog.Group{{Name: "a"}, {Name: "b"}, {Name: "c"}} })
	first := r.put(unique("a", qlog.ConflictReject))[0]
	want := strconv.FormatInt(int64(idOf(t, first.MessageID)), 10) + " 3"
	if got := r.c.Get(t.Context(), r.s.keys.unique(r.ref, "u")).Val(); got != want {
		t.Errorf("the key has %q, want %q", got, want)
	}
}
