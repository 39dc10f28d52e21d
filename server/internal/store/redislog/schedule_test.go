package redislog

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/parleyhq/parley/server/internal/queue/qlog"
	"github.com/parleyhq/parley/server/internal/testkit"
)

// later returns a message that is due after a delay.
func later(body string, delay time.Duration) qlog.Draft {
	d := draft(body)
	d.Delay = delay
	return d
}

// due moves what is due.
func (r *inputRig) due() (moved int, next time.Duration) {
	r.tb.Helper()
	moved, next, err := r.s.Due(r.tb.Context(), r.ref)
	r.check(err)
	return moved, next
}

func TestDueMovesInOrderOfDueTimes(t *testing.T) {
	t.Parallel()
	r := newInputRig(t, nil)
	past := func(body string, ago time.Duration) qlog.Draft {
		d := draft(body)
		d.At = time.Now().Add(-ago)
		return d
	}
	// What was due before it was put is due when it was put, and then the order of IDs counts.
	results := r.put(past("a", time.Hour), past("b", 2*time.Hour), later("c", time.Hour), draft("now"))
	r.wantResults(results, "new, new, new, new")
	r.eventually(func() bool { moved, _ := r.due(); return moved == 2 })
	moved, next := r.due()
	if moved != 0 || next < 59*time.Minute || next > time.Hour {
		t.Errorf("%d moved, the next in %s", moved, next)
	}
	all := r.entries()
	var bodies []string
	for i, e := range all {
		bodies = append(bodies, fmt.Sprint(e.fields["d"]))
		if e.pos.Ord != int64(i+1) {
			t.Errorf("entry %d has ordinal %d", i, e.pos.Ord)
		}
	}
	if got := strings.Join(bodies, " "); got != "now a b" {
		t.Fatalf("the log has %s", got)
	}
	if id := all[1].fields["i"]; id != results[0].MessageID {
		t.Errorf("the entry has the ID %v, told was %s", id, results[0].MessageID)
	}
	if ms := all[1].fields["t"]; ms != fmt.Sprint(results[0].Due.UnixMilli()) {
		t.Errorf("the entry was due at %v, told was %d", ms, results[0].Due.UnixMilli())
	}
	if _, err := r.s.Cancel(t.Context(), r.ref, []string{results[2].MessageID}); err != nil {
		t.Fatal(err)
	}
	if _, next := r.due(); next != qlog.Never {
		t.Errorf("the next in %s", next)
	}
}

func TestNeverEarly(t *testing.T) {
	t.Parallel()
	r := newInputRig(t, nil)
	for i := range 20 {
		r.put(later(fmt.Sprint(i), time.Duration(i)*1300*time.Microsecond+1))
	}
	moved := 0
	r.eventually(func() bool { n, _ := r.due(); moved += n; return moved == 20 })
	for _, e := range r.entries() {
		var ms int64
		_, err := fmt.Sscan(fmt.Sprint(e.fields["t"]), &ms)
		r.check(err)
		if e.pos.ID.Time().Before(time.UnixMilli(ms)) {
			t.Errorf("due at %d, in the log at %d", ms, e.pos.ID)
		}
	}
}

func TestDueTimesAreLimited(t *testing.T) {
	t.Parallel()
	r := newInputRig(t, nil)
	far := draft("far")
	far.At = time.Now().Add(qlog.MaxDelay + time.Minute)
	results := r.put(later("a", qlog.MaxDelay), later("b", qlog.MaxDelay+time.Millisecond), far)
	tooFar := qlog.ErrTooFar.Error()
	r.wantResults(results, "new, "+tooFar+", "+tooFar)
	changed, err := r.s.Reschedule(t.Context(), r.ref, []qlog.Reschedule{{MessageID: results[0].MessageID, Delay: qlog.MaxDelay + time.Minute}})
	r.check(err)
	if !errors.Is(changed[0].Err, qlog.ErrTooFar) {
		t.Error(changed[0].Err)
	}
}

