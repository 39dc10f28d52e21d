package mongostore_test

import (
	"context"
	"fmt"
	"maps"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.mongodb.org/mongo-driver/v2/event"
	"golang.org/x/sync/errgroup"

	"github.com/parleyhq/parley/server/internal/message"
	"github.com/parleyhq/parley/server/internal/store/mongostore"
	"github.com/parleyhq/parley/server/internal/store/storetest"
	"github.com/parleyhq/parley/server/internal/testkit"
)

// TestReplicaSetOfThree uses one replica set for all its parts, one after the other. Each part
// leaves it healthy.
func TestReplicaSetOfThree(t *testing.T) {
	t.Parallel()
	set := testkit.MongoSet(t)
	t.Run("StoreThroughKills", func(t *testing.T) { suiteThroughKills(t, set.For(t)) })
	t.Run("NothingIsAcknowledgedWithoutAMajority", func(t *testing.T) { withoutMajority(t, set.For(t)) })
	t.Run("KilledPrimaries", func(t *testing.T) { killedPrimaries(t, set.For(t)) })
	t.Run("WokenPrimary", func(t *testing.T) { wokenPrimary(t, set.For(t)) })
}

// suiteThroughKills checks that the store keeps its contract while primaries are killed: a caller
// with a long time limit notices only slowness.
func suiteThroughKills(t *testing.T, set *testkit.MongoReplicas) {
	t.Run("Kills", func(t *testing.T) {
		t.Parallel()
		set := set.For(t)
		for range 2 {
			killed := set.KillPrimary()
			set.Primary()
			set.Restart(killed)
			set.WaitHealthy()
			<-time.After(3 * time.Second) // lets the suite run undisturbed for a while
		}
	})
	places := func(t *testing.T) func() message.Store {
		cfg := mongostore.Config{URI: set.URI(), Database: testkit.MongoDatabase(t), Timeout: 30 * time.Second}
		return func() (s message.Store) {
			// The driver does not retry the creation of indexes.
			testkit.Eventually(t, time.Minute, func() (err error) {
				s, err = mongostore.Open(t.Context(), cfg)
				return err
			})
			t.Cleanup(func() { _ = s.Close(context.Background()) })
			return s
		}
	}
	storetest.Run(t, places)
	storetest.RunChannels(t, places, func(s message.Store) storetest.ChannelStore { return s.(*mongostore.Store).Channels() })
}

// withoutMajority checks that a primary whose secondaries are both stopped acknowledges no entries
// and returns none that only it has: they would be lost if it were killed.
func withoutMajority(t *testing.T, set *testkit.MongoReplicas) {
	cfg := mongostore.Config{URI: set.URI(), Database: testkit.MongoDatabase(t), Timeout: 3 * time.Second}
	s := open(t, cfg)
	insert(t, s, sends("minority", 1, 5))
	primary := set.Primary()
	for i := range 3 {
		if i != primary {
			set.Stop(i)
		}
	}
	n, err := s.Insert(t.Context(), shardOf(s, "minority"), sends("minority", 6, 5))
	if n != 0 || !unknownOutcome(err) {
		t.Errorf("insert without a majority: %d, %v, want an unknown outcome", n, err)
	}
	if head, err := s.Head(t.Context(), "minority"); err == nil {
		t.Errorf("head without a majority: %d", head.Seq)
	}
	// Entries that only the primary has must not be returned either.
	if got, err := s.Entries(t.Context(), "minority", message.Range{Limit: 10}); err == nil && len(got) > 5 {
		t.Errorf("%d entries are shown, 5 are durable", len(got))
	}
	for i := range 3 {
		if i != primary {
			set.Cont(i)
		}
	}
	set.WaitHealthy()
}

const (
	killChannels = 3 // per shard
	killBatch    = 6
)

