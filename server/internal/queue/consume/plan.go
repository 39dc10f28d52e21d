package consume

import (
	"cmp"
	"slices"
)

// member is a node with sessions of a group.
type member struct {
	node string
	// capacity is how many messages the node's sessions of the group handle at the same time. At
	// least 1.
	capacity int
}

// target is what one node is to do about the leases of one topic and group.
type target struct {
	// acquire are free partitions that the node should acquire.
	acquire []int
	// release is how many of its leases the node should release.
	release int
}

// plan computes what node should do about the leases of a topic's partitions. holders has the holder
// of each partition, empty where anybody may acquire it. Members are the nodes of the group.
//
// Every node computes plan from the same data, so that the results fit together without a
// coordinator; where the data differ, the lease decides. Quotas are in proportion to the
// capacities, and the remainder goes to nodes that hold more already, so that few leases move. A
// node keeps what it holds within its quota.
func plan(holders []string, members []member, node string) target {
	held := make(map[string]int, len(members))
	for _, h := range holders {
		held[h]++
	}
	quota := quotas(len(holders), members, held)
	if _, ok := quota[node]; !ok {
		return target{release: held[node]}
	}
	if over := held[node] - quota[node]; over > 0 {
		return target{release: over}
	}
	var t target
	lack := make(map[string]int, len(members))
	for _, m := range members {
		lack[m.node] = quota[m.node] - held[m.node]
	}
	order := slices.Clone(members)
	for p, h := range holders {
		if h != "" {
			continue
		}
		// The neediest node takes it; of equal ones the one whose name is lower.
		slices.SortFunc(order, func(a, b member) int {
			return cmp.Or(cmp.Compare(lack[b.node], lack[a.node]), cmp.Compare(a.node, b.node))
		})
		if taker := order[0].node; lack[taker] > 0 {
			lack[taker]--
			if taker == node {
				t.acquire = append(t.acquire, p)
			}
		}
	}
	return t
}

// quotas divides n partitions among the members in proportion to their capacities, by the method of
// the largest remainder.
func quotas(n int, members []member, held map[string]int) map[string]int {
	total := 0
	for _, m := range members {
		total += m.capacity
	}
	quota := make(map[string]int, len(members))
	if total == 0 {
		return quota
	}
	left := n
	for _, m := range members {
		quota[m.node] = n * m.capacity / total
		left -= quota[m.node]
	}
	// Of equal remainders, that of a node that would have to release a lease is rounded up. That stays
	// so while leases move.
	surplus := func(m member) int { return min(1, max(0, held[m.node]-n*m.capacity/total)) }
	order := slices.Clone(members)
	slices.SortFunc(order, func(a, b member) int {
		return cmp.Or(
			cmp.Compare(n*b.capacity%total, n*a.capacity%total),
			cmp.Compare(surplus(b), surplus(a)),
			cmp.Compare(a.node, b.node),
		)
	})
	for _, m := range order[:left] {
		quota[m.node]++
	}
	return quota
}
