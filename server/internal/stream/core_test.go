package stream_test

import (
	"context"
	"runtime"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/parleyhq/parley/server/internal/fault"
	"github.com/parleyhq/parley/server/internal/stream"
)

const heartbeat = 15 * time.Second

// testStream is a minimal stream: a Core and its mutex.
type testStream struct {
	mu   sync.Mutex
	core stream.Core
}

func newTestStream(expires time.Time, due func(time.Time)) *testStream {
	s := &testStream{}
	s.core = stream.NewCore(stream.Identity{ID: "id", Subject: "ada", Expires: expires}, heartbeat, &s.mu, due)
	return s
}

// do calls fn with the stream's mutex held.
func (s *testStream) do(fn func(c *stream.Core)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	fn(&s.core)
}

// awake reports whether the reader was woken since the last call. It does not block.
func (s *testStream) awake() bool {
	select {
	case <-s.core.Wakeup():
		return true
	default:
		return false
	}
}

func TestTransitions(t *testing.T) {
	t.Parallel()
	first := fault.New(fault.Aborted, fault.TokenExpired, "first")
	second := stream.ShuttingDown()
	enter := map[stream.State]func(c *stream.Core){
		stream.Live:     func(*stream.Core) {},
		stream.Draining: func(c *stream.Core) { c.Drain(first) },
		stream.Ended:    func(c *stream.Core) { c.End(first) },
	}
	drain := func(c *stream.Core) bool { c.Drain(second); return false }
	end := func(c *stream.Core) bool { return c.End(second) }
	for _, tt := range []struct {
		name  string
		from  stream.State
		by    func(c *stream.Core) bool
		to    stream.State
		cause *fault.Error
		ended bool
	}{
		{"live, drain", stream.Live, drain, stream.Draining, second, false},
		{"live, end", stream.Live, end, stream.Ended, second, true},
		{"draining, drain", stream.Draining, drain, stream.Draining, second, false},
		{"draining, end", stream.Draining, end, stream.Ended, second, true},
		{"ended, drain", stream.Ended, drain, stream.Ended, first, false},
		{"ended, end", stream.Ended, end, stream.Ended, first, false},
	} {
		newTestStream(time.Time{}, nil).do(func(c *stream.Core) {
			if c.State() != stream.Live || c.Cause() != nil || c.Ended() {
				t.Errorf("%s: begins as %v, %v", tt.name, c.State(), c.Cause())
			}
			enter[tt.from](c)
			if c.State() != tt.from {
				t.Fatalf("%s: is %v", tt.name, c.State())
			}
			if ended := tt.by(c); ended != tt.ended {
				t.Errorf("%s: End reports %v", tt.name, ended)
			}
			if c.State() != tt.to || c.Cause() != tt.cause || c.Ended() != (tt.to == stream.Ended) {
				t.Errorf("%s: becomes %v, %v", tt.name, c.State(), c.Cause())
			}
		})
	}
}

func TestWake(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newTestStream(time.Time{}, nil)
		wake := func(c *stream.Core) { c.Wake() }
		await := func(c *stream.Core) { c.Await(time.Now()) }
		s.do(wake)
		if s.awake() {
			t.Error("woken before it waits")
		}
		s.do(await)
		if s.awake() {
			t.Error("woken by nobody")
		}
		s.do(wake)
		s.do(wake)
		if !s.awake() || s.awake() {
			t.Error("is not woken once")
		}
		// A wake-up that is not taken, because the reader's context ended, is kept for its next
		// wait.
		s.do(await)
		s.do(wake)
		s.do(await)
		s.do(wake)
		if !s.awake() || s.awake() {
			t.Error("is not woken once after a wake-up that was left")
		}
		s.do(await)
		s.do(func(c *stream.Core) { c.End(stream.NotFound()) })
		if !s.awake() {
			t.Error("not woken by the end")
		}
	})
}

// TestTimer checks that the reader is woken when a heartbeat is due, and when the token expires.
func TestTimer(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		s := newTestStream(began.Add(40*time.Second), nil)
		wait := func() time.Duration {
			s.do(func(c *stream.Core) { c.Await(time.Now()) })
			<-s.core.Wakeup()
			return time.Since(began)
		}
		due := func() (beat, expired bool) {
			s.do(func(c *stream.Core) { beat, expired = c.HeartbeatDue(time.Now()), c.Expired(time.Now()) })
			return beat, expired
		}
		if beat, expired := due(); beat || expired {
			t.Error("due at once")
		}
		for _, at := range []time.Duration{15 * time.Second, 30 * time.Second} {
			if now := wait(); now != at {
				t.Fatalf("woken after %v", now)
			}
			if beat, expired := due(); !beat || expired {
				t.Errorf("after %v: heartbeat %v, expired %v", at, beat, expired)
			}
			s.do(func(c *stream.Core) { c.Sent(time.Now()) })
			if beat, _ := due(); beat {
				t.Errorf("a heartbeat is due after it was sent")
			}
		}
		if now := wait(); now != 40*time.Second {
			t.Fatalf("woken after %v", now)
		}
		if beat, expired := due(); beat || !expired {
			t.Errorf("at the end: heartbeat %v, expired %v", beat, expired)
		}
	})
}

