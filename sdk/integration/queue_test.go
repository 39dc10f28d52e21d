package integration_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/types/known/durationpb"

	parleyv1 "github.com/parleyhq/parley/gen/go/parley/v1"
	parley "github.com/parleyhq/parley/sdk/go"
	queue "github.com/parleyhq/parley/sdk/go/queue"
	"github.com/parleyhq/parley/server/servertest"
)

// realTopic is a topic on a real server of its own, with an Admin for it.
type realTopic struct {
	*queue.Admin

	t      *testing.T
	server *servertest.Server
	client *parley.Client
}

// newReal creates the topic `jobs` with groups.
func newReal(t *testing.T, partitions int32, groups ...*queue.Group) *realTopic {
	t.Helper()
	s := servertest.Dev(t)
	c := newClient(t, s.URL, parley.WithToken(s.Token))
	r := &realTopic{Admin: queue.NewAdmin(c), t: t, server: s, client: c}
	if _, err := r.CreateTopic(testContext(t), &queue.Topic{Name: "jobs", Partitions: partitions}); err != nil {
		t.Fatalf("create topic: %v", err)
	}
	for _, g := range groups {
		if _, err := r.CreateGroup(testContext(t), "jobs", g); err != nil {
			t.Fatalf("create group: %v", err)
		}
	}
	return r
}

func millis(n int) *durationpb.Duration { return durationpb.New(time.Duration(n) * time.Millisecond) }

// stats waits until want returns true for the stats of the topic's first group.
func (r *realTopic) stats(topic string, want func(g *queue.GroupStats) bool) {
	r.t.Helper()
	eventually(r.t, func() error {
		total, partitions, err := r.Stats(testContext(r.t), topic)
		if err != nil {
			return err
		}
		length := int64(0)
		for _, p := range partitions {
			length += p.GetLength()
		}
		if length != total.GetLength() {
			return fmt.Errorf("the partitions hold %d messages, the topic %d", length, total.GetLength())
		}
		if g := total.GetGroups()[0]; !want(g) {
			return fmt.Errorf("stats %v", g)
		}
		return nil
	})
}

// TestWorkersOfParleyd shares messages of many keys between workers, while one of them is stopped
// and another one joins. Every message must be handled once, in the order of its key.
func TestWorkersOfParleyd(t *testing.T) {
	t.Parallel()
	r := newReal(t, 4, &queue.Group{Name: "g"})
	const keys, each = 10, 100
	var mu sync.Mutex
	got := make(map[string][]string)
	handle := func(_ context.Context, d *queue.Delivery) error {
		mu.Lock()
		defer mu.Unlock()
		if d.Attempt != 1 {
			t.Errorf("%s: attempt %d", d.Payload, d.Attempt)
		}
		got[d.Key] = append(got[d.Key], string(d.Payload))
		return nil
	}
	first := work(t, r.client, "jobs", "g", handle)
	work(t, r.client, "jobs", "g", handle, queue.WithUnaryCalls())
	var want []string
	for i := range each {
		want = append(want, fmt.Sprint(i))
		var round []queue.Message
		for k := range keys {
			round = append(round, queue.Message{Key: fmt.Sprint(k), Payload: fmt.Append(nil, i)})
		}
		produce(t, r.client, "jobs", round...)
		switch i {
		case each / 3:
			if err := first.finish(); err != nil {
				t.Errorf("run: %v", err)
			}
			if s := first.Stats(); s.Lost != 0 || s.Delivered != s.Acked+s.Released {
				t.Errorf("the one that stopped: %+v", s)
			}
		case 2 * each / 3:
			work(t, r.client, "jobs", "g", handle)
		}
	}
	r.stats("jobs", func(g *queue.GroupStats) bool { return g.GetAcked() == keys*each && g.GetRunning() == 0 })
	mu.Lock()
	defer mu.Unlock()
	for k := range keys {
		if diff := cmp.Diff(want, got[fmt.Sprint(k)]); diff != "" {
			t.Errorf("key %d (-want +got):\n%s", k, diff)
		}
	}
}

