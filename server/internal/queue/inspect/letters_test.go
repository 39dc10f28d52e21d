package inspect

import (
	"errors"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/parleyhq/parley/server/internal/fault"
	"github.com/parleyhq/parley/server/internal/pagetoken"
	"github.com/parleyhq/parley/server/internal/queue/qlog"
	"github.com/parleyhq/parley/server/internal/testkit"
)

// allLetters walks the list of dead letters to its end, with its cursors sealed as page tokens.
func (r *rig) allLetters(q LetterQuery) (letters []Letter, pages int) {
	r.tb.Helper()
	sealer, binding := pagetoken.New([]byte("secret")), &pagetoken.Binding{Call: "ListDeadLetters"}
	for {
		page, next, err := r.s.Letters(r.tb.Context(), q)
		r.check(err)
		bytes := 0
		for i := range page {
			bytes += len(page[i].Body)
		}
		if len(page) > pageSize(q.N) || bytes > maxPageBytes+len(page)*8 {
			r.tb.Fatalf("a page has %d dead letters and %d bytes", len(page), bytes)
		}
		letters, pages = append(letters, page...), pages+1
		if next == "" {
			return letters, pages
		}
		if q.Cursor, err = sealer.Open(sealer.Seal(binding, next), binding); err != nil {
			r.tb.Fatal(err)
		}
	}
}

// letterIDs returns the IDs, and fails the test if one is there twice or they are not the newest
// first.
func (r *rig) letterIDs(letters []Letter) (ids []string) {
	r.tb.Helper()
	for i := range letters {
		ids = append(ids, letters[i].ID)
		if i > 0 {
			a, b := &letters[i-1], &letters[i]
			if (letterPlace{a.Partition, a.Letter.ID}).compare(letterPlace{b.Partition, b.Letter.ID}) >= 0 {
				r.tb.Fatalf("%s is listed before %s", a.ID, b.ID)
			}
		}
	}
	return ids
}

func TestLettersAreListedOnce(t *testing.T) {
	t.Parallel()
	r := newRig(t, 3, nil)
	for p := range 3 {
		r.put(p, 20, 10, nil)
		r.settle(p, "g1", strings.Repeat("da", 10))
		r.settle(p, "g2", strings.Repeat("d", 7))
	}
	for _, n := range []int{1, 3, 17, 100} {
		for group, want := range map[string]int{"": 51, "g1": 30, "g2": 21} {
			letters, _ := r.allLetters(LetterQuery{Topic: "jobs", Group: group, N: n})
			if r.letterIDs(letters); len(letters) != want {
				t.Errorf("%d dead letters of %q in pages of %d, want %d", len(letters), group, n, want)
			}
		}
	}
	full, _ := r.allLetters(LetterQuery{Topic: "jobs", Full: true, N: 7, Code: "bad"})
	for i := range full {
		if l := &full[i]; len(l.Body) == 0 || l.PayloadBytes != 10 || l.Attempts != 3 || !strings.HasPrefix(l.Key, "k") {
			t.Fatalf("%+v", l)
		}
	}
	if r.letterIDs(full); len(full) != 51 {
		t.Errorf("%d full dead letters", len(full))
	}
	if none, _ := r.allLetters(LetterQuery{Topic: "jobs", Code: "none"}); len(none) != 0 {
		t.Errorf("%+v", none)
	}
	if _, _, err := r.s.Letters(t.Context(), LetterQuery{Topic: "jobs", Group: "none"}); !fault.Is(err, fault.GroupNotFound) {
		t.Error(err)
	}
	if _, _, err := r.s.Letters(t.Context(), LetterQuery{Topic: "jobs", Cursor: "1-x"}); !fault.Is(err, fault.PageTokenInvalid) {
		t.Error(err)
	}
}

