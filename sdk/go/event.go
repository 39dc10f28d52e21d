package parley

import (
	"time"

	parleyv1 "github.com/parleyhq/parley/gen/go/parley/v1"
)

// EventKind is what an Event tells.
type EventKind int

// The kinds of events.
const (
	// EventSent is a new message. In a replay it is the message as it is now, which may be edited or recalled.
	EventSent EventKind = iota + 1
	// EventEdited is the whole message after an edit.
	EventEdited
	// EventRecalled is the tombstone that a recall left.
	EventRecalled
	// EventChannelState is where a channel stands as its events begin: once per channel and stream, so again after each
	// reconnect.
	EventChannelState
	// EventGap says that entries can't be had. The subscription goes on behind them; what the program holds of the
	// channel is to be loaded anew with History.
	EventGap
	// EventLost is a channel's last event: it takes members only, and the user is none any more. The subscription goes on
	// for the others; to follow the channel again, Add it.
	EventLost
	// EventTyping says that somebody is typing; show it for 6 s. It has no place in the log.
	EventTyping
)

// String gives the kind's name in lower case.
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
	default:
		return "unknown"
	}
}

// Event is something that a subscription learned about a channel. Events of one channel come in the order of its log,
// each entry once.
type Event struct {
	Kind      EventKind
	ChannelID string
	// Seq is the entry's place in the log; for a state and a gap, the position from which the channel goes on; for
	// EventLost the position up to which events had come; 0 for EventTyping.
	Seq   int64
	Epoch string
	// Message is set for EventSent, EventEdited and EventRecalled.
	Message *Message
	// Channel is set for EventChannelState.
	Channel *parleyv1.ChannelState
	// Gap is set for EventGap. Its reason is unspecified where the server itself skipped entries, again and again.
	Gap *parleyv1.ChannelGap
	// Lost is set for EventLost.
	Lost *parleyv1.ChannelLost
	// Typing is set for EventTyping, and names the user.
	Typing *parleyv1.Typing
}

// State is what a subscription is doing.
type State int

// The states. A subscription goes from Connecting to Live or Waiting, from either of those back to Connecting, and from
// any to Ended.
const (
	// StateConnecting is the time until the stream's first frame.
	StateConnecting State = iota
	// StateLive is while a stream is up.
	StateLive
	// StateWaiting is between two streams.
	StateWaiting
	// StateEnded is for good.
	StateEnded
)

// String gives the state's name in lower case.
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

// StateChange tells of a subscription's new state.
type StateChange struct {
	State State
	// Err is why the last stream ended, for StateWaiting, and why the subscription did, for StateEnded. It is nil after a
	// server's advice to reconnect.
	Err error
	// Wait is how long StateWaiting lasts.
	Wait time.Duration
	// Addr is the address of the node: for StateLive the stream's, for StateWaiting the last stream's, which is empty if
	// none was tried for want of a token.
	Addr string
}
