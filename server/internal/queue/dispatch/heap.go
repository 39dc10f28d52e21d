package dispatch

// ranked is an element of a heap. Slot is where the heap notes the element's index plus one; it is 0
// while the element is in no heap, so an element is in at most one heap at a time.
type ranked interface {
	comparable
	rank() int64
	slot() *int
}

// heap is a binary heap with the lowest rank on top, from which any element can be removed.
type heap[T ranked] struct{ items []T }

// top returns the element of the lowest rank, or the zero value.
func (h *heap[T]) top() (x T) {
	if len(h.items) > 0 {
		x = h.items[0]
	}
	return x
}

// fix adds x, or moves it to where its rank belongs.
func (h *heap[T]) fix(x T) {
	if *x.slot() == 0 {
		h.items = append(h.items, x)
		*x.slot() = len(h.items)
	}
	if i := *x.slot() - 1; !h.up(i) {
		h.down(i)
	}
}

// remove removes x if it is in the heap.
func (h *heap[T]) remove(x T) {
	i := *x.slot() - 1
	if i < 0 {
		return
	}
	last := len(h.items) - 1
	moved := h.items[last]
	var none T
	h.items[last] = none
	h.items = h.items[:last]
	*x.slot() = 0
	if i < last {
		h.set(i, moved)
		h.fix(moved)
	}
}

func (h *heap[T]) set(i int, x T) {
	h.items[i] = x
	*x.slot() = i + 1
}

func (h *heap[T]) up(i int) bool {
	x, start := h.items[i], i
	for i > 0 {
		parent := (i - 1) / 2
		if h.items[parent].rank() <= x.rank() {
			break
		}
		h.set(i, h.items[parent])
		i = parent
	}
	h.set(i, x)
	return i != start
}

func (h *heap[T]) down(i int) {
	x := h.items[i]
	for {
		child := 2*i + 1
		if child >= len(h.items) {
			break
		}
		if right := child + 1; right < len(h.items) && h.items[right].rank() < h.items[child].rank() {
			child = right
		}
		if h.items[child].rank() >= x.rank() {
			break
		}
		h.set(i, h.items[child])
		i = child
	}
	h.set(i, x)
}
