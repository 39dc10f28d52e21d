package presence

import (
	"fmt"
	"testing"
	"testing/synctest"
)

// TestStrangersDoNotFillCache checks that users who are asked for once, who may not exist, do not
// push those out of the cache who are asked for again and again.
func TestStrangersDoNotFillCache(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const size, batch = 1000, 100
		n := settledNet(t, 1, func(c *Config) { c.CacheUsers = size })
		x := n.nodes[0]
		// misses asks for users, and returns how many were not in the cache.
		misses := func(format string, users int) int64 {
			before := x.v.stats.misses.Load()
			for first := 0; first < users; first += batch {
				ids := make([]string, batch)
				for i := range ids {
					ids[i] = fmt.Sprintf(format, first+i)
				}
				if _, err := x.v.get(t.Context(), ids); err != nil {
					t.Fatal(err)
				}
			}
			return x.v.stats.misses.Load() - before
		}
		for range 3 {
			misses("friend%d", size/2)
		}
		for round := range 10 {
			misses(fmt.Sprint("stranger", round, "-%d"), 5*size)
			if n := misses("friend%d", size/2); n > size/20 {
				t.Errorf("%d friends were pushed out in round %d", n, round)
			}
		}
	})
}
