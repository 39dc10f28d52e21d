package redislog

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/parleyhq/parley/server/internal/queue/qlog"
	"github.com/parleyhq/parley/server/internal/testkit"
)

// BenchmarkPut puts batches of 100 messages and reports what a message costs Redis' main thread.
func BenchmarkPut(b *testing.B) {
	for _, c := range []struct {
		name     string
		size, n  int
		sequence bool
		keyed    bool
		delay    time.Duration
	}{
		{name: "1KiB", size: 1024, n: 100},
		{name: "1KiB sequence", size: 1024, n: 100, sequence: true},
		{name: "1KiB bound", size: 1024, n: 100, sequence: true},
		{name: "128B sequence", size: 128, n: 100, sequence: true},
		{name: "1KiB keyed", size: 1024, n: 100, keyed: true},
		{name: "1KiB scheduled", size: 1024, n: 100, sequence: true, delay: time.Hour},
		{name: "1KiB single", size: 1024, n: 1},
		{name: "1KiB single sequence", size: 1024, n: 1, sequence: true},
	} {
		b.Run(c.name, func(b *testing.B) {
			server := testkit.Redis(b)
			client := server.Client(b)
			r := inputRigOn(b, client, func(topic *qlog.Topic) {
				if strings.HasSuffix(c.name, "bound") {
					topic.MaxMessages = 1_000_000_000
				}
			})
			batch := make([]qlog.Draft, c.n)
			for i := range batch {
				batch[i] = draft(strings.Repeat("x", c.size))
				batch[i].Digest, batch[i].Delay = "d", c.delay
			}
			put := qlog.Put{Drafts: batch}
			if c.sequence {
				put.ProducerID = "0123456789abcdef"
			}
			before := cpu(b, r)
			b.ResetTimer()
			for i := range b.N {
				put.Sequence = int64(i + 1)
				for j := range batch {
					if c.keyed {
						batch[j].IdempotencyKey = fmt.Sprintf("%036d", i*c.n+j)
					}
				}
				if _, err := r.s.Put(b.Context(), r.ref, r.bounds, put); err != nil {
					b.Fatal(err)
				}
				if i%1000 == 999 { // keeps the memory small; not measured, for it is another command
					b.StopTimer()
					pause := cpu(b, r)
					r.check(client.Unlink(b.Context(), r.s.keys.main(r.ref), r.s.keys.delayed(r.ref), r.s.keys.delayedData(r.ref)).Err())
					before += cpu(b, r) - pause
					b.StartTimer()
				}
			}
			b.StopTimer()
			b.ReportMetric((cpu(b, r)-before)*1e6/float64(b.N*c.n), "redis-µs/msg")
			b.ReportMetric(evalUsec(b, r)/float64(b.N*c.n), "eval-µs/msg")
		})
	}
}

// cpu returns the CPU time of Redis' main thread in seconds.
func cpu(b *testing.B, r *inputRig) float64 {
	b.Helper()
	var total float64
	for line := range strings.Lines(r.c.Info(b.Context(), "cpu").Val()) {
		name, value, _ := strings.Cut(strings.TrimSpace(line), ":")
		if name == "used_cpu_sys_main_thread" || name == "used_cpu_user_main_thread" {
			var v float64
			_, err := fmt.Sscan(value, &v)
			r.check(err)
			total += v
		}
	}
	return total
}

// evalUsec returns the time that Redis spent in scripts, in microseconds.
func evalUsec(b *testing.B, r *inputRig) float64 {
	b.Helper()
	for line := range strings.Lines(r.c.Info(b.Context(), "commandstats").Val()) {
		if rest, ok := strings.CutPrefix(line, "cmdstat_evalsha:"); ok {
			_, usec, _ := strings.Cut(rest, "usec=")
			usec, _, _ = strings.Cut(usec, ",")
			var v float64
			_, err := fmt.Sscan(usec, &v)
			r.check(err)
			return v
		}
	}
	return 0
}
