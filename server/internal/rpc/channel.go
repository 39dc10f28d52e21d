package rpc

import (
	"context"
	"slices"

	parleyv1 "github.com/parleyhq/parley/gen/go/parley/v1"
	"github.com/parleyhq/parley/server/internal/channel"
	"github.com/parleyhq/parley/server/internal/fault"
)

// Channels is the domain logic of the calls about channels and their members. *channel.Service
// implements it and documents the methods. ctx holds the calling user's principal.
type Channels interface { //nolint:interfacebloat // one method for each call
	Create(ctx context.Context, r channel.CreateRequest) (row channel.Row, duplicate bool, err error)
	AddMembers(ctx context.Context, channelID string, userIDs []string) error
	Delete(ctx context.Context, channelID, etag string) error
	UpdateMember(ctx context.Context, channelID, userID string, role channel.Role) error
	RemoveMembers(ctx context.Context, channelID string, userIDs []string) error
	Get(ctx context.Context, channelID string) (channel.Row, error)
	Update(ctx context.Context, r channel.UpdateRequest) (channel.Row, error)
	Members(ctx context.Context, channelID string, pageSize int, pageToken string) (channel.MemberPage, error)
	UserChannels(ctx context.Context, pageSize int, pageToken string) (channel.UserChannelPage, error)
	UserSessions(ctx context.Context, ownerID string, pageSize int, pageToken string) (channel.UserChannelPage, error)
	EverySession(ctx context.Context, pageSize int, pageToken string) (channel.UserChannelPage, error)
	RenameSession(ctx context.Context, sessionID, title string) error
	DeleteSession(ctx context.Context, sessionID string) error
	MarkRead(ctx context.Context, channelID string, seq int64) (cursor channel.Cursor, unread int64, err error)
	Typing(ctx context.Context, channelID string) error
}

// CreateChannel implements parleyv1connect.MessageServiceHandler.
func (s *messageService) CreateChannel(
	ctx context.Context, req *parleyv1.CreateChannelRequest,
) (*parleyv1.CreateChannelResponse, error) {
	row, duplicate, err := s.deps.Channels.Create(ctx, channel.CreateRequest{
		ChannelID: req.GetChannelId(), MembersOnly: req.GetMembersOnly(), UserIDs: userIDsOf(req.GetMembers()),
		IdempotencyKey: req.GetIdempotencyKey(), Retention: retentionFromWire(req.GetRetention()),
	})
	if err != nil {
		return nil, err
	}
	return &parleyv1.CreateChannelResponse{Channel: s.channelToWire(&row), Duplicate: duplicate}, nil
}

// GetChannel implements parleyv1connect.MessageServiceHandler.
func (s *messageService) GetChannel(ctx context.Context, req *parleyv1.GetChannelRequest) (*parleyv1.GetChannelResponse, error) {
	row, err := s.deps.Channels.Get(ctx, req.GetChannelId())
	if err != nil {
		return nil, err
	}
	return &parleyv1.GetChannelResponse{Channel: s.channelToWire(&row)}, nil
}

// UpdateChannel implements parleyv1connect.MessageServiceHandler.
func (s *messageService) UpdateChannel(
	ctx context.Context, req *parleyv1.UpdateChannelRequest,
) (*parleyv1.UpdateChannelResponse, error) {
	if err := checkChannelMask(req); err != nil {
		return nil, err
	}
	row, err := s.deps.Channels.Update(ctx, channel.UpdateRequest{
		ChannelID: req.GetChannelId(), Etag: req.GetEtag(), Retention: retentionFromWire(req.GetRetention()),
		SetRetention: slices.Contains(req.GetUpdateMask().GetPaths(), "retention"), MembersOnly: req.MembersOnly,
	})
	if err != nil {
		return nil, err
	}
	return &parleyv1.UpdateChannelResponse{Channel: s.channelToWire(&row)}, nil
}

// checkChannelMask returns an error unless the update mask names settings that can be updated, and
// members_only exactly if the request sets it.
func checkChannelMask(req *parleyv1.UpdateChannelRequest) error {
	const field, membersOnly = "update_mask", "members_only"
	paths := req.GetUpdateMask().GetPaths()
	if len(paths) == 0 {
		return fault.Invalid(field, 0, "%s: must name at least one field", field)
	}
	for _, path := range paths {
		if path != "retention" && path != membersOnly {
			return fault.Invalid(field, 0, "%s: %q is not a setting of a channel that can be updated", field, path)
		}
	}
	switch named := slices.Contains(paths, membersOnly); {
	case named && req.MembersOnly == nil:
		return fault.Invalid(membersOnly, 0, "%s: must be set, because %s names it", membersOnly, field)
	case !named && req.MembersOnly != nil:
		return fault.Invalid(field, 0, "%s: must name %q, because the request sets it", field, membersOnly)
	}
	return nil
}

