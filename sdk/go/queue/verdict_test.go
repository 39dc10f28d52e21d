package queue_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"

	parleyv1 "github.com/parleyhq/parley/gen/go/parley/v1"
	parley "github.com/parleyhq/parley/sdk/go"
	queue "github.com/parleyhq/parley/sdk/go/queue"
)

const (
	deliveryLost = parleyv1.ErrorReason_ERROR_REASON_DELIVERY_LOST
	deliveryGone = parleyv1.ErrorReason_ERROR_REASON_DELIVERY_GONE
)

// TestUnansweredVerdicts cuts the stream before verdicts are answered. The next stream must present
// them, and its answers must count as theirs: a DELIVERY_GONE means that the verdict had arrived.
func TestUnansweredVerdicts(t *testing.T) {
	t.Parallel()
	inBubble(t, func(t *testing.T, g *rig) {
		cut := false
		g.script = func(*conn, *parleyv1.StreamingConsumeRequest) (*parleyv1.RequestResults, bool) { return nil, cut }
		lost := make(chan string, 10)
		w := g.run(func(_ context.Context, d *queue.Delivery) error {
			if string(d.Payload) == "failed" {
				return queue.Code(errors.New("boom"), "c")
			}
			return nil
		}, queue.WithConcurrency(10), queue.WithOnLost(func(d *queue.Delivery, _ error) { lost <- d.MessageID }))
		c := g.live()
		c.deliver("done", "gone", "taken", "failed", "again")
		<-time.After(10 * time.Millisecond) // the first is sent at once, the others together
		equal(t, "verdicts", []string{"ack again", "ack done", "ack gone", "ack taken", "retry failed c"}, sorted(c.verdicts()...))
		c.end(errCut)
		c = g.next()
		if held := c.start.GetResume().GetHeld(); len(held) > 0 {
			t.Errorf("held %v", held)
		}
		first := &parleyv1.SessionStarted{}
		var presented []string
		for _, v := range c.start.GetResume().GetUnanswered() {
			what, result := "ack "+v.GetAck(), &parleyv1.SettleResult{}
			switch v.GetAck() {
			case "":
				what = nacked(v.GetNack())
			case "gone":
				result = refused(deliveryGone)
			case "taken":
				result = refused(deliveryLost)
			case "again":
				result.Error = itemError(parleyv1.StatusCode_STATUS_CODE_UNAVAILABLE, parleyv1.ErrorReason_ERROR_REASON_STORE_UNAVAILABLE)
			}
			presented, first.Unanswered = append(presented, what), append(first.Unanswered, result)
		}
		equal(t, "presented", []string{"ack again", "ack done", "ack gone", "ack taken", "retry failed c"}, sorted(presented...))
		cut = true
		c.live(first)
		if id := <-lost; id != "id-taken" {
			t.Errorf("lost %s", id)
		}
		equal(t, "verdicts after the resume", []string{"ack again"}, c.verdicts())
		equal(t, "stats", queue.Stats{Delivered: 5, Acked: 3, Nacked: 1, Lost: 1, Streams: 2, Sessions: 1}, w.Stats())
	})
}

// TestVerdictsAreRepeated refuses an ack temporarily, then permanently, and another one because the
// message was settled before.
func TestVerdictsAreRepeated(t *testing.T) {
	t.Parallel()
	inBubble(t, func(t *testing.T, g *rig) {
		n := 0
		g.script = func(_ *conn, req *parleyv1.StreamingConsumeRequest) (*parleyv1.RequestResults, bool) {
			n++
			switch tokens := req.GetAck().GetTokens(); {
			case len(tokens) == 0:
				return nil, true
			case tokens[0] == "gone":
				return &parleyv1.RequestResults{Results: []*parleyv1.SettleResult{refused(deliveryGone)}}, true
			case n < 4:
				return &parleyv1.RequestResults{Results: []*parleyv1.SettleResult{{
					Error: itemError(parleyv1.StatusCode_STATUS_CODE_UNAVAILABLE, parleyv1.ErrorReason_ERROR_REASON_STORE_UNAVAILABLE),
				}}}, true
			default:
				return &parleyv1.RequestResults{Results: []*parleyv1.SettleResult{refused(deliveryLost)}}, true
			}
		}
		lost := make(chan error, 10)
		w := g.run(func(context.Context, *queue.Delivery) error { return nil }, queue.WithConcurrency(1),
			queue.WithOnLost(func(_ *queue.Delivery, err error) { lost <- err }))
		c := g.live()
		c.deliver("a")
		if err := <-lost; !errors.Is(err, parley.ErrDeliveryLost) {
			t.Errorf("lost: %v", err)
		}
		equal(t, "verdicts", []string{"ack a", "ack a", "ack a", "ack a"}, c.verdicts())
		c.deliver("gone") // by somebody else: this was the only verdict of the worker
		if err := <-lost; !errors.Is(err, parley.ErrDeliveryGone) {
			t.Errorf("lost: %v", err)
		}
		equal(t, "stats", queue.Stats{Delivered: 2, Lost: 2, Streams: 1, Sessions: 1}, w.Stats())
	})
}

