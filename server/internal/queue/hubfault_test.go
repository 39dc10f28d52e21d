package queue_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/parleyhq/parley/server/internal/fault"
	"github.com/parleyhq/parley/server/internal/queue"
	"github.com/parleyhq/parley/server/internal/testkit"
)

// A node that was stopped past its leases and wakes changes nothing, sends nothing, and is told so.
func TestStaleHolderChangesNothing(t *testing.T) {
	t.Parallel()
	r := newHubRig(t, 1, nil)
	r.produce(0, "", 10, 30)
	f := &faults{}
	a := r.open(r.hub(f), func(o *queue.OpenRequest) { o.MaxBytes = 9 })
	d := a.wait(4)
	testkit.Eventually(t, soon, func() error {
		if s := r.groupStats(0); s.Pending < 5 {
			return fmt.Errorf("%d pending", s.Pending)
		}
		return nil
	})
	f.stop()
	acked, nacked, extended := make(chan []error, 1), make(chan []error, 1), make(chan []error, 1)
	go func() { acked <- a.tryAck(d[0]) }()
	go func() { nacked <- a.tryNack(func(i *queue.Nack) { i.DeadLetter = true }, d[1]) }()

	b := r.open(r.hub(nil))
	b.wait(30)
	b.ack(b.got()[2])
	go func() { extended <- a.tryExtend(d[3]) }()
	r.must(a.grant(1000, 1000))
	f.cont()
	r.want(fault.LeaseLost, <-acked)
	r.want(fault.LeaseLost, <-nacked)
	r.want(fault.LeaseLost, <-extended)
	r.want(fault.LeaseLost, a.tryAck(d[2]))
	a.owns(0)
	if n := len(a.got()); n != 4 {
		t.Fatalf("the stale holder was sent %d messages more: %s", n-4, texts(a.got()[4:]))
	}
	if s := r.groupStats(0); s.Acked != 1 || s.Dead != 0 || s.Pending != 29 {
		t.Fatalf("%+v", s)
	}
	// All that the stale holder had read counts as an attempt: nobody released it. It comes first, and in order.
	first := b.got()
	if texts(first[:4]) != numbered(10, 4, 2) || !slices.IsSortedFunc(first, func(x, y queue.Delivery) int { return x.ID.Compare(y.ID) }) {
		t.Fatal(texts(first))
	}
	b.ack(slices.Delete(first, 2, 3)...)
}

// Whichever answer is lost, all comes once, in order, as the first attempt, and is settled once.
func TestLostAnswers(t *testing.T) {
	t.Parallel()
	for _, method := range []string{"Beat", "Leases", "Acquire", "Claim", "Fetch", "Settle", "Renew", "Free", "Leave"} {
		t.Run(method, func(t *testing.T) {
			t.Parallel()
			r := newHubRig(t, 2, nil)
			f := &faults{}
			// A group that nobody is left in leaves once.
			lost := 2
			if method == "Leave" {
				lost = 1
			}
			f.losing(method, lost)
			h := r.hub(f)
			for p := range 2 {
				r.produce(p, "k", 0, 50)
			}
			c := r.open(h, func(o *queue.OpenRequest) { o.MaxMessages = 60 })
			c.owns(2)
			for n := 0; n < 60; {
				some := c.wait(n + 1)[n:]
				n += len(some)
				c.ack(some...)
			}
			r.must(c.grant(1000, 1))
			c.wait(100)
			c.ack(c.got()[60:]...)
			if method == "Renew" {
				testkit.Eventually(t, soon, func() error {
					if n := f.left(method); n > 0 {
						return fmt.Errorf("%d answers are not yet lost", n)
					}
					return nil
				})
			}
			c.s.Close()
			r.open(r.hub(nil)).owns(2)
			var next [2]int
			for _, d := range c.got() {
				if got := string(d.Payload); got != fmt.Sprint(next[d.Partition]) || d.Attempt != 1 {
					t.Fatalf("partition %d gave %s/%d, not %d/1", d.Partition, got, d.Attempt, next[d.Partition])
				}
				next[d.Partition]++
			}
			for p := range 2 {
				if s := r.groupStats(p); s.Acked != 50 || s.Pending != 0 {
					t.Fatalf("%+v", s)
				}
			}
			if n := f.left(method); n != 0 {
				t.Fatalf("%d answers were not lost", n)
			}
		})
	}
}

