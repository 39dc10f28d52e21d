package cluster

import (
	"crypto/rand"
	"time"
)

// IDLen is the length of a node's id in bytes.
const IDLen = 13

// NewID creates the id of a node, which lasts for one life of a process: 13 of A-Z and 2-7, 65 random bits.
func NewID() string { return rand.Text()[:IDLen] }

// StreamNode returns the id of the node that holds a stream, with which the stream's id ends. It returns "", which is no
// node's, for an id that is too short.
func StreamNode(streamID string) string {
	if len(streamID) <= IDLen {
		return ""
	}
	return streamID[len(streamID)-IDLen:]
}

// Node is a node as another one knows it.
type Node struct {
	// ID was made at the node's start.
	ID string
	// Able says that the node's own probes of store and NATS pass.
	Able bool
	// Address is the API's as the node itself knows it, and Started when it was started by its own clock: for people.
	Address string
	Started time.Time
	// Heard is when it last was heard of, by our clock.
	Heard time.Time
}
