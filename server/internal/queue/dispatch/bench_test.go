package dispatch

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/parleyhq/parley/server/internal/queue/qlog"
)

// BenchmarkDispatch measures the whole way of a keyed message through the dispatcher: read, sent,
// begun and acked, in batches of 256.
func BenchmarkDispatch(b *testing.B) {
	for _, keys := range []int{0, 16, 10_000} {
		b.Run(fmt.Sprintf("keys=%d", keys), func(b *testing.B) {
			d, err := New(Config{
				Group: "g", MaxAttempts: 16, AckTimeout: time.Minute, MaxRunTime: time.Hour, Random: rand.Int64N,
			}, qlog.State{Epoch: 1}, nil, nil, at(0))
			if err != nil {
				b.Fatal(err)
			}
			d.Attach(Session{ID: "s", Concurrency: 512, MaxInFlight: 512, MaxBytes: 1 << 30, ReportsBegun: true})
			var (
				now   = at(0)
				last  qlog.Pos
				page  = make([]qlog.Entry, 256)
				body  = make([]byte, 1024)
				names = make([]string, max(keys, 1))
				n     int
			)
			for i := range names {
				if keys > 0 {
					names[i] = fmt.Sprint("key-", i)
				}
			}
			var out Output
			b.ReportAllocs()
			for b.Loop() {
				now = now.Add(time.Millisecond)
				for i := range page {
					last = qlog.Pos{ID: last.ID + 1, Ord: last.Ord + 1}
					page[i] = qlog.Entry{Pos: last, MessageID: "0-1", Key: names[int(last.Ord)%len(names)], Body: body, ProducedAt: now}
				}
				d.Seen(last)
				if out = d.Step(now); out.Commit != nil { // the acks of the page before
					d.Committed(now, qlog.Committed{Last: last})
				}
				if err := d.Entries(now, page); err != nil {
					b.Fatal(err)
				}
				for done, steps := 0, 0; done < len(page); steps++ {
					if steps == 100 {
						b.Fatalf("%d of %d messages were sent in %d steps", done, len(page), steps)
					}
					out = d.Step(now)
					for _, v := range out.Deliveries {
						m := Mark{v.Entry.ID, v.Gen}
						d.Begun(now, "s", m)
						d.Settle(now, Settlement{ID: m.ID, Gen: m.Gen, Session: "s", Verdict: Ack, Token: m.ID})
						done++
					}
					if out.Commit != nil {
						d.Committed(now, qlog.Committed{Last: last})
					}
				}
				n += len(page)
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(n), "ns/message")
		})
	}
}
