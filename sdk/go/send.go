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

// Message is a message of a channel, as it is now; the proto file says what each field means.
type Message = parleyv1.Message

// Receipt says where a channel's log holds what was sent, edited or recalled.
type Receipt struct {
	ChannelID string
	// MsgID is the message's; for an edit and a recall, that of the message changed.
	MsgID string
	// Seq is the place in the log of the message, of the edit or of the recall.
	Seq int64
	// Count is how many messages the log holds up to and with a message; 0 for an edit and a recall.
	Count int64
	// Time is the server's clock.
	Time time.Time
	// ClientMsgID is the id that made the call idempotent.
	ClientMsgID string
	Epoch       string
	// Duplicate is true if an earlier call with this id had stored it, for instance one whose answer was lost.
	Duplicate bool
}

// Outgoing is a message to be sent.
type Outgoing struct {
	ChannelID string
	Content   string
	// ClientMsgID makes the send idempotent for ever, unique within channel and sender. Where it is empty one is minted.
	ClientMsgID string
	// Type is `text` where it is empty.
	Type     string
	Metadata map[string]string
	// Sender names another sender than the token's subject, which wants the capability `send_as`.
	Sender string
}

// SendOption adds to a message, an edit or a recall.
type SendOption func(*Outgoing)

// WithClientMsgID sets the id that makes the call idempotent, for a program that repeats it itself, as after a restart.
func WithClientMsgID(id string) SendOption { return func(o *Outgoing) { o.ClientMsgID = id } }

// WithType sets a message's type. Edits and recalls pass it over.
func WithType(msgType string) SendOption { return func(o *Outgoing) { o.Type = msgType } }

// WithMetadata adds to a message's metadata. Edits and recalls pass it over.
func WithMetadata(metadata map[string]string) SendOption {
	return func(o *Outgoing) {
		if o.Metadata == nil {
			o.Metadata = make(map[string]string, len(metadata))
		}
		maps.Copy(o.Metadata, metadata)
	}
}

// WithSender names another sender than the token's subject. Edits and recalls pass it over.
func WithSender(id string) SendOption { return func(o *Outgoing) { o.Sender = id } }

// Send sends a message and returns once it is durable. Failures that may pass are tried again, with the same
// client_msg_id, until ctx ends: so the message is stored once, however often the call was made. When ctx ends first,
// the outcome is unknown, and a later Send with the same id and content settles it.
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
	err = c.retry(ctx, "SendMessage", func(ctx context.Context, n *endpoint) (err error) {
		res, err = n.Message.SendMessage(ctx, req)
		return err
	})
	if err != nil {
		return nil, err
	}
	return c.receipt(channelID, res), nil
}

// Edit replaces a message's content. Only its sender may. It is retried as Send is.
func (c *Client) Edit(ctx context.Context, channelID, msgID, content string, opts ...SendOption) (*Receipt, error) {
	o := Outgoing{ChannelID: channelID, Content: content}
	for _, opt := range opts {
		opt(&o)
	}
	id, err := o.id()
	if err == nil {
		err = checkText("channel_id", channelID, "msg_id", msgID, "content", content, "client_msg_id", id)
	}
	if err != nil {
		return nil, err
	}
	req := &parleyv1.EditMessageRequest{ChannelId: channelID, MsgId: msgID, Content: content, ClientMsgId: id}
	var res *parleyv1.EditMessageResponse
	err = c.retry(ctx, "EditMessage", func(ctx context.Context, n *endpoint) (err error) {
		res, err = n.Message.EditMessage(ctx, req)
		return err
	})
	if err != nil {
		return nil, err
	}
	c.heads.note(channelID, res.GetEpoch(), res.GetSeq())
	return &Receipt{
		ChannelID: channelID, MsgID: msgID, Seq: res.GetSeq(), Time: res.GetMsgTime().AsTime(), ClientMsgID: id,
		Epoch: res.GetEpoch(), Duplicate: res.GetDuplicate(),
	}, nil
}

// Recall takes a message back for good: it stays as a tombstone without content. Its sender may, and who moderates.
// Recalling what is recalled gives the first recall's receipt. It is retried as Send is.
func (c *Client) Recall(ctx context.Context, channelID, msgID string, opts ...SendOption) (*Receipt, error) {
	o := Outgoing{ChannelID: channelID}
	for _, opt := range opts {
		opt(&o)
	}
	id, err := o.id()
	if err == nil {
		err = checkText("channel_id", channelID, "msg_id", msgID, "client_msg_id", id)
	}
	if err != nil {
		return nil, err
	}
	req := &parleyv1.RecallMessageRequest{ChannelId: channelID, MsgId: msgID, ClientMsgId: id}
	var res *parleyv1.RecallMessageResponse
	err = c.retry(ctx, "RecallMessage", func(ctx context.Context, n *endpoint) (err error) {
		res, err = n.Message.RecallMessage(ctx, req)
		return err
	})
	if err != nil {
		return nil, err
	}
	c.heads.note(channelID, res.GetEpoch(), res.GetSeq())
	return &Receipt{
		ChannelID: channelID, MsgID: msgID, Seq: res.GetSeq(), Time: res.GetMsgTime().AsTime(), ClientMsgID: id,
		Epoch: res.GetEpoch(), Duplicate: res.GetDuplicate(),
	}, nil
}

// Get gives one message as it is now. It is retried as Send is.
func (c *Client) Get(ctx context.Context, channelID, msgID string) (*Message, error) {
	if err := checkText("channel_id", channelID, "msg_id", msgID); err != nil {
		return nil, err
	}
	req := &parleyv1.GetMessageRequest{ChannelId: channelID, MsgId: msgID}
	var res *parleyv1.GetMessageResponse
	err := c.retry(ctx, "GetMessage", func(ctx context.Context, n *endpoint) (err error) {
		res, err = n.Message.GetMessage(ctx, req)
		return err
	})
	if err != nil {
		return nil, err
	}
	c.heads.note(channelID, "", res.GetMessage().GetChangedSeq())
	return res.GetMessage(), nil
}

func (c *Client) receipt(channelID string, res *parleyv1.SendMessageResponse) *Receipt {
	c.heads.note(channelID, res.GetEpoch(), res.GetSeq())
	return &Receipt{
		ChannelID: channelID, MsgID: res.GetMsgId(), Seq: res.GetSeq(), Count: res.GetCount(),
		Time: res.GetMsgTime().AsTime(), ClientMsgID: res.GetClientMsgId(), Epoch: res.GetEpoch(),
		Duplicate: res.GetDuplicate(),
	}
}

// id gives the message's client_msg_id, or a new one, which sorts by time.
func (o *Outgoing) id() (string, error) {
	if o.ClientMsgID != "" {
		return o.ClientMsgID, nil
	}
	id, err := uuid.NewV7()
	if err != nil {
		return "", fmt.Errorf("mint client_msg_id: %w", err)
	}
	return id.String(), nil
}

// request makes what every attempt of this message sends.
func (o *Outgoing) request() (*parleyv1.SendMessageRequest, error) {
	id, err := o.id()
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

// checkText takes fields' names and values, and refuses what could not even be encoded. All other rules are the
// server's to judge.
func checkText(pairs ...string) error {
	for i := 0; i+1 < len(pairs); i += 2 {
		if !utf8.ValidString(pairs[i+1]) {
			return invalid(pairs[i], "is not valid UTF-8")
		}
	}
	return nil
}
