package queue

import (
	"context"
	"errors"
	"io"
	"time"

	parleyv1 "github.com/parleyhq/parley/gen/go/parley/v1"
	parley "github.com/parleyhq/parley/sdk/go"
	"github.com/parleyhq/parley/sdk/go/internal/link"
)

// stream is one Consume or StreamingConsume stream of a run.
type stream struct {
	r     *run
	watch link.Stream
	wire  wire
	// ctx ends with the stream.
	ctx  context.Context //nolint:containedctx // see above
	stop context.CancelCauseFunc
	// watched is true while the stream ends with link's context and its watchdog runs: until the
	// server asks to replace the stream. Only the goroutine that receives uses it.
	watched bool
	// unwatch ends the connection with link's context.
	unwatch func() bool
	// session is the one to resume. The first frame sets it if it is nil.
	session *session
	// verdicts are the tasks of the unanswered verdicts in the stream's request, in order.
	verdicts []*task
	live     bool
	// grace is the resume grace that the first frame contained.
	grace time.Duration
	// asked is when the stream was requested. The server states the age of heartbeats since then.
	// known is when it sent the latest one, or asked: no later than that.
	asked, known time.Time
}

// errReplace is the end of a stream that the server asked to replace. It stays open until the next
// one is live.
var errReplace = errors.New("the server asked to reconnect")

// follow opens one stream and handles its frames until it ends, or until the server asks to replace
// it. ctx is the context of the stream's call.
func (r *run) follow(ctx context.Context, watch link.Stream) error {
	if r.nothingToSettle() {
		<-r.life.Done() // which is soon
		return r.life.Err()
	}
	s := &stream{r: r, watch: watch, watched: true}
	// The parent is not ctx, which carries the call's token and ends when follow returns.
	s.ctx, s.stop = context.WithCancelCause(r.life)
	s.unwatch = context.AfterFunc(ctx, func() { s.stop(context.Cause(ctx)) })
	err := s.open(ctx)
	if err == nil {
		err = s.take()
	}
	if errors.Is(err, errReplace) {
		r.spawn(s.retire)
		return nil
	}
	s.unwatch()
	return r.ended(s, err)
}

// open requests the stream.
func (s *stream) open(ctx context.Context) (err error) {
	r := s.r
	r.mu.Lock()
	start, verdicts := r.requestLocked()
	s.session, s.verdicts, r.opening = r.session, verdicts, s
	s.asked = time.Now()
	s.known = s.asked
	r.mu.Unlock()
	// The call ends with the stream rather than with ctx.
	call, cancel := context.WithCancelCause(context.WithoutCancel(ctx))
	context.AfterFunc(s.ctx, func() { cancel(context.Cause(s.ctx)) })
	if r.w.cfg.unary {
		s.wire, err = dialUnary(call, s, start)
	} else {
		s.wire, err = dialBidi(call, s, start)
	}
	return err
}

// take receives and handles frames until the stream ends, and returns the reason.
func (s *stream) take() error {
	for {
		frame, err := s.wire.receive()
		if err != nil {
			return err
		}
		if err := s.handle(frame); err != nil {
			return err
		}
		s.idle()
	}
}

// busy and idle pause and restart the watchdog.
func (s *stream) busy() {
	if s.watched {
		s.watch.Busy()
	}
}

func (s *stream) idle() {
	if s.watched {
		s.watch.Idle()
	}
}

// handle handles one frame. An error ends the stream.
func (s *stream) handle(frame *parleyv1.ConsumeResponse) error {
	if first := frame.GetStarted(); first != nil && !s.live {
		if err := s.begin(first); err != nil {
			return err
		}
	}
	if !s.live {
		return nil
	}
	if !s.confirm(frame.GetHeartbeat()) {
		return retryable(noContact)
	}
	switch {
	case frame.GetDeliveries() != nil:
		return s.accept(frame.GetDeliveries().GetDeliveries())
	case frame.GetLost() != nil:
		s.r.lose(s.session, frame.GetLost())
	case frame.GetReconnect() != nil && s.watched:
		s.watch.Advise(frame.GetReconnect().GetWithin().AsDuration())
		if s.unwatch() {
			s.watched = false
			return errReplace
		}
	}
	return nil
}

// confirm records the contact that a frame confirms, which a heartbeat does. It returns false if
// the session is over.
//
// The contact counts from when the server sent the heartbeat, and not from when it was read: it may
// have waited for a process that was stopped.
func (s *stream) confirm(beat *parleyv1.SessionHeartbeat) bool {
	if beat == nil {
		return s.r.confirm(s.session, time.Time{})
	}
	if at := s.asked.Add(beat.GetElapsed().AsDuration()); at.After(s.known) {
		s.known = at
	}
	return s.r.confirm(s.session, s.known.Add(-beat.GetUnconfirmed().AsDuration()))
}

