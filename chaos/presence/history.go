package presence

import (
	"slices"
	"strconv"
	"strings"

	"github.com/parleyhq/parley/chaos"
)

// forever is later than every time of a run.
const forever = 1<<62 - 1

// State is the platforms of a user as text: for each platform, in ascending order, its number and
// f, or b if it is in the background. "2b8f" is Android in the background and the web. Offline is
// empty. The server's Redis keys have the same form.
type State string

// has reports whether the state has a platform, by its number.
func (s State) has(platform int) bool {
	for i := 0; i+1 < len(s); i += 2 {
		if int(s[i]-'0') == platform {
			return true
		}
	}
	return false
}

// with returns the state after one more device is online. A platform is in the background only if
// all its devices are.
func (s State) with(platform int, background bool) State {
	flag := "f"
	if background {
		flag = "b"
	}
	pairs := []string{strconv.Itoa(platform) + flag}
	for i := 0; i+1 < len(s); i += 2 {
		if s[i] != pairs[0][0] {
			pairs = append(pairs, string(s[i:i+2]))
		} else if s[i+1] == 'f' {
			pairs[0] = string(s[i : i+2])
		}
	}
	slices.Sort(pairs)
	return State(strings.Join(pairs, ""))
}

// How is how a stream ended.
type How string

// The ways.
const (
	// Closed: the client closed the stream.
	Closed How = "closed"
	// Left: the client called Disconnect.
	Left How = "left"
	// Kicked: the server ended the stream, or refused it, with KICKED.
	Kicked How = "kicked"
	// Drained: the server ended the stream after it had advised the client to reconnect.
	Drained How = "drained"
	// Lost: the stream broke or was silent, or the call failed.
	Lost How = "lost"
)

// Conn is a Connect stream of a device. Times are by the history's clock; 0 means not yet.
type Conn struct {
	// ID is the client's name and a unique number.
	ID     string `json:"id"`
	Client string `json:"client"`
	User   string `json:"user"`
	// Device is the device id in the request. Each login has its own.
	Device   string `json:"device"`
	Platform int    `json:"platform"`
	Addr     string `json:"addr"`
	// Fresh is set for a new login, which has no login token.
	Fresh      bool `json:"fresh,omitempty"`
	Background bool `json:"background,omitempty"`

	Begin int64 `json:"begin"`
	// First and Last are when the first and the last frame arrived.
	First int64 `json:"first,omitempty"`
	Last  int64 `json:"last,omitempty"`
	// Handover is when the advice to reconnect arrived.
	Handover int64 `json:"handover,omitempty"`
	// Leave is when the client called Disconnect.
	Leave int64 `json:"leave,omitempty"`
	// End is when the client closed the stream or called Disconnect successfully, or when it saw the
	// end of the stream.
	End int64  `json:"end,omitempty"`
	How How    `json:"how,omitempty"`
	Err string `json:"err,omitempty"`

	Stream     string `json:"stream,omitempty"`
	Connection string `json:"connection,omitempty"`
	// Kick is set if How is Kicked.
	Kick *Kick `json:"kick,omitempty"`
}

// refused reports whether the node did not receive the request.
func (c *Conn) refused() bool { return c.First == 0 && strings.Contains(c.Err, "connection refused") }

// Kick is the detail of a KICKED error.
type Kick struct {
	// Cause is the name of the cause, such as LOGIN.
	Cause    string `json:"cause"`
	Device   string `json:"device"`
	Platform int    `json:"platform"`
}

// The causes of a Kick.
const (
	byLogin  = "LOGIN"
	replaced = "REPLACED"
)

// Watch is an invisible Connect stream of a watcher.
type Watch struct {
	ID     string `json:"id"`
	Client string `json:"client"`
	Addr   string `json:"addr"`
	// Users are the watched users of the request.
	Users []string `json:"users"`
	Begin int64    `json:"begin"`
	First int64    `json:"first,omitempty"`
	Last  int64    `json:"last,omitempty"`
	End   int64    `json:"end,omitempty"`
	How   How      `json:"how,omitempty"`
	Err   string   `json:"err,omitempty"`
}

// Via is how a watcher received states.
type Via string

// The ways.
const (
	// ViaInfo: the first frame of the stream.
	ViaInfo Via = "info"
	// ViaFrame: a later frame.
	ViaFrame Via = "frame"
	// ViaAnswer: the response of UpdateWatch.
	ViaAnswer Via = "answer"
)

// Seen is the state of a user that a client received.
type Seen struct {
	User     string `json:"user"`
	State    State  `json:"state"`
	Revision int64  `json:"revision,omitempty"`
}

// Frame is states that a watcher received at once.
type Frame struct {
	At int64 `json:"at"`
	// Watch is the id of the Watch.
	Watch string `json:"watch"`
	Via   Via    `json:"via"`
	Users []Seen `json:"users,omitempty"`
	// Lagging is unset if the frame does not change it.
	Lagging *bool `json:"lagging,omitempty"`
}

// Kind is the method of an Op.
type Kind string

// The kinds.
const (
	Connect       Kind = "connect"
	UpdateWatch   Kind = "watch"
	SetBackground Kind = "background"
	Disconnect    Kind = "disconnect"
	GetPresence   Kind = "get"
	ListOnline    Kind = "list"
)

// Op is a unary call.
type Op struct {
	Kind    Kind          `json:"kind"`
	Client  string        `json:"client"`
	Addr    string        `json:"addr"`
	Begin   int64         `json:"begin"`
	End     int64         `json:"end"`
	Outcome chaos.Outcome `json:"outcome"`
	// Err is set if the outcome is not OK.
	Err string `json:"err,omitempty"`
	// Stream is the id of the Conn or the Watch that an UpdateWatch, a SetBackground or a Disconnect
	// changes.
	Stream     string   `json:"stream,omitempty"`
	Add        []string `json:"add,omitempty"`
	Remove     []string `json:"remove,omitempty"`
	Background bool     `json:"background,omitempty"`
	// Users are the users in the answer of a GetPresence, or on all pages of a ListOnlineUsers.
	Users []Seen `json:"users,omitempty"`
	// Final is set for the reads after the workload has settled.
	Final bool `json:"final,omitempty"`
}

// The names of the times that a history has besides those of chaos.History.
const (
	markWall    = "wall"
	markSettled = "settled"
	markLeaving = "leaving"
)

// History is everything that the clients of a run observed.
type History struct {
	chaos.History

	// Policy is the login policy of the fleet.
	Policy string
	// Addrs are the nodes' addresses.
	Addrs   []string
	Conns   []Conn
	Watches []Watch
	Frames  []Frame
	Ops     []Op
	Stalls  []Stall
	// Wall is when the history's clock was 0, in nanoseconds since 1970.
	Wall int64
	// Settled is when the workload had settled, and Leaving when the devices began to leave. No
	// device changed on purpose between these. They are 0 if the run ended before.
	Settled, Leaving int64
	// Unsettled describes what had not settled in time at the end. It is "" if all had.
	Unsettled string
}
