// Package ident says who is calling and what they may do.
package ident

import (
	"context"
	"slices"
	"strings"
	"time"
)

// Action is something that a capability allows on a channel.
type Action string

// The actions on channels.
const (
	Send      Action = "send"
	History   Action = "history"
	Subscribe Action = "subscribe"
	// Moderate allows recalling other people's messages.
	Moderate Action = "moderate"
	// SendAs allows naming another sender than oneself: for backends and importers.
	SendAs Action = "send_as"
	// Manage allows creating channels, adding and removing members, and using a members-only channel without being one.
	Manage Action = "manage"
)

// Capability allows actions on the channels that Pattern covers. A pattern is a channel id, in which one `*` at the end
// stands for any rest; `*` alone covers every channel.
type Capability struct {
	Pattern string
	Actions []Action
}

// Principal is the caller that a token proved. It is immutable and safe for concurrent use.
type Principal struct {
	// Subject is the user id that an identity provider issued: 1 to 128 printable ASCII characters without spaces.
	Subject string
	// Session is the token's `ssid`, by which it can be revoked; may be empty.
	Session string
	// Expires is the end of the token's life.
	Expires time.Time
	// Channels are the capabilities on channels.
	Channels []Capability
}

// Can reports whether the principal may do action on the channel.
func (p *Principal) Can(action Action, channelID string) bool {
	for _, c := range p.Channels {
		if !covers(c.Pattern, channelID) {
			continue
		}
		if slices.Contains(c.Actions, action) {
			return true
		}
	}
	return false
}

func covers(pattern, id string) bool {
	if prefix, ok := strings.CutSuffix(pattern, "*"); ok {
		return strings.HasPrefix(id, prefix)
	}
	return pattern == id
}

type contextKey struct{}

// NewContext returns a context that carries the principal.
func NewContext(ctx context.Context, p *Principal) context.Context {
	return context.WithValue(ctx, contextKey{}, p)
}

// FromContext gives the principal that the transport put there, or nil.
func FromContext(ctx context.Context) *Principal {
	p, _ := ctx.Value(contextKey{}).(*Principal)
	return p
}
