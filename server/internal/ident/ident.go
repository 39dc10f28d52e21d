// Package ident defines the identity of a caller and their capabilities.
package ident

import (
	"context"
	"crypto/sha256"
	"encoding/base64"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/parleyhq/parley/server/internal/fault"
)

// SessionPrefix begins the id of a session's channel. No other channel id contains it.
const SessionPrefix = "~"

// SessionChannel returns the id of the channel that is the session's log.
func SessionChannel(sessionID string) string { return SessionPrefix + sessionID }

// SessionOf returns the id of the session whose log the channel is. ok is false for a channel that
// is no session's.
func SessionOf(channelID string) (sessionID string, ok bool) {
	return strings.CutPrefix(channelID, SessionPrefix)
}

// IsSession reports whether the channel is a session's log.
func IsSession(channelID string) bool { return strings.HasPrefix(channelID, SessionPrefix) }

// ErasedUser replaces a user whose messages were erased. No token may have it as its subject.
const ErasedUser = "~erased"

var userID = regexp.MustCompile(`^[!-~]{1,128}$`)

// ValidUser reports whether a token may have this subject: 1 to 128 printable ASCII characters
// without spaces, and not ErasedUser.
func ValidUser(id string) bool { return userID.MatchString(id) && id != ErasedUser }

// Action is an operation that a capability allows: on a channel, in a session, on a topic, in
// PresenceService, or in AdminService.
type Action string

// The actions on channels. Those in SessionActions are also actions on sessions.
const (
	// Send allows sending and editing messages. On sessions its name in a token is "append".
	Send      Action = "send"
	History   Action = "history"
	Subscribe Action = "subscribe"
	// Moderate allows recalling other users' messages.
	Moderate Action = "moderate"
	// SendAs allows sending in another user's name. It is for backends and importers.
	SendAs Action = "send_as"
	// Create allows creating channels.
	Create Action = "create"
	// Manage allows creating channels, changing their settings and their members, and using a
	// members-only channel without being a member.
	Manage Action = "manage"
)

// Append is the name of Send in a capability on sessions.
const Append Action = "append"

// The actions on the topics of queues.
const (
	// Produce allows sending messages to a topic, now or later, and cancelling scheduled ones.
	Produce Action = "produce"
	// Consume allows being a consumer in the topic's groups.
	Consume Action = "consume"
)

// The actions in PresenceService.
const (
	// Connect allows being online.
	Connect Action = "connect"
	// Watch allows reading the presence of users whose ids are known.
	Watch Action = "watch"
	// List allows listing all users that are online.
	List Action = "list"
)

// The actions in AdminService.
const (
	// Read allows the calls without side effects.
	Read Action = "read"
	// Write allows all other calls.
	Write Action = "write"
)

// The actions of each kind of capability. Callers must not change them.
var (
	ChannelActions  = []Action{Send, History, Subscribe, Moderate, SendAs, Create, Manage}
	SessionActions  = []Action{Append, History, Subscribe, SendAs, Manage}
	QueueActions    = []Action{Produce, Consume}
	PresenceActions = []Action{Connect, Watch, List}
	AdminActions    = []Action{Read, Write}
)

// Capability allows actions on the channels, sessions or topics that Pattern covers. A pattern is a
// name. A `*` at its end matches any rest; `*` alone covers everything.
type Capability struct {
	Pattern string
	Actions []Action
}

// Principal is the caller that a token identifies. It is immutable and safe for concurrent use.
type Principal struct {
	// Subject is the user id that an identity provider issued: 1 to 128 printable ASCII characters
	// without spaces.
	Subject string
	// SSID is the token's `ssid`, by which the token can be revoked; may be empty.
	SSID string
	// Key identifies the token, or all tokens of its ssid, to those who revoke it: see TokenKey.
	Key string
	// IssuedAt is when the token was issued, in whole seconds; zero if the token does not say it.
	IssuedAt time.Time
	// Expires is when the principal's token expires.
	Expires time.Time
	// Channels are the capabilities on channels, in the claim `channel:<pattern>`.
	Channels []Capability
	// Members are the capabilities on those channels of which the subject is a member, in the claim
	// `member:<pattern>`. The role of the member limits them.
	Members []Capability
	// Sessions are the capabilities on sessions, in the claim `session:<pattern>`. A session is used
	// only by its owner, and by holders of Manage.
	Sessions []Capability
	// Queues are the capabilities on the topics of queues.
	Queues []Capability
	// Presence are the actions allowed in PresenceService; empty allows none.
	Presence []Action
	// Admin are the actions allowed in AdminService; empty allows none.
	Admin []Action
}

