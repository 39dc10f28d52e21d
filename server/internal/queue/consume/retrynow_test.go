package consume_test

import (
	"testing"
	"time"

	"github.com/parleyhq/parley/server/internal/queue/consume"
	"github.com/parleyhq/parley/server/internal/queue/dispatch"
	"github.com/parleyhq/parley/server/internal/queue/qlog"
)

// TestRetryNow: a message that waits for a retry is due at once, also if no node has the lease, so
// that the one that is asked takes it and has read nothing yet.
func TestRetryNow(t *testing.T) {
	t.Parallel()
	b := newBench(t, 1, 2, nil)
	b.put(0, 1, 0)
	s := b.open(b.nodes[0], 1)
	d := next(t, s)
	failed := verdicts([]consume.Delivery{d}, dispatch.Retry)
	failed[0].Delay = time.Hour
	b.settle(b.nodes[0], s, failed)
	b.stopNode(b.nodes[0], false)
	entries, err := b.store.Read(t.Context(), b.topic.Ref(0), 0, 10)
	if err != nil || len(entries) != 1 {
		t.Fatal(entries, err)
	}
	ref := qlog.GroupRef{Ref: b.topic.Ref(0), Group: "work"}
	ids := []qlog.ID{entries[0].ID, 7}
	for _, want := range []int{1, 0} {
		if n, err := b.nodes[1].Retry(t.Context(), ref, ids); n != want || err != nil {
			t.Errorf("%d are due now, %v, want %d", n, err, want)
		}
	}
	if again := next(t, b.open(b.nodes[1], 1)); again.ID != d.ID || again.Attempt != 2 {
		t.Errorf("delivered %+v", again)
	}
}
