package consume

import (
	"context"
	"io"
	"sync"
	"sync/atomic"
	"time"

	"github.com/parleyhq/parley/server/internal/fault"
	"github.com/parleyhq/parley/server/internal/stream"
)

// Bounds of the deliveries of one frame. A single delivery may be larger.
const (
	frameBytes    = 1 << 20
	frameMessages = 1000
	// longUnconfirmed is what a heartbeat says of a contact that was never confirmed. No grace time is
	// as long.
	longUnconfirmed = 24 * time.Hour
	// frameTokens bounds the tokens of one frame of lost deliveries.
	frameTokens = 1000
)

// Delivery is a message that is handed to a session.
type Delivery struct {
	Token
	MessageID string
	// Body is the encoded message: see qlog.Entry.
	Body []byte
	// Attempt is 1 more than the attempts that were charged before.
	Attempt int
	// ProducedAt is when the message was accepted, or due.
	ProducedAt time.Time
	// Timeout is the longest time that a handler may take.
	Timeout time.Duration
	// Suspect: its worker was lost while it had the message.
	Suspect bool
}

// Cause says why a session lost deliveries.
type Cause uint8

// The causes, with the numbers of parley.v1.LostDeliveries.Cause.
const (
	CauseAckTimeout Cause = iota + 1
	CauseMaxRunTime
	CauseCancelled
	CauseNoContact
)

// Lost are deliveries that a session no longer holds.
type Lost struct {
	Tokens []Token
	Cause  Cause
}

// Assignment are the partitions of a topic that a session of an exclusive group has.
type Assignment struct {
	Topic string
	// Partitions ascend. Total is how many the topic has.
	Partitions []int
	Total      int
}

// Heartbeat is sent when there was nothing to send for a while.
type Heartbeat struct {
	// Unconfirmed is how long ago the lease holders of the session's deliveries last confirmed that
	// they know of the contact.
	Unconfirmed time.Duration
	// Elapsed is how long the stream has lived.
	Elapsed time.Duration
}

// Frame is what a stream sends next. One field is set.
type Frame struct {
	Deliveries []Delivery
	Lost       *Lost
	Assignment *Assignment
	Heartbeat  *Heartbeat
}

// errLeft ends the stream of a session that left and holds nothing more.
var errLeft = fault.New(fault.FailedPrecondition, fault.SessionLost, "the session left its group")

// Stream is one stream of a session. One goroutine reads it with Next; the other methods are safe
// for concurrent use.
type Stream struct {
	session string
	// onRenewal is OpenRequest.OnRenewal.
	onRenewal func(Renewal)

	mu   sync.Mutex // guards the fields below
	core stream.Core
	// every is the time between two heartbeats, and beat when the latest was sent.
	every  time.Duration
	beat   time.Time
	opened time.Time
	// confirmed is as of when the holders of the session's deliveries confirmed the contact; zero if
	// it needs no confirmation.
	confirmed time.Time
	// deliveries wait to be sent; the session's limits bound them. lost and assigned likewise.
	deliveries []Delivery
	lost       []Lost
	assigned   []Assignment
	// bytes are those of deliveries. waiting: the session got none because they are too many.
	bytes   int64
	waiting bool
	unsent  *unsent
}

const (
	// maxUnsent bounds the bytes of payload that wait to be sent on all streams of the node, and
	// maxStreamUnsent those of one. The sessions of streams above get no deliveries.
	maxUnsent       = 256 << 20
	maxStreamUnsent = 4 << 20
)

// unsent counts the bytes that wait to be sent on all streams of a node. Safe for concurrent use.
type unsent struct {
	bytes atomic.Int64
	// waiting: some session got nothing because the bytes are too many.
	waiting atomic.Bool
	// room is called when sessions may get deliveries again.
	room func()
}

// room returns how many more bytes may wait to be sent.
func (s *Stream) room() int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	own, all := maxStreamUnsent-s.bytes, maxUnsent-s.unsent.bytes.Load()
	s.waiting = s.waiting || own < maxStreamUnsent/2
	if all < maxStreamUnsent {
		s.unsent.waiting.Store(true)
	}
	return min(own, all)
}

// queue notes that the bytes of deliveries have come (or, less than 0, gone). It is called with mu held.
func (s *Stream) queue(bytes int64) {
	s.bytes += bytes
	all := s.unsent.bytes.Add(bytes)
	if bytes >= 0 {
		return
	}
	mine := s.waiting && s.bytes <= maxStreamUnsent/2
	if mine {
		s.waiting = false
	}
	if others := all <= maxUnsent-2*maxStreamUnsent && s.unsent.waiting.Swap(false); mine || others {
		s.unsent.room()
	}
}

func bytesOf(deliveries []Delivery) (n int64) {
	for i := range deliveries {
		n += int64(len(deliveries[i].Body))
	}
	return n
}

// newStream creates a live stream. It sends a heartbeat within twice the given time, also if it sends
// other frames: those do not confirm the contact.
func newStream(id stream.Identity, session string, heartbeat time.Duration, u *unsent) *Stream {
	now := time.Now()
	s := &Stream{session: session, every: heartbeat, beat: now, opened: now, unsent: u}
	s.core = stream.NewCore(id, heartbeat, &s.mu, nil)
	return s
}

// ID returns the id of the stream's session.
func (s *Stream) ID() string { return s.session }

