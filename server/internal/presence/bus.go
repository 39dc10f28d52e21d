package presence

import "time"

// Bus carries hints between the nodes. Every message may be lost, late, repeated or out of order.
// Its methods do not block and may be called concurrently. A node's own messages may come back to
// it.
type Bus interface {
	// Announce sends entries of a shard's log, in the order of their positions.
	Announce(a Announcement)
	// Heads sends the ends of logs.
	Heads(heads []ShardHead)
	// Beat sends that this node is alive.
	Beat(b NodeBeat)
	// Dead sends that a node was declared dead.
	Dead(node string)
	// Listen calls the handler for the messages of all nodes until cancel is called. The handler
	// must not block.
	Listen(h BusHandler) (cancel func(), err error)
}

// BusHandler receives the messages of a Bus. Messages of one kind arrive one at a time.
type BusHandler struct {
	Announcement func(Announcement)
	Heads        func([]ShardHead)
	Beat         func(NodeBeat)
	Dead         func(node string)
}

// Announcement is one or more entries of a shard's log.
type Announcement struct {
	Shard   int
	Epoch   string
	Entries []Entry
}

// ShardHead is the end of a shard's log at a time.
type ShardHead struct {
	Head
	Shard int
	// Now is the store's time at which the head was read.
	Now time.Time
}

// NodeBeat is a node's sign of life.
type NodeBeat struct {
	// Node is the node's presence id.
	Node string
	// WithoutStore is how long the node has not reached the store; 0 if it has at its last attempt.
	WithoutStore time.Duration
}

// Owner reports which node works on a shard: broadcasts its heads, settles its epochs and removes
// the parts of dead nodes. Two nodes may own a shard for a time, or none. Roster implements it.
type Owner interface {
	// Owns reports whether this node owns the shard.
	Owns(shard int) bool
	// Owner returns the id of the node that owns the shard, as far as this node knows.
	Owner(shard int) string
}
