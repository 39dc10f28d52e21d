package dispatch

import (
	"math/bits"
	"slices"
	"sort"

	"github.com/parleyhq/parley/server/internal/queue/qlog"
)

// openSet is the set of entries that are read and not settled by a commit. It has a bit for each, by
// ordinal, and their positions in order. Entries after the mark Sent are in it too.
type openSet struct {
	chunks map[int64]*chunk
	n      int
	// order has the positions in order of those that were read; some are settled, until compact.
	order []qlog.Pos
}

type chunk struct {
	bits [qlog.ChunkOrdinals / 64]uint64
	n    int
}

func (o *openSet) has(ord int64) bool {
	c := o.chunks[ord/qlog.ChunkOrdinals]
	return c != nil && c.bits[ord%qlog.ChunkOrdinals/64]&(1<<(ord%64)) != 0
}

// add adds an ordinal to the bits.
func (o *openSet) add(ord int64) {
	c := o.chunks[ord/qlog.ChunkOrdinals]
	if c == nil {
		c = &chunk{}
		o.chunks[ord/qlog.ChunkOrdinals] = c
	}
	c.bits[ord%qlog.ChunkOrdinals/64] |= 1 << (ord % 64)
	c.n++
	o.n++
}

// remove removes an ordinal and reports whether it was in the set.
func (o *openSet) remove(ord int64) bool {
	if !o.has(ord) {
		return false
	}
	c := o.chunks[ord/qlog.ChunkOrdinals]
	c.bits[ord%qlog.ChunkOrdinals/64] &^= 1 << (ord % 64)
	o.n--
	if c.n--; c.n == 0 {
		delete(o.chunks, ord/qlog.ChunkOrdinals)
	}
	return true
}

// between returns the ordinals after one up to another that are in the set.
func (o *openSet) between(after, to int64) (found []int64) {
	for number := (after + 1) / qlog.ChunkOrdinals; number <= to/qlog.ChunkOrdinals; number++ {
		c := o.chunks[number]
		if c == nil {
			continue
		}
		for i, word := range c.bits {
			for ; word != 0; word &= word - 1 {
				ord := number*qlog.ChunkOrdinals + int64(i*64+bits.TrailingZeros64(word))
				if ord > after && ord <= to {
					found = append(found, ord)
				}
			}
		}
	}
	return found
}

// text returns a chunk as the log keeps it, with the ordinals up to one.
func (o *openSet) text(number, to int64) string {
	first := number * qlog.ChunkOrdinals
	return qlog.FormatRanges(o.between(first-1, min(to, first+qlog.ChunkOrdinals-1)))
}

// find returns the position of an open entry.
func (o *openSet) find(id qlog.ID) (qlog.Pos, bool) {
	i := sort.Search(len(o.order), func(i int) bool { return o.order[i].ID >= id })
	if i < len(o.order) && o.order[i].ID == id && o.has(o.order[i].Ord) {
		return o.order[i], true
	}
	return qlog.Pos{}, false
}

// lowest returns the first open entry of those that were read.
func (o *openSet) lowest() (qlog.Pos, bool) {
	for len(o.order) > 0 && !o.has(o.order[0].Ord) {
		o.order = o.order[1:]
	}
	if len(o.order) > 2*o.n+1024 {
		o.order = slices.DeleteFunc(o.order, func(p qlog.Pos) bool { return !o.has(p.Ord) })
	}
	if len(o.order) == 0 {
		return qlog.Pos{}, false
	}
	return o.order[0], true
}
