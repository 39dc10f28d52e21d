package queue_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"sync"
	"testing"

	parley "github.com/parleyhq/parley/sdk/go"
	"github.com/parleyhq/parley/sdk/go/parleytest"
	queue "github.com/parleyhq/parley/sdk/go/queue"
)

// nilError is an error whose Error method panics on a nil pointer.
type nilError struct{ text string }

func (e *nilError) Error() string { return e.text }

// TestBrokenHandlers runs handlers that return an error whose Error method panics, or that end
// their goroutine. Each must only fail its own delivery.
func TestBrokenHandlers(t *testing.T) {
	t.Parallel()
	both(t, func(t *testing.T, opts ...queue.WorkerOption) {
		s := parleytest.Start(t)
		s.AddTopic("jobs", 1, "g")
		c := newClient(t, s.Addr())
		for _, text := range []string{"nil", "exit", "fine"} {
			produce(t, c, "jobs", queue.Message{Key: "k", Payload: []byte(text)})
		}
		w := work(t, c, "jobs", "g", func(_ context.Context, d *queue.Delivery) error {
			switch {
			case d.Attempt > 1:
			case string(d.Payload) == "nil":
				var e *nilError
				return e
			case string(d.Payload) == "exit":
				runtime.Goexit()
			}
			return nil
		}, append(opts, queue.WithConcurrency(1))...)
		settledAll(t, s, "jobs", "g", 3)
		if err := w.finish(); err != nil {
			t.Errorf("run: %v", err)
		}
		if got := w.Stats(); got.Nacked != 2 || got.Acked != 3 || got.Lost != 0 {
			t.Errorf("stats %+v", got)
		}
	})
}

// TestSendRefusesOnlyTooLargeMessage sends a message that is too large among valid ones. Only that
// one must be refused.
func TestSendRefusesOnlyTooLargeMessage(t *testing.T) {
	t.Parallel()
	s := parleytest.Start(t)
	s.AddTopic("jobs", 1, "g")
	p := queue.NewProducer(newClient(t, s.Addr()), "jobs")
	var all sync.WaitGroup
	for i := range 12 {
		all.Go(func() {
			if _, err := p.Send(testContext(t), queue.Message{Payload: fmt.Append(nil, i)}); err != nil {
				t.Errorf("send: %v", err)
			}
		})
	}
	for name, m := range map[string]queue.Message{
		"payload": {Payload: make([]byte, 256<<10+1)}, "headers": {Headers: map[string]string{"a": strings.Repeat("x", 1<<20)}},
	} {
		_, err := p.Send(testContext(t), m)
		if e, ok := errors.AsType[*parley.Error](err); !ok || e.Field != "messages" || e.Limit == 0 || e.Retryable {
			t.Errorf("%s: %v", name, err)
		}
	}
	all.Wait()
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if err := p.Close(ended); err != nil {
		t.Errorf("close, with nothing under way: %v", err)
	}
}
