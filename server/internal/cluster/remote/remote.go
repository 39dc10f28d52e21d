// Package remote has what nodes say to each other, a file per feature: how a write reaches its bucket's home node
// (Writer), how a call about a live stream reaches the node that holds it (Sessions, QueueSessions), and how all nodes
// hear that somebody may have lost a channel (Changes) or that a queue may have work (QueueHints).
//
// A feature declares its methods and events, converts between the domain and parley.cluster.v1, and does what is on its
// own node directly, without encoding it. The rest is package cluster's.
package remote
