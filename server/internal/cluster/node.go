package cluster

import (
	"crypto/rand"
	"time"
)

// IDLen is the length of a node id in bytes.
const IDLen = 13

// NewID creates a node id: 13 characters of A-Z and 2-7, 65 random bits. A process uses a new id
// each time it starts.
func NewID() string { return rand.Text()[:IDLen] }

// StreamNode returns the id of the node that holds a stream. A stream id ends with it. It returns
// "", the id of no node, if streamID is too short.
func StreamNode(streamID string) string {
	if len(streamID) <= IDLen {
		return ""
	}
	return streamID[len(streamID)-IDLen:]
}

// Node describes a node of the fleet as this node sees it.
type Node struct {
	// ID is created when the node starts.
	ID string
	// Able is true if the node's probe of its store and NATS has passed recently, according to its
	// last announcement.
	Able bool
	// Address is the API's address as the node knows it. Started is when it started, by its own
	// clock. Both are for display only.
	Address string
	Started time.Time
	// LastAnnounced is when the node last announced itself, by this node's clock.
	LastAnnounced time.Time
}
