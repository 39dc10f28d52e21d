package queue

import (
	"context"
	"sync"
	"time"

	parleyv1 "github.com/parleyhq/parley/gen/go/parley/v1"
)

const (
	// gatherItems and gatherFor bound the number and the age of settlements that wait while a batch is
	// in flight.
	gatherItems = 256
	gatherFor   = 5 * time.Millisecond
	// maxUnanswered is the maximum number of batches in flight. A batch is up to two requests: one of
	// acks, one of nacks.
	maxUnanswered = 8
)

// settlement is the ack or nack of a task. A nil nack means an ack.
type settlement struct {
	t    *task
	nack *parleyv1.NackItem
}

// credits counts how much the server may send. Grants contain running totals, so a lost or late one
// does no harm.
type credits struct {
	window, windowBytes int64
	// freed and freedBytes count the messages that were settled or lost since the stream began.
	// granted and grantedBytes are their values at the last grant to the server.
	freed, freedBytes, granted, grantedBytes int64
}

func newCredits(messages, bytes int64) credits { return credits{window: messages, windowBytes: bytes} }

// free records that a message of size credit bytes is settled or lost.
func (c *credits) free(size int64) {
	c.freed++
	c.freedBytes += size
}

// grant returns the totals to send. It returns nil if less than a quarter of the window was freed
// since the last grant.
func (c *credits) grant() *parleyv1.StreamingCredits {
	if 4*(c.freed-c.granted) < c.window && 4*(c.freedBytes-c.grantedBytes) < c.windowBytes {
		return nil
	}
	c.granted, c.grantedBytes = c.freed, c.freedBytes
	return &parleyv1.StreamingCredits{TotalMessages: c.window + c.freed, TotalBytes: c.windowBytes + c.freedBytes}
}

// outbox gathers settlements into batches. While no batch is in flight, a settlement is sent at
// once. Otherwise it waits until there are 256 of them, or for 5 ms, and while 8 batches are in
// flight. Safe for concurrent use.
type outbox struct {
	s *stream
	// work tracks the stream's goroutines. Each is added under mu while the outbox is not closed.
	work sync.WaitGroup

	mu      sync.Mutex // guards the fields below
	pending []settlement
	timer   *time.Timer
	// overdue is true once the pending settlements have waited for gatherFor.
	overdue  bool
	closed   bool
	underWay int
	// idle is closed while nothing is pending or in flight.
	idle chan struct{}
}

func newOutbox(s *stream) *outbox {
	o := &outbox{s: s, idle: make(chan struct{})}
	close(o.idle)
	return o
}

// add queues a settlement and sends it soon. After close it does nothing.
func (o *outbox) add(one settlement) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.closed {
		return // the end of the stream counts its delivery as lost
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

// goLocked starts a batch of pending settlements, if it is time.
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

// close waits until no goroutine of the stream runs. It does not send pending settlements.
func (o *outbox) close() {
	o.mu.Lock()
	o.closed = true
	if o.timer != nil {
		o.timer.Stop()
	}
	o.mu.Unlock()
	o.work.Wait()
}

// flush waits until no settlement is pending or in flight, or until ctx or the stream ends.
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

// settleAll sends settlements until each has a final answer or the stream ends. It also sends the
// credits that they free.
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

// settlePart sends settlements that are either all acks or all nacks. Those with retryable failures
// are sent again as long as the stream lives.
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
			return // the end of the stream counts their deliveries as lost
		}
	}
}

// settled removes the task of a settlement and counts it in the worker's Stats. If err is not nil,
// the delivery is lost.
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
