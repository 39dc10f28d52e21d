package presence

import (
	"testing"
	"time"

	"pgregory.net/rapid"
)

// points is the number of times in a random test. Each time is a second.
const points = 40

// drawSpans returns random spans, and for each second whether they contain it.
func drawSpans(t *rapid.T, label string) (spans, [points]bool) {
	var all []span
	var in [points]bool
	for range rapid.IntRange(0, 5).Draw(t, label) {
		from := rapid.IntRange(0, points-1).Draw(t, "from")
		to := rapid.IntRange(from, points-1).Draw(t, "to")
		all = append(all, span{int64(from) * sec, int64(to) * sec})
		for i := from; i < to; i++ {
			in[i] = true
		}
	}
	return spansOf(all...), in
}

// TestSpans compares the operations on spans with the same on lists of seconds.
func TestSpans(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		a, inA := drawSpans(t, "a")
		b, inB := drawSpans(t, "b")
		sum, both, less := union(a, b), intersect(a, b), a.without(b)
		for i := range points {
			now := int64(i) * sec
			for name, c := range map[string]struct {
				got, want bool
			}{
				"union":     {sum.touches(now, now), inA[i] || inB[i]},
				"intersect": {both.touches(now, now), inA[i] && inB[i]},
				"without":   {less.touches(now, now), inA[i] && !inB[i]},
				"covers":    {a.covers(now, now), inA[i]},
			} {
				if c.got != c.want {
					t.Fatalf("%s at %d: %t, want %t; %v and %v", name, i, c.got, c.want, a, b)
				}
			}
		}
		from := rapid.IntRange(0, points-1).Draw(t, "first")
		to := rapid.IntRange(from, points-1).Draw(t, "last")
		all, some := true, false
		for i := from; i <= to; i++ {
			all, some = all && inA[i], some || inA[i]
		}
		if got := a.covers(int64(from)*sec, int64(to)*sec); got != all {
			t.Fatalf("covers %d to %d: %t; %v", from, to, got, a)
		}
		if got := a.touches(int64(from)*sec, int64(to)*sec); got != some {
			t.Fatalf("touches %d to %d: %t; %v", from, to, got, a)
		}
	})
}

// TestLimits checks that a limit begins again at the end of each span that meets it.
func TestLimits(t *testing.T) {
	t.Parallel()
	s := spansOf(span{10 * sec, 12 * sec}, span{15 * sec, 20 * sec}, span{40 * sec, 50 * sec})
	for from, want := range map[int64]int64{1: 6, 5: 25, 6: 25, 11: 25, 30: 35, 36: 55} {
		if got := s.until(from*sec, 5*time.Second); got != want*sec {
			t.Errorf("until(%d): %d, want %d", from, got/sec, want)
		}
	}
	for to, want := range map[int64]int64{5: 0, 11: 5, 17: 5, 25: 5, 30: 25, 52: 35} {
		if got := s.since(to*sec, 5*time.Second); got != want*sec {
			t.Errorf("since(%d): %d, want %d", to, got/sec, want)
		}
	}
}
