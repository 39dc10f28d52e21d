package queue

import (
	"context"
	"errors"
	"io"
	"sync"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/types/known/durationpb"

	parleyv1 "github.com/parleyhq/parley/gen/go/parley/v1"
	parley "github.com/parleyhq/parley/sdk/go"
	"github.com/parleyhq/parley/sdk/go/internal/link"
)

const (
	// maxItems bounds the settlements, or the extended deliveries, of one request. It is the server's
	// limit.
	maxItems = 1000
)

var (
	errHandlerTimeout = errors.New("the handler took longer than its timeout")
	errGoexit         = errors.New("the handler ended its goroutine")
)

// lost returns an error with the reason LEASE_LOST, for a delivery that the worker has lost.
func lost(message string) *parley.Error {
	return &parley.Error{
		Code: connect.CodeFailedPrecondition, Reason: parleyv1.ErrorReason_ERROR_REASON_LEASE_LOST, Message: message,
	}
}

// stage is the state of a task: waiting for a handler, begun by one, settling, over. It only
// increases.
type stage uint8

const (
	waiting stage = iota
	begun
	// settling means that the outcome is decided and is being sent to the server.
	settling
	over
)

// task is a delivery that the worker holds until it is settled or lost.
type task struct {
	d     *Delivery
	token string
	size  int64
	s     *stream

	// The fields below are guarded by the stream's lock.
	stage stage
	// cancel ends the handler's context. It is nil until the handler begins.
	cancel context.CancelCauseFunc
}

func (t *task) lane() lane { return lane{partition: t.d.Partition, key: t.d.Key} }

// begin returns the handler's context. It returns false if the task was settled, released or lost
// meanwhile and must not be handled.
func (t *task) begin() (context.Context, context.CancelCauseFunc, bool) {
	t.s.mu.Lock()
	defer t.s.mu.Unlock()
	if t.stage != waiting || t.s.ended {
		return nil, nil, false
	}
	t.stage = begun
	ctx, cancel := context.WithCancelCause(t.s.ctx)
	t.cancel = cancel
	return ctx, cancel, true
}

// settle queues an ack if err is nil, else the nack for err. Only the first call after begin has an
// effect.
func (t *task) settle(err error) {
	t.s.mu.Lock()
	if t.stage != begun {
		t.s.mu.Unlock()
		return
	}
	t.stage = settling
	t.s.mu.Unlock()
	if err == nil {
		t.s.out.add(settlement{t: t})
		return
	}
	t.s.out.add(settlement{t: t, nack: nackOf(t.token, err)})
}

// stream is one Consume or StreamingConsume stream of a worker.
type stream struct {
	r     *run
	watch link.Stream
	wire  wire
	// ctx ends with the stream. It is the parent of the handlers' contexts.
	ctx  context.Context //nolint:containedctx // see above
	stop context.CancelCauseFunc
	out  *outbox
	// live is closed by the first frame. arrived holds a value if deliveries may have arrived since it
	// was last received from.
	live    chan struct{}
	arrived chan struct{}

	mu    sync.Mutex // guards the fields below
	tasks map[string]*task
	ended bool
	// credits counts how much the server may send.
	credits credits
}

// follow opens one stream and handles its deliveries until it ends. ctx is the context of the
// stream's call.
func (r *run) follow(ctx context.Context, watch link.Stream) error {
	s := &stream{r: r, watch: watch, tasks: make(map[string]*task), live: make(chan struct{}), arrived: make(chan struct{}, 1)}
	cfg := &r.w.cfg
	s.credits = newCredits(cfg.messages, cfg.bytes)
	// The parent is not ctx, which carries the call's token.
	s.ctx, s.stop = context.WithCancelCause(r.life)
	start := &parleyv1.ConsumeRequest{
		Topic: r.w.topic, Group: r.w.group, Consumer: cfg.consumer, MaxMessages: cfg.messages, MaxBytes: &cfg.bytes,
		AckTimeout: durationpb.New(cfg.ackTimeout),
	}
	var err error
	if cfg.unary {
		s.wire, err = dialUnary(ctx, r.w.link, watch, start)
	} else {
		s.wire, err = dialBidi(ctx, r.w.link, watch, start)
	}
	if err != nil {
		s.stop(lost("no stream is open"))
		return err
	}
	s.out = newOutbox(s)
	if r.enter(s) {
		err = s.take()
		if errors.Is(err, io.EOF) {
			// The server has answered all requests, but the answers may arrive on other
			// connections.
			flushed, cancel := context.WithTimeout(ctx, haste)
			s.out.flush(flushed)
			cancel()
		}
	}
	if errors.Is(r.w.link.Error(err), parley.ErrLeaseLost) {
		// The server has ended this stream. The next one may work.
		err = retryable(err.Error())
	}
	watch.Leave(err)
	s.end()
	s.wire.close()
	r.leave(s)
	if r.isStopping() {
		<-r.life.Done() // which is soon
		return r.life.Err()
	}
	return err
}

