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
	e := newEngine(New(Config{}), "work", nil)
	token := Token{"orders", 0, 1, 1}
	s := &session{SessionProfile: SessionProfile{ID: "s"}, held: map[Token]*heldDelivery{token: {}}}
	e.sessions[s.ID] = s
	c := newCall(1)
	now := time.Now()
	e.settle(now, s.ID, "", []Settlement{{Token: token, Verdict: dispatch.Ack}}, c)
	later := now.Add(routeTime)
	e.topic("orders").wake(later) // its time is over
	<-c.finished
	if !fault.Is(c.results[0], fault.StoreUnavailable) {
		t.Fatalf("without a holder: %v", c.results)
	}
	if s.held[token] == nil {
		t.Error("the session does not have the delivery any more")
	}
}
