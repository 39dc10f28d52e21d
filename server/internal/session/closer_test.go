package session

import (
	"errors"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/parleyhq/parley/server/internal/message"
)

// TestCloser checks which open messages are closed as failed, and with which text.
func TestCloser(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := newFleet()
		g := f.node(t, true)
		s, other := serviceOn(f, g), serviceOn(f, f.node(t, true))
		var owns bool
		c := NewCloser(CloserConfig{
			Generations: g, Peers: f, Writer: f, Mirror: f, Log: f, Shards: 1, Owns: func(int) bool { return owns },
		})
		begun := time.Now()
		dead, alive := f.open("dead", begun), f.open("alive", begun)
		f.open("never", begun)
		look := func() {
			t.Helper()
			if err := c.look(t.Context()); err != nil && f.away == nil {
				t.Error(err)
			}
		}
		delta(t, s, dead, 5, 0, "half an ans")
		for range 8 {
			delta(t, other, alive, 5, 0, "") // a generator that thinks, on another node
			time.Sleep(10 * time.Second)
		}
		look()
		equal(t, len(f.drafts), 0) // the shard is another node's
		owns = true
		f.setAway(errors.New("away"))
		look()
		equal(t, len(f.drafts), 0) // nobody knows
		f.setAway(nil)
		c.began = time.Now()
		f.silence(errors.New("a node does not answer"))
		look()
		equal(t, len(f.drafts), 0) // the node may have the texts
		f.silence(nil)
		closed := func() (ids []string) {
			for _, d := range f.drafts {
				ids = append(ids, d.MsgID+": "+d.Content)
			}
			slices.Sort(ids)
			return ids
		}
		look()
		equal(t, fmt.Sprint(closed()), "[dead: half an ans]")
		d := f.drafts[0]
		if d.Kind != message.KindFail || d.FromID != "bot" || !d.AnySender {
			t.Errorf("%+v", d)
		}
		equal(t, delta(t, s, dead, 5, 11, "wer"), "11 5")
		f.open("lost", time.Now())
		wait := func(d time.Duration) {
			for until := time.Now().Add(d); time.Now().Before(until); time.Sleep(10 * time.Second) {
				delta(t, other, alive, 5, 0, "")
			}
		}
		wait(170 * time.Second)
		look()
		equal(t, len(f.drafts), 2)
		wait(20 * time.Second)
		look() // all nodes answer that they have no text
		equal(t, fmt.Sprint(closed()), "[dead: half an ans lost: begun never: begun]")
		f.open("unsure", time.Now())
		f.silence(errors.New("a node does not answer"))
		wait(13 * time.Minute)
		look()
		equal(t, len(f.drafts), 3)
		wait(3 * time.Minute)
		look()
		equal(t, len(f.drafts), 4)
		f.silence(nil)
		// The mirror is away for long, and this node knows that the generator lives.
		f.setAway(errors.New("away"))
		delta(t, s, alive, 5, 0, "")
		look()
		equal(t, len(f.drafts), 4)
		f.set(alive, message.StatusComplete)
		look()
		f.setAway(nil)

		// The mirror has not been written for long, but the generator lives, on another node; and one
		// message that cannot be closed does not keep others open.
		behind, refused, last := f.open("behind", begun), f.open("a", begun), f.open("z", begun)
		for _, m := range []target{behind, refused, last} {
			delta(t, other, m, 5, 0, "x")
		}
		time.Sleep(2 * time.Minute)
		delta(t, other, behind, 5, 1, "y")
		f.mu.Lock()
		f.touched[behind] = begun
		f.refused, f.silent = "a", errors.New("a node does not answer")
		f.mu.Unlock()
		if err := c.look(t.Context()); err == nil {
			t.Error("nothing failed")
		}
		equal(t, len(f.drafts), 5) // "z", which is old
		f.silence(nil)
		if err := c.look(t.Context()); err == nil {
			t.Error("the failure is not reported")
		}
		equal(t, fmt.Sprint(closed()), "[dead: half an ans lost: begun never: begun unsure: begun z: x]")
	})
}

// TestCloserClosesMany checks that a slow store does not delay closes one by one.
func TestCloserClosesMany(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := newFleet()
		c := NewCloser(CloserConfig{Generations: f.node(t, false), Peers: f, Writer: f, Mirror: f, Log: f, Shards: 1})
		for i := range 2 * closes {
			f.open(fmt.Sprint("m", i), time.Now())
		}
		time.Sleep(time.Hour)
		f.slow = time.Second
		began := time.Now()
		if err := c.look(t.Context()); err != nil {
			t.Error(err)
		}
		if took := time.Since(began); len(f.drafts) != 2*closes || took > 2*time.Second {
			t.Errorf("closed %d messages in %v", len(f.drafts), took)
		}
	})
}

// TestCloserReadsAll checks that many messages whose generators live do not hide an abandoned one.
func TestCloserReadsAll(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := newFleet()
		g := f.node(t, false)
		c := NewCloser(CloserConfig{Generations: g, Peers: f, Writer: f, Mirror: f, Log: f, Shards: 1})
		begun := time.Now()
		for i := range 2*closerPage + 10 {
			m := f.open(fmt.Sprint("m", i), begun.Add(time.Duration(i)*time.Millisecond))
			f.touched[m] = begun.Add(time.Hour)
		}
		f.open("abandoned", begun.Add(time.Minute))
		time.Sleep(time.Hour)
		if err := c.look(t.Context()); err != nil {
			t.Error(err)
		}
		if len(f.drafts) != 1 || f.drafts[0].MsgID != "abandoned" {
			t.Errorf("closed %d messages", len(f.drafts))
		}
	})
}
