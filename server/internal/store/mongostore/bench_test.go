package mongostore_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/parleyhq/parley/server/internal/channel"
	"github.com/parleyhq/parley/server/internal/lifecycle/lifecycletest"
	"github.com/parleyhq/parley/server/internal/message"
	"github.com/parleyhq/parley/server/internal/store/mongostore"
	"github.com/parleyhq/parley/server/internal/testkit"
)

// BenchmarkInsert stores messages of 100 bytes in one shard, spread over ten channels, one Insert
// at a time.
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

// BenchmarkApply applies edits of 100 bytes, each of another message, in one call.
func BenchmarkApply(b *testing.B) {
	for _, size := range []int{1, 100} {
		b.Run(fmt.Sprintf("changes=%d", size), func(b *testing.B) {
			s, _ := openFresh(b)
			name := channelsOf(0, 1)[0]
			log := sends(name, 1, size)
			insert := func(entries []message.Entry) {
				if n, err := s.Insert(b.Context(), 0, entries); err != nil {
					b.Fatalf("insert: %d, %v", n, err)
				}
			}
			insert(log)
			applied := 0
			for b.Loop() {
				b.StopTimer()
				edits := make([]message.Entry, size)
				changes := make([]*message.Entry, size)
				for i := range edits {
					e := sends(name, size+applied+i+1, 1)[0]
					e.Kind, e.Count, e.Pending = message.KindEdit, int64(size), true
					e.MsgID, e.TargetSeq, e.Content = log[i].MsgID, log[i].Seq, fmt.Sprintf("%0100d", applied)
					edits[i], changes[i] = e, &edits[i]
				}
				insert(edits)
				b.StartTimer()
				if err := s.Apply(b.Context(), changes...); err != nil {
					b.Fatal(err)
				}
				applied += size
			}
			b.ReportMetric(float64(applied)/b.Elapsed().Seconds(), "changes/s")
		})
	}
}

// BenchmarkAdvance advances channels' rows, each with one sender's cursor.
func BenchmarkAdvance(b *testing.B) {
	for _, size := range []int{1, 1000} {
		b.Run(fmt.Sprintf("channels=%d", size), func(b *testing.B) {
			s, _ := openFresh(b)
			c := s.Channels()
			moves := make([]channel.Advance, size)
			seq := int64(0)
			advance := func() {
				seq++
				for i := range moves {
					moves[i] = channel.Advance{
						ChannelID: fmt.Sprintf("c%d", i), Numbers: channel.Numbers{Head: seq, Count: seq, LastMessage: seq},
						Senders: map[string]channel.Cursor{"ann": {Seq: seq, Count: seq}},
					}
				}
				if err := c.Advance(b.Context(), moves, time.Now()); err != nil {
					b.Fatal(err)
				}
			}
			advance() // creates the rows
			for b.Loop() {
				advance()
			}
		})
	}
}

// BenchmarkMembersOf looks up one membership, as before a stream opens a channel.
func BenchmarkMembersOf(b *testing.B) {
	s, _ := openFresh(b)
	c := s.Channels()
	if _, err := c.Create(b.Context(), channel.Row{ChannelID: "club", CreatedAt: time.Now()}, []string{"ann"}); err != nil {
		b.Fatal(err)
	}
	for b.Loop() {
		if of, err := c.MembersOf(b.Context(), "ann", []string{"club"}); err != nil || len(of) != 1 {
			b.Fatal(of, err)
		}
	}
}

// BenchmarkThreeNodes stores messages of 1000 channels in 16 shards from three nodes. Each node
// uses either all shards or only those that rendezvous hashing assigns to it.
func BenchmarkThreeNodes(b *testing.B) {
	const nodes, shards, channels, senders = 3, 16, 1000, 128
	for _, own := range []bool{false, true} {
		b.Run(fmt.Sprintf("own=%t", own), func(b *testing.B) {
			cfg := mongostore.Config{URI: testkit.MongoURI(b), Database: testkit.MongoDatabase(b), Shards: shards}
			var writers [nodes]*message.Writer
			var names [nodes][]string
			for n := range nodes {
				writers[n] = message.NewWriter(open(b, cfg), shards, message.WriterConfig{})
				lifecycletest.Start(b, writers[n])
				for c := range channels {
					name := fmt.Sprintf("c%d", c)
					if !own || message.Shard(name, shards)%nodes == n {
						names[n] = append(names[n], name)
					}
				}
			}
			var stored, failed atomic.Int64
			ctx, cancel := context.WithCancel(b.Context())
			defer cancel()
			var g sync.WaitGroup
			for i := range nodes * senders {
				g.Go(func() {
					mine := names[i%nodes]
					for n := 0; ctx.Err() == nil; n++ {
						id := fmt.Sprintf("%d-%d", i, n)
						out := writers[i%nodes].Append(context.WithoutCancel(ctx), []message.Draft{{
							ChannelID: mine[rand.IntN(len(mine))], MsgID: id, FromID: "ann", MsgType: "text",
							Content: "text", ClientMsgID: id,
						}})
						if out[0].Err != nil {
							failed.Add(1)
						} else {
							stored.Add(1)
						}
					}
				})
			}
			for b.Loop() { // a second each
				<-time.After(time.Second)
			}
			sum := stored.Load()
			b.ReportMetric(float64(sum)/b.Elapsed().Seconds(), "messages/s")
			b.ReportMetric(float64(failed.Load()), "failed")
			cancel()
			g.Wait()
		})
	}
}

// BenchmarkEntries reads the newest 150 entries of a channel, like the cache builder and a long
// page.
func BenchmarkEntries(b *testing.B) {
	s, _ := openFresh(b)
	name := channelsOf(0, 1)[0]
	batch := sends(name, 1, 150)
	if n, err := s.Insert(b.Context(), 0, batch); err != nil {
		b.Fatalf("insert: %d, %v", n, err)
	}
	b.ReportAllocs()
	for b.Loop() {
		entries, err := s.Entries(b.Context(), name, message.Range{Desc: true, Limit: 150})
		if err != nil || len(entries) != len(batch) {
			b.Fatalf("%d entries, %v", len(entries), err)
		}
	}
}

// BenchmarkByClientKeys looks up 500 ids of a log of 20,000 messages, of one sender and of 250.
func BenchmarkByClientKeys(b *testing.B) {
	for _, senders := range []int{1, 250} {
		b.Run(fmt.Sprintf("senders=%d", senders), func(b *testing.B) {
			s, _ := openFresh(b)
			name := channelsOf(0, 1)[0]
			var keys []message.ClientKey
			for n := range 20 {
				batch := sends(name, 1+1000*n, 1000)
				for i := range batch {
					batch[i].FromID = fmt.Sprint("user", i%senders)
					if n == 10 && i < 500 {
						keys = append(keys, message.ClientKey{FromID: batch[i].FromID, ClientMsgID: batch[i].ClientMsgID})
					}
				}
				if _, err := s.Insert(b.Context(), 0, batch); err != nil {
					b.Fatal(err)
				}
			}
			for b.Loop() {
				if found, err := s.ByClientKeys(b.Context(), name, keys); err != nil || len(found) != len(keys) {
					b.Fatal(len(found), err)
				}
			}
		})
	}
}
