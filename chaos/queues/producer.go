package queues

import (
	"cmp"
	"context"
	"fmt"
	"math/rand/v2"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/parleyhq/parley/chaos"
	parleyv1 "github.com/parleyhq/parley/gen/go/parley/v1"
	queue "github.com/parleyhq/parley/sdk/go/queue"
)

// producer produces and schedules messages of a topic, alone and in batches.
type producer struct {
	out     sink
	name    string
	topic   string
	clients []*client
	// sdk makes the calls that produce and schedule. If it is nil, generated clients make them.
	sdk   *queue.Producer
	rng   *rand.Rand
	every time.Duration
	began time.Time
	n     int
	// again are calls to be repeated: their outcome is unknown and their messages have idempotency
	// keys.
	again []call
	// later are scheduled messages that may be cancelled or rescheduled.
	later []*Op
}

// call is one Produce or Schedule call, with an op and a message for each item.
type call struct {
	ops      []*Op
	messages []*parleyv1.QueueMessage
}

const (
	// keys is the number of keys in use at a time. They are replaced every keyLife, which bounds
	// the number of messages of each key.
	keys    = 12
	keyLife = 15 * time.Second
)

func (p *producer) run(ctx context.Context) {
	p.began = time.Now()
	for every := p.every; chaos.Sleep(ctx, every/2+rand.N(every)); {
		every = p.every
		if p.step(context.WithoutCancel(ctx)) != chaos.OK {
			every = chaos.AfterFailure
		}
	}
	// Repeat the rest, so that their outcomes become known.
	for _, c := range p.again {
		p.call(context.WithoutCancel(ctx), c)
	}
}

// step makes one random call and returns the outcome of its last item.
func (p *producer) step(ctx context.Context) chaos.Outcome {
	switch n := p.rng.IntN(100); {
	case len(p.again) > 0 && n < 50:
		c := p.again[0]
		p.again = p.again[1:]
		return p.call(ctx, c)
	case n < 6 && len(p.later) > 0:
		at := len(p.later) - 1 - p.rng.IntN(min(4, len(p.later))) // older ones are due already
		op := p.later[at]
		p.later = append(p.later[:at], p.later[at+1:]...)
		return p.change(ctx, op)
	case n < 25:
		return p.call(ctx, p.fresh(Schedule))
	default:
		return p.call(ctx, p.fresh(Produce))
	}
}

// fresh returns a call with new messages.
func (p *producer) fresh(kind Kind) call {
	var c call
	size := 1
	if p.rng.IntN(3) > 0 {
		size += p.rng.IntN(12)
	}
	for range size {
		p.n++
		mark := newMark(p.kind(), p.name, p.n)
		op := &Op{Client: p.name, Kind: kind, Topic: p.topic, Mark: mark, DelayMS: none}
		switch {
		case kind == Schedule && p.rng.IntN(2) == 0:
			op.AtMS = time.Now().Add(time.Duration(p.rng.IntN(3000)-200) * time.Millisecond).UnixMilli()
		case kind == Schedule:
			op.DelayMS = int64(p.rng.IntN(3000))
		case p.rng.IntN(10) > 0:
			op.Key = fmt.Sprintf("k%d-%d", p.rng.IntN(keys), time.Since(p.began)/keyLife)
		}
		if p.rng.IntN(2) == 0 {
			op.Idem = mark
		}
		c.ops = append(c.ops, op)
		c.messages = append(c.messages, withDue(&parleyv1.QueueMessage{Key: op.Key, Payload: payload(p.rng, mark), IdempotencyKey: op.Idem}, op))
	}
	return c
}

func (p *producer) kind() string {
	switch n := p.rng.IntN(200); {
	case n < 10:
		return twice
	case n < 13:
		return poison
	case n < 15:
		return reject
	case n < 17:
		return bury
	case n < 23:
		return hand
	case n < 24:
		return long
	case n < 25:
		return late
	case n < 26 && p.rng.IntN(10) == 0:
		return lethal
	default:
		return good
	}
}

// call makes a call and records each item. It returns the outcome of the last item.
func (p *producer) call(ctx context.Context, c call) chaos.Outcome {
	cl := p.clients[p.rng.IntN(len(p.clients))]
	addr := cl.Addr
	if p.sdk != nil {
		addr = ""
	}
	for _, op := range c.ops {
		p.start(op, addr)
	}
	ctx, cancel := cl.call(ctx)
	defer cancel()
	switch {
	case p.sdk != nil:
		p.bySDK(ctx, c)
	default:
		res, err := cl.Produce(ctx, &parleyv1.ProduceRequest{Topic: p.topic, Messages: c.messages})
		endAll(c.ops, res.GetResults(), err, (*Op).produced)
	}
	p.finish(c)
	return c.ops[len(c.ops)-1].Outcome
}

