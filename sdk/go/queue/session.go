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
	// maxItems bounds one request of settlements; the server takes as many.
	maxItems = 1000
)

var (
	errHandlerTimeout = errors.New("the handler took longer than its timeout")
	errGoexit         = errors.New("the handler ended its goroutine")
)

// lost is why a delivery is no longer the worker's.
func lost(message string) *parley.Error {
	return &parley.Error{
		Code: connect.CodeFailedPrecondition, Reason: parleyv1.ErrorReason_ERROR_REASON_LEASE_LOST, Message: message,
	}
}

// stage is how far a task is.
type stage uint8

const (
	waiting stage = iota
	begun
	// settling: its outcome is decided, and on the way to the server.
	settling
	over
)

// task is a delivery on its way through the worker.
type task struct {
	d     *Delivery
	token string
	size  int64
	s     *session

	// The session's lock guards what follows.
	stage stage
	// cancel ends the handler's context; nil while there is none.
	cancel context.CancelCauseFunc
}

func (t *task) lane() lane { return lane{partition: t.d.Partition, key: t.d.Key} }

// begin gives the handler's context, and reports whether the task is to be handled.
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

// settle decides the task's outcome, once, and sends it.
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

// session is one stream of a worker that is live, or is to be.
type session struct {
	r      *run
	stream link.Stream
	wire   wire
	// ctx ends with the stream; the contexts of handlers come from it.
	ctx  context.Context //nolint:containedctx // see above
	stop context.CancelCauseFunc
	out  *outbox
	// live is closed with the first frame. arrived holds a token after deliveries have come in.
	live    chan struct{}
	arrived chan struct{}

	mu    sync.Mutex // guards what follows
	tasks map[string]*task
	ended bool
	// credits are what the server may send.
	credits credits
}

// follow makes one stream and takes its deliveries until it ends.
func (r *run) follow(ctx context.Context, stream link.Stream) error {
	s := &session{r: r, stream: stream, tasks: make(map[string]*task), live: make(chan struct{}), arrived: make(chan struct{}, 1)}
	cfg := &r.w.cfg
	s.credits = newCredits(cfg.messages, cfg.bytes)
	// Not from the call's context: that carries the call's token.
	s.ctx, s.stop = context.WithCancelCause(r.life)
	start := &parleyv1.ConsumeRequest{
		Topic: r.w.topic, Group: r.w.group, Consumer: cfg.consumer, MaxMessages: cfg.messages, MaxBytes: &cfg.bytes,
		AckTimeout: durationpb.New(cfg.ackTimeout),
	}
	var err error
	if cfg.unary {
		s.wire, err = dialUnary(ctx, r.w.link, stream, start)
	} else {
		s.wire, err = dialBidi(ctx, r.w.link, stream, start)
	}
	if err != nil {
		s.stop(lost("no stream"))
		return err
	}
	s.out = newOutbox(s)
	if r.enter(s) {
		err = s.take()
		if errors.Is(err, io.EOF) {
			// The server has answered all; by other connections, maybe.
			flushed, cancel := context.WithTimeout(ctx, haste)
			s.out.flush(flushed)
			cancel()
		}
	}
	if errors.Is(r.w.link.Error(err), parley.ErrLeaseLost) {
		// The server has ended this session. Another may live.
		err = retryable(err.Error())
	}
	stream.Leave(err)
	s.end()
	s.wire.close()
	r.leave(s)
	if r.isStopping() {
		<-r.life.Done() // which is soon
		return r.life.Err()
	}
	return err
}

// take takes frames until the stream ends.
func (s *session) take() error {
	live := false
	for {
		frame, err := s.wire.receive()
		if err != nil {
			return err
		}
		if first := frame.GetSession(); !live && first != nil {
			live = true
			s.stream.Live(first.GetHeartbeatInterval().AsDuration())
			s.r.w.counts.sessions.Add(1)
			close(s.live)
			s.r.w.cfg.onState(parley.StateChange{State: parley.StateLive, Addr: s.stream.Addr()})
			s.out.run(func() { s.keepExtending(first.GetAckTimeout().AsDuration()) })
		}
		s.accept(frame.GetDeliveries().GetDeliveries())
		if a := frame.GetAssignment(); a != nil {
			s.assigned(a)
		}
		s.stream.Idle()
	}
}

