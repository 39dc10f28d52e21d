package parley

import (
	"context"
	"errors"
	"iter"

	parleyv1 "github.com/parleyhq/parley/gen/go/parley/v1"
	"github.com/parleyhq/parley/sdk/go/internal/link"
)

// maxUsers is how many users one request may name.
const maxUsers = 500

// Channel is what is told of a channel; the proto file says what each field means.
type Channel = parleyv1.Channel

// Member is one user of a channel; the proto file says what each field means.
type Member = parleyv1.Member

// ChannelOption adds to a channel that is created.
type ChannelOption func(*parleyv1.CreateChannelRequest)

// MembersOnly makes a channel that only its members may use, for good. Without it the channel is open.
func MembersOnly() ChannelOption {
	return func(r *parleyv1.CreateChannelRequest) { r.MembersOnly = true }
}

// WithMembers makes users members from the start, at most 500; AddMembers takes any number.
func WithMembers(userIDs ...string) ChannelOption {
	return func(r *parleyv1.CreateChannelRequest) { r.UserIds = append(r.UserIds, userIDs...) }
}

// CreateChannel makes a channel, with the caller as a member. It wants the capability `manage`. A channel that exists,
// also one that a first send has made, is ErrChannelExists.
//
// Failures that may pass are tried again until ctx ends. A channel has no client_msg_id, so where the answer to an
// attempt was lost, ErrChannelExists of the next one may be about the channel that this very call made: its text then
// says so, and CreatedBy, as Channels gives it, tells.
func (c *Client) CreateChannel(ctx context.Context, channelID string, opts ...ChannelOption) (*Channel, error) {
	req := &parleyv1.CreateChannelRequest{ChannelId: channelID}
	for _, opt := range opts {
		opt(req)
	}
	if err := checkUsers(channelID, req.GetUserIds()); err != nil {
		return nil, err
	}
	var res *parleyv1.CreateChannelResponse
	attempts := 0
	err := c.retry(ctx, "CreateChannel", func(ctx context.Context, n *endpoint) (err error) {
		attempts++
		res, err = n.Message.CreateChannel(ctx, req)
		return err
	})
	if e, ok := errors.AsType[*Error](err); ok && attempts > 1 && errors.Is(e, ErrChannelExists) {
		e.Message += " (an earlier attempt of this call may have made it)"
	}
	if err != nil {
		return nil, err
	}
	return res.GetChannel(), nil
}

// AddMembers makes users members of a channel, any number; who is one already stays one. It wants the capability
// `manage`; who may subscribe to an open channel may add himself. Failures that may pass are tried again until ctx ends.
// After an error some of the users may have been added: it does no harm to call it again.
func (c *Client) AddMembers(ctx context.Context, channelID string, userIDs ...string) error {
	return c.changeMembers(ctx, "AddMembers", channelID, userIDs,
		func(ctx context.Context, n *endpoint, part []string) error {
			_, err := n.Message.AddMembers(ctx, &parleyv1.AddMembersRequest{ChannelId: channelID, UserIds: part})
			return err
		})
}

// RemoveMembers takes users off a channel, any number; who is no member is passed over. Subscriptions of theirs lose a
// members-only channel within a second. It wants the capability `manage`; anyone may remove himself. It is retried as
// AddMembers is.
func (c *Client) RemoveMembers(ctx context.Context, channelID string, userIDs ...string) error {
	return c.changeMembers(ctx, "RemoveMembers", channelID, userIDs,
		func(ctx context.Context, n *endpoint, part []string) error {
			_, err := n.Message.RemoveMembers(ctx, &parleyv1.RemoveMembersRequest{ChannelId: channelID, UserIds: part})
			return err
		})
}

// changeMembers makes one request per part of the users, at least one: to judge an empty list is for the server.
func (c *Client) changeMembers(
	ctx context.Context, name, channelID string, userIDs []string,
	change func(ctx context.Context, n *endpoint, part []string) error,
) error {
	if err := checkUsers(channelID, userIDs); err != nil {
		return err
	}
	for first := true; first || len(userIDs) > 0; first = false {
		part := userIDs[:min(len(userIDs), maxUsers)]
		userIDs = userIDs[len(part):]
		err := c.retry(ctx, name, func(ctx context.Context, n *endpoint) error {
			return change(ctx, n, part)
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// Members iterates over a channel's members by user id. It wants the capability `history`. Pages are loaded as the loop
// needs them, and failures that may pass are tried again until ctx ends. An error is the last thing it yields.
func (c *Client) Members(ctx context.Context, channelID string) iter.Seq2[*Member, error] {
	if err := checkText("channel_id", channelID); err != nil {
		return func(yield func(*Member, error) bool) { yield(nil, err) }
	}
	return link.Pages(func(token string) ([]*Member, string, error) {
		var res *parleyv1.ListMembersResponse
		err := c.retry(ctx, "ListMembers", func(ctx context.Context, n *endpoint) (err error) {
			res, err = n.Message.ListMembers(ctx, &parleyv1.ListMembersRequest{ChannelId: channelID, PageToken: token})
			return err
		})
		return res.GetMembers(), res.GetNextPageToken(), err
	})
}

func checkUsers(channelID string, userIDs []string) error {
	if err := checkText("channel_id", channelID); err != nil {
		return err
	}
	for _, id := range userIDs {
		if err := checkText("user_ids", id); err != nil {
			return err
		}
	}
	return nil
}
