package queue

import (
	"errors"
	"time"

	parleyv1 "github.com/parleyhq/parley/gen/go/parley/v1"
	parley "github.com/parleyhq/parley/sdk/go"
)

// marks are the deliveries that handlers have begun and that were not reported to the server.
// Guarded by the run's lock.
type marks struct {
	pending []*task
	timed   bool
}

// markLocked reports to the server, within gatherFor, that a handler has begun a delivery.
func (r *run) markLocked(t *task) {
	r.marks.pending = append(r.marks.pending, t)
	if !r.marks.timed {
		r.marks.timed = true
		time.AfterFunc(gatherFor, func() { r.spawn(r.sendMarks) })
	}
}

// sendMarks reports the deliveries that handlers have begun. If no stream is live, the request for
// the next one does. There is no answer: lost deliveries are reported anyway.
func (r *run) sendMarks() { r.sendMarksOf(begun) }

// sendMarksOf is sendMarks for the deliveries that are begun, and with settling also for those
// whose verdict is not answered.
func (r *run) sendMarksOf(last stage) {
	r.marking <- struct{}{}
	defer func() { <-r.marking }()
	r.mu.Lock()
	s := r.current
	r.marks.timed = false
	var tokens []string
	if s != nil {
		for _, t := range r.marks.pending {
			if t.stage == begun && t.session == s.session {
				tokens = append(tokens, t.token)
			}
		}
		for token, t := range s.session.tasks {
			if t.stage == settling && last == settling {
				tokens = append(tokens, token)
			}
		}
		r.marks.pending = nil
	}
	r.mu.Unlock()
	for len(tokens) > 0 {
		n := min(len(tokens), maxItems)
		s.wire.tell(s.ctx, extendRequest(tokens[:n], true))
		tokens = tokens[n:]
	}
}

// extend extends all deliveries of the session by the ack timeout, except those whose handler
// ignores its timeout.
func (s *stream) extend() {
	began, answered := time.Now(), true
	tokens, all := s.toExtend()
	for len(tokens) > 0 {
		n := min(len(tokens), maxItems)
		req := extendRequest(tokens[:n], false)
		if all {
			n = len(tokens)
			req = &parleyv1.ExtendRequest{Target: &parleyv1.ExtendRequest_All{All: &parleyv1.AllDeliveries{}}}
		}
		part := tokens[:n]
		tokens = tokens[n:]
		results, err := s.wire.do(s.ctx, &parleyv1.StreamingConsumeRequest{
			Request: &parleyv1.StreamingConsumeRequest_Extend{Extend: req},
		})
		answered = answered && err == nil
		if err != nil && s.ctx.Err() == nil {
			// The next extension follows after a third of the ack timeout.
			s.r.w.link.Log().WarnContext(s.ctx, "extend deliveries failed", "group", s.r.w.group, "error", err)
		}
		for i, result := range results[:min(len(results), len(part))] {
			if err := s.r.w.link.ItemError(result.GetError()); errors.Is(err, parley.ErrDeliveryLost) {
				s.r.loseTokens(s.session, part[i:i+1], err)
			}
		}
	}
	if answered {
		s.r.mu.Lock()
		s.session.extended = began
		s.r.mu.Unlock()
	}
}

// toExtend returns the tokens of the deliveries to extend, and whether those are all.
func (s *stream) toExtend() (tokens []string, all bool) {
	s.r.mu.Lock()
	defer s.r.mu.Unlock()
	all = true
	for token, t := range s.session.tasks {
		if t.stuck {
			all = false
			continue
		}
		tokens = append(tokens, token)
	}
	return tokens, all
}

func extendRequest(tokens []string, begun bool) *parleyv1.ExtendRequest {
	return &parleyv1.ExtendRequest{
		Target: &parleyv1.ExtendRequest_Deliveries{Deliveries: &parleyv1.DeliveryTokens{Tokens: tokens}}, Begun: begun,
	}
}
