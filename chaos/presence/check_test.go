package presence

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/parleyhq/parley/chaos"
)

const sec = int64(time.Second)

// wall is when every story begins, in nanoseconds since 1970.
const wall = 1_000_000 * sec

// story is a correct history, for tests to break.
//
// There are two nodes, n1 and n2, and the policy is platform. ann is on the web at n1 from 1 to 90
// s. bob is on Android at n1 from 1 to 20 s, returns to n2 after 0.3 s, leaves at 40 s, and is
// there again from 60 s, in the background from 65 s. eve logs in on an iPhone at n1 at 5 s, and on
// another one at n2 at 30 s, which kicks the first. The devices stand still from 80 to 82 s, and
// leave at 90 s. The watchers w1 and w2, one on each node, and reads at 56 s and 81 s see all of
// it.
type story struct {
	h *History
	t *Truth
}

// at returns a time in a story.
func at(seconds float64) int64 { return int64(seconds * float64(sec)) }

func newStory() *story {
	s := &story{
		h: &History{
			History: chaos.History{Healed: at(70)}, Wall: wall, Policy: policyPlatform, Addrs: []string{"n1", "n2"}, Settled: at(80),
			Leaving: at(82),
		},
		t: new(Truth),
	}
	s.connect("ann-1", "ann", 8, "n1", 1, 90)
	s.connect("bob-1", "bob", 2, "n1", 1, 20)
	s.connect("bob-1", "bob", 2, "n2", 20.3, 40).Fresh = false
	s.connect("bob-1", "bob", 2, "n2", 60, 90).Fresh = false
	first := s.connect("eve-1", "eve", 1, "n1", 5, 30.2)
	first.How, first.Kick = Kicked, &Kick{Cause: byLogin, Device: "eve-2", Platform: 1}
	s.connect("eve-2", "eve", 1, "n2", 30, 90)
	s.h.Ops = append(s.h.Ops, Op{
		Kind: SetBackground, Client: "bob", Addr: "n1", Begin: at(65), End: at(65.1), Outcome: chaos.OK, Stream: s.conn("bob", 2).ID, Background: true,
	})
	for i, addr := range s.h.Addrs {
		id := fmt.Sprintf("w%d", i+1)
		s.h.Watches = append(s.h.Watches, Watch{
			ID: id, Client: id, Addr: addr, Users: []string{"ann", "bob", "eve"}, Begin: at(0.1), First: at(0.2), Last: at(120), End: at(120),
			How: Closed,
		})
		s.tell(id, ViaInfo, 0.2, 1, Seen{User: "ann"}, Seen{User: "bob"}, Seen{User: "eve"})
		s.tell(id, ViaFrame, 1.1, 2, Seen{User: "ann", State: "8f"}, Seen{User: "bob", State: "2f"})
		s.tell(id, ViaFrame, 5.1, 2, Seen{User: "eve", State: "1f"})
		s.tell(id, ViaFrame, 43.1, 3, Seen{User: "bob"})
		s.tell(id, ViaFrame, 60.1, 4, Seen{User: "bob", State: "2f"})
		s.tell(id, ViaFrame, 65.2, 5, Seen{User: "bob", State: "2b"})
		s.tell(id, ViaFrame, 93.1, 6, Seen{User: "ann"}, Seen{User: "bob"}, Seen{User: "eve"})
		s.read(addr, 56, "", false)
		s.read(addr, 81, "2b", true)
	}
	s.store()
	return s
}

// connect adds a stream of a device.
func (s *story) connect(device, user string, platform int, addr string, from, to float64) *Conn {
	s.h.Conns = append(s.h.Conns, Conn{
		ID: fmt.Sprintf("%s/%d", user, len(s.h.Conns)), Client: user, User: user, Device: device, Platform: platform, Addr: addr, Fresh: true,
		Begin: at(from) - sec/100, First: at(from), Last: at(to) - sec/10, End: at(to), How: Closed, Stream: "s", Connection: "c",
	})
	return &s.h.Conns[len(s.h.Conns)-1]
}

// conn returns the stream of a user with a number, from 0.
func (s *story) conn(user string, n int) *Conn {
	for i := range s.h.Conns {
		if s.h.Conns[i].User != user {
			continue
		}
		if n == 0 {
			return &s.h.Conns[i]
		}
		n--
	}
	panic("no such stream of " + user)
}

// tell adds a frame of a watcher's stream.
func (s *story) tell(watch string, via Via, second float64, revision int64, users ...Seen) *Frame {
	f := Frame{At: at(second), Watch: watch, Via: via, Users: slices.Clone(users)}
	for i := range f.Users {
		f.Users[i].Revision = revision
	}
	s.h.Frames = append(s.h.Frames, f)
	slices.SortStableFunc(s.h.Frames, func(a, b Frame) int { return int(a.At - b.At) })
	for i := range s.h.Frames {
		if s.h.Frames[i].At == f.At && s.h.Frames[i].Watch == watch {
			return &s.h.Frames[i]
		}
	}
	return nil
}

// told returns the state of a user in the frame of w1 at a time.
func (s *story) told(second float64, user string) *Seen {
	for i := range s.h.Frames {
		f := &s.h.Frames[i]
		if f.Watch != "w1" || f.At != at(second) {
			continue
		}
		for k := range f.Users {
			if f.Users[k].User == user {
				return &f.Users[k]
			}
		}
	}
	panic("w1 was not told of " + user)
}

