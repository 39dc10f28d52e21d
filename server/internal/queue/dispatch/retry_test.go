package dispatch

import (
	"testing"
	"time"

	"github.com/parleyhq/parley/server/internal/queue/qlog"
)

// TestRetryBeforeItIsRead: a new holder, as of a group without consumers, has read no entries when it
// is asked to make a retry due.
func TestRetryBeforeItIsRead(t *testing.T) {
	t.Parallel()
	first := qlog.Pos{ID: 1, Ord: 1}
	rows := map[qlog.ID]qlog.Row{1: {State: qlog.RowRetrying, Gen: 1, Attempts: 1, Due: at(600_000)}}
	cfg := Config{Group: "g", MaxAttempts: 9, AckTimeout: time.Minute, MaxRunTime: time.Hour, Random: func(int64) int64 { return 0 }}
	state := qlog.State{Epoch: 1, Sent: first, Last: first, Released: true}
	d, err := New(cfg, state, map[int64]string{0: qlog.FormatRanges([]int64{1})}, rows, at(0))
	if err != nil {
		t.Fatal(err)
	}
	k := &desk{t: t, d: d, now: at(0), last: first, dead: map[qlog.ID]qlog.DeadLetter{}}
	if !d.Retry(k.now, 1) || d.Retry(k.now, 2) {
		t.Error("want true for the message that waits for a retry, false for another one")
	}
	d.Step(k.now)
	if err := d.Entries(k.now, []qlog.Entry{{Pos: first, MessageID: "0-1", Body: []byte("x"), ProducedAt: k.now}}); err != nil {
		t.Fatal(err)
	}
	out := d.Step(k.now)
	if out.Commit == nil || out.Commit.Rows[1].State != qlog.RowWaiting {
		t.Fatalf("the commit is %+v, want one that keeps that the message waits", out.Commit)
	}
	d.Committed(k.now, qlog.Committed{Last: k.last})
	d.Attach(Session{ID: "a", Concurrency: 1, MaxInFlight: 1, MaxBytes: 1 << 20})
	if sent := k.step(); len(sent) != 1 || sent[0].Attempt != 2 {
		t.Errorf("sent %+v, want attempt 2", sent)
	}
}
