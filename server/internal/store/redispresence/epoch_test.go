package redispresence

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/parleyhq/parley/server/internal/presence"
)

// since reads the log after a position of an epoch.
func (b *bundle) since(epoch string, after int64, limit int) presence.SinceResult {
	b.tb.Helper()
	r := b.Since(b.tb.Context(), []presence.SinceCall{{Shard: shard, Epoch: epoch, Seq: after, Limit: limit}})[0]
	if r.Err != nil {
		b.tb.Fatal(r.Err)
	}
	if h := b.head(); r.Head != h || !r.Now.Equal(b.now) {
		b.tb.Errorf("the head is %+v at %v, want %+v at %v", r.Head, r.Now, h, b.now)
	}
	return r
}

// TestOpen tests a whole epoch: opened by one of two, restored, settled, and replaced.
func TestOpen(t *testing.T) {
	t.Parallel()
	eachRedis(t, func(t *testing.T, b *bundle) {
		ctx := t.Context()
		open := func(old, epoch string) presence.Head {
			h, err := b.Open(ctx, shard, old, epoch)
			if err != nil {
				t.Fatal(err)
			}
			return h
		}
		restored := func() string {
			h, nodes, err := b.RestoredNodes(ctx, shard)
			if err != nil || h != b.head() {
				t.Errorf("head %+v, want %+v, %v", h, b.head(), err)
			}
			return fmt.Sprint(nodes, h.Settled())
		}
		must := func(err error) {
			if err != nil {
				t.Fatal(err)
			}
		}
		b.flush()
		if h := b.head(); h != (presence.Head{}) || restored() != "[] false" {
			t.Errorf("of nothing: %+v, %s", h, restored())
		}
		want := presence.Head{Epoch: "e1", Opened: b.now}
		if h := open("", "e1"); h != want {
			t.Errorf("opened %+v, want %+v", h, want)
		}
		b.move(time.Second)
		b.unchanged("who came second", func() {
			if h := open("", "e2"); h != want {
				t.Errorf("opened %+v, want %+v", h, want)
			}
		})
		b.epoch = "e1"
		b.put("n", "u", "8f")
		if h := b.head(); h.Epoch != "e1" || h.Seq != 1 {
			t.Errorf("the head is %+v", h)
		}
		must(b.Restored(ctx, shard, "e1", "n2"))
		must(b.Restored(ctx, shard, "e1", "n1"))
		must(b.Restored(ctx, shard, "e0", "n3"))
		must(b.Settle(ctx, shard, "e0"))
		must(b.Fence(ctx, shard, "dead"))
		if got := restored(); got != "[n1 n2] false" {
			t.Errorf("restored: %s", got)
		}
		must(b.Settle(ctx, shard, "e1"))
		settled := b.now
		b.move(time.Second)
		b.unchanged("settled twice", func() {
			must(b.Settle(ctx, shard, "e1"))
			must(b.Restored(ctx, shard, "e1", "n4"))
		})
		if h := b.head(); !h.SettledAt.Equal(settled) {
			t.Errorf("settled at %v, want %v", h.SettledAt, settled)
		}
		if got := restored(); got != "[n1 n2] true" {
			t.Errorf("settled: %s", got)
		}
		want = presence.Head{Epoch: "e3", Opened: b.now}
		if h := open("e1", "e3"); h != want || restored() != "[] false" {
			t.Errorf("opened %+v, %s", h, restored())
		}
		b.epoch = "e3"
		if b.state("u") != "8f" || !slices.Equal(b.online(), []string{"u"}) || !slices.Equal(b.members("n"), []string{"u"}) {
			t.Error("the state is gone")
		}
		if r := b.try(presence.SetCall{Shard: shard, Node: "dead", NotAfter: b.soon(), Users: []presence.Part{part("u", "")}}); r.Outcome != presence.Fenced {
			t.Errorf("the fence is gone: %+v", r)
		}
		if got := b.since("e3", 0, 10); got.Reset || len(got.Entries) > 0 {
			t.Errorf("the log is %+v", got)
		}
		if got := b.put("n", "u", ""); got != change(1, "") {
			t.Errorf("the first change of the epoch: %+v", got)
		}
	})
}

// TestFlush tests that no step of a node begins an epoch after a flush, and that those of the epoch
// before it change nothing when there is another.
func TestFlush(t *testing.T) {
	t.Parallel()
	eachRedis(t, func(t *testing.T, b *bundle) {
		ctx, old := t.Context(), b.epoch
		refused := func() {
			b.wantRefused(presence.OtherEpoch, "n", old, b.soon(), false)
			b.wantRefused(presence.OtherEpoch, "n", old, b.soon(), true)
			b.unchanged("restored and settled", func() {
				if err := errors.Join(b.Restored(ctx, shard, old, "n"), b.Settle(ctx, shard, old)); err != nil {
					t.Fatal(err)
				}
			})
		}
		b.put("n", "u", "8f")
		b.settle()
		b.flush()
		refused()
		if h := b.head(); h != (presence.Head{}) {
			t.Errorf("the head after the flush is %+v", h)
		}
		if err := b.Fence(ctx, shard, "dead"); err != nil {
			t.Fatal(err)
		}
		if h := b.head(); h != (presence.Head{}) {
			t.Errorf("the head after a fence is %+v", h)
		}
		b.begin()
		refused()
		if got := b.put("n", "u", "8f"); got != change(1, "8f") {
			t.Errorf("the first change of the epoch: %+v", got)
		}
	})
}

