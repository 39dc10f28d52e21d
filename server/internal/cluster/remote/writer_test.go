package remote

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/parleyhq/parley/server/internal/cluster"
	"github.com/parleyhq/parley/server/internal/cluster/clustertest"
	"github.com/parleyhq/parley/server/internal/fault"
	"github.com/parleyhq/parley/server/internal/lifecycle/lifecycletest"
	"github.com/parleyhq/parley/server/internal/message"
)

// appended is a message.Appender that records the ids of the drafts of each call. All succeed with
// seq 7, except as fail says.
type appended struct {
	mu    sync.Mutex
	calls [][]string
	// fail returns a draft's fault. Nil means none.
	fail func(d *message.Draft) error
}

func (a *appended) Append(_ context.Context, drafts []message.Draft) []message.Outcome {
	a.mu.Lock()
	defer a.mu.Unlock()
	var ids []string
	outs := make([]message.Outcome, len(drafts))
	for i := range drafts {
		d := &drafts[i]
		ids = append(ids, d.MsgID)
		outs[i] = message.Outcome{MsgID: d.MsgID, ClientMsgID: d.ClientMsgID, Seq: 7}
		if a.fail != nil {
			if err := a.fail(d); err != nil {
				outs[i] = message.Outcome{Err: err}
			}
		}
	}
	a.calls = append(a.calls, ids)
	return outs
}

func (a *appended) all() [][]string {
	a.mu.Lock()
	defer a.mu.Unlock()
	return slices.Clone(a.calls)
}

// owners is an Owners that never changes.
type owners struct {
	owner func(bucket int) string
	// works is the result of RecentlyAble for every node. Nil means false.
	works func() bool
}

func (o owners) RecentlyAble(string, time.Duration) bool { return o.works != nil && o.works() }
func (o owners) Owner(bucket int) string                 { return o.owner(bucket) }

// endpointAt creates the endpoint of a node in a fleet of ME and HOME.
func endpointAt(net *clustertest.Net, node string) *cluster.Endpoint {
	return cluster.NewEndpoint(clustertest.Peers{Node: node, Nodes: []string{"HOME", "ME"}}, net.Link(), nil)
}

// pass waits for d, which takes no real time in a synctest bubble.
func pass(d time.Duration) { <-time.After(d) }

// rig is a node ME, whose writer is tested, and a node HOME. here and home record what each of them
// appends.
type rig struct {
	net        *clustertest.Net
	here, home appended
	writer     *Writer
	results    []string
	// works reports whether HOME announces that it is alive and able. Nil means never.
	works func() bool
}

// newRig assigns channels that begin with "here" to ME, with "gone" to a missing node, and others
// to HOME.
func newRig(t *testing.T, cfg WriterConfig, fates ...clustertest.Fate) *rig {
	t.Helper()
	r := &rig{net: clustertest.NewNet(fates...)}
	const buckets = 1 << 20 // so that channels have different buckets
	byBucket := map[int]string{}
	for i := range 20 {
		byBucket[message.Bucket(fmt.Sprintf("here%d", i), buckets)] = "ME"
		byBucket[message.Bucket(fmt.Sprintf("gone%d", i), buckets)] = "GONE"
	}
	owner := func(bucket int) string {
		if node, ok := byBucket[bucket]; ok {
			return node
		}
		return "HOME"
	}
	var mu sync.Mutex
	cfg.OnForward = func(result string) {
		mu.Lock()
		defer mu.Unlock()
		r.results = append(r.results, result)
	}
	home := NewWriter(endpointAt(r.net, "HOME"), owners{owner: owner}, &r.home, buckets, WriterConfig{})
	lifecycletest.Start(t, home)
	me := owners{owner: owner, works: func() bool { return r.works != nil && r.works() }}
	r.writer = NewWriter(endpointAt(r.net, "ME"), me, &r.here, buckets, cfg)
	return r
}

// drafts creates one draft per named channel, with ids m0, m1, ...
func drafts(channels ...string) []message.Draft {
	ds := make([]message.Draft, len(channels))
	for i, c := range channels {
		ds[i] = message.Draft{ChannelID: c, MsgID: fmt.Sprintf("m%d", i), ClientMsgID: fmt.Sprintf("c%d", i), Content: "text"}
	}
	return ds
}

