package consume

import (
	"context"
	"errors"
	"io"
	"time"

	"github.com/parleyhq/parley/server/internal/fault"
	"github.com/parleyhq/parley/server/internal/queue/dispatch"
	"github.com/parleyhq/parley/server/internal/stream"
)

const (
	// receiveBytes bounds the messages of one Receive, unless the first is larger.
	receiveBytes = 1 << 20
	// gatherFor is how long Receive waits for more messages after the first.
	gatherFor = 5 * time.Millisecond
	// lookFor is how long Receive waits at least: as long as it takes to look.
	lookFor = 100 * time.Millisecond
)

// Receive returns up to r.Max messages of a topic, as soon as there is one. It fails with
// TOPIC_NOT_FOUND, GROUP_NOT_FOUND, GROUP_EXCLUSIVE, NODE_FULL and SHUTTING_DOWN. The deliveries are
// the caller's even if the answer does not reach it.
func (s *Service) Receive(ctx context.Context, r ReceiveRequest) (received Received, err error) {
	grace, exclusive, err := s.checkTopics(ctx, false, r.Group, r.Topic)
	if err != nil {
		return received, err
	}
	if exclusive {
		return received, fault.New(fault.FailedPrecondition, fault.GroupExclusive,
			"group %s of topic %s is exclusive: its messages cannot be received without a stream", r.Group, r.Topic)
	}
	e := s.engine(r.Group)
	if e == nil {
		return received, stream.ShuttingDown()
	}
	received.SessionID = s.ids.New(r.Subject, r.Group)
	st, err := s.streams.Admit(r.Subject, time.Time{}, func(id stream.Identity) *Stream {
		return newStream(id, received.SessionID, time.Hour, &s.unsent)
	})
	if err != nil {
		return received, err
	}
	defer s.Close(st)
	ses := &session{
		SessionProfile: SessionProfile{ID: received.SessionID, Consumer: r.Consumer, AckTimeout: r.AckTimeout, Grace: grace, Loose: true},
		subject:        r.Subject, topics: []string{r.Topic}, state: Attached, stream: st, held: map[Token]*heldDelivery{},
		concurrency: r.Max, maxInFlight: r.Max, maxBytes: receiveBytes,
	}
	e.post(func(now time.Time) {
		e.add(now, ses)
		if t := e.topic(r.Topic); t.alone || t.settings == nil {
			t.claimed = now.Add(neededFor)
			t.reviewSoon(now)
		}
	})
	received.Deliveries, err = gather(ctx, st, r)
	if ctx.Err() != nil && len(received.Deliveries) > 0 {
		// Nobody waits for them any more.
		items := make([]Settlement, len(received.Deliveries))
		for i := range items {
			items[i] = Settlement{Token: received.Deliveries[i].Token, Verdict: dispatch.Release}
		}
		e.post(func(now time.Time) { e.settle(now, ses.ID, s.cfg.Node, items, newCall(len(items))) })
	}
	return received, err
}

// gather reads deliveries from the stream of a Receive: at most those that fit, waiting for the first.
func gather(ctx context.Context, st *Stream, r ReceiveRequest) (list []Delivery, err error) {
	wait := max(r.Wait, lookFor)
	for len(list) < r.Max {
		f, err := next(ctx, st, wait)
		switch {
		case err == nil:
		case errors.Is(err, context.DeadlineExceeded), len(list) > 0, errors.Is(err, io.EOF):
			return list, ctx.Err()
		default:
			return nil, err
		}
		if list = append(list, f.Deliveries...); len(list) > 0 {
			wait = gatherFor
		}
	}
	return list, nil
}

// next returns the next frame of a stream within a time.
func next(ctx context.Context, st *Stream, wait time.Duration) (Frame, error) {
	ctx, cancel := context.WithTimeout(ctx, wait)
	defer cancel()
	return st.Next(ctx)
}

// finishReceive ends the session of a Receive. What it was given it keeps, until it is settled or its
// ack timeout passes.
func (e *engine) finishReceive(now time.Time, s *session) {
	s.state = Gone
	s.promises = nil
	e.serving(func(h *holder) { h.d.Leave(now, s.ID) })
	e.forget(now, s)
}