// TestFailuresAtParleyd handles messages that fail at first, always, or with a non-retryable code,
// and scheduled ones. Each must be retried or become a dead letter accordingly, and the replayed
// dead letters must be handled.
func TestFailuresAtParleyd(t *testing.T) {
	t.Parallel()
	quick := &queue.RetryPolicy{MaxAttempts: new(int32(3)), MinBackoff: millis(1), MaxBackoff: millis(20), NonRetryableCodes: []string{"bad"}}
	r := newReal(t, 2, &queue.Group{Name: "g", Retry: quick})
	ctx := testContext(t)
	for _, p := range []string{"twice", "poison", "coded", "fine"} {
		produce(t, r.client, "jobs", queue.Message{Payload: []byte(p)})
	}
	p := queue.NewProducer(r.client, "jobs")
	due := time.Now().Add(300 * time.Millisecond) // or later
	stored, err := p.Produce(ctx, queue.Message{Payload: []byte("later"), Delay: 300 * time.Millisecond},
		queue.Message{Payload: []byte("never"), Delay: time.Hour})
	if err = errors.Join(err, queue.Errors(stored)); err != nil {
		t.Fatal(err)
	}
	if errs, err := p.Cancel(ctx, stored[1].Receipt.MessageID); errors.Join(append(errs, err)...) != nil {
		t.Errorf("cancel: %v, %v", errs, err)
	}
	var mu sync.Mutex
	fixed := false
	tries := make(map[string]int)
	w := work(t, r.client, "jobs", "g", func(_ context.Context, d *queue.Delivery) error {
		mu.Lock()
		defer mu.Unlock()
		tries[string(d.Payload)]++
		switch p := string(d.Payload); {
		case p == "twice" && d.Attempt < 3, p == "poison" && !fixed:
			return errors.New("no luck")
		case p == "coded" && !fixed:
			return queue.Code(errors.New("unreadable"), "bad")
		case p == "later" && time.Now().Before(due.Add(-5*time.Millisecond)):
			t.Error("a scheduled message came early")
		}
		return nil
	})
	r.stats("jobs", func(g *queue.GroupStats) bool { return g.GetAcked() == 3 && g.GetDead() == 2 && g.GetRunning() == 0 })
	reasons := make(map[string]string)
	for d, err := range r.DeadLetters(ctx, "jobs", "g") {
		if err != nil {
			t.Fatal(err)
		}
		reasons[string(d.GetPayload())] = fmt.Sprintf("%s/%s/%d", d.GetReason(), d.GetCode(), d.GetAttempts())
	}
	if diff := cmp.Diff(map[string]string{"poison": "no luck//3", "coded": "unreadable/bad/1"}, reasons); diff != "" {
		t.Errorf("dead letters (-want +got):\n%s", diff)
	}
	for _, err := range r.DeadLetters(ctx, "jobs", "typo") {
		if !errors.Is(err, parley.ErrGroupNotFound) {
			t.Errorf("dead letters of a missing group: %v", err)
		}
		reasons["typo"] = "told"
	}
	_, _, errReplay := r.ReplayDeadLetters(ctx, "jobs", queue.DeadLettersOf("typo"))
	_, errPurge := r.PurgeDeadLetters(ctx, "jobs", queue.DeadLettersOf("typo"), "jobs")

	if reasons["typo"] == "" || !errors.Is(errReplay, parley.ErrGroupNotFound) || !errors.Is(errPurge, parley.ErrGroupNotFound) {
		t.Errorf("a missing group: replay %v, purge %v", errReplay, errPurge)
	}
	mu.Lock()
	fixed = true
	mu.Unlock()
	if n, more, err := r.ReplayDeadLetters(ctx, "jobs", queue.DeadLettersOf("g")); n != 2 || more || err != nil {
		t.Errorf("replay: %d, %v, %v", n, more, err)
	}
	r.stats("jobs", func(g *queue.GroupStats) bool { return g.GetAcked() == 5 && g.GetReplayed() == 2 })
	if err := w.finish(); err != nil {
		t.Errorf("run: %v", err)
	}
	mu.Lock()
	defer mu.Unlock()
	if diff := cmp.Diff(map[string]int{"twice": 3, "poison": 4, "coded": 2, "fine": 1, "later": 1}, tries); diff != "" {
		t.Errorf("tries (-want +got):\n%s", diff)
	}
}

