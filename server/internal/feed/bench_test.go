package feed_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/parleyhq/parley/server/internal/lifecycle/lifecycletest"
	"github.com/parleyhq/parley/server/internal/message"
	"github.com/parleyhq/parley/server/internal/testkit"
)

// fill appends n messages to each of that many channels, in batches.
func (r *rig) fill(channels, n int) {
	r.t.Helper()
	for c := range channels {
		id := fmt.Sprintf("channel-%d", c)
		end := r.end(id)
		for made := 0; made < n; {
			var batch []message.Entry
			for ; made < n && len(batch) < 500; made++ {
				end.seq++
				end.count++
				batch = append(batch, message.Entry{Digest: []byte{1}, Message: message.Message{
					MsgID: fmt.Sprintf("%s-m%d", id, end.seq), ChannelID: id, Seq: end.seq, Count: end.count, FromID: "auth0|42",
					MsgType: "text", Content: "a line of an ordinary length, as people write them in a chat",
					ClientMsgID: fmt.Sprintf("c%d", end.seq), MsgTime: time.Now().UTC().Truncate(time.Millisecond), ChangedSeq: end.seq,
				}})
			}
			if _, err := r.store.Insert(r.t.Context(), message.Shard(id, shards), batch); err != nil {
				r.t.Fatal(err)
			}
		}
	}
}

func (r *rig) waitStreamed(want uint64) {
	r.t.Helper()
	js := r.jetStream()
	testkit.Eventually(r.t, 5*time.Minute, func() error {
		stream, err := js.Stream(r.t.Context(), "message_change_events")
		if err != nil {
			return err
		}
		if n := stream.CachedInfo().State.Msgs; n < want {
			return fmt.Errorf("%d of %d", n, want)
		}
		return nil
	})
}

// BenchmarkFeeder publishes from the embedded store to JetStream. The entries are older than a
// second, so the Feeder reads each again before it publishes it.
func BenchmarkFeeder(b *testing.B) {
	for _, channels := range []int{1, 1000} {
		b.Run(fmt.Sprintf("channels=%d", channels), func(b *testing.B) {
			for b.Loop() {
				b.StopTimer()
				r := newRig(b)
				r.fill(channels, 40_000/channels)
				b.StartTimer()
				lifecycletest.Start(b, r.feeder)
				r.waitStreamed(40_000)
				b.StopTimer()
				lifecycletest.Stop(b, r.feeder)
				b.StartTimer()
			}
			b.ReportMetric(40_000*float64(b.N)/b.Elapsed().Seconds(), "events/s")
		})
	}
}

// BenchmarkBuilder measures how fast a Builder moves events from JetStream into redis-server.
func BenchmarkBuilder(b *testing.B) {
	for _, channels := range []int{1, 1000} {
		b.Run(fmt.Sprintf("channels=%d", channels), func(b *testing.B) {
			for b.Loop() {
				b.StopTimer()
				r := newRig(b)
				r.fill(channels, 40_000/channels)
				lifecycletest.Start(b, r.feeder)
				r.waitStreamed(40_000)
				lifecycletest.Stop(b, r.feeder)
				b.StartTimer()
				lifecycletest.Start(b, r.builder)
				for c := range channels {
					r.waitMirror(fmt.Sprintf("channel-%d", c))
				}
				r.waitConsumed()
				b.StopTimer()
				lifecycletest.Stop(b, r.builder)
				b.StartTimer()
			}
			b.ReportMetric(40_000*float64(b.N)/b.Elapsed().Seconds(), "events/s")
		})
	}
}

// waitConsumed waits until the Builder's consumers have confirmed every event.
func (r *rig) waitConsumed() {
	r.t.Helper()
	js := r.jetStream()
	testkit.Eventually(r.t, 5*time.Minute, func() error {
		for shard := range shards {
			c, err := js.Consumer(r.t.Context(), "message_change_events", fmt.Sprintf("redis_cache_group_%d", shard))
			if err != nil {
				return err
			}
			if info := c.CachedInfo(); info.NumPending+uint64(info.NumAckPending) > 0 {
				return fmt.Errorf("shard %d: %d to come", shard, info.NumPending)
			}
		}
		return nil
	})
}
