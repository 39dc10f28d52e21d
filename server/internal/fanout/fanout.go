// Package fanout delivers the events of channels to the subscribers on one node. A Hub holds the
// streams of all clients and one topic for each channel with a local subscriber. Only the topic
// subscribes to the Bus.
//
// # Order
//
// The bus is a hint: it may lose, repeat, reorder and delay events. A topic orders events by seq.
// Its tail is the last entry that it delivered. An event at or below the tail is dropped. The event
// after the tail is encoded once and pushed to every live subscription. An event further on is
// parked while the topic fills the hole from the Log. A lost last event leaves no visible hole, so
// every topic's tail is compared with the log on a schedule.
//
// Entries have an access revision, which rises whenever the channel is closed or opened. A topic
// remembers the highest one that it knows of, and a subscription the one at which its subject was
// checked. A subscription that is behind is not live: it goes back to replay, and is checked, with
// all others of the topic at once, before its next page. So it may be live with an empty log before
// its channel exists.
//
// A subscription has three states:
//
//	begin  --State-->  replay  --level with the tail, under the topic's lock-->  live
//	  ^                  |  ^                                                     |
//	  +---epoch changed--+  +----------a hole too large to push unasked-----------+
//
// Events are pushed only to live subscriptions. For a subscription in replay the tail is the
// position to reach. However far it is behind, it uses memory only for the page that its reader
// asked for. Pages and live events share one queue per stream, and going live and queueing the last
// page are one critical section, so order needs no further care.
//
// The text of an open message of a session grows by deltas, which the topic joins. A live
// subscription whose subscriber has the message is sent what it lacks of the text, once its queue
// is empty, and no more once the message has ended; see openTexts.
//
// Notes (a user is typing; the channel is lost) are not part of the log and its order. They wait
// beside the queue, are sent after its content, and are dropped with the subscription.
//
// # Goroutines
//
// A stream has no goroutine: the stream's handler calls Next. Reads of the log run in pools of
// bounded size whose goroutines end when they are idle. One goroutine runs the schedule of all
// topics.
//
// # Locks
//
// Locks are taken in this order, and never held over I/O or a blocking channel operation:
//
//	Stream.edit  (one change of a stream's channels at a time)
//	stream.Registry (streams; alone)
//	Hub.mu        (topics)
//	topic.mu      (one channel)
//	Stream.mu    (queue, state of the stream)
//	recents.mu
//	schedule.mu
//	pool.mu
package fanout

import (
	"context"

	"github.com/parleyhq/parley/server/internal/message"
)

// Bus delivers live events. It may lose, repeat, reorder and delay them.
type Bus interface {
	// Subscribe calls fn with the channel's events, one at a time, and typing with the ids of users
	// who are typing there, until cancel is called. It returns promptly. A channel may have two
	// subscriptions for a moment. Both functions may still be called once while cancel runs.
	Subscribe(channelID string, fn func(message.Event), typing func(userID string)) (cancel func(), err error)
	// SubscribeDeltas is Subscribe for the pieces of the texts of a session's open messages.
	SubscribeDeltas(channelID string, fn func(message.Delta)) (cancel func(), err error)
	// OnReconnect registers fn, which is called whenever events may have been lost, for example
	// after a reconnect. fn must return promptly.
	OnReconnect(fn func())
}

// Log is the authoritative log behind the bus. Its methods may be called concurrently.
type Log interface {
	// States returns the states of channels' logs, by channel id. They include every entry
	// acknowledged before the call. channelIDs has at most 500 ids.
	States(ctx context.Context, channelIDs []string) (map[string]message.State, error)
	// Replay returns the events that cover the entries after+1, after+2 and so on without a gap, each
	// with its message in its current state; see message.Reader.Replay. It returns up to limit events
	// or about maxBytes of content, but at least one if the log has an entry above after and up to
	// atLeast. If patient is set, the call may wait for a moment if that saves a read of the store.
	Replay(
		ctx context.Context, channelID string, after, atLeast int64, limit, maxBytes int, patient bool,
	) ([]message.Event, error)
}

// Admission decides who may receive the entries of a channel. A subscriber was checked when the
// channel was requested, but it may have been created or closed since. Its methods may be called
// concurrently.
type Admission interface {
	// OpenAt returns the access revision at which this node knows the channel to be open to everyone;
	// ok is false if it does not. It does no I/O.
	OpenAt(channelID string) (rev int64, ok bool)
	// Readers returns which of at most 500 subjects may read a channel that has entries, and the
	// access revision at which it checked them, which is at least atLeast. With byMembership only
	// members may, even if the channel is open. The error is a fault with ChannelNotFound if the
	// channel was deleted.
	Readers(ctx context.Context, channelID string, subjects []string, byMembership bool, atLeast int64,
	) (readers map[string]bool, rev int64, err error)
}

// Encoder encodes the items sent to subscribers for the wire. The pieces of one frame are
// concatenated. Its methods may be called concurrently and do no I/O. The returned slices must not
// be modified.
type Encoder interface {
	// Event encodes an event of a log, which covers the entries from its From to its Seq.
	Event(e *message.Event) []byte
	// State encodes the state of a channel; seq is the position after which the channel's events
	// continue. recovered is true if that is the position which the subscriber requested.
	State(channelID string, seq int64, s message.State, recovered bool) []byte
	// Gap encodes that the entries above `after` and up to `to` cannot be sent. The channel's events
	// continue with to+1. After a change of epoch, or if the subscriber was ahead of the log, `to` may
	// be below `after`.
	Gap(channelID string, after, to int64, epoch string, reason GapReason) []byte
	// Lost encodes that the subscriber has lost the channel.
	Lost(channelID string, reason LostReason) []byte
	// Delta encodes a piece of the text of an open message, after offset bytes of it.
	Delta(channelID, msgID string, offset int, text string) []byte
	// Typing encodes that a user is typing.
	Typing(channelID, userID string) []byte
}

// GapReason is the reason why entries cannot be sent.
type GapReason int8

// The reasons of a gap.
const (
	// GapEpochChanged means that the subscriber's position belongs to another epoch of the log.
	GapEpochChanged GapReason = iota + 1
	// GapHistoryGone means that the log no longer has the entry after the subscriber's position.
	GapHistoryGone
	// GapAheadOfLog means that the subscriber's position is beyond the end of the log.
	GapAheadOfLog
)

// LostReason is the reason why a subscriber has lost a channel.
type LostReason int8

// The reasons of a loss.
const (
	// LostNotMember means that the channel is members-only and the subscriber is no longer a
	// member.
	LostNotMember LostReason = iota + 1
	// LostDeleted means that the channel was deleted.
	LostDeleted
	// LostCapability means that the stream's new token does not allow the channel.
	LostCapability
)
