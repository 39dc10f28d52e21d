package queue

import (
	"context"
	"io"
	"time"
)

// Bounds of one frame: bytes of its messages (a single one may be larger), messages, and how many a partition gives at its turn.
const (
	frameBytes    = 1 << 20
	frameMessages = 1000
	frameTurn     = 64
)

// Delivery is an entry that is handed to a consumer.
type Delivery struct {
	Entry

	Partition int
	// Token settles this delivery, and no other of the same message.
	Token string
}

// Frame is what a consumer's stream sends next. Exactly one of Deliveries, Assignment and Heartbeat is set.
type Frame struct {
	Deliveries []Delivery
	// Assignment are the partitions that the session now has, ascending; nil is no change. Total is how many the topic has.
	Assignment []int
	Total      int
	// Heartbeat says that there was nothing to send for a while.
	Heartbeat bool
}

// sent is what a frame holds of one delivery until its token is made.
type sent struct {
	entry     Entry
	partition int
	epoch     int64
	serial    uint64
}

// Next waits for the next frame. The session's end is a fault, which comes before whatever is queued: ACK_TIMEOUT, TOKEN_EXPIRED,
// SHUTTING_DOWN, TOPIC_NOT_FOUND, GROUP_NOT_FOUND, or LEASE_LOST after Close; or it is io.EOF, after Hub.Leave.
// It returns ctx's error when that ends, and may be called again then. Only one goroutine may call it.
func (s *Session) Next(ctx context.Context) (Frame, error) {
	for {
		f, batch, ok, err := s.take(time.Now())
		if err != nil {
			return Frame{}, err
		}
		if ok {
			// Tokens are made without the lock: they cost more than all the rest of a delivery.
			for i := range batch {
				b := &batch[i]
				f.Deliveries = append(f.Deliveries, Delivery{Entry: b.entry, Partition: b.partition, Token: s.seal.token(tokenBody{
					partition: b.partition, place: b.entry.Place, id: b.entry.ID, epoch: b.epoch, attempt: b.entry.Attempt, serial: b.serial,
				})})
			}
			return f, nil
		}
		select {
		case <-s.core.Wakeup():
		case <-ctx.Done():
			return Frame{}, ctx.Err()
		}
	}
}

// take gives the next frame if there is one now.
func (s *Session) take(now time.Time) (f Frame, batch []sent, ok bool, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.expired(now)
	if s.core.Ended() {
		if s.core.Cause() == errLeft {
			return f, nil, false, io.EOF
		}
		return f, nil, false, s.core.Cause()
	}
	topic := s.group.topic.Load()
	if s.assigned {
		// It comes before the messages of a partition that is new.
		s.assigned = false
		s.core.Sent(now)
		return Frame{Assignment: s.partitions(), Total: topic.Partitions}, nil, true, nil
	}
	if batch = s.fill(topic, now); len(batch) > 0 {
		s.core.Sent(now)
		return f, batch, true, nil
	}
	if s.core.HeartbeatDue(now) {
		s.core.Sent(now)
		return Frame{Heartbeat: true}, nil, true, nil
	}
	s.core.Await(now)
	return f, nil, false, nil
}

// fill takes the next messages from the workers' buffers, as far as credits in bytes allow: partitions take turns.
func (s *Session) fill(topic *Topic, now time.Time) []sent {
	if topic.ConsumePaused || s.reserved == 0 {
		return nil
	}
	var (
		batch    []sent
		bytes    int64
		total    = max(topic.Partitions, 1)
		barren   int
		deadline = now.Add(s.request.AckTimeout)
	)
	for barren < total && len(batch) < frameMessages {
		w := s.workers[s.turnOf%total]
		n := 0
		for w != nil && w.live(now) && n < len(w.buffer) && n < frameTurn && len(batch) < frameMessages {
			size := int64(w.buffer[n].Size())
			if !s.maySend(size) || len(batch) > 0 && bytes+size > frameBytes {
				// It goes first in the next frame.
				w.sent(n)
				return batch
			}
			bytes += size
			batch = append(batch, s.send(w, &w.buffer[n], size, now, deadline))
			n++
		}
		if n > 0 {
			w.sent(n)
			barren = 0
		} else {
			barren++
		}
		s.turnOf = (s.turnOf + 1) % total
	}
	return batch
}

// sent takes the first n messages out of the buffer.
func (w *worker) sent(n int) {
	if n == 0 {
		return
	}
	w.s.hub.metrics.Delivered(w.lease.Topic, w.lease.Partition, w.lease.Group, n)
	w.s.hub.metrics.InFlight(w.lease.Topic, w.lease.Partition, w.lease.Group, n)
	clear(w.buffer[:n])
	if w.buffer = w.buffer[n:]; len(w.buffer) == 0 {
		w.buffer = nil
	}
}

// send takes a message of the buffer as sent.
func (s *Session) send(w *worker, e *Entry, size int64, now, deadline time.Time) sent {
	s.serial++
	d := &delivery{entry: *e, serial: s.serial, sentAt: now, deadline: deadline}
	d.entry.Payload, d.entry.Headers = nil, nil
	w.inFlight[e.key()] = d
	s.inFlight++
	s.sentMessages++
	s.sentBytes += size
	s.reserved--
	s.waitingBytes -= size
	s.due(deadline, now)
	return sent{entry: *e, partition: w.lease.Partition, epoch: w.lease.Epoch, serial: d.serial}
}
