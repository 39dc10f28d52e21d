package queue_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"testing"
	"time"

	"github.com/parleyhq/parley/server/internal/fault"
	"github.com/parleyhq/parley/server/internal/lifecycle/lifecycletest"
	"github.com/parleyhq/parley/server/internal/queue"
	"github.com/parleyhq/parley/server/internal/testkit"
)

func TestConsumeDeliversInOrderAndAcks(t *testing.T) {
	t.Parallel()
	r := newHubRig(t, 4, nil)
	for p := range 4 {
		r.produce(p, fmt.Sprint("k", p), 0, 300)
	}
	c := r.open(r.hub(nil), func(o *queue.OpenRequest) { o.MaxMessages = 5000 })
	all := c.wait(1200)
	next := map[int]int{}
	for _, d := range all {
		if got := string(d.Payload); got != fmt.Sprint(next[d.Partition]) || d.Attempt != 1 {
			t.Fatalf("partition %d gave %s/%d, not %d/1", d.Partition, got, d.Attempt, next[d.Partition])
		}
		next[d.Partition]++
	}
	c.owns(4)
	for len(all) > 0 {
		n := min(len(all), 1000)
		c.ack(all[:n]...)
		all = all[n:]
	}
	for p := range 4 {
		if s := r.groupStats(p); s.Acked != 300 || s.Pending != 0 {
			t.Fatalf("%+v", s)
		}
	}
}

func TestCreditsAreExact(t *testing.T) {
	t.Parallel()
	r := newHubRig(t, 3, nil)
	for p := range 3 {
		r.produce(p, "k", 0, 200)
	}
	h := r.hub(nil)
	c := r.open(h, func(o *queue.OpenRequest) { o.MaxMessages = 10 })
	total := 10
	for range 5 {
		c.wait(total)
		// Acks are not credits.
		c.ack(c.got()[total-5:]...)
		if n := len(c.got()); n != total {
			t.Fatalf("%d messages came on %d credits", n, total)
		}
		total += 7
		r.must(c.grant(int64(total), 1))
		r.must(c.grant(3, 1))
	}
	c.wait(total)
	byPartition := map[int]int{}
	for _, d := range c.got() {
		byPartition[d.Partition]++
	}
	for p := range 3 {
		if byPartition[p] < total/6 {
			t.Fatalf("partitions had no fair turns: %v of %d", byPartition, total)
		}
	}
	if err := c.grant(int64(total)+queue.MaxCredits+1, 1); !fault.Is(err, fault.InvalidField) {
		t.Fatalf("too many credits: %v", err)
	}
}

func TestBytesAreCredits(t *testing.T) {
	t.Parallel()
	r := newHubRig(t, 1, nil)
	r.produce(0, "", 10, 90) // of 2 bytes each
	c := r.open(r.hub(nil), func(o *queue.OpenRequest) { o.MaxBytes = 9 })
	c.wait(4)
	c.ack(c.got()[:3]...)
	if n := len(c.got()); n != 4 {
		t.Fatalf("%d messages of 2 bytes came on 9 bytes", n)
	}
	// A message larger than what is left goes once nothing is in flight.
	c.ack(c.got()[3])
	c.wait(5)
}

func TestSessionSettles(t *testing.T) {
	t.Parallel()
	r := newHubRig(t, 1, nil)
	r.produce(0, "k", 0, 6)
	c := r.open(r.hub(nil))
	d := c.wait(6)
	later := func(i *queue.Nack) { i.Delay = new(time.Hour); i.Reason = "busy" }
	dead := func(i *queue.Nack) { i.DeadLetter = true }
	none := fault.Reason("")

	r.want(none, c.tryAck(d[0], d[0]))
	r.want(none, c.tryAck(d[0]))
	r.want(fault.AlreadySettled, c.tryNack(later, d[0]))
	r.want(fault.AlreadySettled, c.tryExtend(d[0]))

	r.want(none, c.tryNack(later, d[1]))
	r.want(none, c.tryNack(later, d[1]))
	r.want(fault.AlreadySettled, c.tryAck(d[1]))

	r.want(none, c.tryNack(dead, d[2]))
	r.want(none, c.tryExtend(d[3]))
	r.want(fault.DeliveryTokenInvalid, c.tryAck(queue.Delivery{Token: "nonsense"}))

	foreign := c.ref()
	foreign.Subject = "bob"
	errs, err := c.hub.Ack(t.Context(), foreign, []string{d[3].Token})
	r.must(err)
	r.want(fault.LeaseLost, errs)
	foreign.Subject, foreign.Group = "anna", "others"
	errs, err = c.hub.Ack(t.Context(), foreign, []string{d[3].Token})
	r.must(err)
	r.want(fault.DeliveryTokenInvalid, errs)

	if s := r.groupStats(0); s.Acked != 1 || s.Retried != 1 || s.Dead != 1 || s.Pending != 3 {
		t.Fatalf("%+v", s)
	}
}

