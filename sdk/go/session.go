package parley

import (
	"context"
	"iter"
	"maps"
	"strings"

	"google.golang.org/protobuf/types/known/timestamppb"

	parleyv1 "github.com/parleyhq/parley/gen/go/parley/v1"
	"github.com/parleyhq/parley/sdk/go/internal/link"
)

// sessionPrefix begins the id of a session's channel.
const sessionPrefix = "~"

// SessionRole is who speaks in a message of a session. It is the message's type.
type SessionRole string

// The roles. Every role but SessionRoleUser requires the action `manage`.
const (
	SessionRoleUser      SessionRole = "user"
	SessionRoleAssistant SessionRole = "assistant"
	SessionRoleSystem    SessionRole = "system"
	SessionRoleTool      SessionRole = "tool"
)

// Session is the conversation of a user with an assistant: a log that only its owner and holders of
// the action `manage` can use. The first message creates it. It holds no state and is safe for
// concurrent use.
type Session struct {
	client *Client
	id     string
}

// Session returns the session with this id: 1 to 64 of A-Z a-z 0-9 _ -. It makes no call.
func (c *Client) Session(id string) *Session { return &Session{c, id} }

// WithTitle sets the title of the session that the message creates, up to 256 bytes. It has no
// effect if the session exists; see Session.Rename.
func WithTitle(title string) SendOption { return func(o *Outgoing) { o.title = title } }

// SessionInfo describes a session. The proto file describes the fields.
type SessionInfo = parleyv1.Session

// Sessions iterates over the sessions of a user, those with the latest activity first. An empty
// userID means the caller; another one requires the action `manage` on `session:*`, or the action
// `read` of `admin`. Heads, counts and activity can be 100 ms old. A session whose activity changes
// while the loop runs can come twice or not at all.
//
// Pages are loaded as the loop needs them. Each page is a call, retried until ctx or the call's
// deadline ends. If a call fails, the iteration ends with its error.
func (c *Client) Sessions(ctx context.Context, userID string) iter.Seq2[*SessionInfo, error] {
	return c.sessions(ctx, &parleyv1.ListSessionsRequest{UserId: userID})
}

// AllSessions iterates over the sessions of all users, as Sessions does. It requires the action
// `manage` on `session:*`, or the action `read` of `admin`.
func (c *Client) AllSessions(ctx context.Context) iter.Seq2[*SessionInfo, error] {
	return c.sessions(ctx, &parleyv1.ListSessionsRequest{AllUsers: true})
}

func (c *Client) sessions(ctx context.Context, list *parleyv1.ListSessionsRequest) iter.Seq2[*SessionInfo, error] {
	return link.Pages(func(token string) ([]*SessionInfo, string, error) {
		if err := checkText("user_id", list.GetUserId()); err != nil {
			return nil, "", err
		}
		req := &parleyv1.ListSessionsRequest{UserId: list.GetUserId(), AllUsers: list.GetAllUsers(), PageToken: token}
		var res *parleyv1.ListSessionsResponse
		err := c.do(ctx, "ListSessions", func(ctx context.Context, n *endpoint) (err error) {
			res, err = n.Message.ListSessions(ctx, req)
			return err
		})
		for _, s := range res.GetSessions() {
			c.heads.observe(sessionPrefix+s.GetSessionId(), s.GetEpoch(), s.GetHeadSeq())
		}
		return res.GetSessions(), res.GetNextPageToken(), err
	})
}

// ID returns the id of the session.
func (s *Session) ID() string { return s.id }

// ChannelID returns the id of the session's channel: that of its messages, events and positions,
// and the one to subscribe to, as in client.Subscribe(ctx, FromStart(s.ChannelID())).
func (s *Session) ChannelID() string { return sessionPrefix + s.id }

// Append appends a message and returns when it is durable. If the session does not exist, the call
// creates it, and its sender is the owner; WithTitle then sets its title. Append is retried like
// Client.Send. WithType has no effect.
func (s *Session) Append(ctx context.Context, role SessionRole, content string, opts ...SendOption) (*Receipt, error) {
	r, _, err := s.append(ctx, role, content, false, opts)
	return r, err
}

