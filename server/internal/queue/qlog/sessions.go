package qlog

import "time"

// MaxHeld bounds the deliveries that a SessionInfo names.
const MaxHeld = 1000

// SessionState is the state of a consumer's session.
type SessionState uint8

// The states.
const (
	// Attached: it has a stream.
	Attached SessionState = iota + 1
	// Detached: it has none, and its grace time has not passed.
	Detached
	// Leaving: it left and still holds deliveries.
	Leaving
)

// SessionInfo is what the node that a session is on knows about it, and about one topic.
type SessionInfo struct {
	// Session is a digest of the session's ID, which is of no use in calls.
	Session                 string
	Consumer, Node, Subject string
	State                   SessionState
	// Since is when its state began.
	Since       time.Time
	Concurrency int
	// Loads are the partitions of the topic of which it holds messages, or which are assigned to it.
	Loads []PartitionLoad
	// Held are the deliveries of the topic that it holds, the oldest first, up to MaxHeld.
	Held []HeldInfo
}

// PartitionLoad counts what a session holds of a partition.
type PartitionLoad struct {
	Partition int
	// Sent deliveries were not begun, Running ones were.
	Sent, Running int
	// Assigned: in an exclusive group, the session gets the partition's messages.
	Assigned bool
}

// HeldInfo is a delivery that a session holds.
type HeldInfo struct {
	Partition int
	ID        ID
	MessageID string
	Gen       int
	// Begun: a handler works on it. Since is when it began, or else when it was sent.
	Begun bool
	Since time.Time
}
