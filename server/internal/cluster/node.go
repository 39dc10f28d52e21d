package cluster

import "crypto/rand"

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
