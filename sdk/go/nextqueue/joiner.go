package queue

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	nextv1 "github.com/parleyhq/parley/gen/go/parley/next/v1"
)

// joiner joins the messages of concurrent Sends into batches. Safe for concurrent use.
type joiner struct {
	linger time.Duration
	// messages bounds a batch. batches bounds the batches in flight; one more is gathered
	// meanwhile.
	messages, batches int
	do                func(ctx context.Context, b *joinedBatch)
	work              sync.WaitGroup
	// life is the parent of the batches' contexts. It ends when Close has finished, or when the
	// context of Close ends.
	life context.Context //nolint:containedctx // of all batches
	end  context.CancelFunc

	mu     sync.Mutex // guards the fields below, and the batch that is being gathered
	closed bool
	// gathering is the batch that accepts messages. nil if there is none.
	gathering *joinedBatch
	underWay  int
	// room is closed and replaced when the gathering batch is sent, after which a new one has room.
	room chan struct{}
}

// joinedBatch is a group of messages that are sent together. Its requests do not change once it is
// in flight.
type joinedBatch struct {
	requests []*nextv1.QueueMessage
	slots    []*slot
	timer    *time.Timer
	// overdue is true once the batch has waited for the linger time.
	overdue bool
	// waiting counts the callers that wait. When none is left, a batch in flight is cancelled.
	waiting int
	ctx     context.Context //nolint:containedctx // of the batch's call
	cancel  context.CancelFunc
}

func newJoiner(cfg producerConfig, do func(ctx context.Context, b *joinedBatch)) *joiner {
	life, end := context.WithCancel(context.Background()) //nolint:forbidigo // batches are of many callers; Close ends them
	return &joiner{
		linger: cfg.linger, messages: cfg.messages, batches: cfg.batches, do: do, life: life, end: end,
		room: make(chan struct{}),
	}
}

// slot is the place of one message in a batch.
type slot struct {
	answer chan Result
	// failure points to the message's last failure that left it pending, or is nil.
	failure atomic.Pointer[error]
}

// answer sends the result of message i to its caller. It must be called once for each message.
func (b *joinedBatch) answer(i int, r *Receipt, err error) {
	b.slots[i].answer <- Result{Receipt: r, Err: err}
}

// fail records a failure that left message i pending: its own retryable one, or that of the whole
// request.
func (b *joinedBatch) fail(i int, err error) { b.slots[i].failure.Store(&err) }

// send adds a message to a batch and waits for its answer. If ctx ends first, it returns the error
// of ctx, and in last the message's last failure, or nil.
func (j *joiner) send(ctx context.Context, m *nextv1.QueueMessage) (r Receipt, last, err error) {
	b, place, err := j.join(ctx, m)
	if err != nil {
		return Receipt{}, nil, err
	}
	defer j.leave(b)
	select {
	case <-ctx.Done():
		if failure := place.failure.Load(); failure != nil {
			last = *failure
		}
		return Receipt{}, last, ctx.Err()
	case r := <-place.answer:
		if r.Err != nil {
			return Receipt{}, nil, r.Err
		}
		return *r.Receipt, nil, nil
	}
}

// join adds a message to the batch that is being gathered. While that batch is full, it blocks
// until it is sent, or until ctx ends.
func (j *joiner) join(ctx context.Context, m *nextv1.QueueMessage) (*joinedBatch, *slot, error) {
	for {
		if err := ctx.Err(); err != nil {
			return nil, nil, err
		}
		b, place, room, err := j.tryJoin(m)
		if b != nil || err != nil {
			return b, place, err
		}
		select {
		case <-room:
		case <-ctx.Done():
		}
	}
}

// tryJoin returns the message's batch and its slot. If the batch is full, it returns a channel that
// is closed when there may be room.
func (j *joiner) tryJoin(m *nextv1.QueueMessage) (*joinedBatch, *slot, <-chan struct{}, error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.closed {
		return nil, nil, nil, ErrClosed
	}
	if j.gathering == nil {
		j.gathering = j.beginLocked()
	}
	b := j.gathering
	if len(b.requests) >= j.messages {
		return nil, nil, j.room, nil
	}
	place := &slot{answer: make(chan Result, 1)}
	b.requests, b.slots = append(b.requests, m), append(b.slots, place)
	b.waiting++
	j.goLocked()
	return b, place, nil, nil
}

func (j *joiner) beginLocked() *joinedBatch {
	b := &joinedBatch{overdue: j.linger == 0}
	b.ctx, b.cancel = context.WithCancel(j.life)
	b.timer = time.AfterFunc(j.linger, func() {
		j.mu.Lock()
		defer j.mu.Unlock()
		b.overdue = true
		j.goLocked()
	})
	return b
}

// goLocked starts the call of the batch that is being gathered, if it is time. If no other batch is
// in flight, it is sent at once. Otherwise it waits until it is full or overdue, and until fewer
// than j.batches are in flight.
func (j *joiner) goLocked() {
	b := j.gathering
	if b == nil || len(b.requests) == 0 || j.underWay >= j.batches ||
		(j.underWay > 0 && !b.overdue && !j.closed && len(b.requests) < j.messages) {
		return
	}
	b.timer.Stop()
	j.gathering = nil
	close(j.room)
	j.room = make(chan struct{})
	j.underWay++
	if b.waiting == 0 {
		b.cancel()
	}
	j.work.Go(func() {
		defer b.cancel()
		j.do(b.ctx, b)
		j.mu.Lock()
		defer j.mu.Unlock()
		j.underWay--
		j.goLocked()
	})
}

// leave records that a caller of send no longer waits for its answer.
func (j *joiner) leave(b *joinedBatch) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if b.waiting--; b.waiting == 0 && j.gathering != b {
		b.cancel()
	}
}

func (j *joiner) close(ctx context.Context) error {
	j.mu.Lock()
	j.closed = true
	j.goLocked()
	idle := j.underWay == 0 && j.gathering == nil
	j.mu.Unlock()
	if idle {
		j.work.Wait()
		j.end()
		return nil
	}
	stop := context.AfterFunc(ctx, j.end)
	j.work.Wait()
	if !stop() {
		return ctx.Err()
	}
	j.end()
	return nil
}