// append appends a message. token is the append token if it is open.
func (s *Session) append(
	ctx context.Context, role SessionRole, content string, open bool, opts []SendOption,
) (r *Receipt, token string, err error) {
	o := Outgoing{Content: content}
	for _, opt := range opts {
		opt(&o)
	}
	id, err := orNewID(o.ClientMsgID)
	if err == nil {
		err = checkText("session_id", s.id, "role", string(role), "content", content, "client_msg_id", id, "user_id", o.Sender, "title", o.title)
	}
	for key, value := range o.Metadata {
		if err == nil {
			err = checkText("metadata", key, "metadata", value)
		}
	}
	if err == nil && s.id == "" {
		err = invalid("session_id", "is empty")
	}
	if err != nil {
		return nil, "", err
	}
	req := &parleyv1.AppendSessionMessageRequest{
		SessionId: s.id, Role: string(role), Content: content, ClientMsgId: id, Metadata: maps.Clone(o.Metadata), UserId: o.Sender, Open: open,
		Title: o.title,
	}
	var res *parleyv1.AppendSessionMessageResponse
	err = s.client.do(ctx, "AppendSessionMessage", func(ctx context.Context, n *endpoint) (err error) {
		res, err = n.Message.AppendSessionMessage(ctx, req)
		return err
	})
	if err != nil {
		return nil, "", err
	}
	s.client.heads.observe(s.ChannelID(), res.GetEpoch(), res.GetSeq())
	return &Receipt{
		ChannelID: s.ChannelID(), MsgID: res.GetMsgId(), Seq: res.GetSeq(), Count: res.GetCount(),
		Time: res.GetMsgTime().AsTime(), ClientMsgID: res.GetClientMsgId(), Epoch: res.GetEpoch(), Duplicate: res.GetDuplicate(),
	}, res.GetAppendToken(), nil
}

// Messages iterates over the session's messages, as Client.History does over a channel's.
func (s *Session) Messages(ctx context.Context, opts ...HistoryOption) iter.Seq2[*Message, error] {
	return s.client.History(ctx, s.ChannelID(), opts...)
}

// Subscribe follows the session from its start, as Client.Subscribe(ctx, FromStart(s.ChannelID()))
// does. Options can add channels, or start the session from another position.
func (s *Session) Subscribe(ctx context.Context, opts ...SubscribeOption) *Subscription {
	return s.client.Subscribe(ctx, append([]SubscribeOption{FromStart(s.ChannelID())}, opts...)...)
}

// Cancel closes an open message as cancelled, with the text that was streamed until then. The owner
// of the session can cancel every message. It is ErrMessageClosed if the message is not open.
// Cancel is retried like Client.Send.
func (s *Session) Cancel(ctx context.Context, msgID string) (*Receipt, error) {
	id, err := orNewID("")
	if err == nil {
		err = checkText("session_id", s.id, "msg_id", msgID)
	}
	if err != nil {
		return nil, err
	}
	req := &parleyv1.CancelSessionMessageRequest{SessionId: s.id, MsgId: msgID, ClientMsgId: id}
	var res *parleyv1.CancelSessionMessageResponse
	err = s.client.do(ctx, "CancelSessionMessage", func(ctx context.Context, n *endpoint) (err error) {
		res, err = n.Message.CancelSessionMessage(ctx, req)
		return err
	})
	if err != nil {
		return nil, err
	}
	return s.closed(msgID, id, res), nil
}

// closeResponse is the response of a call that closes a message.
type closeResponse interface {
	GetMessage() *parleyv1.ChannelMessage
	GetSeq() int64
	GetMsgTime() *timestamppb.Timestamp
	GetEpoch() string
	GetDuplicate() bool
}

func (s *Session) closed(msgID, clientMsgID string, res closeResponse) *Receipt {
	s.client.heads.observe(s.ChannelID(), res.GetEpoch(), max(res.GetSeq(), res.GetMessage().GetChangedSeq()))
	return &Receipt{
		ChannelID: s.ChannelID(), MsgID: msgID, Seq: res.GetSeq(), Time: res.GetMsgTime().AsTime(),
		ClientMsgID: clientMsgID, Epoch: res.GetEpoch(), Duplicate: res.GetDuplicate(), Message: res.GetMessage(),
	}
}

// Edit replaces a message's content, as Client.Edit does.
func (s *Session) Edit(ctx context.Context, msgID, content string, opts ...SendOption) (*Receipt, error) {
	return s.client.Edit(ctx, s.ChannelID(), msgID, content, opts...)
}

// Recall removes a message's content and metadata permanently, as Client.Recall does. The owner can
// recall every message of the session.
func (s *Session) Recall(ctx context.Context, msgID string, opts ...SendOption) (*Receipt, error) {
	return s.client.Recall(ctx, s.ChannelID(), msgID, opts...)
}

// Rename sets the session's title, up to 256 bytes; an empty one removes it. Only the owner and
// holders of the action `manage` can rename. For others, and if there is no such session, it
// returns ErrChannelNotFound. Rename is retried like Client.Send.
func (s *Session) Rename(ctx context.Context, title string) error {
	if err := checkText("session_id", s.id, "title", title); err != nil {
		return err
	}
	req := &parleyv1.RenameSessionRequest{SessionId: s.id, Title: title}
	return s.client.do(ctx, "RenameSession", func(ctx context.Context, n *endpoint) error {
		_, err := n.Message.RenameSession(ctx, req)
		return err
	})
}

