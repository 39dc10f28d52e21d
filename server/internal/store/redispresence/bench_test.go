package redispresence

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/parleyhq/parley/server/internal/presence"
	"github.com/parleyhq/parley/server/internal/testkit"
)

// These have the lengths of a presence id and of an epoch.
const (
	benchNode  = "ABCDEFGHIJKLM.1"
	benchEpoch = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
)

// newBenchStore creates a store whose shards all have benchEpoch.
func newBenchStore(tb testing.TB, client redis.UniversalClient, config Config) *Store {
	tb.Helper()
	s := New(client, config)
	for shard := range presence.Shards {
		if _, err := s.Open(tb.Context(), shard, "", benchEpoch); err != nil {
			tb.Fatal(err)
		}
	}
	return s
}

// benchCalls returns calls of 100 users each that set every user's state.
func benchCalls(n int, state string) (calls []presence.SetCall) {
	for i := range n {
		call := presence.SetCall{Shard: i % presence.Shards, Node: benchNode, Epoch: benchEpoch, NotAfter: time.Now().Add(time.Hour)}
		for j := range MaxSet {
			call.Users = append(call.Users, part(fmt.Sprintf("user-%08d", i*MaxSet+j), state))
		}
		calls = append(calls, call)
	}
	return calls
}

// mustSet makes calls in one pipeline.
func mustSet(tb testing.TB, s *Store, calls []presence.SetCall) (changes int) {
	tb.Helper()
	for _, r := range s.Set(tb.Context(), calls) {
		if r.Outcome != presence.Done {
			tb.Fatalf("%+v", r)
		}
		for i := range r.Changes {
			if r.Changes[i].Seq > 0 {
				changes++
			}
		}
	}
	return changes
}

// cpu returns the CPU time that a server has used.
func cpu(tb testing.TB, c *redis.Client) (used time.Duration) {
	tb.Helper()
	info, err := c.Info(tb.Context(), "cpu").Result()
	if err != nil {
		tb.Fatal(err)
	}
	for line := range strings.Lines(info) {
		name, value, _ := strings.Cut(strings.TrimSpace(line), ":")
		if name == "used_cpu_user" || name == "used_cpu_sys" {
			seconds, err := strconv.ParseFloat(value, 64)
			if err != nil {
				tb.Fatal(err)
			}
			used += time.Duration(seconds * float64(time.Second))
		}
	}
	return used
}

// BenchmarkSet measures presence_set with 100 users a call on a server of its own: changes between
// online and offline, changes of the background, and renewals, of 100,000 users. An iteration is a
// pipeline. users/core-s is the number of users for each second of the server's CPU time.
func BenchmarkSet(b *testing.B) {
	for _, c := range []struct {
		name, first, second string
		pipeline            int
		changes             bool
	}{
		{"online and offline/1 call", "8f", "", 1, true},
		{"online and offline/5 calls", "8f", "", 5, true},
		{"background/5 calls", "8f", "8b", 5, true},
		{"renewal/1 call", "8f", "8f", 1, false},
		{"renewal/5 calls", "8f", "8f", 5, false},
	} {
		b.Run(c.name, func(b *testing.B) {
			client := testkit.Redis(b).Client(b)
			s := newBenchStore(b, client, Config{})
			const calls = 1000
			states := [][]presence.SetCall{benchCalls(calls, c.first), benchCalls(calls, c.second)}
			for chunk := range slices.Chunk(states[0], 5) {
				mustSet(b, s, chunk)
			}
			before := cpu(b, client)
			done, changes, at := 0, 0, calls
			for b.Loop() {
				changes += mustSet(b, s, states[at/calls%2][at%calls:at%calls+c.pipeline])
				done += c.pipeline * MaxSet
				at += c.pipeline
			}
			b.ReportMetric(float64(done)/b.Elapsed().Seconds(), "users/s")
			b.ReportMetric(float64(done)/(cpu(b, client)-before).Seconds(), "users/core-s")
			if want := map[bool]int{true: done}[c.changes]; changes != want {
				b.Errorf("%d changes, want %d", changes, want)
			}
		})
	}
}

// BenchmarkMemory measures the memory of Redis for each of 10,000 online users with one platform.
// all-B is the sum of MEMORY USAGE over all keys, used-B the growth of used_memory.
func BenchmarkMemory(b *testing.B) {
	const users = 10_000
	for b.Loop() {
		client := testkit.Redis(b).Client(b)
		s := newBenchStore(b, client, Config{})
		empty := usedMemory(b, client)
		var calls []presence.SetCall
		byShard := make([][]presence.Part, presence.Shards)
		for i := range users {
			p := part(fmt.Sprintf("user-%08d", i), "8f")
			byShard[presence.ShardOf(p.UserID)] = append(byShard[presence.ShardOf(p.UserID)], p)
		}
		for shard, parts := range byShard {
			calls = append(calls, presence.SetCall{
				Shard: shard, Node: benchNode, Epoch: benchEpoch, NotAfter: time.Now().Add(time.Hour), Users: parts,
			})
		}
		for chunk := range slices.Chunk(calls, 5) {
			mustSet(b, s, chunk)
		}
		keys, err := client.Keys(b.Context(), "*").Result()
		if err != nil {
			b.Fatal(err)
		}
		sums := map[string]int64{}
		for chunk := range slices.Chunk(keys, 1000) {
			replies, err := client.Pipelined(b.Context(), func(p redis.Pipeliner) error {
				for _, key := range chunk {
					p.MemoryUsage(b.Context(), key, 0)
				}
				return nil
			})
			if err != nil {
				b.Fatal(err)
			}
			for i, key := range chunk {
				_, kind, _ := strings.Cut(key, "}:")
				kind, _, _ = strings.Cut(kind, ":")
				sums[kind] += replies[i].(*redis.IntCmd).Val()
				sums["all"] += replies[i].(*redis.IntCmd).Val()
			}
		}
		for kind, sum := range sums {
			b.ReportMetric(float64(sum)/users, kind+"-B/user")
		}
		b.ReportMetric(float64(usedMemory(b, client)-empty)/users, "used-B/user")
	}
}

func usedMemory(tb testing.TB, c *redis.Client) int64 {
	tb.Helper()
	info, err := c.Info(tb.Context(), "memory").Result()
	if err != nil {
		tb.Fatal(err)
	}
	_, rest, _ := strings.Cut(info, "used_memory:")
	text, _, _ := strings.Cut(rest, "\r\n")
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil {
		tb.Fatal(err)
	}
	return n
}
