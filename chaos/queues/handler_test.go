package queues

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/parleyhq/parley/chaos"
	parley "github.com/parleyhq/parley/sdk/go"
	"github.com/parleyhq/parley/sdk/go/parleytest"
	"github.com/parleyhq/parley/sdk/go/queue"
)

// TestHandleRecords runs the SDK's Worker on messages of every kind, and requires that the history
// has all its calls and their answers.
func TestHandleRecords(t *testing.T) {
	t.Parallel()
	for _, bidi := range []bool{true, false} {
		t.Run(fmt.Sprintf("bidi=%v", bidi), func(t *testing.T) {
			t.Parallel()
			s := parleytest.Start(t)
			s.AddTopic(jobs, 2, "a")
			c, err := parley.New(s.Addr(), parley.WithToken("tester"))
			if err != nil {
				t.Fatal(err)
			}
			defer c.Close()
			var messages []queue.Message
			for i, kind := range []string{good, good, twice, bury, hand, good, reject} {
				mark := newMark(kind, "p", i)
				messages = append(messages, queue.Message{Key: fmt.Sprintf("k%d", i%2), Payload: []byte(mark + "|")})
			}
			if _, err := queue.NewProducer(c, jobs).Produce(t.Context(), messages...); err != nil {
				t.Fatal(err)
			}
			h := handleAll(t, s, bidi)
			judged := newChecker(h, new(Truth))
			judged.checkHandlers()
			for _, v := range judged.Violations() {
				t.Error(v)
			}
			checkRecord(t, h, s.Acked(jobs, "a"))
		})
	}
}

// handleAll consumes through the SDK's Worker until no message is left, and returns the history.
func handleAll(t *testing.T, s *parleytest.Server, bidi bool) *History {
	t.Helper()
	rec, err := NewRecorder("")
	if err != nil {
		t.Fatal(err)
	}
	rec.write(line{Worker: "w"})
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	done := make(chan error, 1)
	go func() {
		done <- handle(ctx, Consumer{
			Name: "w-1", Addrs: []string{s.Addr()}, Token: "tester", Topic: jobs, Group: "a", Bidi: bidi, Work: time.Millisecond,
		}, rec)
	}()
	for deadline := time.Now().Add(20 * time.Second); s.Unsettled(jobs, "a") > 0; <-time.After(2 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("%d are left", s.Unsettled(jobs, "a"))
		}
	}
	stop()
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	h, err := rec.Close()
	if err != nil {
		t.Fatal(err)
	}
	return h
}

// checkRecord checks that each delivery was recorded once, with its settlement, and that as many
// messages as given were acknowledged.
func checkRecord(t *testing.T, h *History, acked int) {
	t.Helper()
	ended, acks := make(map[string]int), 0
	for i := range h.Ops {
		op := &h.Ops[i]
		// On a slow machine an extension may be answered after the settlement that follows it.
		late := op.Kind == Extend && op.Reason == "ALREADY_SETTLED"
		if op.Outcome != chaos.OK && !late || op.Client != "w-1" || op.Mark == "" || op.Stream == "" || op.Addr == "" {
			t.Errorf("an op is %+v", op)
		}
		if op.Kind.settles() {
			ended[op.Token]++
		}
		acks += int(one(op.Kind == Ack))
		if kind := kindOf(op.Mark); op.Kind.settles() && op.Dead != (kind == bury || kind == reject) {
			t.Errorf("an op of %s has dead %v", op.Mark, op.Dead)
		}
	}
	for i := range h.Deliveries {
		if d := &h.Deliveries[i]; ended[d.Token] != 1 {
			t.Errorf("%s was ended %d times", d.Mark, ended[d.Token])
		}
	}
	if acks != acked || acked == 0 || len(ended) != len(h.Deliveries) || len(h.Handled) != len(h.Deliveries) {
		t.Errorf("%d acks recorded, %d made; %d deliveries, %d ended, %d handled", acks, acked, len(h.Deliveries), len(ended), len(h.Handled))
	}
	if len(h.Streams) != 1 || h.Streams[0].End == 0 || h.Streams[0].ID == "" {
		t.Errorf("streams are %+v", h.Streams)
	}
	if len(h.Failures) != 0 {
		t.Errorf("failures are %+v", h.Failures)
	}
}
