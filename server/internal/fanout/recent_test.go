package fanout

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/parleyhq/parley/server/internal/message"
)

// TestReplayIsShared checks that only the first of many subscribers that come back to a channel
// reads the log: the others get the events that it read and those delivered since.
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

		resumed(9, 22) // one position before the events kept
		equal(t, r.log.replays, 2)
		resumed(9, 22)
		equal(t, r.log.replays, 2)
	})
}

// TestSharedReplayExpires checks that events kept from an earlier replay are dropped when a message
// may have changed, and after a second, in which the bus may have been away.
func TestSharedReplayExpires(t *testing.T) {
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
		"more than a second": {func(*rig) {
			time.Sleep(recentFor + 1)
		}, want("state(e1/2,head=4,recovered=true)", 3, 4)},
		"more than a second with use": {func(r *rig) {
			time.Sleep(recentFor / 2)
			r.read(r.open(after("c", 2)))
			time.Sleep(recentFor/2 + 1)
		}, want("state(e1/2,head=4,recovered=true)", 3, 4)},
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

// TestRecentIsBounded checks that a topic keeps at most ReplayFrameBytes of recent events, and
// drops them when they have expired.
func TestRecentIsBounded(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		cfg := noChecks()
		cfg.ReplayFrameBytes = 220
		r := setup(t, cfg)
		tp := &topic{hub: r.hub}
		event := make([]byte, 30)
		tp.mu.Lock()
		tp.putRecent("e1", 0, []encodedEvent{{1, 1, event}, {2, 2, event}, {3, 3, event}, {4, 4, event}, {5, 5, event}}, time.Now())
		equal(t, []int64{tp.recent.after, tp.recent.last(), r.hub.recents.bytes.Load()}, []int64{2, 5, 210})
		for seq := int64(6); seq < 50; seq++ {
			tp.noteRecent(&message.Event{Epoch: "e1", Seq: seq, Kind: message.KindSend}, func() []byte { return event })
		}
		equal(t, []int64{tp.recent.after, tp.recent.last(), r.hub.recents.bytes.Load()}, []int64{46, 49, 210})
		tp.mu.Unlock()
		time.Sleep(recentFor + 2*recentSweep)
		synctest.Wait()
		tp.mu.Lock()
		defer tp.mu.Unlock()
		equal(t, []int64{int64(len(tp.recent.events)), r.hub.recents.bytes.Load(), int64(len(r.hub.recents.holders))}, []int64{0, 0, 0})
	})
}

// TestRecentsAreBounded checks that the recent events of all topics stay within Config.RecentBytes,
// and that events beyond it are read from the log.
func TestRecentsAreBounded(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		cfg := noChecks()
		cfg.RecentBytes = 1000
		r := setup(t, cfg)
		kept := func() int64 { return r.hub.recents.bytes.Load() }
		for i := range 20 {
			id := fmt.Sprint("c", i)
			r.log.addMany(id, 3)
			r.read(r.open(after(id, 0)))
		}
		if kept() > 1000 || kept() < 700 {
			t.Errorf("%d bytes are kept", kept())
		}
		equal(t, r.log.replays, 20)
		r.read(r.open(after("c0", 0)))
		equal(t, r.log.replays, 20)
		r.read(r.open(after("c19", 0)))
		equal(t, r.log.replays, 21)
		for range 20 {
			r.send("c0") // grows until it must be dropped
		}
		if kept() > 1000 {
			t.Errorf("%d bytes are kept", kept())
		}
		time.Sleep(recentFor + 2*recentSweep)
		synctest.Wait()
		equal(t, kept(), int64(0))
	})
}

// TestOnlyReplaysWaitForCache checks that Log.Replay is called with patient set for returning
// subscribers, and without it for missing live events.
func TestOnlyReplaysWaitForCache(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := setup(t, noChecks())
		r.log.addMany("c", 3)
		s := r.open(after("c", 0))
		r.read(s)
		r.log.add("c") // the bus loses its event
		r.send("c")
		equal(t, r.read(s)["c"], want("", 4, 5))
		equal(t, fmt.Sprint(r.log.patient), "[true false]")
	})
}

// TestReplayIsSharedWhileItIsRead checks that streams that request the same part of a log while it
// is being read share that read.
func TestReplayIsSharedWhileItIsRead(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := setup(t, noChecks())
		r.log.addMany("c", 20)
		r.log.on(beforeReplay, func(context.Context, string) error {
			time.Sleep(time.Second)
			return nil
		})
		var streams []*Stream
		for range 10 {
			streams = append(streams, r.open(after("c", 10)))
			r.read(streams[len(streams)-1])
		}
		time.Sleep(2 * time.Second)
		for _, s := range streams {
			equal(t, r.read(s)["c"], want("", 11, 20))
		}
		equal(t, r.log.replays, 1)
	})
}