// Delete deletes the session with its messages. Its id can never be used again. Only the owner and
// holders of the action `manage` can delete. Deleting a deleted session does nothing. Delete is
// retried like Client.Send.
func (s *Session) Delete(ctx context.Context) error {
	if err := checkText("session_id", s.id); err != nil {
		return err
	}
	req := &parleyv1.DeleteSessionRequest{SessionId: s.id}
	return s.client.do(ctx, "DeleteSession", func(ctx context.Context, n *endpoint) error {
		_, err := n.Message.DeleteSession(ctx, req)
		return err
	})
}

// MarkRead moves the owner's read cursor forward to seq, as Client.MarkRead does.
func (s *Session) MarkRead(ctx context.Context, seq int64) (ReadCursor, error) {
	return s.client.MarkRead(ctx, s.ChannelID(), seq)
}

// sessionOf returns the id of the session whose channel this is.
func sessionOf(channelID string) (id string, ok bool) {
	return strings.CutPrefix(channelID, sessionPrefix)
}

// The functions below make the call for a channel, or the call for sessions that does the same if
// the channel is a session's. Their responses have the same fields.

func listMessages(ctx context.Context, n *endpoint, req *parleyv1.ListMessagesRequest) (*parleyv1.ListMessagesResponse, error) {
	id, ok := sessionOf(req.GetChannelId())
	if !ok {
		return n.Message.ListMessages(ctx, req)
	}
	res, err := n.Message.ListSessionMessages(ctx, &parleyv1.ListSessionMessagesRequest{
		SessionId: id, AfterSeq: req.AfterSeq, BeforeSeq: req.BeforeSeq, MinSeq: req.GetMinSeq(),
		PageSize: req.GetPageSize(), PageToken: req.GetPageToken(),
	})
	if err != nil {
		return nil, err
	}
	return &parleyv1.ListMessagesResponse{
		Messages: res.GetMessages(), NextPageToken: res.GetNextPageToken(), HeadSeq: res.GetHeadSeq(),
		Epoch: res.GetEpoch(), OldestSeq: res.GetOldestSeq(),
	}, nil
}

func editMessage(ctx context.Context, n *endpoint, req *parleyv1.EditMessageRequest) (*parleyv1.EditMessageResponse, error) {
	id, ok := sessionOf(req.GetChannelId())
	if !ok {
		return n.Message.EditMessage(ctx, req)
	}
	res, err := n.Message.EditSessionMessage(ctx, &parleyv1.EditSessionMessageRequest{
		SessionId: id, MsgId: req.GetMsgId(), Content: req.GetContent(), ClientMsgId: req.GetClientMsgId(),
	})
	if err != nil {
		return nil, err
	}
	return &parleyv1.EditMessageResponse{
		Message: res.GetMessage(), Seq: res.GetSeq(), MsgTime: res.GetMsgTime(), Duplicate: res.GetDuplicate(),
		Epoch: res.GetEpoch(), ClientMsgId: res.GetClientMsgId(),
	}, nil
}

func recallMessage(ctx context.Context, n *endpoint, req *parleyv1.RecallMessageRequest) (*parleyv1.RecallMessageResponse, error) {
	id, ok := sessionOf(req.GetChannelId())
	if !ok {
		return n.Message.RecallMessage(ctx, req)
	}
	res, err := n.Message.RecallSessionMessage(ctx, &parleyv1.RecallSessionMessageRequest{
		SessionId: id, MsgId: req.GetMsgId(), ClientMsgId: req.GetClientMsgId(),
	})
	if err != nil {
		return nil, err
	}
	return &parleyv1.RecallMessageResponse{
		Message: res.GetMessage(), Seq: res.GetSeq(), MsgTime: res.GetMsgTime(), Duplicate: res.GetDuplicate(),
		Epoch: res.GetEpoch(), ClientMsgId: res.GetClientMsgId(),
	}, nil
}

func markRead(ctx context.Context, n *endpoint, req *parleyv1.MarkReadRequest) (*parleyv1.MarkReadResponse, error) {
	id, ok := sessionOf(req.GetChannelId())
	if !ok {
		return n.Message.MarkRead(ctx, req)
	}
	res, err := n.Message.MarkSessionRead(ctx, &parleyv1.MarkSessionReadRequest{SessionId: id, Seq: req.GetSeq()})
	if err != nil {
		return nil, err
	}
	return &parleyv1.MarkReadResponse{ReadSeq: res.GetReadSeq(), Unread: res.GetUnread(), Epoch: res.GetEpoch()}, nil
}
