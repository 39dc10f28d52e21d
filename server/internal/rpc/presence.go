package rpc

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"strconv"
	"strings"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/types/known/durationpb"

	parleyv1 "github.com/parleyhq/parley/gen/go/parley/v1"
	"github.com/parleyhq/parley/gen/go/parley/v1/parleyv1connect"
	"github.com/parleyhq/parley/server/internal/fanout"
	"github.com/parleyhq/parley/server/internal/fault"
	"github.com/parleyhq/parley/server/internal/ident"
	"github.com/parleyhq/parley/server/internal/pagetoken"
	"github.com/parleyhq/parley/server/internal/presence"
)

// PresenceStream is the presence of one stream. HubPresence implements it with a *presence.Stream.
type PresenceStream interface {
	ID() string
	// ConnectionID identifies the connection; empty for an invisible stream.
	ConnectionID() string
	// Login returns the login, for its token; zero for an invisible stream.
	Login() presence.Login
	// Next blocks until there is a frame. Any error ends the stream; with io.EOF its presence ends
	// without a failure.
	Next(ctx context.Context) (presence.Frame, error)
	// Poll is one step of Next that does not wait. ok is false if there is no frame yet; Wakeup is
	// then ready once Poll is to be called again.
	Poll(now time.Time) (f presence.Frame, ok bool, err error)
	Wakeup() <-chan struct{}
	// Close ends the stream. It may be called twice.
	Close()
}

// Presence opens streams with presence on this node, and reads the presence of all users.
// HubPresence implements it with a *presence.Hub, which documents the methods.
type Presence interface {
	Open(ctx context.Context, r *presence.OpenRequest) (PresenceStream, *presence.Update, error)
	Get(ctx context.Context, users []string) ([]presence.UserState, error)
	List(ctx context.Context, after presence.ListPosition, limit int) ([]presence.UserState, presence.ListPosition, error)
}

// PresenceCalls executes calls about live streams with presence, on whichever node they are.
// presence.Hub documents the methods.
type PresenceCalls interface {
	UpdateWatch(ctx context.Context, streamID, subject string, add, remove []string) ([]presence.UserState, error)
	WatchChannel(ctx context.Context, streamID, subject string, ch presence.ChannelRef) (*presence.ChannelState, error)
	UnwatchChannel(ctx context.Context, streamID, subject, channelID string) error
	SetBackground(ctx context.Context, streamID, subject string, background bool) error
	Disconnect(ctx context.Context, streamID, subject string) error
}

// Acquaintances limits who may watch whom. *channel.Access implements it.
type Acquaintances interface {
	// Strangers returns those of the users that subject may not watch, in the order given. It returns
	// a fault if that can't be determined.
	Strangers(ctx context.Context, subject string, users []string) ([]string, error)
}

// HubPresence implements Presence with a presence.Hub.
type HubPresence struct{ *presence.Hub }

// Open implements Presence.
func (h HubPresence) Open( //nolint:ireturn // Presence requires it
	ctx context.Context, r *presence.OpenRequest,
) (PresenceStream, *presence.Update, error) {
	s, update, err := h.Hub.Open(ctx, r)
	if err != nil {
		return nil, nil, err
	}
	return hubStream{s, h.Hub}, update, nil
}

// hubStream is a stream of a presence.Hub.
type hubStream struct {
	*presence.Stream

	hub *presence.Hub
}

// Close implements PresenceStream.
func (s hubStream) Close() { s.hub.Close(s.Stream) }

// presenceService implements parley.v1.PresenceService. Interceptors have validated the requests,
// and checked the capabilities of the caller.
type presenceService struct {
	cfg    Config
	deps   Deps
	sealer pagetoken.Sealer
}

var _ parleyv1connect.PresenceServiceHandler = (*presenceService)(nil)

func newPresenceService(cfg *Config, deps *Deps) *presenceService {
	return &presenceService{cfg: *cfg, deps: *deps, sealer: pagetoken.New(deps.PageSecret)}
}

