package stream

import (
	"sync"
	"time"

	"github.com/parleyhq/parley/server/internal/fault"
)

// State is the state of a stream. Its transitions, by Core's methods:
//
//	Drain: Live -> Draining
//	End:   Live -> Ended, Draining -> Ended
//
// In every other state a method leaves the state as it is.
type State uint8

// The states.
const (
	// Live is the state of a new stream.
	Live State = iota
	// Draining streams finish what they have begun and then end. Their Cause is set already.
	Draining
	// Ended streams send nothing but their Cause.
	Ended
)

// Core is the part of a live stream that all kinds of streams share. The type of a kind holds
// one and guards it with its own mutex, the mu of NewCore, which must be held for every method but
// Wakeup. The fields of Identity never change and need no lock.
//
// One goroutine reads the stream: with mu held it takes the next frame and calls Sent, or, if
// there is none, calls Await; then it releases mu and waits for Wakeup. A goroutine that creates
// work for the reader calls Wake.
type Core struct {
	Identity

	mu        *sync.Mutex
	expires   time.Time
	heartbeat time.Duration
	due       func(now time.Time)
	wake      chan struct{}

	state State
	// cause is why the stream ended, or will end once it is drained.
	cause *fault.Error
	// waiting is set by Await and cleared by the next Wake.
	waiting bool
	// lastFrame is when the last frame was sent. Before the first frame it is when the stream
	// began.
	lastFrame time.Time
	// timer fires at armed, which is zero while the timer is not set.
	timer *time.Timer
	armed time.Time
}

// NewCore creates the core of a live stream. The core must be stored in a value that is not
// copied. heartbeat is the time without a frame after which a heartbeat is due. mu is the stream's
// mutex. due is called with mu held when the timer fires before the stream has ended, and the
// reader is woken after it; nil does nothing. The timer may fire early, so due must check the time.
func NewCore(id Identity, heartbeat time.Duration, mu *sync.Mutex, due func(now time.Time)) Core {
	return Core{
		Identity: id, mu: mu, expires: id.Expires, heartbeat: heartbeat, due: due, wake: make(chan struct{}, 1), lastFrame: time.Now(),
	}
}

// State returns the state.
func (c *Core) State() State { return c.state }

// Ended reports whether the state is Ended.
func (c *Core) Ended() bool { return c.state == Ended }

// Cause returns why the stream has ended or, while it drains, why it will. It is nil for a live
// stream.
func (c *Core) Cause() *fault.Error { return c.cause }

// Drain sets the state of a live stream to Draining. The stream must call End with cause once it
// has nothing left to do. For a draining stream Drain replaces the cause. For an ended stream it
// does nothing.
func (c *Core) Drain(cause *fault.Error) {
	if c.state == Ended {
		return
	}
	c.state, c.cause = Draining, cause
}

// End ends the stream, stops its timer and wakes its reader. If the stream has ended before, End
// returns false and changes nothing: the first cause stays.
func (c *Core) End(cause *fault.Error) bool {
	if c.state == Ended {
		return false
	}
	c.state, c.cause = Ended, cause
	if c.timer != nil {
		c.timer.Stop()
	}
	c.Wake()
	return true
}

// Expired reports whether the token of the stream has expired: the one that opened it, or that of
// the last Renew. The stream must then call End with TokenExpired.
func (c *Core) Expired(now time.Time) bool { return !c.expires.IsZero() && !now.Before(c.expires) }

// ExpiresAt returns when the token of the stream expires: that of the last Renew, if there was one.
// The zero time means never.
func (c *Core) ExpiresAt() time.Time { return c.expires }

// Renew sets when the token of the stream expires. The zero time means never.
func (c *Core) Renew(expires time.Time) {
	c.expires = expires
	c.Wake() // the reader waits anew, until then
}

// Sent records that the reader has taken a frame to send. The next heartbeat is due one heartbeat
// interval later.
func (c *Core) Sent(now time.Time) { c.lastFrame = now }

// HeartbeatDue reports whether the last frame was sent so long ago that a heartbeat must be sent.
func (c *Core) HeartbeatDue(now time.Time) bool { return now.Sub(c.lastFrame) >= c.heartbeat }

// Await prepares the reader's wait: the next Wake, heartbeat or token expiry makes Wakeup ready.
func (c *Core) Await(now time.Time) {
	at := c.lastFrame.Add(c.heartbeat)
	if !c.expires.IsZero() && c.expires.Before(at) {
		at = c.expires
	}
	c.Arm(at, now)
	c.waiting = true
}

// Wakeup returns the channel on which the reader waits. It may be ready although there is nothing
// to do. Wakeup requires no lock.
func (c *Core) Wakeup() <-chan struct{} { return c.wake }

// Wake wakes the reader if it waits. It never blocks.
func (c *Core) Wake() {
	if !c.waiting {
		return
	}
	c.waiting = false
	select {
	case c.wake <- struct{}{}:
	default: // a wake-up that the reader has not taken, because its context ended
	}
}

// Arm sets the timer to fire at the time at, unless it is set to fire earlier. A timer that fires
// too early does no harm, so one that is set is not moved for every frame. Arm does nothing if the
// stream has ended.
func (c *Core) Arm(at, now time.Time) {
	if c.state == Ended || !c.armed.IsZero() && !at.Before(c.armed) {
		return
	}
	c.armed = at
	if c.timer == nil {
		c.timer = time.AfterFunc(at.Sub(now), c.fire)
		return
	}
	c.timer.Reset(at.Sub(now))
}

func (c *Core) fire() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.armed = time.Time{}
	if c.state == Ended {
		return
	}
	if c.due != nil {
		c.due(time.Now())
	}
	c.Wake()
}