func TestDueStopsAtItsBudget(t *testing.T) {
	t.Parallel()
	r := inputRigOn(t, testkit.Redis(t).Client(t), nil)
	body := strings.Repeat("x", 256<<10)
	at := time.Now().Add(-time.Second)
	for range 250 {
		var four []qlog.Draft
		for range 4 {
			d := draft(body)
			d.At = at
			four = append(four, d)
		}
		r.put(four...)
	}
	// All due in one millisecond.
	members := r.c.ZRange(t.Context(), r.s.keys.delayed(r.ref), 0, -1).Val()
	for chunk := range slices.Chunk(members, 500) {
		var changes []qlog.Reschedule
		for _, id := range chunk {
			changes = append(changes, qlog.Reschedule{MessageID: id, At: at})
		}
		_, err := r.s.Reschedule(t.Context(), r.ref, changes)
		r.check(err)
	}
	if len(members) != 1000 {
		t.Fatalf("%d scheduled", len(members))
	}
	calls := 0
	for moved := 0; moved < 1000; calls++ {
		n, next := r.due()
		if n == 0 || n*len(body) > 1_300_000 {
			t.Fatalf("one call moved %d messages", n)
		}
		if moved += n; moved < 1000 && next > 0 {
			t.Fatalf("%d are left and the next is due in %s", 1000-moved, next)
		}
	}
	if calls != 250 {
		t.Errorf("%d calls", calls)
	}
	if n := r.length(); n != 1000 {
		t.Errorf("%d in the log", n)
	}
	if got := r.c.HGet(t.Context(), r.s.keys.sizes(r.ref), "n3").Val(); got != fmt.Sprint(len(body)) {
		t.Errorf("the largest record of the last chunk has %q bytes", got)
	}
}

func TestDueIsLimitedByNumber(t *testing.T) {
	t.Parallel()
	r := newInputRig(t, nil)
	var all []qlog.Draft
	for i := range maxDue + 1 {
		d := draft(fmt.Sprint(i))
		d.At = time.Now().Add(-time.Second)
		all = append(all, d)
	}
	r.put(all...)
	r.eventually(func() bool {
		return r.c.ZCount(t.Context(), r.s.keys.delayed(r.ref), "-inf", fmt.Sprint(time.Now().UnixMilli())).Val() == maxDue+1
	})
	if n, next := r.due(); n != maxDue || next != 0 {
		t.Errorf("%d moved, the next in %s", n, next)
	}
	if n, next := r.due(); n != 1 || next != qlog.Never {
		t.Errorf("%d moved, the next in %s", n, next)
	}
}

