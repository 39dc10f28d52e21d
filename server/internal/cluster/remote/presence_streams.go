package remote

import (
	"context"
	"errors"
	"time"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/emptypb"

	clusterv1 "github.com/parleyhq/parley/internal/gen/parley/cluster/v1"
	"github.com/parleyhq/parley/server/internal/cluster"
	"github.com/parleyhq/parley/server/internal/fault"
	"github.com/parleyhq/parley/server/internal/presence"
	"github.com/parleyhq/parley/server/internal/stream"
)

var (
	presenceWatch = cluster.Method[*clusterv1.PresenceWatchRequest, *clusterv1.PresenceWatchResponse]{
		Name: "presence_watch", Timeout: holderWait,
	}
	presenceChannel = cluster.Method[*clusterv1.PresenceChannelRequest, *clusterv1.PresenceChannelResponse]{
		Name: "presence_channel", Timeout: holderWait,
	}
	presenceUnwatchChannel = cluster.Method[*clusterv1.PresenceChannelRequest, *emptypb.Empty]{
		Name: "presence_unwatch_channel", Timeout: holderWait,
	}
	presenceBackground = cluster.Method[*clusterv1.PresenceBackgroundRequest, *emptypb.Empty]{
		Name: "presence_background", Timeout: holderWait,
	}
	presenceDisconnect = cluster.Method[*clusterv1.PresenceDisconnectRequest, *emptypb.Empty]{
		Name: "presence_disconnect", Timeout: holderWait,
	}
)

// PresenceCalls executes calls about live streams with presence. *presence.Hub implements it for
// this node's streams.
type PresenceCalls interface {
	UpdateWatch(ctx context.Context, streamID, subject string, add, remove []string) ([]presence.UserState, error)
	WatchChannel(ctx context.Context, streamID, subject string, ch presence.ChannelRef) (*presence.ChannelState, error)
	UnwatchChannel(ctx context.Context, streamID, subject, channelID string) error
	SetBackground(ctx context.Context, streamID, subject string, background bool) error
	Disconnect(ctx context.Context, streamID, subject string) error
}

// PresenceHub executes calls about this node's streams, and bounds the time at which calls of other
// nodes may take effect. *presence.Hub implements it.
type PresenceHub interface {
	PresenceCalls
	// NotAfter returns the time at which a call about a subject's stream ends that begins now, by the
	// store's clock; the zero time while that is not known.
	NotAfter(subject string, timeout time.Duration) time.Time
	// Passed reports whether a time that another node's NotAfter has returned has passed.
	Passed(subject string, notAfter time.Time) bool
}

// PresenceStreams executes calls about live streams with presence, on whichever node they are.
// Other nodes may call about this node's streams between Start and Stop. Safe for concurrent use.
//
// Its methods do what those of *presence.Hub do. If the stream is on another node, they also fail
// with STREAM_NOT_FOUND if that node is gone, with Unavailable if it can't be reached, and with
// OUTCOME_UNKNOWN if it may have executed the call. Every call may be repeated.
type PresenceStreams struct {
	*cluster.Handlers

	endpoint *cluster.Endpoint
	local    PresenceHub
}

var (
	_ PresenceCalls = (*PresenceStreams)(nil)
	_ PresenceHub   = (*presence.Hub)(nil)
)

