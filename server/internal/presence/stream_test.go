package presence

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/parleyhq/parley/server/internal/fault"
	"github.com/parleyhq/parley/server/internal/stream"
)

// openStream returns a stream that watches the users user0 to user<n-1> without a view.
func openStream(n int, rides bool) *Stream {
	s := newStream(stream.Identity{ID: "id", Subject: "ada"}, 15*time.Second, rides)
	for i := range n {
		s.users[fmt.Sprint("user", i)] = 0
	}
	return s
}

func poll(t *testing.T, s *Stream) (Frame, bool) {
	t.Helper()
	f, ok, err := s.Poll(time.Now())
	if err != nil {
		t.Fatal(err)
	}
	return f, ok
}

// TestStreamMerges checks that a stream sends the newest state of each user, and none twice.
func TestStreamMerges(t *testing.T) {
	t.Parallel()
	s := openStream(2, false)
	for i := range 100 {
		s.deliver(UserState{"user0", []State{onWeb, onIOS}[i%2], int64(i + 1)})
	}
	s.deliver(UserState{"stranger", onWeb, 200})
	f, ok := poll(t, s)
	if !ok || len(f.Update.Users) != 1 || f.Update.Users[0] != (UserState{"user0", onIOS, 100}) {
		t.Fatalf("frame %+v", f.Update)
	}
	s.deliver(UserState{"user0", onWeb, 101})
	s.deliver(UserState{"user0", onIOS, 102})
	if f, ok := poll(t, s); ok {
		t.Errorf("a state is repeated: %+v", f.Update)
	}
	s.deliver(UserState{"user1", 0, 103}) // offline is news if nothing was sent before
	if f, ok := poll(t, s); !ok || len(f.Update.Users) != 1 {
		t.Errorf("no first state: %+v", f)
	}
}

// TestUpdateLimit checks that a frame has at most 500 users, and that the rest follows.
func TestUpdateLimit(t *testing.T) {
	t.Parallel()
	s := openStream(1201, false)
	for i := range 1201 {
		s.deliver(UserState{fmt.Sprint("user", i), onWeb, int64(i + 1)})
	}
	seen := map[string]bool{}
	for _, want := range []int{500, 500, 201} {
		f, ok := poll(t, s)
		if !ok || len(f.Update.Users) != want {
			t.Fatalf("a frame of %d users", len(f.Update.Users))
		}
		for _, u := range f.Update.Users {
			seen[u.UserID] = true
		}
	}
	if _, ok := poll(t, s); ok || len(seen) != 1201 || s.pending != nil {
		t.Errorf("%d users were sent", len(seen))
	}
}

func TestStreamHeartbeat(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s, riding := openStream(1, false), openStream(1, true)
		began := time.Now()
		for i := range 3 {
			f, err := s.Next(t.Context())
			if err != nil || !f.Heartbeat || time.Since(began) != time.Duration(i+1)*15*time.Second {
				t.Fatalf("%+v, %v after %v", f, err, time.Since(began))
			}
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
		defer cancel()
		if f, err := riding.Next(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("a riding stream sends %+v, %v", f, err)
		}
		go func() {
			time.Sleep(time.Second)
			riding.deliver(UserState{"user0", onWeb, 1})
		}()
		if _, ok := poll(t, riding); ok {
			t.Error("a frame before there is one")
		}
		<-riding.Wakeup()
		if f, ok := poll(t, riding); !ok || f.Update == nil {
			t.Errorf("woken for %+v", f)
		}
		s.end(stream.NotFound())
		riding.end(stream.NotFound())
	})
}

// TestStreamEnds checks the ends of a stream: what waits is sent before the advice to reconnect,
// and the first cause stays.
func TestStreamEnds(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := openStream(1, false)
		s.deliver(UserState{"user0", onWeb, 1})
		s.drain(3 * time.Second)
		s.drain(time.Second)
		if f, err := s.Next(t.Context()); err != nil || f.Update == nil {
			t.Errorf("%+v, %v", f, err)
		}
		if f, err := s.Next(t.Context()); err != nil || f.Reconnect != 3*time.Second {
			t.Errorf("%+v, %v", f, err)
		}
		for range 2 {
			if _, err := s.Next(t.Context()); !fault.Is(err, fault.ShuttingDown) {
				t.Errorf("ended with %v", err)
			}
		}
		kicked := openStream(1, false)
		cause := fault.New(fault.FailedPrecondition, "KICKED", "another login")
		go func() {
			synctest.Wait()
			kicked.deliver(UserState{"user0", onWeb, 1})
			if !kicked.end(cause) || kicked.end(stream.NotFound()) {
				t.Error("a stream ends once")
			}
		}()
		for {
			if _, err := kicked.Next(t.Context()); err != nil {
				if err != error(cause) {
					t.Errorf("ended with %v", err)
				}
				break
			}
		}
		expiring := newStream(stream.Identity{ID: "id", Expires: time.Now().Add(time.Second)}, 15*time.Second, false)
		if _, err := expiring.Next(t.Context()); !fault.Is(err, fault.TokenExpired) {
			t.Errorf("ended with %v", err)
		}
	})
}

