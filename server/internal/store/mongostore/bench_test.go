package mongostore_test

import (
	"fmt"
	"testing"

	"github.com/parleyhq/parley/server/internal/message"
)

// BenchmarkInsert stores messages of 100 bytes in one bucket, spread over ten channels, one Insert at a time.
func BenchmarkInsert(b *testing.B) {
	for _, size := range []int{1, 100, 500} {
		b.Run(fmt.Sprintf("batch=%d", size), func(b *testing.B) {
			s, _ := openFresh(b)
			names := channelsOf(0, 10)
			heads := make([]int, len(names))
			content := fmt.Sprintf("%0100d", 0)
			stored := 0
			for b.Loop() {
				batch := make([]message.Entry, size)
				for i := range batch {
					c := (stored + i) % len(names)
					heads[c]++
					batch[i] = sends(names[c], heads[c], 1)[0]
					batch[i].Content, batch[i].Digest = content, make([]byte, 32)
				}
				if n, err := s.Insert(b.Context(), 0, batch); err != nil {
					b.Fatalf("insert: %d, %v", n, err)
				}
				stored += size
			}
			b.ReportMetric(float64(stored)/b.Elapsed().Seconds(), "messages/s")
		})
	}
}
