package server_test

import (
	"testing"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	parleyv1 "github.com/parleyhq/parley/gen/go/parley/v1"
	"github.com/parleyhq/parley/server/internal/testkit"
)

// TestFinding06 checks that one message in flight neither keeps settled messages in the log nor
// fills a topic with a bound.
func TestFinding06(t *testing.T) {
	t.Parallel()
	r := newFinding(t)
	r.topic(&parleyv1.Topic{Name: "jobs", Partitions: 1, MaxMessagesPerPartition: 10}, nil)
	r.put("jobs", &parleyv1.QueueMessage{Key: "long"})
	c := r.works("jobs", 10)
	c.await(1)
	for range 30 {
		for _, result := range r.put("jobs", plain(9, 10)...) {
			if result.GetError() != nil {
				t.Fatalf("refused although one message is open: %v", result.GetError())
			}
		}
		n := len(c.got)
		c.await(n + 9)
		r.ack(c, c.got[n:n+9]...)
	}
	testkit.Eventually(t, 30*time.Second, func() error {
		return wantLength(t, r, "jobs", 40)
	})
}

// TestFinding07 checks that a worker that leaves with a long job holds nothing but it: another one
// gets the other messages of the partition at once.
func TestFinding07(t *testing.T) {
	t.Parallel()
	r := newFinding(t)
	r.topic(&parleyv1.Topic{Name: "jobs", Partitions: 1}, nil)
	r.put("jobs", plain(40, 10)...)
	leaving := r.works("jobs", 20)
	held := leaving.await(20)
	r.begins(leaving, held[0])
	r.must(r.queues.Leave(t.Context(), &parleyv1.LeaveRequest{SessionId: leaving.sessionID}))
	r.handles(r.works("jobs", 40), 39)
	r.ack(leaving, held[0])
	if w := r.groupStats("jobs"); w.GetAcked() != 40 {
		t.Errorf("%v", w)
	}
}

// TestFinding08 checks that a worker that handles nothing and extends what it was sent holds no
// more than that.
func TestFinding08(t *testing.T) {
	t.Parallel()
	r := newFinding(t)
	r.topic(&parleyv1.Topic{Name: "jobs", Partitions: 4}, nil)
	hung := r.works("jobs", 5)
	r.put("jobs", plain(200, 10)...)
	hung.await(5)
	r.begins(hung, hung.got...)
	r.handles(r.works("jobs", 10), 195)
	if w := r.groupStats("jobs"); w.GetAcked() != 195 || w.GetRunning() != 5 {
		t.Errorf("%v", w)
	}
}

// TestFinding09 checks that a key whose messages take long holds up only itself: a worker gets all
// messages of other keys while one of that key runs.
func TestFinding09(t *testing.T) {
	t.Parallel()
	r := newFinding(t)
	r.topic(&parleyv1.Topic{Name: "jobs", Partitions: 1}, nil)
	slow := make([]*parleyv1.QueueMessage, 100)
	for i := range slow {
		slow[i] = &parleyv1.QueueMessage{Key: "slow"}
	}
	r.put("jobs", slow...)
	r.put("jobs", plain(50, 10)...)
	req := many("jobs", "g", 4)
	req.MaxInFlight = 8
	c := consumesFrom(t, r.queues, req)
	done := map[string]bool{}
	begun := false
	for i := 0; len(done) < 50; i++ {
		switch d := c.await(i + 1)[i]; {
		case d.GetKey() != "slow":
			r.begins(c, d)
			r.ack(c, d)
			done[d.GetKey()] = true
		case !begun:
			begun = true
			r.begins(c, d)
		}
	}
	if !begun {
		t.Error("no message of the slow key was delivered")
	}
}