// Released messages come again in their place, before newer ones, as the same attempt; the old token does nothing to them.
func TestReleaseKeepsPlaceAndAttempt(t *testing.T) {
	t.Parallel()
	r := newHubRig(t, 1, nil)
	r.produce(0, "k", 0, 10)
	h := r.hub(nil)
	c := r.open(h, func(o *queue.OpenRequest) { o.MaxMessages = 4 })
	d := c.wait(4)
	c.release(d[1], d[2])
	r.want("", c.tryNack(func(i *queue.Nack) { i.Release = true }, d[1]))
	r.must(c.grant(100, 1))
	c.wait(12)
	r.same(texts(c.got()[4:]), numbered(1, 2, 1)+" "+numbered(4, 6, 1))
	r.want(fault.AlreadySettled, c.tryAck(d[1]))
	c.ack(c.got()[4])
}

func TestTakeoverGivesPendingFirstInOrder(t *testing.T) {
	t.Parallel()
	r := newHubRig(t, 1, nil)
	r.produce(0, "k", 0, 20)
	a := r.open(r.hub(nil), func(o *queue.OpenRequest) { o.MaxMessages = 10 })
	d := a.wait(10)
	a.ack(d[1], d[4])
	a.s.Close()
	b := r.open(r.hub(nil))
	b.wait(18)
	r.same(texts(b.got()), "0/2 2/2 3/2 "+numbered(5, 5, 2)+" "+numbered(10, 10, 1))
	r.want(fault.LeaseLost, a.tryAck(d[0]))
	if s := r.groupStats(0); s.Acked != 2 {
		t.Fatalf("%+v", s)
	}
}

// What was read and never sent is not an attempt.
func TestUnsentIsReleased(t *testing.T) {
	t.Parallel()
	r := newHubRig(t, 1, nil)
	r.produce(0, "", 10, 50)
	a := r.open(r.hub(nil), func(o *queue.OpenRequest) { o.MaxBytes = 9 })
	a.wait(4)
	testkit.Eventually(t, soon, func() error {
		if s := r.groupStats(0); s.Pending < 5 {
			return fmt.Errorf("%d pending", s.Pending)
		}
		return nil
	})
	a.s.Close()
	b := r.open(r.hub(nil))
	b.wait(50)
	r.same(texts(b.got()), numbered(10, 4, 2)+" "+numbered(14, 46, 1))
}

func TestAckTimeoutEndsTheSession(t *testing.T) {
	t.Parallel()
	r := newHubRig(t, 1, nil)
	r.produce(0, "k", 0, 5)
	h := r.hub(nil)
	a := r.open(h, func(o *queue.OpenRequest) { o.AckTimeout = time.Second })
	d := a.wait(5)
	a.ack(d[0])
	began := time.Now()
	r.want("", a.tryExtend(d[1:]...))
	b := r.open(h)
	if got := a.ends(); got != fault.AckTimeout {
		t.Fatalf("it ended with %s", got)
	}
	if took := time.Since(began); took < 900*time.Millisecond {
		t.Fatalf("it ended %s after an extension", took)
	}
	b.wait(4)
	r.same(texts(b.got()), numbered(1, 4, 2))
	r.want(fault.LeaseLost, a.tryAck(d[1]))
	r.want(fault.LeaseLost, a.tryExtend(d[1]))
}

func TestLostConsumersUseUpAttempts(t *testing.T) {
	t.Parallel()
	r := newHubRig(t, 1, func(topic *queue.Topic) { topic.Retry.MaxAttempts = 2 })
	r.produce(0, "k", 0, 1)
	h := r.hub(nil)
	for attempt := range 2 {
		c := r.open(h)
		r.same(texts(c.wait(1)), numbered(0, 1, attempt+1))
		c.s.Close()
	}
	r.produce(0, "k", 1, 1)
	c := r.open(h)
	r.same(texts(c.wait(1)), "1/1")
	testkit.Eventually(t, soon, func() error { // it is settled beside what is delivered
		letters, _, _, err := r.store.DeadLetters(t.Context(), r.topic.Ref(0), group, queue.EntryID{}, 10)
		if err == nil && (len(letters) != 1 || letters[0].Attempts != 2 || letters[0].Reason != "the consumer was lost, and no attempt of 2 is left") {
			err = fmt.Errorf("%+v", letters)
		}
		return err
	})
}

