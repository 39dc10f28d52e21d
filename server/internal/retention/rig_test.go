package retention_test

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/parleyhq/parley/server/internal/channel"
	"github.com/parleyhq/parley/server/internal/lifecycle/lifecycletest"
	"github.com/parleyhq/parley/server/internal/message"
	"github.com/parleyhq/parley/server/internal/retention"
	"github.com/parleyhq/parley/server/internal/store/embedded"
	"github.com/parleyhq/parley/server/internal/testkit"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const (
	shards   = 4
	grace    = 50 * time.Millisecond
	patience = 30 * time.Second
	room     = "room"
)

var quiet = slog.New(slog.DiscardHandler)

// fakeCache is a cache that holds the seqs of messages. The tests of the whole server use the real
// one.
type fakeCache struct {
	mu   sync.Mutex
	seqs map[string]int64 // of the oldest message, by channel
}

func (c *fakeCache) Page(_ context.Context, channelID string, r message.Range) (message.CachedPage, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	var page message.CachedPage
	if seq, ok := c.seqs[channelID]; ok && seq < r.Before {
		page.Events = make([]message.Event, 1)
	}
	return page, nil
}

func (c *fakeCache) Drop(_ context.Context, channelID string) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.seqs, channelID)
	return nil
}

func (c *fakeCache) holds(channelID string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	_, ok := c.seqs[channelID]
	return ok
}

// rig is a real embedded store, the numbers of its logs, and the configuration of a Trimmer.
type rig struct {
	t        *testing.T
	store    *embedded.Store
	channels *embedded.Channels
	cache    *fakeCache
	cfg      retention.Config
	// now is the time of the next entry. last holds the last entry of each log.
	now  time.Time
	last map[string]message.Entry
}

func newRig(t *testing.T) *rig {
	t.Helper()
	store, err := embedded.Open(t.TempDir(), embedded.Config{Shards: shards, Logger: quiet})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := store.Close(context.WithoutCancel(t.Context())); err != nil {
			t.Error(err)
		}
	})
	r := &rig{
		t: t, store: store, channels: store.Channels(), cache: &fakeCache{seqs: map[string]int64{}},
		now: time.Now().UTC().Truncate(time.Millisecond), last: map[string]message.Entry{},
	}
	r.cfg = retention.Config{
		Log: store, Rows: r.channels, Cache: r.cache, Shards: shards, IdempotencyWindow: time.Hour, Grace: grace,
		TouchedEvery: 5 * time.Millisecond, DueEvery: 20 * time.Millisecond, Logger: quiet,
	}
	return r
}

// start starts a Trimmer, and stops it when the test ends.
func (r *rig) start() *retention.Trimmer {
	r.t.Helper()
	trimmer, err := retention.New(r.cfg)
	if err != nil {
		r.t.Fatal(err)
	}
	lifecycletest.Start(r.t, trimmer)
	return trimmer
}

// append appends n sends with texts of 100 bytes, or edits of the message at target if that is not
// 0.
func (r *rig) append(id string, n int, target int64) {
	r.t.Helper()
	var entries []message.Entry
	for range n {
		last := r.last[id]
		seq := last.Seq + 1
		e := message.Entry{
			Message: message.Message{
				MsgID: fmt.Sprint(id, "-", seq), ChannelID: id, Seq: seq, Count: last.Count, FromID: "ann", MsgType: "text",
				Content: fmt.Sprintf("%100d", seq), ClientMsgID: fmt.Sprint("key-", seq), MsgTime: r.now, ChangedSeq: seq,
			},
			Kind: message.KindSend,
		}
		if target == 0 {
			e.Count++
		} else {
			e.Kind, e.TargetSeq, e.MsgID, e.Pending = message.KindEdit, target, fmt.Sprint(id, "-", target), true
		}
		e.Bytes = last.Bytes + e.StoredSize()
		entries = append(entries, e)
		r.last[id] = e
	}
	if n, err := r.store.Insert(r.t.Context(), message.Shard(id, shards), entries); err != nil || n != len(entries) {
		r.t.Fatalf("insert: %d, %v", n, err)
	}
	for i := range entries {
		if err := r.store.Apply(r.t.Context(), &entries[i]); entries[i].Kind == message.KindEdit && err != nil {
			r.t.Fatal(err)
		}
	}
}

// advance moves a channel's row to the end of its log, as the change feed does, and returns the
// move.
func (r *rig) advance(id string) []channel.Advance {
	r.t.Helper()
	last := r.last[id]
	moves := []channel.Advance{{ChannelID: id, Numbers: channel.Numbers{Head: last.Seq, Count: last.Count}}}
	if err := r.channels.Advance(r.t.Context(), moves, r.now); err != nil {
		r.t.Fatal(err)
	}
	return moves
}

func (r *rig) row(id string) channel.Row {
	r.t.Helper()
	rows, err := r.channels.Rows(r.t.Context(), []string{id})
	if err != nil {
		r.t.Fatal(err)
	}
	return rows[id]
}

// eventually waits until the row of a channel is as ok demands.
func (r *rig) eventually(id string, ok func(row *channel.Row) bool) channel.Row {
	r.t.Helper()
	var row channel.Row
	testkit.Eventually(r.t, patience, func() error {
		if row = r.row(id); !ok(&row) {
			return fmt.Errorf("row %+v", row)
		}
		return nil
	})
	return row
}

// log returns all stored entries of a log.
func (r *rig) log(id string) []message.Entry {
	r.t.Helper()
	entries, err := r.store.Entries(r.t.Context(), id, message.Range{Limit: 1 << 20})
	if err != nil {
		r.t.Fatal(err)
	}
	return entries
}

// wantStripped fails the test unless exactly the entries of a log before oldest have no content.
func (r *rig) wantStripped(id string, oldest int64) {
	r.t.Helper()
	for _, e := range r.log(id) {
		if expired := e.Kind == message.KindExpired; expired != (e.Seq < oldest) || expired && e.Content != "" {
			r.t.Fatalf("oldest is %d and entry %d is %+v", oldest, e.Seq, e)
		}
	}
}