// DeleteChannel implements parleyv1connect.MessageServiceHandler.
func (s *messageService) DeleteChannel(
	ctx context.Context, req *parleyv1.DeleteChannelRequest,
) (*parleyv1.DeleteChannelResponse, error) {
	if err := s.deps.Channels.Delete(ctx, req.GetChannelId(), req.GetEtag()); err != nil {
		return nil, err
	}
	return &parleyv1.DeleteChannelResponse{}, nil
}

// AddMembers implements parleyv1connect.MessageServiceHandler.
func (s *messageService) AddMembers(
	ctx context.Context, req *parleyv1.AddMembersRequest,
) (*parleyv1.AddMembersResponse, error) {
	if err := s.deps.Channels.AddMembers(ctx, req.GetChannelId(), userIDsOf(req.GetMembers())); err != nil {
		return nil, err
	}
	return &parleyv1.AddMembersResponse{}, nil
}

// UpdateMember implements parleyv1connect.MessageServiceHandler.
func (s *messageService) UpdateMember(
	ctx context.Context, req *parleyv1.UpdateMemberRequest,
) (*parleyv1.UpdateMemberResponse, error) {
	if err := s.deps.Channels.UpdateMember(ctx, req.GetChannelId(), req.GetUserId(), roleFromWire[req.GetRole()]); err != nil {
		return nil, err
	}
	return &parleyv1.UpdateMemberResponse{}, nil
}

// RemoveMembers implements parleyv1connect.MessageServiceHandler.
func (s *messageService) RemoveMembers(
	ctx context.Context, req *parleyv1.RemoveMembersRequest,
) (*parleyv1.RemoveMembersResponse, error) {
	if err := s.deps.Channels.RemoveMembers(ctx, req.GetChannelId(), req.GetUserIds()); err != nil {
		return nil, err
	}
	return &parleyv1.RemoveMembersResponse{}, nil
}

// ListMembers implements parleyv1connect.MessageServiceHandler.
func (s *messageService) ListMembers(
	ctx context.Context, req *parleyv1.ListMembersRequest,
) (*parleyv1.ListMembersResponse, error) {
	page, err := s.deps.Channels.Members(ctx, req.GetChannelId(), int(req.GetPageSize()), req.GetPageToken())
	if err != nil {
		return nil, err
	}
	resp := &parleyv1.ListMembersResponse{
		Members: make([]*parleyv1.ChannelMember, len(page.Members)), NextPageToken: page.NextPageToken, Epoch: s.deps.Epoch,
	}
	for i := range page.Members {
		resp.Members[i] = memberToWire(&page.Members[i])
	}
	return resp, nil
}

// ListChannels implements parleyv1connect.MessageServiceHandler.
func (s *messageService) ListChannels(
	ctx context.Context, req *parleyv1.ListChannelsRequest,
) (*parleyv1.ListChannelsResponse, error) {
	page, err := s.deps.Channels.UserChannels(ctx, int(req.GetPageSize()), req.GetPageToken())
	if err != nil {
		return nil, err
	}
	resp := &parleyv1.ListChannelsResponse{
		Channels: make([]*parleyv1.UserChannel, len(page.Channels)), NextPageToken: page.NextPageToken,
	}
	for i := range page.Channels {
		resp.Channels[i] = s.userChannelToWire(&page.Channels[i])
	}
	return resp, nil
}

// MarkRead implements parleyv1connect.MessageServiceHandler.
func (s *messageService) MarkRead(
	ctx context.Context, req *parleyv1.MarkReadRequest,
) (*parleyv1.MarkReadResponse, error) {
	cursor, unread, err := s.deps.Channels.MarkRead(ctx, req.GetChannelId(), req.GetSeq())
	if err != nil {
		return nil, err
	}
	return &parleyv1.MarkReadResponse{ReadSeq: cursor.Seq, Unread: unread, Epoch: s.deps.Epoch}, nil
}

// SendTyping implements parleyv1connect.MessageServiceHandler.
func (s *messageService) SendTyping(
	ctx context.Context, req *parleyv1.SendTypingRequest,
) (*parleyv1.SendTypingResponse, error) {
	if err := s.deps.Channels.Typing(ctx, req.GetChannelId()); err != nil {
		return nil, err
	}
	return &parleyv1.SendTypingResponse{}, nil
}
