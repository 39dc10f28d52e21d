package parleytest

import (
	"cmp"
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

// repeats returns nil if a request repeats the one that created the channel, else the error to
// answer it with.
func (l *log) repeats(user string, req *parleyv1.CreateChannelRequest) error {
	key := req.GetIdempotencyKey()
	members := func(r *parleyv1.CreateChannelRequest) []string {
		return slices.Compact(slices.Sorted(slices.Values(append(userIDs(r.GetMembers()), user))))
	}
	switch {
	case key == "" || key != l.created.GetIdempotencyKey() || user != l.createdBy:
		return errorAt(connect.CodeAlreadyExists, parleyv1.ErrorReason_ERROR_REASON_CHANNEL_EXISTS, "channel_id", 0)
	case req.GetMembersOnly() != l.membersOnly || !slices.Equal(members(req), members(l.created)):
		return errorAt(connect.CodeAlreadyExists, parleyv1.ErrorReason_ERROR_REASON_IDEMPOTENCY_KEY_REUSED, "idempotency_key", 0)
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

// madeLocked returns the channel, or an error if neither a send nor CreateChannel has created it.
func (s *shared) madeLocked(channelID string) (*log, error) {
	if l := s.logLocked(channelID); l.made {
		return l, nil
	}
	return nil, errNoChannel()
}

func errNoChannel() error {
	return errorAt(connect.CodeNotFound, parleyv1.ErrorReason_ERROR_REASON_CHANNEL_NOT_FOUND, "channel_id", 0)
}

// AddMembers implements the service.
func (h handler) AddMembers(ctx context.Context, req *parleyv1.AddMembersRequest) (*parleyv1.AddMembersResponse, error) {
	return do(ctx, h.s, "AddMembers", req, func() (*parleyv1.AddMembersResponse, error) {
		ids := userIDs(req.GetMembers())
		if err := h.s.managesLocked(ctx, ids, "subscribe"); err != nil {
			return nil, err
		}
		if _, err := h.s.usableLocked(ctx, req.GetChannelId()); err != nil {
			return nil, err
		}
		l, err := h.s.madeLocked(req.GetChannelId())
		if err != nil {
			return nil, err
		}
		for _, id := range ids {
			l.join(id)
		}
		h.s.wakeLocked()
		return &parleyv1.AddMembersResponse{}, nil
	})
}

// managesLocked returns an error if the caller may not add or remove the users. That requires
// manage. If the caller is the only user, the given action is enough; an empty action requires
// none.
func (s *shared) managesLocked(ctx context.Context, userIDs []string, action string) error {
	self := len(slices.Compact(slices.Sorted(slices.Values(userIDs)))) == 1 && userIDs[0] == s.userLocked(ctx)
	if s.canLocked(ctx, "manage") || self && (action == "" || s.canLocked(ctx, action)) {
		return nil
	}
	return missing("")
}

// RemoveMembers implements the service.
func (h handler) RemoveMembers(
	ctx context.Context, req *parleyv1.RemoveMembersRequest,
) (*parleyv1.RemoveMembersResponse, error) {
	return do(ctx, h.s, "RemoveMembers", req, func() (*parleyv1.RemoveMembersResponse, error) {
		if err := h.s.managesLocked(ctx, req.GetUserIds(), ""); err != nil {
			return nil, err
		}
		l := h.s.logLocked(req.GetChannelId())
		// Callers without manage must not learn whether the channel exists.
		if !l.made && h.s.canLocked(ctx, "manage") {
			return nil, errNoChannel()
		}
		for _, id := range req.GetUserIds() {
			delete(l.members, id)
		}
		h.s.wakeLocked()
		return &parleyv1.RemoveMembersResponse{}, nil
	})
}

// pageLocked returns the page of the sorted ids that follows token, and the token of the next page,
// or "" if there is none. A size of 0 means preset; more than most means most.
func (s *Server) pageLocked(
	ctx context.Context, ids []string, query, token string, size, preset, most int32,
) (page []string, next string, err error) {
	last, err := s.openLocked(ctx, token, query, "")
	if err != nil {
		return nil, "", err
	}
	ids = slices.DeleteFunc(ids, func(id string) bool { return id <= last })
	n := min(int(cmp.Or(size, preset)), int(most))
	if s.pageSize > 0 {
		n = min(n, s.pageSize)
	}
	if len(ids) <= n {
		return ids, "", nil
	}
	return ids[:n], s.sealLocked(ctx, query, "", ids[n-1]), nil
}

// ListMembers implements the service. A page token contains the last id of the previous page.
func (h handler) ListMembers(ctx context.Context, req *parleyv1.ListMembersRequest) (*parleyv1.ListMembersResponse, error) {
	return do(ctx, h.s, "ListMembers", req, func() (*parleyv1.ListMembersResponse, error) {
		l, err := h.s.usableLocked(ctx, req.GetChannelId())
		if err != nil {
			return nil, err
		}
		all, query := slices.Sorted(maps.Keys(l.members)), "members "+req.GetChannelId()
		ids, next, err := h.s.pageLocked(ctx, all, query, req.GetPageToken(), req.GetPageSize(), 100, 1000)
		if err != nil {
			return nil, err
		}
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

// ListChannels implements the service. A page token contains the last id of the previous page.
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
		ids, next, err := h.s.pageLocked(ctx, mine, "channels", req.GetPageToken(), req.GetPageSize(), 50, 200)
		if err != nil {
			return nil, err
		}
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
		user := h.s.userLocked(ctx)
		switch {
		case req.GetSeq() > l.head():
			return nil, outOfRange("seq", l.head())
		case !l.admits(user): // a holder of manage that is not a member has no read cursor
			return nil, notMember("")
		}
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