// untold removes a user from the frames of w1 from a time.
func (s *story) untold(second float64, user string) {
	for i := range s.h.Frames {
		if f := &s.h.Frames[i]; f.Watch == "w1" && f.At >= at(second) {
			f.Users = slices.DeleteFunc(f.Users, func(u Seen) bool { return u.User == user })
		}
	}
}

// read adds a GetPresence and a ListOnlineUsers with the states at a time, at which bob has a
// state.
func (s *story) read(addr string, second float64, bob State, final bool) {
	users := []Seen{{User: "ann", State: "8f"}, {User: "bob", State: bob}, {User: "eve", State: "1f"}}
	op := Op{
		Kind: GetPresence, Client: "p", Addr: addr, Begin: at(second), End: at(second + 0.01), Outcome: chaos.OK, Users: users, Final: final,
	}
	s.h.Ops = append(s.h.Ops, op)
	op.Kind = ListOnline
	op.Users = slices.DeleteFunc(slices.Clone(users), func(u Seen) bool { return u.State == "" })
	s.h.Ops = append(s.h.Ops, op)
}

// op returns the first call of a kind on n1 that begins at or after a time.
func (s *story) op(kind Kind, second float64) *Op {
	for i := range s.h.Ops {
		if op := &s.h.Ops[i]; op.Kind == kind && op.Addr == "n1" && op.Begin >= at(second) {
			return op
		}
	}
	panic("no " + string(kind))
}

// store sets the final contents of Redis.
func (s *story) store() {
	set := &s.t.Settled
	set.AtMS = ms(81)
	for _, p := range []Part{{User: "ann", Node: "a.1", State: "8f"}, {User: "bob", Node: "b.1", State: "2b"}, {User: "eve", Node: "b.1", State: "1f"}} {
		p.UntilMS = ms(120)
		set.Parts = append(set.Parts, p)
		set.Online = append(set.Online, p.User)
		set.Members = append(set.Members, Member{Node: p.Node, User: p.User})
	}
	set.Alive = []string{"a.1", "b.1"}
	s.t.Gauges = make(map[string]map[string]float64)
	for _, addr := range s.h.Addrs {
		s.t.Gauges[addr] = make(map[string]float64)
		for _, name := range gauges {
			s.t.Gauges[addr][name] = 0
		}
	}
	set.Logs = []Log{
		{Shard: "p1", Seq: 1, Entries: []Entry{{Seq: 1, AtMS: ms(1.05), User: "ann", State: "8f"}}},
		{Shard: "p2", Seq: 6, Entries: []Entry{
			{Seq: 1, AtMS: ms(1.05), User: "bob", State: "2f"},
			{Seq: 2, AtMS: ms(5.05), User: "eve", State: "1f"},
			{Seq: 3, AtMS: ms(30.1), Login: true},
			{Seq: 4, AtMS: ms(43), User: "bob"},
			{Seq: 5, AtMS: ms(60.05), User: "bob", State: "2f"},
			{Seq: 6, AtMS: ms(65.05), User: "bob", State: "2b"},
		}},
	}
}

// ms returns a time in a story as Redis has it.
func ms(second float64) int64 { return (wall + at(second)) / int64(time.Millisecond) }

// fault adds a fault.
func (s *story) fault(name chaos.FaultName, target string, from, to float64) {
	s.h.Faults = append(s.h.Faults, chaos.Fault{Name: string(name), Target: target, Begin: at(from), End: at(to)})
}

// TestCheckCorrect checks that nothing is found in correct histories.
func TestCheckCorrect(t *testing.T) {
	t.Parallel()
	for _, v := range Check(newStory().h, newStory().t) {
		t.Errorf("the unbroken story: %s", v)
	}
	for _, r := range right {
		t.Run(r.name, func(t *testing.T) {
			t.Parallel()
			s := newStory()
			r.change(s)
			for _, v := range Check(s.h, s.t) {
				t.Error(v)
			}
		})
	}
}

// TestCheckFinds checks that each promise, if broken, is found under its name.
func TestCheckFinds(t *testing.T) {
	t.Parallel()
	for _, w := range slices.Concat(wrongStates, wrongStreams, wrongLogins, wrongEnds) {
		t.Run(string(w.want)+": "+w.name, func(t *testing.T) {
			t.Parallel()
			s := newStory()
			w.change(s)
			found := Check(s.h, s.t)
			if !slices.ContainsFunc(found, func(v chaos.Violation) bool { return v.Name == w.want }) {
				t.Errorf("found %v", found)
			}
		})
	}
}

// TestEveryName checks that each name of a violation has a wrong history.
func TestEveryName(t *testing.T) {
	t.Parallel()
	names := []chaos.Name{
		FalseOffline, Ghost, Missed, Repeat, Backwards, TwoWinners, KickLoop, WrongWinner, List, Event, Leak, chaos.Liveness, chaos.Unobserved,
		chaos.Crash,
	}
	for _, name := range names {
		if !slices.ContainsFunc(slices.Concat(wrongStates, wrongStreams, wrongLogins, wrongEnds), func(w wrong) bool { return w.want == name }) {
			t.Errorf("no wrong history for %s", name)
		}
	}
}
