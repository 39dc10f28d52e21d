package presence

import (
	"fmt"
	"log/slog"
	"testing"
	"time"

	"github.com/parleyhq/parley/server/internal/stream"
)

// nobody is an own without connections.
type nobody struct{}

func (nobody) entryApplied(int, *Entry) {}
func (nobody) epochBegan(int, Head)     {}
func (nobody) epochMissing(int, Head)   {}
func (nobody) entriesLost(int)          {}

// BenchmarkAnnounced applies announcements of one change each. 1% of 100,000 users have 20 watchers
// each, whose streams are read now and then.
func BenchmarkAnnounced(b *testing.B) {
	const users, watchers = 100_000, 20
	cfg := Config{Store: newModelStore(), Logger: slog.New(slog.DiscardHandler)}
	cfg.setDefaults()
	clk := newClock()
	v := newView(&cfg, clk, nobody{})
	now := time.Now()
	for i := range v.shards {
		s := &v.shards[i]
		v.sawHead(s, Head{Epoch: "e", SettledAt: now}, now, position{sent: now})
	}
	ids := make([]string, users)
	var streams []*Stream
	for i := range ids {
		ids[i] = fmt.Sprint("user", i)
	}
	for range watchers {
		s := newStream(stream.Identity{ID: "id"}, time.Hour, false)
		for _, userID := range ids[:users/100] {
			s.users[userID] = 0
			v.pin(&v.shards[ShardOf(userID)], userID).streams[s] = struct{}{}
		}
		streams = append(streams, s)
	}
	var seqs [Shards]int64
	entries := make([]Entry, 1)
	i := 0
	for b.Loop() {
		userID := ids[i%users]
		shard := ShardOf(userID)
		seqs[shard]++
		entries[0] = Entry{Seq: seqs[shard], At: now, UserID: userID, State: State(2 << (i / users % 8))}
		v.announced(Announcement{Shard: shard, Epoch: "e", Entries: entries})
		if i++; i%users == 0 {
			for _, s := range streams {
				for ok := true; ok; {
					_, ok, _ = s.Poll(now)
				}
			}
		}
	}
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "changes/s")
}
