package presence

import (
	"cmp"
	"slices"
	"time"
)

// span is a time with a first moment and, after its last one, an end.
type span struct{ from, to int64 }

// spans are times in ascending order that do not overlap or touch.
type spans []span

// spansOf returns the union of spans in any order.
func spansOf(list ...span) spans {
	list = slices.Clone(list)
	slices.SortFunc(list, func(a, b span) int { return cmp.Compare(a.from, b.from) })
	var all spans
	for _, s := range list {
		if s.to <= s.from {
			continue
		}
		if n := len(all); n > 0 && s.from <= all[n-1].to {
			all[n-1].to = max(all[n-1].to, s.to)
			continue
		}
		all = append(all, s)
	}
	return all
}

// union returns the times of any of the lists.
func union(lists ...spans) spans {
	var all []span
	for _, l := range lists {
		all = append(all, l...)
	}
	return spansOf(all...)
}

// intersect returns the times of both lists.
func intersect(a, b spans) spans {
	var all []span
	for _, x := range a {
		for _, y := range b {
			all = append(all, span{max(x.from, y.from), min(x.to, y.to)})
		}
	}
	return spansOf(all...)
}

// without returns the times of s that are not in other.
func (s spans) without(other spans) spans {
	var all []span
	for _, x := range s {
		for _, y := range other {
			if y.to <= x.from || y.from >= x.to {
				continue
			}
			all = append(all, span{x.from, y.from})
			x.from = y.to
		}
		all = append(all, x)
	}
	return spansOf(all...)
}

// extended returns the times, each with more time at the end.
func (s spans) extended(by time.Duration) spans {
	all := make([]span, len(s))
	for i, x := range s {
		all[i] = span{x.from, x.to + max(int64(by), 1)}
	}
	return spansOf(all...)
}

// after returns the index of the first span that ends after at.
func (s spans) after(at int64) int {
	i, _ := slices.BinarySearchFunc(s, at, func(x span, at int64) int {
		if x.to <= at {
			return -1
		}
		return 1
	})
	return i
}

// covers reports whether all times of a span, both ends included, are in s.
func (s spans) covers(from, to int64) bool {
	i := s.after(from)
	return i < len(s) && s[i].from <= from && s[i].to > to
}

// touches reports whether any time of a span, both ends included, is in s.
func (s spans) touches(from, to int64) bool {
	i := s.after(from)
	return i < len(s) && s[i].from <= to
}

// until returns the end of a time limit that begins at a time, if the limit begins again at the end
// of each span of s that meets it.
func (s spans) until(from int64, limit time.Duration) int64 {
	deadline := from + int64(limit)
	for i := s.after(from); i < len(s) && s[i].from <= deadline; i++ {
		deadline = max(deadline, s[i].to+int64(limit))
	}
	return deadline
}

// since returns the beginning of a time limit that ends at to, if the limit is longer by each span
// of s that meets it.
func (s spans) since(to int64, limit time.Duration) int64 {
	from := to - int64(limit)
	for _, part := range slices.Backward(s) {
		if part.from <= to && part.to >= from {
			from = min(from, part.from-int64(limit))
		}
	}
	return from
}
