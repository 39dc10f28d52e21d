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

// TestGoneAfterATry: an ack of a message that is settled already succeeds only if an earlier holder may
// have taken it.
func TestGoneAfterATry(t *testing.T) {
	t.Parallel()
	e := newEngine(New(Config{}), "work", nil)
	gone := settleError(dispatch.ErrGone)
	for _, test := range []struct {
		tried   bool
		verdict dispatch.Verdict
		done    bool
	}{{false, dispatch.Ack, false}, {true, dispatch.Ack, true}, {true, dispatch.Retry, false}} {
		task := &settleTask{session: "s", items: []Settlement{{Token: Token{"orders", 0, 1, 1}, Verdict: test.verdict}}}
		x := &errand{task: task, tried: test.tried}
		if err := task.over(e, x, 0, gone); (err == nil) != test.done {
			t.Errorf("%+v: %v", test, err)
		}
	}
}
