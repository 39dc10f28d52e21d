package queue_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"connectrpc.com/connect"
	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/proto"

	parleyv1 "github.com/parleyhq/parley/gen/go/parley/v1"
	parley "github.com/parleyhq/parley/sdk/go"
	"github.com/parleyhq/parley/sdk/go/parleytest"
	"github.com/parleyhq/parley/sdk/go/queue"
)

// TestCreditsRefused refuses a grant of credits with LEASE_LOST. The worker must open a new stream.
func TestCreditsRefused(t *testing.T) {
	t.Parallel()
	both(t, func(t *testing.T, opts ...queue.WorkerOption) {
		s := parleytest.Start(t)
		s.AddTopic("jobs", 4, "g")
		c := newClient(t, s.Addr())
		s.FaultTimes(1, "GrantCredits", parleytest.Fault{
			Err: parleytest.Error(connect.CodeFailedPrecondition, parleyv1.ErrorReason_ERROR_REASON_LEASE_LOST),
		})
		produce(t, c, "jobs", keyed("", 0, 100)...)
		var got record
		w := work(t, c, "jobs", "g", got.handle, append(opts, queue.WithWindow(10, 0))...)
		settledAll(t, s, "jobs", "g", 100)
		if stats := w.Stats(); stats.Streams < 2 {
			t.Errorf("stats %+v", stats)
		}
	})
}

// TestTemporaryStreamEnds ends the stream with LEASE_LOST and with ACK_TIMEOUT. The worker must
// reconnect after both.
func TestTemporaryStreamEnds(t *testing.T) {
	t.Parallel()
	both(t, func(t *testing.T, opts ...queue.WorkerOption) {
		s := parleytest.Start(t)
		s.AddTopic("jobs", 4, "g")
		c := newClient(t, s.Addr())
		var got record
		w := work(t, c, "jobs", "g", got.handle, opts...)
		for n, end := range []error{
			parleytest.Error(connect.CodeFailedPrecondition, parleyv1.ErrorReason_ERROR_REASON_LEASE_LOST),
			parleytest.Error(connect.CodeAborted, parleyv1.ErrorReason_ERROR_REASON_ACK_TIMEOUT),
		} {
			produce(t, c, "jobs", keyed("", 10*n, 10*n+10)...)
			settledAll(t, s, "jobs", "g", 10*(n+1))
			s.EndConsumers("jobs", "g", end)
			eventually(t, func() error {
				if streams := w.Stats().Streams; streams != int64(n)+2 {
					return fmt.Errorf("%d streams", streams)
				}
				return nil
			})
		}
		produce(t, c, "jobs", keyed("", 20, 30)...)
		settledAll(t, s, "jobs", "g", 30)
	})
}

// TestStreamsBreak breaks the stream repeatedly during a backlog. Every message must be handled,
// and messages of a key must be in order, except redelivered ones.
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
				s.EndConsumers("jobs", "g", parleytest.Error(connect.CodeAborted, parleyv1.ErrorReason_ERROR_REASON_ACK_TIMEOUT))
			}
			return got.handle(ctx, d)
		}, opts...)
		settledAll(t, s, "jobs", "g", 400)
		for _, key := range []string{"a", "b"} {
			seen := make(map[string]bool)
			var first []string
			for _, p := range got.payloads(key) {
				if !seen[p] {
					first = append(first, p)
				}
				seen[p] = true
			}
			var want []string
			for _, m := range keyed(key, 0, 200) {
				want = append(want, string(m.Payload))
			}
			if diff := cmp.Diff(want, first); diff != "" {
				t.Errorf("key %s (-want +got):\n%s", key, diff)
			}
		}
		if w.Stats().Streams < 3 {
			t.Errorf("%d streams", w.Stats().Streams)
		}
	})
}

func TestFinalErrorsEndRun(t *testing.T) {
	t.Parallel()
	both(t, func(t *testing.T, opts ...queue.WorkerOption) {
		s := parleytest.Start(t)
		s.AddTopic("jobs", 1)
		w := queue.NewWorker(newClient(t, s.Addr()), "jobs", "typo", (&record{}).handle, opts...)
		if err := w.Run(testContext(t)); !errors.Is(err, parley.ErrGroupNotFound) {
			t.Errorf("run: %v", err)
		}
	})
}

// TestFleet kills the worker's node, twice. The worker must continue at another node.
func TestFleet(t *testing.T) {
	t.Parallel()
	fleet := parleytest.StartFleet(t, 3)
	fleet[0].AddTopic("jobs", 2, "g")
	c := newClient(t, parleytest.Addrs(fleet...))
	live := make(chan string, 10)
	var got record
	work(t, c, "jobs", "g", got.handle, queue.WithOnState(func(change parley.StateChange) {
		if change.State == parley.StateLive {
			live <- change.Addr
		}
	}))
	for i := range 2 {
		at := <-live
		produce(t, c, "jobs", keyed("k", i*10, i*10+10)...)
		settledAll(t, fleet[0], "jobs", "g", i*10+10)
		for _, node := range fleet {
			if strings.HasSuffix(at, node.Addr()) {
				node.Kill()
			}
		}
	}
	<-live
	produce(t, c, "jobs", keyed("k", 20, 30)...)
	settledAll(t, fleet[0], "jobs", "g", 30)
}

// TestWorkerLeavesAFullNodeAtOnce makes one node refuse streams because it is full. Workers must go
// to the other node without a backoff, which would last longer than the test.
func TestWorkerLeavesAFullNodeAtOnce(t *testing.T) {
	t.Parallel()
	both(t, func(t *testing.T, opts ...queue.WorkerOption) {
		fleet := parleytest.StartFleet(t, 2)
		fleet[0].AddTopic("jobs", 2, "g")
		full := parleytest.Fault{Err: parleytest.Error(connect.CodeResourceExhausted, parleyv1.ErrorReason_ERROR_REASON_NODE_FULL)}
		fleet[0].Fault(func(method string, _ proto.Message) *parleytest.Fault {
			if method == "Consume" || method == "StreamingConsume" {
				return &full
			}
			return nil
		})
		never := parley.WithBackoff(parley.Backoff{Base: time.Hour, Max: time.Hour})
		for range 5 { // half of the clients begin at the full node
			c := newClient(t, parleytest.Addrs(fleet...), never)
			live := make(chan string, 1)
			w := work(t, c, "jobs", "g", (&record{}).handle, append(opts, queue.WithOnState(func(change parley.StateChange) {
				if change.State == parley.StateLive {
					live <- change.Addr
				}
			}))...)
			if at := <-live; !strings.HasSuffix(at, fleet[1].Addr()) {
				t.Errorf("the stream is at %s", at)
			}
			if err := w.finish(); err != nil {
				t.Errorf("run: %v", err)
			}
		}
	})
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