// TokenKey returns the key by which a token is revoked: that of its ssid, so that all tokens of one
// login are revoked together. Without an ssid it is that of the SHA-256 digest of the token's
// header and claims.
func TokenKey(ssid string, digest [sha256.Size]byte) string {
	if ssid != "" {
		return SSIDKey(ssid)
	}
	return "t:" + base64.RawURLEncoding.EncodeToString(digest[:])
}

// apiKeyPrefix begins an APIKeyKey.
const apiKeyPrefix = "k:"

// APIKeyKey returns the key by which the API key with this id is revoked.
func APIKeyKey(id string) string { return apiKeyPrefix + id }

// OfAPIKey reports whether the principal is that of an API key. A revocation of its subject's
// tokens does not revoke it.
func (p *Principal) OfAPIKey() bool { return strings.HasPrefix(p.Key, apiKeyPrefix) }

// SSIDKey returns the TokenKey of all tokens with this ssid.
func SSIDKey(ssid string) string { return "s:" + ssid }

// Can reports whether a capability of the principal allows action on the channel: one in Sessions
// if it is the channel of a session, and otherwise one in Channels. It does not check memberships.
// Manage includes Create.
func (p *Principal) Can(action Action, channelID string) bool {
	if sessionID, ok := SessionOf(channelID); ok {
		return allow(p.Sessions, sessionAction(action), sessionID)
	}
	return allowOnChannel(p.Channels, action, channelID)
}

// sessionAction returns the name of an action in a capability on sessions.
func sessionAction(action Action) Action {
	if action == Send {
		return Append
	}
	return action
}

// CanAsMember reports whether a capability of the principal in Members allows action on the
// channel, provided that the subject is a member with a sufficient role, which it does not check.
// It never allows SendAs, and nothing in a session. Manage includes Create, which requires no
// membership.
func (p *Principal) CanAsMember(action Action, channelID string) bool {
	return action != SendAs && !IsSession(channelID) && allowOnChannel(p.Members, action, channelID)
}

// CanSession reports whether a capability of the principal allows action, one of SessionActions, on
// the session. It does not check whose session it is.
func (p *Principal) CanSession(action Action, sessionID string) bool {
	return allow(p.Sessions, action, sessionID)
}

// CanEverySession reports whether a capability of the principal allows action in all sessions.
func (p *Principal) CanEverySession(action Action) bool {
	return slices.ContainsFunc(p.Sessions, func(c Capability) bool { return c.Pattern == "*" && slices.Contains(c.Actions, action) })
}

// Covers reports whether any capability of the principal may allow action on the channel: Can or
// CanAsMember.
func (p *Principal) Covers(action Action, channelID string) bool {
	return p.Can(action, channelID) || p.CanAsMember(action, channelID)
}

func allowOnChannel(capabilities []Capability, action Action, channelID string) bool {
	return allow(capabilities, action, channelID) || action == Create && allow(capabilities, Manage, channelID)
}

// CanQueue reports whether a capability of the principal allows action on the topic.
func (p *Principal) CanQueue(action Action, topic string) bool {
	return allow(p.Queues, action, topic)
}

// CanPresence reports whether the principal may do action in PresenceService.
func (p *Principal) CanPresence(action Action) bool {
	return slices.Contains(p.Presence, action)
}

// CanAdmin reports whether the principal may do action in AdminService.
func (p *Principal) CanAdmin(action Action) bool {
	return slices.Contains(p.Admin, action)
}

func allow(capabilities []Capability, action Action, name string) bool {
	for _, c := range capabilities {
		if !covers(c.Pattern, name) {
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

// Caller returns the principal that the context carries. Without one it fails with TOKEN_INVALID.
func Caller(ctx context.Context) (*Principal, error) {
	if p := FromContext(ctx); p != nil {
		return p, nil
	}
	return nil, fault.New(fault.Unauthenticated, fault.TokenInvalid, "the request has no valid token")
}

// FromContext returns the principal that the context carries, or nil.
func FromContext(ctx context.Context) *Principal {
	p, _ := ctx.Value(contextKey{}).(*Principal)
	return p
}
