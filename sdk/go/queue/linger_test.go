package queue_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/proto"

	parleyv1 "github.com/parleyhq/parley/gen/go/parley/v1"
	"github.com/parleyhq/parley/sdk/go/parleytest"
	queue "github.com/parleyhq/parley/sdk/go/queue"
)

// TestSendLingers keeps a batch in flight. Messages sent meanwhile must wait for the linger time or
// until their batch is full, and must not wait if the linger time is 0.
func TestSendLingers(t *testing.T) {
	t.Parallel()
	s := parleytest.Start(t)
	s.AddTopic("jobs", 1, "g")
	var full atomic.Bool
	full.Store(true)
	s.Fault(func(_ string, req proto.Message) *parleytest.Fault {
		if r, ok := req.(*parleyv1.ProduceRequest); ok && full.Load() && string(r.GetMessages()[0].GetPayload()) == "first" {
			return &parleytest.Fault{Err: parleytest.Error(connect.CodeResourceExhausted, parleyv1.ErrorReason_ERROR_REASON_TOPIC_FULL)}
		}
		return nil
	})
	// batches returns the payloads of each request, except requests with the message first.
	batches := func() (all []string) {
		for _, r := range parleytest.RequestsOf[*parleyv1.ProduceRequest](s) {
			var one []string
			for _, m := range r.GetMessages() {
				one = append(one, string(m.GetPayload()))
			}
			if one[0] != "first" {
				all = append(all, strings.Join(one, " "))
			}
		}
		return all
	}
	c, ctx := newClient(t, s.Addr()), testContext(t)
	var callers sync.WaitGroup
	send := func(p *queue.Producer, payload string) {
		callers.Go(func() {
			if _, err := p.Send(ctx, queue.Message{Payload: []byte(payload)}); err != nil {
				t.Errorf("send %s: %v", payload, err)
			}
		})
	}
	begin := func(opts ...queue.ProducerOption) *queue.Producer {
		p, before := queue.NewProducer(c, "jobs", opts...), len(s.Requests())
		send(p, "first")
		eventually(t, func() error {
			if len(s.Requests()) == before {
				return errors.New("the first is not under way")
			}
			return nil
		})
		return p
	}
	patient := begin(queue.WithLinger(time.Hour), queue.WithBatching(3, 8))
	soon, cancel := context.WithTimeout(ctx, 60*time.Millisecond)
	defer cancel()
	// The message x stays in the batch although its caller has left.
	if _, err := patient.Send(soon, queue.Message{Payload: []byte("x")}); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("a message alone: %v", err)
	}
	if got := batches(); len(got) != 0 {
		t.Fatalf("sent before the linger time: %q", got)
	}
	send(patient, "x")
	send(patient, "x")
	hasty := begin(queue.WithLinger(0))
	for n := range 3 {
		want := append([]string{"x x x"}, slices.Repeat([]string{"y"}, n)...)
		eventually(t, func() error {
			if got := batches(); !slices.Equal(got, want) {
				return fmt.Errorf("sent %q, want %q", got, want)
			}
			return nil
		})
		send(hasty, "y")
	}
	full.Store(false)
	callers.Wait()
	for _, p := range []*queue.Producer{patient, hasty} {
		if err := p.Close(ctx); err != nil {
			t.Errorf("close: %v", err)
		}
	}
}

// TestSendAndCloseTimeOut calls Send and Close with short deadlines while the topic is full. Both
// must return the context's error, and a Send without a deadline must fail when Close does.
func TestSendAndCloseTimeOut(t *testing.T) {
	t.Parallel()
	s := parleytest.Start(t)
	s.AddTopic("jobs", 1, "g")
	s.FaultTimes(1<<30, "Produce", parleytest.Fault{
		Err: parleytest.Error(connect.CodeResourceExhausted, parleyv1.ErrorReason_ERROR_REASON_TOPIC_FULL),
	})
	p := queue.NewProducer(newClient(t, s.Addr()), "jobs", queue.WithBatching(1, 1))
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	var callers sync.WaitGroup
	for range 5 {
		callers.Go(func() {
			if _, err := p.Send(ctx, queue.Message{}); !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("send: %v", err)
			}
		})
	}
	callers.Wait()
	stuck := make(chan error, 1)
	go func() {
		_, err := p.Send(context.WithoutCancel(ctx), queue.Message{})
		stuck <- err
	}()
	before := len(s.Requests())
	eventually(t, func() error {
		if len(s.Requests()) == before {
			return errors.New("the last one is not under way")
		}
		return nil
	})
	soon, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	if err := p.Close(soon); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("close: %v", err)
	}
	if err := <-stuck; err == nil {
		t.Error("Send succeeded after Close gave up")
	}
}