// TestFailuresBecomeNacks returns each kind of error, panics and ends the handler's goroutine.
func TestFailuresBecomeNacks(t *testing.T) {
	t.Parallel()
	inBubble(t, func(t *testing.T, g *rig) {
		boom := errors.New("boom")
		w := g.run(func(_ context.Context, d *queue.Delivery) error {
			switch string(d.Payload) {
			case "panic":
				panic("at the disco")
			case "exit":
				runtime.Goexit()
			case "later":
				return queue.RetryAfter(boom, time.Minute)
			case "dead":
				return queue.Code(queue.DeadLetter(boom), "bad.input")
			case "released":
				return fmt.Errorf("not now: %w", queue.ErrRelease)
			case "long":
				return queue.Code(errors.New(strings.Repeat("ä", 2000)+"\xff"), "not a code")
			}
			return nil
		}, queue.WithConcurrency(1))
		c := g.live()
		c.deliver("panic", "exit", "later", "dead", "released", "long", "fine")
		equal(t, "verdicts", sorted("retry panic", "retry exit", "retry later", "dead dead bad.input", "release released", "retry long", "ack fine"),
			sorted(c.verdicts()...))
		requests, _ := c.got()
		for _, r := range requests {
			for _, n := range r.GetNack().GetItems() {
				switch {
				case n.GetToken() == "panic" && n.GetReason() != "panic: at the disco",
					n.GetToken() == "later" && n.GetRetry().GetDelay().AsDuration() != time.Minute,
					n.GetToken() == "released" && n.GetReason() != "",
					n.GetToken() == "long" && len(n.GetReason()) != 1024:
					t.Errorf("nack %v", n)
				}
			}
		}
		equal(t, "stats", queue.Stats{
			Delivered: 7, Acked: 1, Nacked: 5, Panicked: 1, Released: 1, Streams: 1, Sessions: 1,
		}, w.Stats())
	})
}

// TestBegunMarks begins several handlers. The worker must report all in one request, except for a
// handler that has returned meanwhile.
func TestBegunMarks(t *testing.T) {
	t.Parallel()
	inBubble(t, func(t *testing.T, g *rig) {
		h := newGate()
		g.run(func(ctx context.Context, d *queue.Delivery) error {
			if string(d.Payload) == "quick" {
				return nil
			}
			return h.handle(ctx, d)
		}, queue.WithConcurrency(3))
		c := g.live()
		c.deliver("a", "quick", "b")
		<-h.begun
		<-h.begun
		<-time.After(time.Millisecond)
		if _, marks := c.got(); len(marks) > 0 {
			t.Errorf("marks %v after 1 ms", marks)
		}
		<-time.After(5 * time.Millisecond)
		_, marks := c.got()
		if len(marks) != 1 || marks[0].GetRequestId() != 0 {
			t.Fatalf("marks %v", marks)
		}
		equal(t, "begun", []string{"a", "b"}, sorted(marks[0].GetExtend().GetDeliveries().GetTokens()...))
	})
}

// TestExtension runs a handler for longer than the ack timeout. All deliveries must be extended
// every third of it.
func TestExtension(t *testing.T) {
	t.Parallel()
	inBubble(t, func(t *testing.T, g *rig) {
		h := newGate()
		g.run(h.handle, queue.WithConcurrency(1), queue.WithAckTimeout(6*time.Second))
		c := g.live()
		if got := c.start.GetAckTimeout().AsDuration(); got != 6*time.Second {
			t.Errorf("ack timeout %s", got)
		}
		<-time.After(5 * time.Second) // nothing to extend
		c.deliver("a", "b")
		<-h.begun
		<-time.After(6*time.Second + 100*time.Millisecond)
		requests, _ := c.got()
		for _, r := range requests {
			if r.GetExtend().GetAll() == nil {
				t.Errorf("request %v", r)
			}
		}
		if len(requests) != 3 {
			t.Errorf("%d extensions, want 3", len(requests))
		}
	})
}