// TestRenew checks that the reader is woken when the last token expires, be that later or earlier
// than the first.
func TestRenew(t *testing.T) {
	t.Parallel()
	for _, expires := range []time.Duration{5 * time.Second, 14 * time.Second} {
		synctest.Test(t, func(t *testing.T) {
			began := time.Now()
			s := newTestStream(began.Add(10*time.Second), nil)
			expired := false
			await := func(c *stream.Core) {
				if expired = c.Expired(time.Now()); !expired {
					c.Await(time.Now())
				}
			}
			s.do(await)
			s.do(func(c *stream.Core) { c.Renew(began.Add(expires)) })
			for !expired {
				<-s.core.Wakeup()
				s.do(await)
			}
			if got := time.Since(began); got != expires {
				t.Errorf("expired after %v, want %v", got, expires)
			}
		})
	}
}

// TestFramesDeferHeartbeats checks that a frame defers the next heartbeat. The timer is not moved:
// it still wakes the reader at the earlier time, when no heartbeat is due.
func TestFramesDeferHeartbeats(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newTestStream(time.Time{}, nil)
		began := time.Now()
		s.do(func(c *stream.Core) { c.Await(began) })
		time.Sleep(10 * time.Second)
		s.do(func(c *stream.Core) {
			c.Sent(time.Now())
			c.Await(time.Now())
		})
		for _, want := range []struct {
			after time.Duration
			beat  bool
		}{{15 * time.Second, false}, {25 * time.Second, true}} {
			<-s.core.Wakeup()
			s.do(func(c *stream.Core) {
				if now := time.Now(); now.Sub(began) != want.after || c.HeartbeatDue(now) != want.beat {
					t.Errorf("woken after %v, a heartbeat is due: %v", now.Sub(began), c.HeartbeatDue(now))
				}
				c.Await(time.Now())
			})
		}
		s.do(func(c *stream.Core) { c.End(stream.NotFound()) })
	})
}

func TestDue(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var s *testStream
		var fired []time.Duration
		began := time.Now()
		s = newTestStream(time.Time{}, func(now time.Time) {
			if s.mu.TryLock() {
				t.Error("called without the mutex")
			}
			fired = append(fired, now.Sub(began))
			if len(fired) == 1 {
				s.core.Arm(began.Add(5*time.Second), now) // it may set the timer again
			}
		})
		s.do(func(c *stream.Core) {
			c.Arm(began.Add(9*time.Second), began)
			c.Arm(began.Add(3*time.Second), began)
			c.Arm(began.Add(7*time.Second), began) // no earlier: it changes nothing
			c.Await(began)
		})
		<-s.core.Wakeup()
		time.Sleep(time.Minute)
		s.mu.Lock()
		defer s.mu.Unlock()
		if len(fired) != 2 || fired[0] != 3*time.Second || fired[1] != 5*time.Second {
			t.Errorf("fired after %v", fired)
		}
	})
}

func TestEndStopsTimer(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newTestStream(time.Time{}, func(time.Time) { t.Error("the timer of a stream that has ended fires") })
		s.do(func(c *stream.Core) {
			c.Await(time.Now())
			c.End(stream.NotFound())
			c.Arm(time.Now().Add(time.Second), time.Now())
		})
		time.Sleep(time.Minute)
	})
}

// TestEndRacesTimer checks that due is not called after a stream has ended, even if its timer fires
// at that moment.
func TestEndRacesTimer(t *testing.T) {
	t.Parallel()
	for range 2000 {
		var s *testStream
		s = newTestStream(time.Time{}, func(time.Time) {
			if s.core.Ended() {
				t.Error("the timer of a stream that has ended fires")
			}
		})
		s.do(func(c *stream.Core) { c.Arm(time.Now(), time.Now()) })
		runtime.Gosched()
		s.do(func(c *stream.Core) { c.End(stream.NotFound()) })
	}
}

// TestReaderRace checks that a reader gets all texts and then the end, and is never left waiting,
// while another goroutine publishes and drains.
func TestReaderRace(t *testing.T) {
	t.Parallel()
	hub := newBulletins()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	for range 200 {
		b, err := hub.open("ada", time.Time{})
		if err != nil {
			t.Fatal(err)
		}
		const texts = 50
		var others sync.WaitGroup
		others.Go(func() {
			for range texts {
				b.publish("text")
			}
			b.mu.Lock()
			defer b.mu.Unlock()
			b.core.Drain(stream.ShuttingDown())
			b.core.Wake()
		})
		got := 0
		for err = nil; err == nil; {
			if _, err = b.next(ctx); err == nil {
				got++
			}
		}
		others.Wait()
		if got != texts || !fault.Is(err, fault.ShuttingDown) {
			t.Fatalf("got %d texts, then %v", got, err)
		}
		b.close()
	}
}