func TestLetterPagesAreBoundedByBytes(t *testing.T) {
	t.Parallel()
	r := newRig(t, 2, nil)
	for p := range 2 {
		r.put(p, 9, 256<<10, nil)
		r.settle(p, "g1", "ddddddddd")
	}
	letters, pages := r.allLetters(LetterQuery{Topic: "jobs", Full: true, N: 1000})
	if r.letterIDs(letters); len(letters) != 18 || pages < 4 || len(letters[17].Body) < 256<<10 {
		t.Errorf("%d dead letters in %d pages", len(letters), pages)
	}
	if letters, pages := r.allLetters(LetterQuery{Topic: "jobs", N: 1000}); len(letters) != 18 || pages != 1 {
		t.Errorf("%d headers in %d pages", len(letters), pages)
	}
}

// However often and at once it is called, each dead letter is replayed once.
func TestReplayIsOnce(t *testing.T) {
	t.Parallel()
	r := newRig(t, 2, nil)
	for p := range 2 {
		r.put(p, 60, 10, nil)
		r.settle(p, "g1", strings.Repeat("d", 60))
		r.settle(p, "g2", strings.Repeat("d", 40))
	}
	letters, _ := r.allLetters(LetterQuery{Topic: "jobs", N: 1000})
	ids := r.letterIDs(letters)
	counts := make([]int, 6)
	var calls sync.WaitGroup
	for i, sel := range []Selection{{}, {Group: "g1"}, {IDs: ids}, {}, {Group: "g2"}, {IDs: ids[50:150]}} {
		calls.Go(func() {
			for more := true; more; {
				var n int
				var err error
				if n, more, err = r.s.Replay(t.Context(), "jobs", sel, 30, ""); err != nil {
					t.Error(err)
					return
				}
				if n == 0 && len(sel.IDs) > 0 {
					break
				}
				counts[i] += n
			}
		})
	}
	calls.Wait()
	total := 0
	for _, n := range counts {
		total += n
	}
	stats, err := r.s.Stats(t.Context(), "jobs", false)
	r.check(err)
	if g := stats.Total.Groups; total != 200 || stats.Total.DeadLetters != 0 || g[0].Replayed != 120 || g[1].Replayed != 80 ||
		stats.Total.Length != 320 || stats.Total.Produced != 120 || g[0].Waiting != 120 || g[1].Waiting != 120 || g[1].Elsewhere != 120 {
		t.Errorf("%d replayed: %+v", total, stats.Total)
	}
	if r.hints[0] == 0 || r.hints[1] == 0 {
		t.Errorf("hints %v", r.hints)
	}
	if n, more, err := r.s.Replay(t.Context(), "jobs", Selection{IDs: ids}, 0, ""); n != 0 || more || err != nil {
		t.Error(n, more, err)
	}
}

// A replay to another topic stores each message there once and removes the dead letter, also if the
// answer of the store is lost.
func TestReplayToAnotherTopic(t *testing.T) {
	t.Parallel()
	r := newRig(t, 2, nil)
	for p := range 2 {
		r.put(p, 5, 256<<10, nil)
		r.settle(p, "g1", "ddddd")
	}
	r.refuse = true
	n, more, err := r.s.Replay(t.Context(), "jobs", Selection{Group: "g1"}, 7, "other")
	if err != nil || n != 7 || !more {
		t.Fatal(n, more, err)
	}
	n, more, err = r.s.Replay(t.Context(), "jobs", Selection{}, 0, "other")
	if err != nil || n != 3 || more {
		t.Fatal(n, more, err)
	}
	if got := r.produced["other"]; len(got) != 10 || len(got[0].Body) < 256<<10 || !strings.HasPrefix(got[0].Key, "replay:AAAAAAAAAAAAA:0-") {
		t.Errorf("%d messages", len(got))
	}
	if letters, _ := r.allLetters(LetterQuery{Topic: "jobs"}); len(letters) != 0 {
		t.Errorf("%d dead letters are left", len(letters))
	}
	if _, _, err := r.s.Replay(t.Context(), "jobs", Selection{}, 0, "none"); !fault.Is(err, fault.TopicNotFound) {
		t.Error(err)
	}
	if _, _, err := r.s.Replay(t.Context(), "jobs", Selection{}, 0, "jobs"); !fault.Is(err, fault.InvalidField) {
		t.Error(err)
	}
}

