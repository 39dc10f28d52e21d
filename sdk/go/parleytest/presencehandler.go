package parleytest

import (
	"context"
	"slices"

	"connectrpc.com/connect"

	parleyv1 "github.com/parleyhq/parley/gen/go/parley/v1"
	"github.com/parleyhq/parley/gen/go/parley/v1/parleyv1connect"
)

// presenceHandler implements PresenceService.
type presenceHandler struct {
	parleyv1connect.UnimplementedPresenceServiceHandler

	s *Server
}

// outlet sends the frames of a stream after the first one.
type outlet interface {
	events(batch []*parleyv1.ChannelEvent) error
	presence(update *parleyv1.PresenceUpdate) error
	heartbeat() error
	reconnect(advice *parleyv1.Reconnect) error
}

// subscribeOutlet is the outlet of a Subscribe stream.
type subscribeOutlet struct {
	out *connect.ServerStream[parleyv1.SubscribeResponse]
}

var _ outlet = subscribeOutlet{}

// begin sends the first frame and, if there is a PresenceInfo, the second one.
func (o subscribeOutlet) begin(info *parleyv1.StreamInfo, presence *parleyv1.PresenceInfo) error {
	err := o.out.Send(&parleyv1.SubscribeResponse{Frame: &parleyv1.SubscribeResponse_Info{Info: info}})
	if err != nil || presence == nil {
		return err
	}
	return o.out.Send(&parleyv1.SubscribeResponse{Frame: &parleyv1.SubscribeResponse_PresenceInfo{PresenceInfo: presence}})
}

func (o subscribeOutlet) events(batch []*parleyv1.ChannelEvent) error {
	return o.out.Send(&parleyv1.SubscribeResponse{Frame: &parleyv1.SubscribeResponse_Events{Events: &parleyv1.EventBatch{Events: batch}}})
}

func (o subscribeOutlet) presence(update *parleyv1.PresenceUpdate) error {
	return o.out.Send(&parleyv1.SubscribeResponse{Frame: &parleyv1.SubscribeResponse_Presence{Presence: update}})
}

func (o subscribeOutlet) heartbeat() error {
	return o.out.Send(&parleyv1.SubscribeResponse{Frame: &parleyv1.SubscribeResponse_Heartbeat{Heartbeat: &parleyv1.Heartbeat{}}})
}

func (o subscribeOutlet) reconnect(advice *parleyv1.Reconnect) error {
	return o.out.Send(&parleyv1.SubscribeResponse{Frame: &parleyv1.SubscribeResponse_Reconnect{Reconnect: advice}})
}

// connectOutlet is the outlet of a Connect stream, which has no events.
type connectOutlet struct {
	out *connect.ServerStream[parleyv1.ConnectResponse]
}

var _ outlet = connectOutlet{}

func (connectOutlet) events([]*parleyv1.ChannelEvent) error { return nil }

func (o connectOutlet) presence(update *parleyv1.PresenceUpdate) error {
	return o.out.Send(&parleyv1.ConnectResponse{Frame: &parleyv1.ConnectResponse_Presence{Presence: update}})
}

func (o connectOutlet) heartbeat() error {
	return o.out.Send(&parleyv1.ConnectResponse{Frame: &parleyv1.ConnectResponse_Heartbeat{Heartbeat: &parleyv1.Heartbeat{}}})
}

func (o connectOutlet) reconnect(advice *parleyv1.Reconnect) error {
	return o.out.Send(&parleyv1.ConnectResponse{Frame: &parleyv1.ConnectResponse_Reconnect{Reconnect: advice}})
}

// Connect implements the service.
func (h presenceHandler) Connect(
	ctx context.Context, req *parleyv1.ConnectRequest, out *connect.ServerStream[parleyv1.ConnectResponse],
) error {
	s := h.s
	fault, err := s.begin("Connect", tokenOf(ctx), req)
	if err != nil {
		return err
	}
	if fault != nil {
		return fault.happen()
	}
	one, err := s.connect(ctx, req)
	if err != nil {
		return err
	}
	defer s.closeStream(one)
	info := new(parleyv1.ConnectInfo)
	info.Stream, info.Presence = s.begun(one)
	if err := out.Send(&parleyv1.ConnectResponse{Frame: &parleyv1.ConnectResponse_Info{Info: info}}); err != nil {
		return err
	}
	return s.follow(ctx, one, connectOutlet{out})
}

func (s *Server) connect(ctx context.Context, req *parleyv1.ConnectRequest) (*stream, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := checkForm(req); err != nil {
		return nil, err
	}
	if err := s.checkConnectLocked(ctx, "", req); err != nil {
		return nil, err
	}
	one := s.newStreamLocked(ctx)
	one.connect = true
	s.connectLocked(one, req)
	return one, nil
}

// presentLocked returns the caller's live stream with presence, or an error if there is none.
func (s *shared) presentLocked(ctx context.Context, streamID string) (*stream, error) {
	one := s.streams[streamID]
	if one == nil || one.presence == nil || one.user != s.userLocked(ctx) {
		return nil, errNoStream()
	}
	return one, nil
}

