package message

import "sync/atomic"

// draftOverhead is what a pending draft costs beyond its texts, in bytes, roughly: its ids, its
// structs and its entry.
const draftOverhead = 512

// cost returns the bytes that a pending draft counts for.
func (d *Draft) cost() int64 {
	n := int64(draftOverhead + len(d.Content))
	for k, v := range d.Metadata {
		n += int64(len(k) + len(v))
	}
	return n
}

// byteBudget bounds the bytes of the pending drafts of all lanes. It is safe for concurrent use.
type byteBudget struct {
	max  int64
	used atomic.Int64
}

// reserve takes n bytes, or none and returns false if they exceed the budget.
func (b *byteBudget) reserve(n int64) bool {
	if b.used.Add(n) > b.max {
		b.used.Add(-n)
		return false
	}
	return true
}

func (b *byteBudget) release(n int64) { b.used.Add(-n) }
