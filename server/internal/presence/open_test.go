package presence

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/parleyhq/parley/server/internal/fault"
)

// TestOpenWithoutStates checks that a stream that watches many channels begins within a second,
// although the store responds to no read.
func TestOpenWithoutStates(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		members := &fakeMembers{channels: map[string][]string{}}
		f := newFleet(t, 1, func(c *Config) { c.Members = members })
		req := &OpenRequest{Subject: "ada", Expires: time.Now().Add(time.Hour), Invisible: true, Watch: []string{"bob"}}
		for i := range f.nodes[0].hub.cfg.MaxChannels {
			ch := ChannelRef{ID: fmt.Sprint("c", i)}
			members.set(ch.ID, fmt.Sprint("eve", i))
			req.Channels = append(req.Channels, ch)
		}
		f.store.set(func(m *modelStore) {
			m.delay = func(method string) time.Duration { return map[string]time.Duration{"get": time.Hour}[method] }
		})
		began := time.Now()
		s, update, err := f.nodes[0].hub.Open(t.Context(), req)
		if took := time.Since(began); err != nil || took > 1100*time.Millisecond {
			t.Fatalf("open: %v after %v", err, took)
		}
		if len(update.Users)+len(update.Channels) > 0 {
			t.Errorf("states that cannot be known: %v", update)
		}
		f.nodes[0].hub.Close(s)
	})
}

// TestReplacedWhileOpening checks that a stream that waits for states when its login is replaced
// fails with the replacement.
func TestReplacedWhileOpening(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(t, 2, func(c *Config) { c.Policy = PolicySingle })
		f.store.set(func(m *modelStore) {
			m.delay = func(method string) time.Duration {
				return map[string]time.Duration{"get": 800 * time.Millisecond}[method]
			}
		})
		opened := make(chan error)
		go func() {
			_, _, err := f.nodes[0].hub.Open(t.Context(), &OpenRequest{
				Subject: "ada", Expires: time.Now().Add(time.Hour), Platform: Web, Device: "old", Watch: []string{"bob"},
			})
			opened <- err
		}()
		time.Sleep(100 * time.Millisecond)
		if d := f.nodes[1].connect("ada", IOS, nil); d.err != nil {
			t.Fatal(d.err)
		}
		if err := <-opened; !fault.Is(err, fault.Kicked) {
			t.Errorf("open: %v", err)
		}
	})
}

// TestMembersChangeDuringFirstRead checks that a channel whose members change while they are read
// for the first time has the new ones, and that both reads end well.
func TestMembersChangeDuringFirstRead(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		n := settledNet(t, 1, nil)
		x := n.nodes[0]
		x.members.set("c", "ada")
		n.store.set(func(m *modelStore) {
			m.delay = func(method string) time.Duration {
				return map[string]time.Duration{"get": 100 * time.Millisecond}[method]
			}
		})
		x.members.hook = func(read int) {
			if read == 1 {
				x.members.set("c", "ada", "bob")
				x.v.membersChanged("c")
				time.Sleep(50 * time.Millisecond) // a second read would overtake this one
			}
		}
		w := &channelWatcher{watcher: x.watcher()}
		if _, err := x.v.watchChannel(t.Context(), w.s, ChannelRef{ID: "c"}); err != nil {
			t.Fatal(err)
		}
		time.Sleep(3 * time.Second)
		state, err := x.v.watchChannel(t.Context(), w.s, ChannelRef{ID: "c"})
		if err != nil || state == nil || state.Members != 2 {
			t.Errorf("the channel is %+v, %v", state, err)
		}
		x.v.forget(w.s)
	})
}
