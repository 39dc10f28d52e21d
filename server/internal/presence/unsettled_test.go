package presence

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/parleyhq/parley/server/internal/fault"
)

// TestUnsettledStates checks that while nodes restore their parts after a flush, a user of whom one
// node has restored its part is not offline on the platforms of the other. This holds for those who
// watch the user, for those who begin to, and for reads.
func TestUnsettledStates(t *testing.T) {
	t.Parallel()
	for _, mode := range []CacheMode{CacheLRU, CacheFull} {
		t.Run(string(mode), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				n := settledNet(t, 1, func(c *Config) { c.Cache = mode })
				x, watched, added := n.nodes[0], sameShard[0], sameShard[1]
				shard := ShardOf(watched)
				w := x.watcher()
				w.must(watched)
				x.v.announced(n.writeTo(watched, onWeb|onIOS))
				w.expect(watched, onWeb|onIOS)
				n.set(func(n *network) { n.passive = true })
				n.store.set(func(m *modelStore) { m.unsettled = true })
				n.store.flush()
				time.Sleep(2 * time.Second)
				h, err := n.store.Open(t.Context(), shard, "", "second")
				if err != nil {
					t.Fatal(err)
				}
				x.v.opened(shard, h, n.store.now())

				set := func(node string, p Part) {
					call := SetCall{Shard: shard, Node: node, Epoch: "second", NotAfter: n.store.now().Add(time.Hour)}
					for _, p.UserID = range []string{watched, added} {
						call.Users = append(call.Users, p)
					}
					r := n.store.Set(t.Context(), []SetCall{call})[0]
					if r.Outcome != Done {
						t.Fatal(r)
					}
					x.v.announced(Announcement{Shard: shard, Epoch: "second", Entries: entriesOf(&call, &r)})
				}
				// One node restores its parts, and then its devices go into the background. The other
				// node's parts, onWeb, are not restored yet.
				background := State(0).With(IOS, true)
				set("one", Part{State: onIOS, Mode: Restore})
				w.must(added)
				set("one", Part{State: background})
				w.expect(watched, onWeb|background)
				if u, ok := w.users[added]; ok {
					t.Errorf("a new user is %v", u.State)
				}
				if _, err := x.v.get(t.Context(), []string{added}); !fault.Is(err, fault.StoreUnavailable) {
					t.Errorf("a part of the user's state is an answer: %v", err)
				}

				set("two", Part{State: onWeb, Mode: Restore})
				set("one", Part{})
				w.expect(watched, onWeb|background)
				if err := n.store.Settle(t.Context(), shard, "second"); err != nil {
					t.Fatal(err)
				}
				time.Sleep(2 * time.Second)
				w.expect(watched, onWeb)
				w.expect(added, onWeb)
			})
		})
	}
}
