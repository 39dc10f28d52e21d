package queue_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"connectrpc.com/connect"
	"github.com/google/go-cmp/cmp"

	parleyv1 "github.com/parleyhq/parley/gen/go/parley/v1"
	parley "github.com/parleyhq/parley/sdk/go"
	queue "github.com/parleyhq/parley/sdk/go/queue"
)

var errCut = connect.NewError(connect.CodeUnavailable, errors.New("the connection broke"))

// gate is a handler that blocks until its message is let through.
type gate struct {
	begun chan *queue.Delivery
	pass  chan error
	// ended gets the causes of contexts that end before the message is let through.
	ended chan error
}

func newGate() *gate {
	return &gate{begun: make(chan *queue.Delivery, 100), pass: make(chan error), ended: make(chan error, 100)}
}

func (g *gate) handle(ctx context.Context, d *queue.Delivery) error {
	g.begun <- d
	select {
	case err := <-g.pass:
		return err
	case <-ctx.Done():
		g.ended <- context.Cause(ctx)
		return ctx.Err()
	}
}

func equal(t *testing.T, what string, want, got any) {
	t.Helper()
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("%s (-want +got):\n%s", what, diff)
	}
}

// TestStreamIsCutInAHandler cuts the stream twice while a handler runs. The worker must resume the
// session, the handler must not notice, and its ack must count once.
func TestStreamIsCutInAHandler(t *testing.T) {
	t.Parallel()
	inBubble(t, func(t *testing.T, g *rig) {
		h := newGate()
		w := g.run(h.handle, queue.WithConcurrency(1))
		c := g.live()
		if c.start.GetResume() != nil || !c.start.GetReportsBegun() || c.start.GetConcurrency() != 1 ||
			!slices.Equal(c.start.GetTopics(), []string{"jobs"}) || c.start.GetGroup() != "g" {
			t.Errorf("start %v", c.start)
		}
		c.deliver("a", "b")
		<-h.begun
		for n := range int64(2) {
			c.end(errCut)
			c = g.next()
			r := c.start.GetResume()
			if r.GetSessionId() != sessionID || r.GetResumes() != n+1 || len(r.GetUnanswered()) != 0 {
				t.Errorf("resume %v", r)
			}
			held := make(map[string]bool)
			for _, d := range r.GetHeld() {
				held[d.GetToken()] = d.GetBegun()
			}
			equal(t, "held", map[string]bool{"a": true, "b": false}, held)
			c.live(&parleyv1.SessionStarted{})
		}
		h.pass <- nil
		<-h.begun
		h.pass <- nil
		equal(t, "verdicts", []string{"ack a", "ack b"}, c.verdicts())
		equal(t, "stats", queue.Stats{Delivered: 2, Acked: 2, Streams: 3, Sessions: 1}, w.Stats())
		if len(h.ended) > 0 {
			t.Error("the context of a handler ended")
		}
	})
}

// TestTokenExpires ends the stream with TOKEN_EXPIRED. The worker must resume at once with another
// token.
func TestTokenExpires(t *testing.T) {
	t.Parallel()
	inBubble(t, func(t *testing.T, g *rig) {
		tokens := []string{"first", "second"}
		source := parley.WithTokenSource(func(context.Context) (string, error) {
			token := tokens[0]
			tokens = tokens[1:]
			return token, nil
		})
		h := newGate()
		g.runWith(g.client(source), h.handle)
		c := g.live()
		c.deliver("a")
		<-h.begun
		began := time.Now()
		c.end(statusError(connect.CodeUnauthenticated, parleyv1.ErrorReason_ERROR_REASON_TOKEN_EXPIRED))
		next := g.live()
		if c.token != "Bearer first" || next.token != "Bearer second" || next.start.GetResume().GetSessionId() != sessionID {
			t.Errorf("tokens %q, %q; resume %v", c.token, next.token, next.start.GetResume())
		}
		if waited := time.Since(began); waited != 0 {
			t.Errorf("the worker waited %s", waited)
		}
		h.pass <- nil
		equal(t, "verdicts", []string{"ack a"}, next.verdicts())
	})
}