// Connect implements parleyv1connect.PresenceServiceHandler.
func (s *presenceService) Connect(
	ctx context.Context, req *parleyv1.ConnectRequest, conn *connect.ServerStream[parleyv1.ConnectResponse],
) error {
	live, update, err := s.open(ctx, req, "", nil)
	if err != nil {
		return err
	}
	defer live.Close()
	defer s.leaveIfEnded(ctx, live.ID())
	showLogin(ctx, live, req)
	out := newFrameWriter[*parleyv1.ConnectResponse](ctx, conn.Conn(), s.cfg.FrameTimeout, s.cfg.live)
	if err := s.writeConnectInfo(ctx, out, live, update); err != nil {
		return err
	}
	return writeFrames(ctx, out, live, writePresenceFrame)
}

// writeConnectInfo writes the first frame, and more if the first states do not fit into it.
func (s *presenceService) writeConnectInfo(
	ctx context.Context, out *frameWriter[*parleyv1.ConnectResponse], live PresenceStream, first *presence.Update,
) error {
	info, rest := s.presenceInfo(ctx, live, first)
	err := out.write(ctx, &parleyv1.ConnectResponse{Frame: &parleyv1.ConnectResponse_Info{
		Info: &parleyv1.ConnectInfo{Stream: streamInfo(live.ID(), &s.cfg), Presence: info},
	}})
	for ; err == nil && len(rest) > 0; rest = rest[1:] {
		err = out.write(ctx, connectUpdate(rest[0]))
	}
	return err
}

func connectUpdate(u *parleyv1.PresenceUpdate) *parleyv1.ConnectResponse {
	return &parleyv1.ConnectResponse{Frame: &parleyv1.ConnectResponse_Presence{Presence: u}}
}

func writePresenceFrame(ctx context.Context, out *frameWriter[*parleyv1.ConnectResponse], f presence.Frame) error {
	switch {
	case f.Heartbeat:
		return out.write(ctx, &parleyv1.ConnectResponse{Frame: &parleyv1.ConnectResponse_Heartbeat{Heartbeat: &parleyv1.Heartbeat{}}})
	case f.Reconnect > 0:
		return out.write(ctx, &parleyv1.ConnectResponse{Frame: &parleyv1.ConnectResponse_Reconnect{
			Reconnect: &parleyv1.Reconnect{Within: durationpb.New(f.Reconnect)},
		}})
	case f.Update == nil:
		return nil
	}
	for _, u := range updatesToWire(f.Update) {
		if err := out.write(ctx, connectUpdate(u)); err != nil {
			return err
		}
	}
	return nil
}

// open opens a stream with presence of the calling user. prefix is the path of the ConnectRequest
// in the request, with its dot. rides is the stream that it rides on; nil if it is a stream of its
// own. The caller of open must close it.
func (s *presenceService) open( //nolint:ireturn // as Presence
	ctx context.Context, req *parleyv1.ConnectRequest, prefix string, rides *fanout.Stream,
) (PresenceStream, *presence.Update, error) {
	p, err := ident.Caller(ctx)
	if err != nil {
		return nil, nil, err
	}
	open, err := s.openRequest(p, req, prefix)
	if err != nil {
		return nil, nil, err
	}
	if rides != nil {
		id := rides.Identity()
		open.Rides = &id
	}
	if err := s.checkWatch(ctx, p, prefix+"watch", req.GetWatch()); err != nil {
		return nil, nil, err
	}
	channels := prefix + "watch_channels"
	if err := s.checkMember(ctx, p, channels, req.GetWatchChannels()); err != nil {
		return nil, nil, err
	}
	live, update, err := s.deps.Presence.Open(ctx, open)
	if err != nil {
		return nil, nil, inField(err, prefix)
	}
	// A membership may have ended since the first check, before the stream was known to have the
	// channel.
	if err := s.checkMember(ctx, p, channels, req.GetWatchChannels()); err != nil {
		live.Close()
		return nil, nil, err
	}
	return live, update, nil
}

