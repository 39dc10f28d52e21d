package inspect

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/parleyhq/parley/server/internal/fault"
	"github.com/parleyhq/parley/server/internal/queue/qlog"
)

// all walks a list of jobs to its end, and fails the test if a page is too large.
func (r *rig) all(q JobQuery) (jobs []Job, pages int) {
	r.tb.Helper()
	for {
		page, next, err := r.s.Jobs(r.tb.Context(), q)
		r.check(err)
		bytes := 0
		for i := range page {
			bytes += len(page[i].Body)
		}
		if len(page) > pageSize(q.N) || bytes > maxPageBytes {
			r.tb.Fatalf("a page has %d jobs and %d bytes", len(page), bytes)
		}
		jobs, pages = append(jobs, page...), pages+1
		if next == "" {
			return jobs, pages
		}
		if q.Cursor == next {
			r.tb.Fatalf("the list stays at %s", next)
		}
		q.Cursor = next
	}
}

func idsOf(jobs []Job) (ids []string) {
	for i := range jobs {
		ids = append(ids, jobs[i].MessageID)
	}
	return ids
}

// Lists of all states, walked in pages of every size, have each message exactly once, in order.
func TestJobsAreListedOnce(t *testing.T) {
	t.Parallel()
	r := newRig(t, 3, nil)
	want := map[JobState][]string{}
	due := time.Now().Add(time.Hour)
	states := map[byte]JobState{'o': Waiting, 'w': Waiting, 's': Sent, 'b': Running, 'l': Running, 'r': Retrying, 'u': Retrying}
	for p := range 3 {
		fates := "aabswodrlaubrowas"
		ids := r.put(p, 25, 10, nil)
		r.settle(p, "g1", fates)
		for i, id := range ids {
			state := Waiting
			if i < len(fates) {
				state = states[fates[i]]
			}
			if state != 0 {
				want[state], want[AnyState] = append(want[state], id), append(want[AnyState], id)
			}
		}
		for _, id := range r.put(p, 7, 10, func(d *qlog.Draft) { d.At = due }) {
			want[Scheduled], want[AnyState] = append(want[Scheduled], id), append(want[AnyState], id)
		}
	}
	for state, ids := range want {
		for _, n := range []int{1, 2, 5, 1000} {
			jobs, _ := r.all(JobQuery{Topic: "jobs", Group: "g1", State: state, N: n})
			if got := idsOf(jobs); !slices.Equal(got, ids) {
				t.Errorf("state %d in pages of %d: %v, want %v", state, n, got, ids)
			}
			for i := range jobs {
				if state != AnyState && jobs[i].Groups[0].State != state {
					t.Errorf("%+v is listed in state %d", jobs[i], state)
				}
			}
		}
	}
	// The other group has settled nothing.
	jobs, _ := r.all(JobQuery{Topic: "jobs", Group: "g2", State: Waiting})
	if len(jobs) != 75 {
		t.Errorf("%d jobs wait for g2", len(jobs))
	}
	jobs, _ = r.all(JobQuery{Topic: "jobs", Group: "g2", Key: "k20"})
	if len(jobs) != 3 || jobs[0].Key != "k20" || jobs[0].PayloadBytes != 10 || jobs[0].Body != nil {
		t.Errorf("%+v", jobs)
	}
	jobs, _ = r.all(JobQuery{Topic: "jobs", State: Scheduled, Key: "k3", Full: true})
	if len(jobs) != 3 || jobs[0].Groups != nil || len(jobs[0].Body) == 0 || !jobs[0].Due.Equal(due.Truncate(time.Millisecond).Add(time.Millisecond)) {
		t.Errorf("%+v", jobs)
	}
}

