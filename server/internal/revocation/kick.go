package revocation

import (
	"github.com/parleyhq/parley/server/internal/fault"
)

// kickAdmin is parley.v1's KICK_CAUSE_ADMIN.
const kickAdmin = 3

// Login describes the presence of a stream. The zero value is that of a stream without one.
type Login struct {
	// Platform is a value of parley.v1.Platform.
	Platform           uint8
	Device, Connection string
}

// Kick says which streams of a user an operator ends.
type Kick struct {
	User string
	// Login restricts it to the streams with presence whose Login has the same values as the fields
	// that are set here.
	Login Login
	// Reason is sent to the clients.
	Reason string
}

// SetLogin says which presence the stream has. Streams have none at first.
func (s *Stream) SetLogin(l Login) {
	s.list.streams.mu.Lock()
	defer s.list.streams.mu.Unlock()
	s.login = l
}

// Kick ends the live streams of this node that k is about, with a KICKED fault, and returns their
// number.
func (l *List) Kick(k Kick) int {
	why := fault.New(fault.FailedPrecondition, fault.Kicked, "an operator ended the stream")
	why.Kick = &fault.Kick{Cause: kickAdmin, Reason: k.Reason}
	a := &l.streams
	a.mu.Lock()
	var ended []*Stream
	for _, s := range a.byUser[k.User] {
		if k.Login.covers(s.login) {
			ended = append(ended, s)
		}
	}
	a.mu.Unlock()
	return a.endAll(ended, why)
}

// covers reports whether the fields of l that are set have the same values in other.
func (l Login) covers(other Login) bool {
	return (l.Platform == 0 || l.Platform == other.Platform) &&
		(l.Device == "" || l.Device == other.Device) && (l.Connection == "" || l.Connection == other.Connection)
}
