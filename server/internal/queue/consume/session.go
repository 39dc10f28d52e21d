package consume

import (
	"slices"
	"time"

	"github.com/parleyhq/parley/server/internal/queue/dispatch"
)

// sessionState is the state of a session on the node that its latest stream was on.
//
//	attached  has a stream                               detached (the stream ended); leaving (Leave); lost
//	detached  has none, and keeps what it holds          attached (resume); leaving (Leave); lost (grace passed)
//	leaving   gets nothing more and settles what it has  gone when it holds nothing; lost.
//	lost      what it held goes to other sessions        (forgotten)
type sessionState uint8

const (
	sessionAttached sessionState = iota
	sessionDetached
	sessionLeaving
	sessionLost
)

// session is one consumer's registration, on the node that its latest stream is or was on. It
// belongs to the goroutine of its engine.
type session struct {
	id       string
	subject  string
	consumer string
	topics   []string
	state    sessionState
	// since is when the state began.
	since time.Time

	concurrency, maxInFlight int
	maxBytes                 int64
	reportsBegun             bool
	budget                   dispatch.Budget

	// stream is nil in the state detached.
	stream *Stream
	// held are the deliveries that the session has, as far as this node knows.
	held map[Token]*heldDelivery
	// grace ends a detached session.
	grace *time.Timer
}

// heldDelivery is a delivery that a session has.
type heldDelivery struct {
	messageID string
	since     time.Time
	begun     bool
}

func (s *session) hasTopic(topic string) bool { return slices.Contains(s.topics, topic) }
