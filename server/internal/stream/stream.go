// Package stream contains what all kinds of live streams on a node have in common. A kind is a
// domain package that implements the content of its streams: channels (fanout), queue consumers
// (queue).
//
// A kind consists of two types:
//
//   - Its hub has a Registry, which creates stream ids, enforces the limits of the node and of a
//     subject, finds streams by id and by subject, and drains them.
//   - Its stream type has a mutex and a Core, which holds the identity, the state, the cause of the
//     end, the timer for heartbeats and token expiry, and the wake-up of the one goroutine that
//     reads the stream's frames.
//
// The example of Registry is a complete kind in a few lines. The transport calls the stream's Next
// in a loop and writes the returned frames; this package does not depend on a transport.
//
// # Locks
//
// Registry.Admit calls its create function with the registry's lock held, so locks that create
// takes come after it. No other method calls out with that lock held. Core has no lock of its own:
// the stream's mutex guards it.
package stream

import (
	"time"

	"github.com/parleyhq/parley/server/internal/fault"
)

// Identity identifies a stream and the subject that opened it. It never changes.
type Identity struct {
	// ID is unguessable: 26 characters of A-Z and 2-7 with 130 random bits, followed by
	// Config.Node.
	ID string
	// Subject is the subject of the token that opened the stream.
	Subject string
	// Expires is when that token expires, or never if it is the zero time. See Core.Renew.
	Expires time.Time
}

// ShuttingDown returns the fault of a stream that is refused or ended because the node is shutting
// down.
func ShuttingDown() *fault.Error {
	return fault.New(fault.Unavailable, fault.ShuttingDown, "the server is shutting down")
}

// TokenExpired returns the fault of a stream that is ended because its token has expired.
func TokenExpired() *fault.Error {
	return fault.New(fault.Unauthenticated, fault.TokenExpired, "the token has expired")
}

// NotFound returns the fault of a request whose stream id is of a stream that does not exist, has
// ended or belongs to another subject. A caller cannot distinguish the three.
func NotFound() *fault.Error {
	return fault.New(fault.NotFound, fault.StreamNotFound, "stream_id: the stream does not exist or has ended")
}