// TestExtensionOnShortStreams runs a handler for longer than the ack timeout, on streams that end
// before a third of it has passed. The delivery must be extended every third of it nevertheless,
// and again on the next stream if the answer is missing.
func TestExtensionOnShortStreams(t *testing.T) {
	t.Parallel()
	inBubble(t, func(t *testing.T, g *rig) {
		h := newGate()
		tokens := parley.WithTokenSource(func(context.Context) (string, error) { return "t", nil })
		g.runWith(g.client(tokens), h.handle, queue.WithAckTimeout(6*time.Second))
		began := time.Now()
		c := g.live()
		c.deliver("a")
		<-h.begun
		var extended []string
		g.scripting.Lock()
		g.script = func(_ *conn, r *parleyv1.StreamingConsumeRequest) (*parleyv1.RequestResults, bool) {
			if r.GetExtend().GetAll() == nil {
				return nil, true
			}
			extended = append(extended, time.Since(began).String())
			return nil, len(extended) > 1
		}
		g.scripting.Unlock()
		for range 5 {
			<-time.After(1900 * time.Millisecond)
			c.end(statusError(connect.CodeUnauthenticated, parleyv1.ErrorReason_ERROR_REASON_TOKEN_EXPIRED))
			c = g.live()
		}
		g.scripting.Lock()
		defer g.scripting.Unlock()
		equal(t, "extended after", []string{"2s", "3.8s", "5.8s", "7.8s"}, extended)
	})
}

// TestHandlerTimeout lets the timeouts of handlers pass: that of the message, and that of the
// worker if it is shorter. A handler that finishes its work nevertheless acknowledges it.
func TestHandlerTimeout(t *testing.T) {
	t.Parallel()
	inBubble(t, func(t *testing.T, g *rig) {
		h := newGate()
		w := g.run(func(ctx context.Context, d *queue.Delivery) error {
			err := h.handle(ctx, d)
			switch string(d.Payload) {
			case "finished":
				return nil
			case "released":
				return queue.ErrRelease
			}
			return err
		}, queue.WithHandlerTimeout(time.Minute))
		c := g.live()
		var all []*parleyv1.Delivery
		for token, timeout := range map[string]time.Duration{
			"short": time.Second, "long": time.Hour, "none": 0, "finished": time.Second, "released": time.Second,
		} {
			d := &parleyv1.Delivery{Token: token, Topic: "jobs", Payload: []byte(token)}
			if timeout > 0 {
				d.Timeout = durationpb.New(timeout)
			}
			all = append(all, d)
		}
		c.deliverAll(all...)
		for range 3 {
			<-h.ended
		}
		equal(t, "verdicts", sorted("retry short timeout", "ack finished", "retry released timeout"), sorted(c.verdicts()...))
		began := time.Now()
		<-h.ended
		<-h.ended
		if waited := time.Since(began); waited != 59*time.Second {
			t.Errorf("the worker's own limit applies after %s more", waited)
		}
		synctest.Wait()
		equal(t, "stats", queue.Stats{Delivered: 5, Acked: 1, Nacked: 4, Streams: 1, Sessions: 1}, w.Stats())
	})
}

// TestHandlerIgnoresItsTimeout runs a handler that ignores the end of its context. After 10 s its
// delivery must not be extended any more; those of others must.
func TestHandlerIgnoresItsTimeout(t *testing.T) {
	t.Parallel()
	inBubble(t, func(t *testing.T, g *rig) {
		h, deaf := newGate(), make(chan struct{})
		w := g.run(func(ctx context.Context, d *queue.Delivery) error {
			if string(d.Payload) == "deaf" {
				<-deaf
				return nil
			}
			return h.handle(ctx, d)
		}, queue.WithAckTimeout(3*time.Second))
		c := g.live()
		c.deliverAll(&parleyv1.Delivery{Token: "deaf", Topic: "jobs", Payload: []byte("deaf"), Timeout: durationpb.New(10 * time.Second)},
			&parleyv1.Delivery{Token: "a", Topic: "jobs"})
		<-h.begun
		<-time.After(19*time.Second + 500*time.Millisecond)
		requests, _ := c.got()
		for _, r := range requests {
			if r.GetExtend().GetAll() == nil {
				t.Errorf("request %v before the handler counts as stuck", r)
			}
		}
		<-time.After(3 * time.Second)
		all, _ := c.got()
		for _, r := range all[len(requests)+1:] {
			if !slices.Equal(r.GetExtend().GetDeliveries().GetTokens(), []string{"a"}) {
				t.Errorf("request %v after that", r)
			}
		}
		if len(all) < len(requests)+2 {
			t.Error("nothing is extended")
		}
		c.lost(parleyv1.LostDeliveries_CAUSE_ACK_TIMEOUT, "deaf")
		synctest.Wait()
		close(deaf)
		h.pass <- nil
		equal(t, "verdicts", []string{"ack a"}, c.verdicts())
		equal(t, "stats", queue.Stats{Delivered: 2, Acked: 1, Lost: 1, Streams: 1, Sessions: 1}, w.Stats())
	})
}

