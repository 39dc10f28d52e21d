package keeper

import (
	"strconv"
	"sync"
	"time"

	"github.com/cespare/xxhash/v2"
)

// viewAge is how old a view of the living nodes may be.
const viewAge = 250 * time.Millisecond

// owner knows which partitions are this node's. Safe for concurrent use.
type owner struct {
	fleet Fleet
	node  string

	mu    sync.Mutex // guards the fields below
	at    time.Time
	nodes []string
}

// owns reports whether this node is the keeper of a partition. A node that does not live is that of
// none.
func (o *owner) owns(p place) bool {
	return o.fleet == nil || rendezvous(o.living(), p) == o.node
}

// living returns the living nodes as they were a moment ago.
func (o *owner) living() []string {
	o.mu.Lock()
	defer o.mu.Unlock()
	if now := time.Now(); now.Sub(o.at) > viewAge {
		o.at, o.nodes = now, o.fleet.Living()
	}
	return o.nodes
}

// rendezvous returns the node with the highest hash for a partition: when a node joins or leaves,
// only the partitions that it gains or had move. It is empty without nodes. All nodes must choose
// alike, so the hash must not change between versions that may run side by side.
func rendezvous(nodes []string, p place) string {
	if len(nodes) == 1 {
		return nodes[0]
	}
	var best string
	var highest uint64
	var buf [192]byte
	for _, node := range nodes {
		key := append(append(append(append(buf[:0], node...), '/'), p.topic...), ':')
		key = strconv.AppendInt(key, int64(p.partition), 10)
		if h := xxhash.Sum64(key); best == "" || h > highest || h == highest && node < best {
			best, highest = node, h
		}
	}
	return best
}
