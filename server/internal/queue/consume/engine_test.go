package consume

import (
	"testing"
	"time"

	"github.com/parleyhq/parley/server/internal/fault"
	"github.com/parleyhq/parley/server/internal/queue/dispatch"
)

// TestUnsettledStaysHeld: an ack that no lease holder took leaves the delivery with its session, so that
// the next holder is told of it.
func TestUnsettledStaysHeld(t *testing.T) {
	t.Parallel()
	e := newEngine(nil, "work", nil)
	token := Token{"orders", 0, 1, 1}
	s := &session{id: "s", held: map[Token]*heldDelivery{token: {}}}
	e.sessions[s.id] = s
	c := newCall(1)
	e.settle(time.Now(), s.id, []Settlement{{Token: token, Verdict: dispatch.Ack}}, c)
	results, err := c.wait(t.Context())
	if err != nil || !fault.Is(results[0], fault.StoreUnavailable) {
		t.Fatalf("without a holder: %v, %v", results, err)
	}
	if s.held[token] == nil {
		t.Error("the session does not have the delivery any more")
	}
}
