package produce

import (
	"math/rand/v2"
	"strconv"
	"sync"
	"sync/atomic"

	"github.com/cespare/xxhash/v2"

	"github.com/parleyhq/parley/server/internal/queue/qlog"
)

// partitionOf returns the partition of n that a text selects. The result must never change: where a
// message is, and what an idempotency key finds again, depends on it.
func partitionOf(p qlog.Partitioner, text string, n int) int {
	hash := xxhash.Sum64String(text)
	if p == qlog.Hash {
		return int(hash % uint64(n)) //nolint:gosec // n is small and positive
	}
	return jump(hash, n)
}

// jump is Lamping and Veach's jump consistent hash: from n to n+1 partitions, one key in n+1 moves,
// and to the new one.
func jump(hash uint64, n int) int {
	at, next := int64(-1), int64(0)
	for next < int64(n) {
		at = next
		hash = hash*2862933555777941757 + 1
		next = int64(float64(at+1) * (float64(1<<31) / float64(hash>>33+1)))
	}
	return int(at)
}

// selects returns the text that selects the message's partition; empty if the partitions take
// turns.
func (m *Message) selects(p qlog.Partitioner) string {
	switch {
	case m.Key != "" && p != qlog.RoundRobin:
		return m.Key
	case m.IdempotencyKey != "":
		return m.IdempotencyKey
	case m.Unique != nil:
		return m.Unique.Key
	}
	return ""
}

// put is what one call of the store puts: items of one partition, by their index in the request.
type put struct {
	items []int
	// producer is empty unless the request has one.
	producer string
}

// part is what a partition gets of a request: its puts in order.
type part struct {
	partition int
	puts      []put
}

// assign returns the parts of the items. first is the partition of the first run of messages
// without any key.
func (b *batch) assign(t *qlog.Topic, n int, items []int) []part {
	turn, run := -1, 0
	var parts []part
	at := make(map[int]int, min(len(items), n)) // the index of a partition's part
	bytes := make([]int, 0, min(len(items), n)) // of the last put of a part
	for _, i := range items {
		var p int
		if text := b.request.Messages[i].selects(t.Partitioner); text != "" {
			p = partitionOf(t.Partitioner, text, n)
		} else {
			if turn < 0 {
				turn = b.firstTurn(t)
			}
			if run > 0 && run+b.sizes[i] > qlog.MaxCallBytes {
				turn, run = turn+1, 0
			}
			run += b.sizes[i]
			p = turn % n
		}
		k, known := at[p]
		if !known {
			k = len(parts)
			at[p] = k
			parts, bytes = append(parts, part{partition: p, puts: []put{{producer: b.producer}}}), append(bytes, 0)
		}
		puts := &parts[k].puts
		if bytes[k] > 0 && bytes[k]+b.sizes[i] > qlog.MaxCallBytes {
			next := put{}
			if b.producer != "" {
				next.producer = b.producer + "." + strconv.Itoa(len(*puts))
			}
			*puts, bytes[k] = append(*puts, next), 0
		}
		last := &(*puts)[len(*puts)-1]
		last.items = append(last.items, i)
		bytes[k] += b.sizes[i]
	}
	return parts
}

// firstTurn returns the turn of the request's first run of messages without any key.
func (b *batch) firstTurn(t *qlog.Topic) int {
	if b.producer == "" {
		return b.s.turns.next(t)
	}
	// Modulo 2^30, so that the runs that follow do not overflow.
	return int((xxhash.Sum64String(b.producer) + uint64(b.request.Sequence)) % (1 << 30)) //nolint:gosec // positive, see check
}

// maxTurns bounds the topics whose turns are kept.
const maxTurns = 4096

// turns counts the requests of each topic whose messages take turns. Safe for concurrent use.
type turns struct {
	mu    sync.RWMutex
	topic map[string]*atomic.Uint32 // by UID
}

// next returns the topic's next turn.
func (t *turns) next(topic *qlog.Topic) int {
	t.mu.RLock()
	turn := t.topic[topic.UID]
	t.mu.RUnlock()
	if turn == nil {
		turn = t.add(topic.UID)
	}
	return int(turn.Add(1) % (1 << 30))
}

func (t *turns) add(uid string) *atomic.Uint32 {
	t.mu.Lock()
	defer t.mu.Unlock()
	if turn := t.topic[uid]; turn != nil {
		return turn
	}
	if t.topic == nil || len(t.topic) >= maxTurns { // beginning anew does no harm
		t.topic = make(map[string]*atomic.Uint32)
	}
	turn := new(atomic.Uint32)
	// Nodes begin anywhere, so that the first partition does not get more when they start together.
	turn.Store(rand.Uint32())
	t.topic[uid] = turn
	return turn
}
