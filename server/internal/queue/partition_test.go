package queue

import (
	"fmt"
	"testing"
)

// What is in a partition of a topic stays there, so keys must find it with every later version.
func TestPartitionsOfKeysNeverChange(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		key              string
		n                int
		hash, consistent int
	}{
		{"", 8, 1, 7},
		{"a", 8, 3, 6},
		{"orders", 8, 5, 5},
		{"Ægir", 8, 2, 4},
		{"user-42", 256, 129, 93},
		{"user-42", 100, 69, 93},
		{"user-42", 1, 0, 0},
	} {
		if p := Hash.partitionOf(c.key, c.n); p != c.hash {
			t.Errorf("hash of %q among %d: %d, want %d", c.key, c.n, p, c.hash)
		}
		if p := ConsistentHash.partitionOf(c.key, c.n); p != c.consistent {
			t.Errorf("consistent hash of %q among %d: %d, want %d", c.key, c.n, p, c.consistent)
		}
	}
}

// The values are of the reference implementation in the paper, and of its ports.
func TestJumpIsTheOneOfThePaper(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		hash uint64
		n    int
		want int
	}{
		{1, 1, 0}, {42, 57, 43}, {0xDEAD10CC, 1, 0}, {0xDEAD10CC, 666, 361}, {256, 1024, 520}, {0, 100, 0},
	} {
		if got := jump(c.hash, c.n); got != c.want {
			t.Errorf("jump(%d, %d) = %d, want %d", c.hash, c.n, got, c.want)
		}
	}
}

func TestConsistentHashMovesFewKeysAndOnlyToNewPartitions(t *testing.T) {
	t.Parallel()
	const keys = 10_000
	for _, grow := range [][2]int{{8, 9}, {8, 16}, {100, 256}} {
		moved, counts := 0, make([]int, grow[1])
		for i := range keys {
			key := fmt.Sprint("key-", i)
			before, after := ConsistentHash.partitionOf(key, grow[0]), ConsistentHash.partitionOf(key, grow[1])
			counts[after]++
			if before != after {
				moved++
				if after < grow[0] {
					t.Fatalf("%s moved from %d to %d, which was there before", key, before, after)
				}
			}
		}
		want := keys * (grow[1] - grow[0]) / grow[1]
		if moved < want*9/10 || moved > want*11/10 {
			t.Errorf("%d to %d partitions moved %d keys, want about %d", grow[0], grow[1], moved, want)
		}
		for p, n := range counts {
			if mean := keys / grow[1]; n < mean/3 || n > 3*mean {
				t.Errorf("partition %d of %d has %d keys", p, grow[1], n)
			}
		}
	}
}

func TestKeylessMessagesTakeTurnsByCall(t *testing.T) {
	t.Parallel()
	topic := &Topic{UID: "U", Partitions: 4, Partitioner: Hash}
	var turns turns
	counts := make([]int, 4)
	for range 40 {
		of := turns.assign(topic, make([]Draft, 3), []int{0, 1, 2})
		if len(of) != 1 {
			t.Fatalf("a call without keys went to %v", of)
		}
		for p, which := range of {
			counts[p] += len(which)
		}
	}
	for p, n := range counts {
		if n != 30 {
			t.Errorf("partition %d got %d messages of 120", p, n)
		}
	}
}

func TestWhatDecidesThePartition(t *testing.T) {
	t.Parallel()
	draft := Draft{Message: Message{Key: "k"}, IdempotencyKey: "i"}
	for _, c := range []struct {
		partitioner Partitioner
		want        string
	}{{Hash, "k"}, {ConsistentHash, "k"}, {RoundRobin, "i"}} {
		topic := &Topic{Partitioner: c.partitioner}
		if got := topic.decides(&draft); got != c.want {
			t.Errorf("partitioner %d: %q decides", c.partitioner, got)
		}
		if got := topic.decides(&Draft{IdempotencyKey: "i"}); got != "i" {
			t.Errorf("partitioner %d: without a key %q decides", c.partitioner, got)
		}
		if got := topic.decides(&Draft{}); got != "" {
			t.Errorf("partitioner %d: without anything %q decides", c.partitioner, got)
		}
	}
}

func TestTurnsAreBounded(t *testing.T) {
	t.Parallel()
	var turns turns
	for i := range 3 * maxTurns {
		turns.next(&Topic{UID: fmt.Sprint(i), Partitions: 8})
	}
	if n := len(turns.topic); n > maxTurns {
		t.Fatalf("%d topics are remembered", n)
	}
}
