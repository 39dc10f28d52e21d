package erasure_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/parleyhq/parley/server/internal/channel"
	"github.com/parleyhq/parley/server/internal/erasure"
	"github.com/parleyhq/parley/server/internal/fault"
	"github.com/parleyhq/parley/server/internal/lifecycle/lifecycletest"
	"github.com/parleyhq/parley/server/internal/message"
	"github.com/parleyhq/parley/server/internal/store/embedded"
	"github.com/parleyhq/parley/server/internal/testkit"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const patience = 30 * time.Second

// fuse lets a number of calls pass; all later ones fail, as after the death of the process. Of the
// first that fails, the reply is lost if odd is set: the call is made.
type fuse struct {
	mu   sync.Mutex
	left int
	odd  bool
}

var errDead = errors.New("the process is dead")

func (f *fuse) call(fn func() error) error {
	f.mu.Lock()
	f.left--
	left := f.left
	f.mu.Unlock()
	switch {
	case left >= 0:
		return fn()
	case left == -1 && f.odd:
		_ = fn()
	}
	return errDead
}

// rig is a real embedded store with a writer, and a fake cache. All calls pass its fuse.
type rig struct {
	*embedded.Store

	t        *testing.T
	writer   *message.Writer
	channels *embedded.Channels
	jobs     *embedded.Erasures
	fuse     *fuse

	mu      sync.Mutex
	dropped map[string]int // how often the cache of a channel was dropped
	noCache bool           // the cache does not answer
	told    []channel.Change
}

func newRig(t *testing.T) *rig {
	t.Helper()
	s, err := embedded.Open(t.TempDir(), embedded.Config{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(context.WithoutCancel(t.Context())); err != nil {
			t.Error(err)
		}
	})
	r := &rig{
		t: t, Store: s, channels: s.Channels(), jobs: s.Erasures(), fuse: &fuse{left: 1 << 30}, dropped: map[string]int{},
		writer: message.NewWriter(s, s.Identity().Shards, message.WriterConfig{}),
	}
	lifecycletest.Start(t, r.writer)
	return r
}

func (r *rig) config() erasure.Config {
	return erasure.Config{
		Store: jobs{r}, Log: r, Channels: members{r}, Writer: r, Cache: r, EndSession: r.endSession, Every: 5 * time.Millisecond, Settle: 10 * time.Millisecond,
		Recheck: 10 * time.Millisecond, EventsMaxAge: 100 * time.Millisecond, Logger: slog.New(slog.DiscardHandler),
		Notify: func(c channel.Change) { r.told = append(r.told, c) },
	}
}

func (r *rig) Drop(_ context.Context, channelID string) error {
	return r.fuse.call(func() error {
		r.mu.Lock()
		defer r.mu.Unlock()
		if r.noCache {
			return errors.New("no cache")
		}
		r.dropped[channelID]++
		return nil
	})
}

func (r *rig) Append(ctx context.Context, drafts []message.Draft) (outs []message.Outcome) {
	if r.fuse.call(func() error { outs = r.writer.Append(ctx, drafts); return nil }) == nil {
		return outs
	}
	outs = make([]message.Outcome, len(drafts))
	for i := range outs {
		outs[i].Err = fault.Wrap(errDead, fault.Unavailable, fault.OutcomeUnknown, "dead")
	}
	return outs
}

func (r *rig) BySender(ctx context.Context, userID string, limit int) (found []message.Entry, err error) {
	err = r.fuse.call(func() error { found, err = r.Store.BySender(ctx, userID, min(limit, 7)); return err })
	return found, err
}

func (r *rig) Scrub(ctx context.Context, channelID, userID string, seqs []int64) error {
	return r.fuse.call(func() error { return r.Store.Scrub(ctx, channelID, userID, seqs) })
}

// members passes the rig's calls of the store of channels through its fuse.
type members struct{ r *rig }