// TestReconnect asks the worker to reconnect. It must open the new stream before it closes the old
// one, on which it settles meanwhile.
func TestReconnect(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		g := newRig(t, false, "a.test:80", "b.test:80")
		h := newGate()
		w := g.run(h.handle)
		old := g.live()
		old.deliver("a", "b", "c")
		for range 3 {
			<-h.begun
		}
		<-time.After(2 * time.Second) // so that the stream counts as stable
		old.hush()
		old.frame(&parleyv1.ConsumeResponse{Frame: &parleyv1.ConsumeResponse_Reconnect{Reconnect: &parleyv1.Reconnect{}}})
		next := g.next()
		if next.node == old.node || next.start.GetResume().GetSessionId() != sessionID {
			t.Errorf("nodes %s, %s; resume %v", old.node, next.node, next.start.GetResume())
		}
		h.pass <- nil
		if got := old.verdicts(); len(got) != 1 {
			t.Errorf("verdicts before the new stream is live: %v", got)
		}
		old.deliver("late") // after its last frame: no delivery of the session
		select {
		case <-old.gone:
			t.Error("the old stream was closed before the new one was live")
		default:
		}
		next.live(&parleyv1.SessionStarted{})
		<-old.gone
		h.pass <- nil
		h.pass <- nil
		if got := next.verdicts(); len(got) != 2 {
			t.Errorf("verdicts on the new stream: %v", got)
		}
		equal(t, "stats", queue.Stats{Delivered: 3, Acked: 3, Streams: 2, Sessions: 1}, w.Stats())
	})
}

// TestLostDeliveries loses a delivery that is handled, one that waits, and one at a resume. The
// handlers' contexts must end, the lost ones must not be settled.
func TestLostDeliveries(t *testing.T) {
	t.Parallel()
	inBubble(t, func(t *testing.T, g *rig) {
		h := newGate()
		lost := make(chan string, 10)
		w := g.run(h.handle, queue.WithConcurrency(2), queue.WithOnLost(func(d *queue.Delivery, err error) {
			lost <- d.MessageID + " " + errorText(err)
		}))
		c := g.live()
		c.deliver("a", "b", "c")
		<-h.begun
		<-h.begun
		c.lost(parleyv1.LostDeliveries_CAUSE_ACK_TIMEOUT, "a", "c", "unknown")
		if cause := <-h.ended; !errors.Is(cause, parley.ErrDeliveryLost) {
			t.Errorf("cause %v", cause)
		}
		equal(t, "lost", []string{"id-a DELIVERY_LOST", "id-c DELIVERY_LOST"}, sorted(<-lost, <-lost))
		c.end(errCut)
		c = g.next()
		c.live(&parleyv1.SessionStarted{Lost: &parleyv1.LostDeliveries{Tokens: []string{"b"}}})
		if cause := <-h.ended; !errors.Is(cause, parley.ErrDeliveryLost) {
			t.Errorf("cause %v", cause)
		}
		equal(t, "verdicts", []string(nil), c.verdicts())
		equal(t, "stats", queue.Stats{Delivered: 3, Lost: 3, Streams: 2, Sessions: 1}, w.Stats())
	})
}

func sorted(s ...string) []string { return slices.Sorted(slices.Values(s)) }

func errorText(err error) string {
	if errors.Is(err, parley.ErrDeliveryLost) {
		return "DELIVERY_LOST"
	}
	return err.Error()
}

// TestNoContact makes the session lose its contact in several ways. At the end of the grace time,
// counted from the last confirmed contact, the contexts of handlers must end, and a new session
// must start.
func TestNoContact(t *testing.T) {
	t.Parallel()
	for name, cut := range map[string]func(c *conn){
		"silence": func(c *conn) { c.hush() },
		"unconfirmed": func(c *conn) {
			c.hush()
			go func() {
				for since := time.Now(); ; c.heartbeat(time.Since(since)) {
					select {
					case <-time.After(time.Second):
					case <-c.gone:
						return
					}
				}
			}()
		},
		"node away": func(c *conn) {
			c.end(errCut) // no stream that resumes is ever live
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			inBubble(t, func(t *testing.T, g *rig) {
				h := newGate()
				w := g.run(h.handle)
				c := g.live()
				c.deliver("a")
				<-h.begun
				<-time.After(time.Minute) // with contact
				began := time.Now()
				cut(c)
				if cause := <-h.ended; !errors.Is(cause, parley.ErrDeliveryLost) {
					t.Errorf("cause %v", cause)
				}
				if took := time.Since(began); took > grace || took < grace-grace/4 {
					t.Errorf("the context ended %s after the contact", took)
				}
				next := g.next()
				for next.start.GetResume() != nil {
					if next.opened.Sub(began) >= grace {
						t.Errorf("resumed after %s", next.opened.Sub(began))
					}
					next = g.next()
				}
				next.live(&parleyv1.SessionStarted{SessionId: "session-2"})
				next.deliver("b")
				<-h.begun
				h.pass <- nil
				equal(t, "verdicts", []string{"ack b"}, next.verdicts())
				equal(t, "stats", queue.Stats{Delivered: 2, Acked: 1, Lost: 1, Streams: 2, Sessions: 2}, w.Stats())
			})
		})
	}
}

