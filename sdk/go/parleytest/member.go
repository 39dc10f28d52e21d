package parleytest

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"

	parleyv1 "github.com/parleyhq/parley/gen/go/parley/v1"
)

// member is the membership of one user of a channel.
type member struct {
	joined time.Time
	read   int64
}

// create marks the channel as existing, unless it exists already.
func (l *log) create(createdBy string, membersOnly bool) {
	if l.made {
		return
	}
	l.made, l.membersOnly, l.createdBy, l.createTime = true, membersOnly, createdBy, time.Now()
}

// admits reports whether the user may use the channel.
func (l *log) admits(user string) bool { return !l.membersOnly || l.members[user] != nil }

func (l *log) join(user string) {
	if l.members[user] == nil {
		l.members[user] = &member{joined: time.Now()}
	}
}

// read moves a user's cursor forward. If join is set, the user becomes a member; otherwise the
// cursor of a user who is not a member does not change.
func (l *log) read(user string, seq int64, join bool) {
	if join {
		l.join(user)
	}
	if m := l.members[user]; m != nil {
		m.read = max(m.read, seq)
	}
}

// unread returns the number of messages after seq.
func (l *log) unread(seq int64) int64 {
	var n int64
	for _, m := range l.messages {
		if m.GetSeq() > seq {
			n++
		}
	}
	return n
}

// usableLocked returns the channel, or an error if the caller may not use it.
func (s *shared) usableLocked(ctx context.Context, channelID string) (*log, error) {
	l := s.logLocked(channelID)
	if !l.admits(s.userLocked(ctx)) {
		return nil, notMember()
	}
	return l, nil
}

// refusedLocked returns an error with all channels to which the caller may not subscribe, or nil.
func (s *shared) refusedLocked(ctx context.Context, channels []*parleyv1.ChannelPosition) error {
	var refused []string
	for _, p := range channels {
		if !s.logLocked(p.GetChannelId()).admits(s.userLocked(ctx)) {
			refused = append(refused, p.GetChannelId())
		}
	}
	if len(refused) == 0 {
		return nil
	}
	return notMember(refused...)
}

func notMember(channels ...string) error {
	detail := &parleyv1.ErrorDetail{Reason: parleyv1.ErrorReason_ERROR_REASON_NOT_MEMBER}
	for _, id := range channels {
		detail.Positions = append(detail.Positions, &parleyv1.LastPosition{ChannelId: id})
	}
	return ErrorDetail(connect.CodePermissionDenied, detail)
}

func lostEvent(channelID string) *parleyv1.ChannelEvent {
	lost := &parleyv1.ChannelLost{Reason: parleyv1.LostReason_LOST_REASON_NOT_MEMBER}
	return &parleyv1.ChannelEvent{ChannelId: channelID, Event: &parleyv1.ChannelEvent_Lost{Lost: lost}}
}

// CreateChannel implements the service.
func (h handler) CreateChannel(
	ctx context.Context, req *parleyv1.CreateChannelRequest,
) (*parleyv1.CreateChannelResponse, error) {
	return do(ctx, h.s, "CreateChannel", req, func() (*parleyv1.CreateChannelResponse, error) {
		l, user := h.s.logLocked(req.GetChannelId()), h.s.userLocked(ctx)
		if l.made {
			if err := l.repeats(user, req); err != nil {
				return nil, err
			}
			return &parleyv1.CreateChannelResponse{Channel: l.info(), Duplicate: true}, nil
		}
		l.create(user, req.GetMembersOnly())
		l.created = proto.CloneOf(req)
		for _, id := range append([]string{user}, userIDs(req.GetMembers())...) {
			l.join(id)
		}
		h.s.wakeLocked()
		return &parleyv1.CreateChannelResponse{Channel: l.info()}, nil
	})
}

