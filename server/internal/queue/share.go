package queue

import (
	"cmp"
	"slices"
)

// portion is what one member of a group should have of a topic's partitions.
type portion struct {
	// quota is how many. A member that has more hands back which it likes best to.
	quota int
	// take are free ones that it should acquire.
	take []int
}

// share shares a topic's partitions out among the group's members, in the order that Beat gives them. It is a pure function, so
// that nodes that see the same come to the same result without talking to each other; where they don't, the lease decides.
//
// Quotas differ by one at most, and the larger ones go to those that hold the most already, so no other even assignment moves
// fewer partitions. Whatever a member holds within its quota it keeps. A partition that is held by no member (its session ended or
// crashed) counts, but is nobody's to take until its lease is over.
func share(leases []Lease, members []Member) map[string]portion {
	portions := make(map[string]portion, len(members))
	if len(members) == 0 {
		return portions
	}
	held := make(map[string]int, len(members))
	for _, l := range leases {
		held[l.Holder]++
	}
	byHeld := slices.Clone(members)
	slices.SortStableFunc(byHeld, func(a, b Member) int { return cmp.Compare(held[b.StreamID], held[a.StreamID]) })
	base, extra := len(leases)/len(members), len(leases)%len(members)
	for i, m := range byHeld {
		quota := base
		if i < extra {
			quota++
		}
		portions[m.StreamID] = portion{quota: quota}
	}
	for _, l := range leases {
		if l.Holder == "" {
			give(portions, held, members, l.Partition)
		}
	}
	return portions
}

// give has the member that lacks the most take the free partition; of equal ones the first.
func give(portions map[string]portion, held map[string]int, members []Member, partition int) {
	var neediest string
	most := 0
	for _, m := range members {
		p := portions[m.StreamID]
		if lack := p.quota - held[m.StreamID] - len(p.take); lack > most {
			neediest, most = m.StreamID, lack
		}
	}
	if most > 0 {
		p := portions[neediest]
		p.take = append(p.take, partition)
		portions[neediest] = p
	}
}
