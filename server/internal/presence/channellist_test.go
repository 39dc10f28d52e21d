package presence

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"
)

// TestChannelAtBoundary checks that a channel whose number of members varies around
// Config.ChannelMembers is copied to its streams once in 10 s, and that its last members
// are shown.
func TestChannelAtBoundary(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		n := settledNet(t, 1, func(c *Config) { c.ChannelMembers = 50 })
		x := n.nodes[0]
		members, want := make([]string, 51), map[string]State{}
		for i := range members {
			members[i] = fmt.Sprint("user", i)
		}
		for _, userID := range members[:40] {
			x.v.announced(n.writeTo(userID, onWeb))
			want[userID] = onWeb
		}
		x.members.set("c", members...)
		w := watchC(t, x)
		const (
			changes = 60
			pace    = 1700 * time.Millisecond
		)
		for i := range changes {
			x.members.set("c", members[:51-i%2]...)
			x.v.membersChanged("c")
			time.Sleep(pace)
			w.read()
		}
		time.Sleep(listInterval)
		synctest.Wait()
		w.read()
		copies := 0
		for _, f := range w.frames {
			for i := range f.Channels {
				w.got.apply(t, &f.Channels[i])
				if f.Channels[i].Complete {
					copies++
				}
			}
		}
		w.expect(50, want)
		if copies < 2 || copies > 12 {
			t.Errorf("%d copies in %v", copies, changes*pace)
		}
		x.v.forget(w.s)
	})
}
