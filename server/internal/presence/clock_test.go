package presence

import (
	"testing"
	"testing/synctest"
	"time"
)

// TestClock checks which responses move the estimate, and by how much it may be wrong.
func TestClock(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const ahead = time.Hour
		c := newClock()
		if now := c.now(3); !now.IsZero() {
			t.Errorf("the time is %v without a response", now)
		}
		// respond has the store read its clock, which is off by so much, before and after so long.
		respond := func(off, before, after time.Duration) {
			sent := time.Now()
			time.Sleep(before)
			now := time.Now().Add(off)
			time.Sleep(after)
			c.saw(3, now, sent)
		}
		is := func(what string, want time.Duration) {
			t.Helper()
			if got := time.Until(c.now(3)); got != want {
				t.Errorf("after %s the store is ahead by %v, want %v", what, got, want)
			}
		}
		respond(ahead, 0, 3*time.Second)
		is("the first response, although it was slow", ahead-3*time.Second)
		respond(ahead, time.Millisecond, 2*time.Millisecond)
		is("a fast response", ahead-2*time.Millisecond)
		time.Sleep(time.Minute)
		is("a minute", ahead-2*time.Millisecond)
		respond(ahead, time.Second, time.Second)
		is("a slow response that agrees", ahead-2*time.Millisecond)
		c.saw(3, time.Time{}, time.Now())
		is("no response", ahead-2*time.Millisecond)
		respond(ahead+10*time.Second, time.Second, time.Second)
		is("a slow response of another clock", ahead+9*time.Second)
		respond(ahead-10*time.Second, time.Second, time.Second)
		is("a slow response of a clock that is behind", ahead-11*time.Second)
		if now := c.now(4); !now.IsZero() {
			t.Errorf("the time of another shard is %v", now)
		}
	})
}

// TestSlowStoreWithAnotherClock checks that users are written although every response is slow and
// the store's clock jumps.
func TestSlowStoreWithAnotherClock(t *testing.T) {
	t.Parallel()
	for _, jump := range []time.Duration{time.Hour, -time.Hour} {
		t.Run(jump.String(), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				f := newFleet(t, 1, nil)
				f.nodes[0].connect("ada", Web, nil)
				f.wait(f.stored("ada", onWeb))
				f.store.set(func(m *modelStore) {
					m.shift += jump
					m.delay = func(string) time.Duration { return 700 * time.Millisecond }
				})
				time.Sleep(10 * time.Second)
				f.nodes[0].connect("bob", Web, nil)
				if took := f.wait(f.stored("bob", onWeb)); took > 3*time.Second {
					t.Errorf("written after %v", took)
				}
			})
		})
	}
}
