package queue

import (
	"context"
	"sync"
	"time"

	parleyv1 "github.com/parleyhq/parley/gen/go/parley/v1"
)

const (
	// gatherItems and gatherFor bound what is gathered while a request is under way.
	gatherItems = 256
	gatherFor   = 5 * time.Millisecond
	// maxUnanswered is how many requests may be under way.
	maxUnanswered = 8
)

// settlement is what becomes of a task: acknowledged where nack is nil.
type settlement struct {
	t    *task
	nack *parleyv1.NackItem
}

// credits counts what the server may send. It sends running totals, so that one that is lost or
// late does no harm.
type credits struct {
	window, windowBytes int64
	// freed is what was settled or lost since the stream began; told is how much of that the server
	// knows.
	freed, freedBytes, told, toldBytes int64
}

func newCredits(messages, bytes int64) credits { return credits{window: messages, windowBytes: bytes} }

// free notes that a message is settled or lost.
func (c *credits) free(size int64) {
	c.freed++
	c.freedBytes += size
}

// grant returns the totals to send, or nil while less than a quarter of the window is free.
func (c *credits) grant() *parleyv1.StreamingCredits {
	if 4*(c.freed-c.told) < c.window && 4*(c.freedBytes-c.toldBytes) < c.windowBytes {
		return nil
	}
	c.told, c.toldBytes = c.freed, c.freedBytes
	return &parleyv1.StreamingCredits{TotalMessages: c.window + c.freed, TotalBytes: c.windowBytes + c.freedBytes}
}

// outbox gathers settlements into requests: one goes at once while none is under way, else with up
// to 255 others or after 5 ms. Safe for concurrent use.
type outbox struct {
	s *stream
	// work are the stream's goroutines. Each is added under mu while the outbox is not closed.
	work sync.WaitGroup

	mu      sync.Mutex // guards what follows
	pending []settlement
	timer   *time.Timer
	// overdue is true once pending has waited for long enough.
	overdue  bool
	closed   bool
	underWay int
	// idle is closed while nothing is pending or under way.
	idle chan struct{}
}

func newOutbox(s *stream) *outbox {
	o := &outbox{s: s, idle: make(chan struct{})}
	close(o.idle)
	return o
}

// add sends a settlement, soon.
func (o *outbox) add(one settlement) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.closed {
		return // The end of the stream loses it.
	}
	if len(o.pending) == 0 && o.underWay == 0 {
		o.idle = make(chan struct{})
	}
	o.pending = append(o.pending, one)
	if len(o.pending) == 1 && o.underWay > 0 {
		o.timer = time.AfterFunc(gatherFor, func() {
			o.mu.Lock()
			defer o.mu.Unlock()
			o.overdue = true
			o.goLocked()
		})
	}
	o.goLocked()
}

// goLocked sends what is pending, if it is time.
func (o *outbox) goLocked() {
	if len(o.pending) == 0 || o.closed || o.underWay == maxUnanswered ||
		(o.underWay > 0 && !o.overdue && len(o.pending) < gatherItems) {
		return
	}
	n := min(len(o.pending), maxItems)
	batch := o.pending[:n:n]
	o.pending = o.pending[n:]
	if len(o.pending) == 0 {
		o.overdue = false
		if o.timer != nil {
			o.timer.Stop()
		}
	}
	o.underWay++
	o.work.Go(func() {
		o.s.settleAll(batch)
		o.mu.Lock()
		defer o.mu.Unlock()
		o.underWay--
		o.goLocked()
		if len(o.pending) == 0 && o.underWay == 0 {
			close(o.idle)
		}
	})
}

// run starts a goroutine of the stream, unless the outbox is closed.
func (o *outbox) run(what func()) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if !o.closed {
		o.work.Go(what)
	}
}

// close waits until no goroutine of the stream runs. Pending settlements are not sent.
func (o *outbox) close() {
	o.mu.Lock()
	o.closed = true
	if o.timer != nil {
		o.timer.Stop()
	}
	o.mu.Unlock()
	o.work.Wait()
}

// flush waits until all that was added is answered.
func (o *outbox) flush(ctx context.Context) {
	o.mu.Lock()
	idle := o.idle
	o.mu.Unlock()
	select {
	case <-idle:
	case <-ctx.Done():
	case <-o.s.ctx.Done():
	}
}

// settleAll sends settlements until each is answered for good, and the credits that they free.
func (s *stream) settleAll(batch []settlement) {
	var acks, nacks []settlement
	tasks := make([]*task, len(batch))
	for i, one := range batch {
		tasks[i] = one.t
		if one.nack == nil {
			acks = append(acks, one)
		} else {
			nacks = append(nacks, one)
		}
	}
	s.mu.Lock()
	more := s.freeLocked(tasks...)
	s.mu.Unlock()
	var all sync.WaitGroup
	if more != nil {
		all.Go(func() { s.wire.grant(s.ctx, more) })
	}
	for _, part := range [][]settlement{acks, nacks} {
		if len(part) > 0 {
			all.Go(func() { s.settlePart(part) })
		}
	}
	all.Wait()
}

// settlePart sends acks, or nacks. Retryable failures are sent again as long as the stream lives.
func (s *stream) settlePart(part []settlement) {
	for failures := 0; ; failures++ {
		results, err := s.wire.do(s.ctx, settleRequest(part))
		var again []settlement
		var failure error
		for i, one := range part {
			itemErr := err
			if err == nil && i < len(results) {
				itemErr = s.r.w.link.ItemError(results[i].GetError())
			} else if err == nil {
				itemErr = errUnanswered
			}
			if itemErr != nil && s.ctx.Err() == nil && s.r.w.link.WorthRetrying(itemErr) {
				again, failure = append(again, one), itemErr
				continue
			}
			s.settled(one, itemErr)
		}
		if len(again) == 0 {
			return
		}
		part = again
		wait := time.NewTimer(s.r.w.link.Wait(failures, failure))
		select {
		case <-wait.C:
		case <-s.ctx.Done():
			wait.Stop()
			return // The end of the stream loses them.
		}
	}
}

// settled counts what became of a settlement.
func (s *stream) settled(one settlement, err error) {
	if !s.remove(one.t, err) || err != nil {
		return
	}
	c := &s.r.w.counts
	switch {
	case one.nack == nil:
		c.acked.Add(1)
	case one.nack.GetRelease() != nil:
		c.released.Add(1)
	default:
		c.nacked.Add(1)
	}
}

func settleRequest(part []settlement) *parleyv1.StreamingConsumeRequest {
	if part[0].nack == nil {
		ack := &parleyv1.StreamingAck{Tokens: make([]string, len(part))}
		for i, one := range part {
			ack.Tokens[i] = one.t.token
		}
		return &parleyv1.StreamingConsumeRequest{Request: &parleyv1.StreamingConsumeRequest_Ack{Ack: ack}}
	}
	nack := &parleyv1.StreamingNack{Items: make([]*parleyv1.NackItem, len(part))}
	for i, one := range part {
		nack.Items[i] = one.nack
	}
	return &parleyv1.StreamingConsumeRequest{Request: &parleyv1.StreamingConsumeRequest_Nack{Nack: nack}}
}
