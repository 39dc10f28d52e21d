package produce

import (
	"fmt"
	"testing"

	"github.com/parleyhq/parley/server/internal/queue/qlog"
)

// What is in a partition of a topic stays there, so every later version must find the same
// partitions.
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
		if p := partitionOf(qlog.Hash, c.key, c.n); p != c.hash {
			t.Errorf("hash of %q among %d: %d, want %d", c.key, c.n, p, c.hash)
		}
		if p := partitionOf(qlog.ConsistentHash, c.key, c.n); p != c.consistent {
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

func TestWhatSelectsThePartition(t *testing.T) {
	t.Parallel()
	unique := &Unique{Key: "u"}
	for _, c := range []struct {
		m    Message
		p    qlog.Partitioner
		want string
	}{
		{Message{Key: "k", IdempotencyKey: "i", Unique: unique}, qlog.ConsistentHash, "k"},
		{Message{IdempotencyKey: "i", Unique: unique}, qlog.Hash, "i"},
		{Message{Unique: unique}, qlog.ConsistentHash, "u"},
		{Message{}, qlog.ConsistentHash, ""},
		{Message{Key: "k", IdempotencyKey: "i"}, qlog.RoundRobin, "i"},
		{Message{Key: "k"}, qlog.RoundRobin, ""},
	} {
		if got := c.m.selects(c.p); got != c.want {
			t.Errorf("%+v: %q selects, want %q", c.m, got, c.want)
		}
	}
}

func TestRoutesRememberTheNumberBeforeTheGrowth(t *testing.T) {
	t.Parallel()
	var r routes
	by := func(sequence int64, partitions, want int) {
		t.Helper()
		if got := r.by("p", sequence, partitions); got != want {
			t.Errorf("sequence %d of a topic of %d: by %d, want %d", sequence, partitions, got, want)
		}
	}
	by(1, 8, 8)
	by(3, 8, 8)
	by(2, 12, 8) // may have been sent before the growth
	by(4, 12, 12)
	by(3, 12, 8)
	by(3, 8, 8) // of a call that read the topic before the growth
	by(5, 8, 12)
	if got := r.by("other", 1, 12); got != 12 {
		t.Errorf("another producer: by %d", got)
	}
}

func TestRoutesKeepTheLatestProducers(t *testing.T) {
	t.Parallel()
	var r routes
	r.by("first", 1, 8)
	for i := range 3 * maxRoutes {
		r.by(fmt.Sprint(i), 1, 8)
		if i%1000 == 0 {
			r.by("busy", int64(i), 8)
		}
	}
	if n := len(r.young) + len(r.old); n > 2*maxRoutes {
		t.Errorf("%d producers are kept", n)
	}
	if got := r.by("busy", 1, 12); got != 8 {
		t.Errorf("a busy producer was forgotten: %d", got)
	}
	if got := r.by("first", 1, 12); got != 12 {
		t.Errorf("a producer of long ago is routed by %d", got)
	}
}
