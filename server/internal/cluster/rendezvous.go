package cluster

import (
	"strconv"

	"github.com/cespare/xxhash/v2"
)

// rendezvous returns the node with the highest hash for a bucket. When a node joins or leaves, only
// the buckets that it gains or had move. nodes must not be empty. All nodes must choose alike, so
// the hash must not change between versions that may run side by side.
func rendezvous(nodes []string, bucket int) string {
	var best string
	var highest uint64
	var buf [64]byte
	for _, node := range nodes {
		key := strconv.AppendInt(append(append(buf[:0], node...), '/'), int64(bucket), 10)
		if h := xxhash.Sum64(key); best == "" || h > highest || h == highest && node < best {
			best, highest = node, h
		}
	}
	return best
}
