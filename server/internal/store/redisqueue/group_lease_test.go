package redisqueue

import (
	"errors"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/parleyhq/parley/server/internal/queue"
	"github.com/parleyhq/parley/server/internal/testkit"
)

func TestLease(t *testing.T) {
	t.Parallel()
	eachRedis(t, func(t *testing.T, client redis.UniversalClient) {
		b := newWorkbench(t, client, func(topic *queue.Topic) { topic.Partitions = 3 })
		ctx, ref := t.Context(), b.topic.Ref(0)
		if again := b.acquire("one"); again.Epoch != b.lease.Epoch {
			t.Errorf("a repeat gave epoch %d after %d", again.Epoch, b.lease.Epoch)
		}
		if _, err := b.Acquire(ctx, ref, "g", "two", ttl); !errors.Is(err, queue.ErrHeld) {
			t.Errorf("another acquired: %v", err)
		}
		if _, err := b.Acquire(ctx, ref, "h", "two", ttl); !errors.Is(err, queue.ErrNoGroup) {
			t.Errorf("no group: %v", err)
		}
		if _, err := b.Acquire(ctx, queue.Ref{Topic: ref.Topic, UID: "BBBBBBBBBBBBB"}, "g", "two", ttl); !errors.Is(err, queue.ErrNoTopic) {
			t.Errorf("another topic of the same name: %v", err)
		}
		leases, err := b.Leases(ctx, b.topic, "g")
		if err != nil || len(leases) != 3 || leases[0].Holder != "one" || leases[0].Epoch != b.lease.Epoch || leases[0].Left <= ttl/2 ||
			leases[1].Holder != "" || leases[1].Epoch != 0 || leases[2].Partition != 2 {
			t.Errorf("leases %+v, %v", leases, err)
		}
		if r := b.Renew(ctx, []queue.Lease{b.lease}, time.Hour); r[0].Err != nil {
			t.Error(r[0])
		}
		if left := client.PTTL(ctx, b.keys.lease(ref, "g")).Val(); left <= ttl {
			t.Errorf("%s are left", left)
		}
		for range 2 {
			if err := b.Free(ctx, b.lease); err != nil {
				t.Error(err)
			}
		}
		if leases, err = b.Leases(ctx, b.topic, "g"); err != nil || leases[0].Holder != "" || leases[0].Epoch != b.lease.Epoch {
			t.Errorf("leases %+v, %v", leases, err)
		}
		if next := b.acquire("two"); next.Epoch <= b.lease.Epoch {
			t.Errorf("epoch %d after %d", next.Epoch, b.lease.Epoch)
		}
	})
}

// TestEpochNeverGoesBack loses what Redis may lose: the last writes.
func TestEpochNeverGoesBack(t *testing.T) {
	t.Parallel()
	eachRedis(t, func(t *testing.T, client redis.UniversalClient) {
		b := newWorkbench(t, client, nil)
		ctx, key := t.Context(), b.keys.epoch(b.topic.Ref(0), "g")
		last := b.lease.Epoch
		for name, lose := range map[string]func() error{
			"nothing":     func() error { return nil },
			"gone":        func() error { return client.Del(ctx, key).Err() },
			"rolled back": func() error { return client.Set(ctx, key, "5", 0).Err() },
			// The clock may step back too.
			"ahead of the clock": func() error {
				last = time.Now().Add(time.Hour).UnixMicro()
				return client.Set(ctx, key, last, 0).Err()
			},
		} {
			if err := lose(); err != nil {
				t.Fatal(err)
			}
			b.supersede(name)
			if b.lease.Epoch <= last {
				t.Errorf("%s: epoch %d after %d", name, b.lease.Epoch, last)
			}
			last = b.lease.Epoch
			if err := client.Set(ctx, key, "0", 0).Err(); err != nil {
				t.Fatal(err)
			}
			last = min(last, time.Now().UnixMicro())
		}
	})
}