// TestAdminOfParleyd checks pauses, SeekGroup and calls without a selection, which must fail.
func TestAdminOfParleyd(t *testing.T) {
	t.Parallel()
	r := newReal(t, 2, &queue.Group{Name: "g"}, &queue.Group{Name: "moved"})
	ctx := testContext(t)
	if topic, err := r.Topic(ctx, "jobs"); err != nil || topic.GetPartitioner() != parleyv1.Partitioner_PARTITIONER_CONSISTENT_HASH {
		t.Errorf("topic %v, %v", topic, err)
	}
	produce(t, r.client, "jobs", keyed(4)...)
	_, _, errReplay := r.ReplayDeadLetters(ctx, "jobs", queue.Selection{})

	_, errPurge := r.PurgeDeadLetters(ctx, "jobs", queue.DeadLetterIDs(), "jobs")
	_, _, errTrim := r.Trim(ctx, "jobs", queue.Keep{}, queue.WithUnsettled())
	errSeek := r.SeekGroup(ctx, "jobs", "moved", nil)
	for i, err := range []error{errReplay, errPurge, errTrim, errSeek} {
		if !errors.Is(err, parley.ErrInvalidField) {
			t.Errorf("call %d without a selection: got %v", i, err)
		}
	}
	if topic, err := r.PauseTopic(ctx, "jobs"); err != nil || !topic.GetPaused() {
		t.Errorf("pause: %v, %v", topic, err)
	}
	stored := make(chan error, 1)
	go func() {
		_, err := queue.NewProducer(r.client, "jobs").Produce(ctx, queue.Message{Key: "k", Payload: []byte("k-4")})
		stored <- err
	}()
	if topic, err := r.ResumeTopic(ctx, "jobs"); err != nil || topic.GetPaused() {
		t.Errorf("resume: %v, %v", topic, err)
	}
	if err := <-stored; err != nil {
		t.Errorf("produce into a topic that was paused: %v", err)
	}
	if err := r.SeekGroup(ctx, "jobs", "moved", queue.FromEnd()); err != nil {
		t.Errorf("seek: %v", err)
	}
	w := work(t, r.client, "jobs", "g", func(context.Context, *queue.Delivery) error { return nil })
	r.stats("jobs", func(g *queue.GroupStats) bool { return g.GetAcked() == 5 })
	if group, err := r.PauseGroup(ctx, "jobs", "g"); err != nil || !group.GetPaused() {
		t.Errorf("pause the group: %v, %v", group, err)
	}
	if group, err := r.ResumeGroup(ctx, "jobs", "g"); err != nil || group.GetPaused() {
		t.Errorf("resume the group: %v, %v", group, err)
	}
	if err := w.finish(); err != nil {
		t.Errorf("run: %v", err)
	}
	if removed, unsettled, err := r.Trim(ctx, "jobs", queue.KeepNewest(1)); err != nil || unsettled != 0 || removed > 4 {
		t.Errorf("trim: %d, %d, %v", removed, unsettled, err)
	}
}

// TestLongWorkAtParleyd runs a handler for three times the ack timeout. The worker must extend its
// delivery, so that the message is delivered once.
func TestLongWorkAtParleyd(t *testing.T) {
	t.Parallel()
	both(t, func(t *testing.T, opts ...queue.WorkerOption) {
		r := newReal(t, 1, &queue.Group{Name: "g"})
		produce(t, r.client, "jobs", queue.Message{})
		w := work(t, r.client, "jobs", "g", func(ctx context.Context, _ *queue.Delivery) error {
			select {
			case <-ctx.Done():
				t.Errorf("its context ended: %v", context.Cause(ctx))
			case <-time.After(3 * time.Second):
			}
			return nil
		}, append(opts, queue.WithAckTimeout(time.Second))...)
		r.stats("jobs", func(g *queue.GroupStats) bool { return g.GetAcked() == 1 })
		if s := w.Stats(); s.Streams != 1 || s.Delivered != 1 {
			t.Errorf("stats %+v", s)
		}
	})
}

