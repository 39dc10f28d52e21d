package fanout

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/parleyhq/parley/server/internal/fault"
)

// Poll returns what Next does, without waiting. Its wake-up is ready once there is more.
func TestPoll(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := setup(t, Config{})
		s := r.open(live("c"))
		r.read(s)
		poll := func() (Frame, bool) {
			t.Helper()
			f, ok, err := s.Poll()
			if err != nil {
				t.Fatal(err)
			}
			return f, ok
		}
		awake := func() bool {
			synctest.Wait()
			select {
			case <-s.Wakeup():
				return true
			default:
				return false
			}
		}
		awake()
		if f, ok := poll(); ok || awake() {
			t.Errorf("an idle stream has %+v, or wakes its reader", f)
		}
		r.send("c")
		if !awake() {
			t.Error("an event does not wake the reader")
		}
		if f, ok := poll(); !ok || f.Events != 1 || len(f.Pieces) != 1 {
			t.Errorf("got %+v, %v", f, ok)
		}
		// What the client was sent besides defers the heartbeat.
		time.Sleep(10 * time.Second)
		s.Sent()
		poll()
		time.Sleep(14 * time.Second)
		if f, ok := poll(); ok {
			t.Errorf("14 s after a frame: %+v", f)
		}
		time.Sleep(time.Second)
		if f, ok := poll(); !ok || !f.Heartbeat {
			t.Errorf("15 s after a frame: %+v, %v", f, ok)
		}
	})
}

// A stream that is ended from outside returns the cause with its positions, and one that is drained
// what is queued first.
func TestEndFromOutside(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := setup(t, Config{})
		s, drained := r.open(live("c")), r.open(live("c"))
		equal(t, s.Identity().ID, s.ID())
		equal(t, s.Identity().Subject, "ann")
		r.read(s)
		r.read(drained)
		r.send("c")
		r.read(s)
		kick := fault.New(fault.FailedPrecondition, fault.Kicked, "kicked")
		kick.Kick = &fault.Kick{Device: "d"}
		s.End(kick)
		s.End(fault.New(fault.Internal, fault.InternalError, "later"))
		s.Drain(time.Second)
		_, ok, err := s.Poll()
		e := failure(t, err, fault.FailedPrecondition, fault.Kicked)
		equal(t, ok, false)
		equal(t, e.Kick.Device, "d")
		equal(t, e.Positions, []fault.Position{{ChannelID: "c", Seq: 1, Epoch: "e1"}})
		equal(t, len(kick.Positions), 0)
		drained.Drain(0)
		f, _, err := drained.Poll()
		if err != nil || f.Events != 1 {
			t.Errorf("what was queued: %+v, %v", f, err)
		}
		f, _, err = drained.Poll()
		if err != nil || f.Reconnect != time.Millisecond {
			t.Errorf("advice: %+v, %v", f, err)
		}
		_, _, err = drained.Poll()
		failure(t, err, fault.Unavailable, fault.ShuttingDown)
	})
}

// The regular checks of many idle channels share reads of the log.
func TestChecksOfIdleChannelsShareReads(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := setup(t, Config{CheckAfter: []time.Duration{time.Second}, MaxChannelsPerStream: 5000})
		var positions []Position
		for i := range 5000 {
			positions = append(positions, live(fmt.Sprint("c", i)))
		}
		r.read(r.open(positions...))
		time.Sleep(10 * time.Second)
		synctest.Wait()
		r.log.mu.Lock()
		calls, states := r.log.statesCalls, r.log.states
		r.log.mu.Unlock()
		time.Sleep(80 * time.Second)
		synctest.Wait()
		r.log.mu.Lock()
		defer r.log.mu.Unlock()
		calls, states = r.log.statesCalls-calls, r.log.states-states
		if states < 10_000 || calls > 4*80+20 {
			t.Errorf("%d checks took %d reads in 80 s", states, calls)
		}
	})
}
