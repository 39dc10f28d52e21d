package produce_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/parleyhq/parley/server/internal/fault"
	"github.com/parleyhq/parley/server/internal/queue/produce"
	"github.com/parleyhq/parley/server/internal/queue/qlog"
	"github.com/parleyhq/parley/server/internal/testkit"
)

// due moves the scheduled messages that are due within a second to the log.
func (b *bench) due(partition int) {
	b.t.Helper()
	testkit.Eventually(b.t, 10*time.Second, func() error {
		_, next, err := b.store.Due(b.t.Context(), b.topic().Ref(partition))
		if err == nil && next < time.Second {
			err = fmt.Errorf("the next message is due in %s", next)
		}
		return err
	})
}

func TestCancel(t *testing.T) {
	t.Parallel()
	b := newBench(t, 4, nil)
	later := func(d time.Duration) []produce.Message {
		all := messages(20, 20)
		for i := range all {
			all[i].Delay = d
		}
		return all
	}
	scheduled := b.stored(produce.Request{Messages: later(time.Hour)})
	if n := len(b.hints.take()); n != 0 {
		t.Errorf("hints of %d partitions for scheduled messages", n)
	}
	soon := b.stored(produce.Request{Messages: later(time.Millisecond)[:4]})
	now := b.stored(produce.Request{Messages: messages(4, 4)})
	for _, r := range soon {
		b.due(r.Partition)
	}
	running := fault.New(fault.FailedPrecondition, "MESSAGE_RUNNING", "a handler has begun the message")
	b.fate.errs[now[1].MessageID] = running
	ids := []string{
		scheduled[0].MessageID, scheduled[1].MessageID, scheduled[2].MessageID, now[0].MessageID, now[1].MessageID,
		soon[0].MessageID, soon[1].MessageID, "0-17d", "99-17", "nonsense", "",
	}
	out, err := b.Cancel(t.Context(), "orders", ids)
	b.check(err)
	for i, want := range []fault.Reason{"", "", "", "", "MESSAGE_RUNNING", "", "", fault.MessageNotFound, fault.MessageNotFound, fault.MessageNotFound, fault.MessageNotFound} {
		if reason(out[i].Err) != want {
			t.Errorf("message %q: %v, want %s", ids[i], out[i].Err, want)
		}
	}
	// Those that moved to the log are cancelled there, by their ID in the log.
	inLog := map[string]bool{now[0].MessageID: true, now[1].MessageID: true}
	for p := range 4 {
		entries := b.log(p)
		for i := range entries {
			if id := entries[i].MessageID; id == soon[0].MessageID || id == soon[1].MessageID {
				inLog[qlog.MessageID(p, entries[i].ID, false)] = true
			}
		}
	}
	if len(inLog) != 4 || fmt.Sprint(b.fate.cancelled) != fmt.Sprint(inLog) {
		t.Errorf("cancelled in the log: %v, want %v", b.fate.cancelled, inLog)
	}
	again, err := b.Cancel(t.Context(), "orders", ids[:3])
	b.check(err)
	for i := range again {
		if reason(again[i].Err) != fault.MessageNotFound {
			t.Errorf("cancelled once more: %v", again[i].Err)
		}
	}
}

func TestReschedule(t *testing.T) {
	t.Parallel()
	b := newBench(t, 2, nil)
	later := produce.Message{Key: "a", Delay: time.Hour}
	scheduled := b.stored(produce.Request{Messages: []produce.Message{later, later, {Key: "c", Delay: time.Hour}}})
	now := b.stored(produce.Request{Messages: []produce.Message{{Key: "a"}}})
	ids := []string{scheduled[0].MessageID, now[0].MessageID, scheduled[2].MessageID, "0-1d"}
	before := time.Now()
	out, err := b.Reschedule(t.Context(), "orders", ids, 2*time.Hour, time.Time{})
	b.check(err)
	for i, want := range []fault.Reason{"", fault.ScheduledNotFound, "", fault.ScheduledNotFound} {
		if reason(out[i].Err) != want {
			t.Errorf("message %q: %v, want %s", ids[i], out[i].Err, want)
		}
		if ok := out[i].Due.After(before.Add(2*time.Hour - time.Minute)); want == "" && !ok {
			t.Errorf("message %q is due at %s", ids[i], out[i].Due)
		}
	}
	out, err = b.Reschedule(t.Context(), "orders", ids[:1], 0, time.Now().Add(qlog.MaxDelay+time.Hour))
	b.check(err)
	if f, ok := fault.As(out[0].Err); !ok || f.Field != "deliver_at" {
		t.Errorf("too far ahead: %v", out[0].Err)
	}
	if _, err = b.Reschedule(t.Context(), "orders", ids[:1], -1, time.Time{}); reason(err) != fault.InvalidField {
		t.Errorf("a negative delay: %v", err)
	}
	if _, err = b.Reschedule(t.Context(), "orders", ids[:1], 0, time.Unix(1, 0)); err != nil {
		t.Fatal(err)
	}
	b.due(scheduled[0].Partition)
	out, err = b.Reschedule(t.Context(), "orders", ids[:1], time.Hour, time.Time{})
	b.check(err)
	if reason(out[0].Err) != fault.ScheduledNotFound {
		t.Errorf("a message that was due: %v", out[0].Err)
	}
}

func TestFaultsOfChanges(t *testing.T) {
	t.Parallel()
	b := newBench(t, 1, nil)
	r := b.stored(produce.Request{Messages: []produce.Message{{Delay: time.Hour}, {}}})
	ids := []string{r[0].MessageID, r[1].MessageID}
	call := func(topic string, ids []string, want fault.Reason) {
		t.Helper()
		if _, err := b.Cancel(t.Context(), topic, ids); reason(err) != want {
			t.Errorf("%s: %v, want %s", topic, err, want)
		}
	}
	call("nothing", ids, fault.TopicNotFound)
	call("__own", ids, fault.InvalidField)
	call("orders", make([]string, 1001), fault.InvalidField)
	// A lost partition is restored. Its scheduled messages are in other keys.
	b.check(b.client.Del(t.Context(), b.prefix+"stream:topic:{orders:0}:meta").Err())
	call("orders", ids, "")
	if b.topics.healed != 1 {
		t.Errorf("%d partitions were restored", b.topics.healed)
	}
	alone := produce.New(produce.Config{Store: b.store, Topics: b.topics})
	out, err := alone.Cancel(t.Context(), "orders", ids)
	b.check(err)
	if reason(out[1].Err) != fault.UnimplementedCall {
		t.Errorf("without a canceller: %v", out[1].Err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := b.Cancel(ctx, "orders", ids[:1]); reason(err) == "" {
		t.Errorf("a call that was given up: %v", err)
	}
	_ = b.client.Close()
	call("orders", ids[:1], fault.StoreUnavailable)
}
