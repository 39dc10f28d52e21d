package queue

import (
	"errors"
	"time"

	parleyv1 "github.com/parleyhq/parley/gen/go/parley/v1"
	parley "github.com/parleyhq/parley/sdk/go"
)

const (
	// maxItems bounds the settlements, or the extended deliveries, of one request. It is the
	// server's limit.
	maxItems = 1000
	// gatherItems and gatherFor bound the number and the age of verdicts that wait while a batch is
	// in flight.
	gatherItems = 256
	gatherFor   = 5 * time.Millisecond
	// maxBatches is the number of batches in flight from which on verdicts wait. A batch is a
	// request, of acks or of nacks.
	maxBatches = 8
)

// outbox gathers verdicts into batches. While no batch is in flight, a verdict is sent at once.
// Otherwise it waits until there are 256 of them, or for 5 ms, and while 8 batches are in flight.
// While no stream is live, verdicts wait for the next one, whose request has them too.
//
// A task that is settling is in pending, in a batch in flight, or waits for its repetition. Guarded
// by the run's lock.
type outbox struct {
	pending []*task
	timer   *time.Timer
	// overdue is true once the pending verdicts have waited for gatherFor.
	overdue bool
	batches int
	// failures counts the batches in a row that had retryable failures.
	failures int
}

// addLocked queues the verdict of a task and sends it soon.
func (r *run) addLocked(tasks ...*task) {
	if r.closed {
		return
	}
	o := &r.out
	if len(o.pending) == 0 && o.batches > 0 {
		o.timer = time.AfterFunc(gatherFor, func() {
			r.mu.Lock()
			defer r.mu.Unlock()
			o.overdue = true
			r.goLocked()
		})
	}
	o.pending = append(o.pending, tasks...)
	r.goLocked()
}

// stopLocked stops the outbox: nothing is sent any more.
func (o *outbox) stopLocked() {
	o.pending = nil
	if o.timer != nil {
		o.timer.Stop()
	}
}

// goLocked sends a batch of pending verdicts, if it is time and a stream is live.
func (r *run) goLocked() {
	o := &r.out
	for s := r.current; s != nil && !r.closed && len(o.pending) > 0; {
		if o.batches == maxBatches || o.batches > 0 && !o.overdue && len(o.pending) < gatherItems {
			return
		}
		n := min(len(o.pending), maxItems)
		var acks, nacks []*task
		for _, t := range o.pending[:n] {
			switch {
			case t.stage != settling: // over meanwhile
				continue
			case t.nack == nil:
				acks = append(acks, t)
			default:
				nacks = append(nacks, t)
			}
			t.sent++
		}
		if o.pending = o.pending[n:]; len(o.pending) == 0 {
			o.pending, o.overdue = nil, false
			if o.timer != nil {
				o.timer.Stop()
			}
		}
		for _, part := range [][]*task{acks, nacks} {
			if len(part) > 0 {
				o.batches++
				r.work.Go(func() { r.send(s, part) })
			}
		}
	}
}

// send sends verdicts that are either all acks or all nacks, and queues those again that have no
// final answer.
func (r *run) send(s *stream, part []*task) {
	results, err := s.wire.do(s.ctx, settleRequest(part))
	r.mu.Lock()
	if err != nil && (s.ctx.Err() != nil || r.current != s) {
		err = errStreamOver // another stream has the session
	}
	if errors.Is(err, errStreamOver) && r.current == s {
		r.current = nil // the goroutine that receives has not noticed it yet
		r.notifyLocked()
	}
	r.mu.Unlock()
	again, failure := r.answered(part, results, err)
	r.mu.Lock()
	wait := time.Duration(0)
	switch {
	case len(again) == 0:
		r.out.failures = 0
	case !errors.Is(failure, errStreamOver): // after which the next stream is waited for
		wait = r.w.link.Wait(r.out.failures, failure)
		r.out.failures++
	}
	r.out.batches--
	r.goLocked()
	r.mu.Unlock()
	if errors.Is(err, parley.ErrSessionLost) {
		r.giveUp(s.session, lost("the session has ended: "+err.Error()))
		return
	}
	if len(again) == 0 {
		return
	}
	timer := time.NewTimer(wait)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-r.life.Done():
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.addLocked(again...)
}

// answered handles the results of verdicts, or the error of their request as a whole. It returns
// the tasks without a final answer and one of their failures.
func (r *run) answered(part []*task, results []*parleyv1.SettleResult, err error) (again []*task, failure error) {
	if errors.Is(err, parley.ErrSessionLost) {
		return nil, err // the caller gives up the session
	}
	var gone []*task
	var errs []error
	r.mu.Lock()
	for i, t := range part {
		itemErr := err
		if err == nil && i < len(results) {
			itemErr = r.w.link.ItemError(results[i].GetError())
		} else if err == nil {
			itemErr = errUnanswered
		}
		switch {
		case t.stage != settling:
		case itemErr == nil, errors.Is(itemErr, parley.ErrDeliveryGone) && t.sent > 1:
			// An earlier verdict without an answer has arrived.
			r.endLocked(t, nil)
		case errors.Is(itemErr, errStreamOver), r.w.link.WorthRetrying(itemErr):
			again, failure = append(again, t), itemErr
		default:
			r.endLocked(t, itemErr)
			gone, errs = append(gone, t), append(errs, itemErr)
		}
	}
	r.mu.Unlock()
	for i, t := range gone {
		r.report([]*task{t}, errs[i])
	}
	return again, failure
}

func settleRequest(part []*task) *parleyv1.StreamingConsumeRequest {
	if part[0].nack == nil {
		ack := &parleyv1.AckRequest{Tokens: make([]string, len(part))}
		for i, t := range part {
			ack.Tokens[i] = t.token
		}
		return &parleyv1.StreamingConsumeRequest{Request: &parleyv1.StreamingConsumeRequest_Ack{Ack: ack}}
	}
	nack := &parleyv1.NackRequest{Items: make([]*parleyv1.NackItem, len(part))}
	for i, t := range part {
		nack.Items[i] = t.nack
	}
	return &parleyv1.StreamingConsumeRequest{Request: &parleyv1.StreamingConsumeRequest_Nack{Nack: nack}}
}