func TestCancelAndReschedule(t *testing.T) {
	t.Parallel()
	r := newInputRig(t, nil)
	results := r.put(later("a", time.Hour), later("b", time.Millisecond), draft("c"))
	r.eventually(func() bool { n, _ := r.due(); return n == 1 })
	ids := []string{results[0].MessageID, results[1].MessageID, results[2].MessageID, "0-1d"}
	at := time.Now().Add(2 * time.Hour)
	var changes []qlog.Reschedule
	for _, id := range ids {
		changes = append(changes, qlog.Reschedule{MessageID: id, At: at})
	}
	moved := r.entries()[1].pos.ID
	check := func(got []qlog.Cancelled) {
		t.Helper()
		if got[1].Err != nil || got[1].Moved != moved {
			t.Errorf("what moved to %d: %+v", moved, got[1])
		}
		for _, i := range []int{2, 3} {
			if !errors.Is(got[i].Err, qlog.ErrNotScheduled) {
				t.Errorf("%s: %+v", ids[i], got[i])
			}
		}
	}
	changed, err := r.s.Reschedule(t.Context(), r.ref, changes)
	r.check(err)
	check(changed)
	if got := changed[0]; got.Err != nil || got.Moved != 0 || got.Due.UnixMilli() != ceilMilli(at) {
		t.Errorf("due at %s: %+v", at, got)
	}
	// The idempotency of a repeat tells the new time, and a delay begins again.
	changed, err = r.s.Reschedule(t.Context(), r.ref, []qlog.Reschedule{{MessageID: ids[0], Delay: time.Minute}})
	r.check(err)
	if left := time.Until(changed[0].Due); left < 55*time.Second || left > 61*time.Second {
		t.Errorf("due in %s", left)
	}
	cancelled, err := r.s.Cancel(t.Context(), r.ref, ids)
	r.check(err)
	check(cancelled)
	if cancelled[0] != (qlog.Cancelled{}) {
		t.Errorf("%+v", cancelled[0])
	}
	cancelled, err = r.s.Cancel(t.Context(), r.ref, ids[:1])
	r.check(err)
	if !errors.Is(cancelled[0].Err, qlog.ErrNotScheduled) {
		t.Errorf("again: %+v", cancelled[0])
	}
	if n := r.c.Exists(t.Context(), r.s.keys.delayed(r.ref), r.s.keys.delayedData(r.ref)).Val(); n != 0 {
		t.Errorf("%d keys are left", n)
	}
}

// Cancel and Due race: each message is either cancelled or in the log, and who cancels late is told
// where.
func TestCancelRacesDue(t *testing.T) {
	t.Parallel()
	r := newInputRig(t, nil)
	const n = 300
	var ids []string
	for i := range n {
		ids = append(ids, r.put(later(fmt.Sprint(i), time.Duration(1+i%40)*time.Millisecond))[0].MessageID)
	}
	var wait sync.WaitGroup
	wait.Go(func() {
		for r.c.ZCard(t.Context(), r.s.keys.delayed(r.ref)).Val() > 0 {
			if _, _, err := r.s.Due(t.Context(), r.ref); err != nil {
				t.Error(err)
				return
			}
		}
	})
	cancelled, moved := map[string]bool{}, map[string]qlog.ID{}
	for chunk := range slices.Chunk(ids, 7) {
		got, err := r.s.Cancel(t.Context(), r.ref, chunk)
		r.check(err)
		for i, c := range got {
			switch {
			case c.Err != nil:
				t.Errorf("%s: %v", chunk[i], c.Err)
			case c.Moved != 0:
				moved[chunk[i]] = c.Moved
			default:
				cancelled[chunk[i]] = true
			}
		}
	}
	wait.Wait()
	for _, e := range r.entries() {
		id := fmt.Sprint(e.fields["i"])
		if cancelled[id] || moved[id] != e.pos.ID {
			t.Errorf("%s is in the log at %d; cancelled %t, told %d", id, e.pos.ID, cancelled[id], moved[id])
		}
		delete(moved, id)
	}
	if len(moved) != 0 {
		t.Errorf("not in the log: %v", moved)
	}
	t.Logf("%d cancelled, %d moved", len(cancelled), n-len(cancelled))
}

func TestScheduledPartitions(t *testing.T) {
	t.Parallel()
	r := newInputRig(t, nil)
	scheduled := func() []qlog.Ref {
		t.Helper()
		refs, err := r.s.Scheduled(t.Context())
		r.check(err)
		return refs
	}
	r.put(draft("a"))
	if got := scheduled(); len(got) != 0 {
		t.Fatalf("without a scheduled message: %v", got)
	}
	id := r.put(later("b", time.Hour))[0].MessageID
	want := []qlog.Ref{{Topic: "jobs"}}
	if got := scheduled(); !slices.Equal(got, want) {
		t.Fatalf("%v", got)
	}
	r.check(r.s.ForgetScheduled(t.Context(), r.ref))
	if got := scheduled(); !slices.Equal(got, want) {
		t.Fatalf("a partition with a scheduled message was forgotten: %v", got)
	}
	_, err := r.s.Cancel(t.Context(), r.ref, []string{id})
	r.check(err)
	r.check(r.s.ForgetScheduled(t.Context(), r.ref))
	if got := scheduled(); len(got) != 0 {
		t.Fatalf("%v", got)
	}
	// The registration of before is believed for a minute only.
	r.s.input.registered[wakes(r.ref)] = time.Now().Add(-registeredFor)
	r.put(later("c", time.Hour))
	if got := scheduled(); !slices.Equal(got, want) {
		t.Fatalf("%v", got)
	}
}

