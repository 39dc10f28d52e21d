package redispresence

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/parleyhq/parley/server/internal/presence"
)

const lease = 4 * time.Second

// beat renews the lease of a node, and of peers heard just now.
func (b *bundle) beat(node string, heard ...string) presence.BeatResult {
	b.tb.Helper()
	beat := presence.Beat{Node: node, TTL: lease}
	for _, id := range heard {
		beat.Heard = append(beat.Heard, presence.Heard{Node: id})
	}
	r, err := b.Beat(b.tb.Context(), beat)
	if err != nil {
		b.tb.Fatal(err)
	}
	if !r.Now.Equal(b.now) {
		b.tb.Fatalf("the time is %v, want %v", r.Now, b.now)
	}
	return r
}

func (b *bundle) wantNodes(what string, r presence.BeatResult, alive, dead []string) {
	b.tb.Helper()
	if !slices.Equal(r.Alive, alive) || !slices.Equal(r.Dead, dead) {
		b.tb.Errorf("%s: alive %q, dead %q; want %q, %q", what, r.Alive, r.Dead, alive, dead)
	}
	for _, id := range slices.Concat(alive, dead) {
		if r.IsDead(id) != slices.Contains(dead, id) {
			b.tb.Errorf("%s: IsDead(%q) is %t", what, id, r.IsDead(id))
		}
	}
}

// ends returns the end of a node's lease, from now.
func (b *bundle) ends(node string) time.Duration {
	b.tb.Helper()
	score, err := b.client.ZScore(b.tb.Context(), b.keys.alive(), node).Result()
	if err != nil {
		b.tb.Fatal(err)
	}
	return time.UnixMilli(int64(score)).Sub(b.now)
}

func list(ids ...string) []string { return ids }

func TestBeatDeath(t *testing.T) {
	t.Parallel()
	eachRedis(t, func(_ *testing.T, b *bundle) {
		b.beat("a")
		b.wantNodes("two", b.beat("b"), list("a", "b"), nil)
		b.move(2 * time.Second)
		b.beat("a")
		b.move(2*time.Second - time.Millisecond)
		b.wantNodes("before the end", b.beat("a"), list("a", "b"), nil)
		b.move(time.Millisecond)
		b.wantNodes("at the end", b.beat("a"), list("a"), list("b"))
		b.unchanged("a dead node's beat", func() {
			b.wantNodes("the dead", b.beat("b", "a"), list("a"), list("b"))
		})
		b.wantNodes("heard, but dead", b.beat("a", "b", "unknown"), list("a"), list("b"))
		b.wantNodes("with a new id", b.beat("b.2"), list("a", "b.2"), list("b"))
		for range int(time.Hour/(2*time.Second)) - 1 {
			b.move(2 * time.Second)
			b.beat("b.2", "a")
		}
		b.move(2*time.Second - time.Millisecond)
		b.wantNodes("before 1 h", b.beat("a", "b.2"), list("a", "b.2"), list("b"))
		b.move(time.Millisecond)
		b.wantNodes("after 1 h", b.beat("a", "b.2"), list("a", "b.2"), nil)
	})
}

func TestBeatPeersRenew(t *testing.T) {
	t.Parallel()
	eachRedis(t, func(t *testing.T, b *bundle) {
		b.beat("a")
		b.beat("b")
		for range 10 {
			b.move(time.Second)
			b.wantNodes("heard", b.beat("a", "b"), list("a", "b"), nil)
		}
		hear := func(age time.Duration) presence.BeatResult {
			r, err := b.Beat(t.Context(), presence.Beat{Node: "a", TTL: lease, Heard: []presence.Heard{{Node: "b", Age: age}}})
			if err != nil {
				t.Fatal(err)
			}
			return r
		}
		// Hearing is as good as a beat at that time, and no better.
		b.move(2 * time.Second)
		hear(1500 * time.Millisecond)
		if got := b.ends("b"); got != 2500*time.Millisecond {
			t.Errorf("the lease ends in %v", got)
		}
		hear(3 * time.Second)
		if got := b.ends("b"); got != 2500*time.Millisecond {
			t.Errorf("an older word: the lease ends in %v", got)
		}
		hear(-time.Second)
		if got := b.ends("b"); got != lease {
			t.Errorf("a negative age: the lease ends in %v", got)
		}
		b.move(2 * time.Second)
		b.beat("a")
		b.move(2 * time.Second)
		b.wantNodes("heard 4 s ago", hear(4*time.Second), list("a"), list("b"))
	})
}