// What sessions hold without a row, only they know. A row is true although they do not answer.
func TestJobsThatSessionsHold(t *testing.T) {
	t.Parallel()
	r := newRig(t, 1, nil)
	ids := r.put(0, 6, 10, nil)
	at := r.settle(0, "g1", "oobsro")
	since := time.UnixMilli(5)
	r.sessions["g1"] = []qlog.SessionInfo{
		// It does not know yet what it lost.
		{Session: "digest of s2", Consumer: "w2", Node: "n2", Held: []qlog.HeldInfo{
			{ID: at[0].ID, Gen: 1}, {ID: at[2].ID, Gen: 1}, {ID: at[3].ID, Gen: 1}, {ID: 77},
		}},
		{Session: "digest of s1", Consumer: "w1", Node: "n1", Held: []qlog.HeldInfo{
			{ID: at[1].ID, Gen: 1, Begun: true, Since: since}, {ID: at[3].ID, Gen: 2, Begun: true, Since: since}, {ID: at[4].ID, Gen: 2},
		}},
	}
	expect := func(state JobState, want ...string) []Job {
		t.Helper()
		jobs, _ := r.all(JobQuery{Topic: "jobs", Group: "g1", State: state, N: 2})
		if !slices.Equal(idsOf(jobs), want) {
			t.Fatalf("state %d: %v, want %v", state, idsOf(jobs), want)
		}
		return jobs
	}
	expect(Waiting, ids[5])
	sent := expect(Sent, ids[0])
	if g := sent[0].Groups[0]; g.Consumer != "w2" || g.Node != "n2" || g.Deliveries != 1 || g.Attempts != 0 {
		t.Errorf("%+v", g)
	}
	running := expect(Running, ids[1], ids[2], ids[3])
	if g := running[1].Groups[0]; g.Consumer != "w1" || g.Session != "digest of s1" || g.Deliveries != 2 || g.Attempts != 1 {
		t.Errorf("%+v", g)
	}
	if g := running[2].Groups[0]; g.Consumer != "w1" || !g.Since.Equal(since) || g.Deliveries != 2 || g.Attempts != 1 {
		t.Errorf("%+v", g)
	}
	expect(Retrying, ids[4])
	r.failing = true
	expect(Sent, ids[3])
	if g := expect(Running, ids[2])[0].Groups[0]; g.Consumer != "" || g.Session != "digest of s1" {
		t.Errorf("%+v", g)
	}
	expect(Waiting, ids[0], ids[1], ids[5])
}

// Of what only sessions know, everything is listed, and nothing that is for another group.
func TestJobsInFirstDelivery(t *testing.T) {
	t.Parallel()
	r := newRig(t, 1, nil)
	ids := r.put(0, 4, 10, nil)
	r.settle(0, "g2", "d")
	_, _, err := r.s.Replay(t.Context(), "jobs", Selection{}, 0, "")
	r.check(err)
	var held []qlog.HeldInfo
	for _, pos := range r.settle(0, "g1", "oooo") {
		held = append(held, qlog.HeldInfo{ID: pos.ID, Gen: 1})
	}
	r.sessions["g1"] = []qlog.SessionInfo{{Session: "s", Held: held}}
	for _, n := range []int{1, 2, 9} {
		if jobs, _ := r.all(JobQuery{Topic: "jobs", Group: "g1", State: Sent, N: n}); !slices.Equal(idsOf(jobs), ids) {
			t.Errorf("in pages of %d: %v, want %v", n, idsOf(jobs), ids)
		}
	}
	if jobs, _ := r.all(JobQuery{Topic: "jobs", Group: "g1"}); !slices.Equal(idsOf(jobs), ids) {
		t.Errorf("all: %v, want %v", idsOf(jobs), ids)
	}
	if jobs, _ := r.all(JobQuery{Topic: "jobs", Group: "g2"}); len(jobs) != 4 || jobs[3].MessageID != ids[0] {
		t.Errorf("of g2: %v", idsOf(jobs))
	}
}

// A page returns at most 1 MiB, or one message.
func TestJobPagesAreBoundedByBytes(t *testing.T) {
	t.Parallel()
	r := newRig(t, 2, nil)
	for p := range 2 {
		r.put(p, 12, 256<<10, nil)
		r.put(p, 7, 256<<10, func(d *qlog.Draft) { d.Delay = time.Hour })
		r.settle(p, "g1", "bbbbbrrrrrrr")
	}
	for state, want := range map[JobState]int{AnyState: 38, Running: 10, Retrying: 14, Scheduled: 14} {
		jobs, pages := r.all(JobQuery{Topic: "jobs", Group: "g1", State: state, Full: true, N: 1000})
		ids := idsOf(jobs)
		slices.Sort(ids)
		if len(ids) != want || len(slices.Compact(ids)) != want || pages < want/4 {
			t.Errorf("state %d: %d jobs in %d pages", state, len(jobs), pages)
		}
	}
}

