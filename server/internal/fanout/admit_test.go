package fanout

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// fakeAdmission is an Admission whose answers a test sets.
type fakeAdmission struct {
	mu      sync.Mutex
	open    bool
	members map[string]bool
	err     error
	asked   int
}

func (f *fakeAdmission) KnownOpen(string) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.open
}

func (f *fakeAdmission) MayRead(_ context.Context, subject, _ string) (bool, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.asked++
	return f.members[subject], f.err
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