// confirm sets as of when the contact with the consumer is confirmed: zero if it needs no
// confirmation, unconfirmedAt if it never was. The consumer learns of news soon.
func (s *Stream) confirm(at time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	was := s.confirmed
	s.confirmed = at
	if !was.IsZero() && (at.IsZero() || at.Sub(was) >= s.every/2) {
		s.beat = time.Time{}
		s.core.Wake()
	}
}

// unconfirmedAt stands for a contact that was never confirmed.
var unconfirmedAt = time.Unix(0, 0)

// expires returns when the stream's token expires, zero for never.
func (s *Stream) expires() time.Time {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.core.ExpiresAt()
}

// deliver queues deliveries and reports whether it did: a stream that ended takes none.
func (s *Stream) deliver(deliveries []Delivery) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.core.Ended() {
		return false
	}
	s.deliveries = append(s.deliveries, deliveries...)
	s.queue(bytesOf(deliveries))
	s.core.Wake()
	return true
}

// lose tells the consumer that it lost deliveries. Those that were not sent yet are not sent.
func (s *Stream) lose(lost Lost) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.core.Ended() {
		return
	}
	gone := make(map[Token]bool, len(lost.Tokens))
	for _, t := range lost.Tokens {
		gone[t] = true
	}
	kept := s.deliveries[:0]
	for _, d := range s.deliveries {
		if gone[d.Token] {
			delete(gone, d.Token)
			s.queue(-int64(len(d.Body)))
			continue
		}
		kept = append(kept, d)
	}
	clear(s.deliveries[len(kept):])
	s.deliveries = kept
	var sent []Token
	for _, t := range lost.Tokens {
		if gone[t] {
			sent = append(sent, t)
		}
	}
	for len(sent) > 0 {
		n := min(len(sent), frameTokens)
		s.lost = append(s.lost, Lost{sent[:n:n], lost.Cause})
		sent = sent[n:]
	}
	s.core.Wake()
}

// assign tells the consumer of an exclusive group which partitions of a topic it has.
func (s *Stream) assign(a Assignment) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for i := range s.assigned {
		if s.assigned[i].Topic == a.Topic {
			s.assigned[i] = a
			return // the reader is awake already
		}
	}
	s.assigned = append(s.assigned, a)
	s.core.Wake()
}

// takeBack removes the deliveries that were not sent and returns their tokens.
func (s *Stream) takeBack() []Token {
	s.mu.Lock()
	defer s.mu.Unlock()
	tokens := make([]Token, len(s.deliveries))
	for i := range s.deliveries {
		tokens[i] = s.deliveries[i].Token
	}
	s.deliveries = nil
	s.queue(-s.bytes)
	return tokens
}

// end ends the stream with a cause, unless it has ended.
func (s *Stream) end(cause *fault.Error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.core.End(cause)
}

// renew replaces the stream's token.
func (s *Stream) renew(r Renewal) {
	s.mu.Lock()
	s.core.Renew(r.Expires)
	s.mu.Unlock()
	if s.onRenewal != nil {
		s.onRenewal(r)
	}
}

// Next blocks until there is a frame. The end of the stream is a fault, which comes before what is
// queued: TOKEN_EXPIRED, SHUTTING_DOWN, SESSION_LOST, TOPIC_NOT_FOUND or GROUP_NOT_FOUND; or io.EOF
// for a session that left. Next returns the error of ctx when that ends, and may be called again.
func (s *Stream) Next(ctx context.Context) (Frame, error) {
	for {
		f, ok, err := s.take(time.Now())
		if ok || err != nil {
			return f, err
		}
		select {
		case <-s.core.Wakeup():
		case <-ctx.Done():
			return Frame{}, ctx.Err()
		}
	}
}

// take returns the next frame, if there is one now.
func (s *Stream) take(now time.Time) (f Frame, ok bool, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.core.Expired(now) {
		s.core.End(stream.TokenExpired())
	}
	switch {
	case s.core.Ended():
		if s.core.Cause() == errLeft {
			return f, false, io.EOF
		}
		return f, false, s.core.Cause()
	case now.Sub(s.beat) >= s.every:
		f.Heartbeat = s.heartbeat(now)
		s.beat = now
	case len(s.lost) > 0:
		// First, so that a consumer cancels a handler before it gets the message again.
		f.Lost = &s.lost[0]
		s.lost = s.lost[1:]
	case len(s.assigned) > 0:
		f.Assignment = &s.assigned[0]
		s.assigned = s.assigned[1:]
	case len(s.deliveries) > 0:
		f.Deliveries = s.batch()
	default:
		s.core.Await(now)
		return f, false, nil
	}
	s.core.Sent(now)
	return f, true, nil
}

// heartbeat returns the next heartbeat.
func (s *Stream) heartbeat(now time.Time) *Heartbeat {
	h := &Heartbeat{Elapsed: now.Sub(s.opened)}
	if !s.confirmed.IsZero() {
		h.Unconfirmed = min(max(0, now.Sub(s.confirmed)), longUnconfirmed)
	}
	return h
}

// batch takes the deliveries of one frame from the queue.
func (s *Stream) batch() []Delivery {
	n, bytes := 0, 0
	for n < len(s.deliveries) && n < frameMessages {
		if bytes += len(s.deliveries[n].Body); n > 0 && bytes > frameBytes {
			break
		}
		n++
	}
	batch := s.deliveries[:n:n]
	s.queue(-bytesOf(batch))
	if s.deliveries = s.deliveries[n:]; len(s.deliveries) == 0 {
		s.deliveries = nil
	}
	return batch
}