func (m members) Memberships(ctx context.Context, userID, after string, limit int) ([]channel.Member, error) {
	return m.r.channels.Memberships(ctx, userID, after, limit)
}

func (m members) RemoveMembers(ctx context.Context, channelID string, userIDs []string, left int64) error {
	return m.r.fuse.call(func() error { return m.r.channels.RemoveMembers(ctx, channelID, userIDs, left) })
}

func (m members) Forget(ctx context.Context, userID string, limit int) (n int, err error) {
	err = m.r.fuse.call(func() error { n, err = m.r.channels.Forget(ctx, userID, min(limit, 2)); return err })
	return n, err
}

// jobs passes the rig's writes of jobs through its fuse.
type jobs struct{ r *rig }

func (j jobs) Put(ctx context.Context, job erasure.Job) (erasure.Job, error) {
	return j.r.jobs.Put(ctx, job)
}

func (j jobs) Save(ctx context.Context, job erasure.Job) (saved erasure.Job, err error) {
	err = j.r.fuse.call(func() error { saved, err = j.r.jobs.Save(ctx, job); return err })
	return saved, err
}

func (j jobs) Get(ctx context.Context, id string) (erasure.Job, error) { return j.r.jobs.Get(ctx, id) }

func (j jobs) List(ctx context.Context, after string, limit int, open bool) ([]erasure.Job, error) {
	return j.r.jobs.List(ctx, after, limit, open)
}

func (r *rig) must(err error) {
	r.t.Helper()
	if err != nil {
		r.t.Fatal(err)
	}
}

// write appends drafts and returns their outcomes.
func (r *rig) write(drafts ...message.Draft) []message.Outcome {
	r.t.Helper()
	outs := r.writer.Append(r.t.Context(), drafts)
	for i := range outs {
		r.must(outs[i].Err)
	}
	return outs
}

func sendBy(from, channelID, key string) message.Draft {
	return message.Draft{
		Kind: message.KindSend, ChannelID: channelID, MsgID: channelID + from + key, FromID: from, MsgType: "text", Content: "secret of " + from,
		Metadata: map[string]string{"by": from}, ClientMsgID: key, Traceparent: "trace of " + from,
	}
}

// fill fills three channels with messages of zoe and bob, edits and recalls, and makes both members
// with cursors.
func (r *rig) fill() {
	r.t.Helper()
	for c := range 3 {
		id := fmt.Sprint("room", c)
		_, err := r.channels.Create(r.t.Context(), channel.Row{ChannelID: id, CreatedBy: "zoe", CreatedAt: time.Now()}, []string{"zoe", "bob"})
		r.must(err)
		for i := range 4 {
			r.write(sendBy("zoe", id, fmt.Sprint(i)), sendBy("bob", id, fmt.Sprint(i)))
		}
		change := message.Draft{ChannelID: id, FromID: "zoe", ClientMsgID: "e", Kind: message.KindEdit, MsgID: id + "zoe0", Content: "edited secret"}
		recall := message.Draft{ChannelID: id, FromID: "zoe", ClientMsgID: "r", Kind: message.KindRecall, MsgID: id + "zoe1"}
		other := message.Draft{ChannelID: id, FromID: "zoe", ClientMsgID: "o", Kind: message.KindRecall, MsgID: id + "bob1", AnySender: true}
		r.write(change, recall, other)
	}
	r.must(r.channels.RemoveMembers(r.t.Context(), "room2", []string{"zoe"}, 3))
	// The mode of one channel has changed, after which entries without its revision are refused.
	r.write(message.Draft{Kind: message.KindAccess, ChannelID: "room1", ClientMsgID: "access-1", Rev: 1})
}

