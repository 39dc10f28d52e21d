package fanout

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/parleyhq/parley/server/internal/message"
)

// TestReplayIsShared has many come back to one channel: the first one reads the log, the others have what it read, and
// what was passed on since.
func TestReplayIsShared(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := setup(t, noChecks())
		r.log.addMany("c", 20)
		resumed := func(from, head int64) {
			t.Helper()
			s := r.open(after("c", from))
			state := "state(e1/" + fmt.Sprint(from) + ",head=" + fmt.Sprint(head) + ",recovered=true)"
			equal(t, r.read(s)["c"], want(state, from+1, head))
		}
		resumed(10, 20)
		for from := int64(10); from < 20; from++ {
			resumed(from, 20)
		}
		r.send("c")
		r.send("c")
		resumed(12, 22)
		resumed(22, 22)
		equal(t, r.log.replays, 1)

		resumed(9, 22) // one place before what is kept
		equal(t, r.log.replays, 2)
		resumed(9, 22)
		equal(t, r.log.replays, 2)
	})
}

// TestReplayIsNotSharedTooLong has what is kept go where it may be wrong, or nobody needs it.
func TestReplayIsNotSharedTooLong(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		meanwhile func(r *rig)
		want      string
	}{
		"an edit, whose message is another now": {func(r *rig) {
			e := r.log.add("c")
			r.log.mu.Lock()
			changed := &r.log.channel("c").events[e.Seq-1]
			changed.Kind = message.KindEdit
			e = *changed
			r.log.mu.Unlock()
			r.bus.publish(e)
		}, want("state(e1/2,head=5,recovered=true)", 3, 5)},
		"an edit that the bus lost": {func(r *rig) {
			r.log.add("c")
		}, want("state(e1/2,head=5,recovered=true)", 3, 5)},
		"a while without use": {func(r *rig) {
			time.Sleep(2 * recentFor)
			r.send("c")
		}, want("state(e1/2,head=5,recovered=true)", 3, 5)},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				r := setup(t, noChecks())
				r.log.addMany("c", 4)
				first := r.open(after("c", 2))
				r.read(first)
				tc.meanwhile(r)
				equal(t, r.read(r.open(after("c", 2)))["c"], tc.want)
				equal(t, r.log.replays, 2)
			})
		})
	}
}

// TestRecentIsBounded keeps no more than a frame's worth of events.
func TestRecentIsBounded(t *testing.T) {
	t.Parallel()
	cfg := Config{ReplayFrameBytes: 100}
	r := recent{}
	r.put("e1", 1, [][]byte{make([]byte, 30), make([]byte, 30)}, time.Now())
	for seq := int64(3); seq < 50; seq++ {
		r.deliver(&message.Event{Epoch: "e1", Seq: seq, Kind: message.KindSend}, func() []byte { return make([]byte, 30) }, &cfg)
	}
	equal(t, []int64{r.first, r.last(), int64(r.bytes)}, []int64{47, 49, 90})
	r.expire(time.Now().Add(2 * recentFor))
	if r.events != nil {
		t.Error("it is kept for ever")
	}
}

// TestReplayIsSharedWhileItIsRead has many ask for the same piece of a log while that is being read.
func TestReplayIsSharedWhileItIsRead(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := setup(t, noChecks())
		r.log.addMany("c", 20)
		r.log.on(beforeReplay, func(context.Context, string) error {
			time.Sleep(time.Second)
			return nil
		})
		var sessions []*Session
		for range 10 {
			sessions = append(sessions, r.open(after("c", 10)))
			r.read(sessions[len(sessions)-1])
		}
		time.Sleep(2 * time.Second)
		for _, s := range sessions {
			equal(t, r.read(s)["c"], want("", 11, 20))
		}
		equal(t, r.log.replays, 1)
	})
}