// NewPresenceStreams creates a PresenceStreams over this node's hub. Its stream ids must end with
// the node's id.
func NewPresenceStreams(endpoint *cluster.Endpoint, local PresenceHub) *PresenceStreams {
	s := &PresenceStreams{Handlers: endpoint.Handlers(), endpoint: endpoint, local: local}
	handlePresence(s, presenceWatch,
		func(ctx context.Context, r *clusterv1.PresenceWatchRequest) (*clusterv1.PresenceWatchResponse, error) {
			users, err := local.UpdateWatch(ctx, r.GetStream().GetStreamId(), r.GetStream().GetSubject(), r.GetAdd(), r.GetRemove())
			return &clusterv1.PresenceWatchResponse{Users: usersToWire(users)}, err
		})
	handlePresence(s, presenceChannel,
		func(ctx context.Context, r *clusterv1.PresenceChannelRequest) (*clusterv1.PresenceChannelResponse, error) {
			ch := presence.ChannelRef{ID: r.GetChannelId(), Exempt: r.GetExempt()}
			state, err := local.WatchChannel(ctx, r.GetStream().GetStreamId(), r.GetStream().GetSubject(), ch)
			return &clusterv1.PresenceChannelResponse{Channel: channelToWire(state)}, err
		})
	handlePresence(s, presenceUnwatchChannel,
		func(ctx context.Context, r *clusterv1.PresenceChannelRequest) (*emptypb.Empty, error) {
			return &emptypb.Empty{}, local.UnwatchChannel(ctx, r.GetStream().GetStreamId(), r.GetStream().GetSubject(), r.GetChannelId())
		})
	handlePresence(s, presenceBackground,
		func(ctx context.Context, r *clusterv1.PresenceBackgroundRequest) (*emptypb.Empty, error) {
			return &emptypb.Empty{}, local.SetBackground(ctx, r.GetStream().GetStreamId(), r.GetStream().GetSubject(), r.GetBackground())
		})
	handlePresence(s, presenceDisconnect,
		func(ctx context.Context, r *clusterv1.PresenceDisconnectRequest) (*emptypb.Empty, error) {
			return &emptypb.Empty{}, local.Disconnect(ctx, r.GetStream().GetStreamId(), r.GetStream().GetSubject())
		})
	return s
}

// UpdateWatch changes the users that a stream watches; see presence.Hub.UpdateWatch.
func (s *PresenceStreams) UpdateWatch(
	ctx context.Context, streamID, subject string, add, remove []string,
) ([]presence.UserState, error) {
	node := cluster.StreamNode(streamID)
	if node == s.endpoint.ID() {
		return s.local.UpdateWatch(ctx, streamID, subject, add, remove)
	}
	res, err := cluster.Call(ctx, s.endpoint, node, presenceWatch, &clusterv1.PresenceWatchRequest{
		Stream: s.stream(ctx, streamID, subject), Add: add, Remove: remove,
	})
	return usersFromWire(res.GetUsers()), notFoundIfGone(err)
}

// WatchChannel makes a stream follow the members of a channel; see presence.Hub.WatchChannel.
func (s *PresenceStreams) WatchChannel(
	ctx context.Context, streamID, subject string, ch presence.ChannelRef,
) (*presence.ChannelState, error) {
	node := cluster.StreamNode(streamID)
	if node == s.endpoint.ID() {
		return s.local.WatchChannel(ctx, streamID, subject, ch)
	}
	res, err := cluster.Call(ctx, s.endpoint, node, presenceChannel, &clusterv1.PresenceChannelRequest{
		Stream: s.stream(ctx, streamID, subject), ChannelId: ch.ID, Exempt: ch.Exempt,
	})
	return channelFromWire(res.GetChannel()), notFoundIfGone(err)
}

// UnwatchChannel undoes WatchChannel.
func (s *PresenceStreams) UnwatchChannel(ctx context.Context, streamID, subject, channelID string) error {
	node := cluster.StreamNode(streamID)
	if node == s.endpoint.ID() {
		return s.local.UnwatchChannel(ctx, streamID, subject, channelID)
	}
	_, err := cluster.Call(ctx, s.endpoint, node, presenceUnwatchChannel, &clusterv1.PresenceChannelRequest{
		Stream: s.stream(ctx, streamID, subject), ChannelId: channelID,
	})
	return notFoundIfGone(err)
}

// SetBackground sets whether the device of a stream is in the background.
func (s *PresenceStreams) SetBackground(ctx context.Context, streamID, subject string, background bool) error {
	node := cluster.StreamNode(streamID)
	if node == s.endpoint.ID() {
		return s.local.SetBackground(ctx, streamID, subject, background)
	}
	_, err := cluster.Call(ctx, s.endpoint, node, presenceBackground, &clusterv1.PresenceBackgroundRequest{
		Stream: s.stream(ctx, streamID, subject), Background: background,
	})
	return notFoundIfGone(err)
}