// killedPrimaries checks that no acknowledged entry is lost, in the logs and in the feeds of all
// shards, while primaries are killed and step down.
func killedPrimaries(t *testing.T, set *testkit.MongoReplicas) {
	cfg := mongostore.Config{URI: set.URI(), Database: testkit.MongoDatabase(t)}
	s := open(t, cfg)
	var g errgroup.Group
	var stop atomic.Bool
	var stored, unknown atomic.Int64
	logs := make([][]message.Entry, mongostore.DefaultShards*killChannels)
	fed := make([]func() error, mongostore.DefaultShards)
	for b := range mongostore.DefaultShards {
		names := channelsOf(b, killChannels)
		f, err := s.OpenFeed(t.Context(), b)
		if err != nil {
			t.Fatal(err)
		}
		ends := make(chan map[string]int64, 1)
		done := make(chan error, 1)
		go func() { done <- followAll(f, ends) }()
		g.Go(func() error {
			for round := 0; !stop.Load(); round++ {
				for i, name := range names {
					entries := sends(name, round*killBatch+1, killBatch)
					unknown.Add(int64(insertUntilStored(t, s, b, entries)))
					stored.Add(killBatch)
					logs[b*killChannels+i] = append(logs[b*killChannels+i], entries...)
				}
			}
			return nil
		})
		fed[b] = func() error {
			last := make(map[string]int64)
			for i, name := range names {
				last[name] = int64(len(logs[b*killChannels+i]))
			}
			ends <- last
			return <-done
		}
	}
	progress := func() {
		want := stored.Load() + 300
		testkit.Eventually(t, time.Minute, func() error {
			if got := stored.Load(); got < want {
				return fmt.Errorf("%d entries stored, waiting for %d", got, want)
			}
			return nil
		})
	}
	progress()
	killed := set.KillPrimary()
	progress()
	set.Restart(killed)
	set.WaitHealthy()
	set.StepDown()
	progress()
	stop.Store(true)
	if err := g.Wait(); err != nil {
		t.Fatal(err)
	}
	t.Logf("%d entries stored, %d outcomes unknown", stored.Load(), unknown.Load())
	var feeds errgroup.Group
	for _, wait := range fed {
		feeds.Go(wait)
	}
	if err := feeds.Wait(); err != nil {
		t.Errorf("feed: %v", err)
	}
	for b := range mongostore.DefaultShards {
		for i, name := range channelsOf(b, killChannels) {
			wantLog(t, s, name, logs[b*killChannels+i])
		}
	}
	set.WaitHealthy()
}

// channelsOf returns the names of n channels of a shard.
func channelsOf(shard, n int) (names []string) {
	for i := 0; len(names) < n; i++ {
		name := fmt.Sprintf("kill%d", i)
		if message.Shard(name, mongostore.DefaultShards) == shard {
			names = append(names, name)
		}
	}
	return names
}

// followAll reads and confirms a feed until it has returned every channel up to its last seq, which
// it receives from ends once all entries are stored.
func followAll(f message.Feed, ends <-chan map[string]int64) error {
	ctx, cancel := context.WithTimeout(context.Background(), 3*time.Minute)
	defer cancel()
	defer func() { _ = f.Close(ctx) }()
	var want map[string]int64
	seen := make(map[string]int64)
	for {
		select {
		case want = <-ends:
		default:
		}
		if want != nil && cmp.Equal(want, seen) {
			return nil
		}
		short, stop := context.WithTimeout(ctx, time.Second)
		entries, err := f.Next(short, 50)
		stop()
		if err != nil {
			if ctx.Err() != nil {
				return fmt.Errorf("seen %v, want %v: %w", seen, want, err)
			}
			continue
		}
		for _, e := range entries {
			if e.Seq > seen[e.ChannelID]+1 {
				return fmt.Errorf("%s skipped from %d to %d", e.ChannelID, seen[e.ChannelID], e.Seq)
			}
			seen[e.ChannelID] = max(seen[e.ChannelID], e.Seq)
		}
		if err := f.Published(ctx); err != nil {
			return err
		}
	}
}