// TestStopAtParleyd stops a worker that is handling a few of many delivered messages. It must
// release the others, without an attempt counted.
func TestStopAtParleyd(t *testing.T) {
	t.Parallel()
	both(t, func(t *testing.T, opts ...queue.WorkerOption) {
		r := newReal(t, 1, &queue.Group{Name: "g"})
		produce(t, r.client, "jobs", keyed(20)...)
		started, finish := make(chan struct{}), make(chan struct{})
		var once sync.Once
		w := work(t, r.client, "jobs", "g", func(context.Context, *queue.Delivery) error {
			once.Do(func() { close(started) })
			<-finish
			return nil
		}, opts...)
		<-started
		eventually(t, func() error {
			if n := w.Stats().Delivered; n < 2 {
				return fmt.Errorf("%d delivered", n)
			}
			return nil
		})
		w.stop()
		close(finish)
		if err := w.finish(); err != nil {
			t.Errorf("run: %v", err)
		}
		done := w.Stats()
		if done.Lost != 0 || done.Released == 0 {
			t.Errorf("stats %+v", done)
		}
		work(t, r.client, "jobs", "g", func(_ context.Context, d *queue.Delivery) error {
			if d.Attempt != 1 {
				t.Errorf("%s: attempt %d", d.Payload, d.Attempt)
			}
			return nil
		}, opts...)
		r.stats("jobs", func(g *queue.GroupStats) bool { return g.GetAcked() == 20 })
	})
}

// TestReleaseAtParleyd stops workers whose handlers return ErrRelease. The message may be delivered
// to them again while they stop, and no delivery may count as an attempt.
func TestReleaseAtParleyd(t *testing.T) {
	t.Parallel()
	both(t, func(t *testing.T, opts ...queue.WorkerOption) {
		r := newReal(t, 1, &queue.Group{Name: "g"})
		produce(t, r.client, "jobs", queue.Message{})
		for range 5 {
			ctx, stop := context.WithCancel(testContext(t))
			w := queue.NewWorker(r.client, "g", append(opts, queue.WithConcurrency(1))...).Handle("jobs", func(_ context.Context, d *queue.Delivery) error {
				if d.Attempt != 1 {
					t.Errorf("got attempt %d", d.Attempt)
				}
				stop()
				return queue.ErrRelease
			})
			if err := w.Run(ctx); err != nil {
				t.Fatalf("run: %v", err)
			}
			if s := w.Stats(); s.Released == 0 || s.Lost != 0 {
				t.Errorf("stats %+v", s)
			}
		}
	})
}

// TestRestartOfParleyd restarts the server while a producer and a worker use it. Every message must
// be stored and handled, in order except for repeats.
func TestRestartOfParleyd(t *testing.T) {
	t.Parallel()
	r := newReal(t, 2, &queue.Group{Name: "g"})
	ctx := testContext(t)
	p := queue.NewProducer(r.client, "jobs")
	var mu sync.Mutex
	seen := make(map[string]bool)
	var first []string
	w := work(t, r.client, "jobs", "g", func(_ context.Context, d *queue.Delivery) error {
		mu.Lock()
		defer mu.Unlock()
		if p := string(d.Payload); !seen[p] {
			seen[p] = true
			first = append(first, p)
		}
		return nil
	})
	for i := range 100 {
		if _, err := p.Send(ctx, queue.Message{Key: "k", Payload: fmt.Append(nil, i)}); err != nil {
			t.Fatalf("send: %v", err)
		}
		if i == 50 {
			r.server.Stop()
			r.server.Start()
		}
	}
	if err := p.Close(ctx); err != nil {
		t.Errorf("close: %v", err)
	}
	r.stats("jobs", func(g *queue.GroupStats) bool { return g.GetAcked() == 100 })
	mu.Lock()
	defer mu.Unlock()
	for i, p := range first {
		if p != fmt.Sprint(i) {
			t.Fatalf("message %d is %s", i, p)
		}
	}
	if s := w.Stats(); s.Streams < 2 {
		t.Errorf("stats %+v", s)
	}
}