// TestFinding10 checks that messages that are retried or scheduled count for the bound of a topic,
// and that a forced trim removes them.
func TestFinding10(t *testing.T) {
	t.Parallel()
	for name, order := range map[string]parleyv1.DeliveryOrder{"key": parleyv1.DeliveryOrder_DELIVERY_ORDER_KEY, "strict": parleyv1.DeliveryOrder_DELIVERY_ORDER_STRICT} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newFinding(t)
			r.topic(&parleyv1.Topic{Name: "jobs", Partitions: 1, MaxMessagesPerPartition: 10}, func(g *parleyv1.Group) { g.Order = order })
			r.put("jobs", plain(9, 10)...)
			r.put("jobs", later(time.Hour))
			c := r.works("jobs", 10)
			var items []*parleyv1.NackItem
			for _, d := range c.await(9) {
				items = append(items, retried(d.GetToken(), time.Hour))
			}
			r.must(r.queues.Nack(t.Context(), &parleyv1.NackRequest{SessionId: c.sessionID, Items: items}))
			for _, m := range []*parleyv1.QueueMessage{{Key: "more"}, later(time.Hour)} {
				if got := itemSummary(r.put("jobs", m)[0].GetError()); got != `resource_exhausted TOPIC_FULL "" 10` {
					t.Errorf("a full topic answers %s", got)
				}
			}
			trimmed, err := r.admin.TrimTopic(t.Context(), &parleyv1.TrimTopicRequest{Topic: "jobs", Keep: &parleyv1.TrimTopicRequest_MaxMessages{}, Force: true})
			if r.must(trimmed, err); trimmed.GetLost() != 9 {
				t.Errorf("trimmed %v", trimmed)
			}
			testkit.Eventually(t, 10*time.Second, func() error {
				if e := r.put("jobs", &parleyv1.QueueMessage{Key: "more"})[0].GetError(); e != nil {
					return errorf(e)
				}
				return nil
			})
		})
	}
}

// TestFinding15 checks that replayed dead letters do not go before messages that wait already.
func TestFinding15(t *testing.T) {
	t.Parallel()
	r := newFinding(t)
	r.topic(&parleyv1.Topic{Name: "jobs", Partitions: 1}, nil)
	const letters, live = 200, 50
	r.put("jobs", plain(letters, 10)...)
	c := r.works("jobs", letters)
	var items []*parleyv1.NackItem
	for _, d := range c.await(letters) {
		items = append(items, dead(d.GetToken()))
	}
	r.must(r.queues.Nack(t.Context(), &parleyv1.NackRequest{SessionId: c.sessionID, Items: items}))
	r.must(r.queues.Leave(t.Context(), &parleyv1.LeaveRequest{SessionId: c.sessionID}))
	waiting := plain(live, 10)
	for _, m := range waiting {
		m.Headers = map[string]string{"live": "1"}
	}
	r.put("jobs", waiting...)
	replayed, err := r.admin.ReplayDeadLetters(t.Context(), &parleyv1.ReplayDeadLettersRequest{Topic: "jobs", Selection: allLetters()})
	if r.must(replayed, err); replayed.GetReplayed() != letters {
		t.Fatal(replayed)
	}
	next := r.works("jobs", 5)
	r.handles(next, live)
	for i, d := range next.got[:live] {
		if d.GetHeaders()["live"] == "" {
			t.Fatalf("delivery %d is a replayed message", i+1)
		}
	}
	r.handles(next, live+letters)
}

// TestFinding18 checks that more workers than partitions have work.
func TestFinding18(t *testing.T) {
	t.Parallel()
	r := newFinding(t)
	r.topic(&parleyv1.Topic{Name: "jobs", Partitions: 1}, nil)
	var workers []*consumerStream
	for range 6 {
		workers = append(workers, r.works("jobs", 2))
	}
	r.put("jobs", plain(12, 10)...)
	for _, c := range workers {
		c.await(2)
	}
}

// TestFindingD2 checks that a page of one dead letter reads little more than that letter.
func TestFindingD2(t *testing.T) {
	t.Parallel()
	r := newFinding(t)
	r.topic(&parleyv1.Topic{Name: "jobs", Partitions: 4}, func(g *parleyv1.Group) { g.AckTimeout = durationpb.New(time.Hour) })
	const n = 8 * perRequest
	for range n / perRequest {
		r.put("jobs", plain(perRequest, largestPayload)...)
	}
	c := r.works("jobs", n)
	var items []*parleyv1.NackItem
	for _, d := range c.await(n) {
		items = append(items, dead(d.GetToken()))
	}
	r.must(r.queues.Nack(t.Context(), &parleyv1.NackRequest{SessionId: c.sessionID, Items: items}))
	for full, most := range map[bool]int64{true: 1 << 20, false: 256 << 10} {
		before := r.sent()
		letters, err := r.admin.ListDeadLetters(t.Context(), &parleyv1.ListDeadLettersRequest{Topic: "jobs", PageSize: 1, Full: full})
		if r.must(letters, err); len(letters.GetDeadLetters()) != 1 {
			t.Fatal(letters)
		}
		if read := r.sent() - before; read > most {
			t.Errorf("full %v: a page of one letter reads %d bytes", full, read)
		}
	}
}