// told returns the outcome of each draft as text: "ok", or the reason of its fault.
func told(t *testing.T, ds []message.Draft, outs []message.Outcome) []string {
	t.Helper()
	if len(outs) != len(ds) {
		t.Fatalf("%d outcomes for %d drafts", len(outs), len(ds))
	}
	var s []string
	for i, out := range outs {
		if out.ChannelID != ds[i].ChannelID {
			t.Errorf("outcome %d is of channel %q, want %q", i, out.ChannelID, ds[i].ChannelID)
		}
		if e, ok := fault.As(out.Err); ok {
			s = append(s, string(e.Reason))
			continue
		}
		if out.Err != nil || out.MsgID != ds[i].MsgID || out.ClientMsgID != ds[i].ClientMsgID || out.Seq != 7 {
			t.Errorf("outcome %d is %+v", i, out)
		}
		s = append(s, "ok")
	}
	return s
}

func expect(t *testing.T, what string, want, got any) {
	t.Helper()
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("%s: %s", what, diff)
	}
}

func failing(reason fault.Reason, kind fault.Kind, ids ...string) func(*message.Draft) error {
	return func(d *message.Draft) error {
		if slices.Contains(ids, d.MsgID) {
			return fault.New(kind, reason, "failed")
		}
		return nil
	}
}

func TestDraftsAreForwardedToHome(t *testing.T) {
	t.Parallel()
	r := newRig(t, WriterConfig{})
	ds := drafts("here1", "far1", "gone1", "far2", "here1", "far1", "gone2", "here2")
	expect(t, "outcomes", slices.Repeat([]string{"ok"}, 8), told(t, ds, r.writer.Append(t.Context(), ds)))
	expect(t, "home", [][]string{{"m1", "m3", "m5"}}, r.home.all())
	here := r.here.all()
	slices.SortFunc(here, slices.Compare)
	expect(t, "here", [][]string{{"m0", "m4", "m7"}, {"m2", "m6"}}, here)
	expect(t, "nothing", []message.Outcome{}, r.writer.Append(t.Context(), nil))
}

func TestUnansweredForwardIsWrittenLocally(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		fate clustertest.Fate
		wait time.Duration
		home int
		want string
	}{
		"lost":        {clustertest.Lost, 500 * time.Millisecond, 0, ForwardUnanswered},
		"answer lost": {clustertest.AnswerLost, 500 * time.Millisecond, 1, ForwardUnanswered},
		"delayed":     {clustertest.Delayed, 500 * time.Millisecond, 0, ForwardUnanswered},
		"cut off":     {clustertest.CutOff, 0, 0, ForwardNobody},
		"busy":        {clustertest.Busy, 0, 0, ForwardNobody},
		"garbled":     {clustertest.Garbled, 0, 0, ForwardUnanswered},
		"empty":       {clustertest.EmptyAnswer, 0, 0, ForwardUnanswered},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				r := newRig(t, WriterConfig{}, c.fate)
				ds := drafts("far1", "far2", "far1")
				began := time.Now()
				expect(t, "outcomes", []string{"ok", "ok", "ok"}, told(t, ds, r.writer.Append(t.Context(), ds)))
				expect(t, "time", c.wait, time.Since(began))
				expect(t, "here", [][]string{{"m0", "m1", "m2"}}, r.here.all())
				expect(t, "home", c.home, len(r.home.all()))
				expect(t, "results", []string{c.want}, r.results)
			})
		})
	}
}

func TestRepeatedAndLateRequestsStoreOnce(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, WriterConfig{}, clustertest.Twice, clustertest.Delayed)
		ds := drafts("far1")
		expect(t, "twice", []string{"ok"}, told(t, ds, r.writer.Append(t.Context(), ds)))
		expect(t, "delayed", []string{"ok"}, told(t, ds, r.writer.Append(t.Context(), ds)))
		r.net.Deliver()
		expect(t, "home", [][]string{{"m0"}, {"m0"}, {"m0"}}, r.home.all())
		expect(t, "here", [][]string{{"m0"}}, r.here.all())
	})
}

func TestUnresponsiveHomeIsShunned(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, WriterConfig{}, clustertest.Lost)
		ds := drafts("far1")
		r.writer.Append(t.Context(), ds)
		began := time.Now()
		for range 3 {
			told(t, ds, r.writer.Append(t.Context(), ds))
		}
		expect(t, "time", time.Duration(0), time.Since(began))
		pass(time.Second)
		r.writer.Append(t.Context(), ds)
		expect(t, "results", []string{
			ForwardUnanswered, ForwardShunned, ForwardShunned, ForwardShunned, ForwardAnswered,
		}, r.results)
		expect(t, "home", 1, len(r.home.all()))
		expect(t, "here", 4, len(r.here.all()))
	})
}