// Disconnect ends the presence of a stream. It succeeds if the stream's node is gone.
func (s *PresenceStreams) Disconnect(ctx context.Context, streamID, subject string) error {
	node := cluster.StreamNode(streamID)
	if node == s.endpoint.ID() {
		return s.local.Disconnect(ctx, streamID, subject)
	}
	_, err := cluster.Call(ctx, s.endpoint, node, presenceDisconnect, &clusterv1.PresenceDisconnectRequest{
		Stream: s.stream(ctx, streamID, subject),
	})
	if errors.Is(err, cluster.ErrNodeGone) {
		return nil
	}
	return err
}

// notFoundIfGone replaces ErrNodeGone by STREAM_NOT_FOUND: the node is gone, and the stream with
// it.
func notFoundIfGone(err error) error {
	if errors.Is(err, cluster.ErrNodeGone) {
		return stream.NotFound()
	}
	return err
}

// stream identifies a stream in a call that is sent now.
func (s *PresenceStreams) stream(ctx context.Context, streamID, subject string) *clusterv1.PresenceStream {
	timeout := holderWait
	if deadline, ok := ctx.Deadline(); ok {
		timeout = min(timeout, time.Until(deadline))
	}
	ref := &clusterv1.PresenceStream{StreamId: streamID, Subject: subject}
	if notAfter := s.local.NotAfter(subject, timeout); !notAfter.IsZero() {
		ref.NotAfterUs = notAfter.UnixMicro()
	}
	return ref
}

// handlePresence executes the calls of other nodes to a method, except for those that arrive after
// their caller has given up: they would undo newer ones.
func handlePresence[Req interface {
	proto.Message
	GetStream() *clusterv1.PresenceStream
}, Res proto.Message](
	s *PresenceStreams, m cluster.Method[Req, Res], fn func(ctx context.Context, r Req) (Res, error),
) {
	cluster.Handle(s.Handlers, m, func(ctx context.Context, r Req) (Res, error) {
		ref := r.GetStream()
		if us := ref.GetNotAfterUs(); us != 0 && s.local.Passed(ref.GetSubject(), time.UnixMicro(us)) {
			var none Res
			return none, fault.New(fault.Unavailable, fault.StoreUnavailable, "the call arrived too late and was not executed")
		}
		return fn(ctx, r)
	})
}

func usersToWire(users []presence.UserState) []*clusterv1.PresenceUser {
	ws := make([]*clusterv1.PresenceUser, len(users))
	for i, u := range users {
		ws[i] = &clusterv1.PresenceUser{UserId: u.UserID, State: uint32(u.State), Revision: u.Revision}
	}
	return ws
}

func usersFromWire(ws []*clusterv1.PresenceUser) []presence.UserState {
	users := make([]presence.UserState, len(ws))
	for i, w := range ws {
		users[i] = presence.UserState{UserID: w.GetUserId(), State: presence.State(w.GetState()), Revision: w.GetRevision()}
	}
	return users
}

func channelToWire(c *presence.ChannelState) *clusterv1.PresenceChannel {
	if c == nil {
		return nil
	}
	return &clusterv1.PresenceChannel{
		ChannelId: c.ChannelID, Online: int64(c.Online), Members: int64(c.Members), Complete: c.Complete, Users: usersToWire(c.Users),
		Revision: c.Revision,
	}
}

func channelFromWire(w *clusterv1.PresenceChannel) *presence.ChannelState {
	if w == nil {
		return nil
	}
	return &presence.ChannelState{
		ChannelID: w.GetChannelId(), Online: int(w.GetOnline()), Members: int(w.GetMembers()), Complete: w.GetComplete(),
		Users: usersFromWire(w.GetUsers()), Revision: w.GetRevision(),
	}
}
