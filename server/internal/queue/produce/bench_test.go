package produce_test

import (
	"bytes"
	"fmt"
	"testing"

	"github.com/parleyhq/parley/server/internal/queue/produce"
)

// BenchmarkProduce stores requests of 100 messages of 1 KiB in a topic of 8 partitions, one after
// the other.
func BenchmarkProduce(b *testing.B) {
	for _, keys := range []int{0, 50} {
		for _, numbered := range []bool{false, true} {
			b.Run(fmt.Sprintf("keys=%d/numbered=%t", keys, numbered), func(b *testing.B) {
				bench := newBench(b, 8, nil)
				request := produce.Request{Topic: "orders", Messages: messages(100, keys)}
				for i := range request.Messages {
					request.Messages[i].Payload = bytes.Repeat([]byte{byte(i)}, 1024)
				}
				if numbered {
					request.ProducerID = producerID
				}
				b.ReportAllocs()
				for b.Loop() {
					if numbered {
						request.Sequence++
					}
					bench.produce(request)
				}
				b.ReportMetric(float64(100*b.N)/b.Elapsed().Seconds(), "messages/s")
			})
		}
	}
}
