package embedded

import (
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/parleyhq/parley/server/internal/message"
)

// benchWriters is the number of concurrent callers. Each has its own shard, as the contract
// requires.
const benchWriters = 64

// benchChannels is how many channels each writer uses in turn.
const benchChannels = 16

// benchLog creates one writer's entries, cycling through its channels.
type benchLog struct {
	shard    int
	channels []string
	seq      int64
	next     int
	content  string
}

func newBenchLogs() []*benchLog {
	logs := make([]*benchLog, benchWriters)
	for b := range logs {
		logs[b] = &benchLog{shard: b, content: strings.Repeat("x", 100)}
	}
	for full, n := 0, 0; full < benchWriters; n++ {
		name := fmt.Sprintf("channel-%d", n)
		if l := logs[message.Shard(name, benchWriters)]; len(l.channels) < benchChannels {
			if l.channels = append(l.channels, name); len(l.channels) == benchChannels {
				full++
			}
		}
	}
	return logs
}

func (l *benchLog) entry() message.Entry {
	if l.next == 0 {
		l.seq++
	}
	e := sendEntry(l.channels[l.next], l.seq)
	e.MsgID = fmt.Sprintf("01890a5d-ac96-774b-bcce-%02d-%09d", l.next, l.seq)
	e.ClientMsgID, e.Content, e.Digest = e.MsgID, l.content, []byte(l.content[:32])
	l.next = (l.next + 1) % benchChannels
	return e
}

// run divides b.N calls of appendOnce among the writers, and reports entries per second. each is
// the number of entries of one call.
func run(b *testing.B, each int, appendOnce func(l *benchLog, entries []message.Entry) error) {
	b.Helper()
	logs := newBenchLogs()
	var left atomic.Int64
	left.Store(int64(b.N))
	var group sync.WaitGroup
	b.ResetTimer()
	began := time.Now()
	for _, l := range logs {
		group.Go(func() {
			for left.Add(-1) >= 0 {
				entries := make([]message.Entry, each)
				for i := range entries {
					entries[i] = l.entry()
				}
				if err := appendOnce(l, entries); err != nil {
					b.Error(err)
					return
				}
			}
		})
	}
	group.Wait()
	b.ReportMetric(float64(b.N*each)/time.Since(began).Seconds(), "entries/s")
}

// BenchmarkInsert measures Insert calls of one entry each and of a hundred, by concurrent writers.
func BenchmarkInsert(b *testing.B) {
	for _, each := range []int{1, 100} {
		b.Run(fmt.Sprintf("entries=%d", each), func(b *testing.B) {
			s, err := Open(b.TempDir(), Config{Shards: benchWriters})
			if err != nil {
				b.Fatal(err)
			}
			defer func() { _ = s.Close(b.Context()) }()
			run(b, each, func(l *benchLog, entries []message.Entry) error {
				_, err := s.Insert(b.Context(), l.shard, entries)
				return err
			})
		})
	}
}

// BenchmarkFloor commits the same bytes with Pebble's own group commit, without encoding, look-ups
// or anything else of a store. BenchmarkInsert should reach at least half of its speed.
func BenchmarkFloor(b *testing.B) {
	for _, each := range []int{1, 100} {
		b.Run(fmt.Sprintf("entries=%d", each), func(b *testing.B) {
			var f failure
			db, err := pebble.Open(b.TempDir(), options(privateFS{vfs.Default}, newLogger(nil, &f)))
			if err != nil {
				b.Fatal(err)
			}
			defer func() { _ = db.Close() }()
			sample := newBenchLogs()[0].entry()
			value, err := encode(&sample)
			if err != nil {
				b.Fatal(err)
			}
			var ordinal atomic.Int64
			run(b, each, func(l *benchLog, entries []message.Entry) error {
				batch := db.NewBatch()
				for i := range entries {
					e := &entries[i]
					seq := appendNumber(nil, e.Seq)
					_ = batch.Set(entryKey(e), value, nil)
					_ = batch.Set(clientKey(e.ChannelID, e.FromID, e.ClientMsgID), seq, nil)
					_ = batch.Set(outboxKey(l.shard, ordinal.Add(1)), outboxValue(e.ChannelID, e.Seq), nil)
					_ = batch.Set(messageKey(e.ChannelID, e.MsgID), seq, nil)
				}
				if err := db.Apply(batch, pebble.Sync); err != nil {
					return err
				}
				return batch.Close()
			})
		})
	}
}
