// Package fanout joins subscribers to channels on one node. A Hub holds the sessions (one per stream) and, for each
// channel with a local subscriber, one topic, which alone listens to the Bus.
//
// # Order
//
// The bus is a hint: it may lose, repeat, reorder and delay. A topic orders by seq. Its tail is the last entry that it
// passed on; an event at or below the tail is dropped, the next one is encoded once and pushed to every live
// subscription, and one further on is parked while the topic fills the hole from the Log. Because a lost last event
// leaves no hole to see, every topic's tail is compared with the log on a schedule.
//
// A subscription moves through three stages:
//
//	begin  --State-->  replay  --level with the tail, under the topic's lock-->  live
//	  ^                  |  ^                                                     |
//	  +---epoch changed--+  +----------a hole too large to push unasked-----------+
//
// Only a live one is pushed to. To one in replay the tail is a mark to reach, so however far it is behind, it holds no
// memory but the page that its reader asked for. Pages and live events go through one queue per session, and the step
// to live and the push of the last page are one critical section: so order needs no further care.
//
// Notes (somebody is typing; the channel is lost) are no part of the log and of its order. They wait beside the queue,
// follow what is in it, and are gone with the subscription.
//
// # Goroutines
//
// A session has none: the stream's handler calls Next. Reads of the log run in pools of bounded size whose goroutines
// end when they have nothing to do, and one goroutine keeps the schedule of all topics.
//
// # Locks
//
// In this order, and never held over I/O or a blocking channel operation:
//
//	Session.edit  (one Add, Remove or Close of a session at a time)
//	stream.Registry (sessions; alone)
//	Hub.mu        (topics)
//	topic.mu      (one channel)
//	Session.mu    (queue, stage of the stream)
//	recents.mu
//	schedule.mu
//	pool.mu
package fanout

import (
	"context"

	"github.com/parleyhq/parley/server/internal/message"
)

// Bus is where live events come from. It may lose, repeat, reorder and delay them.
type Bus interface {
	// Subscribe calls fn with the channel's events, one at a time, and typing with who is typing there, until cancel. It
	// returns promptly. A channel may be subscribed to twice for a moment; both may still be called once while cancel runs.
	Subscribe(channelID string, fn func(message.Event), typing func(userID string)) (cancel func(), err error)
	// OnReconnect calls fn whenever events may have been lost because the connection was. fn returns promptly.
	OnReconnect(fn func())
}

// Log is the log behind the bus, and the truth. Its methods may be called concurrently.
type Log interface {
	// State tells where the log stands, no older than what was acknowledged when the call began.
	State(ctx context.Context, channelID string) (message.State, error)
	// Replay returns the events with Seq > after in order, dense from after+1, each with its message as it now is: up to
	// limit events or about maxBytes of content, and at least one if the log holds any of those up to atLeast. A patient
	// caller may be kept waiting for a moment where that spares the store a read.
	Replay(
		ctx context.Context, channelID string, after, atLeast int64, limit, maxBytes int, patient bool,
	) ([]message.Event, error)
}

// Encoder turns what a subscriber learns into pieces that are ready for the wire. The pieces of one frame are
// concatenated. Its methods may be called concurrently, do no I/O, and give slices that nobody changes afterwards.
type Encoder interface {
	// Event encodes a log entry.
	Event(e *message.Event) []byte
	// State encodes where a channel stands; seq is the position from which the channel goes on.
	State(channelID string, seq int64, s message.State, recovered bool) []byte
	// Gap encodes that the entries after the subscriber's position, up to and including to, cannot be sent. Its events
	// continue after to.
	Gap(channelID string, after, to int64, epoch string, reason GapReason) []byte
	// Lost encodes that the subscriber has the channel no more.
	Lost(channelID string, reason LostReason) []byte
	// Typing encodes that somebody is typing.
	Typing(channelID, userID string) []byte
}

// GapReason says why entries can't be had.
type GapReason int8

// The reasons of a gap.
const (
	// GapEpochChanged: the position belongs to another epoch of the log.
	GapEpochChanged GapReason = iota + 1
	// GapHistoryGone: the log no longer holds the entry after the position.
	GapHistoryGone
	// GapAheadOfLog: the position lies beyond the log's end.
	GapAheadOfLog
)

// LostReason says why a subscriber has a channel no more.
type LostReason int8

// The reasons of a loss.
const (
	// LostNotMember: the channel takes members only, and the subscriber is none any more.
	LostNotMember LostReason = iota + 1
)