// openRequest checks the rules of a ConnectRequest that the schema does not state, and converts it.
func (s *presenceService) openRequest(p *ident.Principal, req *parleyv1.ConnectRequest, prefix string) (*presence.OpenRequest, error) {
	open := &presence.OpenRequest{
		Subject: p.Subject, Expires: p.Expires, Invisible: req.GetInvisible(), Watch: req.GetWatch(),
	}
	for _, id := range req.GetWatchChannels() {
		open.Channels = append(open.Channels, channelRef(p, id))
	}
	if req.GetInvisible() {
		return open, nil
	}
	switch {
	case req.GetPlatform() == parleyv1.Platform_PLATFORM_UNSPECIFIED:
		return nil, fault.Invalid(prefix+"platform", 0, "%splatform: is required unless invisible is set", prefix)
	case req.GetDeviceId() == "":
		return nil, fault.Invalid(prefix+"device_id", 0, "%sdevice_id: is required unless invisible is set", prefix)
	}
	open.Platform = presence.Platform(req.GetPlatform()) //nolint:gosec // validated
	open.Device, open.Background = req.GetDeviceId(), req.GetBackground()
	if req.GetLoginToken() == "" {
		return open, nil
	}
	var err error
	open.Login, err = s.openLogin(p.Subject, req.GetDeviceId(), req.GetLoginToken())
	return open, inField(err, prefix)
}

// channelRef names a channel to watch. Holders of `subscribe` and `manage` by `channel:` keep it
// when they are no longer members.
func channelRef(p *ident.Principal, channelID string) presence.ChannelRef {
	exempt := p.Can(ident.Subscribe, channelID) && p.Can(ident.Manage, channelID)
	return presence.ChannelRef{ID: channelID, Exempt: exempt}
}

// inField returns err with its field after the prefix, which is empty or ends with a dot.
func inField(err error, prefix string) error {
	f, ok := fault.As(err)
	if !ok || f.Field == "" || prefix == "" {
		return err
	}
	changed := *f
	changed.Field = prefix + f.Field
	return &changed
}

// loginBinding returns what a login token is valid for.
func loginBinding(subject, device string) *pagetoken.Binding {
	return &pagetoken.Binding{Call: "login", Subject: subject, Query: device}
}

// sealLogin returns the token of a login.
func (s *presenceService) sealLogin(subject string, login presence.Login) string {
	return s.sealer.Seal(loginBinding(subject, login.Device), strconv.FormatInt(login.Generation, 10))
}

// openLogin returns the login of a token, which must be of this subject and device.
func (s *presenceService) openLogin(subject, device, token string) (*presence.Login, error) {
	text, err := s.sealer.Open(token, loginBinding(subject, device))
	generation, malformed := strconv.ParseInt(text, 10, 64)
	if err != nil || malformed != nil || generation <= 0 {
		return nil, fault.Invalid("login_token", 0, "login_token: is not a token of a login of this user on this device")
	}
	return &presence.Login{Device: device, Generation: generation}, nil
}

// presenceInfo returns the PresenceInfo of a new stream, and the updates that do not fit into it.
func (s *presenceService) presenceInfo(
	ctx context.Context, live PresenceStream, first *presence.Update,
) (info *parleyv1.PresenceInfo, rest []*parleyv1.PresenceUpdate) {
	updates := updatesToWire(first)
	info = &parleyv1.PresenceInfo{ConnectionId: live.ConnectionID(), Presence: updates[0]}
	if login := live.Login(); login != (presence.Login{}) {
		info.LoginToken = s.sealLogin(ident.FromContext(ctx).Subject, login)
	}
	return info, updates[1:]
}

// maxRefused is the number of refused users that an error names.
const maxRefused = 50

// checkWatch returns a NO_SHARED_CHANNEL fault that names the users whom the caller may not watch,
// up to maxRefused, with the index of the first one in the list as its field. Callers with the
// action list may watch everyone: they can list everyone who is online. For the others, the rate
// limiter charges each user, who costs at least one query, as a call. The call itself has paid for
// the first.
func (s *presenceService) checkWatch(ctx context.Context, p *ident.Principal, list string, users []string) error {
	if s.deps.Acquaintances == nil || len(users) == 0 || p.CanPresence(ident.List) {
		return nil
	}
	asked := distinct(slices.Clone(users))
	s.deps.Limiter.Charge(p.Subject, len(asked)-1)
	strangers, err := s.deps.Acquaintances.Strangers(ctx, p.Subject, asked)
	if err != nil || len(strangers) == 0 {
		return err
	}
	f := fault.New(fault.PermissionDenied, fault.NoSharedChannel, "the caller shares no members-only channel with user %s", strangers[0])
	f.Field, f.Users = fieldOf(list, users, strangers[0]), strangers[:min(len(strangers), maxRefused)]
	return f
}

