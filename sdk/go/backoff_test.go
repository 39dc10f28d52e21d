package parley

import (
	"context"
	"math"
	"testing"
	"time"
)

// TestBackoffFullJitter checks that the waits have full jitter: uniform in [0, bound], with a bound
// that doubles and is capped before the draw. Jitter before the cap would accumulate at the cap.
// Jitter around the bound would leave the lower half empty.
func TestBackoffFullJitter(t *testing.T) {
	t.Parallel()
	b := Backoff{Base: 100 * time.Millisecond, Max: time.Second}
	for failures, bound := range map[int]time.Duration{
		0: 100 * time.Millisecond, 1: 200 * time.Millisecond, 3: 800 * time.Millisecond, 4: time.Second, 5: time.Second,
		1000: time.Second,
	} {
		const draws, bins = 20_000, 10
		var count [bins + 1]int
		var sum float64
		for range draws {
			wait := b.wait(failures, 0)
			if wait < 0 || wait > bound {
				t.Fatalf("after %d failures: wait %s is outside [0, %s]", failures, wait, bound)
			}
			count[int(float64(wait)/float64(bound)*bins)]++
			sum += float64(wait)
		}
		for bin := range bins {
			// Each bin is expected to hold 2000 draws, with a standard deviation of 42.
			if got := count[bin]; math.Abs(float64(got)-draws/bins) > 300 {
				t.Errorf("after %d failures: bin %d of %d holds %d of %d draws: not uniform", failures, bin, bins, got, draws)
			}
		}
		if mean := sum / draws / float64(bound); math.Abs(mean-0.5) > 0.02 {
			t.Errorf("after %d failures: mean is %.3f of the bound, want 0.5", failures, mean)
		}
	}
}

func TestBackoffRetryAfterIsALowerBound(t *testing.T) {
	t.Parallel()
	b := Backoff{Base: 10 * time.Millisecond, Max: time.Second}
	spread := make(map[time.Duration]bool)
	for range 1000 {
		wait := b.wait(0, time.Minute)
		if wait < time.Minute || wait > time.Minute+10*time.Millisecond {
			t.Fatalf("wait %s, want a minute and up to 10 ms", wait)
		}
		spread[wait] = true
	}
	if len(spread) < 100 {
		t.Errorf("%d different waits of 1000: clients with the same retry_after reconnect together", len(spread))
	}
}

func TestBackoffDefaults(t *testing.T) {
	t.Parallel()
	if got, want := (Backoff{}).withDefaults(), (Backoff{Base: 200 * time.Millisecond, Max: 10 * time.Second}); got != want {
		t.Errorf("defaults are %+v, want %+v", got, want)
	}
	if got := (Backoff{Base: time.Second, Max: math.MaxInt64}).bound(200); got != math.MaxInt64 {
		t.Errorf("bound overflowed to %d", got)
	}
}

// TestPacerFailsOverWithoutWait ends streams that were live for a second, each time with another
// node to go to. The client must open the next stream without a wait.
func TestPacerFailsOverWithoutWait(t *testing.T) {
	t.Parallel()
	c := &Client{backoff: Backoff{Base: time.Hour, Max: time.Hour}, tokens: &tokens{}}
	var p pacer
	for range 10 {
		if wait, again := p.next(c, streamEnd{err: errNoReason, liveFor: usefulAfter, failsOver: true}); wait != 0 || !again {
			t.Fatalf("waits %s, again %v; want no wait", wait, again)
		}
	}
	if wait, _ := p.next(c, streamEnd{err: errNoReason, liveFor: usefulAfter}); wait == 0 {
		t.Errorf("no wait before the next stream at the same node")
	}
}

// TestPacerBoundsReconnectRate ends each stream after 1 ms, in ways after which one stream may open
// without a wait. The following ones must wait nevertheless.
func TestPacerBoundsReconnectRate(t *testing.T) {
	t.Parallel()
	c := &Client{
		backoff: Backoff{Base: 100 * time.Millisecond, Max: time.Second},
		tokens:  &tokens{source: func(context.Context) (string, error) { return "t", nil }},
	}
	none := time.Duration(0)
	for name, end := range map[string]streamEnd{
		"advice":  {advice: &none, liveFor: time.Millisecond},
		"token":   {err: &Error{Code: 16, Reason: 105, Retryable: true}, token: "t", liveFor: time.Millisecond},
		"dropped": {err: errNoReason, liveFor: time.Millisecond},
		"moving":  {err: errNoReason, liveFor: time.Millisecond, failsOver: true},
	} {
		var p pacer
		var total time.Duration
		for range 30 {
			wait, again := p.next(c, end)
			if !again {
				t.Fatalf("%s: ended", name)
			}
			total += wait
		}
		// With full jitter up to a second, 30 waits take about 13 s in total.
		if total < 4*time.Second {
			t.Errorf("%s: 30 reconnects within %s", name, total)
		}
	}
}
