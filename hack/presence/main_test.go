package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/parleyhq/parley/hack/internal/logtest"
	"github.com/parleyhq/parley/internal/rig"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// madeUp returns a log of an hour, in which a few dozen nicks speak, join, leave and change their
// names.
func madeUp(rng *rand.Rand) string {
	var b strings.Builder
	for i := range 300 {
		nick := fmt.Sprintf("nick[%d]", rng.IntN(60))
		switch rng.IntN(5) {
		case 0:
			fmt.Fprintf(&b, "=== %s [n=x@host]  has joined #ubuntu\n", nick)
		case 1:
			fmt.Fprintf(&b, "=== %s [n=x@host]  has left #ubuntu []\n", nick)
		case 2:
			fmt.Fprintf(&b, "=== %s is now known as %s\n", nick, fmt.Sprintf("nick[%d]", rng.IntN(60)))
		default:
			fmt.Fprintf(&b, "[10:%02d] <%s> line %d\n", i/5, nick, i)
		}
	}
	return b.String()
}

// TestRun checks that a short run with made-up logs injects each fault, and that nothing is wrong.
func TestRun(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	defer cancel()
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	rng := rand.New(rand.NewPCG(seed, 0))
	f := &flags{
		Data:  writeLogs(t, map[string]string{"2005-02-08.x": madeUp(rng), "2005-02-09.x": madeUp(rng), "2005-02-10.x": madeUp(rng)}),
		Speed: 1000, Stop: 6 * time.Second, Lease: 5 * time.Second, Settle: 30 * time.Second,
		Log: "warn", Away: 5 * time.Second, Out: 10 * time.Second, Thefts: 40, Seed: seed,
	}
	out := logtest.New(t)
	options := rig.Options{MongoMembers: 1, NATSServers: 1, Binary: os.Getenv("PARLEYD")}
	r, err := run(ctx, f, options, out)
	if err != nil {
		t.Fatal(err)
	}
	if r.checkpoints != parts || r.faults != 8 {
		t.Errorf("%d checkpoints and %d faults", r.checkpoints, r.faults)
	}
	lines := strings.Split(strings.TrimSpace(out.String()), "\n")
	if last := lines[len(lines)-1]; !strings.HasPrefix(last, "verdict: ok: ") {
		t.Errorf("the last line is %q", last)
	}
}
