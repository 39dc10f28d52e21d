package queues

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/parleyhq/parley/chaos"
	parleyv1 "github.com/parleyhq/parley/gen/go/parley/v1"
)

// settleAll settles the member's deliveries, a few at a time, until ctx ends.
func (m *member) settleAll(ctx context.Context, rng *rand.Rand) {
	for {
		var batch []*parleyv1.Delivery
		select {
		case <-ctx.Done():
			return
		case d := <-m.todo:
			batch = append(batch, d)
		}
	more:
		for range rng.IntN(10) {
			select {
			case d := <-m.todo:
				batch = append(batch, d)
			default:
				break more
			}
		}
		if m.Work > 0 {
			chaos.Sleep(ctx, time.Duration(rng.Int64N(int64(m.Work))))
		}
		m.settle(ctx, rng, batch)
	}
}

// settle settles some deliveries according to their marks. It also tries to settle half of those
// that the session has lost, which must fail.
func (m *member) settle(ctx context.Context, rng *rand.Rand, batch []*parleyv1.Delivery) {
	m.mu.Lock()
	batch = slices.DeleteFunc(batch, func(d *parleyv1.Delivery) bool { return m.held[d.GetToken()] == nil && rng.IntN(2) == 0 })
	m.mu.Unlock()
	if m.Reports {
		m.say(ctx, rng, batch, Begun)
	}
	var acks, nacks []*task
	for _, d := range batch {
		t := m.task(rng, d)
		kind := kindOf(t.op.Mark)
		m.die(kind, t.op.Attempt)
		switch {
		case t.op.Kind == Ack && kind == late && t.op.Attempt == 1 && !m.Mended:
			m.work.Go(func() {
				chaos.Sleep(ctx, m.AckTimeout*13/10)
				m.settleTasks(ctx, []*task{t})
				m.drop(t.op.Token)
			})
		case t.op.Kind == Ack && kind == long && !m.Mended:
			m.extendTwice(ctx, rng, d)
			acks = append(acks, t)
		case t.op.Kind == Ack:
			acks = append(acks, t)
		default:
			nacks = append(nacks, t)
		}
	}
	m.settleTasks(ctx, acks)
	m.settleTasks(ctx, nacks)
	for _, t := range slices.Concat(acks, nacks) {
		m.drop(t.op.Token)
	}
}

// drop notes that the member does not have a delivery any more.
func (m *member) drop(token string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.held, token)
}

// lethalExit is the exit code of a process that a message has killed.
const lethalExit = 3

// die ends the process if a message of the kind kills it.
func (c *Consumer) die(kind string, attempt int) {
	if kind == lethal && attempt <= 2 && c.Mortal {
		os.Exit(lethalExit) //nolint:forbidigo // as a worker that its message kills
	}
}

// task is the settlement of one delivery.
type task struct {
	op   *Op
	nack *parleyv1.NackItem
}

// task returns the settlement of a delivery.
func (m *member) task(rng *rand.Rand, d *parleyv1.Delivery) *task {
	mark := markOf(d.GetPayload())
	v := verdict{kind: Ack, delayMS: none}
	if !m.Mended {
		v = decide(rng, mark, int(d.GetAttempt()))
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	return &task{
		op: &Op{
			Client: m.Name, Kind: v.kind, Topic: m.Topic, Mark: mark, MessageID: d.GetMessageId(), Group: m.Group, Session: m.id,
			Token: d.GetToken(), Attempt: int(d.GetAttempt()), Gen: int(d.GetDelivery()), DelayMS: v.delayMS, Partition: int(d.GetPartition()),
			Dead: v.dead(),
		},
		nack: v.nack(d.GetToken()),
	}
}

// nack returns the request for the verdict of a nack or a release.
func (v verdict) nack(token string) *parleyv1.NackItem {
	if v.kind == Release {
		return &parleyv1.NackItem{Token: token, Outcome: &parleyv1.NackItem_Release{Release: &parleyv1.NackRelease{}}}
	}
	item := &parleyv1.NackItem{Token: token, Reason: nackReason, Code: v.code}
	if v.bury {
		item.Outcome = &parleyv1.NackItem_DeadLetter{DeadLetter: &parleyv1.NackDeadLetter{}}
		return item
	}
	retry := &parleyv1.NackRetry{}
	if v.delayMS != none {
		retry.Delay = durationpb.New(time.Duration(v.delayMS) * time.Millisecond)
	}
	item.Outcome = &parleyv1.NackItem_Retry{Retry: retry}
	return item
}

// extendTwice simulates work that takes longer than the ack timeout, and extends the deadline
// twice.
func (m *member) extendTwice(ctx context.Context, rng *rand.Rand, d *parleyv1.Delivery) {
	for range 2 {
		chaos.Sleep(ctx, m.AckTimeout*2/3)
		m.say(ctx, rng, []*parleyv1.Delivery{d}, Extend)
	}
}

// say extends deliveries, or reports them as begun.
func (m *member) say(ctx context.Context, rng *rand.Rand, batch []*parleyv1.Delivery, kind Kind) {
	tasks := make([]*task, len(batch))
	for i, d := range batch {
		tasks[i] = m.task(rng, d)
		tasks[i].op.Kind, tasks[i].op.DelayMS, tasks[i].op.Dead = kind, none, false
	}
	m.settleTasks(ctx, tasks)
}

// settleTasks settles some deliveries, all of one kind, in one call. It retries those of unknown
// outcome, up to three times: settlements are idempotent.
func (m *member) settleTasks(ctx context.Context, tasks []*task) {
	for try := 0; len(tasks) > 0 && try < 4; try++ {
		if try > 0 && !chaos.Sleep(ctx, 200*time.Millisecond) {
			return
		}
		for _, t := range tasks {
			t.op.ID, t.op.Begin, t.op.End, t.op.Outcome = fmt.Sprintf("%s/%d", m.Name, m.n.Add(1)), now(), 0, ""
			t.op.Reason, t.op.Err = "", ""
			m.out.write(line{Op: t.op})
		}
		m.mu.Lock()
		l := m.link
		m.mu.Unlock()
		results, err := l.settle(context.WithoutCancel(ctx), tasks)
		ops := make([]*Op, len(tasks))
		for i, t := range tasks {
			ops[i] = t.op
		}
		endAll(ops, results, err, nil)
		var open []*task
		for _, t := range tasks {
			m.out.write(line{Op: t.op})
			if t.op.Outcome == chaos.Unknown {
				again := *t.op
				again.Repeat = true
				open = append(open, &task{&again, t.nack})
			}
		}
		tasks = open
	}
}
