package cluster

import (
	"strconv"

	"github.com/cespare/xxhash/v2"
)

// rendezvous gives the node with the highest hash for a bucket: when a node comes or goes, only the buckets that it gets
// or had change hands. nodes is not empty. All nodes must choose alike, so it must not change between versions that are
// to run side by side.
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
