// Package remote defines the calls and events between nodes, one file per feature. A Writer appends
// entries on the home node of their bucket. Streams and PresenceStreams forward calls
// about a live stream to the node that holds it. Changes announces to all nodes that users may have
// lost access to a channel, QueueHints that a queue may have messages to fetch, and PresenceBus
// that the presence of users has changed. QueuePeers connects the consumers of a queue with the
// holders of its partitions. Refills tells the owner of a shard which cached
// messages are missing.
//
// A feature declares its methods and events and converts between the domain and parley.cluster.v1.
// It does work on its own node directly, without encoding it. Package cluster does the rest.
package remote