// TestWatchLimit checks that a call above the limit changes nothing, and that a user who is both
// added and removed is watched.
func TestWatchLimit(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		n := settledNet(t, 1, func(c *Config) { c.MaxWatched = 3 })
		x := n.nodes[0]
		w := x.watcher()
		w.must("a", "b", "a", "c")
		err := w.watch([]string{"d", "a"}, []string{"x"})
		f, ok := fault.As(err)
		if !ok || f.Reason != fault.LimitExceeded || f.Field != "add" || f.Limit != 3 {
			t.Errorf("a fourth user: %v", err)
		}
		if err := w.watch([]string{"d", "b"}, []string{"a", "b"}); err != nil {
			t.Errorf("one for another: %v", err)
		}
		for userID, want := range map[string]bool{"a": false, "b": true, "c": true, "d": true} {
			if _, ok := w.s.users[userID]; ok != want {
				t.Errorf("watches %s: %v", userID, ok)
			}
			if x.v.shards[ShardOf(userID)].watched[userID] != nil != want {
				t.Errorf("the table has %s: %v", userID, !want)
			}
		}
		x.v.announced(n.writeTo("b", onWeb))
		w.expect("b", onWeb)
		// The answer has the users in their order, with the states that the stream has.
		states, err := x.v.watch(t.Context(), w.s, []string{"c", "b", "c"}, nil)
		if err != nil || len(states) != 2 || states[0].UserID != "c" || states[1].State != onWeb || states[1].Revision == 0 {
			t.Errorf("answer %v, %v", states, err)
		}
		x.v.forget(w.s)
		x.v.forget(w.s)
		for _, p := range leftovers(x.v) {
			t.Error(p)
		}
	})
}

// TestStreamEndsDuringWatch checks I30: a watch of a stream that ends meanwhile fails and leaves
// nothing.
func TestStreamEndsDuringWatch(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		n := settledNet(t, 1, nil)
		x := n.nodes[0]
		n.store.set(func(m *modelStore) { m.delay = func(string) time.Duration { return 300 * time.Millisecond } })
		w := x.watcher()
		go func() {
			time.Sleep(100 * time.Millisecond)
			w.s.end(stream.NotFound())
			x.v.forget(w.s)
		}()
		if err := w.watch([]string{"a"}, nil); !fault.Is(err, fault.StreamNotFound) {
			t.Errorf("watched on a stream that has ended: %v", err)
		}
		if err := w.watch([]string{"b"}, nil); !fault.Is(err, fault.StreamNotFound) {
			t.Errorf("watched on a stream that had ended: %v", err)
		}
		if _, err := x.v.watchChannel(t.Context(), w.s, ChannelRef{ID: "c"}); !fault.Is(err, fault.StreamNotFound) {
			t.Errorf("watched a channel: %v", err)
		}
		for _, p := range leftovers(x.v) {
			t.Error(p)
		}
	})
}

// TestSharedReads checks that reads of many users are made in one step, and each user is read once.
func TestSharedReads(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		n := settledNet(t, 1, nil)
		before := n.callsOf("get")
		done := make(chan error)
		for i := range 100 {
			w := n.nodes[0].watcher()
			go func() { done <- w.watch([]string{"a", "b", fmt.Sprint("user", i)}, nil) }()
		}
		for range 100 {
			if err := <-done; err != nil {
				t.Error(err)
			}
		}
		if n := n.callsOf("get") - before; n != 1 {
			t.Errorf("%d steps", n)
		}
		// The number of users that wait is bounded.
		n.store.set(func(m *modelStore) { m.delay = func(string) time.Duration { return time.Second } })
		var users []string
		for i := range (maxBatches + batchesInFlight) * batchUsers {
			users = append(users, fmt.Sprint("many", i))
		}
		go func() { done <- nil; _, _ = n.nodes[0].v.get(t.Context(), users[:batchesInFlight*batchUsers]) }()
		<-done
		time.Sleep(100 * time.Millisecond)
		go func() { done <- nil; _, _ = n.nodes[0].v.get(t.Context(), users[batchesInFlight*batchUsers:]) }()
		<-done
		time.Sleep(100 * time.Millisecond)
		if _, err := n.nodes[0].v.get(t.Context(), []string{"one more"}); !errors.Is(err, errTooManyReads) {
			t.Errorf("one more read: %v", err)
		}
		time.Sleep(10 * time.Second)
	})
}