// checkMember returns the fault of Access.ForSubscribe for the channels. Its field is the index of
// the first of them in the list.
func (s *presenceService) checkMember(ctx context.Context, p *ident.Principal, list string, channels []string) error {
	if len(channels) == 0 {
		return nil
	}
	err := s.deps.Access.ForSubscribe(ctx, p, channels)
	if f, ok := fault.As(err); ok && isRefusal(f) {
		f.Field = fieldOf(list, channels, f.Positions[0].ChannelID)
	}
	return err
}

// fieldOf returns the path of an item in a list of the request.
func fieldOf(list string, items []string, item string) string {
	for i := range items {
		if items[i] == item {
			return fmt.Sprintf("%s[%d]", list, i)
		}
	}
	return list
}

// UpdateWatch implements parleyv1connect.PresenceServiceHandler.
func (s *presenceService) UpdateWatch(
	ctx context.Context, req *parleyv1.UpdateWatchRequest,
) (*parleyv1.UpdateWatchResponse, error) {
	p, err := ident.Caller(ctx)
	if err != nil {
		return nil, err
	}
	if err := s.checkWatch(ctx, p, "add", req.GetAdd()); err != nil {
		return nil, err
	}
	users, err := s.deps.PresenceCalls.UpdateWatch(ctx, req.GetStreamId(), p.Subject, distinct(req.GetAdd()), distinct(req.GetRemove()))
	if err != nil {
		return nil, err
	}
	return &parleyv1.UpdateWatchResponse{Presence: usersToWire(users)}, nil
}

// WatchChannel implements parleyv1connect.PresenceServiceHandler.
func (s *presenceService) WatchChannel(
	ctx context.Context, req *parleyv1.WatchChannelRequest,
) (*parleyv1.WatchChannelResponse, error) {
	p, err := ident.Caller(ctx)
	if err != nil {
		return nil, err
	}
	check := func() error {
		err := s.checkMember(ctx, p, "channel_id", []string{req.GetChannelId()})
		if f, ok := fault.As(err); ok && isRefusal(f) {
			f.Field = "channel_id"
		}
		return err
	}
	if err := check(); err != nil {
		return nil, err
	}
	state, err := s.deps.PresenceCalls.WatchChannel(ctx, req.GetStreamId(), p.Subject, channelRef(p, req.GetChannelId()))
	if err != nil {
		return nil, err
	}
	if err := check(); err != nil { // as in open
		s.unwatch(ctx, req.GetStreamId(), p.Subject, req.GetChannelId())
		return nil, err
	}
	resp := &parleyv1.WatchChannelResponse{}
	if state != nil {
		resp.Presence = channelPresenceToWire(state)
	}
	return resp, nil
}

// unwatch makes a stream stop following a channel that it was just made to follow and that the
// caller may not read. It logs a failure.
func (s *presenceService) unwatch(ctx context.Context, streamID, subject, channelID string) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), removeTimeout)
	defer cancel()
	err := s.deps.PresenceCalls.UnwatchChannel(ctx, streamID, subject, channelID)
	if err != nil && !fault.Is(err, fault.StreamNotFound) {
		s.deps.Telemetry.Logger.WarnContext(ctx, "remove refused channel from stream failed", slog.Any("error", err))
	}
}