// Whoever waits for too long is told that the outcome is not known. The settlement goes on, and nothing else may be done instead.
func TestUnknownOutcomeIsKept(t *testing.T) {
	t.Parallel()
	r := newHubRig(t, 1, nil)
	r.produce(0, "k", 0, 1)
	f := &faults{}
	c := r.open(r.hub(f))
	d := c.wait(1)[0]
	f.losing("Settle", 1<<30)
	r.want(fault.OutcomeUnknown, c.tryAck(d))
	r.want(fault.OutcomeUnknown, c.tryNack(nil, d))
	f.losing("Settle", 0)
	r.want("", c.tryAck(d))
	r.want(fault.AlreadySettled, c.tryNack(nil, d))
	if s := r.groupStats(0); s.Acked != 1 || s.Retried != 0 {
		t.Fatalf("%+v", s)
	}
}

// Of calls about the same delivery at once the first decides, and the others wait for it.
func TestSettledAtOnce(t *testing.T) {
	t.Parallel()
	r := newHubRig(t, 1, nil)
	r.produce(0, "k", 0, 1)
	f := &faults{}
	c := r.open(r.hub(f))
	d := c.wait(1)[0]
	f.stop()
	before := f.count("Settle")
	results := make(chan []error, 3)
	go func() { results <- c.tryAck(d) }()
	testkit.Eventually(t, soon, func() error {
		if f.count("Settle") == before {
			return errors.New("nothing is settled")
		}
		return nil
	})
	var others sync.WaitGroup
	others.Go(func() { results <- c.tryAck(d) })
	other := make(chan []error, 1)
	others.Go(func() { other <- c.tryNack(nil, d) })
	f.cont()
	r.want("", <-results)
	r.want("", <-results)
	r.want(fault.AlreadySettled, <-other)
	others.Wait()
}

// What is acknowledged while a claim is under way that has read it is not given again.
func TestClaimOvertakenByAck(t *testing.T) {
	t.Parallel()
	r := newHubRig(t, 1, nil)
	r.produce(0, "k", 0, 2)
	f := &faults{}
	c := r.open(r.hub(f))
	d := c.wait(2)
	answers := f.hold("Claim")
	defer answers()
	c.release(d[1]) // which has all that is pending claimed again
	testkit.Eventually(t, soon, func() error {
		if f.waiting() == 0 {
			return errors.New("nothing is claimed")
		}
		return nil
	})
	c.ack(d[0])
	answers()
	r.produce(0, "k", 2, 1)
	r.same(texts(c.wait(4)), "0/1 1/1 1/1 2/1")
}

// What is given back is read again with what lies behind it, and not with all that is in flight.
func TestReleaseReadsLittle(t *testing.T) {
	t.Parallel()
	r := newHubRig(t, 1, nil)
	r.produce(0, "k", 0, 300)
	f := &faults{}
	h := r.hub(f)
	// Without credits nothing is fetched while something is released.
	c := r.open(h, func(o *queue.OpenRequest) { o.MaxMessages = 300 })
	d := c.wait(300)
	for n, i := range []int{297, 299} {
		c.release(d[i])
		r.must(c.grant(int64(301+n), 1))
		r.same(texts(c.wait(301 + n)[300+n:]), numbered(i, 1, 1))
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.claimed > 4 {
		t.Errorf("%d entries were claimed for the 3 of the first and the 1 of the second", f.claimed)
	}
}

// A fetch that is executed long after it was given up gives messages to nobody. They are found before anything younger is sent.
func TestLateFetch(t *testing.T) {
	t.Parallel()
	for name, fetchedBefore := range map[string]int{"nothing fetched since": 0, "others fetched since": 4} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newHubRig(t, 1, nil)
			f := &faults{takeLate: true}
			c := r.open(r.hub(f))
			testkit.Eventually(t, soon, func() error {
				f.mu.Lock()
				defer f.mu.Unlock()
				if f.late == nil || f.calls["Fetch"] < 3 {
					return errors.New("what followed the lost answer is not over")
				}
				return nil
			})
			if fetchedBefore > 0 {
				r.produce(0, "k", 0, fetchedBefore)
				c.wait(fetchedBefore)
			}
			f.stop() // so that nobody else fetches what comes now
			cont := sync.OnceFunc(f.cont)
			defer cont()
			r.produce(0, "k", fetchedBefore, 3)
			entries, _, err := f.late(t.Context())
			switch {
			case fetchedBefore == 0 && (err != nil || len(entries) != 3):
				t.Fatalf("%d were fetched: %v", len(entries), err)
			case fetchedBefore > 0 && !errors.Is(err, queue.ErrBehind):
				t.Fatalf("%d were fetched: %v", len(entries), err)
			}
			r.produce(0, "k", fetchedBefore+3, 3)
			cont()
			r.same(texts(c.wait(fetchedBefore+6)), numbered(0, fetchedBefore+6, 1))
		})
	}
}

