package queues

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/parleyhq/parley/chaos"
	parleyv1 "github.com/parleyhq/parley/gen/go/parley/v1"
)

// Consumer configures a consumer. A consumer process reads it as a line of JSON from its input.
type Consumer struct {
	Name string `json:"name,omitempty"`
	// Addrs are the nodes that it connects to, one after another as streams end.
	Addrs []string `json:"addrs,omitempty"`
	Token string   `json:"token,omitempty"`
	Seed  uint64   `json:"seed,omitempty"`
	Topic string   `json:"topic,omitempty"`
	Group string   `json:"group,omitempty"`
	// Bidi settles deliveries on the stream. Otherwise they are settled by calls to any node.
	Bidi bool `json:"bidi,omitempty"`
	// SDK consumes through the SDK's Worker.
	SDK bool `json:"sdk,omitempty"`
	// Credits is the stream's window in messages. 0 means 100.
	Credits int64 `json:"credits,omitempty"`
	// AckTimeout is the stream's ack timeout. 0 means 2 s.
	AckTimeout time.Duration `json:"ack_timeout,omitempty"`
	// Work is the maximum time that the consumer spends on a batch of messages. 0 means none.
	Work time.Duration `json:"work,omitempty"`
	// Pause is how long it stops reading after a frame, one time in 20. 0 means never.
	Pause time.Duration `json:"pause,omitempty"`
	// Mended makes the consumer acknowledge every message at once, regardless of its mark.
	Mended bool `json:"mended,omitempty"`
}

// consumer is a running Consumer.
type consumer struct {
	Consumer

	out     sink
	clients []*client
	n       atomic.Int64
}

// workers is the number of goroutines of a consumer that settle deliveries.
const workers = 3

func (c *Consumer) setDefaults() {
	if c.Credits == 0 {
		c.Credits = 100
	}
	if c.AckTimeout == 0 {
		c.AckTimeout = 2 * time.Second
	}
}

func newConsumer(c Consumer, out sink) *consumer {
	c.setDefaults()
	w := &consumer{Consumer: c, out: out}
	for _, addr := range c.Addrs {
		w.clients = append(w.clients, newClient(addr, c.Token))
	}
	return w
}

// run consumes on one stream after another until ctx ends.
func (w *consumer) run(ctx context.Context) {
	rng := chaos.Source(w.Seed, w.Name)
	for at := 0; ctx.Err() == nil; at++ {
		w.consume(ctx, w.clients[at%len(w.clients)], rng.Uint64())
		chaos.Sleep(ctx, 100*time.Millisecond+rand.N(200*time.Millisecond))
	}
	for _, c := range w.clients {
		c.Close()
	}
}

// streaming is one stream of a consumer. doneN and doneSz are the number and the bytes of the
// messages that it has settled.
type streaming struct {
	*consumer

	info Stream
	link link
	todo chan *parleyv1.Delivery
	// heard is when the stream last received a frame.
	heard atomic.Int64

	mu     sync.Mutex // guards the fields below
	doneN  int64
	doneSz int64
}

// maxBytes is the window of each stream in bytes.
const maxBytes = 4 << 20

func (w *consumer) consume(ctx context.Context, c *client, seed uint64) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	start := &parleyv1.ConsumeRequest{
		Topic: w.Topic, Group: w.Group, Consumer: w.Name, MaxMessages: w.Credits, MaxBytes: proto.Int64(maxBytes),
		AckTimeout: durationpb.New(w.AckTimeout),
	}
	s := &streaming{consumer: w, todo: make(chan *parleyv1.Delivery, w.Credits+1)}
	s.heard.Store(now())
	s.info = Stream{Client: w.Name, Addr: c.Addr, Topic: w.Topic, Group: w.Group, Slow: w.Pause > 0}
	s.link = &unary{s: s}
	if w.Bidi {
		s.link = newBidi(s)
	}
	var wg sync.WaitGroup
	defer wg.Wait()
	defer cancel()
	wg.Go(func() { s.listen(ctx, cancel) })
	for i := range workers {
		wg.Go(func() { s.work(ctx, rand.New(rand.NewPCG(seed, uint64(i)))) }) //nolint:gosec // an index
	}
	err := s.link.consume(c.Authorize(ctx), c, start)
	if s.info.ID == "" {
		return
	}
	e := chaos.EndingOf(err)
	s.info.End, s.info.Reason = now(), fmt.Sprintf("%s %s", e.Reason, e)
	w.out.write(line{Stream: &s.info})
}

// listen cancels a stream that has been silent for too long.
func (s *streaming) listen(ctx context.Context, cancel context.CancelFunc) {
	for chaos.Sleep(ctx, time.Second) {
		if now()-s.heard.Load() > int64(streamSilence+s.Pause) {
			cancel()
			return
		}
	}
}

// streamSilence is how long a stream may be silent before it counts as dead. The nodes send
// heartbeats every second.
const streamSilence = 5 * time.Second

