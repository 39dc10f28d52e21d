package redisrevoked_test

import (
	"fmt"
	"testing"

	"github.com/parleyhq/parley/server/internal/ident"
	"github.com/parleyhq/parley/server/internal/store/redisrevoked"
	"github.com/parleyhq/parley/server/internal/testkit"
)

// BenchmarkFind looks for the revocations of 1,000 streams of whom none was revoked.
func BenchmarkFind(b *testing.B) {
	c := redisrevoked.New(testkit.Redis(b).Client(b), "", "store-1")
	keys := make([]string, 1000)
	for i := range keys {
		keys[i] = ident.SSIDKey(fmt.Sprint("login-", i))
	}
	for b.Loop() {
		if _, _, err := c.Find(b.Context(), keys...); err != nil {
			b.Fatal(err)
		}
	}
}