// repeats returns nil if a request repeats the one that created the channel, and else the error for
// it.
func (l *log) repeats(user string, req *parleyv1.CreateChannelRequest) error {
	key := req.GetIdempotencyKey()
	members := func(r *parleyv1.CreateChannelRequest) []string {
		return slices.Compact(slices.Sorted(slices.Values(append(userIDs(r.GetMembers()), user))))
	}
	switch {
	case key == "" || key != l.created.GetIdempotencyKey() || user != l.createdBy:
		return Error(connect.CodeAlreadyExists, parleyv1.ErrorReason_ERROR_REASON_CHANNEL_EXISTS)
	case req.GetMembersOnly() != l.membersOnly || !slices.Equal(members(req), members(l.created)):
		return Error(connect.CodeAlreadyExists, parleyv1.ErrorReason_ERROR_REASON_IDEMPOTENCY_KEY_REUSED)
	default:
		return nil
	}
}

func userIDs(members []*parleyv1.ChannelMember) []string {
	ids := make([]string, len(members))
	for i, m := range members {
		ids[i] = m.GetUserId()
	}
	return ids
}

func (l *log) info() *parleyv1.ChannelInfo {
	return &parleyv1.ChannelInfo{
		ChannelId: l.id, MembersOnly: l.membersOnly, CreatedBy: l.createdBy, CreateTime: timestamppb.New(l.createTime),
		HeadSeq: l.head(), Count: l.count, OldestSeq: l.oldestSeq(), ExpiredCount: l.expired(), Epoch: l.epoch,
		Etag: fmt.Sprintf("%d-%t", l.createTime.UnixMilli(), l.membersOnly),
	}
}

// madeLocked returns the channel, or an error if it does not exist.
func (s *shared) madeLocked(channelID string) (*log, error) {
	if l := s.logLocked(channelID); l.made {
		return l, nil
	}
	return nil, Error(connect.CodeNotFound, parleyv1.ErrorReason_ERROR_REASON_CHANNEL_NOT_FOUND)
}

// AddMembers implements the service.
func (h handler) AddMembers(ctx context.Context, req *parleyv1.AddMembersRequest) (*parleyv1.AddMembersResponse, error) {
	return do(ctx, h.s, "AddMembers", req, func() (*parleyv1.AddMembersResponse, error) {
		if len(req.GetMembers()) == 0 {
			return nil, invalidField("members", 1)
		}
		l, err := h.s.madeLocked(req.GetChannelId())
		if err != nil {
			return nil, err
		}
		for _, id := range userIDs(req.GetMembers()) {
			l.join(id)
		}
		return &parleyv1.AddMembersResponse{}, nil
	})
}

// RemoveMembers implements the service.
func (h handler) RemoveMembers(
	ctx context.Context, req *parleyv1.RemoveMembersRequest,
) (*parleyv1.RemoveMembersResponse, error) {
	return do(ctx, h.s, "RemoveMembers", req, func() (*parleyv1.RemoveMembersResponse, error) {
		if len(req.GetUserIds()) == 0 {
			return nil, invalidField("user_ids", 1)
		}
		l, err := h.s.madeLocked(req.GetChannelId())
		if err != nil {
			return nil, err
		}
		for _, id := range req.GetUserIds() {
			delete(l.members, id)
		}
		h.s.wakeLocked()
		return &parleyv1.RemoveMembersResponse{}, nil
	})
}

// page returns a page of sorted ids, and the token of the next page. The token is empty if there is
// none.
func (s *Server) page(ids []string, size int32, token string) (page []string, next string) {
	ids = slices.DeleteFunc(ids, func(id string) bool { return id <= token })
	n := 50
	if size > 0 {
		n = int(size)
	}
	if s.pageSize > 0 {
		n = min(n, s.pageSize)
	}
	if len(ids) <= n {
		return ids, ""
	}
	return ids[:n], ids[n-1]
}

