package queue_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/proto"

	parleyv1 "github.com/parleyhq/parley/gen/go/parley/v1"
	parley "github.com/parleyhq/parley/sdk/go"
	"github.com/parleyhq/parley/sdk/go/parleytest"
	"github.com/parleyhq/parley/sdk/go/queue"
)

// TestProducersWaitForAPausedTopic pauses a topic while producers run. They must retry until it is
// resumed, or until their deadline.
func TestProducersWaitForAPausedTopic(t *testing.T) {
	t.Parallel()
	s := parleytest.Start(t)
	s.AddTopic("jobs", 1, "g")
	ctx, c := testContext(t), newClient(t, s.Addr())
	admin := queue.NewAdmin(c)
	if topic, err := admin.Pause(ctx, "jobs", queue.Produce); err != nil || !topic.GetProducePaused() || topic.GetConsumePaused() {
		t.Fatalf("pause: %v, %v", topic, err)
	}
	const timeout = time.Second
	p := queue.NewProducer(newClient(t, s.Addr(), parley.WithCallTimeout(timeout)), "jobs")
	for name, call := range map[string]func() error{
		"Produce": func() error {
			results, err := p.Produce(t.Context(), queue.Message{})
			if !errors.Is(results[0].Err, parley.ErrTopicPaused) || results[0].Receipt != nil {
				t.Errorf("result %+v", results[0])
			}
			return err
		},
		"Schedule": func() error { _, err := p.Schedule(t.Context(), time.Hour, queue.Message{}); return err },
		"Send":     func() error { _, err := p.Send(t.Context(), queue.Message{}); return err },
	} {
		err := call()
		if !errors.Is(err, context.DeadlineExceeded) || !errors.Is(err, parley.ErrTopicPaused) ||
			!strings.Contains(err.Error(), "deadline of 1s") {
			t.Errorf("%s: got %v, want the deadline and the last failure", name, err)
		}
	}
	stored := make(chan error, 2)
	unhurried := queue.NewProducer(c, "jobs")
	go func() { _, err := unhurried.Produce(ctx, queue.Message{Payload: []byte("a")}); stored <- err }()
	go func() { _, err := unhurried.Send(ctx, queue.Message{Payload: []byte("a")}); stored <- err }()
	before := len(s.Requests())
	eventually(t, func() error {
		if len(s.Requests()) < before+4 {
			return errors.New("no producer has sent a request")
		}
		return nil
	})
	if topic, err := admin.Resume(ctx, "jobs", queue.Produce); err != nil || topic.GetProducePaused() {
		t.Fatalf("resume: %v, %v", topic, err)
	}
	for range 2 {
		if err := <-stored; err != nil {
			t.Errorf("produce: %v", err)
		}
	}
	if got := s.Produced("jobs"); !slices.Equal(got, []string{"a", "a"}) {
		t.Errorf("the topic holds %q", got)
	}
}

// TestSendUsesCallerDeadline joins two callers in a batch: one with a deadline of its own and one
// with the shorter call timeout. Each must wait until its own deadline.
func TestSendUsesCallerDeadline(t *testing.T) {
	t.Parallel()
	s := parleytest.Start(t)
	s.AddTopic("jobs", 1, "g")
	s.FaultTimes(1<<30, "Produce", parleytest.Fault{
		Err: parleytest.Error(connect.CodeResourceExhausted, parleyv1.ErrorReason_ERROR_REASON_TOPIC_FULL),
	})
	const timeout = 500 * time.Millisecond
	c := newClient(t, s.Addr(), parley.WithCallTimeout(timeout))
	p := queue.NewProducer(c, "jobs", queue.WithBatching(2, 2), queue.WithLinger(time.Hour))
	began := time.Now()
	own, cancel := context.WithTimeout(t.Context(), 3*timeout)
	defer cancel()
	var callers sync.WaitGroup
	send := func(ctx context.Context, least time.Duration) {
		callers.Go(func() {
			_, err := p.Send(ctx, queue.Message{})
			if !errors.Is(err, context.DeadlineExceeded) || !errors.Is(err, parley.ErrTopicFull) {
				t.Errorf("send: %v", err)
			}
			if took := time.Since(began); took < least {
				t.Errorf("a call of %s ended after %s", least, took)
			}
		})
	}
	send(own, 3*timeout) // alone, so that the other messages are joined
	eventually(t, func() error {
		if len(s.Requests()) == 0 {
			return errors.New("the first is not in flight")
		}
		return nil
	})
	send(own, 3*timeout)
	send(t.Context(), timeout)
	callers.Wait()
	shared := 0
	for _, r := range parleytest.RequestsOf[*parleyv1.ProduceRequest](s) {
		shared = max(shared, len(r.GetMessages()))
	}
	if shared != 2 {
		t.Errorf("a request had %d messages at most, want 2", shared)
	}
}

// TestWorkersHaveNoDeadline makes a worker retry its stream and its grants of credits for longer
// than the call timeout. It must not give up.
func TestWorkersHaveNoDeadline(t *testing.T) {
	t.Parallel()
	s := parleytest.Start(t)
	s.AddTopic("jobs", 1, "g")
	const timeout = 30 * time.Millisecond
	first := make(map[string]time.Time)
	s.Fault(func(method string, _ proto.Message) *parleytest.Fault {
		if method != "Consume" && method != "GrantCredits" {
			return nil
		}
		if first[method].IsZero() {
			first[method] = time.Now()
		}
		if time.Since(first[method]) > 5*timeout {
			return nil
		}
		return &parleytest.Fault{Err: parleytest.Error(connect.CodeUnavailable, parleyv1.ErrorReason_ERROR_REASON_STORE_UNAVAILABLE)}
	})
	produce(t, newClient(t, s.Addr()), "jobs", keyed("", 0, 20)...)
	c := newClient(t, s.Addr(), parley.WithCallTimeout(timeout))
	w := work(t, c, "jobs", "g", (&record{}).handle, queue.WithUnaryCalls(), queue.WithWindow(4, 0))
	settledAll(t, s, "jobs", "g", 20)
	eventually(t, func() error {
		if got := w.Stats(); got.Acked != 20 || got.Lost != 0 || got.Streams != 1 {
			return fmt.Errorf("stats %+v", got)
		}
		return nil
	})
}