// wokenPrimary checks that no read returns stale data from a primary that was suspended, replaced
// and resumed while the reads waited in its sockets. For a moment it still considers itself the
// primary.
func wokenPrimary(t *testing.T, set *testkit.MongoReplicas) {
	db := testkit.MongoDatabase(t)
	var s *mongostore.Store
	testkit.Eventually(t, time.Minute, func() (err error) { // after an election, the set may be slow
		s, err = mongostore.Open(t.Context(), mongostore.Config{URI: set.URI(), Database: db, Timeout: 2 * time.Second})
		return err
	})
	t.Cleanup(func() { _ = s.Close(context.Background()) })
	const channel, before, all = "woken", 20, 40
	log := sends(channel, 1, all)
	insert(t, s, log[:before])

	old := set.Primary()
	var asked atomic.Int64
	node := func() *mongostore.Store { return lateNode(t, set.Addr(old), db, channel, &asked) }
	told, untold := node(), node()
	reads := lateReads(told, channel, log)
	// Head must also be correct on a node that has received no answers, and what follows it.
	late := lateReads(untold, channel, log)
	reads["Head of a node told nothing"] = late["Head"]
	reads["Targets after a Head of a node told nothing"] = func(ctx context.Context) (int64, error) {
		if seq, err := late["Head"](ctx); err != nil {
			return seq, err
		}
		return late["Targets"](ctx)
	}

	club := newWokenClub(t, s)
	maps.Copy(reads, club.calls(untold, all))
	calls := int64(4 * len(reads))

	set.Stop(old)
	if now := set.Primary(); now == old {
		t.Fatal("the stopped member is primary")
	}
	club.change(t, all)
	insertUntilStored(t, s, shardOf(s, channel), log[before:])
	told.AdoptHorizon(s)
	asked.Store(0)
	type answer struct {
		name string
		seq  int64
		err  error
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	answers := make(chan answer)
	for range 4 {
		for name, read := range reads {
			go func() {
				seq, err := read(ctx)
				answers <- answer{name, seq, err}
			}()
		}
	}
	testkit.Eventually(t, 20*time.Second, func() error {
		// Of the Head calls only the fence has been sent, one per node, and some wait
		// for a new connection.
		if n := asked.Load(); n < 8 {
			return fmt.Errorf("%d commands were sent", n)
		}
		return nil
	})
	set.Cont(old)
	// A stale answer comes at once. Calls that wait until the member is primary again count as
	// refused.
	time.AfterFunc(3*time.Second, cancel)
	refused := 0
	for range calls {
		a := <-answers
		switch {
		case a.err != nil:
			refused++
		case a.seq < all:
			t.Errorf("%s answered up to %d; %d was acknowledged before", a.name, a.seq, all)
		}
	}
	t.Logf("%d of %d calls refused", refused, calls)
	if head, err := s.Head(t.Context(), channel); err != nil || head.Seq != all {
		t.Errorf("head %d, %v", head.Seq, err)
	}
	set.WaitHealthy()
}

// lateNode returns a node whose connections lead to one member only, as those of a pool do until
// the driver notices the change. It counts the commands that may wait in the member's sockets.
func lateNode(t *testing.T, addr, db, channel string, asked *atomic.Int64) *mongostore.Store {
	t.Helper()
	s := open(t, mongostore.Config{
		URI: "mongodb://" + addr + "/?directConnection=true&maxConnecting=20", Database: db, Timeout: 30 * time.Second,
		Monitor: &event.CommandMonitor{Started: func(_ context.Context, e *event.CommandStartedEvent) {
			if e.CommandName == "find" || e.CommandName == "update" {
				asked.Add(1)
			}
		}},
	})
	var warm sync.WaitGroup // so that each read has a connection
	for range 25 {
		warm.Go(func() {
			for range 10 {
				_, _ = s.Entries(t.Context(), channel, message.Range{Limit: 1})
			}
		})
	}
	warm.Wait()
	return s
}

// lateReads returns reads that report the last seq that they saw.
func lateReads(s *mongostore.Store, channel string, log []message.Entry) map[string]func(context.Context) (int64, error) {
	last := &log[len(log)-1]
	seen := func(ok bool) int64 {
		if ok {
			return last.Seq
		}
		return 0
	}
	return map[string]func(context.Context) (int64, error){
		"Head": func(ctx context.Context) (int64, error) {
			head, err := s.Head(ctx, channel)
			return head.Seq, err
		},
		"ByClientKeys": func(ctx context.Context) (int64, error) {
			found, err := s.ByClientKeys(ctx, channel, []message.ClientKey{
				{FromID: last.FromID, ClientMsgID: last.ClientMsgID},
			})
			return seen(len(found) == 1), err
		},
		"Targets": func(ctx context.Context) (int64, error) {
			found, err := s.Targets(ctx, channel, []string{last.MsgID})
			return seen(len(found) == 1), err
		},
		"Message": func(ctx context.Context) (int64, error) {
			_, ok, err := s.Message(ctx, channel, last.MsgID)
			return seen(ok), err
		},
		"Entries": func(ctx context.Context) (int64, error) {
			got, err := s.Entries(ctx, channel, message.Range{Limit: 1, Desc: true})
			if err != nil || len(got) == 0 {
				return 0, err
			}
			return got[0].Seq, nil
		},
	}
}