func TestRefusingHomeIsShunned(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, WriterConfig{})
		r.home.fail = failing(fault.ShuttingDown, fault.Unavailable, "m0")
		ds := drafts("far1")
		for range 3 {
			expect(t, "outcomes", []string{"ok"}, told(t, ds, r.writer.Append(t.Context(), ds)))
		}
		r.home.fail = nil
		pass(time.Second)
		r.writer.Append(t.Context(), ds)
		expect(t, "results", []string{ForwardRefused, ForwardShunned, ForwardShunned, ForwardAnswered}, r.results)
	})
}

func TestCallerDeadlineDoesNotShunHome(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, WriterConfig{}, clustertest.Lost)
		r.here.fail = failing(fault.DeadlinePassed, fault.DeadlineExceeded, "m0")
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
		defer cancel()
		ds := drafts("far1")
		began := time.Now()
		// The home may have received the draft, so STORE_UNAVAILABLE would be wrong.
		expect(t, "outcomes", []string{"OUTCOME_UNKNOWN"}, told(t, ds, r.writer.Append(ctx, ds)))
		expect(t, "time", 10*time.Millisecond, time.Since(began))
		r.here.fail = nil
		r.writer.Append(t.Context(), ds)
		expect(t, "results", []string{ForwardUnanswered, ForwardAnswered}, r.results)
	})
}

func TestOutcomeUnknownAfterDoubtfulForward(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		fate clustertest.Fate
		want []string
	}{
		// A suspended node may resume and write. So every retryable failure is unknown, and final
		// outcomes stay.
		"unanswered": {clustertest.Lost, []string{"OUTCOME_UNKNOWN", "MESSAGE_NOT_FOUND", "ok"}},
		"nobody":     {clustertest.CutOff, []string{"STORE_UNAVAILABLE", "MESSAGE_NOT_FOUND", "ok"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				r := newRig(t, WriterConfig{}, c.fate)
				r.here.fail = func(d *message.Draft) error {
					switch d.MsgID {
					case "m0":
						return fault.New(fault.Unavailable, fault.StoreUnavailable, "away")
					case "m1":
						return fault.New(fault.NotFound, fault.MessageNotFound, "none")
					}
					return nil
				}
				ds := drafts("far1", "far2", "far3")
				outs := r.writer.Append(t.Context(), ds)
				expect(t, "outcomes", c.want, told(t, ds, outs))
				if e, _ := fault.As(outs[0].Err); e.Kind != fault.Unavailable {
					t.Errorf("kind %d", e.Kind)
				}
			})
		})
	}
}

// A Writer waits for a home that announces that it is able, up to MaxWait. It does not wait longer
// than Wait for one that is silent.
func TestBusyHomeIsWaitedFor(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		worksFor, maxWait time.Duration
		want              string
		took              time.Duration
	}{
		"silent":        {0, 0, ForwardUnanswered, 500 * time.Millisecond},
		"busy":          {time.Hour, 0, ForwardAnswered, 2 * time.Second},
		"falls silent":  {time.Second, 0, ForwardUnanswered, time.Second},
		"for ever busy": {time.Hour, 1500 * time.Millisecond, ForwardUnanswered, 1500 * time.Millisecond},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				r := newRig(t, WriterConfig{MaxWait: c.maxWait}, clustertest.Slow)
				began := time.Now()
				r.works = func() bool { return time.Since(began) < c.worksFor }
				ds := drafts("far1")
				expect(t, "outcomes", []string{"ok"}, told(t, ds, r.writer.Append(t.Context(), ds)))
				expect(t, "results", []string{c.want}, r.results)
				if took := time.Since(began); took != c.took {
					t.Errorf("took %s, want %s", took, c.took)
				}
				if here := len(r.here.all()); (here > 0) != (c.want == ForwardUnanswered) {
					t.Errorf("%d appends here", here)
				}
			})
		})
	}
}