func TestLeaseEndsByItself(t *testing.T) {
	t.Parallel()
	b := newWorkbench(t, oneClient(t), nil)
	ctx := t.Context()
	if r := b.Renew(ctx, []queue.Lease{b.lease}, 20*time.Millisecond); r[0].Err != nil {
		t.Fatal(r[0])
	}
	testkit.Eventually(t, 10*time.Second, func() error {
		_, err := b.Acquire(ctx, b.topic.Ref(0), "g", "two", ttl)
		return err
	})
	if r := b.Renew(ctx, []queue.Lease{b.lease}, ttl); !errors.Is(r[0].Err, queue.ErrFenced) {
		t.Errorf("renewed: %v", r[0])
	}
}

// TestFence does everything under a lease that another has taken over: nothing may change.
func TestFence(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(*queue.Topic){"": nil, "strict": strict} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			eachRedis(t, func(t *testing.T, client redis.UniversalClient) {
				b := newWorkbench(t, client, change)
				ctx := t.Context()
				b.produce("x=a", "x=b", "y=c", "d", "e", "f", "g", "h")
				entries := b.fetch(7)
				old := b.supersede("two")
				before := b.dump()
				check := func(what string, err error) {
					t.Helper()
					if !errors.Is(err, queue.ErrFenced) {
						t.Errorf("%s: %v", what, err)
					}
					if after := b.dump(); after != before {
						t.Fatalf("%s changed\n%s\nto\n%s", what, before, after)
					}
				}
				for _, v := range []queue.Verdict{queue.Ack, queue.Retry, queue.Dead, queue.Release} {
					check("settle", b.Settle(ctx, b.topic, old, verdict(v, entries...)))
				}
				_, _, err := b.Fetch(ctx, b.topic, old, markOf(t, b.Store, b.lease), 10)
				check("fetch", err)
				for _, place := range []queue.Place{queue.Main, queue.Retries} {
					_, err = b.Claim(ctx, old, place, queue.EntryID{}, 10)
					check("claim", err)
				}
				check("renew", b.Renew(ctx, []queue.Lease{old}, ttl)[0].Err)
				check("free", errors.Join(b.Free(ctx, old), queue.ErrFenced))
				// The same holder, who was given the lease anew, is another.
				b.supersede("one")
				before = b.dump()
				check("settle", b.Settle(ctx, b.topic, old, verdict(queue.Ack, entries...)))
			})
		})
	}
}

func TestMembers(t *testing.T) {
	t.Parallel()
	eachRedis(t, func(t *testing.T, client redis.UniversalClient) {
		s := newStore(t, client)
		ctx := t.Context()
		first, err := s.Beat(ctx, "jobs", "g", []queue.Member{{StreamID: "b", Consumer: "c one", NodeID: "n1"}}, ttl)
		if err != nil || len(first) != 1 || first[0].Joined == 0 || first[0].Consumer != "c one" || first[0].NodeID != "n1" {
			t.Fatalf("%+v, %v", first, err)
		}
		// The answer was lost: it is new once more.
		again, err := s.Beat(ctx, "jobs", "g", []queue.Member{{StreamID: "b", Consumer: "c one", NodeID: "n1"}}, ttl)
		if err != nil || len(again) != 1 || again[0] != first[0] {
			t.Fatalf("%+v after %+v, %v", again, first, err)
		}
		all, err := s.Beat(ctx, "jobs", "g", []queue.Member{{StreamID: "a", Consumer: "c", NodeID: "n2"}}, 20*time.Millisecond)
		if err != nil || len(all) != 2 || all[0].StreamID != "b" || all[1].StreamID != "a" {
			t.Fatalf("%+v, %v", all, err)
		}
		testkit.Eventually(t, 10*time.Second, func() error {
			all, err := s.Beat(ctx, "jobs", "g", nil, ttl)
			if err == nil && (len(all) != 1 || all[0] != first[0]) {
				return errors.New("it is still there")
			}
			return err
		})
		// One that was taken off keeps its time when it comes back.
		if back, err := s.Beat(ctx, "jobs", "g", []queue.Member{all[1]}, ttl); err != nil || len(back) != 2 || back[1] != all[1] {
			t.Fatalf("%+v, %v", back, err)
		}
		for range 2 {
			if err := s.Leave(ctx, "jobs", "g", []string{"a", "b"}); err != nil {
				t.Fatal(err)
			}
		}
		if none, err := s.Beat(ctx, "jobs", "g", nil, ttl); err != nil || len(none) != 0 {
			t.Errorf("%+v, %v", none, err)
		}
	})
}
