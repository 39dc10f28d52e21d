package fanout

import (
	"container/heap"
	"context"
	"sync"
	"time"
)

// schedule wakes topics with one goroutine and one timer for all of them. A topic that was woken is
// off the schedule until it is set again.
type schedule struct {
	// wake holds a token when the earliest due time has changed.
	wake chan struct{}

	mu   sync.Mutex
	heap topicHeap
}

// set schedules t to be woken at the given time. If t is scheduled already, the earlier time
// counts.
func (s *schedule) set(t *topic, at time.Time) {
	s.mu.Lock()
	switch {
	case t.slot == 0:
		t.dueAt = at
		heap.Push(&s.heap, t)
	case at.Before(t.dueAt):
		t.dueAt = at
		heap.Fix(&s.heap, t.slot-1)
	}
	first := t.slot == 1
	s.mu.Unlock()
	if first {
		select {
		case s.wake <- struct{}{}:
		default:
		}
	}
}

// run calls fire with the topics that are due, until ctx ends. fire must not block.
func (s *schedule) run(ctx context.Context, fire func([]*topic)) {
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	for {
		timer.Reset(s.fire(fire))
		select {
		case <-timer.C:
		case <-s.wake:
		case <-ctx.Done():
			return
		}
	}
}

// fire calls the callback with the topics that are due, at most checkBatch at a time. It returns
// the time until the next topic is due, or an hour if there is none.
func (s *schedule) fire(fire func([]*topic)) time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	var due []*topic
	wait := time.Hour
	for len(s.heap) > 0 {
		if wait = time.Until(s.heap[0].dueAt); wait > 0 {
			break
		}
		wait = time.Hour
		due = append(due, heap.Pop(&s.heap).(*topic)) //nolint:forcetypeassert // it holds nothing else
		if len(due) == checkBatch {
			fire(due)
			due = nil
		}
	}
	if len(due) > 0 {
		fire(due)
	}
	return wait
}

// topicHeap is ordered by dueAt. A topic's slot is its index plus one.
type topicHeap []*topic

func (h topicHeap) Len() int           { return len(h) }
func (h topicHeap) Less(i, j int) bool { return h[i].dueAt.Before(h[j].dueAt) }

func (h topicHeap) Swap(i, j int) {
	h[i], h[j] = h[j], h[i]
	h[i].slot, h[j].slot = i+1, j+1
}

func (h *topicHeap) Push(x any) {
	t := x.(*topic) //nolint:forcetypeassert // it holds nothing else
	*h = append(*h, t)
	t.slot = len(*h)
}

func (h *topicHeap) Pop() any {
	last := len(*h) - 1
	t := (*h)[last]
	(*h)[last] = nil
	*h = (*h)[:last]
	t.slot = 0
	return t
}
