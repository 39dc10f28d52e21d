package parley

import (
	"context"
	"iter"

	parleyv1 "github.com/parleyhq/parley/gen/go/parley/v1"
	"github.com/parleyhq/parley/sdk/go/internal/link"
)

// MyChannel is a channel as it is to the caller: head, read cursor, unread count, newest message. The proto file says
// what each field means.
type MyChannel = parleyv1.MyChannel

// Channels iterates over the caller's channels by id: those where he is a member, and open ones in which he has sent or
// marked something read since he last left. Numbers and last messages may be 100 ms behind what was acknowledged. Pages
// are loaded as the loop needs them, and failures that may pass are tried again until ctx ends. An error is the last
// thing it yields.
func (c *Client) Channels(ctx context.Context) iter.Seq2[*MyChannel, error] {
	return link.Pages(func(token string) ([]*MyChannel, string, error) {
		var res *parleyv1.ListChannelsResponse
		err := c.retry(ctx, "ListChannels", func(ctx context.Context, n *endpoint) (err error) {
			res, err = n.Message.ListChannels(ctx, &parleyv1.ListChannelsRequest{PageToken: token})
			return err
		})
		for _, mine := range res.GetChannels() {
			c.heads.note(mine.GetChannel().GetChannelId(), "", mine.GetChannel().GetHeadSeq())
		}
		return res.GetChannels(), res.GetNextPageToken(), err
	})
}

// ReadCursor is how far the caller has read a channel.
type ReadCursor struct {
	// Seq is the highest place that was marked or sent.
	Seq int64
	// Unread is how many messages lie after it.
	Unread int64
}

// MarkRead moves the caller's read cursor of a channel forward to seq, and gives where it is then; a place behind it
// changes nothing. Above the log's head it is ErrOutOfRange. It wants the capability `history`, and makes the caller a
// member of an open channel. Failures that may pass are tried again until ctx ends.
func (c *Client) MarkRead(ctx context.Context, channelID string, seq int64) (ReadCursor, error) {
	if err := checkText("channel_id", channelID); err != nil {
		return ReadCursor{}, err
	}
	req := &parleyv1.MarkReadRequest{ChannelId: channelID, Seq: seq}
	var res *parleyv1.MarkReadResponse
	err := c.retry(ctx, "MarkRead", func(ctx context.Context, n *endpoint) (err error) {
		res, err = n.Message.MarkRead(ctx, req)
		return err
	})
	if err != nil {
		return ReadCursor{}, err
	}
	return ReadCursor{Seq: res.GetReadSeq(), Unread: res.GetUnread()}, nil
}

// Typing tells a channel's live subscribers that the caller is typing. Call it every 3 s or so while that holds; more
// than once a second is passed over. It is tried once: late, it would be wrong. It wants the capability `send`.
func (c *Client) Typing(ctx context.Context, channelID string) error {
	if err := checkText("channel_id", channelID); err != nil {
		return err
	}
	_, err := c.call(ctx, c.attempt, func(ctx context.Context, n *endpoint) error {
		_, err := n.Message.SendTyping(ctx, &parleyv1.SendTypingRequest{ChannelId: channelID})
		return err
	})
	return err
}
