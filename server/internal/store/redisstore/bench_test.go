package redisstore

import (
	"strings"
	"testing"

	"github.com/parleyhq/parley/server/internal/message"
)

// BenchmarkPage measures a page of a channel's newest fifty messages, with values that were decoded
// before and with new ones.
func BenchmarkPage(b *testing.B) {
	for name, l := range layouts {
		b.Run(name, func(b *testing.B) { benchmarkPage(b, setup(b, l, CacheConfig{})) })
	}
}

func benchmarkPage(b *testing.B, bundle *bundle) {
	b.Helper()
	all := messages(1, 150)
	for i := range all {
		all[i].Content = strings.Repeat("x", 128)
	}
	bundle.replace(b, all...)
	for name, forget := range map[string]bool{"known": false, "new": true} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if forget {
					bundle.cache.decoded.InvalidateAll()
				}
				page, err := bundle.cache.Page(b.Context(), room, message.Range{Desc: true, Limit: 50, MessagesOnly: true})
				if err != nil || len(page.Events) != 50 {
					b.Fatal(len(page.Events), err)
				}
			}
		})
	}
}
