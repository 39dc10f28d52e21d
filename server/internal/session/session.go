// Package session implements sessions: conversations of a user with an assistant.
//
// A session is a members-only channel in an id space of its own, whose only member is its owner. So
// its log, cache, events and streams are those of channels, and this package adds only what
// differs: who speaks, and that the first message creates the session.
package session

import (
	"cmp"
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"

	"github.com/google/uuid"

	"github.com/parleyhq/parley/server/internal/fault"
	"github.com/parleyhq/parley/server/internal/ident"
	"github.com/parleyhq/parley/server/internal/message"
)

// RoleUser is the role of the messages of a session's user, and the default.
const RoleUser = message.UserType

// Messages is the part of message.Service that Service uses.
type Messages interface {
	Send(ctx context.Context, r message.SendRequest) (message.Receipt, error)
	Close(ctx context.Context, r message.CloseRequest) (message.Receipt, message.Message, error)
	Cancel(ctx context.Context, r message.CloseRequest) (message.Receipt, message.Message, error)
	CancelTarget(ctx context.Context, channelID, msgID string) (message.Message, error)
}

// Channels is the part of channel.Service that Service uses.
type Channels interface {
	OpenSession(ctx context.Context, sessionID, ownerID, title string) error
}

// Service implements the use cases of sessions that differ from those of channels. It is safe for
// concurrent use.
//
// The caller's ident.Principal is in the context; a call without one is refused. The transport has
// validated the fields, and has checked that the token allows the action on the session, if the
// request names one.
type Service struct{ cfg Config }

// Config configures a Service. All fields are required.
type Config struct {
	Messages    Messages
	Channels    Channels
	Generations *Generations
	Peers       Peers
	// Secret derives the ids of sessions that have none, and seals append tokens. It must be the same
	// on every node.
	Secret []byte
}

// NewService returns a service. It starts no goroutines.
func NewService(cfg Config) *Service { return &Service{cfg: cfg} }

// AppendRequest describes a message to append.
type AppendRequest struct {
	// SessionID is the session. If it is empty, the service derives an id from the owner and
	// ClientMsgID, or makes up a random one if that is empty too.
	SessionID string
	// Role is who speaks; empty means RoleUser. Any other role requires the action manage.
	Role string
	// UserID is the sender, and the owner if the call creates the session. Empty means the principal's
	// subject. Another user requires the action send_as, and can only be the owner.
	UserID string
	// Title is the title of the session if the call creates it, and is ignored otherwise.
	Title string
	// Open makes the message open, until Close. Content may be empty only with it.
	Open bool
	// Content, ClientMsgID, Metadata and Traceparent are those of message.SendRequest.
	Content, ClientMsgID, Traceparent string
	Metadata                          map[string]string
}

// AppendResult is the result of Append.
type AppendResult struct {
	SessionID string
	message.Receipt

	// Token is that of DeltaRequest, if the message is open. It belongs to the principal's subject.
	Token string
}

// Append appends a message to a session. It creates the session if there is none and the request
// says whose it is: it has the role RoleUser, or a UserID. It returns once the message is durable.
// It may be repeated with the same ClientMsgID. Requires `append`.
func (s *Service) Append(ctx context.Context, r AppendRequest) (AppendResult, error) {
	p, err := ident.Caller(ctx)
	if err != nil {
		return AppendResult{}, err
	}
	if r.Content == "" && !r.Open {
		return AppendResult{}, fault.Invalid("content", 1, "content: must have at least 1 byte, unless open is set")
	}
	userID, role := cmp.Or(r.UserID, p.Subject), cmp.Or(r.Role, RoleUser)
	sessionID := r.SessionID
	if sessionID == "" {
		sessionID = s.newID(userID, r.ClientMsgID)
	}
	if err := check(p, sessionID, userID, role); err != nil {
		return AppendResult{}, err
	}
	send := message.SendRequest{
		ChannelID: ident.SessionChannel(sessionID), Content: r.Content, ClientMsgID: r.ClientMsgID, MsgType: role,
		Metadata: r.Metadata, FromID: userID, Open: r.Open, Traceparent: r.Traceparent,
	}
	receipt, err := s.cfg.Messages.Send(ctx, send)
	f, ok := fault.As(err)
	if ok && f.Reason == fault.ChannelNotFound && (role == RoleUser || r.UserID != "") {
		if err := s.cfg.Channels.OpenSession(ctx, sessionID, userID, r.Title); err != nil {
			return AppendResult{}, err
		}
		receipt, err = s.cfg.Messages.Send(ctx, send)
	}
	if err != nil {
		return AppendResult{}, err
	}
	result := AppendResult{SessionID: sessionID, Receipt: receipt}
	if r.Open && !s.endedBefore(ctx, &send, &receipt) {
		t := target{send.ChannelID, receipt.MsgID}
		attempt := s.cfg.Generations.begin(ctx, t, receipt.Seq, p.Subject, p.CanSession(ident.Manage, sessionID), !receipt.Duplicate)
		result.Token = s.sealToken(appendToken{receipt.Seq, attempt}, p.Subject, t.channelID, t.msgID)
	}
	return result, nil
}

// endedBefore reports whether a repeat of an open is of a message that is known to be no longer
// open.
func (s *Service) endedBefore(ctx context.Context, send *message.SendRequest, receipt *message.Receipt) bool {
	if !receipt.Duplicate {
		return false
	}
	status, err := s.cfg.Generations.status(ctx, target{send.ChannelID, receipt.MsgID}, receipt.Seq)
	return err == nil && status != message.StatusOpen
}

// check checks what p's token must allow beyond the transport's check.
func check(p *ident.Principal, sessionID, userID, role string) error {
	missing := func(field string, action ident.Action, why string) error {
		f := fault.New(fault.PermissionDenied, fault.CapabilityMissing,
			"%s: the token has no capability %q for session %s, which %s", field, action, sessionID, why)
		f.Field = field
		return f
	}
	switch {
	case !p.CanSession(ident.Append, sessionID): // an id that newID has made
		return missing("session_id", ident.Append, "the server has named because the request does not")
	case userID != p.Subject && !p.CanSession(ident.SendAs, sessionID):
		return missing("user_id", ident.SendAs, "another user than the token's subject requires")
	case role != RoleUser && !p.CanSession(ident.Manage, sessionID):
		return missing("role", ident.Manage, "every role but "+RoleUser+" requires")
	}
	return nil
}

// newID returns the id of the session that a message begins. A repeat of the call has the same
// client_msg_id, and so the same session. Nobody can tell from an id who began the session.
func (s *Service) newID(userID, clientMsgID string) string {
	if clientMsgID == "" {
		return uuid.Must(uuid.NewV7()).String()
	}
	h := hmac.New(sha256.New, s.cfg.Secret)
	h.Write([]byte("session " + userID + " " + clientMsgID)) // neither contains a space
	return base64.RawURLEncoding.EncodeToString(h.Sum(nil)[:16])
}