// UpdateWatch implements the service.
func (h presenceHandler) UpdateWatch(
	ctx context.Context, req *parleyv1.UpdateWatchRequest,
) (*parleyv1.UpdateWatchResponse, error) {
	return do(ctx, h.s, "UpdateWatch", req, func() (*parleyv1.UpdateWatchResponse, error) {
		one, err := h.s.presentLocked(ctx, req.GetStreamId())
		if err != nil {
			return nil, err
		}
		p, add := one.presence, unique(req.GetAdd())
		total := len(p.users)
		for _, id := range unique(req.GetRemove()) {
			if _, watched := p.users[id]; watched && !slices.Contains(add, id) {
				total--
			}
		}
		for _, id := range add {
			if _, watched := p.users[id]; !watched {
				total++
			}
		}
		if total > maxWatch {
			return nil, limitExceeded("add", maxWatch)
		}
		if err := h.s.checkUsersLocked(ctx, "add", req.GetAdd()); err != nil {
			return nil, err
		}
		for _, id := range req.GetRemove() {
			delete(p.users, id)
		}
		res := new(parleyv1.UpdateWatchResponse)
		for _, id := range add {
			res.Presence = append(res.Presence, p.sending(h.s.stateLocked(id)))
		}
		return res, nil
	})
}

// WatchChannel implements the service.
func (h presenceHandler) WatchChannel(
	ctx context.Context, req *parleyv1.WatchChannelRequest,
) (*parleyv1.WatchChannelResponse, error) {
	return do(ctx, h.s, "WatchChannel", req, func() (*parleyv1.WatchChannelResponse, error) {
		id := req.GetChannelId()
		if err := h.s.checkChannelsLocked(ctx, "channel_id", []string{id}); err != nil {
			return nil, err
		}
		one, err := h.s.presentLocked(ctx, req.GetStreamId())
		if err != nil {
			return nil, err
		}
		p := one.presence
		if p.channels[id] == nil && len(p.channels) >= maxWatchChannels {
			return nil, limitExceeded("channel_id", maxWatchChannels)
		}
		p.channels[id] = new(watchedChannel)
		state := h.s.channelLocked(h.s.logLocked(id), p.channels[id])
		p.revision++
		state.Revision = p.revision
		return &parleyv1.WatchChannelResponse{Presence: state}, nil
	})
}

// UnwatchChannel implements the service.
func (h presenceHandler) UnwatchChannel(
	ctx context.Context, req *parleyv1.UnwatchChannelRequest,
) (*parleyv1.UnwatchChannelResponse, error) {
	return do(ctx, h.s, "UnwatchChannel", req, func() (*parleyv1.UnwatchChannelResponse, error) {
		one, err := h.s.presentLocked(ctx, req.GetStreamId())
		if err != nil {
			return nil, err
		}
		delete(one.presence.channels, req.GetChannelId())
		return &parleyv1.UnwatchChannelResponse{}, nil
	})
}

// SetBackground implements the service.
func (h presenceHandler) SetBackground(
	ctx context.Context, req *parleyv1.SetBackgroundRequest,
) (*parleyv1.SetBackgroundResponse, error) {
	return do(ctx, h.s, "SetBackground", req, func() (*parleyv1.SetBackgroundResponse, error) {
		one, err := h.s.presentLocked(ctx, req.GetStreamId())
		if err != nil {
			return nil, err
		}
		one.presence.background = req.GetBackground()
		h.s.wakeLocked()
		return &parleyv1.SetBackgroundResponse{}, nil
	})
}

// Disconnect implements the service.
func (h presenceHandler) Disconnect(ctx context.Context, req *parleyv1.DisconnectRequest) (*parleyv1.DisconnectResponse, error) {
	return do(ctx, h.s, "Disconnect", req, func() (*parleyv1.DisconnectResponse, error) {
		one, err := h.s.presentLocked(ctx, req.GetStreamId())
		if err != nil {
			return &parleyv1.DisconnectResponse{}, nil //nolint:nilerr // the presence has ended before
		}
		one.presence = nil
		if one.connect {
			one.end = new(end)
		}
		h.s.wakeLocked()
		return &parleyv1.DisconnectResponse{}, nil
	})
}

// GetPresence implements the service.
func (h presenceHandler) GetPresence(
	ctx context.Context, req *parleyv1.GetPresenceRequest,
) (*parleyv1.GetPresenceResponse, error) {
	return do(ctx, h.s, "GetPresence", req, func() (*parleyv1.GetPresenceResponse, error) {
		res := new(parleyv1.GetPresenceResponse)
		for _, id := range req.GetUserIds() {
			res.Presence = append(res.Presence, h.s.stateLocked(id))
		}
		return res, nil
	})
}

// ListOnlineUsers implements the service. A page token contains the last id of the previous page.
func (h presenceHandler) ListOnlineUsers(
	ctx context.Context, req *parleyv1.ListOnlineUsersRequest,
) (*parleyv1.ListOnlineUsersResponse, error) {
	return do(ctx, h.s, "ListOnlineUsers", req, func() (*parleyv1.ListOnlineUsersResponse, error) {
		all := h.s.onlineLocked()
		ids, next, err := h.s.pageLocked(ctx, all, "online", req.GetPageToken(), req.GetPageSize(), 100, 1000)
		if err != nil {
			return nil, err
		}
		res := &parleyv1.ListOnlineUsersResponse{NextPageToken: next}
		for _, id := range ids {
			res.Presence = append(res.Presence, h.s.stateLocked(id))
		}
		return res, nil
	})
}