// TestUnreadableHead tests that another writer's times are an error that names the shard.
func TestUnreadableHead(t *testing.T) {
	t.Parallel()
	eachRedis(t, func(t *testing.T, b *bundle) {
		for _, field := range []string{"seq", "opened", "settled"} {
			b.settle()
			was := b.client.HGet(t.Context(), b.keys.meta(shard), field).Val()
			b.client.HSet(t.Context(), b.keys.meta(shard), field, "soon")
			if _, _, err := b.RestoredNodes(t.Context(), shard); err == nil || !strings.Contains(err.Error(), "shard 7: unreadable head") {
				t.Errorf("%s: %v", field, err)
			}
			b.client.HSet(t.Context(), b.keys.meta(shard), field, was)
		}
	})
}

func TestSince(t *testing.T) {
	t.Parallel()
	eachRedis(t, func(t *testing.T, b *bundle) {
		for i := range 15 {
			b.move(time.Millisecond)
			b.put("n", "u", "8f")
			if i == 7 {
				b.login(as("c1", 10, 10))
				b.login(as("c2", 11, 11))
			}
			b.put("n", "u", "")
		}
		epoch := b.head().Epoch
		for _, c := range []struct {
			after       int64
			limit       int
			first, last int64 // 0: none
			reset       bool
		}{
			{31, 5, 0, 0, false},
			{30, 5, 31, 31, false},
			{20, 5, 21, 25, false},
			{20, 11, 21, 31, false},
			{20, 1000, 21, 31, false},
			{11, 1000, 12, 31, false},
			{11, 1, 12, 12, false},
			{10, 1000, 0, 0, true}, // the log keeps 20 entries
			{0, 1, 0, 0, true},
			{32, 5, 0, 0, true}, // the server lost entries
		} {
			r := b.since(epoch, c.after, c.limit)
			if r.Reset != c.reset || (len(r.Entries) == 0) != (c.first == 0) || c.first > 0 && len(r.Entries) != int(c.last-c.first+1) {
				t.Errorf("%+v: reset %t, %d entries", c, r.Reset, len(r.Entries))
			}
			for i, e := range r.Entries {
				if e.Seq != c.first+int64(i) || (e.Login != nil) != (e.Seq == 16) || e.At.After(b.now) || b.now.Sub(e.At) > time.Second {
					t.Errorf("%+v: entry %d is %+v", c, i, e)
				}
			}
		}
		if r := b.since("other", 31, 5); !r.Reset {
			t.Error("another epoch has entries")
		}
		b.flush()
		if r := b.since(epoch, 31, 5); !r.Reset {
			t.Error("no epoch has entries")
		}
	})
}

// TestUnreadableEntries tests that another writer's entries are an error that names the shard.
func TestUnreadableEntries(t *testing.T) {
	t.Parallel()
	eachRedis(t, func(t *testing.T, b *bundle) {
		b.put("n", "u", "8f")
		h := b.head()
		for _, line := range []string{
			"", "2", "what is this thing", "2 5 1 8f", "2 5 1 8x u", "2 5 1 8 u", "x 5 1 8f u", "2 x 1 8f u", "2 5 x 8f u", "2 5 999 8f u", "2 5 1 8f ", "2 5 1 8f a b",
			"3 5 1 8f u", "1 5 1 8f u", "2 5 L * 1 3 c n 8 d", "2 5 L * x 3 c n 8 d u", "2 5 L * 1 x c n 8 d u", "2 5 L * 1 3 c n x d u", "2 5 L * 1 3 c n 0 d u", "2 5 L * 1 3 c n 8 d ",
			strings.Repeat("long", 1000),
		} {
			ctx := t.Context()
			b.client.RPush(ctx, b.keys.log(shard), line)
			b.client.HSet(ctx, b.keys.meta(shard), "seq", "2")
			r := b.Since(ctx, []presence.SinceCall{{Shard: shard, Epoch: h.Epoch, Seq: 0, Limit: 10}, {Shard: shard, Epoch: h.Epoch, Seq: 0, Limit: 1}})
			if r[0].Err == nil || !strings.Contains(r[0].Err.Error(), "shard 7: unreadable log entry at position 2") || len(r[0].Err.Error()) > 300 {
				t.Errorf("%q: %v", line, r[0].Err)
			}
			if r[1].Err != nil || len(r[1].Entries) != 1 {
				t.Errorf("%q, the entry before it: %+v", line, r[1])
			}
			b.client.RPop(ctx, b.keys.log(shard))
		}
	})
}

// FuzzParseEntry tests that a line of any form reads as an entry with a valid user and platform, or
// as none.
func FuzzParseEntry(f *testing.F) {
	f.Add("2 1800000000000 1 8f u")
	f.Add("2 1800000000000 3  u")
	f.Add("2 1800000000000 L * 1800000000000000 1800000000000001 c n 8  u")
	f.Fuzz(func(t *testing.T, line string) {
		e, ok := parseEntry(line)
		if ok && (!isUser(e.UserID) || !strings.HasSuffix(line, " "+e.UserID) || e.Login != nil && !e.Login.Platform.Valid()) {
			t.Errorf("%q reads as %+v", line, e)
		}
	})
}

// TestOpenDropsTheLog checks that the entries of an epoch do not stay in the next one's log, where
// they would only take memory.
func TestOpenDropsTheLog(t *testing.T) {
	t.Parallel()
	eachRedis(t, func(t *testing.T, b *bundle) {
		b.put("n1", "u1", "8f")
		if _, err := b.Open(t.Context(), shard, b.epoch, "next"); err != nil {
			t.Fatal(err)
		}
		if n, err := b.client.LLen(t.Context(), b.keys.log(shard)).Result(); err != nil || n != 0 {
			t.Errorf("the log has %d entries, %v", n, err)
		}
	})
}