// TestBeatGap tests that nobody dies of an outage of the server, and that the time of the dead does
// not pass in it.
func TestBeatGap(t *testing.T) {
	t.Parallel()
	eachRedis(t, func(t *testing.T, b *bundle) {
		b.beat("a")
		b.beat("b")
		b.beat("x")
		for range 2 {
			b.move(2 * time.Second)
			b.beat("a", "b")
		}
		b.move(2 * time.Hour)
		b.wantNodes("after the outage", b.beat("a"), list("a", "b"), list("x"))
		if got := b.ends("b"); got != lease {
			t.Errorf("the lease ends in %v", got)
		}
		b.move(2500 * time.Millisecond)
		b.beat("a")
		b.move(1500 * time.Millisecond)
		b.wantNodes("silent since", b.beat("a"), list("a"), list("b", "x"))
		b.move(2501 * time.Millisecond)
		b.wantNodes("once more", b.beat("c"), list("a", "c"), list("b", "x"))
		if got := b.ends("a"); got != lease {
			t.Errorf("the lease ends in %v", got)
		}
	})
}

// TestBeatClockMoves tests the failover to a server whose clock is ahead or behind.
func TestBeatClockMoves(t *testing.T) {
	t.Parallel()
	eachRedis(t, func(t *testing.T, b *bundle) {
		b.beat("a")
		b.beat("b")
		b.move(10 * time.Second)
		b.wantNodes("ahead", b.beat("a"), list("a", "b"), nil)
		b.move(-time.Hour)
		b.wantNodes("behind", b.beat("a"), list("a", "b"), nil)
		if got := b.ends("b"); got != lease {
			t.Errorf("the lease ends in %v", got)
		}
		for range 2 {
			b.move(2 * time.Second)
			b.beat("a")
		}
		b.wantNodes("silent since", b.beat("a"), list("a"), list("b"))
	})
}

func TestBeatKeepsTheNewestDead(t *testing.T) {
	t.Parallel()
	b := newBundle(t, oneClient(t))
	var members []redis.Z
	for i := range maxDead + 10 {
		members = append(members, redis.Z{Score: float64(b.now.UnixMilli() - int64(maxDead+10-i)), Member: fmt.Sprintf("dead%05d", i)})
	}
	b.client.ZAdd(t.Context(), b.keys.dead(), members...)
	if r := b.beat("a"); len(r.Dead) != maxDead || r.Dead[0] != "dead00010" {
		t.Errorf("%d dead, first %s", len(r.Dead), r.Dead[0])
	}
}

func TestFencesArePruned(t *testing.T) {
	t.Parallel()
	eachRedis(t, func(t *testing.T, b *bundle) {
		fence := func(node string) {
			if err := b.Fence(t.Context(), shard, node); err != nil {
				t.Fatal(err)
			}
		}
		outcome := func(node string) presence.Outcome {
			return b.try(presence.SetCall{Shard: shard, Node: node, NotAfter: b.soon(), Users: []presence.Part{part("u", "8f")}}).Outcome
		}
		fence("a")
		b.move(time.Minute)
		fence("b")
		b.move(time.Second)
		b.unchanged("the repeat", func() { fence("b") })
		b.move(59*time.Minute - time.Second)
		fence("c")
		if outcome("a") != presence.Done || outcome("b") != presence.Fenced || outcome("c") != presence.Fenced {
			t.Errorf("%d %d %d", outcome("a"), outcome("b"), outcome("c"))
		}
	})
}

// TestBeatGapOfLongLease checks that a node dies although the beats of a long lease are far apart.
func TestBeatGapOfLongLease(t *testing.T) {
	t.Parallel()
	eachRedis(t, func(t *testing.T, b *bundle) {
		beat := func(node string) (r presence.BeatResult) {
			r, err := b.Beat(t.Context(), presence.Beat{Node: node, TTL: 3 * lease})
			if err != nil {
				t.Fatal(err)
			}
			return r
		}
		beat("a")
		for range 4 {
			b.move(3 * lease / 4)
			beat("b")
		}
		b.move(time.Second)
		b.wantNodes("a long lease", beat("b"), list("b"), list("a"))
	})
}