// TestIdleSessionNeedsNoContact leaves a session without deliveries and confirmed contact alone for
// longer than its grace time. Its next delivery must be handled.
func TestIdleSessionNeedsNoContact(t *testing.T) {
	t.Parallel()
	inBubble(t, func(t *testing.T, g *rig) {
		h := newGate()
		w := g.run(h.handle)
		c := g.live()
		c.hush()
		for range 14 {
			<-time.After(time.Second)
			c.heartbeat(24 * time.Hour)
		}
		c.deliver("a")
		<-h.begun
		<-time.After(grace / 2)
		c.heartbeat(0)
		<-time.After(grace - time.Second)
		h.pass <- nil
		equal(t, "verdicts", []string{"ack a"}, c.verdicts())
		equal(t, "stats", queue.Stats{Delivered: 1, Acked: 1, Streams: 1, Sessions: 1}, w.Stats())
	})
}

// TestOnlyHeartbeatsConfirmContact sends a delivery every second, and no heartbeats. At the end of
// the grace time the context of a handler must end.
func TestOnlyHeartbeatsConfirmContact(t *testing.T) {
	t.Parallel()
	inBubble(t, func(t *testing.T, g *rig) {
		h := newGate()
		g.run(func(ctx context.Context, d *queue.Delivery) error {
			if string(d.Payload) == "long" {
				return h.handle(ctx, d)
			}
			return nil
		})
		c := g.live()
		c.hush()
		c.deliver("long")
		<-h.begun
		for i := range 9 {
			<-time.After(time.Second)
			c.deliver(fmt.Sprint("t", i))
		}
		if len(h.ended) > 0 {
			t.Error("the context ended before the grace time")
		}
		<-time.After(time.Second)
		if cause := <-h.ended; !errors.Is(cause, parley.ErrDeliveryLost) {
			t.Errorf("cause %v", cause)
		}
	})
}

// TestLateFrames reads frames that were under way for long, as a process does that was stopped
// meanwhile. The contact must count from when they were sent.
func TestLateFrames(t *testing.T) {
	t.Parallel()
	for name, late := range map[string]func(c *conn, h *gate){
		"heartbeat": func(c *conn, h *gate) {
			c.deliver("a")
			<-h.begun
			<-time.After(8 * time.Second)
			c.lateHeartbeat(0, 6*time.Second)
		},
		"delivery": func(c *conn, h *gate) {
			<-time.After(8 * time.Second)
			c.lateHeartbeat(0, 6*time.Second)
			c.deliver("a")
			<-h.begun
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			inBubble(t, func(t *testing.T, g *rig) {
				h := newGate()
				g.run(h.handle)
				c := g.live()
				c.hush()
				late(c, h)
				<-h.ended
				if took := time.Since(c.opened); took != grace+2*time.Second {
					t.Errorf("the context ended after %s, want %s after the last contact at 2 s", took, grace)
				}
			})
		})
	}
}

// TestSessionLost ends the stream with SESSION_LOST.
func TestSessionLost(t *testing.T) {
	t.Parallel()
	inBubble(t, func(t *testing.T, g *rig) {
		h := newGate()
		g.run(h.handle)
		c := g.live()
		c.deliver("a")
		<-h.begun
		c.end(statusError(connect.CodeFailedPrecondition, parleyv1.ErrorReason_ERROR_REASON_SESSION_LOST))
		if cause := <-h.ended; !errors.Is(cause, parley.ErrDeliveryLost) {
			t.Errorf("cause %v", cause)
		}
		if next := g.live(); next.start.GetResume() != nil {
			t.Errorf("resume %v", next.start.GetResume())
		}
	})
}

// TestFinalErrorsEndRun refuses the stream because there is no such group.
func TestFinalErrorsEndRun(t *testing.T) {
	t.Parallel()
	inBubble(t, func(t *testing.T, g *rig) {
		w := g.run(newGate().handle)
		c := g.next()
		c.end(statusError(connect.CodeNotFound, parleyv1.ErrorReason_ERROR_REASON_GROUP_NOT_FOUND))
		<-w.done
		if !errors.Is(w.err, parley.ErrGroupNotFound) {
			t.Errorf("run: %v", w.err)
		}
	})
}
