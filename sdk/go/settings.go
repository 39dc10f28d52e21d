package parley

import (
	"context"

	"google.golang.org/protobuf/types/known/fieldmaskpb"

	parleyv1 "github.com/parleyhq/parley/gen/go/parley/v1"
)

// Channel returns a channel. Its head and counts can be 100 ms old. It requires the action
// `history`.
//
// It is retried until ctx or the call's deadline ends. It returns ErrChannelNotFound if neither a
// send nor CreateChannel has created the channel.
func (c *Client) Channel(ctx context.Context, channelID string) (*Channel, error) {
	if err := checkText("channel_id", channelID); err != nil {
		return nil, err
	}
	req := &parleyv1.GetChannelRequest{ChannelId: channelID}
	var res *parleyv1.GetChannelResponse
	err := c.do(ctx, "GetChannel", func(ctx context.Context, n *endpoint) (err error) {
		res, err = n.Message.GetChannel(ctx, req)
		return err
	})
	if err != nil {
		return nil, err
	}
	return res.GetChannel(), nil
}

// SettingsOption is an option of SetRetention, SetMembersOnly and DeleteChannel.
type SettingsOption func(*settingsOptions)

type settingsOptions struct{ etag string }

// IfEtag changes or deletes the channel only if its settings have not changed since it had this
// etag. Otherwise the call returns ErrEtagMismatch. A channel that was deleted and created again
// has another etag.
func IfEtag(etag string) SettingsOption {
	return func(o *settingsOptions) { o.etag = etag }
}

func etagOf(opts []SettingsOption) string {
	var o settingsOptions
	for _, opt := range opts {
		opt(&o)
	}
	return o.etag
}

// SetRetention sets how long the messages of a channel are kept, and returns the channel. A nil r
// means the server's default, a Retention without limits that all messages are kept. It takes
// effect within about ten seconds. It requires the action `manage`.
//
// It is retried until ctx or the call's deadline ends. It returns ErrChannelNotFound if the channel
// does not exist.
func (c *Client) SetRetention(ctx context.Context, channelID string, r *Retention, opts ...SettingsOption) (*Channel, error) {
	return c.updateChannel(ctx, "retention", &parleyv1.UpdateChannelRequest{ChannelId: channelID, Retention: r}, opts)
}

// SetMembersOnly closes or opens a channel, and returns it. Only its members may use a closed
// channel. Once the call returns, no stream of anyone else receives a later entry, and their reads
// fail within a second. So add the members before the call: those who only follow the channel lose
// it. Everyone may read the whole history of a channel that was opened. It requires the action
// `manage`, and by a capability `member:<pattern>` the role owner.
//
// It is retried until ctx or the call's deadline ends. It returns ErrChannelNotFound if the channel
// does not exist.
func (c *Client) SetMembersOnly(ctx context.Context, channelID string, membersOnly bool, opts ...SettingsOption) (*Channel, error) {
	return c.updateChannel(ctx, "members_only", &parleyv1.UpdateChannelRequest{ChannelId: channelID, MembersOnly: &membersOnly}, opts)
}

// updateChannel changes the setting that path names.
func (c *Client) updateChannel(
	ctx context.Context, path string, req *parleyv1.UpdateChannelRequest, opts []SettingsOption,
) (*Channel, error) {
	req.UpdateMask = &fieldmaskpb.FieldMask{Paths: []string{path}}
	req.Etag = etagOf(opts)
	if err := checkText("channel_id", req.GetChannelId(), "etag", req.GetEtag()); err != nil {
		return nil, err
	}
	var res *parleyv1.UpdateChannelResponse
	err := c.do(ctx, "UpdateChannel", func(ctx context.Context, n *endpoint) (err error) {
		res, err = n.Message.UpdateChannel(ctx, req)
		return err
	})
	if err != nil {
		return nil, err
	}
	return res.GetChannel(), nil
}

// DeleteChannel deletes a channel with its messages and memberships. Once it returns, nobody can
// send to the channel, and within a second nobody can read it. Subscriptions lose it with
// LOST_REASON_DELETED. No send creates it again. CreateChannel can, within about a minute: it is
// retried until then, and returns ErrChannelDeleting if its deadline ends before. DeleteChannel
// requires the action `manage`, and by a capability `member:<pattern>` the role owner.
//
// It is retried until ctx or the call's deadline ends. Deleting a deleted channel does nothing. It
// returns ErrChannelNotFound if the channel never existed.
func (c *Client) DeleteChannel(ctx context.Context, channelID string, opts ...SettingsOption) error {
	req := &parleyv1.DeleteChannelRequest{ChannelId: channelID, Etag: etagOf(opts)}
	if err := checkText("channel_id", channelID, "etag", req.GetEtag()); err != nil {
		return err
	}
	return c.do(ctx, "DeleteChannel", func(ctx context.Context, n *endpoint) error {
		_, err := n.Message.DeleteChannel(ctx, req)
		return err
	})
}
