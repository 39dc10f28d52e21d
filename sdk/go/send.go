package parley

import (
	"context"
	"fmt"
	"maps"
	"time"
	"unicode/utf8"

	"github.com/google/uuid"

	parleyv1 "github.com/parleyhq/parley/gen/go/parley/v1"
)

// Message is a message of a channel in its current state. The proto file describes the fields.
type Message = parleyv1.ChannelMessage

// Receipt describes a stored send, edit or recall.
type Receipt struct {
	ChannelID string
	// MsgID is the id of the message that was sent, edited or recalled.
	MsgID string
	// Seq is the position of the send, edit or recall in the channel's log.
	Seq int64
	// Count is the number of messages in the log up to and including this one. It is set only for a
	// send.
	Count int64
	// Time is when the server accepted the send, edit or recall.
	Time time.Time
	// ClientMsgID is the id that made the call idempotent.
	ClientMsgID string
	Epoch       string
	// Duplicate is true if an earlier attempt or call with this id stored the send or edit. For a
	// recall it is true if the message was recalled before this call.
	Duplicate bool
	// Message is the current state of the message after an edit or a recall. It is nil for a send, and
	// if the message has expired, as it may have when an edit or a recall is repeated.
	Message *Message
}

// Outgoing is a message to send.
type Outgoing struct {
	ChannelID string
	Content   string
	// ClientMsgID makes the send idempotent forever. It must be unique among the sender's messages in
	// the channel. If it is empty, the client generates one.
	ClientMsgID string
	// Type is the message's type. The default is `text`.
	Type     string
	Metadata map[string]string
	// Sender overrides the token's subject as the sender. It requires the action `send_as`.
	Sender string
	// title is the title of a session that the message creates; see WithTitle.
	title string
}

// SendOption sets a property of a message, an edit or a recall.
type SendOption func(*Outgoing)

// WithClientMsgID sets the id that makes the call idempotent. A program needs it if it repeats the
// call itself, for example after a restart.
func WithClientMsgID(id string) SendOption { return func(o *Outgoing) { o.ClientMsgID = id } }

// WithType sets a message's type. Edits and recalls ignore it.
func WithType(msgType string) SendOption { return func(o *Outgoing) { o.Type = msgType } }

// WithMetadata adds to a message's metadata. Edits and recalls ignore it.
func WithMetadata(metadata map[string]string) SendOption {
	return func(o *Outgoing) {
		if o.Metadata == nil {
			o.Metadata = make(map[string]string, len(metadata))
		}
		maps.Copy(o.Metadata, metadata)
	}
}

// WithSender sets a sender other than the token's subject. It requires the action `send_as`. Edits
// and recalls ignore it.
func WithSender(id string) SendOption { return func(o *Outgoing) { o.Sender = id } }

// Send sends a message and returns when it is durable. Retryable failures are retried with the same
// client_msg_id until ctx or the call's deadline ends (see WithCallTimeout), so the message is
// stored once, however many attempts it took. If the time is up first, the outcome is unknown:
// another Send with the same id and content resolves it.
func (c *Client) Send(ctx context.Context, channelID, content string, opts ...SendOption) (*Receipt, error) {
	o := Outgoing{ChannelID: channelID, Content: content}
	for _, opt := range opts {
		opt(&o)
	}
	req, err := o.request()
	if err != nil {
		return nil, err
	}
	var res *parleyv1.SendMessageResponse
	err = c.do(ctx, "SendMessage", func(ctx context.Context, n *endpoint) (err error) {
		res, err = n.Message.SendMessage(ctx, req)
		return err
	})
	if err != nil {
		return nil, err
	}
	return c.receipt(channelID, res), nil
}

// Edit replaces a message's content. The receipt contains the message. Only the sender can edit.
// For a recalled message it returns ErrMessageRecalled. Edit is retried like Send.
func (c *Client) Edit(ctx context.Context, channelID, msgID, content string, opts ...SendOption) (*Receipt, error) {
	o := Outgoing{ChannelID: channelID, Content: content}
	for _, opt := range opts {
		opt(&o)
	}
	id, err := orNewID(o.ClientMsgID)
	if err == nil {
		err = checkText("channel_id", channelID, "msg_id", msgID, "content", content, "client_msg_id", id)
	}
	if err != nil {
		return nil, err
	}
	req := &parleyv1.EditMessageRequest{ChannelId: channelID, MsgId: msgID, Content: content, ClientMsgId: id}
	var res *parleyv1.EditMessageResponse
	err = c.do(ctx, "EditMessage", func(ctx context.Context, n *endpoint) (err error) {
		res, err = editMessage(ctx, n, req)
		return err
	})
	if err != nil {
		return nil, err
	}
	c.heads.observe(channelID, res.GetEpoch(), max(res.GetSeq(), res.GetMessage().GetChangedSeq()))
	return &Receipt{
		ChannelID: channelID, MsgID: msgID, Seq: res.GetSeq(), Time: res.GetMsgTime().AsTime(), ClientMsgID: id,
		Epoch: res.GetEpoch(), Duplicate: res.GetDuplicate(), Message: res.GetMessage(),
	}, nil
}