// What a fetch has read whose answer is lost while the session leaves was sent to nobody: it does not count as an attempt.
func TestLeaveWithLostFetch(t *testing.T) {
	t.Parallel()
	r := newHubRig(t, 1, func(topic *queue.Topic) { topic.Retry.MaxAttempts = 1 })
	r.produce(0, "k", 0, 3)
	f := &faults{}
	answers := f.hold("Fetch")
	defer answers()
	c := r.open(r.hub(f))
	testkit.Eventually(t, soon, func() error {
		if n := r.groupStats(0).Pending; n != 3 {
			return fmt.Errorf("%d were fetched", n)
		}
		return nil
	})
	f.losing("Fetch", 1)
	c.leave()
	answers()
	<-c.done
	if got := c.got(); len(got) > 0 {
		t.Fatalf("%s were sent", texts(got))
	}
	r.same(texts(r.open(r.hub(nil)).wait(3)), numbered(0, 3, 1))
}

// A Redis that restarts without its last writes has settlements forgotten under a lease that is kept: the messages come again, also when
// nothing else happens.
func TestForgottenSettlement(t *testing.T) {
	t.Parallel()
	r := newHubRig(t, 1, nil)
	r.produce(0, "k", 0, 3)
	c := r.open(r.hub(nil))
	d := c.wait(3)
	c.ack(d...)
	leases, err := r.store.Leases(t.Context(), r.topic, group)
	r.must(err)
	r.forget(d[1], "e"+strconv.FormatInt(leases[0].Epoch, 10), 1)
	r.same(texts(c.wait(4)), "0/1 1/1 2/1 1/1")
}

// A claim that Redis has forgotten so does not make what the new owner asks for a no-op.
func TestForgottenClaim(t *testing.T) {
	t.Parallel()
	r := newHubRig(t, 1, func(topic *queue.Topic) { topic.Retry.MinBackoff = time.Hour })
	r.produce(0, "k", 0, 4)
	h := r.hub(nil)
	first := r.open(h)
	first.wait(4)
	first.s.Close()
	c := r.open(h)
	d := c.wait(4)
	for _, one := range d {
		r.forget(one, "e1", 1)
	}
	r.want("", c.tryNack(nil, d[0]))
	r.want("", c.tryNack(func(i *queue.Nack) { i.DeadLetter = true }, d[1]))
	c.release(d[2])
	r.same(texts(c.wait(5)[4:]), "2/2")
	c.ack(d[3])
	if s := r.groupStats(0); s.Retrying != 1 || s.Dead != 1 || s.Acked != 1 || s.Pending != 1 {
		t.Fatalf("%+v", s)
	}
}

// forget has an entry pending of a consumer, as it was before a write that Redis has lost.
func (r *hubRig) forget(d queue.Delivery, consumer string, deliveries int) {
	r.t.Helper()
	r.must(r.server.Client(r.t).Do(r.t.Context(), "XCLAIM", "stream:topic:{jobs:0}", group, consumer, 0, d.ID.String(),
		"RETRYCOUNT", deliveries, "FORCE", "JUSTID").Err())
}

// While Redis is away streams stay open; once it is back the leases are got anew, and all goes on.
func TestRedisAway(t *testing.T) {
	t.Parallel()
	r := newHubRig(t, 2, nil)
	h := r.hub(nil)
	c := r.open(h)
	c.owns(2)
	r.produce(0, "k", 0, 3)
	d := c.wait(3)
	r.server.Stop()
	r.want(fault.OutcomeUnknown, c.tryAck(d[0]))
	r.server.Cont()
	testkit.Eventually(t, soon, func() error {
		// The leases ended meanwhile, or were renewed in time; the ack went through, or the message comes again.
		got := c.got()
		if s := r.groupStats(0); s.Acked == 0 && len(got) == 3 {
			return errors.New("it stands still")
		}
		return nil
	})
	r.produce(1, "k", 10, 1)
	testkit.Eventually(t, soon, func() error {
		if got := c.got(); got[len(got)-1].Partition != 1 {
			return fmt.Errorf("got %s", texts(got))
		}
		return nil
	})
}