func TestDraftsHomeCannotStoreAreWrittenLocally(t *testing.T) {
	t.Parallel()
	for reason, kind := range map[fault.Reason]fault.Kind{
		fault.ShuttingDown: fault.Unavailable, fault.DeadlinePassed: fault.DeadlineExceeded,
		fault.OutcomeUnknown: fault.Unavailable, fault.StoreUnavailable: fault.Unavailable,
	} {
		t.Run(string(reason), func(t *testing.T) {
			t.Parallel()
			r := newRig(t, WriterConfig{Shun: time.Nanosecond})
			r.home.fail = func(d *message.Draft) error {
				switch d.MsgID {
				case "m2": // far1's first failure
					return fault.New(kind, reason, "failed")
				case "m3", "m5":
					return fault.New(fault.Aborted, fault.BatchAborted, "failed")
				case "m4":
					return fault.New(fault.NotFound, fault.MessageNotFound, "none")
				}
				return nil
			}
			ds := drafts("far1", "far2", "far1", "far1", "far1", "far1", "far2")
			expect(t, "outcomes", []string{"ok", "ok", "ok", "ok", "MESSAGE_NOT_FOUND", "ok", "ok"},
				told(t, ds, r.writer.Append(t.Context(), ds)))
			expect(t, "here", [][]string{{"m2", "m3", "m5"}}, r.here.all())
			expect(t, "results", []string{ForwardRefused}, r.results)
			// An entry that the home may have stored must not be reported as not stored.
			r.here.fail = failing(fault.RateLimited, fault.ResourceExhausted, "m2")
			want := "RATE_LIMITED"
			if reason == fault.OutcomeUnknown {
				want = "OUTCOME_UNKNOWN"
			}
			expect(t, "again", want, told(t, ds, r.writer.Append(t.Context(), ds))[2])
		})
	}
}

func TestNothingIsStoredAfterRetryableFailure(t *testing.T) {
	t.Parallel()
	r := newRig(t, WriterConfig{})
	r.home.fail = func(d *message.Draft) error {
		switch d.MsgID {
		case "m0":
			return fault.New(fault.ResourceExhausted, fault.RateLimited, "too much")
		case "m1", "m2": // written here, far1's would come before m0
			return fault.New(fault.Unavailable, fault.ShuttingDown, "ends")
		}
		return nil
	}
	ds := drafts("far1", "far1", "far2")
	expect(t, "outcomes", []string{"RATE_LIMITED", "SHUTTING_DOWN", "ok"}, told(t, ds, r.writer.Append(t.Context(), ds)))
	expect(t, "here", [][]string{{"m2"}}, r.here.all())
}

func TestOtherFaultsOfAHomePassThrough(t *testing.T) {
	t.Parallel()
	r := newRig(t, WriterConfig{})
	limited := fault.New(fault.ResourceExhausted, fault.RateLimited, "too much")
	limited.RetryAfter = 100 * time.Millisecond
	r.home.fail = func(d *message.Draft) error {
		switch d.MsgID {
		case "m0":
			return fault.New(fault.PermissionDenied, fault.NotSender, "another's")
		case "m2":
			return limited
		case "m3":
			return errors.New("no fault")
		}
		return nil
	}
	ds := drafts("far1", "far1", "far2", "far3")
	outs := r.writer.Append(t.Context(), ds)
	expect(t, "outcomes", []string{"NOT_SENDER", "ok", "RATE_LIMITED", "INTERNAL"}, told(t, ds, outs))
	if e, _ := fault.As(outs[2].Err); e.RetryAfter != limited.RetryAfter || e.Kind != fault.ResourceExhausted {
		t.Errorf("got %+v", e)
	}
	expect(t, "here", 0, len(r.here.all()))
}

