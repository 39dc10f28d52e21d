package messages

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"

	"github.com/parleyhq/parley/chaos"
	parleyv1 "github.com/parleyhq/parley/gen/go/parley/v1"
)

// gate returns the name of a gated channel: one that is closed and opened, deleted and created
// again. Such channels have clients, records and a check of their own: their logs in the store are
// not complete, and have entries that no client sees.
func gate(i int) string { return fmt.Sprintf("gate-%d", i) }

// own reports whether a channel has records and a check of its own.
func own(channel string) bool {
	return slices.ContainsFunc([]string{"gate-", "trimmed-", gonePrefix, loginPrefix}, func(prefix string) bool {
		return strings.HasPrefix(channel, prefix)
	})
}

// The users of gated channels. The keeper owns them, with a token that has all capabilities. The
// aide is always a member, with a token that allows only what members may; it is a moderator at
// times. Strangers are never members. A leaver sends some messages and is then erased.
const (
	keeper   = "keeper"
	aide     = "aide"
	stranger = "stranger"
	leaver   = "leaver"
)

// aideActions are the capabilities of the aide's token.
var aideActions = map[string][]string{"member:gate-*": {"send", "history", "subscribe", "moderate"}}

// The kinds of GateCall, besides those of Op.
const (
	Open    Kind = "open"
	Close   Kind = "close"
	Delete  Kind = "delete"
	Promote Kind = "promote" // the aide becomes a moderator
	Demote  Kind = "demote"
	Erase   Kind = "erase"  // a user
	Erased  Kind = "erased" // the user's job is done
	Stream  Kind = "stream"
)

// GateCall is a call of a client of a gated channel and its result, or one batch of events of a
// stream: then Begin and End are when it was received.
type GateCall struct {
	Channel string        `json:"channel"`
	User    string        `json:"user"`
	Addr    string        `json:"addr"`
	Kind    Kind          `json:"kind"`
	Begin   int64         `json:"begin"`
	End     int64         `json:"end"`
	Outcome chaos.Outcome `json:"outcome"`
	Reason  string        `json:"reason,omitempty"`
	Err     string        `json:"err,omitempty"`
	// Name is the client_msg_id of a send, that of the recalled message, or the erased user.
	Name string `json:"name,omitempty"`
	// Shown are the client_msg_ids of the messages whose texts a list or a stream showed.
	Shown []string `json:"shown,omitempty"`
	// Final is set for the calls after all faults. They must succeed.
	Final bool `json:"final,omitempty"`
}

// end records the ending of a call.
func (c *GateCall) end(err error) {
	e := chaos.EndingOf(err)
	if c.Outcome, c.Err = e.Outcome, e.Err; e.Reason != 0 {
		c.Reason = e.Reason.String()
	}
}

// show records the messages whose texts were shown.
func (c *GateCall) show(messages ...*parleyv1.ChannelMessage) {
	for _, m := range messages {
		if mark, _, ok := nextMark(m.GetContent()); ok {
			c.Shown = append(c.Shown, mark)
		}
	}
}

// gatehouse is one gated channel: its keeper, and what the clients share.
type gatehouse struct {
	channel string
	keeper  *gatekeeper
	streams []*strangerStream

	mu   sync.Mutex // guards sent
	sent []sentMessage
}

// sentMessage is an acknowledged message of a gated channel.
type sentMessage struct{ msgID, name string }

// pick returns a message to recall, or false if there is none.
func (g *gatehouse) pick(rng *rand.Rand) (sentMessage, bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if len(g.sent) == 0 {
		return sentMessage{}, false
	}
	return g.sent[rng.IntN(len(g.sent))], true
}

// note adds a message for the aide to recall. Only the newest 20 are kept.
func (g *gatehouse) note(m sentMessage) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.sent = append(g.sent, m); len(g.sent) > 20 {
		g.sent = slices.Delete(g.sent, 0, 1)
	}
}

// callGate makes a call and records it.
func (w *world) callGate(c *GateCall, call func() error) {
	c.Begin = w.rec.Now()
	err := call()
	c.End = w.rec.Now()
	c.end(err)
	w.rec.Write(line{Gate: c})
}

// isOf reports whether a leaver sent the message with a client_msg_id.
func isOf(name, user string) bool { return strings.HasPrefix(name, user+"/") }