// TestOrderPerKey delivers messages of two keys. Those of one key must be handled one at a time and
// in order, those of another meanwhile.
func TestOrderPerKey(t *testing.T) {
	t.Parallel()
	inBubble(t, func(t *testing.T, g *rig) {
		pass := map[string]chan struct{}{"k": make(chan struct{}), "l": make(chan struct{})}
		var mu sync.Mutex
		var begun []string
		g.run(func(_ context.Context, d *queue.Delivery) error {
			mu.Lock()
			begun = append(begun, string(d.Payload))
			mu.Unlock()
			<-pass[d.Key]
			return nil
		}, queue.WithConcurrency(4))
		c := g.live()
		c.deliver("k:1", "k:2", "l:1", "l:2", "k:3")
		for n, want := range [][]string{{"k:1", "l:1"}, {"k:1", "k:2", "l:1"}, {"k:1", "k:2", "k:3", "l:1"}, {"k:1", "k:2", "k:3", "l:1", "l:2"}} {
			if n == 3 {
				pass["l"] <- struct{}{}
			} else if n > 0 {
				pass["k"] <- struct{}{}
			}
			synctest.Wait()
			mu.Lock()
			equal(t, fmt.Sprintf("begun after %d", n), want, sorted(begun...))
			mu.Unlock()
		}
		close(pass["k"])
		close(pass["l"])
		equal(t, "acks", 5, len(c.verdicts()))
	})
}

// TestAcksShareRequests handles many messages at once.
func TestAcksShareRequests(t *testing.T) {
	t.Parallel()
	inBubble(t, func(t *testing.T, g *rig) {
		w := g.run(func(context.Context, *queue.Delivery) error { return nil }, queue.WithMaxInFlight(1000, 0))
		c := g.live()
		var tokens []string
		for i := range 1000 {
			tokens = append(tokens, fmt.Sprint("t", i))
		}
		c.deliver(tokens...)
		<-time.After(10 * time.Millisecond)
		requests, _ := c.got()
		if len(requests) > 20 || w.Stats().Acked != 1000 {
			t.Errorf("%d requests, stats %+v", len(requests), w.Stats())
		}
	})
}

type job struct {
	Size int `json:"size"`
}

// TestTypedHandlers decodes payloads as JSON and as protobuf. Those that cannot be decoded must
// become dead letters.
func TestTypedHandlers(t *testing.T) {
	t.Parallel()
	inBubble(t, func(t *testing.T, g *rig) {
		got := make(chan string, 10)
		w := queue.NewWorker(g.client(), "g", queue.WithMiddleware(
			func(next queue.Handler) queue.Handler {
				return func(ctx context.Context, d *queue.Delivery) error {
					d.Headers = map[string]string{"seen": "yes"}
					return next(ctx, d)
				}
			})).
			Handle("json", queue.Handle(func(_ context.Context, d *queue.Delivery, j job) error {
				got <- fmt.Sprint(d.Topic, " ", j.Size, " ", d.Headers["seen"])
				return nil
			})).
			Handle("proto", queue.Handle(func(_ context.Context, d *queue.Delivery, m *parleyv1.Unique) error {
				got <- d.Topic + " " + m.GetKey()
				return nil
			}))
		g.start(w)
		c := g.live()
		equal(t, "topics", []string{"json", "proto"}, c.start.GetTopics())
		asJSON, _ := json.Marshal(job{Size: 7})
		asProto, _ := proto.Marshal(&parleyv1.Unique{Key: "k"})
		c.deliverAll(
			&parleyv1.Delivery{Token: "a", Topic: "json", Payload: asJSON}, &parleyv1.Delivery{Token: "b", Topic: "json", Payload: []byte("{")},
			&parleyv1.Delivery{Token: "c", Topic: "proto", Payload: asProto}, &parleyv1.Delivery{Token: "d", Topic: "proto", Payload: []byte("\xff")},
		)
		equal(t, "decoded", []string{"json 7 yes", "proto k"}, sorted(<-got, <-got))
		equal(t, "verdicts", []string{"ack a", "ack c", "dead b decode", "dead d decode"}, sorted(c.verdicts()...))
	})
}