// wantErased checks that nothing of zoe is left, and everything of bob.
func (r *rig) wantErased() {
	r.t.Helper()
	ctx := r.t.Context()
	for c := range 3 {
		id := fmt.Sprint("room", c)
		log, err := r.Entries(ctx, id, message.Range{Limit: 100})
		r.must(err)
		counts := map[message.Status]int{}
		for i := range log {
			e := &log[i]
			if text := fmt.Sprintf("%+v", *e); strings.Contains(strings.ReplaceAll(text, e.MsgID, ""), "zoe") {
				r.t.Errorf("entry %s", text)
			}
			if e.Kind == message.KindSend {
				counts[e.Status]++
			}
			if e.Kind == message.KindSend && e.FromID == message.ErasedUser && (e.Status != message.StatusRecalled || e.Content != "" || e.Digest != nil) {
				r.t.Errorf("erased message %+v", e)
			}
		}
		// zoe's 4 messages, each erased once, and the one of bob that she recalled.
		want := 8 + 3 + 4
		if id == "room1" {
			want++ // the change of its mode
		}
		if len(log) != want || counts[message.StatusSent] != 3 || counts[message.StatusRecalled] != 5 {
			r.t.Errorf("%d entries, %v", len(log), counts)
		}
		if r.dropped[id] == 0 {
			r.t.Errorf("the cache of %s was not dropped", id)
		}
		rows, err := r.channels.Rows(ctx, []string{id})
		r.must(err)
		if rows[id].CreatedBy != "" {
			r.t.Errorf("row %+v", rows[id])
		}
		all, err := r.channels.Members(ctx, id, "", 10)
		r.must(err)
		if len(all) != 1 || all[0].UserID != "bob" {
			r.t.Errorf("members %+v", all)
		}
	}
	if n, err := r.channels.Forget(ctx, "zoe", 10); n != 0 || err != nil {
		r.t.Errorf("%d records are left, %v", n, err)
	}
}

// await waits until the job has a state.
func (r *rig) await(id string, state erasure.State) erasure.Job {
	r.t.Helper()
	return r.awaitJob(id, func(job *erasure.Job) bool { return job.State == state })
}

// awaitJob waits until the job is as ok demands.
func (r *rig) awaitJob(id string, ok func(job *erasure.Job) bool) (job erasure.Job) {
	r.t.Helper()
	testkit.Eventually(r.t, patience, func() (err error) {
		if job, err = r.jobs.Get(r.t.Context(), id); err == nil && !ok(&job) {
			err = fmt.Errorf("job %+v", job)
		}
		return err
	})
	return job
}

func TestErasure(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.fill()
	cfg := r.config()
	cfg.EventsMaxAge = time.Hour
	runner := erasure.New(cfg)
	s := erasure.NewService(r.jobs, runner.Wake)
	_, err := s.Erase(t.Context(), "zoe", "1")
	r.must(err)
	if _, err := s.Erase(t.Context(), "bob", "1"); !fault.Is(err, fault.IdempotencyKeyReused) {
		t.Errorf("another user: %v", err)
	}
	if _, err := s.Get(t.Context(), "2"); !fault.Is(err, fault.ErasureNotFound) {
		t.Errorf("a missing job: %v", err)
	}
	lifecycletest.Start(t, runner)
	r.await("1", erasure.Erased)
	r.wantErased()
	// What the user sends later, or a late event brings back, is erased until the job is finished.
	r.write(sendBy("zoe", "room0", "late"))
	r.must(r.channels.Advance(t.Context(), []channel.Advance{{ChannelID: "late", Senders: map[string]channel.Cursor{"zoe": {Seq: 1, Count: 1}}}}, time.Now()))
	testkit.Eventually(t, patience, func() error {
		found, err := r.Store.BySender(t.Context(), "zoe", 10)
		of, err2 := r.channels.Memberships(t.Context(), "zoe", "", 10)
		if len(found)+len(of) > 0 {
			return fmt.Errorf("found %+v, %+v, %w", found, of, errors.Join(err, err2))
		}
		return errors.Join(err, err2)
	})
	lifecycletest.Stop(t, runner)
	lifecycletest.Start(t, erasure.New(r.config()))
	job := r.await("1", erasure.Finished)
	if job.Messages != 13 || job.Changes != 9 || job.Memberships != 3 || job.ErasedAt.IsZero() || job.FinishedAt.Before(job.ErasedAt) {
		t.Errorf("job %+v", job)
	}
	if len(r.told) != 3 {
		t.Errorf("told %+v", r.told)
	}
}