// A wake-up says that the first due time became an earlier one, or that something is due. No other
// change wakes anybody.
func TestWakeups(t *testing.T) {
	t.Parallel()
	r := newInputRig(t, nil)
	sub := r.c.Subscribe(t.Context(), r.s.keys.wakeups())
	defer func() { _ = sub.Close() }()
	if _, err := sub.Receive(t.Context()); err != nil {
		t.Fatal(err)
	}
	// heard returns the number of wake-ups since the previous call: a mark follows them.
	marks := 0
	heard := func() (n int) {
		t.Helper()
		marks++
		mark := fmt.Sprint("mark ", marks)
		r.check(r.c.Publish(t.Context(), r.s.keys.wakeups(), mark).Err())
		for {
			m, err := sub.ReceiveMessage(t.Context())
			r.check(err)
			if m.Payload == mark {
				return n
			}
			if m.Payload != "jobs:0" {
				t.Errorf("published: %q", m.Payload)
			}
			n++
		}
	}
	want := func(what string, n int) {
		t.Helper()
		if got := heard(); got != n {
			t.Errorf("%s: %d wake-ups, want %d", what, got, n)
		}
	}
	r.put(draft("now"))
	want("a message that is not scheduled", 0)
	hour := r.put(later("hour", time.Hour))[0].MessageID
	want("the first one", 1)
	r.put(later("later", 2*time.Hour))
	want("a later one", 0)
	r.put(later("earlier", 30*time.Minute), later("earliest", 20*time.Minute))
	want("two earlier ones", 1)
	reschedule := func(delay time.Duration) {
		t.Helper()
		_, err := r.s.Reschedule(t.Context(), r.ref, []qlog.Reschedule{{MessageID: hour, Delay: delay}})
		r.check(err)
	}
	reschedule(3 * time.Hour)
	want("one that is now later", 0)
	reschedule(time.Minute)
	want("one that is now the first", 1)
	_, err := r.s.Cancel(t.Context(), r.ref, []string{hour})
	r.check(err)
	want("the first one was cancelled", 0)
	overdue := draft("overdue")
	overdue.At = time.Now().Add(-time.Hour)
	r.put(overdue)
	want("one that is due", 1)
}

func TestWakeupsReconnect(t *testing.T) {
	t.Parallel()
	server := testkit.Redis(t)
	r := inputRigOn(t, server.Client(t), nil)
	ctx, cancel := context.WithCancel(t.Context())
	heard := make(chan string, 100)
	ended := make(chan error, 1)
	go func() { ended <- r.s.Wakeups(ctx, func(topic string, p int) { heard <- fmt.Sprint(topic, ":", p) }) }()
	next := func() string {
		t.Helper()
		select {
		case text := <-heard:
			return text
		case <-time.After(10 * time.Second):
			t.Fatal("nothing was heard")
			return ""
		}
	}
	if got := next(); got != ":0" {
		t.Fatalf("at first %q", got)
	}
	r.put(later("a", time.Hour))
	if got := next(); got != "jobs:0" {
		t.Fatalf("then %q", got)
	}
	server.Kill()
	server.Start()
	if got := next(); got != ":0" {
		t.Fatalf("after a restart %q", got)
	}
	cancel()
	if err := <-ended; !errors.Is(err, context.Canceled) {
		t.Fatal(err)
	}
}
