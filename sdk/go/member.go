package parley

import (
	"context"
	"iter"

	parleyv1 "github.com/parleyhq/parley/gen/go/parley/v1"
	"github.com/parleyhq/parley/sdk/go/internal/link"
)

// maxUsers is the maximum number of users in one request.
const maxUsers = 500

// Channel describes a channel: head, counts, oldest entry, epoch, settings. The proto file
// describes the fields.
type Channel = parleyv1.ChannelInfo

// Retention is a policy for how long the messages of a channel are kept. Each limit that is not set
// does not apply. The proto file describes the fields.
type Retention = parleyv1.ChannelRetention

// Member is a user's membership of a channel, with the user's role and read cursor. The proto file
// describes the fields.
type Member = parleyv1.ChannelMember

// Role sets what a user may do in a channel by a capability `member:<pattern>`.
type Role = parleyv1.MemberRole

// The roles. The proto file describes them. RoleFollower is that of users who are not members;
// RoleMember that of every added member; RoleOwner that of the creator of a channel.
const (
	RoleFollower  Role = parleyv1.MemberRole_MEMBER_ROLE_FOLLOWER
	RoleMember    Role = parleyv1.MemberRole_MEMBER_ROLE_MEMBER
	RoleModerator Role = parleyv1.MemberRole_MEMBER_ROLE_MODERATOR
	RoleOwner     Role = parleyv1.MemberRole_MEMBER_ROLE_OWNER
)

// ChannelOption sets a property of a new channel.
type ChannelOption func(*parleyv1.CreateChannelRequest)

// MembersOnly creates a channel that only its members and holders of `manage` can use. By default a
// channel is open.
func MembersOnly() ChannelOption {
	return func(r *parleyv1.CreateChannelRequest) { r.MembersOnly = true }
}

// WithMembers adds members with the role RoleMember, at most 500 in total. AddMembers accepts any
// number.
func WithMembers(userIDs ...string) ChannelOption {
	return func(r *parleyv1.CreateChannelRequest) { r.Members = append(r.GetMembers(), members(userIDs)...) }
}

// WithIdempotencyKey sets the key that makes CreateChannel idempotent. A program needs it if it
// repeats the call itself, for example after a restart. It has up to 128 printable ASCII characters
// without spaces. The default is a new UUIDv7 for each call.
func WithIdempotencyKey(key string) ChannelOption {
	return func(r *parleyv1.CreateChannelRequest) { r.IdempotencyKey = key }
}

// WithRetention sets how long the channel's messages are kept. By default the server's policy
// applies.
func WithRetention(r *Retention) ChannelOption {
	return func(req *parleyv1.CreateChannelRequest) { req.Retention = r }
}

func members(userIDs []string) []*Member {
	all := make([]*Member, len(userIDs))
	for i, id := range userIDs {
		all[i] = &Member{UserId: id, Role: RoleMember}
	}
	return all
}

// CreateChannel creates a channel. The caller becomes its owner. It requires the action `create`,
// which `manage` includes.
//
// It is retried with the same idempotency key until ctx or the call's deadline ends. If an earlier
// attempt, or an earlier call with the same key and the same settings, created the channel, it
// returns that channel. For the same key with other settings it returns ErrIdempotencyKeyReused,
// and for any other existing channel, including one that a first send created, ErrChannelExists.
// Neither changes the channel.
func (c *Client) CreateChannel(ctx context.Context, channelID string, opts ...ChannelOption) (*Channel, error) {
	req := &parleyv1.CreateChannelRequest{ChannelId: channelID}
	for _, opt := range opts {
		opt(req)
	}
	key, err := orNewID(req.GetIdempotencyKey())
	if err != nil {
		return nil, err
	}
	req.IdempotencyKey = key
	if err := checkText("channel_id", channelID, "idempotency_key", key); err != nil {
		return nil, err
	}
	for _, m := range req.GetMembers() {
		if err := checkText("members", m.GetUserId()); err != nil {
			return nil, err
		}
	}
	var res *parleyv1.CreateChannelResponse
	err = c.do(ctx, "CreateChannel", func(ctx context.Context, n *endpoint) (err error) {
		res, err = n.Message.CreateChannel(ctx, req)
		return err
	})
	if err != nil {
		return nil, err
	}
	return res.GetChannel(), nil
}