func TestLargeForwardIsSplitAndStaysPrefix(t *testing.T) {
	t.Parallel()
	big := func(channels ...string) []message.Draft {
		ds := drafts(channels...)
		for i := range ds {
			ds[i].Content = strings.Repeat("x", 40)
		}
		return ds
	}
	pieces := WriterConfig{PieceBytes: 150} // two drafts
	ds := big("far1", "far2", "far1", "far2", "far1", "far2", "far1")

	t.Run("all well", func(t *testing.T) {
		t.Parallel()
		r := newRig(t, pieces)
		expect(t, "outcomes", slices.Repeat([]string{"ok"}, 7), told(t, ds, r.writer.Append(t.Context(), ds)))
		expect(t, "home", [][]string{{"m0", "m1"}, {"m2", "m3"}, {"m4", "m5"}, {"m6"}}, r.home.all())
	})
	t.Run("a failure that may pass ends its channel", func(t *testing.T) {
		t.Parallel()
		r := newRig(t, pieces)
		r.home.fail = failing(fault.RateLimited, fault.ResourceExhausted, "m2")
		expect(t, "outcomes", []string{"ok", "ok", "RATE_LIMITED", "ok", "BATCH_ABORTED", "ok", "BATCH_ABORTED"},
			told(t, ds, r.writer.Append(t.Context(), ds)))
		expect(t, "home", [][]string{{"m0", "m1"}, {"m2", "m3"}, {"m5"}}, r.home.all())
		expect(t, "here", 0, len(r.here.all()))
	})
	t.Run("a final one does not", func(t *testing.T) {
		t.Parallel()
		r := newRig(t, pieces)
		r.home.fail = failing(fault.NotSender, fault.PermissionDenied, "m2")
		expect(t, "outcomes", []string{"ok", "ok", "NOT_SENDER", "ok", "ok", "ok", "ok"},
			told(t, ds, r.writer.Append(t.Context(), ds)))
	})
	t.Run("the rest goes here once the home is silent", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			r := newRig(t, pieces, clustertest.Answered, clustertest.Lost)
			r.here.fail = failing(fault.StoreUnavailable, fault.Unavailable, "m3", "m5", "m6")
			// m4 and m6 are of a channel that the lost piece contained too.
			expect(t, "outcomes", []string{"ok", "ok", "ok", "OUTCOME_UNKNOWN", "ok", "OUTCOME_UNKNOWN", "OUTCOME_UNKNOWN"},
				told(t, ds, r.writer.Append(t.Context(), ds)))
			expect(t, "home", [][]string{{"m0", "m1"}}, r.home.all())
			expect(t, "here", [][]string{{"m2", "m3", "m4", "m5", "m6"}}, r.here.all())
		})
	})
	t.Run("the rest goes here once the home ends", func(t *testing.T) {
		t.Parallel()
		r := newRig(t, pieces)
		r.home.fail = func(d *message.Draft) error {
			switch d.MsgID {
			case "m2":
				return fault.New(fault.ResourceExhausted, fault.RateLimited, "too much")
			case "m3":
				return fault.New(fault.Unavailable, fault.ShuttingDown, "ends")
			}
			return nil
		}
		expect(t, "outcomes", []string{"ok", "ok", "RATE_LIMITED", "ok", "BATCH_ABORTED", "ok", "BATCH_ABORTED"},
			told(t, ds, r.writer.Append(t.Context(), ds)))
		expect(t, "here", [][]string{{"m3", "m5"}}, r.here.all())
	})
	t.Run("one that is larger than a piece goes alone", func(t *testing.T) {
		t.Parallel()
		r := newRig(t, WriterConfig{PieceBytes: 10})
		expect(t, "outcomes", slices.Repeat([]string{"ok"}, 7), told(t, ds, r.writer.Append(t.Context(), ds)))
		expect(t, "home", 7, len(r.home.all()))
	})
}

func TestUndecodableDraftsFailImmediately(t *testing.T) {
	t.Parallel()
	r := newRig(t, WriterConfig{})
	ds := drafts("far1")
	ds[0].Kind = 9 // of a newer version
	began := time.Now()
	told(t, ds, r.writer.Append(t.Context(), ds))
	if took := time.Since(began); took > 400*time.Millisecond {
		t.Errorf("it took %s", took)
	}
	expect(t, "home", 0, len(r.home.all()))
	expect(t, "here", [][]string{{"m0"}}, r.here.all())
	// Text that is not UTF-8 can't be forwarded.
	ds = drafts("far1")
	ds[0].Content = "\xff"
	expect(t, "outcomes", []string{"ok"}, told(t, ds, r.writer.Append(t.Context(), ds)))
}

func TestWriterEnds(t *testing.T) {
	t.Parallel()
	net := clustertest.NewNet()
	w := NewWriter(endpointAt(net, "ME"), owners{owner: func(int) string { return "ME" }}, &appended{}, 1, WriterConfig{})
	lifecycletest.Start(t, w)
	lifecycletest.Stop(t, w)
	if _, err := net.Link().Request(t.Context(), "ME", appendDrafts.Name, nil); !errors.Is(err, cluster.ErrNoResponder) {
		t.Errorf("it serves after its end: %v", err)
	}
}

// moving is an Owners whose answer changes after the first call, as a Roster's does when it hears a
// node.
type moving struct{ looks atomic.Int64 }

func (m *moving) RecentlyAble(string, time.Duration) bool { return false }
func (m *moving) Owner(int) string {
	if m.looks.Add(1) == 1 {
		return "HOME"
	}
	return "ME"
}

func TestChannelDraftsShareOneForward(t *testing.T) {
	t.Parallel()
	net := clustertest.NewNet()
	var here, home appended
	w := NewWriter(endpointAt(net, "ME"), &moving{}, &here, 4, WriterConfig{})
	hw := NewWriter(endpointAt(net, "HOME"), owners{owner: func(int) string { return "HOME" }}, &home, 4, WriterConfig{})
	lifecycletest.Start(t, hw)
	w.Append(t.Context(), drafts("a", "a", "a"))
	if len(here.all()) > 0 && len(home.all()) > 0 {
		t.Errorf("one channel's drafts of one batch went to two nodes at once, unordered: here %v, home %v", here.all(), home.all())
	}
}