// take receives and handles frames until the stream ends, and returns the reason.
func (s *stream) take() error {
	live := false
	for {
		frame, err := s.wire.receive()
		if err != nil {
			return err
		}
		if first := frame.GetInfo(); !live && first != nil {
			live = true
			s.watch.Live(first.GetHeartbeatInterval().AsDuration())
			s.r.w.counts.streams.Add(1)
			close(s.live)
			s.r.w.cfg.onState(parley.StateChange{State: parley.StateLive, Addr: s.watch.Addr()})
			s.out.run(s.keepExtending)
		}
		s.accept(frame.GetDeliveries().GetDeliveries())
		if a := frame.GetAssignment(); a != nil {
			s.assigned(a)
		}
		s.watch.Idle()
	}
}

// accept creates tasks for deliveries and submits them.
func (s *stream) accept(deliveries []*parleyv1.Delivery) {
	for _, one := range deliveries {
		t := &task{d: newDelivery(s.r.w.topic, s.r.w.group, one), token: one.GetToken(), s: s}
		t.size = t.d.size()
		s.r.w.counts.delivered.Add(1)
		s.mu.Lock()
		s.tasks[t.token] = t
		s.mu.Unlock()
		s.r.pool.submit(t)
	}
	if len(deliveries) > 0 {
		select {
		case s.arrived <- struct{}{}:
		default:
		}
	}
}

// assigned extends the deliveries in flight of partitions that are no longer assigned, to find out
// whether they are lost.
func (s *stream) assigned(a *parleyv1.PartitionAssignment) {
	has := make(map[int]bool, len(a.GetPartitions()))
	for _, p := range a.GetPartitions() {
		has[int(p)] = true
	}
	gone := s.held(func(t *task) bool { return !has[t.d.Partition] })
	if len(gone) > 0 {
		s.out.run(func() { s.extend(gone) })
	}
}

// held returns the delivery tokens of the tasks for which wanted returns true, including tasks that
// are being settled.
func (s *stream) held(wanted func(t *task) bool) []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	var tokens []string
	for token, t := range s.tasks {
		if wanted(t) {
			tokens = append(tokens, token)
		}
	}
	return tokens
}

// keepExtending extends all deliveries in flight at intervals of a third of the ack timeout, until
// the stream ends.
func (s *stream) keepExtending() {
	ticker := time.NewTicker(s.r.w.cfg.ackTimeout / 3)
	defer ticker.Stop()
	for {
		select {
		case <-s.ctx.Done():
			return
		case <-ticker.C:
			s.extend(s.held(func(*task) bool { return true }))
		}
	}
}

// extend extends deliveries by the ack timeout. Those for which the server answers LEASE_LOST are
// counted as lost.
func (s *stream) extend(tokens []string) {
	for len(tokens) > 0 {
		part := tokens[:min(len(tokens), maxItems)]
		tokens = tokens[len(part):]
		results, err := s.wire.do(s.ctx, &parleyv1.StreamingConsumeRequest{
			Request: &parleyv1.StreamingConsumeRequest_Extend{Extend: &parleyv1.StreamingExtend{
				Target: &parleyv1.StreamingExtend_Deliveries{Deliveries: &parleyv1.DeliveryTokens{Tokens: part}},
			}},
		})
		if err != nil && s.ctx.Err() == nil {
			// The next extension follows after a third of the ack timeout.
			s.r.w.link.Log().WarnContext(s.ctx, "extend deliveries failed", "topic", s.r.w.topic, "group", s.r.w.group, "error", err)
		}
		for i, result := range results[:min(len(results), len(part))] {
			if err := s.r.w.link.ItemError(result.GetError()); errors.Is(err, parley.ErrLeaseLost) {
				s.lose(part[i], err)
			}
		}
	}
}