// A job that finds nothing more is not Erased before Settle has passed, because a write from before
// may still arrive.
func TestErasedOnlyAfterSettle(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.fill()
	cfg := r.config()
	cfg.Settle = time.Hour
	_, err := erasure.NewService(r.jobs, func() {}).Erase(t.Context(), "zoe", "1")
	r.must(err)
	lifecycletest.Start(t, erasure.New(cfg))
	job := r.awaitJob("1", func(job *erasure.Job) bool { return job.State != erasure.Running || !job.NextAt.IsZero() })
	if job.State != erasure.Running || job.NextAt.Before(job.QuietAt.Add(time.Hour)) {
		t.Errorf("job %+v", job)
	}
}

// A process that dies at any call, before or after it was made, leaves a job that the next one
// finishes, and nothing is done twice to a message.
func TestKilledAtEachStep(t *testing.T) {
	t.Parallel()
	for _, odd := range []bool{false, true} {
		for left := 1; left < 9; left++ {
			t.Run(fmt.Sprint(left, odd), func(t *testing.T) {
				t.Parallel()
				r := newRig(t)
				r.fill()
				r.fillSessions()
				_, err := r.jobs.Put(t.Context(), erasure.Job{ID: "1", UserID: "zoe", State: erasure.Running})
				r.must(err)
				deaths := 0
				for allowed := left; ; allowed++ { // else a step with more calls would never be done
					r.fuse = &fuse{left: allowed, odd: odd}
					died, done := r.life()
					if done {
						break
					}
					if died {
						deaths++
					}
				}
				r.fuse = &fuse{left: 1 << 30}
				r.wantErased()
				r.wantNoSessions()
				if deaths < 3 {
					t.Errorf("it died %d times only", deaths)
				}
			})
		}
	}
}

// life runs the job in a process until the process dies or the job is erased.
func (r *rig) life() (died, done bool) {
	r.t.Helper()
	runner := erasure.New(r.config())
	for {
		job, err := r.jobs.Get(r.t.Context(), "1")
		r.must(err)
		if job.State != erasure.Running {
			return false, true
		}
		if wait := time.Until(job.NextAt); wait > 0 && wait < time.Second { // one that failed need not wait
			<-time.After(wait)
		}
		if err := runner.Step(r.t.Context(), &job); err != nil {
			return true, false
		}
	}
}

// A cache that does not answer does not keep messages from being erased. But the job is not Erased
// before the cache has answered.
func TestWithoutCache(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.fill()
	r.noCache = true
	_, err := r.jobs.Put(t.Context(), erasure.Job{ID: "1", UserID: "zoe", State: erasure.Running})
	r.must(err)
	lifecycletest.Start(t, erasure.New(r.config()))
	testkit.Eventually(t, patience, func() error {
		job, err := r.jobs.Get(t.Context(), "1")
		if err != nil || job.Messages != 12 || job.Memberships != 2 || len(job.Cached) != 3 || job.NextAt.IsZero() {
			return fmt.Errorf("job %+v, %w", job, err)
		}
		if job.State != erasure.Running {
			t.Fatal("it is erased")
		}
		return nil
	})
	r.mu.Lock()
	r.noCache = false
	r.mu.Unlock()
	r.await("1", erasure.Erased)
	r.wantErased()
}

func TestStress(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.fill()
	_, err := r.jobs.Put(t.Context(), erasure.Job{ID: "1", UserID: "zoe", State: erasure.Running})
	r.must(err)
	lifecycletest.Stress[*erasure.Runner](t, func(*testing.T) *erasure.Runner { return erasure.New(r.config()) })
}
