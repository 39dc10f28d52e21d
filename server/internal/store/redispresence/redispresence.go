// Package redispresence keeps presence in Redis: presence.Store on one server, with Sentinel, or on
// a cluster.
//
// # Keys
//
// Of the shard K of users, all in the slot of the tag {pK}, so that a script changes them together:
//
//	presence:{pK}:meta            HASH  see below
//	presence:{pK}:online          ZSET  users with any platform, all of score 0
//	presence:{pK}:log             LIST  the newest entries, 1,024 by default
//	presence:{pK}:node:<node>     SET   users of whom the node has a part
//	presence:{pK}:user:<user>     ZSET  "<node> <part>" -> expiry in ms; one member for each node
//	presence:{pK}:login:<user>    HASH  slot -> login
//
// The fields of meta are:
//
//	epoch        absent after a flush
//	seq          position of the last entry
//	opened       ms when the epoch began
//	settled      ms when the epoch was settled, or absent
//	r:<node>     1 if the node is restored in this epoch
//	dead:<node>  ms when the node was fenced
//
// Of all nodes, in the slot of the tag {nodes}:
//
//	presence:{nodes}:meta         HASH  heard: ms of the last beat of any node
//	presence:{nodes}:alive        ZSET  node -> end of its lease in ms
//	presence:{nodes}:dead         ZSET  node -> ms when its lease was ended
//
// Every key has the configured prefix in front. A prefix has no brace, so the first brace of a key
// is the package's own. A user id is 1 to 128 printable ASCII characters without spaces, and is the
// last element of a key and of a line: it may contain braces, colons and stars.
//
// # Values
//
// A part and a state are text: for each platform, in ascending order, its number and f, or b if it
// is in the background. "2b8f" is Android in the background and the web. Offline is empty.
//
// An entry of the log is one of
//
//	<seq> <ms> <cause> <state> <user>
//	<seq> <ms> L <slot> <generation> <order> <connection> <node> <platform> <device> <user>
//
// where the state and the device may be empty. Positions are dense: an entry's seq is one more than
// that of the entry before it.
//
// A login is
//
//	<generation> <order> <connection> <node> <platform> <device>
//
// where the device may be empty.
//
// # Expiry
//
// A part expires after Config.TTL unless it is written again, and then counts as offline in reads.
// The next step that touches the user removes it and logs the change. The key of a user expires TTL
// after the last write, the slots of a user 7 days after a login of the user was last entered. A
// dead node and its fences are kept for 1 h. The keys of a shard without users stay: meta and log.
//
// Each script reads the server's time once, and takes every key from KEYS.
package redispresence
