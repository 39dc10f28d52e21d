package fanout

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/parleyhq/parley/server/internal/message"
)

// fakeAdmission is an Admission whose answers a test sets.
type fakeAdmission struct {
	mu      sync.Mutex
	open    bool
	rev     int64
	members map[string]bool
	err     error
	asked   int
}

func (f *fakeAdmission) OpenAt(string) (int64, bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.rev, f.open
}

func (f *fakeAdmission) Readers(
	_ context.Context, _ string, subjects []string, byMembership bool, atLeast int64,
) (map[string]bool, int64, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.asked++
	if f.err == nil && f.rev < atLeast {
		return nil, 0, errors.New("the row is behind its log")
	}
	readers := map[string]bool{}
	for _, s := range subjects {
		readers[s] = f.open && !byMembership || f.members[s]
	}
	return readers, f.rev, f.err
}

// close closes the channel at an access revision.
func (f *fakeAdmission) close(rev int64) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.open, f.rev = false, rev
}

// A subscriber of a channel that did not exist when it was requested receives no entry before it
// was checked, and none at all if it may not: neither live, nor by a replay, nor to fill a hole.
func TestStrangerGetsNoEntryOfAChannelCreatedLater(t *testing.T) {
	t.Parallel()
	for name, first := range map[string]func(r *rig){
		"live":             func(r *rig) { r.send("c") },
		"an event is lost": func(r *rig) { r.log.add("c"); r.send("c") },
		"all events are lost": func(r *rig) {
			r.log.addMany("c", 3)
			time.Sleep(time.Minute)
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				adm := &fakeAdmission{members: map[string]bool{"ann": true}}
				r := setup(t, Config{Admission: adm})
				member, stranger := r.openAs("ann", live("c")), r.openAs("eve", live("c"))
				exempt := r.openAs("root", Position{ChannelID: "c", Exempt: true})
				for _, s := range []*Stream{member, stranger, exempt} {
					equal(t, r.read(s)["c"], "state(e1/0,head=0,recovered=false)")
				}
				first(r)
				r.send("c")
				n := r.log.head("c")
				equal(t, r.read(member)["c"], want("", 1, n))
				equal(t, r.read(exempt)["c"], want("", 1, n))
				equal(t, r.read(stranger)["c"], "lost(reason=1)")
				r.send("c")
				equal(t, r.read(member)["c"], want("", n+1, n+1))
				equal(t, r.read(stranger)["c"], "")
				// Later streams are checked before the first page, too.
				equal(t, r.read(r.openAs("eve", after("c", 0)))["c"], "lost(reason=1)")
				equal(t, r.read(r.openAs("ann", after("c", 0)))["c"], want(fmt.Sprintf("state(e1/0,head=%d,recovered=true)", n+1), 1, n+1))
			})
		})
	}
}

// While it cannot be determined whether a subscriber may receive entries, it waits.
func TestSubscriberWaitsForItsCheck(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		adm := &fakeAdmission{members: map[string]bool{"ann": true}, err: errors.New("down")}
		r := setup(t, Config{Admission: adm})
		s := r.open(live("c"))
		r.read(s)
		r.send("c")
		equal(t, r.read(s)["c"], "")
		time.Sleep(10 * time.Second)
		equal(t, r.read(s)["c"], "")
		adm.mu.Lock()
		adm.err = nil
		adm.mu.Unlock()
		time.Sleep(10 * time.Second)
		equal(t, r.read(s)["c"], want("", 1, 1))
	})
}

// Subscribers of a channel that is known to be open are not checked.
func TestOpenChannelNeedsNoCheck(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		adm := &fakeAdmission{open: true}
		r := setup(t, Config{Admission: adm})
		r.log.addMany("c", 3)
		s := r.open(after("c", 1))
		equal(t, r.read(s)["c"], want("state(e1/1,head=3,recovered=true)", 2, 3))
		equal(t, adm.asked, 0)
	})
}

