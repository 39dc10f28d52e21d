package queue_test

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"connectrpc.com/connect"
	"github.com/google/go-cmp/cmp"

	parleyv1 "github.com/parleyhq/parley/gen/go/parley/v1"
	parley "github.com/parleyhq/parley/sdk/go"
	"github.com/parleyhq/parley/sdk/go/parleytest"
	queue "github.com/parleyhq/parley/sdk/go/queue"
)

// TestStreamsBreak breaks the stream repeatedly during a backlog. The session must go on, so that
// every message is handled once, and those of a key in order.
func TestStreamsBreak(t *testing.T) {
	t.Parallel()
	both(t, func(t *testing.T, opts ...queue.WorkerOption) {
		s := parleytest.Start(t)
		s.AddTopic("jobs", 2, "g")
		c := newClient(t, s.Addr())
		produce(t, c, "jobs", append(keyed("a", 0, 200), keyed("b", 0, 200)...)...)
		var n atomic.Int32
		var got record
		w := work(t, c, "jobs", "g", func(ctx context.Context, d *queue.Delivery) error {
			switch n.Add(1) % 100 {
			case 30:
				s.EndConsumers("jobs", "g", nil)
			case 60:
				s.EndConsumers("jobs", "g", parleytest.Error(connect.CodeUnavailable, parleyv1.ErrorReason_ERROR_REASON_SHUTTING_DOWN))
			}
			return got.handle(ctx, d)
		}, opts...)
		settledAll(t, s, "jobs", "g", 400)
		for _, key := range []string{"a", "b"} {
			var want []string
			for _, m := range keyed(key, 0, 200) {
				want = append(want, string(m.Payload))
			}
			if diff := cmp.Diff(want, got.payloads(key)); diff != "" {
				t.Errorf("key %s (-want +got):\n%s", key, diff)
			}
		}
		if got := w.Stats(); got.Streams < 3 || got.Sessions != 1 || got.Lost != 0 {
			t.Errorf("stats %+v", got)
		}
	})
}

// TestDeliveriesAreLost takes a delivery from a worker in both ways. The context of its handler
// must end, and the message must be delivered again.
func TestDeliveriesAreLost(t *testing.T) {
	t.Parallel()
	for name, lose := range map[string]func(s *parleytest.Server){
		"delivery": func(s *parleytest.Server) { s.LoseDeliveries("jobs", "g") },
		"session":  func(s *parleytest.Server) { s.EndSessions("jobs", "g") },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			both(t, func(t *testing.T, opts ...queue.WorkerOption) {
				s := parleytest.Start(t)
				s.AddTopic("jobs", 1, "g")
				c := newClient(t, s.Addr())
				begun, ended := make(chan struct{}), make(chan error, 1)
				var calls atomic.Int32
				work(t, c, "jobs", "g", func(ctx context.Context, _ *queue.Delivery) error {
					if calls.Add(1) > 1 {
						return nil
					}
					close(begun)
					<-ctx.Done()
					ended <- context.Cause(ctx)
					return ctx.Err()
				}, opts...)
				produce(t, c, "jobs", queue.Message{})
				<-begun
				lose(s)
				if cause := <-ended; !errors.Is(cause, parley.ErrDeliveryLost) {
					t.Errorf("cause %v", cause)
				}
				settledAll(t, s, "jobs", "g", 1)
			})
		})
	}
}

// TestDeadStream makes the server send nothing, not even heartbeats. The worker must open a new
// stream.
func TestDeadStream(t *testing.T) {
	t.Parallel()
	s := parleytest.Start(t)
	s.AddTopic("jobs", 1, "g")
	s.SetHeartbeat(20 * time.Millisecond)
	c := newClient(t, s.Addr())
	var got record
	w := work(t, c, "jobs", "g", got.handle)
	streams := func(n int64) {
		t.Helper()
		eventually(t, func() error {
			if w.Stats().Streams < n {
				return fmt.Errorf("%d streams", w.Stats().Streams)
			}
			return nil
		})
	}
	streams(1)
	s.SetSilent(true)
	streams(2)
	s.SetSilent(false)
	produce(t, c, "jobs", queue.Message{})
	settledAll(t, s, "jobs", "g", 1)
}