// accept takes deliveries in.
func (s *session) accept(deliveries []*parleyv1.Delivery) {
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

// assigned asks after what is in flight of partitions that are no longer the session's.
func (s *session) assigned(a *parleyv1.PartitionAssignment) {
	has := make(map[int]bool, len(a.GetPartitions()))
	for _, p := range a.GetPartitions() {
		has[int(p)] = true
	}
	gone := s.held(func(t *task) bool { return !has[t.d.Partition] })
	if len(gone) > 0 {
		s.out.run(func() { s.extend(gone) })
	}
}

// held gives the tokens of what is in flight, also of what is on its way to be settled.
func (s *session) held(wanted func(t *task) bool) []string {
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

// keepExtending extends all that is in flight every third of the ack timeout.
func (s *session) keepExtending(ackTimeout time.Duration) {
	if ackTimeout <= 0 {
		ackTimeout = s.r.w.cfg.ackTimeout
	}
	ticker := time.NewTicker(ackTimeout / 3)
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

// extend keeps deliveries for another while. Those that are no longer the session's are told so.
func (s *session) extend(tokens []string) {
	for len(tokens) > 0 {
		part := tokens[:min(len(tokens), maxItems)]
		tokens = tokens[len(part):]
		results, err := s.wire.do(s.ctx, &parleyv1.StreamingConsumeRequest{
			Request: &parleyv1.StreamingConsumeRequest_Extend{Extend: &parleyv1.StreamingExtend{Tokens: part}},
		})
		if err != nil && s.ctx.Err() == nil {
			// There are two more tries before the time is up.
			s.r.w.link.Log().WarnContext(s.ctx, "extending failed", "topic", s.r.w.topic, "group", s.r.w.group, "error", err)
		}
		for i, result := range results[:min(len(results), len(part))] {
			if err := s.r.w.link.ItemError(result.GetError()); errors.Is(err, parley.ErrLeaseLost) {
				s.lose(part[i], err)
			}
		}
	}
}

// lose ends a task whose delivery is another's.
func (s *session) lose(token string, err error) {
	s.mu.Lock()
	t := s.tasks[token]
	if t == nil || t.stage >= settling {
		s.mu.Unlock()
		return
	}
	t.stage = settling // nobody else frees its credits
	more := s.freeLocked(t)
	s.mu.Unlock()
	s.remove(t, err)
	if more != nil {
		s.wire.grant(s.ctx, more)
	}
}

// freeLocked frees the credits of deliveries that are settled or lost, and gives what is to be told of that; nil for nothing.
func (s *session) freeLocked(tasks ...*task) *parleyv1.StreamingCredits {
	for _, t := range tasks {
		s.credits.free(t.size)
	}
	if s.r.isStopping() {
		return nil // while it stops, a worker asks for nothing more
	}
	return s.credits.grant()
}

// remove takes a task from what is in flight: settled where err is nil, else lost.
func (s *session) remove(t *task, err error) bool {
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

// abandon ends the contexts of the handlers that run.
func (s *session) abandon(cause error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, t := range s.tasks {
		if t.stage == begun {
			t.cancel(cause)
		}
	}
}

// leave asks the server to let the session go, and gives back what was not begun, also what is still on its way, until the stream
// ends. No handler begins any more.
func (s *session) leave() {
	noStream := time.AfterFunc(haste, func() { s.stop(lost("no stream")) })
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
			s.r.w.link.Log().WarnContext(s.ctx, "leaving failed", "topic", s.r.w.topic, "group", s.r.w.group, "error", err)
		}
	})
	for {
		for _, t := range s.takeUnhandled() {
			s.out.add(settlement{t: t, nack: &parleyv1.Nacked{Token: t.token, Release: true}})
		}
		select {
		case <-s.arrived:
		case <-s.ctx.Done():
			return
		}
	}
}

// takeUnhandled decides that what was not begun is given back.
func (s *session) takeUnhandled() []*task {
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

// await waits until the stream has ended.
func (s *session) await(limit time.Duration) {
	timer := time.NewTimer(limit)
	defer timer.Stop()
	select {
	case <-s.ctx.Done():
	case <-timer.C:
	}
}

// end says that the stream has ended: what was in flight is lost.
func (s *session) end() {
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
