package rpc

import (
	"context"

	parleyv1 "github.com/parleyhq/parley/gen/go/parley/v1"
	"github.com/parleyhq/parley/server/internal/channel"
)

// Channels is the domain logic of the calls about channels and their members. *channel.Service
// implements it and documents the methods. ctx holds the calling user's principal.
type Channels interface {
	Create(ctx context.Context, r channel.CreateRequest) (row channel.Row, duplicate bool, err error)
	AddMembers(ctx context.Context, channelID string, userIDs []string) error
	RemoveMembers(ctx context.Context, channelID string, userIDs []string) error
	Members(ctx context.Context, channelID string, pageSize int, pageToken string) (channel.MemberPage, error)
	UserChannels(ctx context.Context, pageSize int, pageToken string) (channel.UserChannelPage, error)
	MarkRead(ctx context.Context, channelID string, seq int64) (cursor channel.Cursor, unread int64, err error)
	Typing(ctx context.Context, channelID string) error
}

// CreateChannel implements parleyv1connect.MessageServiceHandler.
func (s *messageService) CreateChannel(
	ctx context.Context, req *parleyv1.CreateChannelRequest,
) (*parleyv1.CreateChannelResponse, error) {
	row, duplicate, err := s.deps.Channels.Create(ctx, channel.CreateRequest{
		ChannelID: req.GetChannelId(), MembersOnly: req.GetMembersOnly(), UserIDs: userIDsOf(req.GetMembers()),
		IdempotencyKey: req.GetIdempotencyKey(),
	})
	if err != nil {
		return nil, err
	}
	return &parleyv1.CreateChannelResponse{Channel: s.channelToWire(&row), Duplicate: duplicate}, nil
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
