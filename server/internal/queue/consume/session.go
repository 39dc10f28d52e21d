package consume

import (
	"slices"
	"time"

	"github.com/parleyhq/parley/server/internal/queue/dispatch"
)

// SessionState is the state of a session on its front node.
//
//	Attached  has a stream                               Detached (the stream ended); Leaving (Leave); Gone
//	Detached  has none, and keeps what it holds          Attached (resume); Leaving (Leave); Gone (grace passed)
//	Leaving   gets nothing more and settles what it has  Gone when it holds nothing, or the grace passed
//	Gone      what it held goes to other sessions        (forgotten)
type SessionState uint8

// The states, with the numbers of parley.v1.SessionState; an operator never sees Gone.
const (
	Attached SessionState = iota + 1
	Detached
	Leaving
	Gone
)

// session is one consumer's registration, on the node that its latest stream is or was on. It
// belongs to the goroutine of its engine.
type session struct {
	id       string
	subject  string
	consumer string
	topics   []string
	state    SessionState
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