// lose removes a task whose delivery was lost, and ends its handler's context. It does nothing if
// the task is being settled.
func (s *stream) lose(token string, err error) {
	s.mu.Lock()
	t := s.tasks[token]
	if t == nil || t.stage >= settling {
		s.mu.Unlock()
		return
	}
	t.stage = settling // so that settle does not free its credits too
	more := s.freeLocked(t)
	s.mu.Unlock()
	s.remove(t, err)
	if more != nil {
		s.wire.grant(s.ctx, more)
	}
}

// freeLocked frees the credits of deliveries that are settled or lost. It returns the grant to
// send, or nil.
func (s *stream) freeLocked(tasks ...*task) *parleyv1.StreamingCredits {
	for _, t := range tasks {
		s.credits.free(t.size)
	}
	if s.r.isStopping() {
		return nil // a worker that is stopping requests no more messages
	}
	return s.credits.grant()
}

// remove removes a task from those in flight: as settled if err is nil, else as lost. It reports
// whether it was the first call for the task.
func (s *stream) remove(t *task, err error) bool {
	s.mu.Lock()
	if t.stage == over {
		s.mu.Unlock()
		return false
	}
	t.stage = over
	delete(s.tasks, t.token)
	cancel := t.cancel
	s.mu.Unlock()
	if cancel != nil {
		cancel(err)
	}
	if err != nil {
		s.r.w.counts.lost.Add(1)
		s.r.w.link.Log().WarnContext(s.ctx, "delivery lost", "message_id", t.d.MessageID, "attempt", t.d.Attempt, "error", err)
		s.r.w.cfg.onLost(t.d, err)
	}
	return true
}

// abandon cancels the contexts of the running handlers with cause. It does not wait for them.
func (s *stream) abandon(cause error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, t := range s.tasks {
		if t.stage == begun {
			t.cancel(cause)
		}
	}
}

// leave makes the call Leave, which tells the server to deliver no more, and releases the
// deliveries that no handler has started, including those that still arrive, until the stream ends.
// No further handler starts.
func (s *stream) leave() {
	noStream := time.AfterFunc(haste, func() { s.stop(lost("no stream is open")) })
	select {
	case <-s.live:
		noStream.Stop()
	case <-s.ctx.Done():
		return
	}
	s.out.run(func() {
		_, err := s.wire.do(s.ctx, &parleyv1.StreamingConsumeRequest{
			Request: &parleyv1.StreamingConsumeRequest_Leave{Leave: &parleyv1.StreamingLeave{}},
		})
		if err != nil && s.ctx.Err() == nil {
			s.r.w.link.Log().WarnContext(s.ctx, "leave group failed", "topic", s.r.w.topic, "group", s.r.w.group, "error", err)
		}
	})
	for {
		for _, t := range s.takeUnhandled() {
			s.out.add(settlement{t: t, nack: release(t.token)})
		}
		select {
		case <-s.arrived:
		case <-s.ctx.Done():
			return
		}
	}
}

// takeUnhandled returns the tasks that no handler has started, and marks them as settling.
func (s *stream) takeUnhandled() []*task {
	s.mu.Lock()
	defer s.mu.Unlock()
	var unhandled []*task
	for _, t := range s.tasks {
		if t.stage == waiting {
			t.stage = settling
			unhandled = append(unhandled, t)
		}
	}
	return unhandled
}

// await waits until the stream has ended, at most for limit.
func (s *stream) await(limit time.Duration) {
	timer := time.NewTimer(limit)
	defer timer.Stop()
	select {
	case <-s.ctx.Done():
	case <-timer.C:
	}
}

// end marks the stream as ended, waits for its goroutines, and counts the unsettled deliveries as
// lost.
func (s *stream) end() {
	s.mu.Lock()
	s.ended = true
	left := make([]*task, 0, len(s.tasks))
	for _, t := range s.tasks {
		left = append(left, t)
	}
	s.mu.Unlock()
	why := lost("the stream ended")
	s.stop(why)
	s.out.close()
	for _, t := range left {
		s.remove(t, why)
	}
}
