package parley

import (
	"context"
	"errors"
	"slices"
	"sync"

	"connectrpc.com/connect"
)

// errReopen is the reason for which a subscription or a presence leaves a stream to open another
// one at once, with or without presence.
var errReopen = &Error{Code: connect.CodeAborted, Retryable: true, Message: "presence moves to another stream"}

// carriers are the subscriptions of a client whose streams can carry a Presence and do not, and the
// presences that wait for one. One of both lists is empty. It is safe for concurrent use.
type carriers struct {
	mu   sync.Mutex // guards the fields below. It is locked before that of a Subscription.
	free []*Subscription
	// waiting has a channel of capacity 1 for each presence that has a stream of its own, the one that
	// has waited longest first.
	waiting []chan *Subscription
}

// offer hands a subscription to the first presence that waits. If there is none, the subscription
// is free. One that has ended is ignored.
func (c *carriers) offer(s *Subscription) {
	c.mu.Lock()
	defer c.mu.Unlock()
	s.mu.Lock()
	over := s.over
	s.mu.Unlock()
	switch {
	case over:
	case len(c.waiting) > 0:
		c.waiting[0] <- s
		c.waiting = c.waiting[1:]
	default:
		c.free = append(c.free, s)
	}
}

// remove removes a subscription that has ended, if it is there.
func (c *carriers) remove(s *Subscription) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.free = slices.DeleteFunc(c.free, func(other *Subscription) bool { return other == s })
}

// take removes a free subscription and returns it. If there is none, it returns a channel on which
// the caller receives one when it is offered. The caller must receive from it or withdraw it.
func (c *carriers) take() (*Subscription, chan *Subscription) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.free) > 0 {
		first := c.free[0]
		c.free = c.free[1:]
		return first, nil
	}
	handed := make(chan *Subscription, 1)
	c.waiting = append(c.waiting, handed)
	return nil, handed
}

// withdraw ends the wait of a presence. It returns the subscription that was handed to it
// meanwhile, or nil.
func (c *carriers) withdraw(handed chan *Subscription) *Subscription {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.waiting = slices.DeleteFunc(c.waiting, func(other chan *Subscription) bool { return other == handed })
	select {
	case s := <-handed:
		return s
	default:
		return nil
	}
}

// rider is a Presence on the streams of a subscription.
type rider struct {
	presence *Presence
	// left is closed when the presence has left the subscription's streams. err is then the error that
	// ends the presence, or nil.
	left chan struct{}
	err  error
}

// carry puts a presence on the subscription's streams, and makes it open its stream again for that.
// It returns nil if the subscription has ended.
func (s *Subscription) carry(p *Presence) *rider {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.over {
		return nil
	}
	r := &rider{presence: p, left: make(chan struct{})}
	s.rider = r
	if s.stream != nil {
		s.stream.cancel(errReopen)
	}
	return r
}

// drop takes a presence off the subscription's next streams. If err is not nil, the presence ends
// with it. It reports whether the presence was on them.
func (s *Subscription) drop(r *rider, err error) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if r == nil || s.rider != r {
		return false
	}
	s.rider, r.err = nil, err
	close(r.left)
	return true
}

// release drops a presence that has ended, and frees the subscription for another one. If the
// server does not know that the presence has ended, the stream is opened again without it.
func (s *Subscription) release(r *rider, disconnected bool) {
	if !s.drop(r, nil) {
		return
	}
	s.mu.Lock()
	if !disconnected && s.stream != nil && s.stream.rider == r {
		s.stream.cancel(errReopen)
	}
	s.mu.Unlock()
	s.client.carriers.offer(s)
}

// carried returns the presence on the subscription's streams, or nil.
func (s *Subscription) carried() *rider {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.rider
}

// forward passes a change of state to the presence, if there is one.
func (s *Subscription) forward(change StateChange) {
	if r := s.carried(); r != nil {
		r.presence.setState(change)
	}
}

// reopenNow reports whether to open the next stream at once, because presence was added or removed,
// or because the server refused channels that are now lost.
func (s *Subscription) reopenNow(ctx context.Context, end *streamEnd) bool {
	if errors.Is(end.err, errReopen) {
		return true
	}
	r, err := s.carried(), end.err
	lost := r != nil && r.presence.loseRefused(ctx, end)
	if s.loseRefused(ctx, end) || lost {
		return true
	}
	return r != nil && s.part(ctx, r, err)
}

// part separates a presence from the subscription after a final error of their stream, so that it
// ends only the one that it is about. It returns false if the error is not final, and after KICKED
// and TOKEN_REVOKED, which end both: the login is over. Any other error may be about the presence:
// it then gets streams of its own, and the subscription carries none any more.
func (s *Subscription) part(ctx context.Context, r *rider, err error) bool {
	switch {
	case err == nil || s.client.worthRetrying(err) || tokenRefused(err):
		return false
	case errors.Is(err, ErrKicked), errors.Is(err, ErrTokenRevoked):
		s.drop(r, err)
		return false
	default:
		s.client.log.WarnContext(ctx, "opening the stream again without presence", "error", err)
		return s.drop(r, nil)
	}
}

// keepOpen keeps a stream open until life ends or a failure is final: that of a subscription of the
// client if one is free, else a Connect stream until one is.
func (p *Presence) keepOpen(life context.Context) error {
	for {
		carrier, handed := p.client.carriers.take()
		if carrier == nil {
			var err error
			if carrier, err = p.keepOwn(life, handed); carrier == nil {
				return err
			}
		}
		if err := p.ride(life, carrier); err != nil {
			return err
		}
	}
}

// ride is on the streams of a subscription until life ends, or the subscription ends or separates.
func (p *Presence) ride(life context.Context, carrier *Subscription) error {
	r := carrier.carry(p)
	if r == nil {
		return nil
	}
	select {
	case <-r.left:
		return r.err
	case <-life.Done():
		p.mu.Lock()
		disconnected := p.stream != nil && p.stream.disconnected
		p.mu.Unlock()
		carrier.release(r, disconnected)
		return life.Err()
	}
}

// keepOwn keeps a Connect stream open. It returns the subscription that carries the presence from
// now on, or the error that ends the presence.
func (p *Presence) keepOwn(life context.Context, handed chan *Subscription) (*Subscription, error) {
	ctx, cancel := context.WithCancel(life)
	defer cancel()
	given := make(chan *Subscription, 1)
	p.work.Go(func() {
		select {
		case carrier := <-handed:
			p.leaveOwn(ctx, cancel)
			given <- carrier
		case <-ctx.Done():
			given <- p.client.carriers.withdraw(handed)
		}
	})
	err := p.client.keepStreams(ctx, p.loop(life))
	cancel()
	carrier := <-given
	switch {
	case carrier == nil:
		return nil, err
	case errors.Is(err, context.Canceled) && life.Err() == nil:
		return carrier, nil
	default:
		p.client.carriers.offer(carrier)
		return nil, err
	}
}

// leaveOwn calls cancel, which ends the presence's own streams, as soon as no request for a new
// login is in flight: the next stream would then log in again. ctx ends with the streams.
func (p *Presence) leaveOwn(ctx context.Context, cancel context.CancelFunc) {
	for {
		p.mu.Lock()
		current := p.stream
		asking := !p.invisible && p.login == "" && current != nil &&
			!isClosed(current.answered) && !isClosed(current.ended)
		if !asking {
			cancel() // before the next stream begins, which requires the lock
		}
		p.mu.Unlock()
		if !asking {
			return
		}
		select {
		case <-current.answered:
		case <-current.ended:
		case <-ctx.Done():
			return
		}
	}
}
