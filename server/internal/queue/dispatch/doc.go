// Package dispatch decides who works on the messages of one partition of one consumer group. A
// Dispatcher is a state machine without I/O, goroutines, locks or a clock. One goroutine, the
// holder, owns it: it reports what happened (entries read, sessions, settlements, answers of the
// log) and then calls Step, which returns what the holder does next.
//
// # The rule
//
// A message stays in the log until it is settled. A delivery is sent only after the commit that
// covers it was answered: the commit moves the mark Sent over the entry and, from the second
// delivery on, writes a row with the number of the delivery, its gen. The commit that carries a
// settlement is the one whose answer answers the worker. One commit is under way at a time; what
// happens meanwhile gathers, in order, and makes the next. Because the order is kept, a commit that
// sends a message also carries, or follows, the end of the earlier message of its key.
//
// # One entry
//
// The state of an entry is one enum, see state. An entry that waits for its turn behind others of
// its key is only an ID in its lane (8 bytes) and a position in the set of open entries (16 bytes);
// its payload is read again in pages when a session asks for it. All others have a job.
//
// # Lanes
//
// A lane is a queue of the waiting entries of one key, in the order of their IDs. A message without
// a key has a lane of its own, and so has every message of a group without order. A lane is in at
// most one heap, by its lowest ID: place decides in which. If nothing of the lane is in flight any
// session may take from it. In order OrderKey, a lane with deliveries in flight gives only to the
// session that has them. In order OrderStrict it gives nothing, also while one of its entries waits
// for a retry. A lane with an entry in doubt gives nothing.
//
// # Who gets the next message
//
// Local sessions with an idle handler come first, then sessions of other nodes that asked with Take,
// then sessions that may prefetch because their handlers are fast. Output.Spare tells the holder how
// many messages it may offer to other nodes.
//
// # Attempts
//
// A delivery that a handler began is charged when it fails, times out or is lost with its worker.
// One that nobody began is not, unless more than MaxUncharged were not. The begun deliveries of a
// lost session may have caused the loss: they are suspects, and come again after a backoff, one at
// a time per session. If a session had a suspect when it was lost, the others are not charged.
//
// # Adoption
//
// A new Dispatcher reads the log from the cursor on. Open entries up to Sent are in doubt until
// Held reports who holds them or NobodyHolds says that nobody does. Reports, settlements and
// cancellations of entries that are not read yet wait until they are.
//
// # Time
//
// Deadlines of deliveries are on a clock that stands still between Freeze and Thaw, that is while
// commits fail. Due times and the expiry of messages are on the clock of the arguments.
package dispatch
