package produce

import (
	"sync"
)

// maxRoutes bounds the producers of one generation of routes.
const maxRoutes = 8192

// routes remembers by how many partitions the requests of producers were routed, so that a repeat
// after the topic grew is routed as the first attempt was. It keeps the latest producers, between
// maxRoutes and twice as many. Safe for concurrent use.
type routes struct {
	mu sync.Mutex
	// young and old are generations: a producer that sends a request is in young.
	young, old map[string]route
}

// route is what is known of a producer in a topic.
type route struct {
	// partitions is the number that sequences from since on are routed by, and before that of the
	// sequences below it.
	partitions, before int
	since, newest      int64
}

// by returns the number of partitions that a producer's request is routed by, in a topic that has
// so many at present. That is more than partitions if the caller's settings are older than those of
// an earlier caller.
func (r *routes) by(producer string, sequence int64, partitions int) int {
	r.mu.Lock()
	defer r.mu.Unlock()
	e, known := r.young[producer]
	if !known {
		if e, known = r.old[producer]; !known {
			e.partitions = partitions
		}
		if r.young == nil || len(r.young) >= maxRoutes {
			r.young, r.old = make(map[string]route, len(r.young)), r.young
		}
	}
	if partitions > e.partitions {
		// What was sent before may have been routed by the number before.
		e.before, e.since, e.partitions = e.partitions, e.newest+1, partitions
	}
	e.newest = max(e.newest, sequence)
	r.young[producer] = e
	if sequence < e.since {
		return e.before
	}
	return e.partitions
}
