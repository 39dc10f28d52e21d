package queue_test

import (
	"context"
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	parleyv1 "github.com/parleyhq/parley/gen/go/parley/v1"
	parley "github.com/parleyhq/parley/sdk/go"
	queue "github.com/parleyhq/parley/sdk/go/queue"
)

// leaving makes a rig end a stream without an error once the worker has left and holds nothing.
func leaving(g *rig, held int) {
	left := false
	g.scripting.Lock()
	defer g.scripting.Unlock()
	g.script = func(c *conn, req *parleyv1.StreamingConsumeRequest) (*parleyv1.RequestResults, bool) {
		held -= len(req.GetAck().GetTokens()) + len(req.GetNack().GetItems())
		left = left || req.GetLeave() != nil
		if left && held == 0 {
			time.AfterFunc(time.Millisecond, func() { c.end(nil) }) // after the answer
		}
		return nil, true
	}
}

// TestStop stops a worker with a message that is handled and one that waits. It must report the
// first as begun before it leaves, settle it, and drop the other one.
func TestStop(t *testing.T) {
	t.Parallel()
	inBubble(t, func(t *testing.T, g *rig) {
		leaving(g, 1)
		g.slow = 10 * time.Millisecond // so that they arrive after the end of the stream
		h := newGate()
		w := g.run(h.handle, queue.WithConcurrency(1))
		c := g.live()
		c.deliver("a", "b")
		<-h.begun
		w.stop() // before the mark of a is due
		<-time.After(2 * g.slow)
		equal(t, "verdicts", []string{"leave"}, c.verdicts())
		c.mu.Lock()
		if first := c.requests[0]; !first.GetExtend().GetBegun() {
			t.Errorf("the first request is %v", first)
		}
		c.mu.Unlock()
		c.deliver("late")
		<-time.After(20 * time.Second)
		h.pass <- nil
		if err := w.finish(); err != nil || len(h.begun) > 0 || len(h.ended) > 0 {
			t.Errorf("run: %v; %d more begun, %d ended", err, len(h.begun), len(h.ended))
		}
		equal(t, "stats", queue.Stats{Delivered: 3, Acked: 1, Released: 2, Streams: 1, Sessions: 1}, w.Stats())
	})
}

// TestStopAfterVerdict stops a worker right after a handler has returned, while the answer to an
// earlier verdict is under way, so that the handler's verdict waits. The worker must report that
// delivery as begun before it leaves: the server returns the others, and would refuse the verdict.
func TestStopAfterVerdict(t *testing.T) {
	t.Parallel()
	inBubble(t, func(t *testing.T, g *rig) {
		leaving(g, 2)
		answer := g.script
		g.script = func(c *conn, req *parleyv1.StreamingConsumeRequest) (*parleyv1.RequestResults, bool) {
			res, _ := answer(c, req)
			return res, !slices.Contains(req.GetAck().GetTokens(), "a")
		}
		w := g.run(func(context.Context, *queue.Delivery) error { return nil })
		c := g.live()
		c.deliver("a")
		synctest.Wait()
		c.deliver("b")
		synctest.Wait()
		w.stop()
		_ = w.finish()
		c.mu.Lock()
		defer c.mu.Unlock()
		reported := false
		for _, r := range c.requests {
			reported = reported || r.GetExtend().GetBegun() && slices.Contains(r.GetExtend().GetDeliveries().GetTokens(), "b")
			reported = reported || slices.Contains(r.GetAck().GetTokens(), "b")
			if r.GetLeave() != nil && !reported {
				t.Errorf("it leaves before b is reported: %v", c.requests)
			}
		}
	})
}

