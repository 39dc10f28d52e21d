package parley

import (
	"context"
	"iter"

	parleyv1 "github.com/parleyhq/parley/gen/go/parley/v1"
	"github.com/parleyhq/parley/sdk/go/internal/link"
)

// UserChannel is a channel with the caller's own state in it: read cursor, unread count, newest
// message. The proto file describes the fields.
type UserChannel = parleyv1.UserChannel

// Channels iterates over the caller's channels, ordered by id: those of which the caller is a
// member, and open ones in which the caller sent or marked a message since they last left. Heads,
// counts and last messages can be 100 ms old.
//
// Pages are loaded as the loop needs them. Each page is a call, retried until ctx or the call's
// deadline ends. If a call fails, the iteration ends with its error.
func (c *Client) Channels(ctx context.Context) iter.Seq2[*UserChannel, error] {
	return link.Pages(func(token string) ([]*UserChannel, string, error) {
		var res *parleyv1.ListChannelsResponse
		err := c.do(ctx, "ListChannels", func(ctx context.Context, n *endpoint) (err error) {
			res, err = n.Message.ListChannels(ctx, &parleyv1.ListChannelsRequest{PageToken: token})
			return err
		})
		for _, one := range res.GetChannels() {
			ch := one.GetChannel()
			c.heads.observe(ch.GetChannelId(), ch.GetEpoch(), ch.GetHeadSeq())
		}
		return res.GetChannels(), res.GetNextPageToken(), err
	})
}

// ReadCursor is the caller's read position in a channel.
type ReadCursor struct {
	// Seq is the highest seq that the caller marked as read or sent.
	Seq int64
	// Unread is the number of messages after it.
	Unread int64
	// Epoch is the epoch of Seq.
	Epoch string
}

// MarkRead moves the caller's read cursor of a channel forward to seq and returns the cursor. A
// lower seq changes nothing. For a seq beyond the end of the log it returns ErrPositionOutOfRange.
// It requires the action `history`, and makes the caller a follower of an open channel. It is
// retried until ctx or the call's deadline ends.
func (c *Client) MarkRead(ctx context.Context, channelID string, seq int64) (ReadCursor, error) {
	if err := checkText("channel_id", channelID); err != nil {
		return ReadCursor{}, err
	}
	req := &parleyv1.MarkReadRequest{ChannelId: channelID, Seq: seq}
	var res *parleyv1.MarkReadResponse
	err := c.do(ctx, "MarkRead", func(ctx context.Context, n *endpoint) (err error) {
		res, err = markRead(ctx, n, req)
		return err
	})
	if err != nil {
		return ReadCursor{}, err
	}
	return ReadCursor{Seq: res.GetReadSeq(), Unread: res.GetUnread(), Epoch: res.GetEpoch()}, nil
}

// Typing notifies the live subscribers of a channel that the caller is typing. Call it every 3 s
// while the caller types; more than one call a second has no effect. It is not retried, because a
// late event would be wrong. It requires the action `send`.
func (c *Client) Typing(ctx context.Context, channelID string) error {
	if err := checkText("channel_id", channelID); err != nil {
		return err
	}
	return c.once(ctx, func(ctx context.Context, n *endpoint) error {
		_, err := n.Message.SendTyping(ctx, &parleyv1.SendTypingRequest{ChannelId: channelID})
		return err
	})
}