// AddMembers adds any number of users to a channel, with the role RoleMember. Followers become
// members; existing members do not change. It requires the action `manage`, except that users who
// can subscribe to an open channel can add themselves.
//
// It is retried until ctx or the call's deadline ends. After an error some of the users may have
// been added; the call can be repeated.
func (c *Client) AddMembers(ctx context.Context, channelID string, userIDs ...string) error {
	return c.changeMembers(ctx, "AddMembers", "members", channelID, userIDs,
		func(ctx context.Context, n *endpoint, part []string) error {
			_, err := n.Message.AddMembers(ctx, &parleyv1.AddMembersRequest{ChannelId: channelID, Members: members(part)})
			return err
		})
}

// UpdateMember sets the role of a member: RoleMember, RoleModerator or RoleOwner. A user who is not
// a member becomes one. It requires the action `manage`, and by a capability `member:<pattern>` the
// role RoleOwner. It is retried until ctx or the call's deadline ends.
func (c *Client) UpdateMember(ctx context.Context, channelID, userID string, role Role) error {
	if err := checkText("channel_id", channelID, "user_id", userID); err != nil {
		return err
	}
	return c.do(ctx, "UpdateMember", func(ctx context.Context, n *endpoint) error {
		_, err := n.Message.UpdateMember(ctx, &parleyv1.UpdateMemberRequest{ChannelId: channelID, UserId: userID, Role: role})
		return err
	})
}

// RemoveMembers removes any number of users from a channel. Users that are not members are ignored.
// Subscriptions of removed users lose a members-only channel within one second, and any channel
// that the token allows by `member:<pattern>` only. It requires the action `manage`, except that
// users can remove themselves. It is retried like AddMembers.
func (c *Client) RemoveMembers(ctx context.Context, channelID string, userIDs ...string) error {
	return c.changeMembers(ctx, "RemoveMembers", "user_ids", channelID, userIDs,
		func(ctx context.Context, n *endpoint, part []string) error {
			_, err := n.Message.RemoveMembers(ctx, &parleyv1.RemoveMembersRequest{ChannelId: channelID, UserIds: part})
			return err
		})
}

// changeMembers makes one request per 500 users. Without users it makes one empty request, which
// the server refuses. Each request gets the whole call timeout, unless ctx has a deadline.
func (c *Client) changeMembers(
	ctx context.Context, name, field, channelID string, userIDs []string,
	change func(ctx context.Context, n *endpoint, part []string) error,
) error {
	if err := checkText("channel_id", channelID); err != nil {
		return err
	}
	for _, id := range userIDs {
		if err := checkText(field, id); err != nil {
			return err
		}
	}
	for first := true; first || len(userIDs) > 0; first = false {
		part := userIDs[:min(len(userIDs), maxUsers)]
		userIDs = userIDs[len(part):]
		err := c.do(ctx, name, func(ctx context.Context, n *endpoint) error {
			return change(ctx, n, part)
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// Members iterates over a channel's members, ordered by user id. It requires the action `history`.
//
// Pages are loaded as the loop needs them. Each page is a call, retried until ctx or the call's
// deadline ends. If a call fails, the iteration ends with its error.
func (c *Client) Members(ctx context.Context, channelID string) iter.Seq2[*Member, error] {
	if err := checkText("channel_id", channelID); err != nil {
		return func(yield func(*Member, error) bool) { yield(nil, err) }
	}
	return link.Pages(func(token string) ([]*Member, string, error) {
		var res *parleyv1.ListMembersResponse
		err := c.do(ctx, "ListMembers", func(ctx context.Context, n *endpoint) (err error) {
			res, err = n.Message.ListMembers(ctx, &parleyv1.ListMembersRequest{ChannelId: channelID, PageToken: token})
			return err
		})
		return res.GetMembers(), res.GetNextPageToken(), err
	})
}
