package queue

import (
	"math/rand/v2"
	"sync"
	"sync/atomic"

	"github.com/cespare/xxhash/v2"
)

// partitionOf gives the partition of n that a text decides by the partitioner. It must never change: where a message lies,
// and what an idempotency key finds again, depends on it.
func (p Partitioner) partitionOf(text string, n int) int {
	hash := xxhash.Sum64String(text)
	if p == ConsistentHash {
		return jump(hash, n)
	}
	return int(hash % uint64(n)) //nolint:gosec // n is small and positive
}

// jump is Lamping and Veach's jump consistent hash: from n to n+1 partitions, one key in n+1 moves, and to the new one.
func jump(hash uint64, n int) int {
	at, next := int64(-1), int64(0)
	for next < int64(n) {
		at = next
		hash = hash*2862933555777941757 + 1
		next = int64(float64(at+1) * (float64(1<<31) / float64(hash>>33+1)))
	}
	return int(at)
}

// decides gives the text that decides the message's partition; empty if the partitions take turns.
func (t *Topic) decides(d *Draft) string {
	if d.Key != "" && t.Partitioner != RoundRobin {
		return d.Key
	}
	return d.IdempotencyKey
}

// maxTurns bounds the topics whose turns are kept.
const maxTurns = 4096

// turns gives the partitions of each topic in turn. Safe for concurrent use.
type turns struct {
	mu    sync.RWMutex
	topic map[string]*atomic.Uint64 // by UID
}

// next gives the partition whose turn it is.
func (t *turns) next(topic *Topic) int {
	t.mu.RLock()
	turn := t.topic[topic.UID]
	t.mu.RUnlock()
	if turn == nil {
		turn = t.make(topic.UID)
	}
	return int(turn.Add(1) % uint64(topic.Partitions)) //nolint:gosec // partitions are few
}

func (t *turns) make(uid string) *atomic.Uint64 {
	t.mu.Lock()
	defer t.mu.Unlock()
	if turn := t.topic[uid]; turn != nil {
		return turn
	}
	if t.topic == nil || len(t.topic) >= maxTurns { // to begin anew does no harm
		t.topic = make(map[string]*atomic.Uint64)
	}
	turn := new(atomic.Uint64)
	// Nodes begin anywhere, lest the first partition get more when they start together.
	turn.Store(uint64(rand.Uint32()))
	t.topic[uid] = turn
	return turn
}

// assign gives the partition of each draft. What has neither a key that counts nor an idempotency key goes to the partition
// whose turn it is, all of one call to the same: a call is one step of the store per partition, and each costs.
func (t *turns) assign(topic *Topic, drafts []Draft, which []int) map[int][]int {
	byPartition := make(map[int][]int, min(len(which), topic.Partitions))
	turn := -1
	for _, i := range which {
		var p int
		if text := topic.decides(&drafts[i]); text != "" {
			p = topic.Partitioner.partitionOf(text, topic.Partitions)
		} else {
			if turn < 0 {
				turn = t.next(topic)
			}
			p = turn
		}
		byPartition[p] = append(byPartition[p], i)
	}
	return byPartition
}