// UnwatchChannel implements parleyv1connect.PresenceServiceHandler.
func (s *presenceService) UnwatchChannel(
	ctx context.Context, req *parleyv1.UnwatchChannelRequest,
) (*parleyv1.UnwatchChannelResponse, error) {
	p, err := ident.Caller(ctx)
	if err != nil {
		return nil, err
	}
	if err := s.deps.PresenceCalls.UnwatchChannel(ctx, req.GetStreamId(), p.Subject, req.GetChannelId()); err != nil {
		return nil, err
	}
	return &parleyv1.UnwatchChannelResponse{}, nil
}

// SetBackground implements parleyv1connect.PresenceServiceHandler.
func (s *presenceService) SetBackground(
	ctx context.Context, req *parleyv1.SetBackgroundRequest,
) (*parleyv1.SetBackgroundResponse, error) {
	p, err := ident.Caller(ctx)
	if err != nil {
		return nil, err
	}
	if err := s.deps.PresenceCalls.SetBackground(ctx, req.GetStreamId(), p.Subject, req.GetBackground()); err != nil {
		return nil, err
	}
	return &parleyv1.SetBackgroundResponse{}, nil
}

// Disconnect implements parleyv1connect.PresenceServiceHandler.
func (s *presenceService) Disconnect(
	ctx context.Context, req *parleyv1.DisconnectRequest,
) (*parleyv1.DisconnectResponse, error) {
	p, err := ident.Caller(ctx)
	if err != nil {
		return nil, err
	}
	if err := s.deps.PresenceCalls.Disconnect(ctx, req.GetStreamId(), p.Subject); err != nil {
		return nil, err
	}
	return &parleyv1.DisconnectResponse{}, nil
}

// GetPresence implements parleyv1connect.PresenceServiceHandler.
func (s *presenceService) GetPresence(
	ctx context.Context, req *parleyv1.GetPresenceRequest,
) (*parleyv1.GetPresenceResponse, error) {
	p, err := ident.Caller(ctx)
	if err != nil {
		return nil, err
	}
	if err := s.checkWatch(ctx, p, "user_ids", req.GetUserIds()); err != nil {
		return nil, err
	}
	users := distinct(slices.Clone(req.GetUserIds()))
	states, err := s.deps.Presence.Get(ctx, users)
	if err != nil {
		return nil, err
	}
	if len(states) != len(users) {
		return nil, fmt.Errorf("%d states of %d users", len(states), len(users))
	}
	byUser := make(map[string]*parleyv1.UserPresence, len(users))
	for i := range states {
		byUser[users[i]] = userToWire(&states[i])
	}
	resp := &parleyv1.GetPresenceResponse{Presence: make([]*parleyv1.UserPresence, len(req.GetUserIds()))}
	for i, id := range req.GetUserIds() {
		resp.Presence[i] = byUser[id]
	}
	return resp, nil
}

// ListOnlineUsers implements parleyv1connect.PresenceServiceHandler.
func (s *presenceService) ListOnlineUsers(
	ctx context.Context, req *parleyv1.ListOnlineUsersRequest,
) (*parleyv1.ListOnlineUsersResponse, error) {
	p, err := ident.Caller(ctx)
	if err != nil {
		return nil, err
	}
	page := &page{s.sealer, pagetoken.Binding{Call: "online users", Subject: p.Subject}}
	last, err := page.open(req.GetPageToken())
	if err != nil {
		return nil, err
	}
	after, err := positionOf(last)
	if err != nil {
		return nil, err
	}
	users, next, err := s.deps.Presence.List(ctx, after, orDefault(req.GetPageSize(), defaultPage))
	if err != nil {
		return nil, err
	}
	resp := &parleyv1.ListOnlineUsersResponse{Presence: usersToWire(users)}
	if next != (presence.ListPosition{}) {
		resp.NextPageToken = page.seal(fmt.Sprintf("%d %s", next.Shard, next.UserID))
	}
	return resp, nil
}

// positionOf returns the position in a page token; the zero position for the first page.
func positionOf(last string) (p presence.ListPosition, err error) {
	if last == "" {
		return p, nil
	}
	shard, user, _ := strings.Cut(last, " ")
	p.UserID = user
	if p.Shard, err = strconv.Atoi(shard); err != nil {
		return p, fmt.Errorf("position in a page token: %w", err) // it was sealed by this server
	}
	return p, nil
}