// Recall removes a message's content and metadata permanently. The receipt contains the tombstone.
// The sender and holders of the action `moderate` can recall. A recall of a recalled message
// changes nothing and returns the first recall. Recall is retried like Send.
func (c *Client) Recall(ctx context.Context, channelID, msgID string, opts ...SendOption) (*Receipt, error) {
	o := Outgoing{ChannelID: channelID}
	for _, opt := range opts {
		opt(&o)
	}
	id, err := orNewID(o.ClientMsgID)
	if err == nil {
		err = checkText("channel_id", channelID, "msg_id", msgID, "client_msg_id", id)
	}
	if err != nil {
		return nil, err
	}
	req := &parleyv1.RecallMessageRequest{ChannelId: channelID, MsgId: msgID, ClientMsgId: id}
	var res *parleyv1.RecallMessageResponse
	err = c.do(ctx, "RecallMessage", func(ctx context.Context, n *endpoint) (err error) {
		res, err = recallMessage(ctx, n, req)
		return err
	})
	if err != nil {
		return nil, err
	}
	c.heads.observe(channelID, res.GetEpoch(), max(res.GetSeq(), res.GetMessage().GetChangedSeq()))
	return &Receipt{
		ChannelID: channelID, MsgID: msgID, Seq: res.GetSeq(), Time: res.GetMsgTime().AsTime(), ClientMsgID: id,
		Epoch: res.GetEpoch(), Duplicate: res.GetDuplicate(), Message: res.GetMessage(),
	}, nil
}

// Get returns one message in its current state, and the epoch of its seqs. It is retried like Send.
func (c *Client) Get(ctx context.Context, channelID, msgID string) (m *Message, epoch string, err error) {
	if err := checkText("channel_id", channelID, "msg_id", msgID); err != nil {
		return nil, "", err
	}
	req := &parleyv1.GetMessageRequest{ChannelId: channelID, MsgId: msgID}
	var res *parleyv1.GetMessageResponse
	err = c.do(ctx, "GetMessage", func(ctx context.Context, n *endpoint) (err error) {
		res, err = n.Message.GetMessage(ctx, req)
		return err
	})
	if err != nil {
		return nil, "", err
	}
	c.heads.observe(channelID, res.GetEpoch(), res.GetMessage().GetChangedSeq())
	return res.GetMessage(), res.GetEpoch(), nil
}

func (c *Client) receipt(channelID string, res *parleyv1.SendMessageResponse) *Receipt {
	c.heads.observe(channelID, res.GetEpoch(), res.GetSeq())
	return &Receipt{
		ChannelID: channelID, MsgID: res.GetMsgId(), Seq: res.GetSeq(), Count: res.GetCount(),
		Time: res.GetMsgTime().AsTime(), ClientMsgID: res.GetClientMsgId(), Epoch: res.GetEpoch(),
		Duplicate: res.GetDuplicate(),
	}
}

// orNewID returns id, or a new UUIDv7 if id is empty.
func orNewID(id string) (string, error) {
	if id != "" {
		return id, nil
	}
	minted, err := uuid.NewV7()
	if err != nil {
		return "", fmt.Errorf("generate an id: %w", err)
	}
	return minted.String(), nil
}

// request returns the request that every attempt of this message sends.
func (o *Outgoing) request() (*parleyv1.SendMessageRequest, error) {
	id, err := orNewID(o.ClientMsgID)
	if err != nil {
		return nil, err
	}
	err = checkText("channel_id", o.ChannelID, "content", o.Content, "client_msg_id", id, "msg_type", o.Type,
		"from_id", o.Sender)
	if err != nil {
		return nil, err
	}
	for key, value := range o.Metadata {
		if err := checkText("metadata", key, "metadata", value); err != nil {
			return nil, err
		}
	}
	return &parleyv1.SendMessageRequest{
		ChannelId: o.ChannelID, Content: o.Content, ClientMsgId: id, MsgType: o.Type, FromId: o.Sender,
		Metadata: maps.Clone(o.Metadata),
	}, nil
}

// checkText takes pairs of a field's name and its value. It returns an error for a value that is
// not valid UTF-8, which cannot be encoded. The server checks all other rules.
func checkText(pairs ...string) error {
	for i := 0; i+1 < len(pairs); i += 2 {
		if !utf8.ValidString(pairs[i+1]) {
			return invalid(pairs[i], "is not valid UTF-8")
		}
	}
	return nil
}