// ListMembers implements the service. A page token is the last id of the previous page.
func (h handler) ListMembers(ctx context.Context, req *parleyv1.ListMembersRequest) (*parleyv1.ListMembersResponse, error) {
	return do(ctx, h.s, "ListMembers", req, func() (*parleyv1.ListMembersResponse, error) {
		l, err := h.s.usableLocked(ctx, req.GetChannelId())
		if err != nil {
			return nil, err
		}
		ids, next := h.s.page(slices.Sorted(maps.Keys(l.members)), req.GetPageSize(), req.GetPageToken())
		res := &parleyv1.ListMembersResponse{NextPageToken: next, Epoch: l.epoch}
		for _, id := range ids {
			m := l.members[id]
			res.Members = append(res.Members, &parleyv1.ChannelMember{
				UserId: id, Role: parleyv1.MemberRole_MEMBER_ROLE_MEMBER, JoinTime: timestamppb.New(m.joined), ReadSeq: m.read,
			})
		}
		return res, nil
	})
}

// ListChannels implements the service. A page token is the last id of the previous page.
func (h handler) ListChannels(ctx context.Context, req *parleyv1.ListChannelsRequest) (*parleyv1.ListChannelsResponse, error) {
	return do(ctx, h.s, "ListChannels", req, func() (*parleyv1.ListChannelsResponse, error) {
		user := h.s.userLocked(ctx)
		var mine []string
		for id, l := range h.s.channels {
			if l.members[user] != nil {
				mine = append(mine, id)
			}
		}
		slices.Sort(mine)
		ids, next := h.s.page(mine, req.GetPageSize(), req.GetPageToken())
		res := &parleyv1.ListChannelsResponse{NextPageToken: next}
		for _, id := range ids {
			l := h.s.channels[id]
			read := l.members[user].read
			res.Channels = append(res.Channels, &parleyv1.UserChannel{
				Channel: l.info(), ReadSeq: read, Unread: l.unread(read), LastMessage: l.lastMessage(),
			})
		}
		return res, nil
	})
}

func (l *log) lastMessage() *parleyv1.ChannelMessage {
	for _, e := range slices.Backward(l.entries) {
		if e.kind == "sent" {
			return proto.CloneOf(l.messages[e.msgID])
		}
	}
	return nil
}

// MarkRead implements the service.
func (h handler) MarkRead(ctx context.Context, req *parleyv1.MarkReadRequest) (*parleyv1.MarkReadResponse, error) {
	return do(ctx, h.s, "MarkRead", req, func() (*parleyv1.MarkReadResponse, error) {
		l, err := h.s.usableLocked(ctx, req.GetChannelId())
		if err != nil {
			return nil, err
		}
		if req.GetSeq() > l.head() {
			return nil, Error(connect.CodeOutOfRange, parleyv1.ErrorReason_ERROR_REASON_POSITION_OUT_OF_RANGE)
		}
		user := h.s.userLocked(ctx)
		l.read(user, req.GetSeq(), true)
		read := l.members[user].read
		return &parleyv1.MarkReadResponse{ReadSeq: read, Unread: l.unread(read), Epoch: l.epoch}, nil
	})
}

// SendTyping implements the service. The live streams of all nodes receive the event, including the
// caller's.
func (h handler) SendTyping(ctx context.Context, req *parleyv1.SendTypingRequest) (*parleyv1.SendTypingResponse, error) {
	return do(ctx, h.s, "SendTyping", req, func() (*parleyv1.SendTypingResponse, error) {
		if _, err := h.s.usableLocked(ctx, req.GetChannelId()); err != nil {
			return nil, err
		}
		event := &parleyv1.ChannelEvent{
			ChannelId: req.GetChannelId(),
			Event:     &parleyv1.ChannelEvent_Typing{Typing: &parleyv1.Typing{UserId: h.s.userLocked(ctx)}},
		}
		for _, one := range h.s.streams {
			if p := one.places[req.GetChannelId()]; p != nil && p.begun {
				one.typing = append(one.typing, event)
			}
		}
		h.s.wakeLocked()
		return &parleyv1.SendTypingResponse{}, nil
	})
}