// bySDK makes the call through the SDK. The result for each message is the one after all attempts.
func (p *producer) bySDK(ctx context.Context, c call) {
	messages := make([]queue.Message, len(c.messages))
	for i, m := range c.messages {
		messages[i] = queue.Message{Key: m.GetKey(), Payload: m.GetPayload(), IdempotencyKey: m.GetIdempotencyKey()}
		if c.ops[i].Kind != Schedule {
			continue
		}
		messages[i].Delay = time.Duration(max(c.ops[i].DelayMS, 0)) * time.Millisecond
		if c.ops[i].DelayMS == none {
			messages[i].DeliverAt = time.UnixMilli(c.ops[i].AtMS)
		}
	}
	results, err := p.sdk.Produce(ctx, messages...)
	for i, op := range c.ops {
		op.endSDK(results, i, err)
	}
}

// endSDK records the ending of one item of a call by the SDK.
func (op *Op) endSDK(results []queue.Result, i int, err error) {
	var r *queue.Receipt
	if i < len(results) {
		r, err = results[i].Receipt, cmp.Or(results[i].Err, err)
	}
	if r == nil {
		err = orMissing(err)
	} else {
		err = nil // it is the error of other items
		op.MessageID, op.Partition, op.Duplicate = r.MessageID, r.Partition, r.Duplicate
		if !r.DueTime.IsZero() {
			op.DueMS = r.DueTime.UnixMilli()
		}
	}
	op.ended(chaos.EndingOfSDK(err))
}

func (p *producer) start(op *Op, addr string) {
	p.n++
	op.ID, op.Addr, op.Begin = fmt.Sprintf("%s/%d", p.name, p.n), addr, now()
	p.out.write(line{Op: op})
}

// finish records the items, and stores those that can be repeated or changed later.
func (p *producer) finish(c call) {
	var open call
	for i, op := range c.ops {
		p.out.write(line{Op: op})
		switch {
		case op.Outcome == chaos.OK && op.Kind == Schedule:
			p.later = append(p.later[max(0, len(p.later)-20):], op)
		case op.Outcome == chaos.Unknown && op.Idem != "":
			open.ops = append(open.ops, &Op{
				Client: op.Client, Kind: op.Kind, Topic: op.Topic, Mark: op.Mark, Key: op.Key, Idem: op.Idem, DelayMS: op.DelayMS, AtMS: op.AtMS,
				Repeat: true,
			})
			open.messages = append(open.messages, c.messages[i])
		}
	}
	if len(open.ops) > 0 {
		p.again = append(p.again, open)
	}
}

// withDue sets when a message that is scheduled is due, and returns it.
func withDue(m *parleyv1.QueueMessage, op *Op) *parleyv1.QueueMessage {
	switch {
	case op.Kind != Schedule:
	case op.DelayMS == none:
		m.Due = &parleyv1.QueueMessage_DeliverAt{DeliverAt: timestamppb.New(time.UnixMilli(op.AtMS))}
	default:
		m.Due = &parleyv1.QueueMessage_Delay{Delay: durationpb.New(time.Duration(op.DelayMS) * time.Millisecond)}
	}
	return m
}

// change cancels or reschedules a scheduled message, and returns the outcome.
func (p *producer) change(ctx context.Context, was *Op) chaos.Outcome {
	cl := p.clients[p.rng.IntN(len(p.clients))]
	op := &Op{Client: p.name, Kind: Cancel, Topic: p.topic, Mark: was.Mark, MessageID: was.MessageID, DelayMS: none}
	if p.rng.IntN(2) == 0 {
		op.Kind, op.DelayMS = Reschedule, int64(p.rng.IntN(3000))
	}
	p.start(op, cl.Addr)
	ctx, cancel := cl.call(ctx)
	defer cancel()
	if op.Kind == Cancel {
		res, err := cl.CancelMessages(ctx, &parleyv1.CancelMessagesRequest{Topic: p.topic, MessageIds: []string{op.MessageID}})
		endAll([]*Op{op}, res.GetResults(), err, nil)
	} else {
		res, err := cl.RescheduleMessages(ctx, &parleyv1.RescheduleMessagesRequest{
			Topic: p.topic, MessageIds: []string{op.MessageID},
			Due: &parleyv1.RescheduleMessagesRequest_Delay{Delay: durationpb.New(time.Duration(op.DelayMS) * time.Millisecond)},
		})
		endAll([]*Op{op}, res.GetResults(), err, func(op *Op, r *parleyv1.RescheduleResult) {
			if r.GetDueTime() != nil {
				op.DueMS = r.GetDueTime().AsTime().UnixMilli()
			}
		})
	}
	p.out.write(line{Op: op})
	return op.Outcome
}
