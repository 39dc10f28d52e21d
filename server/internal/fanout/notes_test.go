package fanout

import (
	"fmt"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/parleyhq/parley/server/internal/message"
	"github.com/parleyhq/parley/server/internal/stream"
)

// TestTyping checks that each live subscriber of the channel is told once that a user types, after
// the queued entries. Subscribers in replay and those of other channels are not told.
func TestTyping(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := setup(t, noChecks())
		r.log.addMany("c", 2000)
		a, other := r.open(live("c"), live("d")), r.open(live("d"))
		r.read(a)
		r.read(other)
		behind := r.open(after("c", 0))
		if f, err := behind.Next(t.Context()); err != nil || len(f.Pieces) != 1 {
			t.Fatalf("%+v, %v", f, err) // its state; the replay is not requested yet
		}
		r.bus.typing("c", "bob")
		r.bus.typing("c", "cid")
		r.bus.typing("c", "bob")
		r.bus.typing("nobody-listens", "bob")
		r.send("c")
		f, err := a.Next(t.Context())
		if err != nil || f.Events != 1 {
			t.Fatalf("%+v, %v", f, err)
		}
		lines := decode(t, f)
		equal(t, fmt.Sprint(lines[0], lines[1], lines[2], len(lines)), "e1/2001 typing(bob) typing(cid) 3")
		equal(t, r.read(other), map[string]string{})
		got := r.read(behind)["c"]
		equal(t, strings.Contains(got, "typing"), false)
		equal(t, strings.HasSuffix(got, "e1/2001"), true)
		r.bus.typing("c", "bob") // on its own, and again once it was sent
		equal(t, r.read(a), map[string]string{"c": "typing(bob)"})
		// A pending note is dropped with the subscription.
		r.bus.typing("c", "bob")
		if err := remove(a, "c"); err != nil {
			t.Fatal(err)
		}
		equal(t, r.read(a), map[string]string{})
	})
}

// TestTypingBeforeState checks that a note of typing is sent after the channel's State, even if the
// State does not fit into the next frame.
func TestTypingBeforeState(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		cfg := noChecks()
		cfg.FrameBytes = 60
		r := setup(t, cfg)
		s := r.open(live("c"), live("d"), live("e"))
		synctest.Wait()
		f, err := s.Next(t.Context()) // starts the read of the three
		if err != nil {
			t.Fatal(err)
		}
		first := decode(t, f)
		synctest.Wait()
		for _, id := range []string{"c", "d", "e"} {
			r.bus.typing(id, "bob")
		}
		stated := map[string]bool{}
		for _, l := range first {
			stated[l.channel] = true
		}
		for told := 0; told < 3; {
			f, err := s.Next(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			size := 0
			for _, p := range f.Pieces {
				size += len(p)
			}
			if size > cfg.FrameBytes {
				t.Errorf("a frame of %d bytes", size)
			}
			for _, l := range decode(t, f) {
				switch l.kind {
				case "state":
					stated[l.channel] = true
				case "typing":
					told++
					equal(t, stated[l.channel], true)
				}
			}
		}
	})
}

// TestTypingNeverCuts checks that notes of typing never cut a stream whose reader does not read:
// their number is bounded, and none is added once the queue is half full.
func TestTypingNeverCuts(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := setup(t, Config{QueueEvents: 20})
		s, full := r.open(live("c")), r.open(live("c"))
		r.read(s)
		r.read(full)
		for range 10 {
			r.send("c")
		}
		equal(t, r.read(s)["c"], want("", 1, 10))
		for i := range 10_000 {
			r.bus.typing("c", fmt.Sprintf("user-%d", i))
		}
		equal(t, len(s.notes), maxNotes)
		equal(t, len(full.notes), 0)
		for range 10 {
			r.send("c")
		}
		equal(t, strings.Count(r.read(s)["c"], "typing"), maxNotes)
		equal(t, r.read(full)["c"], want("", 1, 20))
		equal(t, r.hub.stats.cuts.Load(), int64(0))
		r.send("c")
		r.bus.typing("c", "bob")
		s.end(stream.ShuttingDown())
		r.bus.typing("c", "bob")
		equal(t, len(s.notes), 0)
	})
}

// TestTypingWhileRemoved checks that a note is not sent if it is queued while the stream's channel
// is being removed.
func TestTypingWhileRemoved(t *testing.T) {
	t.Parallel()
	r := setup(t, noChecks())
	s := r.open(live("c"))
	r.read(s)
	topic := s.subs[0].topic
	topic.mu.Lock()
	removed := make(chan error, 1)
	go func() { removed <- remove(s, "c") }()
	for left := 1; left > 0; runtime.Gosched() {
		s.mu.Lock()
		left = len(s.subs)
		s.mu.Unlock()
	}
	s.typing(note{channelID: "c", userID: "bob", data: []byte("typing c - 0 bob\n")})
	topic.mu.Unlock()
	equal(t, <-removed, error(nil))
	equal(t, r.read(s), map[string]string{})
}

// TestNotesAreSentImmediately checks that a note wakes a reader that waits in Next.
func TestNotesAreSentImmediately(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := setup(t, noChecks())
		s := r.open(live("c"))
		r.read(s)
		for want, tell := range map[string]func(){
			"typing(bob)":    func() { r.bus.typing("c", "bob") },
			"lost(reason=1)": func() { r.hub.Expel("c", "ann", message.ModeMembersOnly) },
		} {
			if err := s.Add([]Position{live("c")}); err != nil {
				t.Fatal(err)
			}
			r.read(s)
			start := time.Now()
			time.AfterFunc(time.Second, tell)
			f, err := s.Next(t.Context())
			if err != nil || len(f.Pieces) != 1 || time.Since(start) != time.Second {
				t.Fatalf("%s: %+v, %v after %v", want, f, err, time.Since(start))
			}
			equal(t, decode(t, f)[0].String(), want)
		}
	})
}