// begin handles the first frame.
func (s *stream) begin(first *parleyv1.SessionStarted) error {
	r := s.r
	s.watch.Live(first.GetHeartbeatInterval().AsDuration())
	if s.grace = first.GetResumeGrace().AsDuration(); s.grace <= 0 {
		s.grace = defaultGrace
	}
	if !r.started(s, first) {
		return retryable("the session has ended")
	}
	s.live = true
	r.w.counts.streams.Add(1)
	r.w.cfg.onState(parley.StateChange{State: parley.StateLive, Addr: s.watch.Addr()})
	r.spawn(s.keepExtending)
	r.mu.Lock()
	defer r.mu.Unlock()
	r.goLocked()
	if len(r.marks.pending) > 0 {
		r.spawnLocked(r.sendMarks)
	}
	if r.stopping {
		r.spawnLocked(s.leave)
	}
	return nil
}

// accept creates tasks for deliveries and submits them.
func (s *stream) accept(deliveries []*parleyv1.Delivery) error {
	if !s.watched {
		return nil // the frame that asked to replace the stream was to be the last one
	}
	tasks, ok := s.r.hold(s, deliveries)
	if !ok {
		return retryable("the session has ended")
	}
	for _, t := range tasks {
		s.r.pool.submit(t)
	}
	return nil
}

// retire receives what still arrives on a stream that is to be replaced, until the next one is
// live.
func (s *stream) retire() {
	s.r.mu.Lock()
	current := s.r.current == s
	if current {
		s.r.retiring = s
	}
	s.r.mu.Unlock()
	if current {
		_ = s.take()
	}
	s.close(retryable("the stream was replaced"))
}

// ended records that a stream has ended, and returns the error with which the next one is opened.
func (r *run) ended(s *stream, err error) error {
	graceful := errors.Is(err, io.EOF)
	if graceful {
		// The server has answered all verdicts, but the answers may arrive on other connections.
		ctx, cancel := context.WithTimeout(s.ctx, haste)
		r.until(ctx, func() bool { return r.session == nil || r.session != s.session || len(r.session.tasks) == 0 })
		cancel()
	}
	err = r.w.link.Error(err)
	s.close(err)
	r.mu.Lock()
	own := s.session != nil && s.session == r.session
	if own && graceful && r.stopping {
		r.left = true
		r.notifyLocked()
	}
	r.mu.Unlock()
	if errors.Is(err, parley.ErrSessionLost) {
		if own {
			r.giveUp(s.session, lost("the session has ended: "+err.Error()))
		}
		err = retryable(err.Error())
	}
	if r.nothingToSettle() {
		<-r.life.Done() // which is soon
		return r.life.Err()
	}
	return err
}

// nothingToSettle reports whether the worker is stopping and needs no stream to settle deliveries.
func (r *run) nothingToSettle() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return (r.stopping || r.asked.Err() != nil) && (r.session == nil || r.left || len(r.session.tasks) == 0)
}

// abandon ends the stream for the given reason. The goroutine that receives then closes it.
func (s *stream) abandon(err error) {
	s.watch.Leave(err)
	s.stop(err)
}

// close ends the stream. Requests that wait for an answer fail.
func (s *stream) close(err error) {
	s.stop(err)
	if s.wire != nil {
		s.wire.close()
	}
	r := s.r
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.current == s {
		r.current = nil
	}
	if r.retiring == s {
		r.retiring = nil
	}
	if r.opening == s {
		r.opening = nil
	}
	r.notifyLocked()
}

// leave makes the call Leave: the server sends no more deliveries.
func (s *stream) leave() {
	// The server returns what no handler has begun. Verdicts that it did not get must not be too late.
	s.r.sendMarksOf(settling)
	_, err := s.wire.do(s.ctx, &parleyv1.StreamingConsumeRequest{
		Request: &parleyv1.StreamingConsumeRequest_Leave{Leave: &parleyv1.LeaveRequest{}},
	})
	if err != nil && s.ctx.Err() == nil {
		s.r.w.link.Log().WarnContext(s.ctx, "leave group failed", "group", s.r.w.group, "error", err)
	}
}

// keepExtending extends all deliveries at intervals of a third of the ack timeout, until the stream
// ends. The first interval began on an earlier stream, if there was one: streams may be shorter
// than an interval.
func (s *stream) keepExtending() {
	every := s.r.w.cfg.ackTimeout / 3
	s.r.mu.Lock()
	timer := time.NewTimer(every - time.Since(s.session.extended))
	s.r.mu.Unlock()
	defer timer.Stop()
	for {
		select {
		case <-s.ctx.Done():
			return
		case <-timer.C:
			timer.Reset(every)
			s.extend()
		}
	}
}