func TestNewcomerGetsItsShare(t *testing.T) {
	t.Parallel()
	r := newHubRig(t, 8, nil)
	h1, h2 := r.hub(nil), r.hub(nil)
	a := r.open(h1)
	a.owns(8)
	for p := range 8 {
		r.produce(p, "k", 0, 1)
	}
	d := a.wait(8)
	b := r.open(h2)
	// What is in flight is let finish before its partition moves.
	a.ack(d[:6]...)
	b.owns(4)
	a.owns(4)
	a.ack(d[6:]...)
	c := r.open(h1)
	c.owns(2)
	a.owns(3)
	b.owns(3)
	if got := len(b.got()) + len(c.got()); got != 0 {
		t.Fatalf("%d messages came twice", got)
	}
	// Within their shares nobody gave anything up.
	kept := a.has()
	b.s.Close()
	a.owns(4)
	c.owns(4)
	for _, p := range kept {
		found := false
		for _, q := range a.has() {
			found = found || p == q
		}
		if !found {
			t.Fatalf("partition %d moved for no reason", p)
		}
	}
}

// More members than partitions: whoever has none is told so.
func TestIdleMemberIsTold(t *testing.T) {
	t.Parallel()
	r := newHubRig(t, 1, nil)
	h := r.hub(nil)
	a := r.open(h)
	a.owns(1)
	b := r.open(h)
	b.owns(0)
	a.s.Close()
	b.owns(1)
}

func TestDrainHandsBack(t *testing.T) {
	t.Parallel()
	r := newHubRig(t, 2, nil)
	h1, h2 := r.hub(nil), r.hub(nil)
	a := r.open(h1)
	a.owns(2)
	r.produce(0, "k", 0, 3)
	r.produce(1, "k", 10, 1)
	d := a.wait(4)
	b := r.open(h2)
	drained := make(chan error, 1)
	go func() { drained <- h1.Drain(context.WithoutCancel(t.Context()), time.Hour) }()
	testkit.Eventually(t, soon, func() error {
		if _, err := h1.Open(t.Context(), r.request()); !fault.Is(err, fault.ShuttingDown) {
			return fmt.Errorf("a hub that drains opened: %w", err)
		}
		return nil
	})
	// What it holds can be settled; nothing new comes.
	a.ack(d...)
	if got := a.ends(); got != fault.ShuttingDown {
		t.Fatalf("it ended with %s", got)
	}
	r.must(<-drained)
	b.owns(2)
	r.produce(0, "k", 3, 1)
	r.same(texts(b.wait(1)), "3/1")
}

// TestLeave has a consumer leave that holds messages: it gets no more, what it releases does not count as tried, and its stream ends in
// peace once all are settled.
func TestLeave(t *testing.T) {
	t.Parallel()
	r := newHubRig(t, 2, nil)
	h := r.hub(nil)
	r.produce(0, "k", 0, 3)
	a := r.open(h)
	a.owns(2)
	held := a.wait(3)
	a.leave()
	a.leave()
	// The partition of which it holds nothing moves at once; the other one when all is settled.
	b := r.open(h)
	r.produce(0, "k", 3, 2)
	r.produce(1, "k", 10, 1)
	r.same(texts(b.wait(1)), "10/1")
	a.ack(held[:2]...)
	a.release(held[2])
	<-a.done
	if !errors.Is(a.err, io.EOF) {
		t.Fatalf("it ended with %v", a.err)
	}
	r.same(texts(b.wait(4)), "10/1 2/1 3/1 4/1")
	r.same(texts(a.got()), "0/1 1/1 2/1")
}

func TestDrainEndsWithin(t *testing.T) {
	t.Parallel()
	r := newHubRig(t, 1, nil)
	h := r.hub(nil)
	r.produce(0, "k", 0, 3)
	a := r.open(h)
	a.wait(3)
	r.must(h.Drain(t.Context(), time.Millisecond))
	if got := a.ends(); got != fault.ShuttingDown {
		t.Fatalf("it ended with %s", got)
	}
	b := r.open(r.hub(nil))
	r.same(texts(b.wait(3)), numbered(0, 3, 2))
}

