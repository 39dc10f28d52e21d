package queues

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/parleyhq/parley/chaos"
	parleyv1 "github.com/parleyhq/parley/gen/go/parley/v1"
)

// dueBatch is the maximum number of messages that one call of scheduleDue schedules.
const dueBatch = 1000

// runDue schedules r.due messages, all due within one second, and consumes them.
func (r *run) runDue(ctx context.Context) {
	if r.due == 0 {
		return
	}
	began := time.Now()
	// The first due time is late enough that all messages are stored before.
	at := began.Add(2*time.Second + time.Duration(r.due)*200*time.Microsecond)
	var wg sync.WaitGroup
	calls := make(chan int)
	for i, c := range r.clients {
		wg.Go(func() {
			for from := range calls {
				r.scheduleDue(ctx, c, fmt.Sprintf("due%d", i), at, from)
			}
		})
	}
	for from := 0; from < r.due; from += dueBatch {
		calls <- from
	}
	close(calls)
	wg.Wait()
	r.Logger.InfoContext(ctx, "scheduled", "messages", r.due, "took", time.Since(began).Round(time.Millisecond), "left", time.Until(at))
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer wg.Wait()
	for i := range r.clients {
		c := Consumer{
			Name: fmt.Sprintf("due-%d", i), Addrs: r.Addrs(i), Token: r.token, Seed: r.Seed, Topic: due, Group: "a", Bidi: i%2 == 0, Concurrency: 1000, InFlight: 5000,
			AckTimeout: 20 * time.Second,
		}
		wg.Go(func() { newConsumer(c, r.rec).run(ctx) })
	}
	chaos.Sleep(ctx, time.Until(at))
	r.drain(ctx)
	cancel()
}

// scheduleDue schedules up to dueBatch messages, from the index from on, in one call. All r.due
// messages together are due in equal intervals during the second after at.
func (r *run) scheduleDue(ctx context.Context, c *client, name string, at time.Time, from int) {
	req := &parleyv1.ProduceRequest{Topic: due}
	var ops []*Op
	for i := from; i < min(from+dueBatch, r.due); i++ {
		when := at.Add(time.Second * time.Duration(i) / time.Duration(r.due)).Truncate(time.Millisecond)
		mark := newMark(good, name, i)
		op := &Op{
			ID: fmt.Sprintf("%s/%d", name, i), Client: name, Addr: c.Addr, Kind: Schedule, Begin: now(), Topic: due, Mark: mark, DelayMS: none,
			AtMS: when.UnixMilli(),
		}
		// Each message has a key of its own: messages of a call without keys all go to one
		// partition.
		op.Key = mark
		ops = append(ops, op)
		req.Messages = append(req.Messages, withDue(&parleyv1.QueueMessage{Key: op.Key, Payload: []byte(mark)}, op))
	}
	ctx, cancel := c.call(ctx)
	defer cancel()
	res, err := c.Produce(ctx, req)
	endAll(ops, res.GetResults(), err, (*Op).produced)
	for _, op := range ops {
		r.rec.write(line{Op: op})
	}
}
