package fanout

import (
	"context"
	"time"

	"github.com/parleyhq/parley/server/internal/stream"
)

// Frame is the next item of a stream. Exactly one of Pieces, Heartbeat and Reconnect is set.
type Frame struct {
	// Pieces are slices from the Encoder, to be concatenated in order. They may be read until the
	// next call of Next.
	Pieces [][]byte
	// Events is the number of log entries in Pieces. States, gaps and notes are not counted.
	Events int
	// Heartbeat is set if no frame was sent for Config.HeartbeatInterval.
	Heartbeat bool
	// Reconnect advises the client to subscribe again after a random time of up to Reconnect. It is
	// set only on the last frame of a draining stream.
	Reconnect time.Duration
}

// A stream must not keep the memory of a burst forever. Its slices are dropped if their capacity is
// above small and patience frames in a row have emptied the queue and used less than 1/slack of the
// capacity.
const slack, small, patience = 8, 64, 32

// Next waits for the next frame. It returns everything that is queued, up to Config.FrameBytes.
//
// At the end of the stream the error is a fault with the client's position in each channel:
// SLOW_CONSUMER, TOKEN_EXPIRED or SHUTTING_DOWN, or STREAM_NOT_FOUND after Close. If ctx ends, Next
// returns ctx's error and may be called again. Only one goroutine may call it.
func (s *Stream) Next(ctx context.Context) (f Frame, err error) {
	s.dropPieces()
	for {
		if s.poll(&f, &err) {
			return f, err
		}
		// Only this select is on the stack of an idle stream.
		select {
		case <-s.core.Wakeup():
		case <-ctx.Done():
			return f, ctx.Err()
		}
	}
}

// Poll is one step of Next that does not wait, for a caller that waits for other things too. ok is
// false if there is no frame yet; Wakeup is then ready once Poll is to be called again. An error
// ends the stream as Next's does. Only the goroutine that calls Next may call it. A frame's Pieces
// may be read until the next call.
func (s *Stream) Poll() (f Frame, ok bool, err error) {
	s.dropPieces()
	ok = s.poll(&f, &err) && err == nil
	return f, ok, err
}

// Wakeup returns the channel to wait for after Poll has returned no frame. It may be ready although
// there is nothing to do.
func (s *Stream) Wakeup() <-chan struct{} { return s.core.Wakeup() }

// Sent records that the client was sent something else than a frame of this stream, so that the
// next heartbeat is due one interval later.
func (s *Stream) Sent() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.core.Sent(time.Now())
}

func (s *Stream) dropPieces() {
	clear(s.pieces)
	s.pieces = s.pieces[:0]
}

// poll returns true if there is a frame or the stream has ended, and sets f and err. Otherwise it
// arranges for Next to be woken.
func (s *Stream) poll(f *Frame, err *error) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.written()
	now := time.Now()
	var done bool
	*f, done, *err = s.take(now)
	switch {
	case *err != nil:
		*f = Frame{}
		return true
	case done:
		s.core.Sent(now)
		s.hub.stats.frames.Add(1)
		s.hub.stats.deliveries.Add(int64(f.Events))
		return true
	default:
		s.core.Await(now)
		return false
	}
}

// take returns the next frame; ok is false if there is none yet. err is set once the stream has
// ended.
func (s *Stream) take(now time.Time) (f Frame, ok bool, err error) {
	if s.core.Expired(now) {
		s.fail(stream.TokenExpired())
	}
	if s.core.Ended() {
		return f, false, s.endError()
	}
	if len(s.queue) > 0 || len(s.notes) > 0 || s.textsGrew() {
		f = s.join()
		s.read()
		return f, true, nil
	}
	if s.core.State() == stream.Draining {
		if s.reconnectSent {
			s.fail(s.core.Cause())
			return f, false, s.endError()
		}
		s.reconnectSent = true
		return Frame{Reconnect: s.reconnectWithin}, true, nil
	}
	s.read()
	if s.core.HeartbeatDue(now) {
		s.queue, s.pieces = nil, nil
		return Frame{Heartbeat: true}, true, nil
	}
	return f, false, nil
}

// join returns a frame of the first pieces of the queue, which it removes. If that empties the
// queue, it adds texts and notes.
func (s *Stream) join() Frame {
	var (
		f             Frame
		n, all, asked int
		cfg           = &s.hub.cfg
	)
	for n < len(s.queue) {
		q := s.queue[n]
		size := len(q.data)
		if n > 0 && all+size > cfg.FrameBytes {
			break
		}
		if q.replayed {
			if asked > 0 && asked+size > cfg.ReplayFrameBytes {
				break
			}
			asked += size
		}
		all += size
		n++
		s.uncount(q.piece)
		q.sub.started, q.sub.sent, q.sub.sentEpoch = true, q.seq, q.epoch
		f.Events += q.entries
		s.pieces = append(s.pieces, q.data)
	}
	rest := copy(s.queue, s.queue[n:])
	clear(s.queue[rest:])
	s.queue = s.queue[:rest]
	if rest == 0 {
		all = s.joinTexts(all)
		s.joinNotes(cfg.FrameBytes - all)
	}
	f.Pieces = s.pieces
	s.writing = all
	if room := max(cap(s.queue), cap(s.pieces)); rest > 0 || room <= small || n >= room/slack {
		s.roomy = 0
	} else if s.roomy++; s.roomy >= patience {
		s.roomy, s.queue, s.pieces = 0, nil, nil
	}
	return f
}

// read starts reads of the log for subscriptions that are behind, if the queue is empty. It does
// not wait for them.
func (s *Stream) read() {
	if s.core.State() == stream.Draining {
		return
	}
	for len(s.queue) == 0 && len(s.behind) > 0 && s.reading < s.hub.cfg.StreamReads {
		u := s.behind[0]
		s.behind[0] = nil
		if s.behind = s.behind[1:]; len(s.behind) == 0 {
			s.behind = nil
		}
		s.reading++
		s.hub.replays.submit(u.advance)
	}
}