func TestJob(t *testing.T) {
	t.Parallel()
	r := newRig(t, 2, nil)
	ids := r.put(1, 4, 10, nil)
	r.settle(1, "g1", "adu")
	r.settle(1, "g2", "br")
	job := func(id string) string {
		t.Helper()
		j, err := r.s.Job(t.Context(), "jobs", id)
		r.check(err)
		if j.MessageID != id || len(j.Body) == 0 || j.PayloadBytes != 10 || j.Partition != 1 {
			t.Errorf("%+v", j)
		}
		var all []string
		for _, g := range j.Groups {
			all = append(all, fmt.Sprint(g.Group, " ", g.State, " ", g.Attempts, " ", g.Code, " ", g.Suspect))
		}
		return strings.Join(all, ", ")
	}
	for i, want := range []string{
		fmt.Sprint("g1 ", Settled, " 0  false, g2 ", Running, " 1  false"),
		fmt.Sprint("g1 ", Dead, " 3 bad false, g2 ", Retrying, " 1 bad false"),
		fmt.Sprint("g1 ", Retrying, " 1 lost true, g2 ", Waiting, " 0  false"),
		fmt.Sprint("g1 ", Waiting, " 0  false, g2 ", Waiting, " 0  false"),
	} {
		if got := job(ids[i]); got != want {
			t.Errorf("message %d: %s, want %s", i, got, want)
		}
	}
	if n, _, err := r.s.Replay(t.Context(), "jobs", Selection{Group: "g1"}, 0, ""); err != nil || n != 1 {
		t.Fatal(n, err)
	}
	if got, want := job(ids[1]), fmt.Sprint("g1 ", Waiting, " 0  false, g2 ", Retrying, " 1 bad false"); got != want {
		t.Errorf("replayed: %s, want %s", got, want)
	}
	later := r.put(1, 1, 10, func(d *qlog.Draft) { d.Delay = time.Hour })[0]
	if got, want := job(later), fmt.Sprint("g1 ", Scheduled, " 0  false, g2 ", Scheduled, " 0  false"); got != want {
		t.Errorf("scheduled: %s, want %s", got, want)
	}
	for _, id := range []string{"1-5", "7-5", "x", ""} {
		if _, err := r.s.Job(t.Context(), "jobs", id); !fault.Is(err, fault.MessageNotFound) {
			t.Errorf("%q: %v", id, err)
		}
	}
}

func TestJobsRefuses(t *testing.T) {
	t.Parallel()
	r := newRig(t, 1, nil)
	for _, c := range []struct {
		q    JobQuery
		want fault.Reason
	}{
		{JobQuery{Topic: "none", Group: "g1"}, fault.TopicNotFound},
		{JobQuery{Topic: "jobs", Group: "none"}, fault.GroupNotFound},
		{JobQuery{Topic: "jobs"}, fault.InvalidField},
		{JobQuery{Topic: "jobs", Group: "g1", State: Settled}, fault.InvalidField},
		{JobQuery{Topic: "jobs", Group: "g1", Cursor: "0 r 1"}, fault.PageTokenInvalid},
		{JobQuery{Topic: "jobs", Group: "g1", Cursor: "x"}, fault.PageTokenInvalid},
		{JobQuery{Topic: "jobs", Group: "g1", Cursor: "-1 l 1"}, fault.PageTokenInvalid},
		{JobQuery{Topic: "jobs", Group: "g1", Cursor: "0 l 1 2 3 4"}, fault.PageTokenInvalid},
	} {
		if _, _, err := r.s.Jobs(t.Context(), c.q); !fault.Is(err, c.want) {
			t.Errorf("%+v: %v, want %s", c.q, err, c.want)
		}
	}
}

func TestRetry(t *testing.T) {
	t.Parallel()
	r := newRig(t, 2, nil)
	ids := r.put(1, 2, 10, nil)
	at := r.settle(1, "g1", "dr")
	_, _, err := r.s.Replay(t.Context(), "jobs", Selection{}, 0, "")
	r.check(err)
	again := r.settle(1, "g1", "r")
	n, err := r.s.Retry(t.Context(), "jobs", "g1", []string{ids[0], ids[1], "1-77d", "9-1", "x"})
	if got := r.retried[r.group(1, "g1")]; err != nil || n != 2 || !slices.Equal(got, []qlog.ID{again[0].ID, at[1].ID}) {
		t.Errorf("%d, %v, %v", n, got, err)
	}
}
