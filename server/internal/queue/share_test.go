package queue

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// world is what all nodes see of a group in TestShareConverges.
type world struct {
	leases  []Lease
	members []Member
}

func newWorld(partitions int) *world {
	w := &world{leases: make([]Lease, partitions)}
	for p := range w.leases {
		w.leases[p].Partition = p
	}
	return w
}

func (w *world) held(session string) (all []int) {
	for _, l := range w.leases {
		if l.Holder == session {
			all = append(all, l.Partition)
		}
	}
	return all
}

// round has each member act once on what it sees, and reports how many partitions were handed back.
func (w *world) round() (shed int) {
	seen := slices.Clone(w.leases)
	portions := share(seen, w.members)
	for _, m := range w.members {
		p, held := portions[m.StreamID], w.held(m.StreamID)
		for i := range max(len(held)-p.quota, 0) {
			w.leases[held[i]].Holder = ""
			shed++
		}
		for _, t := range p.take {
			if w.leases[t].Holder == "" {
				w.leases[t].Holder = m.StreamID
			}
		}
	}
	return shed
}

func seeded(t *testing.T) *rand.Rand {
	t.Helper()
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	return rand.New(rand.NewPCG(seed, 0))
}

// Quotas are even and complete; nobody is told to take what is held, or what another is told to take; and no even assignment moves less.
func TestShareIsEvenAndMovesLeast(t *testing.T) {
	t.Parallel()
	r := seeded(t)
	for range 3000 {
		w := newWorld(r.IntN(40))
		for i := range 1 + r.IntN(12) {
			w.members = append(w.members, Member{StreamID: fmt.Sprint("m", i)})
		}
		for p := range w.leases {
			switch r.IntN(4) {
			case 0:
			case 1:
				w.leases[p].Holder = "stranger"
			default:
				w.leases[p].Holder = w.members[min(r.IntN(len(w.members)), r.IntN(len(w.members)))].StreamID
			}
		}
		portions := share(w.leases, w.members)
		if !cmp.Equal(portions, share(w.leases, w.members), cmp.AllowUnexported(portion{})) {
			t.Fatal("the same came to another result")
		}

		var sum, moves int
		least, most, taken := len(w.leases), 0, map[int]bool{}
		for _, m := range w.members {
			p := portions[m.StreamID]
			sum += p.quota
			least, most = min(least, p.quota), max(most, p.quota)
			moves += max(len(w.held(m.StreamID))-p.quota, 0)
			if lack := max(p.quota-len(w.held(m.StreamID)), 0); len(p.take) > lack {
				t.Fatalf("%s lacks %d and is told to take %v", m.StreamID, lack, p.take)
			}
			for _, take := range p.take {
				if w.leases[take].Holder != "" || taken[take] {
					t.Fatalf("%s is told to take %d, which is not free: %+v", m.StreamID, take, w)
				}
				taken[take] = true
			}
		}
		if sum != len(w.leases) || most-least > 1 {
			t.Fatalf("quotas of %d to %d, %d in all: %+v", least, most, sum, w)
		}
		if want := leastMoves(w); moves != want {
			t.Fatalf("%d partitions move, %d would do: %+v", moves, want, w)
		}
	}
}

// leastMoves computes another way how many partitions must move at least: of the quotas, the larger ones save a move each with
// whoever has more than the smaller.
func leastMoves(w *world) int {
	base, extra := len(w.leases)/len(w.members), len(w.leases)%len(w.members)
	moves, savable := 0, 0
	for _, m := range w.members {
		if over := len(w.held(m.StreamID)) - base; over > 0 {
			moves += over
			savable++
		}
	}
	return moves - min(extra, savable)
}

// Whoever joins, leaves and crashes, members that see the same come to an even assignment in a few rounds and then rest.
func TestShareConverges(t *testing.T) {
	t.Parallel()
	r := seeded(t)
	for range 100 {
		w := newWorld(1 + r.IntN(64))
		for step := range 30 {
			switch {
			case len(w.members) == 0 || r.IntN(2) == 0:
				w.members = append(w.members, Member{StreamID: fmt.Sprint("m", step)})
			default:
				i := r.IntN(len(w.members))
				for _, p := range w.held(w.members[i].StreamID) {
					w.leases[p].Holder = ""
				}
				w.members = slices.Delete(w.members, i, i+1)
			}
			for range 3 {
				w.round()
			}
			if len(w.members) == 0 {
				continue
			}
			least, most := len(w.leases), 0
			for _, m := range w.members {
				n := len(w.held(m.StreamID))
				least, most = min(least, n), max(most, n)
			}
			if nobody := w.held(""); most-least > 1 || len(nobody) > 0 {
				t.Fatalf("members have %d to %d, nobody has %v", least, most, nobody)
			}
			before := slices.Clone(w.leases)
			if shed := w.round(); shed > 0 || !cmp.Equal(before, w.leases) {
				t.Fatal("an even assignment changed")
			}
		}
	}
}
