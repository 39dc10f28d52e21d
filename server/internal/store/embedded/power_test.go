package embedded

import (
	"context"
	"maps"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"
	"github.com/google/go-cmp/cmp"
	"golang.org/x/sync/errgroup"

	"github.com/parleyhq/parley/server/internal/channel"
	"github.com/parleyhq/parley/server/internal/message"
)

func TestAcknowledgedChangesSurvivePowerLoss(t *testing.T) {
	t.Parallel()
	mem := vfs.NewCrashableMem()
	s := openOn(t, mem)
	sent := sendEntry(channelIn(2, 0), 1)
	edit := editEntry(&sent, 2, "edited")
	mustInsert(t, s, sent, edit)
	if err := s.Apply(t.Context(), &edit); err != nil {
		t.Fatal(err)
	}
	epoch, err := s.NewEpoch(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	crashed := openOn(t, mem.CrashClone(vfs.CrashCloneCfg{}))
	closeStore(t, s)
	defer closeStore(t, crashed)
	got, ok, err := crashed.Message(t.Context(), sent.ChannelID, sent.MsgID)
	if err != nil || !ok || got.Content != "edited" {
		t.Fatalf("after the power loss: %+v, %v, %v", got, ok, err)
	}
	if got := crashed.Identity().Epoch; got != epoch {
		t.Fatalf("epoch is %q after the power loss, want %q", got, epoch)
	}
}

// marks holds the highest seq by channel that was acknowledged or returned.
type marks struct {
	mu sync.Mutex
	at map[string]int64
}

func (m *marks) raise(channel string, seq int64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.at[channel] = max(m.at[channel], seq)
}

func (m *marks) copy() map[string]int64 {
	m.mu.Lock()
	defer m.mu.Unlock()
	return maps.Clone(m.at)
}

// TestPowerLoss cuts the power at random moments while a store is written, read and followed,
// several times over the same disk. Entries acknowledged or returned before must exist afterwards.
func TestPowerLoss(t *testing.T) {
	t.Parallel()
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	rng := rand.New(rand.NewPCG(seed, 0))
	mem := vfs.NewCrashableMem()
	known := map[string]int64{}
	for round := range 6 {
		// Slow syncs extend the time in which Pebble shows data that is not yet durable.
		slow := errorfs.InjectorFunc(func(op errorfs.Op) error {
			if isLogSync(op) {
				<-time.After(2 * time.Millisecond)
			}
			return nil
		})
		s := openOn(t, errorfs.Wrap(mem, slow))
		for channel, seq := range known {
			wantLog(t, s, channel, seq, true)
		}
		known = useUntilPowerLoss(t, s, known, 20+rng.IntN(40), func() {
			cfg := vfs.CrashCloneCfg{}
			if round%2 == 1 {
				cfg = vfs.CrashCloneCfg{UnsyncedDataPercent: rng.IntN(100), RNG: rng}
			}
			mem = mem.CrashClone(cfg)
		})
	}
	s := openOn(t, mem)
	defer closeStore(t, s)
	total := int64(0)
	for channel, seq := range known {
		wantLog(t, s, channel, seq, true)
		total += seq
	}
	if total < 100 {
		t.Fatalf("only %d entries were acknowledged or shown", total)
	}
}

// useUntilPowerLoss inserts into s, reads it and follows its feeds, and calls cut after the given
// number of acknowledged Inserts. It returns each channel's highest seq that was acknowledged or
// returned before.
func useUntilPowerLoss(t *testing.T, s *Store, known map[string]int64, calls int, cut func()) map[string]int64 {
	t.Helper()
	seen := &marks{at: known}
	acked := make(chan struct{})
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var g errgroup.Group
	for b := range defaultShards {
		channels := []string{channelIn(b, 0), channelIn(b, 1)}
		g.Go(func() error { return writeUntil(ctx, s, b, channels, seen, acked) })
		g.Go(func() error { return readUntil(ctx, s, channels, seen) })
		g.Go(func() error { return followUntil(ctx, s, b, seen) })
	}
	for range calls {
		select {
		case <-acked:
		case <-time.After(patience):
			t.Fatal("nothing is acknowledged any more")
		}
	}
	before := seen.copy()
	cut()
	cancel()
	if err := g.Wait(); err != nil {
		t.Fatal(err)
	}
	closeStore(t, s)
	return before
}

func writeUntil(ctx context.Context, s *Store, shard int, channels []string, seen *marks, acked chan<- struct{}) error {
	for ctx.Err() == nil {
		var batch []message.Entry
		for _, c := range channels {
			h, err := s.Head(context.WithoutCancel(ctx), c)
			if err != nil {
				return err
			}
			batch = append(batch, sendEntry(c, h.Seq+1), sendEntry(c, h.Seq+2))
		}
		if _, err := s.Insert(context.WithoutCancel(ctx), shard, batch); err != nil {
			return err
		}
		for i := range batch {
			seen.raise(batch[i].ChannelID, batch[i].Seq)
		}
		select {
		case acked <- struct{}{}:
		case <-ctx.Done():
		}
	}
	return nil
}

func readUntil(ctx context.Context, s *Store, channels []string, seen *marks) error {
	for ctx.Err() == nil {
		for _, c := range channels {
			got, err := s.Entries(context.WithoutCancel(ctx), c, message.Range{Desc: true, Limit: 3})
			if err != nil {
				return err
			}
			if len(got) > 0 {
				seen.raise(c, got[0].Seq)
			}
		}
		// Without this pause the readers would starve the writers.
		<-time.After(100 * time.Microsecond)
	}
	return nil
}

func followUntil(ctx context.Context, s *Store, shard int, seen *marks) error {
	f, err := s.OpenFeed(context.WithoutCancel(ctx), shard)
	if err != nil {
		return err
	}
	for {
		got, err := f.Next(ctx, 100)
		if err != nil {
			if ctx.Err() != nil {
				return f.Close(context.WithoutCancel(ctx))
			}
			return err
		}
		for i := range got {
			seen.raise(got[i].ChannelID, got[i].Seq)
		}
		if err := f.Published(ctx); err != nil {
			return err
		}
	}
}

// TestFeedAfterPowerLoss checks that a power loss removes only published entries from the outbox.
// The feed must return all others again.
func TestFeedAfterPowerLoss(t *testing.T) {
	t.Parallel()
	mem := vfs.NewCrashableMem()
	s := openOn(t, mem)
	channel := channelIn(0, 0)
	f, err := s.OpenFeed(t.Context(), 0)
	if err != nil {
		t.Fatal(err)
	}
	var seq int64
	for range 10 {
		mustInsert(t, s, sendEntry(channel, seq+1), sendEntry(channel, seq+2), sendEntry(channel, seq+3))
		seq += 3
		if _, err := f.Next(t.Context(), 2); err != nil {
			t.Fatal(err)
		}
		if err := f.Published(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	// 20 of 30 are published. An entry that was returned but not published is returned again.
	if _, err := f.Next(t.Context(), 2); err != nil {
		t.Fatal(err)
	}
	crashed := openOn(t, mem.CrashClone(vfs.CrashCloneCfg{}))
	closeStore(t, s)
	defer closeStore(t, crashed)
	again, err := crashed.OpenFeed(t.Context(), 0)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	var last int64 = -1
	for last != seq {
		got, err := again.Next(ctx, 7)
		if err != nil {
			t.Fatal(err)
		}
		for i := range got {
			switch {
			case last < 0 && got[i].Seq > 21:
				t.Fatalf("the feed begins at %d; 20 were published", got[i].Seq)
			case last >= 0 && got[i].Seq != last+1:
				t.Fatalf("the feed goes from %d to %d", last, got[i].Seq)
			}
			last = got[i].Seq
		}
	}
	if _, err := crashed.Insert(t.Context(), 0, []message.Entry{sendEntry(channel, seq+1)}); err != nil {
		t.Fatal(err)
	}
	if got, err := again.Next(ctx, 7); err != nil || len(got) != 1 || got[0].Seq != seq+1 {
		t.Fatalf("feed after an insert: %d, %v", len(got), err)
	}
}

// TestChannelsAfterPowerLoss checks that acknowledged changes of channels and members are durable.
func TestChannelsAfterPowerLoss(t *testing.T) {
	t.Parallel()
	ctx, now := context.WithoutCancel(t.Context()), time.UnixMilli(1_700_000_000_000).UTC()
	cursor := channel.Cursor{Seq: 7, Count: 6}
	for _, step := range []struct {
		name string
		do   func(c *Channels) error
		want []channel.Member
		head int64
	}{
		{"Create", func(*Channels) error { return nil }, []channel.Member{{ChannelID: "club", UserID: "ann", Role: channel.Owner, JoinedAt: now}}, 0},
		{
			"AddMembers", func(c *Channels) error { return c.AddMembers(ctx, "club", []string{"bob"}, now) },
			[]channel.Member{{ChannelID: "club", UserID: "ann", Role: channel.Owner, JoinedAt: now}, {ChannelID: "club", UserID: "bob", Role: channel.RoleMember, JoinedAt: now}},
			0,
		},
		{"RemoveMembers", func(c *Channels) error { return c.RemoveMembers(ctx, "club", []string{"ann"}, 3) }, nil, 0},
		{
			"MarkRead", func(c *Channels) error {
				_, _, err := c.MarkRead(ctx, "club", "ann", cursor, false, now)
				return err
			},
			[]channel.Member{{ChannelID: "club", UserID: "ann", Role: channel.Owner, JoinedAt: now, Cursor: cursor}},
			0,
		},
		{
			"Advance", func(c *Channels) error {
				return c.Advance(ctx, []channel.Advance{{
					ChannelID: "club", Numbers: channel.Numbers{Head: 9}, Senders: map[string]channel.Cursor{"ann": cursor},
				}}, now)
			},
			[]channel.Member{{ChannelID: "club", UserID: "ann", Role: channel.Owner, JoinedAt: now, Cursor: cursor}},
			9,
		},
	} {
		t.Run(step.name, func(t *testing.T) {
			t.Parallel()
			mem := vfs.NewCrashableMem()
			s := openOn(t, mem)
			row := channel.Row{ChannelID: "club", MembersOnly: true, CreatedBy: "ann", CreatedAt: now}
			if _, err := s.Channels().Create(t.Context(), row, []string{"ann"}); err != nil {
				t.Fatal(err)
			}
			if err := step.do(s.Channels()); err != nil {
				t.Fatal(err)
			}
			crashed := openOn(t, mem.CrashClone(vfs.CrashCloneCfg{}))
			closeStore(t, s)
			defer closeStore(t, crashed)
			row.Head = step.head
			rows, err := crashed.Channels().Rows(t.Context(), []string{"club"})
			if d := cmp.Diff(map[string]channel.Row{"club": row}, rows); err != nil || d != "" {
				t.Fatalf("%v (-want +got):\n%s", err, d)
			}
			found, err := crashed.Channels().Members(t.Context(), "club", "", 10)
			if d := cmp.Diff(step.want, found); err != nil || d != "" {
				t.Fatalf("%v (-want +got):\n%s", err, d)
			}
		})
	}
}