func TestReplayRefuses(t *testing.T) {
	t.Parallel()
	c := testkit.Redis(t).Client(t)
	r := rigOn(t, c, 1, func(topic *qlog.Topic) { topic.MaxMessages = 4 })
	r.put(0, 6, 10, nil)
	r.settle(0, "g1", "dddddd")
	r.settle(0, "g2", "aaaaaa")
	if _, _, err := r.s.Replay(t.Context(), "jobs", Selection{Group: "none"}, 0, ""); !fault.Is(err, fault.GroupNotFound) {
		t.Error(err)
	}
	if _, _, err := r.s.Replay(t.Context(), "jobs", Selection{IDs: []string{"x"}}, 0, ""); !fault.Is(err, fault.InvalidField) {
		t.Error(err)
	}
	if n, more, err := r.s.Replay(t.Context(), "jobs", Selection{}, 0, ""); n != 4 || !more || !fault.Is(err, fault.TopicFull) {
		t.Error(n, more, err)
	}
	r.check(c.ConfigSet(t.Context(), "maxmemory", "1").Err())
	testkit.Eventually(t, testTimeout, func() error {
		if _, _, err := r.s.Replay(t.Context(), "jobs", Selection{}, 0, ""); !errors.Is(err, qlog.ErrNoMemory) || !fault.Is(err, fault.StoreUnavailable) {
			return errors.New("it is not refused for want of memory")
		}
		return nil
	})
	// Everything else goes on.
	if letters, _ := r.allLetters(LetterQuery{Topic: "jobs", Full: true}); len(letters) != 2 {
		t.Errorf("%d dead letters", len(letters))
	}
	if jobs, _ := r.all(JobQuery{Topic: "jobs", Group: "g1"}); len(jobs) != 4 {
		t.Errorf("%d jobs", len(jobs))
	}
	if n, err := r.s.Purge(t.Context(), "jobs", Selection{}, "jobs"); n != 2 || err != nil {
		t.Error(n, err)
	}
	if removed, lost, err := r.s.Trim(t.Context(), "jobs", qlog.Cut{Keep: 1, Age: -1}, true); removed != 9 || lost != 3 || err != nil {
		t.Error(removed, lost, err)
	}
}

func TestPurge(t *testing.T) {
	t.Parallel()
	r := newRig(t, 2, nil)
	for p := range 2 {
		r.put(p, 10, 10, nil)
		r.settle(p, "g1", "dddddddddd")
		r.settle(p, "g2", "ddddd")
	}
	purge := func(sel Selection, want int) {
		t.Helper()
		if n, err := r.s.Purge(t.Context(), "jobs", sel, "jobs"); n != want || err != nil {
			t.Error(n, err)
		}
	}
	if _, err := r.s.Purge(t.Context(), "jobs", Selection{}, "job"); !fault.Is(err, fault.ConfirmationRequired) {
		t.Error(err)
	}
	letters, _ := r.allLetters(LetterQuery{Topic: "jobs", N: 1000})
	ids := r.letterIDs(letters)
	purge(Selection{IDs: slices.Concat(ids[:3], ids[20:22], []string{"9-1-1"})}, 5)
	purge(Selection{IDs: ids[:3]}, 0)
	left, _ := r.allLetters(LetterQuery{Topic: "jobs", Group: "g2"})
	purge(Selection{Group: "g2"}, len(left))
	r.topic.Groups = r.topic.Groups[:1]
	if _, err := r.s.Purge(t.Context(), "jobs", Selection{Group: "g2"}, "jobs"); !fault.Is(err, fault.GroupNotFound) {
		t.Error(err)
	}
	purge(Selection{}, 25-len(left))
}