// TestStopTimeout stops a worker whose handlers do not finish. One returns when its context ends,
// another one does not. Both messages must be released.
func TestStopTimeout(t *testing.T) {
	t.Parallel()
	inBubble(t, func(t *testing.T, g *rig) {
		leaving(g, 2)
		h, deaf := newGate(), make(chan struct{})
		w := g.run(func(ctx context.Context, d *queue.Delivery) error {
			if string(d.Payload) == "deaf" {
				<-deaf
			}
			return h.handle(ctx, d)
		}, queue.WithStopTimeout(time.Minute))
		c := g.live()
		c.deliver("a", "deaf")
		<-h.begun
		synctest.Wait()
		began := time.Now()
		err := w.finish()
		if took := time.Since(began); !errors.Is(err, queue.ErrStopTimeout) || took.Round(time.Second) != time.Minute+time.Second {
			t.Errorf("run: %v after %s", err, took)
		}
		if cause := <-h.ended; !errors.Is(cause, queue.ErrStopTimeout) {
			t.Errorf("cause %v", cause)
		}
		equal(t, "verdicts", []string{"leave", "release a", "release deaf"}, c.verdicts())
		equal(t, "stats", queue.Stats{Delivered: 2, Released: 2, Streams: 1, Sessions: 1}, w.Stats())
		close(deaf)
	})
}

// TestStopWhileDisconnected cuts the stream of a worker that is stopping, and of one that holds
// nothing. The first must resume to settle, the second must leave by a call.
func TestStopWhileDisconnected(t *testing.T) {
	t.Parallel()
	inBubble(t, func(t *testing.T, g *rig) {
		leaving(g, 1)
		h := newGate()
		w := g.run(h.handle)
		c := g.live()
		c.deliver("a")
		<-h.begun
		w.stop()
		synctest.Wait()
		c.end(errCut)
		c = g.live()
		if c.start.GetResume() == nil {
			t.Error("not resumed")
		}
		equal(t, "verdicts", []string{"leave"}, c.verdicts())
		h.pass <- nil
		if err := w.finish(); err != nil {
			t.Errorf("run: %v", err)
		}
		equal(t, "verdicts", []string{"leave", "ack a"}, c.verdicts())

		never := parley.WithBackoff(parley.Backoff{Base: time.Hour, Max: time.Hour})
		w = g.runWith(g.client(never), h.handle)
		c = g.live()
		c.end(errCut)
		<-time.After(time.Second)
		began := time.Now()
		if err := w.finish(); err != nil {
			t.Errorf("run: %v", err)
		}
		equal(t, "verdicts", []string{"leave"}, c.verdicts())
		if took := time.Since(began); took > 0 {
			t.Errorf("it took %s to stop", took)
		}
	})
}

// TestStopWithoutAnAnswer ends the stream of a worker that is stopping before its last verdict is
// answered.
func TestStopWithoutAnAnswer(t *testing.T) {
	t.Parallel()
	inBubble(t, func(t *testing.T, g *rig) {
		h := newGate()
		w := g.run(h.handle)
		c := g.live()
		c.deliver("a")
		<-h.begun
		g.script = func(c *conn, req *parleyv1.StreamingConsumeRequest) (*parleyv1.RequestResults, bool) {
			if req.GetAck() != nil {
				time.AfterFunc(0, func() { c.end(nil) })
				return nil, false
			}
			return nil, true
		}
		w.stop()
		synctest.Wait()
		h.pass <- nil
		if err := w.finish(); err != nil {
			t.Errorf("run: %v", err)
		}
		equal(t, "stats", queue.Stats{Delivered: 1, Lost: 1, Streams: 1, Sessions: 1}, w.Stats())
	})
}

// TestRunAgain runs a worker twice.
func TestRunAgain(t *testing.T) {
	t.Parallel()
	inBubble(t, func(t *testing.T, g *rig) {
		leaving(g, 0)
		w := g.run(newGate().handle)
		g.live()
		synctest.Wait()
		if err := w.finish(); err != nil {
			t.Errorf("run: %v", err)
		}
		leaving(g, 0)
		again := g.start(w.Worker)
		if c := g.live(); c.start.GetResume() != nil {
			t.Error("the second run resumes the session of the first")
		}
		synctest.Wait()
		if err := again.finish(); err != nil {
			t.Errorf("run: %v", err)
		}
	})
}

// TestWorkerWithoutTopics runs a worker without Handle.
func TestWorkerWithoutTopics(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		g := newRig(t, false, "a.test:80")
		if err := queue.NewWorker(g.client(), "g").Run(t.Context()); err == nil {
			t.Error("no error")
		}
	})
}