// Once a channel is closed, strangers receive no entry with the later access revision, however the
// node receives it. All subscribers of a topic are checked at once.
func TestStrangerGetsNoEntryAfterTheChannelIsClosed(t *testing.T) {
	t.Parallel()
	for name, next := range map[string]func(r *rig){
		"live":              func(r *rig) { r.send("c") },
		"an event is lost":  func(r *rig) { r.log.add("c"); r.send("c") },
		"events are parked": func(r *rig) { e := r.log.add("c"); r.send("c"); r.bus.publish(e) },
		"all events are lost": func(r *rig) {
			r.log.addMany("c", 3)
			time.Sleep(time.Minute)
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				adm := &fakeAdmission{open: true, members: map[string]bool{"ann": true, "bob": true}}
				r := setup(t, Config{Admission: adm})
				r.send("c")
				streams := map[string]*Stream{"ann": r.openAs("ann", live("c")), "bob": r.openAs("bob", live("c"))}
				for i := range 20 {
					streams[fmt.Sprint("eve", i)] = r.openAs(fmt.Sprint("eve", i), live("c"))
				}
				exempt := r.openAs("root", Position{ChannelID: "c", Exempt: true})
				all := append(slices.Collect(maps.Values(streams)), exempt)
				for _, s := range all {
					equal(t, r.read(s)["c"], "state(e1/1,head=1,recovered=false)")
				}
				r.send("c")
				for _, s := range all {
					equal(t, r.read(s)["c"], want("", 2, 2))
				}
				equal(t, adm.asked, 0)
				adm.close(1)
				r.log.setRev("c", 1)
				next(r)
				r.send("c")
				n := r.log.head("c")
				equal(t, r.read(exempt)["c"], want("", 3, n))
				for name, s := range streams {
					if adm.members[name] {
						equal(t, r.read(s)["c"], want("", 3, n))
					} else {
						equal(t, r.read(s)["c"], "lost(reason=1)")
					}
				}
				if adm.asked > 3 {
					t.Errorf("%d checks for one topic", adm.asked)
				}
				r.send("c")
				equal(t, r.read(streams["eve0"])["c"], "")
				equal(t, r.read(streams["ann"])["c"], want("", n+1, n+1))
			})
		})
	}
}

// A subscriber who catches up is checked before a page with a message that was changed after the
// channel was closed, although the page ends before.
func TestStrangerGetsNoPageThatShowsALaterChange(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		adm := &fakeAdmission{open: true, members: map[string]bool{"ann": true}}
		r := setup(t, Config{Admission: adm})
		r.log.addMany("c", 3)
		r.log.edit("c", 2, func(e *message.Event) { e.Rev = 1 })
		eve := r.openAs("eve", after("c", 0))
		adm.close(1)
		equal(t, r.read(eve)["c"], "state(e1/0,head=3,recovered=true) lost(reason=1)")
		equal(t, r.read(r.openAs("ann", after("c", 0)))["c"], want("state(e1/0,head=3,recovered=true)", 1, 3))
	})
}

// While the check of a closed channel's subscribers fails, they receive nothing.
func TestSubscribersWaitWhileAClosedChannelCannotBeChecked(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		adm := &fakeAdmission{open: true, members: map[string]bool{"ann": true}}
		r := setup(t, Config{Admission: adm})
		r.send("c")
		ann, eve := r.openAs("ann", live("c")), r.openAs("eve", live("c"))
		r.read(ann)
		r.read(eve)
		r.log.setRev("c", 1) // the row that this node reads is behind
		r.send("c")
		for range 3 {
			equal(t, r.read(ann)["c"], "")
			equal(t, r.read(eve)["c"], "")
			time.Sleep(5 * time.Second)
		}
		adm.close(1)
		time.Sleep(10 * time.Second)
		equal(t, r.read(ann)["c"], want("", 2, 2))
		equal(t, r.read(eve)["c"], "lost(reason=1)")
	})
}

// A stranger of a closed channel does not even receive its state.
func TestStrangerGetsNoStateOfAClosedChannel(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		adm := &fakeAdmission{rev: 1, members: map[string]bool{"ann": true}}
		r := setup(t, Config{Admission: adm})
		r.log.setRev("c", 1)
		r.log.addMany("c", 3)
		equal(t, r.read(r.openAs("eve", live("c")))["c"], "lost(reason=1)")
		equal(t, r.read(r.openAs("ann", live("c")))["c"], "state(e1/3,head=3,recovered=false)")
	})
}

// A subscription by membership is checked also if the channel is open, apart from others of the
// same subject, and again once the channel was opened.
func TestSubscriptionByMembershipIsChecked(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		adm := &fakeAdmission{open: true, members: map[string]bool{"ann": true, "bob": true}}
		r := setup(t, Config{Admission: adm})
		byMembership := Position{ChannelID: "c", Member: true}
		early := r.openAs("eve", byMembership) // while the channel does not exist
		equal(t, r.read(early)["c"], "state(e1/0,head=0,recovered=false)")
		r.send("c")
		equal(t, r.read(early)["c"], "lost(reason=1)")
		equal(t, r.read(r.openAs("eve", byMembership))["c"], "lost(reason=1)")
		eve := r.openAs("eve", live("c"))
		members := []*Stream{r.openAs("ann", byMembership), r.openAs("bob", byMembership)}
		for _, s := range append(members, eve) {
			equal(t, r.read(s)["c"], "state(e1/1,head=1,recovered=false)")
		}
		r.send("c")
		for _, s := range append(members, eve) {
			equal(t, r.read(s)["c"], want("", 2, 2))
		}
		adm.mu.Lock()
		adm.rev, adm.members = 2, map[string]bool{"ann": true} // closed and opened
		adm.mu.Unlock()
		r.log.setRev("c", 2)
		r.send("c")
		equal(t, r.read(members[0])["c"], want("", 3, 3))
		equal(t, r.read(members[1])["c"], "lost(reason=1)")
		equal(t, r.read(eve)["c"], want("", 3, 3))
	})
}