// A group's whole life with nodes that stop, sessions that come and go, and messages that are given back in all ways: nothing is lost,
// no ack of a stale holder counts, and per partition first deliveries come in order.
func TestHubsUnderChange(t *testing.T) {
	t.Parallel()
	const partitions, each = 6, 300
	r := newHubRig(t, partitions, func(topic *queue.Topic) { topic.Retry.MaxAttempts = 1000 })
	random := randomFor(t)
	var (
		mu    sync.Mutex
		acked = map[string]int{}
		last  [partitions]queue.EntryID
		wrong []string
	)
	consume := func(ctx context.Context, h *queue.Hub) {
		s, err := h.Open(ctx, r.request())
		if err != nil {
			return
		}
		defer s.Close()
		for ctx.Err() == nil {
			frame, err := s.Next(ctx)
			if err != nil {
				return
			}
			// The whole frame is compared when it comes: an ack may block until the next holder has
			// delivered what follows.
			mu.Lock()
			for _, d := range frame.Deliveries {
				if d.Attempt == 1 && d.Place == queue.Main {
					if last[d.Partition].Compare(d.ID) > 0 {
						wrong = append(wrong, fmt.Sprintf("partition %d: %s after %s", d.Partition, d.ID, last[d.Partition]))
					}
					last[d.Partition] = d.ID
				}
			}
			mu.Unlock()
			for _, d := range frame.Deliveries {
				mu.Lock()
				dice := random.IntN(20)
				mu.Unlock()
				ref := queue.StreamRef{StreamID: s.ID(), Subject: "anna", Topic: "jobs", Group: group}
				nack := queue.Nack{Token: d.Token}
				switch dice {
				case 0:
					_, _ = h.Nack(ctx, ref, []queue.Nack{nack})
					continue
				case 1:
					continue
				case 2:
					nack.Delay = new(time.Duration)
					_, _ = h.Nack(ctx, ref, []queue.Nack{nack})
					continue
				}
				errs, err := h.Ack(ctx, ref, []string{d.Token})
				if err == nil && errs[0] == nil {
					mu.Lock()
					acked[d.MessageID]++
					mu.Unlock()
				}
			}
		}
	}
	var running sync.WaitGroup
	ctx, cancel := context.WithCancel(t.Context())
	defer running.Wait()
	defer cancel()
	var nodes []*faults
	for range 2 {
		f := &faults{}
		nodes = append(nodes, f)
		h := r.hub(f)
		for range 2 {
			running.Go(func() {
				for ctx.Err() == nil {
					mu.Lock()
					life := 300*time.Millisecond + time.Duration(random.IntN(1500))*time.Millisecond
					mu.Unlock()
					once, end := context.WithTimeout(ctx, life)
					consume(once, h)
					end()
				}
			})
		}
	}
	running.Go(func() { moveDue(ctx, r) })
	for p := range partitions {
		r.produce(p, "k", 0, each)
	}
	for i := range 2 {
		nodes[i].stop()
		select {
		case <-time.After(3 * leaseTTL / 2):
		case <-ctx.Done():
		}
		nodes[i].cont()
	}
	testkit.Eventually(t, 60*time.Second, func() error {
		var settled int64
		for p := range partitions {
			settled += r.groupStats(p).Acked
		}
		if settled < partitions*each {
			return fmt.Errorf("%d of %d are acked", settled, partitions*each)
		}
		return nil
	})
	cancel()
	running.Wait()
	for p := range partitions {
		if s := r.groupStats(p); s.Acked != each || s.Pending != 0 || s.Retrying != 0 || s.Unread != 0 || s.Dead != 0 {
			t.Fatalf("%+v", s)
		}
	}
	for id, n := range acked {
		if n != 1 {
			t.Fatalf("%s was acked %d times", id, n)
		}
	}
	if len(wrong) > 0 {
		t.Fatalf("out of order: %s", wrong)
	}
}

// moveDue does the scheduler's work.
func moveDue(ctx context.Context, r *hubRig) {
	for ctx.Err() == nil {
		for p := range r.topic.Partitions {
			_, _, _ = r.store.Due(ctx, queue.Line{Ref: r.topic.Ref(p), Group: group}, 100)
		}
		select {
		case <-ctx.Done():
		case <-time.After(10 * time.Millisecond):
		}
	}
}
