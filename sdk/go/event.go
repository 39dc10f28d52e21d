package parley

import (
	"time"

	parleyv1 "github.com/parleyhq/parley/gen/go/parley/v1"
)

// EventKind is the kind of an Event.
type EventKind int

// The kinds of events.
const (
	// EventSent means that a message was sent. In a replay Message has its current state, which may be
	// edited, recalled or closed.
	EventSent EventKind = iota + 1
	// EventEdited means that a message was edited. Message is its current state.
	EventEdited
	// EventRecalled means that a message was recalled. Message is a tombstone without content.
	EventRecalled
	// EventChannelState describes a channel's log. It is the first event of each channel on each
	// stream, so it comes again after each reconnect.
	EventChannelState
	// EventGap means that entries cannot be delivered. The subscription continues after them. Load
	// the channel again with History.
	EventGap
	// EventLost is a channel's last event: the channel is members-only and the user is no longer a
	// member, or a new token no longer allows to subscribe to it. The subscription continues with the
	// other channels. To follow the channel again, Add it.
	EventLost
	// EventTyping means that a user is typing. Show it for 6 s. It has no position in the log.
	EventTyping
	// EventClosed means that an open message of a session was closed. Message has its final content.
	EventClosed
	// EventDelta is a piece of the text of an open message: see OpenTexts. It has no position in the
	// log.
	EventDelta
)

// String returns the kind's name in lower case.
func (k EventKind) String() string {
	switch k {
	case EventSent:
		return "sent"
	case EventEdited:
		return "edited"
	case EventRecalled:
		return "recalled"
	case EventChannelState:
		return "channel_state"
	case EventGap:
		return "gap"
	case EventLost:
		return "lost"
	case EventTyping:
		return "typing"
	case EventClosed:
		return "closed"
	case EventDelta:
		return "delta"
	default:
		return "unknown"
	}
}

// Event is one event of a channel. Events of one channel are in the order of its log. An event may
// cover several entries (see FromSeq).
type Event struct {
	Kind      EventKind
	ChannelID string
	// Seq is, for EventSent, EventEdited, EventRecalled and EventClosed, the last entry of the log
	// that the event covers. For EventChannelState and EventGap it is the position from which the
	// channel continues. For EventLost it is the position up to which events arrived. It is 0 for
	// EventTyping and EventDelta.
	Seq int64
	// FromSeq is the first entry that an event with a Message covers. Entries
	// from FromSeq to Seq have no other event. It can be lower than an earlier event's Seq. It can
	// also be higher than that plus 1: the entries between have no event, because they are edits that
	// later entries replaced, or changes of expired messages. It is 0 for all other kinds.
	FromSeq int64
	Epoch   string
	// Message is set for EventSent, EventEdited, EventRecalled and EventClosed.
	Message *Message
	// Channel is set for EventChannelState.
	Channel *parleyv1.ChannelState
	// Gap is set for EventGap. Its reason is unspecified if the server skipped the entries
	// repeatedly without reporting a gap.
	Gap *parleyv1.ChannelGap
	// Lost is set for EventLost.
	Lost *parleyv1.ChannelLost
	// Typing is set for EventTyping. It contains the user's id.
	Typing *parleyv1.Typing
	// Delta is set for EventDelta.
	Delta *parleyv1.MessageDelta
}

// State is the state of a Subscription or a Presence.
type State int

// The states. Connecting changes to Live or Waiting, Live to Waiting, and Waiting to Connecting.
// After a refusal of channels, and when a presence joins or leaves the stream of a subscription,
// the subscription connects again at once, without Waiting. Every state can change to Ended.
const (
	// StateConnecting lasts until the stream's first frame.
	StateConnecting State = iota
	// StateLive lasts while a stream is open.
	StateLive
	// StateWaiting lasts between two streams.
	StateWaiting
	// StateEnded is final.
	StateEnded
)

// String returns the state's name in lower case.
func (s State) String() string {
	switch s {
	case StateConnecting:
		return "connecting"
	case StateLive:
		return "live"
	case StateWaiting:
		return "waiting"
	case StateEnded:
		return "ended"
	default:
		return "unknown"
	}
}

// StateChange describes the new state of a Subscription or a Presence.
type StateChange struct {
	State State
	// Err is, for StateWaiting, the reason for which the last stream ended. It is nil if the server
	// advised to reconnect. For StateEnded it is the reason for which the subscription ended.
	Err error
	// Wait is how long StateWaiting lasts.
	Wait time.Duration
	// Addr is the node's address: for StateLive that of the stream, for StateWaiting that of the last
	// stream. It is empty for other states, and if no node was tried because there was no token.
	Addr string
	// LoginToken is, for StateLive of a Presence, its login token from that moment on: see
	// Presence.LoginToken. It is empty for a Subscription and for an invisible presence.
	LoginToken string
}