func TestOpenRefuses(t *testing.T) {
	t.Parallel()
	r := newHubRig(t, 1, nil)
	h := r.hub(nil, func(c *queue.HubConfig) { c.MaxSessions, c.MaxSessionsPerSubject = 3, 2 })
	as := func(subject, topic, group string) error {
		req := r.request()
		req.Subject, req.Topic, req.Group = subject, topic, group
		s, err := h.Open(t.Context(), req)
		if err == nil {
			t.Cleanup(s.Close)
		}
		return err
	}
	if err := as("a", "jobs", "typo"); !fault.Is(err, fault.GroupNotFound) {
		t.Fatal(err)
	}
	if err := as("a", "typo", group); !fault.Is(err, fault.TopicNotFound) {
		t.Fatal(err)
	}
	r.must(as("a", "jobs", group))
	r.must(as("a", "jobs", group))
	if err := as("a", "jobs", group); !fault.Is(err, fault.NodeFull) {
		t.Fatal(err)
	}
	r.must(as("b", "jobs", group))
	// Another node may have room.
	full := as("c", "jobs", group)
	if f, _ := fault.As(full); f == nil || f.Kind != fault.ResourceExhausted || f.Reason != fault.NodeFull || f.Limit != 3 || !f.Retryable() {
		t.Fatal(full)
	}
}

func TestTopicsEndAndPause(t *testing.T) {
	t.Parallel()
	r := newHubRig(t, 1, nil)
	h := r.hub(nil)
	c := r.open(h, func(o *queue.OpenRequest) { o.Expires = time.Now().Add(time.Hour) })
	c.owns(1)
	pause := func(paused bool) {
		r.update(func(topic *queue.Topic) { topic.ConsumePaused = paused })
		r.must(r.store.MakePartition(t.Context(), r.topic, 0))
	}
	pause(true)
	r.produce(0, "k", 0, 1)
	pause(false)
	c.ack(c.wait(1)...)
	r.update(func(topic *queue.Topic) { topic.Groups = nil })
	if got := c.ends(); got != fault.GroupNotFound {
		t.Fatalf("it ended with %s", got)
	}
}

func TestTokensEnd(t *testing.T) {
	t.Parallel()
	r := newHubRig(t, 1, nil)
	h := r.hub(nil, func(c *queue.HubConfig) { c.HeartbeatInterval = 50 * time.Millisecond })
	c := r.open(h, func(o *queue.OpenRequest) { o.Expires = time.Now().Add(700 * time.Millisecond) })
	if got := c.ends(); got != fault.TokenExpired {
		t.Fatalf("it ended with %s", got)
	}
	if c.beats == 0 {
		t.Fatal("no heartbeat came")
	}
}

// What waits to be sent does not overtake what is released.
func TestReleaseGoesBeforeWhatWaits(t *testing.T) {
	t.Parallel()
	r := newHubRig(t, 1, nil)
	r.produce(0, "", 10, 30) // of 2 bytes each
	c := r.open(r.hub(nil), func(o *queue.OpenRequest) { o.MaxBytes = 9 })
	d := c.wait(4)
	testkit.Eventually(t, soon, func() error {
		if s := r.groupStats(0); s.Pending < 5 {
			return fmt.Errorf("%d pending", s.Pending)
		}
		return nil
	})
	c.release(d[1], d[2])
	r.must(c.grant(1000, 1000))
	c.wait(32)
	r.same(texts(c.got()[4:]), numbered(11, 2, 1)+" "+numbered(14, 26, 1))
}

// Partitions change hands because they are handed over, long before a lease could end by itself.
func TestHandingOverDoesNotWaitForLeases(t *testing.T) {
	t.Parallel()
	r := newHubRig(t, 4, nil)
	long := func(c *queue.HubConfig) { c.LeaseTTL = time.Hour }
	h1, h2 := r.hub(nil, long), r.hub(nil, long)
	a := r.open(h1)
	a.owns(4)
	b := r.open(h2)
	b.owns(2)
	a.s.Close()
	b.owns(4)
	c := r.open(h1)
	c.owns(2)
	lifecycletest.Stop(t, h2)
	c.owns(4)
}