// frame records the stream's info and the deliveries in a frame of the stream, and passes the
// deliveries on to work.
func (s *streaming) frame(ctx context.Context, f *parleyv1.ConsumeResponse) {
	at := now()
	s.heard.Store(at)
	if f.GetInfo() != nil {
		s.info.ID, s.info.Begin = f.GetInfo().GetStreamId(), at
		info := s.info
		s.out.write(line{Stream: &info})
	}
	for _, d := range f.GetDeliveries().GetDeliveries() {
		s.out.write(line{Delivery: newDelivery(&s.info, d, at)})
		select {
		case s.todo <- d:
		case <-ctx.Done():
		}
	}
	if s.Pause > 0 && len(f.GetDeliveries().GetDeliveries()) > 0 && rand.IntN(20) == 0 {
		chaos.Sleep(ctx, s.Pause)
		s.heard.Store(now())
	}
}

// newDelivery returns the record of a delivery on a stream.
func newDelivery(s *Stream, d *parleyv1.Delivery, at int64) *Delivery {
	return &Delivery{
		At: at, Client: s.Client, Topic: s.Topic, Group: s.Group, Stream: s.ID, Token: d.GetToken(), MessageID: d.GetMessageId(),
		Partition: int(d.GetPartition()), Key: d.GetKey(), Mark: markOf(d.GetPayload()), Attempt: int(d.GetAttempt()),
		MadeMS: d.GetProduceTime().AsTime().UnixMilli(),
	}
}

// work settles the stream's deliveries, a few at a time, until ctx ends.
func (s *streaming) work(ctx context.Context, rng *rand.Rand) {
	for {
		var batch []*parleyv1.Delivery
		select {
		case <-ctx.Done():
			return
		case d := <-s.todo:
			batch = append(batch, d)
		}
	more:
		for range rng.IntN(10) {
			select {
			case d := <-s.todo:
				batch = append(batch, d)
			default:
				break more
			}
		}
		if s.Work > 0 {
			chaos.Sleep(ctx, time.Duration(rng.Int64N(int64(s.Work))))
		}
		s.settle(ctx, rng, batch)
	}
}

// settle settles some deliveries according to their marks, and grants new credits for them.
func (s *streaming) settle(ctx context.Context, rng *rand.Rand, batch []*parleyv1.Delivery) {
	var acks, nacks []*task
	for _, d := range batch {
		t := s.task(rng, d)
		switch {
		case t.op.Kind == Ack && kindOf(t.op.Mark) == long && !s.Mended:
			s.extendTwice(ctx, d)
			acks = append(acks, t)
		case t.op.Kind == Ack:
			acks = append(acks, t)
		default:
			nacks = append(nacks, t)
		}
	}
	s.settleTasks(ctx, acks)
	s.settleTasks(ctx, nacks)
	s.mu.Lock()
	for _, d := range batch {
		s.doneN++
		s.doneSz += int64(len(d.GetPayload()) + len(d.GetKey()))
	}
	messages, bytes := s.doneN+s.Credits, s.doneSz+maxBytes
	s.mu.Unlock()
	s.link.grant(ctx, messages, bytes)
}

// task is the settlement of one delivery.
type task struct {
	op   *Op
	nack *parleyv1.NackItem
}

// task returns the settlement of a delivery.
func (s *streaming) task(rng *rand.Rand, d *parleyv1.Delivery) *task {
	mark := markOf(d.GetPayload())
	v := verdict{kind: Ack, delayMS: none}
	if !s.Mended {
		v = decide(rng, mark, int(d.GetAttempt()))
	}
	t := &task{
		op: &Op{
			Client: s.Name, Addr: s.info.Addr, Kind: v.kind, Topic: s.Topic, Mark: mark, MessageID: d.GetMessageId(), Group: s.Group,
			Stream: s.info.ID, Token: d.GetToken(), Attempt: int(d.GetAttempt()), DelayMS: v.delayMS, Partition: int(d.GetPartition()),
			Dead: v.dead(),
		},
		nack: v.nack(d.GetToken()),
	}
	return t
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
func (s *streaming) extendTwice(ctx context.Context, d *parleyv1.Delivery) {
	for range 2 {
		chaos.Sleep(ctx, s.AckTimeout*2/3)
		op := s.task(nil, &parleyv1.Delivery{
			Token: d.GetToken(), MessageId: d.GetMessageId(), Payload: d.GetPayload(), Attempt: d.GetAttempt(), Partition: d.GetPartition(),
		}).op
		op.Kind = Extend
		s.settleTasks(ctx, []*task{{op: op}})
	}
}

// settleTasks settles some deliveries, all of one kind, in one call. It retries those of unknown
// outcome, up to three times: settlements are idempotent.
func (s *streaming) settleTasks(ctx context.Context, tasks []*task) {
	for try := 0; len(tasks) > 0 && try < 4; try++ {
		if try > 0 && !chaos.Sleep(ctx, 200*time.Millisecond) {
			return
		}
		for _, t := range tasks {
			t.op.ID, t.op.Begin, t.op.End, t.op.Outcome = fmt.Sprintf("%s/%d", s.Name, s.n.Add(1)), now(), 0, ""
			t.op.Reason, t.op.Err = "", ""
			s.out.write(line{Op: t.op})
		}
		results, err := s.link.settle(context.WithoutCancel(ctx), tasks)
		ops := make([]*Op, len(tasks))
		for i, t := range tasks {
			ops[i] = t.op
		}
		endAll(ops, results, err, nil)
		var open []*task
		for _, t := range tasks {
			s.out.write(line{Op: t.op})
			if t.op.Outcome == chaos.Unknown {
				again := *t.op
				again.Repeat = true
				open = append(open, &task{&again, t.nack})
			}
		}
		tasks = open
	}
}
